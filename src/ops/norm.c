/* Normalising rows, forward and backward. */
#include "ops/norm.h"

#include "ops/add.h"
#include "ops/memory.h"
#include "ops/ops.h"
#include "ops/rows.h"
#include "ops/simd.h"

#include <math.h>

enum {
    ROW_GROUP = 32, /* rows whose column sums one task takes while it computes their dx */
    PANEL = 128,    /* columns that one task adds up over the groups */
};

/* A row or segment: its first element in x, its length, and its statistics. */
struct row {
    int64_t at, dim;
    float mean, r;
};

/* Returns the sum of (x - mean) ^ power over a row. */
INLINE float sum_powers(const struct row *row, const void *x, int power, int32_t dtype)
{
    f32x8 sum[2] = {{0}}, v[2];
    for (int64_t j = 0; j < row->dim; j += LANES) {
        lanes_get(v, x, row->at + j, row->dim - j, row->mean, dtype);
        for (int half = 0; half < 2; half++) {
            v[half] -= row->mean;
            sum[half] += power == 2 ? v[half] * v[half] : v[half];
        }
    }
    return lanes_sum(sum);
}

/* Tells whether a row's mean is subtracted. */
INLINE int centres(enum norm_kind kind)
{
    return kind == NORM_LAYER || kind == NORM_LAYER_ONE;
}

INLINE void stats_typed(struct row *row, const void *x, enum norm_kind kind, float eps, int32_t dtype)
{
    row->mean = 0.0f;
    if (centres(kind))
        row->mean = sum_powers(row, x, 1, dtype) / (float)row->dim;
    float var = sum_powers(row, x, 2, dtype) / (float)row->dim;
    row->r = 1.0f / sqrtf(var + eps);
}

/* Returns a weight, or 0 if there are no weights; the caller adds `one`. */
INLINE float weight_at(const void *weight, int64_t j, int32_t dtype)
{
    return weight ? row_get(weight, j, dtype) : 0.0f;
}

INLINE void normalise_typed(const struct row *row, void *y, const void *x, const void *weight, const void *bias, float one,
                            int32_t dtype)
{
    const struct row c = *row;
    if (bias) {
#pragma omp simd
        for (int64_t j = 0; j < c.dim; j++)
            row_set(y, c.at + j, dtype,
                    fmaf((row_get(x, c.at + j, dtype) - c.mean) * c.r, one + row_get(weight, j, dtype), row_get(bias, j, dtype)));
    } else {
#pragma omp simd
        for (int64_t j = 0; j < c.dim; j++)
            row_set(y, c.at + j, dtype, (row_get(x, c.at + j, dtype) - c.mean) * c.r * (one + weight_at(weight, j, dtype)));
    }
}

/* Returns the number to be added to weights: 1 or 0. Adding 0 is exact except for -0, and no product differs between 0 and -0. */
INLINE float one_of(const struct norm_shape *s)
{
    return s->kind == NORM_RMS_ONE || s->kind == NORM_LAYER_ONE ? 1.0f : 0.0f;
}

CLONES static void normalise_row(const struct norm_shape *s, int64_t i, void *y, const void *x, const void *weight,
                                 const void *bias)
{
    const int64_t n = s->dim / s->segments, step = n * dtype_size((enum dtype)s->dtype);
    for (int64_t k = 0; k < s->segments; k++) {
        struct row row = {.at = i * s->dim + k * n, .dim = n};
        FOR_DTYPE(s->dtype, stats_typed, &row, x, s->kind, s->eps);
        if (weight)
            FOR_DTYPE(s->dtype, normalise_typed, &row, y, x, (const char *)weight + k * step,
                      bias ? (const char *)bias + k * step : NULL, one_of(s));
        else
            FOR_DTYPE(s->dtype, normalise_typed, &row, y, x, NULL, NULL, 1.0f);
    }
}

void ops_norm(const struct norm_shape *s, void *y, const void *x, const void *weight, const void *bias)
{
    if (s->kind == NORM_NONE) {
        ops_copy(y, x, s->rows * s->dim * dtype_size((enum dtype)s->dtype));
        return;
    }
#pragma omp parallel for schedule(static) if (s->rows * s->dim > ROWS_SERIAL)
    for (int64_t i = 0; i < s->rows; i++)
        normalise_row(s, i, y, x, weight, bias);
}

/* Computes over a row *sum_g = sum of g and *sum_gx = sum of g * xhat, with g = dy * weight. */
INLINE void sum_products(const struct row *row, float *sum_g, float *sum_gx, const void *x, const void *weight, const float *dy,
                         float one, int32_t dtype)
{
    f32x8 a[2] = {{0}}, b[2] = {{0}}, vx[2], vw[2] = {{0}}, vd[2];
    for (int64_t j = 0; j < row->dim; j += LANES) {
        lanes_get(vx, x, row->at + j, row->dim - j, row->mean, dtype);
        if (weight)
            lanes_get(vw, weight, j, row->dim - j, 0.0f, dtype);
        lanes_get(vd, dy, row->at + j, row->dim - j, 0.0f, F32);
        for (int half = 0; half < 2; half++) {
            f32x8 g = vd[half] * (vw[half] + one);
            a[half] += g;
            b[half] += g * ((vx[half] - row->mean) * row->r);
        }
    }
    *sum_g = lanes_sum(a);
    *sum_gx = lanes_sum(b);
}

/* Adds the gradient of a row to dx. */
INLINE void grad_typed(const struct row *row, void *dx, const void *x, const void *weight, const float *dy, enum norm_kind kind,
                       float one, int32_t dtype)
{
    const struct row c = *row;
    float sum_g, sum_gx;
    sum_products(row, &sum_g, &sum_gx, x, weight, dy, one, dtype);
    const float mean_g = centres(kind) ? sum_g / (float)c.dim : 0.0f, mean_gx = sum_gx / (float)c.dim;
#pragma omp simd
    for (int64_t j = 0; j < c.dim; j++) {
        float g = dy[c.at + j] * (one + weight_at(weight, j, dtype)), xhat = (row_get(x, c.at + j, dtype) - c.mean) * c.r;
        row_set(dx, c.at + j, dtype, row_get(dx, c.at + j, dtype) + c.r * (fmaf(-xhat, mean_gx, g) - mean_g));
    }
}

INLINE void columns_typed(const struct row *row, float *dw, float *db, const void *x, const float *dy, int32_t dtype)
{
    const struct row c = *row;
#pragma omp simd
    for (int64_t j = 0; j < c.dim; j++) {
        dw[j] = fmaf(dy[c.at + j], (row_get(x, c.at + j, dtype) - c.mean) * c.r, dw[j]);
        db[j] += dy[c.at + j];
    }
}

/* Adds the gradients of a group's rows to dx, and computes its column sums dw[dim], db[dim] unless they are NULL. */
CLONES static void grad_group(const struct norm_shape *s, void *dx, const void *x, const void *weight, const float *dy, float *dw,
                              float *db, int64_t i0)
{
    if (dw) {
        memset(dw, 0, (size_t)s->dim * sizeof *dw);
        memset(db, 0, (size_t)s->dim * sizeof *db);
    }
    const int64_t n = s->dim / s->segments, step = n * dtype_size((enum dtype)s->dtype);
    for (int64_t i = i0; i < min_i64(i0 + ROW_GROUP, s->rows); i++)
        for (int64_t k = 0; k < s->segments; k++) {
            struct row row = {.at = i * s->dim + k * n, .dim = n};
            FOR_DTYPE(s->dtype, stats_typed, &row, x, s->kind, s->eps);
            if (weight)
                FOR_DTYPE(s->dtype, grad_typed, &row, dx, x, (const char *)weight + k * step, dy, s->kind, one_of(s));
            else
                FOR_DTYPE(s->dtype, grad_typed, &row, dx, x, NULL, dy, s->kind, 1.0f);
            if (dw)
                FOR_DTYPE(s->dtype, columns_typed, &row, dw + k * n, db + k * n, x, dy);
        }
}

/* Computes out[j0 .. j0 + n) (+)= the groups' sums, in order, in fp64, since a long sequence has many groups. */
static void add_groups(float *out, const float *sums, int64_t stride, int64_t groups, int64_t j0, int64_t n, int accumulate)
{
    double total[PANEL] = {0};
    for (int64_t g = 0; g < groups; g++)
        for (int64_t j = 0; j < n; j++)
            total[j] += (double)sums[g * stride + j0 + j];
    for (int64_t j = 0; j < n; j++)
        out[j0 + j] = accumulate ? out[j0 + j] + (float)total[j] : (float)total[j];
}

int64_t ops_norm_grad_workspace(const struct norm_shape *s)
{
    if (s->kind == NORM_NONE)
        return 0;
    return ceil_div(s->rows, ROW_GROUP) * 2 * s->dim * (int64_t)sizeof(float);
}

void ops_norm_grad(const struct norm_shape *s, void *dx, const void *x, const void *weight, const float *dy, float *dweight,
                   float *dbias, float *work)
{
    if (s->kind == NORM_NONE) {
        ops_add(dx, dx, dy, NULL, 1.0f, s->rows, s->dim, s->dtype);
        return;
    }
    int64_t groups = ceil_div(s->rows, ROW_GROUP);
    int columns = dweight || dbias;
#pragma omp parallel if (s->rows * s->dim > ROWS_SERIAL)
    {
#pragma omp for schedule(static)
        for (int64_t g = 0; g < groups; g++) {
            float *dw = columns ? work + 2 * g * s->dim : NULL;
            grad_group(s, dx, x, weight, dy, dw, columns ? dw + s->dim : NULL, g * ROW_GROUP);
        }
#pragma omp for schedule(static)
        for (int64_t j = 0; j < (columns ? s->dim : 0); j += PANEL) {
            int64_t n = min_i64(PANEL, s->dim - j);
            if (dweight)
                add_groups(dweight, work, 2 * s->dim, groups, j, n, s->accumulate);
            if (dbias)
                add_groups(dbias, work + s->dim, 2 * s->dim, groups, j, n, s->accumulate);
        }
    }
}

struct norm_shape norm_shape_of(const struct op_attrs *a)
{
    return (struct norm_shape){.rows = a->norm.rows,
                               .dim = a->norm.dim,
                               .eps = a->norm.eps,
                               .kind = (enum norm_kind)a->norm.kind,
                               .dtype = a->norm.dtype,
                               .accumulate = a->norm.accumulate,
                               .segments = max_i64(a->norm.segments, 1)};
}

enum status ops_cpu_norm(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    struct norm_shape s = norm_shape_of(a);
    ops_norm(&s, arg[0], arg[1], arg[2], arg[3]);
    return OK;
}

enum status ops_cpu_norm_grad(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    struct norm_shape s = norm_shape_of(a);
    ops_norm_grad(&s, arg[0], arg[1], arg[2], arg[3], arg[4], arg[5], arg[6]);
    return OK;
}
