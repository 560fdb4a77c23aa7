/* Numbers of a few bits in runs, as Parquet stores levels and places in dictionaries. Private to this folder. */
#ifndef LTRAIN_PARQUET_RLE_H
#define LTRAIN_PARQUET_RLE_H

#include <stddef.h>
#include <stdint.h>

/* Returns `width` bits from bit number `bit` on, the lowest first; the bytes must be there. width: at most 64. */
uint64_t bits_at(const uint8_t *bytes, uint64_t bit, int width);

/* Place in a text of runs: each is one number repeated, or numbers packed by bits, in eights. */
struct rle {
    const uint8_t *at, *end;
    int width;
    uint64_t left; /* numbers left of the current run */
    int is_packed;
    uint64_t value; /* number that the run repeats */
    uint64_t bit;   /* place in the packed numbers, which end at `at` */
    const uint8_t *packed;
};

/* Begins at text[0, n); width: bits of a number, at most 32. */
void rle_begin(struct rle *r, const uint8_t *text, size_t n, int width);
/* Reads the next number. Returns 0 at the end of the text, or if the text is damaged. */
int rle_next(struct rle *r, uint32_t *out);

#endif
