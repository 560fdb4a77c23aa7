/* Packing of BF16 operands into AMX tiles. */
#include "ops/gemm_amx.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include "base/num.h"

#include <immintrin.h>

#define SIMD __attribute__((target("avx512f,avx512bw,avx512vl")))
#define INLINE static inline __attribute__((always_inline)) SIMD

enum { SIDE = 16 };

/* Transposes 16 x 16 elements of 32 bits. */
INLINE void transpose16(__m512i r[SIDE])
{
    __m512i t[SIDE];
    for (int i = 0; i < SIDE; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < SIDE; i += 4)
        for (int h = 0; h < 2; h++) {
            r[i + 2 * h] = _mm512_unpacklo_epi64(t[i + h], t[i + 2 + h]);
            r[i + 2 * h + 1] = _mm512_unpackhi_epi64(t[i + h], t[i + 2 + h]);
        }
    for (int i = 0; i < 4; i++) { /* r[4 g + i] has columns i, 4 + i, 8 + i and 12 + i of rows 4 g to 4 g + 3 */
        const __m512i even = _mm512_shuffle_i32x4(r[i], r[4 + i], 0x88), odd = _mm512_shuffle_i32x4(r[i], r[4 + i], 0xdd),
                      even2 = _mm512_shuffle_i32x4(r[8 + i], r[12 + i], 0x88),
                      odd2 = _mm512_shuffle_i32x4(r[8 + i], r[12 + i], 0xdd);
        t[i] = _mm512_shuffle_i32x4(even, even2, 0x88);
        t[8 + i] = _mm512_shuffle_i32x4(even, even2, 0xdd);
        t[4 + i] = _mm512_shuffle_i32x4(odd, odd2, 0x88);
        t[12 + i] = _mm512_shuffle_i32x4(odd, odd2, 0xdd);
    }
    for (int i = 0; i < SIDE; i++)
        r[i] = t[i];
}

/* Loads n <= 32 rows of x from `row` on, `width` <= 32 elements of each from `column` on, with zeros elsewhere. */
INLINE void load(__m512i r[2 * SIDE], const struct gemm_operand *x, int64_t row, int64_t n, int64_t column, int64_t width)
{
    const __mmask32 mask = (__mmask32)(0xffffffffu >> (2 * SIDE - width));
    const bf16 *at = (const bf16 *)x->x + column;
    for (int i = 0; i < 2 * SIDE; i++)
        r[i] = i < n ? _mm512_maskz_loadu_epi16(mask, at + gemm_row_at(x, row + i)) : _mm512_setzero_si512();
}

/* Interleaves rows 2 p and 2 p + 1 as pairs: row p has the first 16 elements, row 16 + p the others. */
INLINE void interleave(__m512i out[2 * SIDE], const __m512i r[2 * SIDE])
{
    const __m512i count = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i low = _mm512_or_si512(count, _mm512_slli_epi32(_mm512_add_epi32(count, _mm512_set1_epi32(32)), 16));
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(16 << 16 | 16));
    for (int p = 0; p < SIDE; p++) {
        out[p] = _mm512_permutex2var_epi16(r[2 * p], low, r[2 * p + 1]);
        out[SIDE + p] = _mm512_permutex2var_epi16(r[2 * p], high, r[2 * p + 1]);
    }
}

/* Packs a step: n lanes from `lane`, k elements from l, both <= 32. */
INLINE void pack_step(char *out, enum gemm_amx_side side, const struct gemm_operand *x, int64_t lane, int64_t n, int64_t l,
                      int64_t k)
{
    __m512i r[2 * SIDE], pairs[2 * SIDE];
    if (x->across) {
        load(r, x, l, k, lane, n);
        interleave(pairs, r);
    } else {
        load(pairs, x, lane, n, l, k);
    }
    if ((side == AMX_LEFT) == (x->across != 0)) {
        transpose16(pairs);
        transpose16(pairs + SIDE);
    }
    for (int i = 0; i < 2 * SIDE; i++)
        _mm512_store_si512(out + i * 64, pairs[i]);
}

SIMD void gemm_amx_pack(char *out, enum gemm_amx_side side, const struct gemm_operand *x, int64_t lane, int64_t n, int64_t l,
                        int64_t k)
{
    const int64_t panel = ceil_div(k, AMX_UNIT) * AMX_STEP;
    /* elements in the outer loop, panels in the inner one: if lanes are neighbours in memory, rows are read from end to end */
    for (int64_t e = 0; e < k; e += AMX_UNIT)
        for (int64_t p = 0; p < n; p += AMX_LANES)
            pack_step(out + p / AMX_LANES * panel + e / AMX_UNIT * AMX_STEP, side, x, lane + p, min_i64(AMX_LANES, n - p), l + e,
                      min_i64(AMX_UNIT, k - e));
}

#else
typedef int gemm_amx_pack_is_empty;
#endif
