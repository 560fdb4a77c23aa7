/* Devices, errors and configuration of the fake CUDA runtime. */
#include "fake.h"
#include "twin.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
struct fake_config fake_config;
int fake_sticky;

static int configured;
static long calls, counted /* for fail= */, generation;
static char misused[256]; /* the first time */

static _Thread_local char text[256];
static _Thread_local struct {
    long generation;
    int device;
} chosen;

static size_t bytes_of(const char *word)
{
    char *end;
    double n = strtod(word, &end);
    return (size_t)(n * (*end == 'G' ? 1 << 30 : *end == 'M' ? 1 << 20 : *end == 'K' ? 1 << 10 : 1));
}

/* Reads NUMBER or NUMBER:OTHER after the equals sign. */
static int set_pair(const char *word, const char *name, long *first, int *second)
{
    const size_t n = strlen(name);
    return strncmp(word, name, n) == 0 && word[n] == '=' && sscanf(word + n + 1, "%ld:%d", first, second) > 0;
}

static int set_number(const char *word, const char *name, int *out)
{
    long n;
    int unused;
    if (!set_pair(word, name, &n, &unused))
        return 0;
    *out = (int)n;
    return 1;
}

static int set_bytes(const char *word, const char *name, size_t *out)
{
    const size_t n = strlen(name);
    if (strncmp(word, name, n) != 0 || word[n] != '=')
        return 0;
    *out = bytes_of(word + n + 1);
    return 1;
}

static int set(const char *word, struct fake_config *c)
{
    const char *bytes = strchr(word, ':');
    int unused;
    if (strncmp(word, "seed=", 5) == 0)
        c->seed = strtoull(word + 5, NULL, 10);
    else if (strncmp(word, "name=", 5) == 0)
        snprintf(c->name, sizeof c->name, "%s", word + 5);
    else if (strncmp(word, "in=", 3) == 0)
        snprintf(c->fail_in, sizeof c->fail_in, "%s", word + 3);
    else if (set_pair(word, "hangs", &c->hang_executed, &unused))
        return 1;
    else if (set_pair(word, "grows", &c->grows_after, &unused))
        c->grows = bytes ? bytes_of(bytes + 1) : 0;
    else
        return set_number(word, "lag", &c->lag) || set_number(word, "devices", &c->devices) ||
               set_number(word, "capability", &c->capability) || set_number(word, "processors", &c->processors) ||
               set_number(word, "dry", &c->dry) || set_number(word, "numa", &c->numa) || set_number(word, "bus", &c->bus) ||
               set_number(word, "own", &c->own) || set_number(word, "instances", &c->instances) ||
               set_number(word, "driver", &c->driver) || set_number(word, "exclusive", &c->exclusive) ||
               set_number(word, "algorithms", &c->algorithms) || set_bytes(word, "memory", &c->memory) ||
               set_bytes(word, "taken", &c->taken) || set_bytes(word, "context", &c->context) ||
               set_bytes(word, "kernel", &c->kernel) || set_bytes(word, "stream", &c->stream) ||
               set_pair(word, "fail", &c->fail_call, &c->fail_error) || set_pair(word, "pin", &c->fail_pin, &unused) ||
               set_pair(word, "dies", &c->fail_executed, &c->executed_error);
    return 1;
}

static void configure(const char *words)
{
    char copy[512], *at = copy, *word;
    fake_config = (struct fake_config){
        .memory = (size_t)1 << 30, .devices = 1, .processors = 1, .numa = -1, .bus = 1, .driver = 13000, .name = "twin"};
    snprintf(copy, sizeof copy, "%s", words ? words : "");
    while ((word = strsep(&at, ",")))
        if (word[0] && !set(word, &fake_config) && !nccl_configure(word)) {
            fprintf(stderr, "LTRAIN_FAKE_CUDA: unknown word %s\n", word);
            abort();
        }
    if (fake_config.own)
        fake_config.devices = 1;
    configured = 1;
    misused[0] = 0;
    calls = counted = 0;
    fake_sticky = 0;
    generation++;
}

__attribute__((visibility("default"))) void fake_cuda_configure(const char *words)
{
    fake_streams_reset();
    pthread_mutex_lock(&fake_lock);
    fake_memory_reset();
    nccl_reset();
    twin_reset();
    configure(words);
    pthread_mutex_unlock(&fake_lock);
}

__attribute__((visibility("default"))) long fake_cuda_calls(void)
{
    pthread_mutex_lock(&fake_lock);
    long n = calls;
    pthread_mutex_unlock(&fake_lock);
    return n;
}

__attribute__((visibility("default"))) long fake_cuda_executed(void)
{
    pthread_mutex_lock(&fake_lock);
    long n = fake_executed();
    pthread_mutex_unlock(&fake_lock);
    return n;
}

__attribute__((visibility("default"))) const char *fake_cuda_left(void)
{
    static char left[768];
    pthread_mutex_lock(&fake_lock);
    int n = fake_memory_left(left, sizeof left);
    n += fake_streams_left(left + n, sizeof left - (size_t)n);
    n += nccl_left(left + n, sizeof left - (size_t)n);
    if (misused[0])
        snprintf(left + n, sizeof left - (size_t)n, " misused: %s", misused);
    pthread_mutex_unlock(&fake_lock);
    return left;
}

static int stays(int error)
{
    return error == cudaErrorECCUncorrectable || error == cudaErrorIllegalAddress || error == cudaErrorLaunchFailure;
}

cudaError_t fake_enter_from(const char *function)
{
    if (!configured) {
        twin_reset();
        configure(getenv("LTRAIN_FAKE_CUDA"));
    }
    text[0] = 0;
    calls++;
    if (fake_sticky)
        return (cudaError_t)fake_sticky;
    if (fake_config.fail_in[0] && strcmp(function, fake_config.fail_in) != 0)
        return cudaSuccess;
    if (++counted != fake_config.fail_call)
        return cudaSuccess;
    snprintf(text, sizeof text, "as the test wants it");
    if (stays(fake_config.fail_error))
        fake_fail_device((cudaError_t)fake_config.fail_error);
    return (cudaError_t)fake_config.fail_error;
}

cudaError_t fake_misuse(cudaError_t error, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!misused[0])
        snprintf(misused, sizeof misused, "%s", text);
    return error;
}

int fake_current(void)
{
    if (chosen.generation == generation)
        return chosen.device;
    fake_misuse(cudaErrorInvalidDevice, "this thread has not called cudaSetDevice");
    return -1;
}

const char *cudaGetErrorString(cudaError_t error)
{
    if (text[0])
        return text;
    switch ((int)error) {
    case cudaSuccess:
        return "no error";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorIllegalAddress:
        return "an illegal memory access was encountered";
    default:
        return "an error of the fake runtime";
    }
}

const char *cudaGetErrorName(cudaError_t error)
{
    static _Thread_local char name[32];
    switch ((int)error) {
    case cudaSuccess:
        return "cudaSuccess";
    case cudaErrorInvalidValue:
        return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
        return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidResourceHandle:
        return "cudaErrorInvalidResourceHandle";
    case cudaErrorIllegalAddress:
        return "cudaErrorIllegalAddress";
    case cudaErrorLaunchFailure:
        return "cudaErrorLaunchFailure";
    default:
        snprintf(name, sizeof name, "cudaError %d", (int)error);
        return name;
    }
}

/* Runs `body` with the lock held unless the configuration makes this call fail. */
#define CALL(body)                        \
    do {                                  \
        pthread_mutex_lock(&fake_lock);   \
        cudaError_t error = fake_enter(); \
        if (error == cudaSuccess)         \
            error = (body);               \
        pthread_mutex_unlock(&fake_lock); \
        return error;                     \
    } while (0)

static cudaError_t check_device(int device)
{
    if (device < 0 || device >= fake_config.devices)
        return fake_misuse(cudaErrorInvalidDevice, "there is no device %d", device);
    return cudaSuccess;
}

static cudaError_t check_driver(void)
{
    return fake_config.driver < 13000 ? cudaErrorInsufficientDriver : cudaSuccess;
}

static cudaError_t count_devices(int *count)
{
    if (check_driver() != cudaSuccess)
        return check_driver();
    *count = fake_config.devices;
    return *count ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    CALL(count_devices(count));
}

static cudaError_t driver_version(int *version)
{
    *version = fake_config.driver;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    CALL(driver_version(version));
}

static cudaError_t init_device(int device)
{
    cudaError_t error = check_device(device);
    return error != cudaSuccess ? error : fake_config.exclusive ? cudaErrorDevicesUnavailable : fake_take_context(device);
}

/* Returns the bytes of shared memory that a block may have on an A100, a GA102 or a Hopper GPU. */
static size_t shared_bytes(void)
{
    const int c = fake_config.capability;
    return (size_t)(c == 0 ? 0 : c == 80 ? 163 : c < 90 ? 99 : 227) * 1024;
}

static cudaError_t attribute(int *value, enum cudaDeviceAttr which, int device)
{
    if (which == cudaDevAttrMaxSharedMemoryPerBlockOptin) {
        *value = (int)shared_bytes();
        return check_device(device);
    }
    if (which != cudaDevAttrHostNumaId)
        return fake_misuse(cudaErrorInvalidValue, "attribute %d is not one of the fake's", (int)which);
    *value = fake_config.numa;
    return check_device(device);
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr which, int device)
{
    CALL(attribute(value, which, device));
}

/* Every call returns its own error, so this function has none to report. */
cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

cudaError_t cudaInitDevice(int device, unsigned device_flags, unsigned flags)
{
    CALL(flags != cudaInitDeviceFlagsAreValid || device_flags != cudaDeviceScheduleBlockingSync
             ? fake_misuse(cudaErrorInvalidValue, "waiting threads would spin: no cudaDeviceScheduleBlockingSync")
             : init_device(device));
}

static cudaError_t set_device(int device)
{
    cudaError_t error = check_device(device);
    if (error == cudaSuccess) {
        chosen.device = device;
        chosen.generation = generation;
    }
    return error;
}

cudaError_t cudaSetDevice(int device)
{
    CALL(set_device(device));
}

static cudaError_t get_device(int *device)
{
    *device = fake_current();
    return *device < 0 ? cudaErrorInvalidDevice : cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    CALL(get_device(device));
}

int fake_number_on_host(int device)
{
    const char *rank = fake_config.own ? getenv("OMPI_COMM_WORLD_LOCAL_RANK") : NULL;
    return rank ? atoi(rank) : device;
}

static cudaError_t properties(struct cudaDeviceProp *prop, int device)
{
    memset(prop, 0, sizeof *prop);
    snprintf(prop->name, sizeof prop->name, "%s", fake_config.name);
    snprintf(prop->uuid.bytes, sizeof prop->uuid.bytes, "device %d", fake_number_on_host(device) + fake_config.bus);
    prop->totalGlobalMem = fake_config.memory;
    prop->major = fake_config.capability / 10;
    prop->minor = fake_config.capability % 10;
    prop->multiProcessorCount = fake_config.processors;
    prop->sharedMemPerBlockOptin = shared_bytes();
    return check_device(device);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
    CALL(properties(prop, device));
}

static cudaError_t pci(char *to, int size, int device)
{
    snprintf(to, (size_t)size, "0000:%02x:00.0", (fake_config.instances ? 0 : fake_number_on_host(device)) + fake_config.bus);
    return check_device(device);
}

cudaError_t cudaDeviceGetPCIBusId(char *to, int size, int device)
{
    CALL(pci(to, size, device));
}

static cudaError_t priorities(int *least, int *greatest)
{
    *least = FAKE_LEAST;
    *greatest = FAKE_GREATEST;
    return fake_current() < 0 ? cudaErrorInvalidDevice : cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    CALL(priorities(least, greatest));
}
