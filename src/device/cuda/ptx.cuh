/* All inline PTX, one function per instruction; kernels contain none. cudasim replaces the first half of each of the three files
 * (ptx.cuh, ptx_sm90.cuh, ptx_wgmma.cuh) by functions of the same names in tests/cudasim.
 *
 * Addresses of shared memory are 32-bit numbers from smem_addr(); all of one instruction's lanes or warps must reach it together
 * where PTX says .aligned. Register layouts (g = lane / 4, t = lane % 4):
 *   mma.m16n8k16  A: a[r] holds two elements i, row g + 8 (r % 2), columns 2t + i + 8 (r / 2)
 *                 B: b_r holds rows k = 2t + i + 8 r, column g
 *                 C: c[i] is row g + 8 (i / 2), column 2t + i % 2
 *   ldmatrix.x4   lane 8m + r supplies the address of row r of matrix m; r[m] gets [g][2t, 2t+1], with .trans [2t, 2t+1][g] */
#ifndef LTRAIN_DEVICE_CUDA_PTX_CUH
#define LTRAIN_DEVICE_CUDA_PTX_CUH

#include "device/cuda/arch.cuh"

#include <cuda_bf16.h>

#if defined(LT_CUDASIM)
#include "cudasim_ptx.h"
#else

__device__ static inline uint32_t smem_addr(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* Copies 16 bytes from global to shared memory by cp.async (sm_80), both 16-byte aligned; _zfill: zeros beyond the first `bytes`
 * (0 to 16: with 0 nothing is read). Visible to the issuing thread after cp_async_wait, to others after a barrier behind that. */
__device__ static inline void cp_async_16(uint32_t dst, const void *src)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(dst), "l"(src) : "memory");
}

__device__ static inline void cp_async_16_zfill(uint32_t dst, const void *src, int bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dst), "l"(src), "r"(bytes) : "memory");
}

/* Copies 4 bytes (through L1), for rows that are not 16-byte aligned and for small arrays. */
__device__ static inline void cp_async_4_zfill(uint32_t dst, const void *src, int bytes)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(dst), "l"(src), "r"(bytes) : "memory");
}

__device__ static inline void cp_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until at most N of this thread's newest groups are unfinished. */
template <int N> __device__ static inline void cp_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

__device__ static inline void ldmatrix_x4(uint32_t (&r)[4], uint32_t row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row)
                 : "memory");
}

__device__ static inline void ldmatrix_x4_trans(uint32_t (&r)[4], uint32_t row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row)
                 : "memory");
}

__device__ static inline void ldmatrix_x2(uint32_t (&r)[2], uint32_t row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(row) : "memory");
}

__device__ static inline void ldmatrix_x2_trans(uint32_t (&r)[2], uint32_t row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(row) : "memory");
}

/* Computes c += A B, bf16 with fp32 accumulation. */
__device__ static inline void mma_m16n8k16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Returns 2^x, error 2 ulp; ex2(-inf) = 0. */
__device__ static inline float ex2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Returns log2(x); lg2(0) = -inf. */
__device__ static inline float lg2(float x)
{
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Returns 1 / x, error 1 ulp; rcp(inf) = 0. */
__device__ static inline float rcp(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Packs two floats, rounded to nearest even bf16; lo in the lower half (the smaller column). */
__device__ static inline uint32_t pack_bf16(float lo, float hi)
{
    uint32_t y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(hi), "f"(lo));
    return y;
}

/* Waits (bar_arrive: only arrives) at barrier `id`, 1 to 15 (0 is __syncthreads), until `threads` threads, a multiple of 32, have
 * waited or arrived. */
__device__ static inline void bar_sync(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

__device__ static inline void bar_arrive(int id, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* Loads 16 bytes that will not be read again, through the read-only path, without keeping them in L1. */
__device__ static inline uint4 ld_global_stream(const void *p)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

__device__ static inline void st_global_stream(void *p, uint4 v)
{
    asm volatile("st.global.L1::no_allocate.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}

/* Adds atomically in global memory without returning the old value; the order across threads is undefined. */
__device__ static inline void red_add(float *p, float v)
{
    asm volatile("red.global.add.f32 [%0], %1;" ::"l"(p), "f"(v) : "memory");
}

/* Raises a flag in global memory, for which other blocks wait. A thread that sees it sees what the raising thread did and saw
 * before. */
__device__ static inline void flag_raise(uint32_t *flag, uint32_t value)
{
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}

/* Tells whether a flag is at least `value`; callers use flag_wait. */
__device__ static inline bool flag_reached(const uint32_t *flag, uint32_t value)
{
    uint32_t now;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(flag) : "memory");
    return now >= value;
}

/* Tells whether this thread is the last of `count` to arrive at the counter, which is then 0 again. The last one sees what the
 * others did and saw before. */
__device__ static inline bool arrive_last(uint32_t *counter, uint32_t count)
{
    uint32_t before;
    asm volatile("atom.inc.acq_rel.gpu.global.u32 %0, [%1], %2;" : "=r"(before) : "l"(counter), "r"(count - 1) : "memory");
    return before == count - 1;
}

#endif

/* Waits until the flag is at least `value`. Allowed only for flags of blocks that began earlier, which surely run or have run. */
__device__ static inline void flag_wait(const uint32_t *flag, uint32_t value)
{
    while (!flag_reached(flag, value))
        ;
}

#include "device/cuda/ptx_sm90.cuh"
#include "device/cuda/ptx_wgmma.cuh"

#endif
