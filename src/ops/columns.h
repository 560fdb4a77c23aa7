/* Single columns of a matrix, moved to and from one that has only these. */
#ifndef LTRAIN_OPS_COLUMNS_H
#define LTRAIN_OPS_COLUMNS_H

#include <stdint.h>

struct columns_shape {
    int64_t rows, n, y_ld, x_ld; /* n: columns that are moved; y_ld, x_ld: elements from row to row */
    int32_t dtype;
};

/* Writes y[.., index[j]] = x[.., j]. Columns in `index` differ and are y's. */
void ops_put_columns(const struct columns_shape *s, void *y, const void *x, const int32_t *index);
/* Writes x[.., j] = y[.., index[j]], then zeroes these columns of y. */
void ops_take_columns(const struct columns_shape *s, void *x, void *y, const int32_t *index);

#endif
