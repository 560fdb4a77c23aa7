/* Hashes of words, which tell different things apart; they are no protection against forgery. */
#ifndef LTRAIN_BASE_MIX_H
#define LTRAIN_BASE_MIX_H

#include <stdint.h>
#include <string.h>

/* Adds one word to a hash (the finalizer of SplitMix64, Steele et al. 2014). */
static inline uint64_t mix(uint64_t h, uint64_t word)
{
    h = (h ^ word) + 0x9e3779b97f4a7c15u;
    h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
    h = (h ^ h >> 27) * 0x94d049bb133111ebu;
    return h ^ h >> 31;
}

static inline uint64_t mix_text(uint64_t h, const char *text)
{
    size_t n = strlen(text);
    for (size_t i = 0; i < n; i++)
        h = mix(h, (unsigned char)text[i]);
    return mix(h, n);
}

static inline uint64_t mix_double(uint64_t h, double x)
{
    uint64_t word;
    memcpy(&word, &x, sizeof word);
    return mix(h, word);
}

#endif
