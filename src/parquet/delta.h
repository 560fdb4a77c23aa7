/* Whole numbers stored as differences (DELTA_BINARY_PACKED). Private to this folder. */
#ifndef LTRAIN_PARQUET_DELTA_H
#define LTRAIN_PARQUET_DELTA_H

#include <stddef.h>
#include <stdint.h>

/* Reader of bytes that store numbers as differences: blocks of miniblocks, each with its own bits a number. */
struct delta {
    const uint8_t *at, *end;
    uint64_t left;             /* numbers left */
    uint64_t value, least;     /* number read last (before the first: that one); smallest difference, which each adds to */
    uint64_t minis, mini_size; /* miniblocks of a block, numbers of a miniblock */
    uint64_t mini;             /* number of the next miniblock in the block */
    const uint8_t *widths, *packed;
    uint64_t in_mini; /* numbers left of the current miniblock */
    uint64_t bit;     /* first unread bit of `packed` */
    int has_begun;    /* 1: the first number was read */
};

/* Begins at the bytes text[0, n); returns 0 if they are damaged. Sets d->left to the number of numbers. */
int delta_begin(struct delta *d, const uint8_t *text, size_t n);
/* Reads the next number. Returns 0 at the end, or if the bytes are damaged. */
int delta_next(struct delta *d, int64_t *out);
/* Returns the first byte behind all numbers, before any was read; NULL: the bytes are damaged. Skips whole miniblocks, as one of a few
 * bytes may have a million numbers. */
const uint8_t *delta_end(const struct delta *d);

#endif
