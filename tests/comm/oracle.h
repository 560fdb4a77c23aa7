/* Computes the results that collectives must have. Each rank generates every rank's input itself. */
#ifndef TESTS_COMM_ORACLE_H
#define TESTS_COMM_ORACLE_H

#include "base/num.h"

#include <string.h>

/* Returns value i of rank r's input in round `seed`. Values are of many magnitudes, so that the order of a sum shows. */
static inline float input(uint64_t seed, int r, int64_t i)
{
    uint64_t x = (uint64_t)i * 0x9e3779b97f4a7c15u + (uint64_t)r * 0xbf58476d1ce4e5b9u + seed * 0x94d049bb133111ebu;
    x ^= x >> 31;
    x *= 0xd6e8feb86659fd93u;
    x ^= x >> 29;
    uint32_t bits = (uint32_t)(x >> 8 & 0x807fffff) | (uint32_t)(119 + (x & 15)) << 23; /* +- 2^-8 to 2^8 */
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Returns the sum over `members` in order, each rounded to bf16 if `rounded`. Member m is rank first + m * stride. */
static inline float summed(uint64_t seed, int first, int stride, int members, int64_t i, int rounded)
{
    float sum = 0;
    for (int m = 0; m < members; m++) {
        float x = input(seed, first + m * stride, i);
        x = rounded ? bf16_to_float(bf16_from_float(x)) : x;
        sum = m == 0 ? x : sum + x;
    }
    return sum;
}

#endif
