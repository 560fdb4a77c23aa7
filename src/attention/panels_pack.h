/* Packing rows into panels, and unpacking them, in vectors of 8. */
#ifndef LTRAIN_ATTENTION_PANELS_PACK_H
#define LTRAIN_ATTENTION_PANELS_PACK_H

#include "attention/panels.h"

static inline SIMD __m256 load8(const struct rows *x, int64_t row, int64_t c)
{
    int64_t at = (row * x->heads + x->head) * x->d + c;
    if (x->dtype == F32)
        return _mm256_loadu_ps((const float *)x->x + at);
    __m128i half = _mm_loadu_si128((const __m128i *)(const void *)((const bf16 *)x->x + at));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

static inline SIMD __m128i to_bf16(__m256 x)
{
    const __m256i u = _mm256_castps_si256(x), one = _mm256_set1_epi32(1);
    __m256i half = _mm256_add_epi32(_mm256_and_si256(_mm256_srli_epi32(u, 16), one), _mm256_set1_epi32(0x7fff));
    __m256i r = _mm256_srli_epi32(_mm256_add_epi32(u, half), 16);
    __m256i nan = _mm256_or_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(0x40));
    r = _mm256_blendv_epi8(r, nan, _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
    return _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1));
}

/* Packs rows [row, row + n), n <= LANES, as one lanes panel, each element times `factor`. */
static inline SIMD void pack_lanes(float *out, const struct rows *x, int64_t row, int64_t n, float factor)
{
    const __m256 f = _mm256_set1_ps(factor);
    for (int64_t group = 0; group < LANES; group += 8)
        for (int64_t c = 0; c < x->d; c += 8) {
            __m256 r[8];
            for (int64_t i = 0; i < 8; i++)
                r[i] = group + i < n ? _mm256_mul_ps(load8(x, row + group + i, c), f) : _mm256_setzero_ps();
            transpose8(r);
            for (int64_t i = 0; i < 8; i++)
                _mm256_store_ps(out + (c + i) * LANES + group, r[i]);
        }
}

/* Packs rows [row, row + n) as quads; rows up to the next multiple of LANES are zero. */
static inline SIMD void pack_quads(float *out, const struct rows *x, int64_t row, int64_t n)
{
    for (int64_t quad = 0; quad < round_up(n, LANES); quad += ROWS, out += ROWS * x->d)
        for (int64_t c = 0; c < x->d; c += 8) {
            __m256 r[8];
            for (int64_t i = 0; i < 8; i++)
                r[i] = i < ROWS && quad + i < n ? load8(x, row + quad + i, c) : _mm256_setzero_ps();
            transpose8(r);
            for (int64_t i = 0; i < 8; i++)
                if (ROWS == 8)
                    _mm256_store_ps(out + (c + i) * ROWS, r[i]);
                else
                    _mm_store_ps(out + (c + i) * ROWS, _mm256_castps256_ps128(r[i]));
        }
}

/* Packs rows [row, row + n), n <= block, as columns; rows up to the next multiple of LANES are zero. */
static inline SIMD void pack_columns(float *out, int64_t block, const struct rows *x, int64_t row, int64_t n)
{
    for (int64_t i = 0; i < round_up(n, LANES); i++)
        for (int64_t c = 0; c < x->d; c += 8) {
            __m256 r = i < n ? load8(x, row + i, c) : _mm256_setzero_ps();
            if (ROWS == 8) {
                _mm256_store_ps(out + c * block + i * ROWS, r);
                continue;
            }
            _mm_store_ps(out + c * block + i * ROWS, _mm256_castps256_ps128(r));
            _mm_store_ps(out + (c + 4) * block + i * ROWS, _mm256_extractf128_ps(r, 1));
        }
}

/* Unpacks the first n rows of a lanes panel, times factor[lane], into rows [row, row + n) of one head; adds to them (F32 only) if
 * `add`. */
static inline SIMD void unpack_lanes(const struct rows *out, const float *panel, const float *factor, int64_t row, int64_t n,
                                     int add)
{
    for (int64_t group = 0; group < n; group += 8) {
        const __m256 f = _mm256_loadu_ps(factor + group);
        for (int64_t c = 0; c < out->d; c += 8) {
            __m256 r[8];
            for (int64_t i = 0; i < 8; i++)
                r[i] = _mm256_mul_ps(_mm256_load_ps(panel + (c + i) * LANES + group), f);
            transpose8(r);
            for (int64_t i = 0; i < 8 && group + i < n; i++) {
                int64_t at = ((row + group + i) * out->heads + out->head) * out->d + c;
                if (out->dtype == BF16) {
                    _mm_storeu_si128((__m128i *)(void *)((bf16 *)(uintptr_t)out->x + at), to_bf16(r[i]));
                    continue;
                }
                float *to = (float *)(uintptr_t)out->x + at;
                _mm256_storeu_ps(to, add ? _mm256_add_ps(_mm256_loadu_ps(to), r[i]) : r[i]);
            }
        }
    }
}

#endif
