/* Packing matrix operands into panels for AVX2 and later, in vectors of 8; BF16 is converted on the way. */
#include "ops/gemm_tile.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include "base/num.h"
#include "ops/transpose.h"

#include <string.h>

#define SIMD __attribute__((target("avx2,fma")))
#define INLINE static inline __attribute__((always_inline)) SIMD

enum { ROWS_AT_ONCE = 16 }; /* rows of x read for all panels of a call at a time; equally many are fetched ahead */

INLINE __m256 load8(const void *x, int32_t type, int64_t at)
{
    if (type == F32)
        return _mm256_loadu_ps((const float *)x + at);
    const __m128i half = _mm_loadu_si128((const __m128i *)(const void *)((const bf16 *)x + at));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

/* Loads n < 8 elements, with zeros behind them. */
INLINE __m256 load_some(const void *x, int32_t type, int64_t at, int64_t n)
{
    float some[8] = {0};
    for (int64_t i = 0; i < n; i++)
        some[i] = type == F32 ? ((const float *)x)[at + i] : bf16_to_float(((const bf16 *)x)[at + i]);
    return _mm256_loadu_ps(some);
}

/* Stores the first n of 8 lanes: 4, 6, or all. */
INLINE void store8(float *out, __m256 v, int64_t n)
{
    if (n >= 8) {
        _mm256_storeu_ps(out, v);
        return;
    }
    _mm_storeu_ps(out, _mm256_castps256_ps128(v));
    if (n == 6)
        _mm_storel_pi((__m64 *)(void *)(out + 4), _mm256_extractf128_ps(v, 1));
}

/* Packs n <= 8 lanes of a panel, of which `stored` are written; lane i begins at element at[i]. */
INLINE void pack_lanes(float *out, int64_t width, int64_t stored, const void *x, int32_t type, const int64_t at[8], int64_t n,
                       int64_t k)
{
    __m256 r[8];
    for (int64_t l = 0; l < k; l += 8) {
        const int64_t rows = min_i64(8, round_up(k - l, 4));
        for (int64_t i = 0; i < 8; i++)
            r[i] = i >= n ? _mm256_setzero_ps() : l + 8 <= k ? load8(x, type, at[i] + l) : load_some(x, type, at[i] + l, k - l);
        transpose8(r);
        for (int64_t i = 0; i < 8; i++)
            if (i < rows)
                store8(out + (l + i) * width, r[i], stored);
    }
}

/* Packs an operand whose rows are lanes: n from `lane` on, elements from l on. */
INLINE void pack_rows(float *out, int64_t width, const struct gemm_operand *x, int32_t type, int64_t lane, int64_t l, int64_t n,
                      int64_t k)
{
    for (int64_t p = 0; p < n; p += width, out += width * round_up(k, 4))
        for (int64_t g = 0; g < width; g += 8) {
            const int64_t stored = min_i64(8, width - g), lanes = max_i64(0, min_i64(stored, n - p - g));
            int64_t at[8] = {0};
            for (int64_t i = 0; i < lanes; i++)
                at[i] = gemm_row_at(x, lane + p + g + i) + l;
            if (lanes == 8) /* the constant 8 lets the compiler make a special copy for whole groups of lanes, in all tiles */
                pack_lanes(out + g, width, 8, x->x, type, at, 8, k);
            else if (lanes == 6 && stored == 6)
                pack_lanes(out + g, width, 6, x->x, type, at, 6, k);
            else if (lanes == 4 && stored == 4)
                pack_lanes(out + g, width, 4, x->x, type, at, 4, k);
            else
                pack_lanes(out + g, width, stored, x->x, type, at, lanes, k);
        }
}

/* Packs an operand whose rows hold an element of all lanes: rows from l on, lanes from `lane` on. Rows are dealt out to all
 * panels, since one panel takes only a cache line or two of each. */
INLINE void pack_columns(float *out, int64_t width, const struct gemm_operand *x, int32_t type, int64_t lane, int64_t l,
                         int64_t n, int64_t k)
{
    const int64_t depth = round_up(k, 4);
    int64_t at[2 * ROWS_AT_ONCE]; /* rows at work, and those that are fetched ahead */
    for (int64_t l0 = 0; l0 < k; l0 += ROWS_AT_ONCE) {
        const int64_t rows = min_i64(ROWS_AT_ONCE, k - l0);
        for (int64_t i = 0; i < 2 * ROWS_AT_ONCE; i++) /* an order ends with the operand */
            at[i] = gemm_row_at(x, l + (x->order ? min_i64(l0 + i, k - 1) : l0 + i)) + lane;
        for (int64_t p = 0; p < n; p += width)
            for (int64_t i = 0; i < rows; i++)
                for (int64_t g = 0; g < width; g += 8) {
                    const int64_t from = at[i] + p + g;
                    _mm_prefetch((const char *)x->x + (at[i + ROWS_AT_ONCE] + p + g) * dtype_size((enum dtype)type), _MM_HINT_T0);
                    store8(out + p * depth + (l0 + i) * width + g,
                           p + g + 8 <= n ? load8(x->x, type, from) : load_some(x->x, type, from, n - p - g), width - g);
                }
    }
    for (int64_t p = 0; p < n; p += width)
        memset(out + p * depth + k * width, 0, (size_t)((depth - k) * width) * sizeof *out);
}

SIMD void gemm_pack_avx2(float *out, int64_t width, const struct gemm_operand *x, int64_t lane, int64_t n, int64_t l, int64_t k)
{
    if (x->across && x->type == F32)
        pack_columns(out, width, x, F32, lane, l, n, k);
    else if (x->across)
        pack_columns(out, width, x, BF16, lane, l, n, k);
    else if (x->type == F32)
        pack_rows(out, width, x, F32, lane, l, n, k);
    else
        pack_rows(out, width, x, BF16, lane, l, n, k);
}

#else
typedef int gemm_pack_is_empty;
#endif
