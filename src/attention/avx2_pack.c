/* Rows to panels and back. */
#include "attention/avx2.h"

#ifdef ATTN_HAVE_AVX2

static inline AVX2 __m256 load8(const struct rows *x, int64_t row, int64_t c)
{
    int64_t at = (row * x->heads + x->head) * x->d + c;
    if (x->dtype == F32)
        return _mm256_loadu_ps((const float *)x->x + at);
    __m128i half = _mm_loadu_si128((const __m128i *)(const void *)((const bf16 *)x->x + at));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

static inline AVX2 __m128i to_bf16(__m256 x)
{
    const __m256i u = _mm256_castps_si256(x), one = _mm256_set1_epi32(1);
    __m256i half = _mm256_add_epi32(_mm256_and_si256(_mm256_srli_epi32(u, 16), one), _mm256_set1_epi32(0x7fff));
    __m256i r = _mm256_srli_epi32(_mm256_add_epi32(u, half), 16);
    __m256i nan = _mm256_or_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(0x40));
    r = _mm256_blendv_epi8(r, nan, _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
    return _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1));
}

AVX2 void avx2_pack_lanes(float *out, const struct rows *x, int64_t row, int64_t n, float factor)
{
    const __m256 f = _mm256_set1_ps(factor);
    for (int64_t group = 0; group < LANES; group += 8)
        for (int64_t c = 0; c < x->d; c += 8) {
            __m256 r[8];
            for (int64_t i = 0; i < 8; i++)
                r[i] = group + i < n ? _mm256_mul_ps(load8(x, row + group + i, c), f) : _mm256_setzero_ps();
            avx2_transpose(r);
            for (int64_t i = 0; i < 8; i++)
                _mm256_store_ps(out + (c + i) * LANES + group, r[i]);
        }
}

AVX2 void avx2_pack_quads(float *out, const struct rows *x, int64_t row, int64_t n)
{
    for (int64_t quad = 0; quad < round_up(n, LANES); quad += QUAD, out += QUAD * x->d)
        for (int64_t c = 0; c < x->d; c += 8) {
            __m256 r[4], u[4];
            for (int64_t i = 0; i < QUAD; i++)
                r[i] = quad + i < n ? load8(x, row + quad + i, c) : _mm256_setzero_ps();
            __m256 a = _mm256_unpacklo_ps(r[0], r[1]), b = _mm256_unpacklo_ps(r[2], r[3]);
            __m256 e = _mm256_unpackhi_ps(r[0], r[1]), g = _mm256_unpackhi_ps(r[2], r[3]);
            u[0] = _mm256_shuffle_ps(a, b, 0x44), u[1] = _mm256_shuffle_ps(a, b, 0xee);
            u[2] = _mm256_shuffle_ps(e, g, 0x44), u[3] = _mm256_shuffle_ps(e, g, 0xee);
            for (int64_t i = 0; i < QUAD; i++) { /* columns c + i and c + 4 + i */
                _mm_store_ps(out + (c + i) * QUAD, _mm256_castps256_ps128(u[i]));
                _mm_store_ps(out + (c + 4 + i) * QUAD, _mm256_extractf128_ps(u[i], 1));
            }
        }
}

AVX2 void avx2_pack_columns(float *out, const struct rows *x, int64_t row, int64_t n)
{
    for (int64_t i = 0; i < round_up(n, LANES); i++)
        for (int64_t c = 0; c < x->d; c += 8) {
            __m256 r = i < n ? load8(x, row + i, c) : _mm256_setzero_ps();
            _mm_store_ps(out + c * BLOCK + i * QUAD, _mm256_castps256_ps128(r));
            _mm_store_ps(out + (c + 4) * BLOCK + i * QUAD, _mm256_extractf128_ps(r, 1));
        }
}

AVX2 void avx2_unpack_lanes(const struct rows *out, const float *panel, const float *factor, int64_t row, int64_t n, int add)
{
    for (int64_t group = 0; group < n; group += 8) {
        const __m256 f = _mm256_loadu_ps(factor + group);
        for (int64_t c = 0; c < out->d; c += 8) {
            __m256 r[8];
            for (int64_t i = 0; i < 8; i++)
                r[i] = _mm256_mul_ps(_mm256_load_ps(panel + (c + i) * LANES + group), f);
            avx2_transpose(r);
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

#else
typedef int avx2_pack_is_empty;
#endif
