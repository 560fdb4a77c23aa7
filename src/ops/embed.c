/* Embedding lookup and its scatter-add. */
#include "ops/embed.h"

#include "ops/cast.h"
#include "ops/ops.h"
#include "ops/rows.h"
#include "ops/simd.h"

#include <math.h>

enum { PANEL = 128 }; /* columns that one task of the scatter-add owns */

/* Adds y[at + j] = a[a_at + j] + b[b_at + j]. */
INLINE void add_typed(void *y, int64_t at, const void *a, int64_t a_at, const void *b, int64_t b_at, int64_t n, int32_t dtype)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        row_set(y, at + j, dtype, row_get(a, a_at + j, dtype) + row_get(b, b_at + j, dtype));
}

CLONES static void add_rows(void *y, int64_t at, const void *a, int64_t a_at, const void *b, int64_t b_at, int64_t n,
                            int32_t dtype)
{
    FOR_DTYPE(dtype, add_typed, y, at, a, a_at, b, b_at, n);
}

INLINE void scatter_typed(float *row, const void *dx, int64_t at, int64_t n, float scale, int32_t dtype)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        row[j] += scale * row_get(dx, at + j, dtype);
}

CLONES static void scatter(float *row, const void *dx, int64_t at, int64_t n, float scale, int32_t dtype)
{
    FOR_DTYPE(dtype, scatter_typed, row, dx, at, n, scale);
}

static void look_up_columns(const struct embed_shape *s, void *x, const void *table, const int32_t *tokens)
{
#pragma omp parallel for schedule(static) if (s->rows * s->dim > ROWS_SERIAL)
    for (int64_t i = 0; i < s->rows; i++)
        for (int64_t j = 0; j < s->dim; j++) {
            const int inside = tokens[i] >= 0 && tokens[i] < s->vocab;
            row_set(x, i * s->dim + j, s->dtype, inside ? s->scale * row_get(table, j * s->vocab + tokens[i], s->dtype) : NAN);
        }
}

void ops_embed(const struct embed_shape *s, void *x, const void *table, const int32_t *tokens, const void *pos_table,
               const int32_t *positions)
{
    size_t row_bytes = (size_t)(s->dim * dtype_size((enum dtype)s->dtype));
    if (s->by_columns) {
        look_up_columns(s, x, table, tokens);
        return;
    }
#pragma omp parallel for schedule(static) if (s->rows * s->dim > ROWS_SERIAL)
    for (int64_t i = 0; i < s->rows; i++) {
        int64_t token = tokens[i], pos = pos_table ? positions[i] : 0;
        if (s->over && token < 0)
            continue;
        if (token < 0 || token >= s->vocab || (pos_table && (pos < 0 || pos >= s->max_pos))) {
            for (int64_t j = 0; j < s->dim; j++)
                row_set(x, i * s->dim + j, s->dtype, NAN);
        } else if (pos_table) {
            add_rows(x, i * s->dim, table, token * s->dim, pos_table, pos * s->dim, s->dim, s->dtype);
        } else if (s->scale != 1.0f) {
            ops_scale((char *)x + (size_t)i * row_bytes, (const char *)table + (size_t)token * row_bytes, s->scale, s->dim,
                      s->dtype);
        } else {
            memcpy((char *)x + (size_t)i * row_bytes, (const char *)table + (size_t)token * row_bytes, row_bytes);
        }
    }
}

static void scatter_columns(const struct embed_shape *s, float *dtable, const void *dx, const int32_t *index)
{
#pragma omp parallel for schedule(static) if (s->rows * s->dim > ROWS_SERIAL)
    for (int64_t j = 0; j < s->dim; j++)
        for (int64_t i = 0; i < s->rows; i++)
            if (index[i] >= 0 && index[i] < s->vocab)
                dtable[j * s->vocab + index[i]] += s->scale * row_get(dx, i * s->dim + j, s->dtype);
}

void ops_embed_grad(const struct embed_shape *s, float *dtable, const void *dx, const int32_t *index)
{
    if (!s->accumulate) {
#pragma omp parallel for schedule(static) if (s->vocab * s->dim > ROWS_SERIAL)
        for (int64_t v = 0; v < s->vocab; v++)
            memset(dtable + v * s->dim, 0, (size_t)s->dim * sizeof *dtable);
    }
    if (s->by_columns) {
        scatter_columns(s, dtable, dx, index);
        return;
    }
#pragma omp parallel for schedule(static) if (s->rows * s->dim > ROWS_SERIAL)
    for (int64_t j = 0; j < s->dim; j += PANEL) {
        for (int64_t i = 0; i < s->rows; i++)
            if (index[i] >= 0 && index[i] < s->vocab)
                scatter(dtable + index[i] * s->dim + j, dx, i * s->dim + j, min_i64(PANEL, s->dim - j), s->scale, s->dtype);
    }
}

void ops_scatter(const struct embed_shape *s, void *table, const void *x, const int32_t *index)
{
    size_t row_bytes = (size_t)(s->dim * dtype_size((enum dtype)s->dtype));
    for (int64_t i = 0; i < s->rows; i++)
        if (index[i] >= 0 && index[i] < s->vocab)
            memcpy((char *)table + (size_t)index[i] * row_bytes, (const char *)x + (size_t)i * row_bytes, row_bytes);
}

static struct embed_shape embed_shape_of(const struct op_attrs *a)
{
    return (struct embed_shape){.rows = a->embed.rows,
                                .dim = a->embed.dim,
                                .vocab = a->embed.vocab,
                                .max_pos = a->embed.max_pos,
                                .dtype = a->embed.dtype,
                                .accumulate = a->embed.accumulate,
                                .by_columns = a->embed.by_columns,
                                .over = a->embed.over,
                                .scale = a->embed.scale != 0.0f ? a->embed.scale : 1.0f};
}

enum status ops_cpu_embed(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    struct embed_shape s = embed_shape_of(a);
    ops_embed(&s, arg[0], arg[1], arg[2], arg[3], arg[4]);
    return OK;
}

enum status ops_cpu_embed_grad(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    struct embed_shape s = embed_shape_of(a);
    ops_embed_grad(&s, arg[0], arg[1], arg[2]);
    return OK;
}

enum status ops_cpu_scatter(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    struct embed_shape s = embed_shape_of(a);
    ops_scatter(&s, arg[0], arg[1], arg[2]);
    return OK;
}
