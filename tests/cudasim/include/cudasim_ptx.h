/* The CPU's version of src/device/cuda/ptx.cuh and ptx_sm90.cuh: the same functions, each of which calls the simulator. A new
 * instruction needs its asm there, a SIM_INLINE wrapper of the same signature here, and its implementation in tests/cudasim/sim. */
#ifndef CUDASIM_PTX_H
#define CUDASIM_PTX_H

#include <cuda.h>

uint32_t sim_shared_address(const void *p);
void sim_cp_async(uint32_t dst, const void *src, int size, int bytes);
void sim_cp_async_commit(void);
void sim_cp_async_wait(int n);
void sim_ldmatrix(uint32_t *r, uint32_t row, int count, int trans);
void sim_stmatrix(uint32_t row, const uint32_t *r, int count, int trans);
void sim_mma_m16n8k16(float *c, const uint32_t *a, uint32_t b0, uint32_t b1);
void sim_bar(int id, int threads, int wait);
void sim_red_add(float *p, const float *v, int n);

void sim_mbar_init(uint32_t bar, uint32_t count);
void sim_mbar_arrive(uint32_t bar, uint32_t bytes);
int sim_mbar_try_wait(uint32_t bar, uint32_t parity);
enum sim_fence { SIM_FENCE_PROXY_ASYNC, SIM_FENCE_PROXY_GLOBAL, SIM_FENCE_MBARRIER_INIT };
int sim_flag_reached(const uint32_t *flag, uint32_t value);
void sim_flag_raise(uint32_t *flag, uint32_t value);
int sim_arrive_last(uint32_t *counter, uint32_t count);
void sim_fence(enum sim_fence kind);
void sim_tma_load(uint32_t dst, const CUtensorMap *map, uint32_t bar, int rank, const int *at);
void sim_tma_store(const CUtensorMap *map, uint32_t src, int rank, const int *at, int add);
void sim_bulk_load(uint32_t dst, const void *src, uint32_t bytes, uint32_t bar);
void sim_bulk_store(void *dst, uint32_t src, uint32_t bytes, int add);
void sim_bulk_commit(void);
void sim_bulk_wait(int n, int read_only);
void sim_setmaxnreg(int n, int increase);
int sim_elect(void);

SIM_INLINE uint32_t smem_addr(const void *p)
{
    return sim_shared_address(p);
}
SIM_INLINE void cp_async_16(uint32_t dst, const void *src)
{
    sim_cp_async(dst, src, 16, 16);
}
SIM_INLINE void cp_async_16_zfill(uint32_t dst, const void *src, int bytes)
{
    sim_cp_async(dst, src, 16, bytes);
}
SIM_INLINE void cp_async_4_zfill(uint32_t dst, const void *src, int bytes)
{
    sim_cp_async(dst, src, 4, bytes);
}
SIM_INLINE void cp_async_commit()
{
    sim_cp_async_commit();
}
template <int N> SIM_INLINE void cp_async_wait()
{
    sim_cp_async_wait(N);
}
SIM_INLINE void ldmatrix_x4(uint32_t (&r)[4], uint32_t row)
{
    sim_ldmatrix(r, row, 4, 0);
}
SIM_INLINE void ldmatrix_x4_trans(uint32_t (&r)[4], uint32_t row)
{
    sim_ldmatrix(r, row, 4, 1);
}
SIM_INLINE void ldmatrix_x2(uint32_t (&r)[2], uint32_t row)
{
    sim_ldmatrix(r, row, 2, 0);
}
SIM_INLINE void ldmatrix_x2_trans(uint32_t (&r)[2], uint32_t row)
{
    sim_ldmatrix(r, row, 2, 1);
}
SIM_INLINE void stmatrix_x4(uint32_t row, const uint32_t (&r)[4])
{
    sim_stmatrix(row, r, 4, 0);
}
SIM_INLINE void stmatrix_x4_trans(uint32_t row, const uint32_t (&r)[4])
{
    sim_stmatrix(row, r, 4, 1);
}
SIM_INLINE void mma_m16n8k16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    sim_mma_m16n8k16(c, a, b0, b1);
}
SIM_INLINE float ex2(float x)
{
    float y = exp2f(x);
    return y < 1.17549435e-38f ? 0.0f : y; /* .ftz */
}
SIM_INLINE float lg2(float x)
{
    return log2f(x);
}
SIM_INLINE float rcp(float x)
{
    return 1.0f / x;
}
SIM_INLINE uint32_t pack_bf16(float lo, float hi)
{
    return (uint32_t)sim_bf16_bits(lo) | (uint32_t)sim_bf16_bits(hi) << 16;
}
SIM_INLINE void bar_sync(int id, int threads)
{
    sim_bar(id, threads, 1);
}
SIM_INLINE void bar_arrive(int id, int threads)
{
    sim_bar(id, threads, 0);
}
SIM_INLINE uint4 ld_global_stream(const void *p)
{
    return *static_cast<const uint4 *>(p);
}
SIM_INLINE void st_global_stream(void *p, uint4 v)
{
    *static_cast<uint4 *>(p) = v;
}
/* Waits until the flag reaches the value: if kernels polled instead, the simulator could not tell that no block can go on any
 * more. */
SIM_INLINE bool flag_reached(const uint32_t *flag, uint32_t value)
{
    return sim_flag_reached(flag, value) != 0;
}
SIM_INLINE void flag_raise(uint32_t *flag, uint32_t value)
{
    sim_flag_raise(flag, value);
}
SIM_INLINE bool arrive_last(uint32_t *counter, uint32_t count)
{
    return sim_arrive_last(counter, count) != 0;
}
SIM_INLINE void red_add(float *p, float v)
{
    sim_red_add(p, &v, 1);
}
/* --- Hopper -------------------------------------------------------------------------------------------------------------------
 */

SIM_INLINE void mbar_init(uint32_t bar, uint32_t count)
{
    sim_mbar_init(bar, count);
}
SIM_INLINE void fence_mbarrier_init()
{
    sim_fence(SIM_FENCE_MBARRIER_INIT);
}
SIM_INLINE void fence_proxy_async()
{
    sim_fence(SIM_FENCE_PROXY_ASYNC);
}
SIM_INLINE void fence_proxy_async_global()
{
    sim_fence(SIM_FENCE_PROXY_GLOBAL);
}
SIM_INLINE void mbar_arrive(uint32_t bar)
{
    sim_mbar_arrive(bar, 0);
}
SIM_INLINE void mbar_arrive_expect_tx(uint32_t bar, uint32_t bytes)
{
    sim_mbar_arrive(bar, bytes);
}
SIM_INLINE bool mbar_try_wait(uint32_t bar, uint32_t parity)
{
    return sim_mbar_try_wait(bar, parity) != 0;
}
SIM_INLINE void tma_load_2d(uint32_t dst, const CUtensorMap *map, uint32_t bar, int c0, int c1)
{
    const int at[] = {c0, c1};
    sim_tma_load(dst, map, bar, 2, at);
}
SIM_INLINE void tma_load_3d(uint32_t dst, const CUtensorMap *map, uint32_t bar, int c0, int c1, int c2)
{
    const int at[] = {c0, c1, c2};
    sim_tma_load(dst, map, bar, 3, at);
}
SIM_INLINE void tma_load_4d(uint32_t dst, const CUtensorMap *map, uint32_t bar, int c0, int c1, int c2, int c3)
{
    const int at[] = {c0, c1, c2, c3};
    sim_tma_load(dst, map, bar, 4, at);
}
SIM_INLINE void tma_store_2d(const CUtensorMap *map, uint32_t src, int c0, int c1)
{
    const int at[] = {c0, c1};
    sim_tma_store(map, src, 2, at, 0);
}
SIM_INLINE void tma_store_3d(const CUtensorMap *map, uint32_t src, int c0, int c1, int c2)
{
    const int at[] = {c0, c1, c2};
    sim_tma_store(map, src, 3, at, 0);
}
SIM_INLINE void tma_store_4d(const CUtensorMap *map, uint32_t src, int c0, int c1, int c2, int c3)
{
    const int at[] = {c0, c1, c2, c3};
    sim_tma_store(map, src, 4, at, 0);
}
SIM_INLINE void tma_reduce_add_3d(const CUtensorMap *map, uint32_t src, int c0, int c1, int c2)
{
    const int at[] = {c0, c1, c2};
    sim_tma_store(map, src, 3, at, 1);
}
SIM_INLINE void bulk_load(uint32_t dst, const void *src, uint32_t bytes, uint32_t bar)
{
    sim_bulk_load(dst, src, bytes, bar);
}
SIM_INLINE void bulk_store(void *dst, uint32_t src, uint32_t bytes)
{
    sim_bulk_store(dst, src, bytes, 0);
}
SIM_INLINE void bulk_reduce_add(float *dst, uint32_t src, uint32_t bytes)
{
    sim_bulk_store(dst, src, bytes, 1);
}
SIM_INLINE void bulk_commit()
{
    sim_bulk_commit();
}
template <int N> SIM_INLINE void bulk_wait_read()
{
    sim_bulk_wait(N, 1);
}
template <int N> SIM_INLINE void bulk_wait()
{
    sim_bulk_wait(N, 0);
}
SIM_INLINE void tma_prefetch_map(const CUtensorMap *)
{
}
template <int N> SIM_INLINE void setmaxnreg_inc()
{
    sim_setmaxnreg(N, 1);
}
template <int N> SIM_INLINE void setmaxnreg_dec()
{
    sim_setmaxnreg(N, 0);
}
SIM_INLINE bool elect_one()
{
    return sim_elect() != 0;
}

#endif
