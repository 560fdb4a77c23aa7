/* Kernels that test the simulator: each is correct with bug 0; every other number plants one bug. */
#ifndef SIM_KERNELS_H
#define SIM_KERNELS_H

#include "base/status.h"

#include <cuda_bf16.h>

enum sum_bug {
    SUM_OK,
    SUM_NO_BARRIER,
    SUM_SHARED_BOUNDS,
    SUM_GLOBAL_BOUNDS,
    SUM_UNINITIALISED,
    SUM_MISALIGNED,
    SUM_HOST_POINTER,
    SUM_BARRIER_MISSED,
    SUM_BLOCKS_RACE,
    SUM_LANES_DIVERGE,
    SUM_ODD_BARRIER,
    SUM_VARIABLE_RACE,
    SUM_BUGS
};
/* out[b] = sum of the 256 elements of x [blocks * 256] that belong to block b */
enum status start_sum(float *out, const float *x, int blocks, int bug);

enum mma_bug {
    MMA_OK,
    MMA_NO_WAIT,
    MMA_WAIT_TOO_FEW,
    MMA_NO_BARRIER_AFTER_WAIT,
    MMA_NO_BARRIER_BEFORE_OVERWRITE,
    MMA_IN_FLIGHT_AT_EXIT,
    MMA_MISALIGNED_ROW,
    MMA_BUGS
};
/* c[64,64] = a[64,k] b[64,k]^T with cp.async, ldmatrix and mma; k is a multiple of 32 */
enum status start_mma(float *c, const __nv_bfloat16 *a, const __nv_bfloat16 *b, int k, int bug);

enum wgmma_bug {
    WG_OK,
    WG_NO_INIT_FENCE,
    WG_NO_INIT_BARRIER,
    WG_WRONG_PARITY,
    WG_EXPECT_TOO_MANY,
    WG_EXPECT_TOO_FEW,
    WG_NO_EMPTY_WAIT,
    WG_EARLY_RELEASE,
    WG_NO_FULL_WAIT,
    WG_NO_RELEASE,
    WG_NO_WGMMA_FENCE,
    WG_READ_IN_FLIGHT,
    WG_WRITE_IN_FLIGHT,
    WG_NO_PROXY_FENCE,
    WG_NO_STORE_BARRIER,
    WG_NO_STORE_WAIT,
    WG_ONE_ARRIVAL_TOO_MANY,
    WG_BUGS
};
/* c[64,128] = a[64,k] b[128,k]^T with TMA loads, wgmma and a TMA store; k is a multiple of 64 */
enum status start_wgmma(float *c, const __nv_bfloat16 *a, const __nv_bfloat16 *b, int k, int bug);

/* One product d[64,n] = A[64,16] B[16,n] with operands laid out for the given majors and swizzle span (0, 32, 64 or 128 bytes).
 * registers: A comes from registers. */
enum status start_wgmma_form(float *d, const __nv_bfloat16 *a /* [64,16] */, const __nv_bfloat16 *b /* [n,16] */, int n, int ta,
                             int tb, int span, int registers);

/* Loads, stores and adds by TMA a box of 8 rows x span bytes of x[rows,cols] at (c0, c1), which may reach out of bounds. span 0:
 * 64 bytes without swizzle. */
enum status start_tma_copy(float *y, float *sum, const float *x, int rows, int cols, int c0, int c1, int span);

/* out[b] = b for every block b with at most 64 threads each; other arguments of the launch are as given. Also fills out[0,
 * blocks) first. */
enum status start_numbers(int *out, int blocks, int threads, int64_t shared_bytes, cudaStream_t stream);

/* Runs collectives; out is documented in test_sim.cpp. */
enum status start_collectives(int *out);

#endif
