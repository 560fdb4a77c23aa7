/* The simulated CUDA runtime: one device, and streams that run everything at once. */
#include "sim.h"

#include <map>
#include <stdlib.h>
#include <string.h>

void fiber_reset(unsigned seed);
bool fiber_failed(void);
void report_reset(void);

static int handles;
static std::map<cudaStream_t, unsigned long long> enqueued;

void stream_enqueue(cudaStream_t stream)
{
    enqueued[stream]++;
    sim_count.enqueued++;
}

extern "C" {

void sim_reset(unsigned seed)
{
    memory_reset();
    report_reset();
    fiber_reset(seed);
    sim_count = {};
    enqueued.clear();
    sim_checking = true;
    sim_sums_in_order = false;
}

void sim_ordered_sums(int on)
{
    sim_sums_in_order = on != 0;
}

void sim_checks(int on)
{
    sim_checking = on != 0;
}

struct sim_counts sim_counted(void)
{
    return sim_count;
}

unsigned long long sim_enqueued(cudaStream_t stream)
{
    return enqueued[stream];
}

const char *cudaGetErrorName(cudaError_t error)
{
    switch (error) {
    case cudaSuccess:
        return "cudaSuccess";
    case cudaErrorInvalidValue:
        return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
        return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
        return "cudaErrorInvalidConfiguration";
    case cudaErrorNotReady:
        return "cudaErrorNotReady";
    case cudaErrorIllegalAddress:
        return "cudaErrorIllegalAddress";
    case cudaErrorLaunchOutOfResources:
        return "cudaErrorLaunchOutOfResources";
    case cudaErrorLaunchFailure:
        return "cudaErrorLaunchFailure";
    default:
        return "unknown error";
    }
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaErrorLaunchFailure ? sim_report() : cudaGetErrorName(error);
}

cudaError_t cudaGetLastError(void)
{
    return fiber_failed() ? cudaErrorLaunchFailure : cudaSuccess;
}

cudaError_t cudaPeekAtLastError(void)
{
    return cudaGetLastError();
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    return device == 0 ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaDeviceSynchronize(void)
{
    return cudaGetLastError();
}

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    *p = memory_allocate(bytes);
    return *p || bytes == 0 ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void *p)
{
    return memory_free(p) ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaMallocHost(void **p, size_t bytes)
{
    *p = malloc(bytes ? bytes : 1);
    return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFreeHost(void *p)
{
    free(p);
    return cudaSuccess;
}

/* All bytes on the device's side must be allocated device memory, none on the host's side. */
cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind)
{
    const bool to = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (bytes == 0)
        return cudaSuccess;
    if (kind == cudaMemcpyDefault || !memory_holds(dst, bytes, to) || !memory_holds(src, bytes, from))
        return cudaErrorInvalidValue;
    memmove(dst, src, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    stream_enqueue(stream);
    return cudaMemcpy(dst, src, bytes, kind);
}

cudaError_t cudaMemset(void *p, int value, size_t bytes)
{
    if (bytes == 0)
        return cudaSuccess;
    if (!memory_holds(p, bytes, true))
        return cudaErrorInvalidValue;
    memset(p, value, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream)
{
    stream_enqueue(stream);
    return cudaMemset(p, value, bytes);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    *stream = reinterpret_cast<cudaStream_t>((intptr_t)++handles);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
    return cudaStreamCreate(stream);
}

cudaError_t cudaStreamDestroy(cudaStream_t)
{
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t)
{
    return cudaGetLastError();
}

cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned)
{
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    *event = reinterpret_cast<cudaEvent_t>((intptr_t)++handles);
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    return cudaEventCreate(event);
}

cudaError_t cudaEventDestroy(cudaEvent_t)
{
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t)
{
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t)
{
    return cudaGetLastError();
}

cudaError_t cudaEventQuery(cudaEvent_t)
{
    return cudaGetLastError();
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **entry, unsigned, unsigned long long,
                                             enum cudaDriverEntryPointQueryResult *result)
{
    bool known = strcmp(symbol, "cuTensorMapEncodeTiled") == 0;
    *entry = known ? reinterpret_cast<void *>(tensor_map_encode) : nullptr;
    *result = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}
}
