/* Rows of Parquet files, as JSON.
 *
 * The format is that of parquet-format 2.12: nested columns, both forms of data pages, all encodings, the codecs snappy, gzip,
 * zstd, lz4_raw and brotli. Rows are put together page by page, so memory does not grow with the file or its groups of rows: a
 * page and a dictionary of each column. */
#ifndef LTRAIN_PARQUET_PARQUET_H
#define LTRAIN_PARQUET_PARQUET_H

#include "base/status.h"

#include "text/tokenizer.h"

#include <stddef.h>
#include <stdint.h>

/* Most bytes of a row, as JSON. */
#define PARQUET_MOST_ROW ((size_t)256 << 20)

/* A file, of which any part can be read. path: for messages; must outlive what is opened. */
struct parquet_file {
    const char *path;
    int64_t bytes;
    enum status (*read)(void *user, void *buf, size_t n, int64_t at); /* reads exactly n bytes */
    void *user;
};

struct parquet;

/* Reads the footer. ERR_INVALID names path: it is no Parquet file, is damaged, or of a form that is not read. */
enum status parquet_open(const struct parquet_file *file, struct parquet **out);
void parquet_close(struct parquet *p);
/* Puts the next row into `out`, a JSON object with a newline behind; *got: 0 behind the last row.
 *
 * Members of structs that are null are left out, as are columns with a type that JSON does not have (parquet_check); a map is an
 * object. Numbers that are not finite are null. ERR_INVALID, as above. */
enum status parquet_row(struct parquet *p, struct text_buffer *out, int *got);
/* Leaves out the columns whose names `reads` denies: their pages are neither read nor decoded. Between opening and the first row. */
void parquet_select(struct parquet *p, int (*reads)(void *user, const char *name), void *user);
/* Tells whether rows may have a member of that name. */
int parquet_has(const struct parquet *p, const char *name);
/* Refuses a column of that name, if there is one, whose values have a type that rows leave out. */
enum status parquet_check(const struct parquet *p, const char *name);

#endif
