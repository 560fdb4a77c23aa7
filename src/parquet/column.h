/* A column's values in one group of rows, read page by page. Private to this folder. */
#ifndef LTRAIN_PARQUET_COLUMN_H
#define LTRAIN_PARQUET_COLUMN_H

#include "parquet/parquet.h"
#include "parquet/schema.h"
#include "parquet/values.h"

/* Most bytes of a page, decompressed; writers make pages of a few MB, or of a thousand rows where those are long. */
#define COLUMN_MOST_PAGE ((int64_t)1 << 30)

struct column {
    const struct parquet_file *file;
    const struct node *leaf;
    const char *name; /* name of the member of the rows that the column belongs to */
    int most_depth;   /* number of lists around a value */
    struct footer_chunk chunk;
    int64_t at;                 /* place of the next page */
    int64_t left, left_in_page; /* values of the chunk and of the page that were not yet reached */
    struct text_buffer packed, page;
    struct dictionary dictionary;
    struct rle depths, levels;
    struct values values;
    int has_value;    /* 1: `depth` and `level` are those of the next value */
    int depth, level; /* repetition and definition level (struct node) */
};

/* Goes to the beginning of a chunk. ERR_INVALID: it is of a form that is not read. */
enum status column_begin(struct column *c, const struct footer_chunk *chunk);
/* Looks at the next value: depth -1 behind the last one of the chunk. */
enum status column_look(struct column *c);
/* Takes the value that was looked at; out: NULL if it is not there (its level is below the leaf's). */
enum status column_take(struct column *c, struct value *out);
void column_free(struct column *c);
/* Records that the file is damaged at the column's page. */
enum status column_refuse(const struct column *c, const char *why);

#endif
