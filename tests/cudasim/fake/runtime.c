/* Devices, errors, configuration of the fake CUDA runtime. */
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
static long calls, generation;
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

static void configure(const char *words)
{
    char copy[512], *at = copy, *word;
    fake_config = (struct fake_config){.memory = (size_t)1 << 30, .devices = 1};
    snprintf(copy, sizeof copy, "%s", words ? words : "");
    while ((word = strsep(&at, ",")))
        if (strncmp(word, "seed=", 5) == 0)
            fake_config.seed = strtoull(word + 5, NULL, 10);
        else if (strncmp(word, "lag=", 4) == 0)
            fake_config.lag = atoi(word + 4);
        else if (strncmp(word, "memory=", 7) == 0)
            fake_config.memory = bytes_of(word + 7);
        else if (strncmp(word, "devices=", 8) == 0)
            fake_config.devices = atoi(word + 8);
        else if (strncmp(word, "fail=", 5) == 0)
            sscanf(word + 5, "%ld:%d", &fake_config.fail_call, &fake_config.fail_error);
        else if (strncmp(word, "dies=", 5) == 0)
            sscanf(word + 5, "%ld:%d", &fake_config.fail_executed, &fake_config.executed_error);
        else if (word[0]) {
            fprintf(stderr, "LTRAIN_FAKE_CUDA: unknown word %s\n", word);
            abort();
        }
    configured = 1;
    misused[0] = 0;
    calls = 0;
    fake_sticky = 0;
    generation++;
}

__attribute__((visibility("default"))) void fake_cuda_configure(const char *words)
{
    fake_streams_reset();
    pthread_mutex_lock(&fake_lock);
    fake_memory_reset();
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
    if (misused[0])
        snprintf(left + n, sizeof left - (size_t)n, " misused: %s", misused);
    pthread_mutex_unlock(&fake_lock);
    return left;
}

static int stays(int error)
{
    return error == cudaErrorECCUncorrectable || error == cudaErrorIllegalAddress || error == cudaErrorLaunchFailure;
}

cudaError_t fake_enter(void)
{
    if (!configured)
        configure(getenv("LTRAIN_FAKE_CUDA"));
    text[0] = 0;
    calls++;
    if (fake_sticky)
        return (cudaError_t)fake_sticky;
    if (calls != fake_config.fail_call)
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

/* Runs `body` under the lock unless the call fails by order. */
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

static cudaError_t count_devices(int *count)
{
    *count = fake_config.devices;
    return *count ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    CALL(count_devices(count));
}

cudaError_t cudaInitDevice(int device, unsigned device_flags, unsigned flags)
{
    CALL(flags != cudaInitDeviceFlagsAreValid || device_flags != cudaDeviceScheduleBlockingSync
             ? fake_misuse(cudaErrorInvalidValue, "waiting threads would spin: no cudaDeviceScheduleBlockingSync")
             : check_device(device));
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

static cudaError_t properties(struct cudaDeviceProp *prop, int device)
{
    memset(prop, 0, sizeof *prop);
    snprintf(prop->name, sizeof prop->name, "twin");
    prop->totalGlobalMem = fake_config.memory;
    return check_device(device);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
    CALL(properties(prop, device));
}

static cudaError_t pci(char *to, int size, int device)
{
    snprintf(to, (size_t)size, "0000:%02x:00.0", device + 1);
    return check_device(device);
}

cudaError_t cudaDeviceGetPCIBusId(char *to, int size, int device)
{
    CALL(pci(to, size, device));
}

static cudaError_t priorities(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return fake_current() < 0 ? cudaErrorInvalidDevice : cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    CALL(priorities(least, greatest));
}
