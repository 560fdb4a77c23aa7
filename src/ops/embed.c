/* Embedding lookup and its scatter-add. */
#include "ops/embed.h"

#include "ops/rows.h"
#include "ops/simd.h"

#include <math.h>

enum { PANEL = 128 }; /* columns that one task of the scatter-add owns */

CLONES static void add_into(float *y, const float *a, const float *b, int64_t n)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        y[j] = a[j] + b[j];
}

static void fill(const struct embed_shape *s, void *x, int64_t row, float value)
{
    float buf[ROWS_BLOCK];
    for (int64_t j = 0; j < s->dim; j += ROWS_BLOCK) {
        int64_t n = min_i64(ROWS_BLOCK, s->dim - j), at = row * s->dim + j;
        float *out = rows_target(x, at, s->dtype, buf);
        for (int64_t k = 0; k < n; k++)
            out[k] = value;
        rows_write(x, at, n, s->dtype, out);
    }
}

void ops_embed(const struct embed_shape *s, void *x, const void *table, const int32_t *tokens, const void *pos_table,
               const int32_t *positions)
{
    size_t row_bytes = (size_t)(s->dim * dtype_size((enum dtype)s->dtype));
#pragma omp parallel for schedule(static) if (s->rows * s->dim > ROWS_SERIAL)
    for (int64_t i = 0; i < s->rows; i++) {
        int64_t token = tokens[i], pos = pos_table ? positions[i] : 0;
        if (token < 0 || token >= s->vocab || (pos_table && (pos < 0 || pos >= s->max_pos))) {
            fill(s, x, i, NAN);
            continue;
        }
        if (!pos_table) {
            memcpy((char *)x + (size_t)i * row_bytes, (const char *)table + (size_t)token * row_bytes, row_bytes);
            continue;
        }
        for (int64_t j = 0; j < s->dim; j += ROWS_BLOCK) {
            float bx[ROWS_BLOCK], bt[ROWS_BLOCK], bp[ROWS_BLOCK];
            int64_t n = min_i64(ROWS_BLOCK, s->dim - j), at = i * s->dim + j;
            float *out = rows_target(x, at, s->dtype, bx);
            add_into(out, rows_read(table, token * s->dim + j, n, s->dtype, bt),
                     rows_read(pos_table, pos * s->dim + j, n, s->dtype, bp), n);
            rows_write(x, at, n, s->dtype, out);
        }
    }
}

void ops_embed_grad(const struct embed_shape *s, float *dtable, const void *dx, const int32_t *index)
{
    if (!s->accumulate) {
#pragma omp parallel for schedule(static) if (s->vocab * s->dim > ROWS_SERIAL)
        for (int64_t v = 0; v < s->vocab; v++)
            memset(dtable + v * s->dim, 0, (size_t)s->dim * sizeof *dtable);
    }
#pragma omp parallel for schedule(static) if (s->rows * s->dim > ROWS_SERIAL)
    for (int64_t j = 0; j < s->dim; j += PANEL) {
        float buf[PANEL];
        int64_t n = min_i64(PANEL, s->dim - j);
        for (int64_t i = 0; i < s->rows; i++) {
            if (index[i] < 0 || index[i] >= s->vocab)
                continue;
            float *row = dtable + index[i] * s->dim + j;
            add_into(row, row, rows_read(dx, i * s->dim + j, n, s->dtype, buf), n);
        }
    }
}
