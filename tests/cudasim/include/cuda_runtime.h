/* Replaces CUDA's header: the types, runtime calls and device built-ins that our kernels and launchers use, on the CPU. */
#ifndef CUDASIM_CUDA_RUNTIME_H
#define CUDASIM_CUDA_RUNTIME_H

#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
#include <cmath>
#include <cstring>
#include <new>
#include <tuple>
#else
#include <math.h>
#include <string.h>
#endif

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
/* Places a no-op for each warp before the kernel's first instruction, which the simulator counts (sim/fiber.cpp). */
#define __launch_bounds__(threads, ...) __attribute__((patchable_function_entry(((threads) + 31) / 32, ((threads) + 31) / 32)))
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))

/* --- runtime ------------------------------------------------------------------------------------------------------------------
 */

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cudaError {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInsufficientDriver = 35,
    cudaErrorDevicesUnavailable = 46,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorECCUncorrectable = 214,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorLaunchOutOfResources = 701,
    cudaErrorHostMemoryAlreadyRegistered = 712,
    cudaErrorHostMemoryNotRegistered = 713,
    cudaErrorLaunchFailure = 719,
    cudaErrorSystemNotReady = 802,
    cudaErrorSystemDriverMismatch = 803,
    cudaErrorCompatNotSupportedOnDevice = 804,
} cudaError_t;

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;

enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    cudaMemcpyDefault
};
enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9,
};
enum cudaDeviceAttr {
    cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
    cudaDevAttrHostNumaId = 134,
};
enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess = 0, cudaDriverEntryPointSymbolNotFound = 1 };
enum {
    cudaEnableDefault = 0,
    cudaStreamNonBlocking = 1,
    cudaEventBlockingSync = 1,
    cudaEventDisableTiming = 2,
    cudaHostAllocDefault = 0,
    cudaHostAllocPortable = 1,
    cudaHostRegisterPortable = 1,
    cudaInitDeviceFlagsAreValid = 1,
    cudaDeviceScheduleBlockingSync = 4
};

typedef struct {
    char bytes[16];
} cudaUUID_t;

struct cudaDeviceProp { /* only the members that ltrain reads */
    char name[256];
    cudaUUID_t uuid;
    size_t totalGlobalMem, sharedMemPerBlockOptin;
    int major, minor, multiProcessorCount;
};

struct cudaFuncAttributes {
    int numRegs;
    size_t localSizeBytes, sharedSizeBytes;
    int maxThreadsPerBlock;
};

const char *cudaGetErrorString(cudaError_t error);
const char *cudaGetErrorName(cudaError_t error);
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaSetDevice(int device);
/* Functions from here to cudaMemGetInfo, cudaHost*, priorities and elapsed times exist only in the fake runtime
 * (tests/cudasim/fake), not in cudasim. */
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaInitDevice(int device, unsigned device_flags, unsigned flags);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device);
cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int device);
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest);
cudaError_t cudaMemGetInfo(size_t *there, size_t *all);
cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags);
cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void *p);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to);
/* Attributes are those of an H100 unless sim_device() was called. */
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaMalloc(void **p, size_t bytes); /* allocations are 256-byte aligned and filled with NaN */
cudaError_t cudaFree(void *p);
cudaError_t cudaMallocHost(void **p, size_t bytes);
cudaError_t cudaFreeHost(void *p);
cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemset(void *p, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaStreamCreate(cudaStream_t *stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreate(cudaEvent_t *event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attr, int value);
cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **entry, unsigned version, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *result);

#ifdef __cplusplus
}

/* --- vector types -------------------------------------------------------------------------------------------------------------
 */

#define CUDASIM_VECTOR(T, name, align2, align4)              \
    struct name##1                                           \
    {                                                        \
        T x;                                                 \
    };                                                       \
    struct alignas(align2) name##2                           \
    {                                                        \
        T x, y;                                              \
    };                                                       \
    struct name##3                                           \
    {                                                        \
        T x, y, z;                                           \
    };                                                       \
    struct alignas(align4) name##4                           \
    {                                                        \
        T x, y, z, w;                                        \
    };                                                       \
    static inline name##2 make_##name##2(T x, T y)           \
    {                                                        \
        return {x, y};                                       \
    }                                                        \
    static inline name##3 make_##name##3(T x, T y, T z)      \
    {                                                        \
        return {x, y, z};                                    \
    }                                                        \
    static inline name##4 make_##name##4(T x, T y, T z, T w) \
    {                                                        \
        return {x, y, z, w};                                 \
    }

CUDASIM_VECTOR(unsigned char, uchar, 2, 4)
CUDASIM_VECTOR(unsigned short, ushort, 4, 8)
CUDASIM_VECTOR(int, int, 8, 16)
CUDASIM_VECTOR(unsigned, uint, 8, 16)
CUDASIM_VECTOR(float, float, 8, 16)
CUDASIM_VECTOR(double, double, 16, 16)
CUDASIM_VECTOR(long long, longlong, 16, 16)
CUDASIM_VECTOR(unsigned long long, ulonglong, 16, 16)

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned nx = 1, unsigned ny = 1, unsigned nz = 1) : x(nx), y(ny), z(nz)
    {
    }
};

struct cudaLaunchAttribute;
struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute *attrs;
    unsigned numAttrs;
};

template <class T> static inline cudaError_t cudaMalloc(T **p, size_t bytes)
{
    return cudaMalloc(reinterpret_cast<void **>(p), bytes);
}

template <class T> static inline cudaError_t cudaFuncSetAttribute(T *function, cudaFuncAttribute attr, int value)
{
    return cudaFuncSetAttribute(reinterpret_cast<const void *>(function), attr, value);
}

template <class T> static inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, T, int, size_t)
{
    *blocks = 1;
    return cudaSuccess;
}

/* --- launches -----------------------------------------------------------------------------------------------------------------
 */

void *sim_parameter_space(void); /* 4096 bytes, 64-byte aligned, that hold a kernel's arguments while it runs */
cudaError_t sim_run(const cudaLaunchConfig_t *config, const void *kernel, void (*call)(void *), void *parameters);

template <class... P> static inline cudaError_t sim_launch(const cudaLaunchConfig_t *config, void (*kernel)(P...), P... args)
{
    struct call {
        void (*kernel)(P...);
        std::tuple<P...> args;
    };
    static_assert(sizeof(call) <= 4096, "kernel parameters");
    call *c = new (sim_parameter_space()) call{kernel, std::tuple<P...>(args...)};
    return sim_run(
        config, reinterpret_cast<const void *>(kernel),
        [](void *p) {
            call *me = static_cast<call *>(p);
            std::apply(me->kernel, me->args);
        },
        c);
}

#include "cudasim_device.h"
#endif
#endif
