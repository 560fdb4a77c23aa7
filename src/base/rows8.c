#include "base/rows8.h"

#include "base/isa.h"

#include <math.h>

/* Smallest normal number of fp16. Below it fp16 has multiples of 2^-24, the spacing of fp32 numbers between 0.5 and 1. */
#define SMALLEST_NORMAL 0x1p-14f

/* Rounds a magnitude to the nearest fp16, ties to even, without fp16's upper limit. */
static inline float half_magnitude(float x)
{
    const float magnitude = fabsf(x), small = (magnitude + 0.5f) - 0.5f;
    uint32_t bits;
    float normal;
    memcpy(&bits, &magnitude, 4);
    bits = (bits + 0xfffu + (bits >> 13 & 1u)) & ~0x1fffu;
    memcpy(&normal, &bits, 4);
    return magnitude < SMALLEST_NORMAL ? small : normal;
}

CLONES static float largest(const float *x, int64_t n)
{
    float most = 0.0f;
#pragma omp simd reduction(max : most)
    for (int64_t i = 0; i < n; i++) {
        const float here = half_magnitude(x[i]);
        most = here > most ? here : most;
    }
    return most;
}

/* Quantises n numbers. Adding and subtracting 1.5 * 2^23 rounds to whole numbers, ties to even. */
CLONES static void quantise(const float *x, int64_t n, float inverse, int8_t *code)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const float whole = (half_magnitude(x[i]) * inverse + 0x1.8p23f) - 0x1.8p23f;
        code[i] = (int8_t)copysignf(whole, x[i]);
    }
}

float rows8_quantise(const float *x, int64_t columns, int8_t *code)
{
    const float most = largest(x, columns);
    if (most > ROWS8_LARGEST)
        return INFINITY;
    if (most == 0.0f)
        memset(code, 0, (size_t)columns);
    else
        quantise(x, columns, 1.0f / most * 127.0f, code); /* computed in this order, as PyTorch divides a number by a tensor */
    return most;
}
