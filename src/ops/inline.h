/* Inlined functions of CPU kernels that GPU kernels share. */
#ifndef LTRAIN_OPS_INLINE_H
#define LTRAIN_OPS_INLINE_H

/* Prefix of functions inside functions compiled for several instruction sets (simd.h): one that is not inlined would be compiled
 * for the baseline only. In nvcc, of functions of the GPU. */
#ifdef __CUDACC__
#define INLINE static __device__ __forceinline__
#else
#define INLINE static inline __attribute__((always_inline))
#endif

#endif
