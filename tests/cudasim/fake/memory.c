/* Memory of the fake devices: each allocation is mapped twice. Callers get an address at which nobody can touch it; the GPU's
 * thread uses the other address. */
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST = 4096 };

struct range {
    char *at, *alias;
    size_t bytes;
    int device;
};

static struct range allocated[64], registered[MOST];
static int n_allocated, n_registered;
static long registrations;
static size_t contexts[FAKE_DEVICES], kernels[FAKE_DEVICES];
static const char *loaded[8];

void *fake_alias(const void *device)
{
    for (int i = 0; i < n_allocated; i++)
        if ((const char *)device >= allocated[i].at && (const char *)device < allocated[i].at + allocated[i].bytes)
            return allocated[i].alias + ((const char *)device - allocated[i].at);
    return NULL;
}

static const struct range *containing(const struct range *r, int n, const char *p, size_t bytes)
{
    for (int i = 0; i < n; i++)
        if (p >= r[i].at && p + bytes <= r[i].at + r[i].bytes)
            return &r[i];
    return NULL;
}

int fake_on_device(const void *p, size_t bytes)
{
    return containing(allocated, n_allocated, p, bytes) != NULL;
}

cudaError_t fake_check_pinned(const void *p, size_t bytes)
{
    if (containing(registered, n_registered, p, bytes))
        return cudaSuccess;
    for (int i = 0; i < n_registered; i++)
        if ((const char *)p < registered[i].at + registered[i].bytes && registered[i].at < (const char *)p + bytes)
            return fake_misuse(cudaErrorInvalidValue, "host memory of %zu bytes crosses the border of a registration", bytes);
    return fake_misuse(cudaErrorInvalidValue, "host memory of %zu bytes is not pinned: the copy would block", bytes);
}

/* Returns the used bytes of a device, including those of other processes. */
static size_t used(int device)
{
    size_t sum = fake_config.taken + contexts[device] + kernels[device];
    if (fake_config.grows_after > 0 && fake_executed() >= fake_config.grows_after)
        sum += fake_config.grows;
    for (int i = 0; i < n_allocated; i++)
        if (allocated[i].device == device)
            sum += allocated[i].bytes;
    return sum;
}

static cudaError_t take(size_t *part, int device, size_t bytes)
{
    if (used(device) + bytes > fake_config.memory)
        return cudaErrorMemoryAllocation;
    *part += bytes;
    return cudaSuccess;
}

cudaError_t fake_take_context(int device)
{
    return contexts[device] ? cudaSuccess : take(&contexts[device], device, fake_config.context);
}

cudaError_t fake_take_kernel(void)
{
    const int device = fake_current();
    return device < 0 ? cudaErrorInvalidDevice : take(&kernels[device], device, fake_config.kernel);
}

cudaError_t fake_take_stream(void)
{
    const int device = fake_current();
    return device < 0 ? cudaErrorInvalidDevice : take(&kernels[device], device, fake_config.stream);
}

cudaError_t fake_load(const char *kernel, int busy)
{
    int i = 0;
    while (loaded[i] && strcmp(loaded[i], kernel) != 0)
        i++;
    if (loaded[i])
        return cudaSuccess;
    loaded[i] = kernel;
    return busy ? fake_misuse(cudaErrorInvalidValue, "%s is launched for the first time while streams run: it is loaded now",
                              kernel)
                : fake_take_kernel();
}

/* Maps the range twice, or allocates it in the simulator; either way it is full of NaN. */
static int make(struct range *r)
{
    if (fake_memory_make) {
        r->at = r->alias = fake_memory_make(r->bytes);
        return r->at != NULL;
    }
    int fd = memfd_create("fake-device", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)r->bytes) != 0)
        abort();
    r->at = mmap(NULL, r->bytes, PROT_NONE, MAP_SHARED, fd, 0);
    r->alias = mmap(NULL, r->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (r->at == MAP_FAILED || r->alias == MAP_FAILED)
        abort();
    memset(r->alias, 0xff, r->bytes);
    return 1;
}

static cudaError_t allocate(void **p, size_t bytes)
{
    const size_t all = (bytes + 4095) / 4096 * 4096;
    const int device = fake_current();
    if (device < 0)
        return cudaErrorInvalidDevice;
    if (fake_is_busy())
        return fake_misuse(cudaErrorInvalidValue, "memory is allocated while streams run");
    if (n_allocated == (int)(sizeof allocated / sizeof *allocated) || used(device) + all > fake_config.memory)
        return cudaErrorMemoryAllocation;
    struct range r = {.bytes = all, .device = device};
    if (!make(&r))
        return cudaErrorMemoryAllocation;
    allocated[n_allocated++] = r;
    *p = r.at;
    return cudaSuccess;
}

static void unmap(struct range *r)
{
    if (fake_memory_give) {
        fake_memory_give(r->at, r->bytes);
        return;
    }
    munmap(r->at, r->bytes);
    munmap(r->alias, r->bytes);
}

static cudaError_t release(void *p)
{
    for (int i = 0; i < n_allocated; i++)
        if (allocated[i].at == p) {
            if (fake_is_busy())
                return fake_misuse(cudaErrorInvalidValue, "device memory is freed while streams run");
            unmap(&allocated[i]);
            allocated[i] = allocated[--n_allocated];
            return cudaSuccess;
        }
    return fake_misuse(cudaErrorInvalidValue, "cudaFree of what was not allocated");
}

static cudaError_t enlist(void *p, size_t bytes)
{
    if (fake_current() < 0)
        return cudaErrorInvalidDevice;
    const uintptr_t page = 4096, from = (uintptr_t)p / page * page, to = ((uintptr_t)p + bytes + page - 1) / page * page;
    for (int i = 0; i < n_registered; i++) /* registration pins whole pages */
        if (from < (uintptr_t)registered[i].at + registered[i].bytes && (uintptr_t)registered[i].at / page * page < to)
            return cudaErrorHostMemoryAlreadyRegistered;
    if (n_registered == MOST || ++registrations == fake_config.fail_pin)
        return cudaErrorMemoryAllocation;
    registered[n_registered++] = (struct range){.at = p, .bytes = bytes};
    return cudaSuccess;
}

static cudaError_t strike(void *p)
{
    for (int i = 0; i < n_registered; i++)
        if (registered[i].at == p) {
            registered[i] = registered[--n_registered];
            return cudaSuccess;
        }
    return cudaErrorHostMemoryNotRegistered;
}

static cudaError_t memory_info(size_t *there, size_t *all)
{
    const int device = fake_current();
    if (device < 0)
        return cudaErrorInvalidDevice;
    *all = fake_config.memory;
    *there = used(device) < *all ? *all - used(device) : 0;
    return cudaSuccess;
}

int fake_memory_left(char *text, size_t size)
{
    text[0] = 0;
    return n_allocated || n_registered
               ? snprintf(text, size, "%d allocations, %d registrations of host memory", n_allocated, n_registered)
               : 0;
}

void fake_memory_reset(void)
{
    for (int i = 0; i < n_allocated; i++)
        unmap(&allocated[i]);
    n_allocated = n_registered = 0;
    registrations = 0;
    memset(contexts, 0, sizeof contexts);
    memset(kernels, 0, sizeof kernels);
    memset(loaded, 0, sizeof loaded);
}

/* Runs `body` with the lock held unless the call fails. If `undoes`, it runs in any case, even on a dead device: the driver frees
 * memory that a process gives back. */
#define CALL(body, undoes)                               \
    do {                                                 \
        pthread_mutex_lock(&fake_lock);                  \
        cudaError_t error = fake_enter();                \
        if (error == cudaSuccess || undoes) {            \
            cudaError_t done = (body);                   \
            error = error == cudaSuccess ? done : error; \
        }                                                \
        pthread_mutex_unlock(&fake_lock);                \
        return error;                                    \
    } while (0)

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    CALL(allocate(p, bytes), 0);
}

cudaError_t cudaFree(void *p)
{
    CALL(release(p), 1);
}

cudaError_t cudaMemGetInfo(size_t *there, size_t *all)
{
    CALL(memory_info(there, all), 0);
}

cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned flags)
{
    (void)flags;
    CALL(enlist(p, bytes), 0);
}

cudaError_t cudaHostUnregister(void *p)
{
    CALL(strike(p), 1);
}

static cudaError_t allocate_host(void **p, size_t bytes)
{
    *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    return *p ? enlist(*p, bytes) : cudaErrorMemoryAllocation;
}

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags)
{
    (void)flags;
    CALL(allocate_host(p, bytes), 0);
}

static cudaError_t release_host(void *p)
{
    cudaError_t error = strike(p);
    if (error == cudaSuccess)
        free(p);
    return error;
}

cudaError_t cudaFreeHost(void *p)
{
    CALL(release_host(p), 1);
}
