/* Hopper's warpgroup matrix products: wgmma.mma_async m64nNk16, bf16 in, fp32 accumulators. Included by ptx.cuh.
 *
 * All 128 threads of a warpgroup issue together. Order: wgmma_fence (before the first product, and after any other touch of the
 * accumulators or of A's registers), wgmma<...>, ..., wgmma_commit, wgmma_wait<n>; until the wait neither accumulators nor A's
 * registers may be touched, and shared-memory operands may not be written. Ordinary writes of operands need fence_proxy_async.
 *   D d[i]: row 16w + g + 8 ((i / 2) % 2), column 8 (i / 4) + 2t + i % 2 (w: warp in the warpgroup, g = lane / 4, t = lane % 4)
 *   A in registers: as mma.m16n8k16's, plus 16w rows */
#ifndef LTRAIN_DEVICE_CUDA_PTX_WGMMA_CUH
#define LTRAIN_DEVICE_CUDA_PTX_WGMMA_CUH

#include "device/cuda/arch.cuh"

/* Contiguous dimension of an operand in shared memory: k, or m (A) / n (B), "transposed". */
enum wgmma_major { K_MAJOR = 0, MN_MAJOR = 1 };

/* Effect of a product on the accumulators: replaced, or added to. */
enum wgmma_scale { WGMMA_REPLACE = 0, WGMMA_ADD = 1 };

#if !defined(LT_CUDASIM)

__device__ static inline void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ static inline void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int N> __device__ static inline void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* Tells the compiler that this register changes here; called around waits, so that the compiler moves no use of an accumulator
 * across them. Emits no instruction. */
__device__ static inline void wgmma_keep(float &d)
{
    asm volatile("" : "+f"(d)::"memory");
}

/* clang-format off */
#define LT_D16(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7]), \
    "+f"(d[i + 8]), "+f"(d[i + 9]), "+f"(d[i + 10]), "+f"(d[i + 11]), "+f"(d[i + 12]), "+f"(d[i + 13]), "+f"(d[i + 14]), "+f"(d[i + 15])
#define LT_R0 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define LT_R1 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define LT_R2 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define LT_R3 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define LT_R4 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define LT_R5 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define LT_R6 "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define LT_R7 "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define LT_OUTPUTS_32 LT_D16(0)
#define LT_OUTPUTS_64 LT_OUTPUTS_32, LT_D16(16)
#define LT_OUTPUTS_96 LT_OUTPUTS_64, LT_D16(32)
#define LT_OUTPUTS_128 LT_OUTPUTS_96, LT_D16(48)
#define LT_OUTPUTS_160 LT_OUTPUTS_128, LT_D16(64)
#define LT_OUTPUTS_192 LT_OUTPUTS_160, LT_D16(80)
#define LT_OUTPUTS_224 LT_OUTPUTS_192, LT_D16(96)
#define LT_OUTPUTS_256 LT_OUTPUTS_224, LT_D16(112)
/* clang-format on */

/* Holds the instructions of one width. A thread has n / 2 accumulators; p0 to p6 are the operand numbers behind them. */
template <int N> struct wgmma_shape;

#define LT_WGMMA(n, registers, outputs, p0, p1, p2, p3, p4, p5, p6)                                                       \
    template <> struct wgmma_shape<n> {                                                                                   \
        template <int TA, int TB>                                                                                         \
        __device__ static inline void from_shared(float (&d)[n / 2], uint64_t a, uint64_t b, int scale)                   \
        {                                                                                                                 \
            asm volatile("{.reg .pred p; setp.ne.b32 p, " p2 ", 0; wgmma.mma_async.sync.aligned.m64n" #n                  \
                         "k16.f32.bf16.bf16 {" registers "}, " p0 ", " p1 ", p, 1, 1, " p3 ", " p4 ";}"                   \
                         : outputs                                                                                        \
                         : "l"(a), "l"(b), "r"(scale), "n"(TA), "n"(TB));                                                 \
        }                                                                                                                 \
        template <int TB>                                                                                                 \
        __device__ static inline void from_registers(float (&d)[n / 2], const uint32_t (&a)[4], uint64_t b, int scale)    \
        {                                                                                                                 \
            asm volatile("{.reg .pred p; setp.ne.b32 p, " p5 ", 0; wgmma.mma_async.sync.aligned.m64n" #n                  \
                         "k16.f32.bf16.bf16 {" registers "}, {" p0 ", " p1 ", " p2 ", " p3 "}, " p4 ", p, 1, 1, " p6 ";}" \
                         : outputs                                                                                        \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(scale), "n"(TB));                      \
        }                                                                                                                 \
    };
LT_WGMMA(32, LT_R0, LT_OUTPUTS_32, "%16", "%17", "%18", "%19", "%20", "%21", "%22")
LT_WGMMA(64, LT_R0 ", " LT_R1, LT_OUTPUTS_64, "%32", "%33", "%34", "%35", "%36", "%37", "%38")
LT_WGMMA(96, LT_R0 ", " LT_R1 ", " LT_R2, LT_OUTPUTS_96, "%48", "%49", "%50", "%51", "%52", "%53", "%54")
LT_WGMMA(128, LT_R0 ", " LT_R1 ", " LT_R2 ", " LT_R3, LT_OUTPUTS_128, "%64", "%65", "%66", "%67", "%68", "%69", "%70")
LT_WGMMA(160, LT_R0 ", " LT_R1 ", " LT_R2 ", " LT_R3 ", " LT_R4, LT_OUTPUTS_160, "%80", "%81", "%82", "%83", "%84", "%85", "%86")
LT_WGMMA(192, LT_R0 ", " LT_R1 ", " LT_R2 ", " LT_R3 ", " LT_R4 ", " LT_R5, LT_OUTPUTS_192, "%96", "%97", "%98", "%99", "%100",
         "%101", "%102")
LT_WGMMA(224, LT_R0 ", " LT_R1 ", " LT_R2 ", " LT_R3 ", " LT_R4 ", " LT_R5 ", " LT_R6, LT_OUTPUTS_224, "%112", "%113", "%114",
         "%115", "%116", "%117", "%118")
LT_WGMMA(256, LT_R0 ", " LT_R1 ", " LT_R2 ", " LT_R3 ", " LT_R4 ", " LT_R5 ", " LT_R6 ", " LT_R7, LT_OUTPUTS_256, "%128", "%129",
         "%130", "%131", "%132", "%133", "%134")
#undef LT_WGMMA

/* Computes d = A B (+ d): A [64,16] and B [16,N] from descriptors, or (wgmma_rs) A from registers. */
template <int N, enum wgmma_major TA, enum wgmma_major TB>
__device__ static inline void wgmma_ss(float (&d)[N / 2], uint64_t a, uint64_t b, int scale)
{
    wgmma_shape<N>::template from_shared<TA, TB>(d, a, b, scale);
}

template <int N, enum wgmma_major TB>
__device__ static inline void wgmma_rs(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, int scale)
{
    wgmma_shape<N>::template from_registers<TB>(d, a, b, scale);
}

#endif

enum smem_swizzle { SWIZZLE_NONE = 0, SWIZZLE_128 = 1, SWIZZLE_64 = 2, SWIZZLE_32 = 3 };

/* Returns a shared-memory matrix descriptor; leading and stride are in bytes. For a 128-byte swizzled, 1024-byte aligned tile:
 * K-major has leading 1 (unused) and stride 1024 (8 rows); the next k16 is +32 bytes. MN-major has 64-wide atoms of 1024 bytes
 * per 8 k: stride 1024, leading the distance of the next 64 columns; the next k16 is +2048 bytes. */
__host__ __device__ static inline uint64_t wgmma_descriptor(uint32_t addr, uint32_t leading, uint32_t stride,
                                                            enum smem_swizzle swizzle)
{
    return (uint64_t)((addr & 0x3ffff) >> 4) | (uint64_t)((leading & 0x3ffff) >> 4) << 16 |
           (uint64_t)((stride & 0x3ffff) >> 4) << 32 | (uint64_t)swizzle << 62;
}

/* Returns the descriptor of the same matrix `bytes` further (a multiple of 16). */
__host__ __device__ static inline uint64_t wgmma_advance(uint64_t descriptor, uint32_t bytes)
{
    return descriptor + (bytes >> 4);
}

#if defined(LT_CUDASIM)
#include "cudasim_wgmma.h"
#endif

#endif
