/* Conversions in chunks that fit the first-level cache, without branches inside a chunk, so that compilers vectorise them. */
#include "base/convert.h"

#include "base/isa.h"

enum { CHUNK = 1024 }; /* values of a chunk */

static float half_to_float(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = h >> 10 & 31u, fraction = h & 0x3ffu;
    const uint32_t normal = (exponent + (exponent == 31 ? 224u : 112u)) << 23 | fraction << 13;
    const float small = (float)(int32_t)fraction * 0x1p-24f; /* zero or subnormal, exact */
    uint32_t bits;
    float f;
    memcpy(&bits, &small, 4);
    bits = sign | (exponent == 0 ? bits : normal);
    memcpy(&f, &bits, 4);
    return f;
}

CLONES static void widen(enum dtype from, const void *src, float *out, int n)
{
    const uint16_t *half = src;
    const double *wide = src;
    if (from == BF16)
        for (int i = 0; i < n; i++)
            out[i] = bf16_to_float(half[i]);
    else if (from == F16)
        for (int i = 0; i < n; i++)
            out[i] = half_to_float(half[i]);
    else
        for (int i = 0; i < n; i++)
            out[i] = (float)wide[i];
}

/* Tells whether all values are finite: then even the largest magnitude has a zero bit in its exponent. */
CLONES static int all_finite(enum dtype type, const void *x, int n)
{
    const int32_t *word = x;
    const int16_t *half = x;
    int32_t most = 0;
    int16_t most_half = 0;
    if (type == F32) {
        for (int i = 0; i < n; i++)
            most = (word[i] & 0x7fffffff) > most ? word[i] & 0x7fffffff : most;
        return most < 0x7f800000;
    }
    for (int i = 0; i < n; i++)
        most_half = (int16_t)((half[i] & 0x7fff) > most_half ? half[i] & 0x7fff : most_half);
    return most_half < 0x7f80;
}

/* Returns the index of the first fp32 or bf16 value that is not finite; n: all are finite. */
static int finite_in_chunk(enum dtype type, const void *x, int n)
{
    const uint32_t *word = x;
    const uint16_t *half = x;
    int i = 0;
    if (all_finite(type, x, n))
        return n;
    while (type == F32 ? (word[i] & 0x7f800000u) != 0x7f800000u : (half[i] & 0x7f80u) != 0x7f80u)
        i++;
    return i;
}

CLONES static void narrow(const float *x, bf16 *out, int n)
{
    for (int i = 0; i < n; i++)
        out[i] = bf16_from_float(x[i]);
}

static void convert_chunk(enum dtype from, const void *src, enum dtype to, void *dst, int n)
{
    float wide[CHUNK];
    if (from == to) {
        if (dst != src)
            memcpy(dst, src, (size_t)(n * dtype_size(from)));
    } else if (to == F32) {
        widen(from, src, dst, n);
    } else if (from == F32) {
        narrow(src, dst, n);
    } else {
        widen(from, src, wide, n);
        narrow(wide, dst, n);
    }
}

int64_t convert_values(enum dtype from, const void *src, enum dtype to, void *dst, int64_t n)
{
    int64_t first = n;
    for (int64_t at = 0; at < n; at += CHUNK) {
        const int m = (int)min_i64(CHUNK, n - at);
        const char *in = (const char *)src + at * dtype_size(from);
        char *out = (char *)dst + at * dtype_size(to);
        convert_chunk(from, in, to, out, m);
        /* a bf16 source is searched itself: it is never longer than the result, and finite where the result is */
        const int finite = from == BF16 ? finite_in_chunk(BF16, in, m) : finite_in_chunk(to, out, m);
        if (finite < m)
            first = min_i64(first, at + finite);
    }
    return first;
}
