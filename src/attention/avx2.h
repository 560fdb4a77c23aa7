/* What the AVX2 + FMA kernels are made of: panels, the tile product on them, packing, and 8-wide vector helpers.
 *
 * Vector lanes are queries (or keys, for dk and dv). Three packed forms of rows x [n, d], all fp32, tails zero:
 *   lanes    [n/24][d][24]   24 rows side by side: the B operand, and the form of every accumulator
 *   quads    [n/4][d][4]     4 rows side by side: the A operand of products summed over d
 *   columns  [d/4][BLOCK][4] 4 columns side by side, of one block of rows: the A operand of products summed over rows
 * Every panel is aligned to 32 bytes. All products are C[4][24] (+)= sum over k of A[k][4] B[k][24]. */
#ifndef LTRAIN_ATTENTION_AVX2_H
#define LTRAIN_ATTENTION_AVX2_H

#include "attention/kernels.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define ATTN_HAVE_AVX2 1
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2,fma")))

enum {
    LANES = 24,                     /* rows of a lanes panel: 12 accumulators of 8 per tile, of 16 registers */
    QUAD = 4,
    BLOCK = 192,                    /* rows per block of queries and of keys: below 128 costs 2 to 5% in backward */
    PANELS = BLOCK / LANES,
    TILE = QUAD * LANES             /* floats of a tile of C */
};

/* C = A B, or C += A B: a [k][4], b [k][24], c [4][24] contiguous; k a positive multiple of 4. */
void avx2_tile(int64_t k, const float *a, const float *b, float *c, int add);
/* The same, summed over the 24 lanes of each of n lanes panels: a points at row 0 of 4 rows [4][24] of the first panel, `stride` floats
 * from panel to panel; b [n][24][24]. */
void avx2_tile_lanes(int64_t n, const float *a, int64_t stride, const float *b, float *c, int add);

/* One head of x [rows, heads, d]. */
struct rows {
    const void *x;
    int64_t heads, head, d;
    int32_t dtype;
};

/* Rows [row, row + n), n <= 24, as one lanes panel, each element times `factor`. */
void avx2_pack_lanes(float *out, const struct rows *x, int64_t row, int64_t n, float factor);
/* Rows [row, row + n) as quads; rows up to the next multiple of 24 are zero. */
void avx2_pack_quads(float *out, const struct rows *x, int64_t row, int64_t n);
/* Rows [row, row + n), n <= BLOCK, as columns; rows up to the next multiple of 24 are zero. */
void avx2_pack_columns(float *out, const struct rows *x, int64_t row, int64_t n);

/* The first n rows of a lanes panel, times factor[lane], into rows [row, row + n) of one head; added to them (F32 only) if `add`. */
void avx2_unpack_lanes(const struct rows *out, const float *panel, const float *factor, int64_t row, int64_t n, int add);

/* 2^x for x <= 127; relative error below 2.5e-7 on [-126, 0], 2^-126 below; NaN stays NaN. */
static inline AVX2 __m256 avx2_exp2(__m256 x)
{
    const __m256 round = _mm256_set1_ps(12582912.0f + 127.0f); /* 1.5 * 2^23: rounds to integer, which lands in the low bits, biased */
    x = _mm256_max_ps(_mm256_set1_ps(-126.0f), x);             /* in this order NaN passes */
    __m256 t = _mm256_add_ps(x, round), f = _mm256_sub_ps(x, _mm256_sub_ps(t, round));
    __m256 y = _mm256_set1_ps(1.327647217e-03f); /* minimax of degree 5 on [-1/2, 1/2], constant term rounded to 1 */
    y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(9.675541331e-03f));
    y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(5.550713273e-02f));
    y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(2.402211972e-01f));
    y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(6.931469671e-01f));
    y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(1.0f));
    return _mm256_mul_ps(y, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(t), 23)));
}

static inline AVX2 void avx2_transpose(__m256 r[8])
{
    __m256 t[8], u[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
    }
}

/* All ones in the lanes whose interval [from, to) contains key. */
static inline AVX2 __m256 avx2_attends(__m256i from, __m256i to, int64_t key)
{
    __m256i j = _mm256_set1_epi32((int)key);
    return _mm256_castsi256_ps(_mm256_andnot_si256(_mm256_cmpgt_epi32(from, j), _mm256_cmpgt_epi32(to, j)));
}

#endif
#endif
