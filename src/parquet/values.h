/* The values of a page, one after the other. Private to this folder. */
#ifndef LTRAIN_PARQUET_VALUES_H
#define LTRAIN_PARQUET_VALUES_H

#include "parquet/delta.h"
#include "parquet/footer.h"
#include "parquet/rle.h"

#include "text/tokenizer.h"

/* A value; which members count depends on the stored type. */
struct value {
    int64_t integer;      /* booleans and whole numbers */
    double real;          /* numbers of PARQUET_FLOAT, PARQUET_DOUBLE */
    const uint8_t *bytes; /* PARQUET_BYTES, until the next value or page is read */
    size_t n;
};

/* The different values of a column's chunk, which its pages refer to by number. */
struct dictionary {
    uint8_t *bytes; /* values in the encoding PLAIN */
    size_t n;
    uint32_t *start; /* PARQUET_BYTES: place of each value's length; NULL otherwise */
    int64_t values;  /* -1: there is no dictionary */
};

struct values {
    enum parquet_stored stored;
    int encoding;
    const uint8_t *at, *end; /* values as they are, or the texts behind their lengths */
    uint64_t index, count;   /* number of the next value, and of values that the page can have */
    const struct dictionary *dictionary;
    struct rle places;
    struct delta numbers, shared; /* numbers, or lengths of texts; bytes that a text shares with the one before */
    struct text_buffer last;      /* last text, if texts share beginnings */
};

/* Reads the n bytes of a dictionary of `values` values, which it takes over; returns 0 if they are damaged. */
int dictionary_read(struct dictionary *d, enum parquet_stored stored, uint8_t *bytes, size_t n, int64_t values);
void dictionary_free(struct dictionary *d);
/* Tells whether values of a stored type may come in an encoding; 0 for encodings that are not known, too. */
int values_are_known(enum parquet_stored stored, int encoding);
/* Begins at a page's values text[0, n), of which there are `count` at most; returns 0 if they are damaged. v->last is kept. */
int values_begin(struct values *v, enum parquet_stored stored, int encoding, const struct dictionary *d, const uint8_t *text,
                 size_t n, uint64_t count);
/* Reads the next value; returns 0 at the end of the page, or if the page is damaged or memory ran out. */
int values_next(struct values *v, struct value *out);

#endif
