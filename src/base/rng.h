/* Counter-based random numbers (Philox4x32-10, Salmon et al. 2011): a value depends on (seed, stream, index) only,
 * never on who computes it or in which order. */
#ifndef LTRAIN_BASE_RNG_H
#define LTRAIN_BASE_RNG_H

#include <stdint.h>

/* Draws the four 32-bit words of block `index` of `stream`. */
void rng_block(uint64_t seed, uint64_t stream, uint64_t index, uint32_t out[4]);

/* Draws a uniform integer below n (n >= 1), element `index` of `stream`. */
uint64_t rng_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t n);

/* Draws standard normals, elements [first, first + n) of `stream` (Box-Muller on pairs of elements). */
void rng_normals(uint64_t seed, uint64_t stream, uint64_t first, int64_t n, float *out);

/* Draws uniform numbers in [0, 1), multiples of 2^-24, elements [first, first + n) of `stream`. */
void rng_uniforms(uint64_t seed, uint64_t stream, uint64_t first, int64_t n, float *out);

/* Returns the stream number of a name. */
uint64_t rng_stream(const char *name);

#endif
