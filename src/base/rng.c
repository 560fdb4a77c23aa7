/* Philox4x32-10. */
#include "base/rng.h"

#include <math.h>

void rng_block(uint64_t seed, uint64_t stream, uint64_t index, uint32_t out[4])
{
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32), c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = 0xD2511F53ull * c0, p1 = 0xCD9E8D57ull * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

uint64_t rng_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t n)
{
    uint32_t w[4];
    rng_block(seed, stream, index, w);
    /* the high word of the product of the two 64-bit words w and n */
    uint64_t n0 = n & 0xffffffffu, n1 = n >> 32, low = (w[1] * n0) >> 32;
    uint64_t mid = w[0] * n0 + low, cross = w[1] * n1 + (mid & 0xffffffffu);
    return w[0] * n1 + (mid >> 32) + (cross >> 32);
}

/* Draws elements 2j and 2j + 1 of a stream, which come from one block, number `pair` = j. */
static void normal_pair(uint64_t seed, uint64_t stream, uint64_t pair, float out[2])
{
    uint32_t w[4];
    rng_block(seed, stream, pair, w);
    double u = ((double)w[0] + 1.0) / 4294967296.0, v = (double)w[1] / 4294967296.0;
    double r = sqrt(-2.0 * log(u)), a = 6.283185307179586 * v;
    out[0] = (float)(r * cos(a));
    out[1] = (float)(r * sin(a));
}

void rng_normals(uint64_t seed, uint64_t stream, uint64_t first, int64_t n, float *out)
{
    float pair[2];
    for (int64_t i = 0; i < n; i++) {
        uint64_t e = first + (uint64_t)i;
        if (i == 0 || (e & 1) == 0)
            normal_pair(seed, stream, e / 2, pair);
        out[i] = pair[e & 1];
    }
}

void rng_uniforms(uint64_t seed, uint64_t stream, uint64_t first, int64_t n, float *out)
{
    uint32_t word[4];
    for (int64_t i = 0; i < n; i++) {
        uint64_t at = first + (uint64_t)i;
        if (i == 0 || at % 4 == 0)
            rng_block(seed, stream, at / 4, word);
        out[i] = (float)(word[at % 4] >> 8) * 0x1p-24f;
    }
}

uint64_t rng_stream(const char *name)
{
    uint64_t h = 0xcbf29ce484222325ull; /* FNV-1a */
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 0x100000001b3ull;
    return h;
}
