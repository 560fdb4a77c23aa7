/* Attention's work per row and head. */
#include "ops/heads.h"

#include "ops/ops.h"
#include "ops/rows.h"
#include "ops/simd.h"

#include <math.h>
#include <string.h>

/* Computes delta of a row's heads, which begin at element `at`. */
INLINE void delta_typed(float *delta, const void *o, const void *d_o, int64_t at, int64_t heads, int64_t head_dim, int32_t dtype)
{
    for (int64_t h = 0; h < heads; h++, at += head_dim) {
        f32x8 sum[2] = {{0}}, v[2], w[2];
        for (int64_t j = 0; j < head_dim; j += LANES) {
            lanes_get(v, o, at + j, head_dim - j, 0.0f, dtype);
            lanes_get(w, d_o, at + j, head_dim - j, 0.0f, dtype);
            sum[0] += v[0] * w[0];
            sum[1] += v[1] * w[1];
        }
        delta[h] = lanes_sum(sum);
    }
}

CLONES static void delta_row(float *delta, const void *o, const void *d_o, int64_t at, int64_t heads, int64_t head_dim,
                             int32_t dtype)
{
    FOR_DTYPE(dtype, delta_typed, delta, o, d_o, at, heads, head_dim);
}

void ops_attn_delta(const struct heads_shape *s, float *delta, const void *o, const void *d_o)
{
#pragma omp parallel for schedule(static) if (s->rows * s->heads * s->head_dim > ROWS_SERIAL)
    for (int64_t i = 0; i < s->rows; i++)
        delta_row(delta + i * s->heads, o, d_o, i * s->heads * s->head_dim, s->heads, s->head_dim, s->dtype);
}

/* Computes o = keep * o + add * part. */
CLONES static void blend(float *o, const float *part, float keep, float add, int64_t n)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        o[j] = fmaf(keep, o[j], add * part[j]);
}

/* Computes the weights of o and of the part in their union, and returns the union's lse. */
static float merge_weights(float lse, float part, float *keep, float *add)
{
    if (part == -INFINITY || lse == -INFINITY) {
        *keep = part == -INFINITY;
        *add = part != -INFINITY;
        return part == -INFINITY ? lse : part;
    }
    float smaller = expf(-fabsf(lse - part)),
          larger = 1.0f / (1.0f + smaller); /* at least 1/2: the weight of the term with the larger lse */
    *keep = lse >= part ? larger : smaller * larger;
    *add = lse >= part ? smaller * larger : larger;
    return fmaxf(lse, part) + log1pf(smaller);
}

void ops_attn_merge(const struct heads_shape *s, float *o, float *lse, const float *o_part, const float *lse_part)
{
#pragma omp parallel for schedule(static) if (s->rows * s->heads * s->head_dim > ROWS_SERIAL)
    for (int64_t i = 0; i < s->rows * s->heads; i++) {
        const int64_t at = i % s->heads * s->rows + i / s->heads, first = i * s->head_dim;
        float keep, add;
        lse[at] = merge_weights(lse[at], lse_part[at], &keep, &add);
        if (keep == 0) /* weight 0: the contents of o must not count, even if not finite */
            memcpy(o + first, o_part + first, (size_t)s->head_dim * sizeof *o);
        else if (add != 0)
            blend(o + first, o_part + first, keep, add, s->head_dim);
    }
}

static struct heads_shape heads_shape_of(const struct op_attrs *a)
{
    return (struct heads_shape){
        .rows = a->heads.rows, .heads = a->heads.heads, .head_dim = a->heads.head_dim, .dtype = a->heads.dtype};
}

enum status ops_cpu_attn_delta(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    struct heads_shape s = heads_shape_of(a);
    ops_attn_delta(&s, arg[0], arg[1], arg[2]);
    return OK;
}

enum status ops_cpu_attn_merge(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    struct heads_shape s = heads_shape_of(a);
    ops_attn_merge(&s, arg[0], arg[1], arg[2], arg[3]);
    return OK;
}

INLINE void columns_typed(void *y, int64_t y_at, int32_t y_type, const void *x, int64_t x_at, int64_t n, int32_t x_type)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        row_set(y, y_at + j, y_type, row_get(x, x_at + j, x_type));
}

CLONES static void columns_row(void *y, int64_t y_at, int32_t y_type, const void *x, int64_t x_at, int64_t n, int32_t x_type)
{
    if (y_type == F32)
        FOR_DTYPE(x_type, columns_typed, y, y_at, F32, x, x_at, n);
    else
        FOR_DTYPE(x_type, columns_typed, y, y_at, BF16, x, x_at, n);
}

enum status ops_cpu_columns(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    int64_t rows = a->columns.rows, cols = a->columns.cols;
#pragma omp parallel for schedule(static) if (rows * cols > ROWS_SERIAL)
    for (int64_t i = 0; i < rows; i++)
        columns_row(arg[0], i * a->columns.y_ld + a->columns.y_first, a->columns.y_type, arg[1],
                    i * a->columns.x_ld + a->columns.x_first, cols, a->columns.x_type);
    return OK;
}

/* Writes a row's heads: n elements of x for each, then m of z. */
INLINE void join_typed(void *y, int64_t at, const void *x, const void *z, int64_t row, int64_t heads, int64_t n, int64_t m,
                       int32_t dtype)
{
    for (int64_t h = 0; h < heads; h++) {
        const int64_t from = (row * heads + h) * n, to = at + h * (n + m);
#pragma omp simd
        for (int64_t j = 0; j < n; j++)
            row_set(y, to + j, dtype, row_get(x, from + j, dtype));
#pragma omp simd
        for (int64_t j = 0; j < m; j++)
            row_set(y, to + n + j, dtype, row_get(z, row * m + j, dtype));
    }
}

CLONES static void join_row(void *y, int64_t at, const void *x, const void *z, int64_t row, int64_t heads, int64_t n, int64_t m,
                            int32_t dtype)
{
    FOR_DTYPE(dtype, join_typed, y, at, x, z, row, heads, n, m);
}

enum status ops_cpu_heads_join(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    const int64_t rows = a->join.rows, heads = a->join.heads, n = a->join.own, m = a->join.shared;
#pragma omp parallel for schedule(static) if (rows * heads * (n + m) > ROWS_SERIAL)
    for (int64_t i = 0; i < rows; i++)
        join_row(arg[0], i * heads * (n + m), arg[1], arg[2], i, heads, n, m, a->join.dtype);
    return OK;
}

/* Copies a row's own elements to dx, and adds the others to dz, head by head. */
CLONES static void split_row(float *dx, float *dz, const float *dy, int64_t heads, int64_t n, int64_t m)
{
    for (int64_t h = 0; h < heads; h++, dx += n, dy += n + m) {
        memcpy(dx, dy, (size_t)n * sizeof *dx);
#pragma omp simd
        for (int64_t j = 0; j < m; j++)
            dz[j] += dy[n + j];
    }
}

enum status ops_cpu_heads_split(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    const int64_t rows = a->join.rows, heads = a->join.heads, n = a->join.own, m = a->join.shared;
    float *dx = arg[0], *dz = arg[1];
    const float *dy = arg[2];
#pragma omp parallel for schedule(static) if (rows * heads * (n + m) > ROWS_SERIAL)
    for (int64_t i = 0; i < rows; i++) {
        if (!a->join.accumulate)
            memset(dz + i * m, 0, (size_t)m * sizeof *dz);
        split_row(dx + i * heads * n, dz + i * m, dy + i * heads * (n + m), heads, n, m);
    }
    return OK;
}
