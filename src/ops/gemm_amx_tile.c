/* Computing C of one task by AMX: tiles 0-3 hold sums, 4-5 the left operand, 6-7 the right one. */
#include "ops/gemm_amx.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include "base/num.h"

#include <immintrin.h>

#define AMX __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16,amx-tile,amx-bf16")))

enum {
    SIDE = 16,
    SUMS = AMX_LANES * AMX_LANES, /* sums of a 2 x 2 block */
    DEEP =
        640, /* elements of k between two visits to sums, so that a right panel (40 KiB) stays in the L1 cache while left panels pass */
};

/* Multiplies `steps` steps (32 lanes x 32 elements of k) of both operands, and writes the products' sum to sums[4][16][16], or
 * adds it there if `add`. Loads of the left operand bypass the L1 cache. */
static AMX void multiply(int64_t steps, const struct gemm_amx_left *left, const char *a, const char *b, float *sums, int add)
{
    const int64_t lane = left->lane, half = left->half, step = left->step;
    if (add) {
        _tile_loadd(0, sums, 64);
        _tile_loadd(1, sums + SIDE * SIDE, 64);
        _tile_loadd(2, sums + 2 * SIDE * SIDE, 64);
        _tile_loadd(3, sums + 3 * SIDE * SIDE, 64);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (; steps > 0; steps--, a += step, b += AMX_STEP) {
        _tile_stream_loadd(4, a, lane);
        _tile_loadd(6, b, 64);
        _tile_loadd(7, b + AMX_STEP / 2, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_stream_loadd(5, a + half, lane);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, sums, 64);
    _tile_stored(1, sums + SIDE * SIDE, 64);
    _tile_stored(2, sums + 2 * SIDE * SIDE, 64);
    _tile_stored(3, sums + 3 * SIDE * SIDE, 64);
}

/* Writes sums to rows [i, i + m), columns [j, j + n) of C; m, n <= 32. */
static AMX void put(const float *sums, const struct gemm_amx_out *out, int64_t i, int64_t j, int64_t m, int64_t n)
{
    const __mmask32 mask = (__mmask32)(0xffffffffu >> (AMX_LANES - n));
    const __mmask16 low = (__mmask16)mask, high = (__mmask16)(mask >> SIDE);
    for (int64_t r = 0; r < m; r++) {
        const int64_t at = (i + r) * out->ld + j;
        const float *x = sums + (r >= SIDE ? 2 * SIDE * SIDE : 0) + r % SIDE * SIDE;
        __m512 v = _mm512_load_ps(x), w = _mm512_load_ps(x + SIDE * SIDE);
        if (out->type == F32) {
            float *c = (float *)out->c + at;
            if (out->add) {
                v = _mm512_add_ps(_mm512_maskz_loadu_ps(low, c), v);
                w = _mm512_add_ps(_mm512_maskz_loadu_ps(high, c + SIDE), w);
            }
            _mm512_mask_storeu_ps(c, low, v);
            _mm512_mask_storeu_ps(c + SIDE, high, w);
        } else {
            _mm512_mask_storeu_epi16((bf16 *)out->c + at, mask, (__m512i)_mm512_cvtne2ps_pbh(w, v));
        }
    }
}

AMX void gemm_amx_task(const struct gemm_amx_left *a, const char *b, int64_t depth, const struct gemm_amx_out *out, int64_t m,
                       int64_t n)
{
    float sums[AMX_TASK_M / AMX_LANES * (AMX_TASK_N / AMX_LANES)][SUMS] __attribute__((aligned(64)));
    const int64_t deep = round_up(ceil_div(depth, ceil_div(depth, DEEP)), AMX_UNIT);
    for (int64_t l = 0; l < depth; l += deep) {
        const int64_t steps = min_i64(deep, depth - l) / AMX_UNIT, first = l / AMX_UNIT;
        for (int64_t j = 0; j < n; j += AMX_LANES)
            for (int64_t i = 0; i < m; i += AMX_LANES) {
                float *x = sums[deep < depth ? j / AMX_LANES * (AMX_TASK_M / AMX_LANES) + i / AMX_LANES : 0];
                multiply(steps, a, a->x + i / AMX_LANES * a->panel + first * a->step, b + 2 * j * depth + first * AMX_STEP, x,
                         l > 0);
                if (l + deep >= depth)
                    put(x, out, i, j, min_i64(AMX_LANES, m - i), min_i64(AMX_LANES, n - j));
            }
    }
}

#else
typedef int gemm_amx_tile_is_empty;
#endif
