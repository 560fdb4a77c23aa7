/* Emulates AMX's instructions with AVX-512, to test the AMX kernels on CPUs without AMX; must be included before a file of these
 * kernels. */
#ifndef TEST_ATTENTION_AMX_EMULATED_H
#define TEST_ATTENTION_AMX_EMULATED_H

#include <immintrin.h>
#include <stdint.h>

/* Prevents base/amx.h and attention/amx_product.h, which this file replaces, from being included. */
#define LTRAIN_BASE_AMX_H
#define LTRAIN_ATTENTION_AMX_PRODUCT_H

#define amx_forward amx_emulated_forward
#define amx_workspace amx_emulated_workspace
#define amx_backward amx_emulated_backward
#define amx_backward_workspace amx_emulated_backward_workspace

static inline void amx_begin(void)
{
}

static inline void amx_end(void)
{
}

/* Returns the lower bf16 number of each pair as fp32 (amx_upper: the upper one). */
static inline __attribute__((target("avx512f"))) __m512 amx_lower(__m512i pairs)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}

static inline __attribute__((target("avx512f"))) __m512 amx_upper(__m512i pairs)
{
    return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(-65536)));
}

static inline __attribute__((target("avx512f"))) void amx_product(int64_t steps, const char *a, int64_t a_next, const char *b,
                                                                  int64_t b_next, char *c, int64_t row, int64_t c_below,
                                                                  int64_t c_beside, int add)
{
    for (int tile = 0; tile < 4; tile++)
        for (int64_t m = 0; m < 16; m++) {
            float *out = (float *)(void *)(c + tile / 2 * c_below + tile % 2 * c_beside + m * row);
            const char *left = a + tile / 2 * a_next + m * 64, *right = b + tile % 2 * b_next;
            __m512 even = add ? _mm512_loadu_ps(out) : _mm512_setzero_ps(), odd = _mm512_setzero_ps();
            for (int64_t s = 0; s < steps * 1024; s += 1024)
                for (int64_t k = 0; k < 16; k++) {
                    const __m512i x = _mm512_set1_epi32(*(const int32_t *)(const void *)(left + s + k * 4));
                    const __m512i y = _mm512_loadu_si512(right + s + k * 64);
                    even = _mm512_fmadd_ps(amx_lower(x), amx_lower(y), even);
                    odd = _mm512_fmadd_ps(amx_upper(x), amx_upper(y), odd);
                }
            _mm512_storeu_ps(out, _mm512_add_ps(even, odd));
        }
}

#endif
