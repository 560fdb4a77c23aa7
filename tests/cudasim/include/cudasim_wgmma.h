/* The CPU's version of src/device/cuda/ptx_wgmma.cuh. */
#ifndef CUDASIM_WGMMA_H
#define CUDASIM_WGMMA_H

void sim_wgmma_fence(void);
void sim_wgmma_commit(void);
void sim_wgmma_wait(int n);
/* a_registers: 4 words, or NULL if A comes from descriptor a */
void sim_wgmma(float *d, int n, const uint32_t *a_registers, uint64_t a, int ta, uint64_t b, int tb, int add);

SIM_INLINE void wgmma_fence()
{
    sim_wgmma_fence();
}
SIM_INLINE void wgmma_commit()
{
    sim_wgmma_commit();
}
template <int N> SIM_INLINE void wgmma_wait()
{
    sim_wgmma_wait(N);
}
SIM_INLINE void wgmma_keep(float &)
{
}
template <int N, enum wgmma_major TA, enum wgmma_major TB>
SIM_INLINE void wgmma_ss(float (&d)[N / 2], uint64_t a, uint64_t b, int scale)
{
    static_assert(N % 32 == 0 && N >= 32 && N <= 256, "as ptx_wgmma.cuh offers");
    sim_wgmma(d, N, nullptr, a, TA, b, TB, scale);
}
template <int N, enum wgmma_major TB> SIM_INLINE void wgmma_rs(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, int scale)
{
    static_assert(N % 32 == 0 && N >= 32 && N <= 256, "as ptx_wgmma.cuh offers");
    sim_wgmma(d, N, a, 0, 0, b, TB, scale);
}

#endif
