// First launch of every backward pass: delta, lse in units of log2, each query's keys, and (fast mode) a zero dq.
#include "attention/cuda_mask.cuh"

#include "attention/cuda_kernels.h"
#include "device/cuda/launch.cuh"

enum { THREADS = 256 };

struct prepare_args {
    const uint16_t *o, *g; // bf16 bits; g: do
    const float *lse;
    float *dq; // to be zeroed, or NULL
    attn_mask mask;
    attn_rows rows;
    int hq, head_dim;
};

static __device__ __forceinline__ float dot2(uint32_t x, uint32_t y, float sum)
{
    union {
        uint32_t bits;
        float value;
    } x0 = {x << 16}, x1 = {x & 0xffff0000u}, y0 = {y << 16}, y1 = {y & 0xffff0000u};
    return fmaf(x1.value, y1.value, fmaf(x0.value, y0.value, sum));
}

// A block takes ATTN_ROW_PAD rows of one head; LANES lanes a row, 8 elements each. Heads innermost: neighbouring blocks read
// neighbouring memory.
template <int LANES> LT_KERNEL(THREADS) prepare_kernel(const prepare_args a)
{
    const int head = blockIdx.x % a.hq, lane = threadIdx.x % LANES, chunk = lane * 8;
    for (int i = threadIdx.x / LANES; i < ATTN_ROW_PAD; i += THREADS / LANES) {
        const int row = blockIdx.x / a.hq * ATTN_ROW_PAD + i;
        const bool live = row < a.mask.sq;
        const int64_t at = ((int64_t)row * a.hq + head) * a.head_dim + chunk;
        float delta = 0;
        if (live && chunk < a.head_dim) {
            const uint4 x = *(const uint4 *)(a.o + at), y = *(const uint4 *)(a.g + at);
            delta = dot2(x.w, y.w, dot2(x.z, y.z, dot2(x.y, y.y, dot2(x.x, y.x, 0))));
            if (a.dq) {
                ((float4 *)(a.dq + at))[0] = float4{0, 0, 0, 0};
                ((float4 *)(a.dq + at))[1] = float4{0, 0, 0, 0};
            }
        }
#pragma unroll
        for (int d = LANES / 2; d > 0; d /= 2)
            delta += __shfl_xor_sync(LT_FULL_MASK, delta, d);
        if (lane == 0) {
            float lse = live ? a.lse[(int64_t)head * a.mask.sq + row] : -INFINITY;
            a.rows.stat[head * a.rows.padded + row] = attn_row_stat{lse == -INFINITY ? INFINITY : lse * 1.44269504f, delta};
            if (head == 0)
                a.rows.span[row] = live ? attn_row_span{attn_from(a.mask, row), attn_to(a.mask, row)} : attn_row_span{0, 0};
        }
    }
}

extern "C" enum status attn_cuda_prepare(const struct op_attrs *attrs, void *const *arg, const struct attn_rows *rows,
                                         int zero_dq, struct CUstream_st *stream)
{
    prepare_args a = {};
    a.o = (const uint16_t *)arg[6];
    a.g = (const uint16_t *)arg[8];
    a.lse = (const float *)arg[7];
    a.dq = zero_dq ? (float *)arg[0] : NULL;
    a.mask = attn_mask{(const int32_t *)arg[9], (const int32_t *)arg[10], (int32_t)attrs->attn.sq, (int32_t)attrs->attn.sk,
                       attrs->attn.k0};
    a.rows = *rows;
    a.hq = attrs->attn.hq, a.head_dim = attrs->attn.head_dim;
    const dim3 grid((unsigned)(rows->padded / ATTN_ROW_PAD * a.hq));
    if (a.head_dim <= 64)
        return launch(grid, dim3(THREADS), 0, stream, prepare_kernel<8>, a);
    if (a.head_dim <= 128)
        return launch(grid, dim3(THREADS), 0, stream, prepare_kernel<16>, a);
    return launch(grid, dim3(THREADS), 0, stream, prepare_kernel<32>, a);
}
