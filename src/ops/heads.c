/* Attention's work per row and head. */
#include "ops/heads.h"

#include "ops/ops.h"
#include "ops/rows.h"
#include "ops/simd.h"

#include <math.h>

/* delta of a row's heads, which begin at element `at`. */
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

/* o = keep * o + add * part, elements [at, at + n) */
INLINE void blend_typed(float *o, const void *part, float keep, float add, int64_t at, int64_t n, int32_t dtype)
{
#pragma omp simd
    for (int64_t j = at; j < at + n; j++)
        o[j] = fmaf(keep, o[j], add * row_get(part, j, dtype));
}

INLINE void take_typed(float *o, const void *part, int64_t at, int64_t n, int32_t dtype)
{
#pragma omp simd
    for (int64_t j = at; j < at + n; j++)
        o[j] = row_get(part, j, dtype);
}

CLONES static void blend(float *o, const void *part, float keep, float add, int64_t at, int64_t n, int32_t dtype)
{
    if (keep == 0) /* whatever o holds */
        FOR_DTYPE(dtype, take_typed, o, part, at, n);
    else
        FOR_DTYPE(dtype, blend_typed, o, part, keep, add, at, n);
}

/* The weights of o and of its part in their union, and its lse. */
static float merge_weights(float lse, float part, float *keep, float *add)
{
    if (part == -INFINITY || lse == -INFINITY) {
        *keep = part == -INFINITY;
        *add = part != -INFINITY;
        return part == -INFINITY ? lse : part;
    }
    float smaller = expf(-fabsf(lse - part)),
          larger = 1.0f / (1.0f + smaller); /* larger >= 1/2: of the one with the larger lse */
    *keep = lse >= part ? larger : smaller * larger;
    *add = lse >= part ? smaller * larger : larger;
    return fmaxf(lse, part) + log1pf(smaller);
}

void ops_attn_merge(const struct heads_shape *s, float *o, float *lse, const void *o_part, const float *lse_part)
{
#pragma omp parallel for schedule(static) if (s->rows * s->heads * s->head_dim > ROWS_SERIAL)
    for (int64_t i = 0; i < s->rows * s->heads; i++) {
        const int64_t at = i % s->heads * s->rows + i / s->heads;
        float keep = 0, add = 1, merged = lse_part[at];
        if (s->accumulate)
            merged = merge_weights(lse[at], lse_part[at], &keep, &add);
        lse[at] = merged;
        if (add != 0)
            blend(o, o_part, keep, add, i * s->head_dim, s->head_dim, s->dtype);
    }
}

static struct heads_shape heads_shape_of(const struct op_attrs *a)
{
    return (struct heads_shape){.rows = a->heads.rows,
                                .heads = a->heads.heads,
                                .head_dim = a->heads.head_dim,
                                .dtype = a->heads.dtype,
                                .accumulate = a->heads.accumulate};
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
