/* Choosing a GPU, its memory, and pinning host memory for it. */
#include "device/cuda/device.h"

#include "base/num.h"
#include "base/sys.h"
#include "base/units.h"
#include "device/cuda/errors.h"
#include "device/cuda/streams.h"

#include <ctype.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD 4096
#define GUARD_BYTE 0xa5
#define BOUNCE ((int64_t)1 << 20)
#define MAX_PINNERS 8
#define LEAST_CAPABILITY 80
#define PREPARED_TOKENS 128 /* tokens with which attention is prepared; the kernel does not depend on their number */

/* --- Choice --- */

/* Explains errors of a process's first calls that the user can mend. */
static enum status first_status(cudaError_t error, const char *call)
{
    int version = 0;
    switch (error) {
    case cudaSuccess:
        return OK;
    case cudaErrorInsufficientDriver:
        (void)cudaDriverGetVersion(&version);
        if (version == 0)
            return status_fail(ERR_INVALID, "--device cuda: no NVIDIA driver answers, though its library may be here: is this a "
                                            "container that was started without GPUs (docker run --gpus all)?");
        return status_fail(
            ERR_INVALID,
            "--device cuda: the NVIDIA driver is one for CUDA %d.%d, and this ltrain needs CUDA 13: install driver "
            "580 or later",
            version / 1000, version % 1000 / 10);
    case cudaErrorNoDevice:
        return status_fail(ERR_INVALID, "--device cuda: the driver shows no GPU to this process (CUDA_VISIBLE_DEVICES?)");
    case cudaErrorSystemNotReady:
        return status_fail(ERR_INVALID, "--device cuda: the driver is not ready: GPUs behind NVSwitch need the fabric manager "
                                        "(systemctl start nvidia-fabricmanager)");
    case cudaErrorSystemDriverMismatch:
        return status_fail(ERR_INVALID, "--device cuda: libcuda.so.1 and the driver in the kernel are of different versions: "
                                        "the machine must be restarted after an update");
    case cudaErrorCompatNotSupportedOnDevice:
        return status_fail(ERR_INVALID,
                           "--device cuda: the libcuda.so.1 that was found is CUDA's compatibility package, which this kind of "
                           "GPU is not supported by: take it out of LD_LIBRARY_PATH, and install driver 580 or later");
    default:
        return cuda_status(error, call);
    }
}

enum status cuda_device_count(int *devices)
{
    *devices = 0;
    TRY(first_status(cudaGetDeviceCount(devices), "cudaGetDeviceCount"));
    return *devices > 0 ? OK : first_status(cudaErrorNoDevice, "cudaGetDeviceCount");
}

/* Makes the context, once in a process, whatever device is asked for later. Waiting threads sleep. */
static enum status make_context(int device, const struct device_facts *facts)
{
    char memory[32];
    cudaError_t error = cudaInitDevice(device, cudaDeviceScheduleBlockingSync, cudaInitDeviceFlagsAreValid);
    if (error == cudaSuccess)
        error = cudaSetDevice(device);
    if (error == cudaErrorDevicesUnavailable)
        return status_fail(
            ERR_INVALID,
            "--device cuda: GPU %d, %s, belongs to another process alone (exclusive compute mode): end that one, or "
            "take another GPU (--device cuda:N)",
            device, facts->name);
    if (error == cudaErrorMemoryAllocation)
        return status_fail(ERR_NOMEM,
                           "--device cuda: GPU %d, %s, has no room for a context of some 500 MiB: other processes have its %s "
                           "(nvidia-smi names them)",
                           device, facts->name, units_format_bytes(facts->memory, memory));
    return first_status(error, "cudaInitDevice");
}

/* Finds the host's NUMA node nearest to the GPU; -1: unknown. */
static enum status find_numa_node(int device, const char *pci, int *node)
{
    char path[96];
    TRY(CUDA_STATUS(cudaDeviceGetAttribute(node, cudaDevAttrHostNumaId, device)));
    if (*node >= 0)
        return OK;
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", pci);
    for (char *c = path; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    FILE *f = fopen(path, "re");
    if (!f || fscanf(f, "%d", node) != 1)
        *node = -1;
    if (f)
        fclose(f);
    return OK;
}

enum status cuda_device_describe(int device, struct device_facts *out)
{
    struct cudaDeviceProp prop;
    size_t there, all;
    memset(out, 0, sizeof *out);
    TRY(first_status(cudaGetDeviceProperties(&prop, device), "cudaGetDeviceProperties"));
    snprintf(out->name, sizeof out->name, "%.120s", prop.name);
    for (int i = 0; i < 16; i++)
        snprintf(out->uuid + 2 * i, sizeof out->uuid - 2 * (size_t)i, "%02x", (unsigned char)prop.uuid.bytes[i]);
    out->capability = 10 * prop.major + prop.minor;
    out->processors = prop.multiProcessorCount;
    out->shared_bytes = (int64_t)prop.sharedMemPerBlockOptin;
    out->memory = (int64_t)prop.totalGlobalMem;
    if (out->capability > 0 && out->capability < LEAST_CAPABILITY)
        return status_fail(ERR_INVALID, "--device cuda: GPU %d, %s, has compute capability %d.%d; kernels need 8.0 or later",
                           device, out->name, prop.major, prop.minor);
    TRY(make_context(device, out));
    TRY(CUDA_STATUS(cudaDeviceGetPCIBusId(out->pci, sizeof out->pci, device)));
    TRY(CUDA_STATUS(cudaMemGetInfo(&there, &all)));
    TRY(find_numa_node(device, out->pci, &out->numa));
    out->memory = (int64_t)all;
    out->free = (int64_t)there;
    return OK;
}

/* --- Memory --- */

static enum status fill(struct backend *b, void *device, int byte, int64_t bytes)
{
    struct cuda_device *c = cuda_device_of(b);
    if (bytes == 0)
        return OK;
    TRY(CUDA_STATUS(cudaMemsetAsync(device, byte, (size_t)bytes, c->stream[LANE_COMPUTE])));
    return CUDA_STATUS(cudaStreamSynchronize(c->stream[LANE_COMPUTE]));
}

/* Reads through the bounce buffer, so the caller's memory need not be pinned, and on a stream that waits for no lane. */
static enum status read_bytes(struct backend *b, void *host, const void *device, int64_t bytes)
{
    struct cuda_device *c = cuda_device_of(b);
    for (int64_t at = 0, n; at < bytes; at += n) {
        n = min_i64(BOUNCE, bytes - at);
        TRY(CUDA_STATUS(cudaMemcpyAsync(c->bounce, (const char *)device + at, (size_t)n, cudaMemcpyDeviceToHost, c->reading)));
        TRY(CUDA_STATUS(cudaStreamSynchronize(c->reading)));
        memcpy((char *)host + at, c->bounce, (size_t)n);
    }
    return OK;
}

static enum status write_bytes(struct backend *b, void *device, const void *host, int64_t bytes)
{
    struct cuda_device *c = cuda_device_of(b);
    for (int64_t at = 0, n; at < bytes; at += n) {
        n = min_i64(BOUNCE, bytes - at);
        memcpy(c->bounce, (const char *)host + at, (size_t)n);
        TRY(CUDA_STATUS(cudaMemcpyAsync((char *)device + at, c->bounce, (size_t)n, cudaMemcpyHostToDevice, c->stream[LANE_H2D])));
        TRY(CUDA_STATUS(cudaStreamSynchronize(c->stream[LANE_H2D])));
    }
    return OK;
}

static enum status free_bytes(struct backend *b, int64_t *out)
{
    size_t there = 0, all;
    (void)b;
    TRY(CUDA_STATUS(cudaMemGetInfo(&there, &all)));
    *out = (int64_t)there;
    return OK;
}

/* Uses each stream and copy direction once, copying the guard onto itself. The driver makes channels at first use, partly in
 * device memory, which must not happen in a step. */
static enum status use_streams(struct backend *b)
{
    struct cuda_device *c = cuda_device_of(b);
    unsigned char guard[GUARD];
    TRY(read_bytes(b, guard, b->base - GUARD, GUARD));
    TRY(write_bytes(b, b->base - GUARD, guard, GUARD));
    TRY(CUDA_STATUS(cudaMemcpyAsync(c->bounce, b->base - GUARD, GUARD, cudaMemcpyDeviceToHost, c->stream[LANE_D2H])));
    TRY(CUDA_STATUS(cudaStreamSynchronize(c->stream[LANE_D2H])));
    TRY(CUDA_STATUS(cudaMemcpyAsync(c->bounce, b->base - GUARD, GUARD, cudaMemcpyDeviceToHost, c->stream[LANE_WORLD])));
    TRY(CUDA_STATUS(cudaMemcpyAsync(b->base - GUARD, c->bounce, GUARD, cudaMemcpyHostToDevice, c->stream[LANE_WORLD])));
    return CUDA_STATUS(cudaStreamSynchronize(c->stream[LANE_WORLD]));
}

/* Allocates the arena, laid out as | up to a page | guard | base: bytes | guard |. */
static enum status allocate(struct backend *b, int64_t bytes)
{
    struct cuda_device *c = cuda_device_of(b);
    int64_t there = 0;
    char need[32], have[32];
    void *p = NULL;
    TRY(free_bytes(b, &there));
    cudaError_t error = cudaMalloc(&p, (size_t)(bytes + 3 * GUARD));
    if (error == cudaErrorMemoryAllocation)
        return status_fail(ERR_NOMEM,
                           "the device arena of %s does not fit into the %s that are free on %s: give a smaller --device-mem",
                           units_format_bytes(bytes, need), units_format_bytes(there, have), c->name);
    TRY(cuda_status(error, "cudaMalloc"));
    c->arena = (char *)p;
    b->base = (char *)(uintptr_t)round_up((int64_t)(uintptr_t)p + GUARD, GUARD);
    b->bytes = bytes;
    TRY(fill(b, b->base - GUARD, GUARD_BYTE, GUARD));
    TRY(fill(b, b->base + bytes, GUARD_BYTE, GUARD));
    return use_streams(b);
}

static enum status check_guard(struct backend *b, const char *at, const char *side)
{
    unsigned char seen[GUARD];
    TRY(read_bytes(b, seen, at, GUARD));
    for (int i = 0; i < GUARD; i++)
        if (seen[i] != GUARD_BYTE)
            return status_fail(ERR_CORRUPT, "device arena: something wrote %s its %s", side, side[0] == 'b' ? "start" : "end");
    return OK;
}

static enum status check(const struct backend *b)
{
    struct cuda_device *c = cuda_device_of(b);
    TRY(check_guard(&c->b, b->base - GUARD, "before"));
    return check_guard(&c->b, b->base + b->bytes, "after");
}

/* --- Pinning --- */

struct pinning {
    const struct cuda_device *c;
    struct cuda_pin pin;
    _Atomic int64_t next; /* next piece to pin */
    _Atomic int error;    /* cudaError_t of the first failure */
};

static int64_t pieces(const struct cuda_pin *p)
{
    return ceil_div(p->bytes, CUDA_PIN_PIECE);
}

static void *pin_pieces(void *user)
{
    struct pinning *p = user;
    int error = cudaSetDevice(p->c->device), none = cudaSuccess;
    for (int64_t i; error == cudaSuccess && (i = atomic_fetch_add(&p->next, 1)) < pieces(&p->pin);) {
        int64_t at = i * CUDA_PIN_PIECE;
        error = cudaHostRegister(p->pin.base + at, (size_t)min_i64(CUDA_PIN_PIECE, p->pin.bytes - at), cudaHostRegisterPortable);
    }
    if (error != cudaSuccess) {
        atomic_compare_exchange_strong(&p->error, &none, error);
        atomic_store(&p->next, pieces(&p->pin));
    }
    return NULL;
}

/* Unregisters all pieces. For pieces that were never registered CUDA reports an error, which is cleared. */
static void unpin(const struct cuda_pin *p)
{
    for (int64_t at = 0; at < p->bytes; at += CUDA_PIN_PIECE)
        (void)cudaHostUnregister(p->base + at);
    (void)cudaGetLastError();
}

static enum status pin(struct backend *b, void *host, int64_t bytes)
{
    struct cuda_device *c = cuda_device_of(b);
    struct pinning p = {.c = c, .pin = {host, bytes}};
    pthread_t thread[MAX_PINNERS];
    char size[32], piece[32];
    int n = 0;
    if (bytes == 0)
        return OK;
    while (n + 1 < min_i64(MAX_PINNERS, pieces(&p.pin)) && sys_thread(&thread[n], pin_pieces, &p) == 0)
        n++;
    pin_pieces(&p);
    for (int i = 0; i < n; i++)
        pthread_join(thread[i], NULL);
    const cudaError_t error = (cudaError_t)atomic_load(&p.error);
    if (error != cudaSuccess) {
        enum status st =
            status_fail(error == cudaErrorMemoryAllocation ? ERR_NOMEM : ERR_IO,
                        "cudaHostRegister: %s of host memory cannot be pinned in pieces of %s: %s (%s): give a smaller "
                        "--host-mem",
                        units_format_bytes(bytes, size), units_format_bytes(CUDA_PIN_PIECE, piece), cudaGetErrorString(error),
                        cudaGetErrorName(error));
        unpin(&p.pin);
        return st;
    }
    c->pin[c->n_pins++] = p.pin;
    return OK;
}

/* --- The backend --- */

/* Refuses a plan whose arena leaves no room for loading kernels. */
static enum status no_room_for_kernels(struct backend *b, enum op_kind op)
{
    char cause[256], arena[32], left[32];
    int64_t there = 0;
    snprintf(cause, sizeof cause, "%s", status_message());
    (void)free_bytes(b, &there);
    return status_fail(ERR_NOMEM,
                       "no room for the kernel of %s beside the device arena of %s: %s are free on %s (%s): give a smaller "
                       "--device-mem",
                       op_name(op), units_format_bytes(b->bytes, arena), units_format_bytes(there, left), b->name, cause);
}

static enum status prepare(struct backend *b, enum op_kind op, const struct op_attrs *attrs, void *const *arg)
{
    struct cuda_device *c = cuda_device_of(b);
    struct op_attrs a = *attrs;
    if (op_class(op) == OPS_ATTENTION) {
        a.attn.sq = min_i64(a.attn.sq, PREPARED_TOKENS);
        a.attn.sk = min_i64(a.attn.sk, PREPARED_TOKENS);
    }
    enum status st = b->kernels[op](&a, arg, c->stream[LANE_COMPUTE]);
    if (st == OK)
        st = CUDA_STATUS(cudaStreamSynchronize(c->stream[LANE_COMPUTE]));
    return st == ERR_NOMEM ? no_room_for_kernels(b, op) : st;
}

static void close_device(struct backend *b)
{
    struct cuda_device *c = cuda_device_of(b);
    (void)cudaSetDevice(c->device);
    cuda_streams_close(c);
    for (int i = 0; i < c->n_pins; i++)
        unpin(&c->pin[i]);
    if (c->bounce)
        (void)cudaFreeHost(c->bounce);
    if (c->arena)
        (void)cudaFree(c->arena);
    free(c);
}

enum status cuda_device_open(int device, struct backend **out)
{
    struct device_facts facts;
    void *bounce = NULL;
    TRY(cuda_device_describe(device, &facts));
    struct cuda_device *c = sys_calloc(1, sizeof *c);
    if (!c)
        return status_fail(ERR_NOMEM, "out of memory for the device");
    snprintf(c->name, sizeof c->name, "GPU %d, %s, %s", device, facts.name, facts.pci);
    c->device = device;
    c->b.name = c->name;
    c->b.allocate = allocate;
    c->b.check = check;
    c->b.close = close_device;
    c->b.sentence = status_message;
    c->b.pin = pin;
    c->b.prepare = prepare;
    c->b.free_bytes = free_bytes;
    c->b.fill = fill;
    c->b.read = read_bytes;
    c->b.write = write_bytes;
    c->b.state = c;
    enum status st = cuda_streams_open(c);
    if (st == OK)
        st = CUDA_STATUS(cudaHostAlloc(&bounce, (size_t)BOUNCE, cudaHostAllocPortable));
    c->bounce = bounce;
    if (st != OK) {
        close_device(&c->b);
        return st;
    }
    *out = &c->b;
    return OK;
}
