/* The footer of a Parquet file: its schema, and where the columns of each group of rows lie. Private to this folder. */
#ifndef LTRAIN_PARQUET_FOOTER_H
#define LTRAIN_PARQUET_FOOTER_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

/* Types in which values are stored, numbered as in files; PARQUET_GROUP: the element has members and no values. */
enum parquet_stored {
    PARQUET_GROUP = -1,
    PARQUET_BOOLEAN,
    PARQUET_INT32,
    PARQUET_INT64,
    PARQUET_INT96,
    PARQUET_FLOAT,
    PARQUET_DOUBLE,
    PARQUET_BYTES,
    PARQUET_FIXED,
    PARQUET_STORED /* number of types */
};

/* Meanings of stored values, whether files give them as logical or as converted types. */
enum parquet_meaning {
    MEANS_NOTHING, /* the stored type says all */
    MEANS_TEXT,
    MEANS_LIST,
    MEANS_MAP,
    MEANS_UNSIGNED,
    MEANS_NULL,
    MEANS_DECIMAL,
    MEANS_DATE,
    MEANS_TIME,
    MEANS_TIMESTAMP,
    MEANS_OTHER
};

enum parquet_repetition { PARQUET_REQUIRED, PARQUET_OPTIONAL, PARQUET_REPEATED };

/* Element of the schema, which is a tree written in depth-first order. */
struct footer_element {
    char *name; /* owned */
    enum parquet_stored stored;
    enum parquet_meaning meaning;
    enum parquet_repetition repetition;
    int32_t bytes;    /* bytes of a value of PARQUET_FIXED */
    int32_t children; /* number of members */
};

/* One column's pages in one group of rows. */
struct footer_chunk {
    int64_t first, end; /* bytes of the file */
    int64_t values;     /* number of values, nulls and empty lists included */
    int codec;
    enum parquet_stored stored;
};

struct footer {
    struct footer_element *element;
    int64_t n_elements;
    struct footer_chunk *chunk; /* [groups][leaves] */
    int64_t n_chunks;
    int64_t *rows; /* rows of each group */
    int64_t n_groups, n_leaves;
};

/* Reads the footer's n bytes. limit: number of bytes of the file before the footer. ERR_INVALID names path. */
enum status footer_read(const char *path, const uint8_t *text, int64_t n, int64_t limit, struct footer *out);
void footer_free(struct footer *f);

#endif
