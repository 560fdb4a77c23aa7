/* Whole numbers stored as differences (DELTA_BINARY_PACKED). Private to this folder. */
#ifndef LTRAIN_PARQUET_DELTA_H
#define LTRAIN_PARQUET_DELTA_H

#include <stddef.h>
#include <stdint.h>

/* Place in a text of differences: blocks of miniblocks, each with numbers of its own width. */
struct delta {
    const uint8_t *at, *end;
    uint64_t left;             /* numbers left */
    uint64_t value, least;     /* value: the last number, or the first one to come; least: added to each difference */
    uint64_t minis, mini_size; /* miniblocks of a block, numbers of a miniblock */
    uint64_t mini;             /* number of the next miniblock in the block */
    const uint8_t *widths, *packed;
    uint64_t in_mini; /* numbers left of the current miniblock */
    uint64_t bit;
    int has_begun; /* 1: the first number was read */
};

/* Begins at text[0, n); returns 0 if the text is damaged. d->left: how many numbers there are. */
int delta_begin(struct delta *d, const uint8_t *text, size_t n);
/* Reads the next number. Returns 0 at the end, or if the text is damaged. */
int delta_next(struct delta *d, int64_t *out);
/* Returns the text's first byte behind the numbers, of which none was read; NULL: the text is damaged. Miniblocks are passed over
 * whole, as one of a few bytes may have a million numbers. */
const uint8_t *delta_end(const struct delta *d);

#endif
