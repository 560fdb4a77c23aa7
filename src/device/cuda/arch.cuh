/* Facilities of kernels: architecture guards, shared memory as one struct, and its limits.
 *
 * Kernels also compile for the CPU, where LT_CUDASIM is defined and tests/cudasim stands in for the GPU (never define
 * __CUDA_ARCH__ there). */
#ifndef LTRAIN_DEVICE_CUDA_ARCH_CUH
#define LTRAIN_DEVICE_CUDA_ARCH_CUH

#include <cuda_runtime.h>
#include <stddef.h>
#include <stdint.h>

/* Guards inside device functions (`#if LT_ARCH_GE(80)`, `#if LT_SM90A`): false in nvcc's host pass, true in cudasim. */
#if defined(LT_CUDASIM)
#define LT_ARCH_GE(sm) 1
#define LT_SM90A 1
#elif defined(__CUDA_ARCH__)
#define LT_ARCH_GE(sm) (__CUDA_ARCH__ >= (sm)*10)
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define LT_SM90A 1
#else
#define LT_SM90A 0
#endif
#else
#define LT_ARCH_GE(sm) 0
#define LT_SM90A 0
#endif

/* All shared memory of a kernel is one struct in dynamic shared memory:
 *   LT_SHARED(struct tiles, s);      s.k[stage] ...
 * 1024-byte aligned, as TMA's 128-byte swizzle needs. Uninitialised at the start of a block. No `__shared__` variables elsewhere.
 */
#if defined(LT_CUDASIM)
#define LT_SHARED(type, name) type &name = *static_cast<type *>(sim_shared_memory(sizeof(type), alignof(type)))
#else
extern __shared__ __align__(1024) unsigned char lt_dynamic_shared[];
#define LT_SHARED(type, name) type &name = *reinterpret_cast<type *>(lt_dynamic_shared)
#endif

/* Dynamic shared memory that one block may ask for (CUDA C Programming Guide, "technical specifications"). */
#define LT_SHARED_SM80 (163 * 1024)
#define LT_SHARED_SM86 (99 * 1024) /* also 89, 120 */
#define LT_SHARED_SM90 (227 * 1024)
#define LT_SHARED_FITS(type, limit) static_assert(sizeof(type) <= (limit), #type " does not fit into " #limit)

/* A size above which work is divided: LT_LIMIT(value on GPUs, smaller value in cudasim, so that tests exceed it). */
#if defined(LT_CUDASIM)
#define LT_LIMIT(device, simulated) (simulated)
#else
#define LT_LIMIT(device, simulated) (device)
#endif

#define LT_WARP 32
#define LT_FULL_MASK 0xffffffffu

/* the 1 is necessary: without it ptxas ignores setmaxnreg (C7508) */
#define LT_KERNEL(threads) __global__ void __launch_bounds__(threads, 1)

#endif
