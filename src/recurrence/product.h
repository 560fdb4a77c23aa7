/* Products of small matrices from packed panels (ops/gemm_tile.h). Private to src/recurrence. */
#ifndef LTRAIN_RECURRENCE_PRODUCT_H
#define LTRAIN_RECURRENCE_PRODUCT_H

#include "base/num.h"
#include "ops/gemm_tile.h"

/* Rows of results come in multiples of every tile's rows, columns in multiples of every tile's columns. */
enum { PRODUCT_ROWS = 12, PRODUCT_COLUMNS = 32 };

/* Parts of a product that are computed: all; or those that a lower or upper triangular left operand has. */
enum product_part { WHOLE, LEFT_LOWER, LEFT_UPPER };

/* Packs x [rows,cols], with rows ld apart, as a left operand. */
static inline void pack_left(const struct gemm_tile *t, float *out, const float *x, int64_t ld, int64_t rows, int64_t cols)
{
    t->pack(out, t->rows, &(struct gemm_operand){.x = x, .type = F32, .ld = ld}, 0, rows, 0, cols);
}

/* Packs the transpose of x [rows,cols] as a left operand. */
static inline void pack_left_across(const struct gemm_tile *t, float *out, const float *x, int64_t ld, int64_t rows, int64_t cols)
{
    t->pack(out, t->rows, &(struct gemm_operand){.x = x, .type = F32, .across = 1, .ld = ld}, 0, cols, 0, rows);
}

/* Packs x [rows,cols] as a right operand. */
static inline void pack_right(const struct gemm_tile *t, float *out, const float *x, int64_t ld, int64_t rows, int64_t cols)
{
    t->pack(out, t->cols, &(struct gemm_operand){.x = x, .type = F32, .across = 1, .ld = ld}, 0, cols, 0, rows);
}

/* Packs the transpose of x [rows,cols] as a right operand. */
static inline void pack_right_across(const struct gemm_tile *t, float *out, const float *x, int64_t ld, int64_t rows,
                                     int64_t cols)
{
    t->pack(out, t->cols, &(struct gemm_operand){.x = x, .type = F32, .ld = ld}, 0, rows, 0, cols);
}

/* Computes c [m,n] = a b, or c += a b, with rows of c ldc apart. Writes whole tiles: rows up to the next multiple of PRODUCT_ROWS,
 * and columns of PRODUCT_COLUMNS, get zeros, or keep their values. */
static inline void multiply(const struct gemm_tile *t, enum product_part part, int64_t m, int64_t n, int64_t k, const float *a,
                            const float *b, float *c, int64_t ldc, int add)
{
    const int64_t depth = round_up(k, 4);
    for (int64_t j = 0; j < n; j += t->cols)
        for (int64_t i = 0; i < m; i += t->rows) {
            const int64_t from = part == LEFT_UPPER ? i / 4 * 4 : 0;
            const int64_t to = part == LEFT_LOWER ? min_i64(depth, round_up(i + t->rows, 4)) : depth;
            t->run(to - from, a + i * depth + from * t->rows, b + j * depth + from * t->cols, c + i * ldc + j, ldc, add);
        }
}

#endif
