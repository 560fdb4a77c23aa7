/* Rows put together of their columns, as JSON. Private to this folder. */
#ifndef LTRAIN_PARQUET_ROWS_H
#define LTRAIN_PARQUET_ROWS_H

#include "parquet/column.h"

/* Adds the value that comes next in the columns below the node. column: columns by number of their leaf. */
enum status rows_write(const struct node *node, struct column *column, struct text_buffer *out);
/* Tells whether the next value is null: *null. */
enum status rows_is_null(const struct node *node, struct column *column, int *null);
/* Skips the null that comes next, in all columns below the node. */
enum status rows_skip_null(const struct node *node, struct column *column);
/* Refuses a row that is too long. */
enum status rows_check_length(const struct parquet_file *file, const struct text_buffer *row);
/* Adds a text as a JSON string. */
enum status rows_write_text(const char *text, size_t n, struct text_buffer *out);

#endif
