/* Normalisation of rows, forward and backward. */
#include "ops/norm.h"

#include "ops/rows.h"
#include "ops/simd.h"

#include <math.h>

enum {
    ROW_GROUP = 32, /* rows whose column sums one task takes, while it computes their dx */
    PANEL = 128,    /* columns that one task adds up over the groups */
};

/* x + j, or, where fewer than LANES elements are left, a copy of them in pad, padded with `fill`. */
static inline const float *lanes_at(const float *x, int64_t j, int64_t n, float fill, float pad[LANES])
{
    if (n - j >= LANES)
        return x + j;
    for (int64_t l = 0; l < LANES; l++)
        pad[l] = j + l < n ? x[j + l] : fill;
    return pad;
}

/* acc[j % 16] += (x[j] - mean) ^ power */
CLONES static void add_powers(float acc[LANES], const float *x, int64_t n, float mean, int power)
{
    float pad[LANES];
    f32x8 a0, a1, v0, v1;
    memcpy(&a0, acc, sizeof a0);
    memcpy(&a1, acc + 8, sizeof a1);
    for (int64_t j = 0; j < n; j += LANES) {
        const float *p = lanes_at(x, j, n, mean, pad);
        memcpy(&v0, p, sizeof v0);
        memcpy(&v1, p + 8, sizeof v1);
        v0 -= mean;
        v1 -= mean;
        a0 += power == 2 ? v0 * v0 : v0;
        a1 += power == 2 ? v1 * v1 : v1;
    }
    memcpy(acc, &a0, sizeof a0);
    memcpy(acc + 8, &a1, sizeof a1);
}

static float row_sum(const struct norm_shape *s, const void *x, int64_t at, float mean, int power)
{
    float buf[ROWS_BLOCK], acc[LANES] = {0};
    for (int64_t j = 0; j < s->dim; j += ROWS_BLOCK) {
        int64_t n = min_i64(ROWS_BLOCK, s->dim - j);
        add_powers(acc, rows_read(x, at + j, n, s->dtype, buf), n, mean, power);
    }
    return lanes_sum(acc);
}

static void row_stats(const struct norm_shape *s, const void *x, int64_t at, float *mean, float *r)
{
    *mean = s->kind == NORM_LAYER ? row_sum(s, x, at, 0.0f, 1) / (float)s->dim : 0.0f;
    float var = row_sum(s, x, at, *mean, 2) / (float)s->dim;
    *r = 1.0f / sqrtf(var + s->eps);
}

CLONES static void normalise(float *y, const float *x, const float *weight, const float *bias, int64_t n, float mean, float r)
{
    if (bias) {
#pragma omp simd
        for (int64_t j = 0; j < n; j++)
            y[j] = fmaf((x[j] - mean) * r, weight[j], bias[j]);
    } else {
#pragma omp simd
        for (int64_t j = 0; j < n; j++)
            y[j] = (x[j] - mean) * r * weight[j];
    }
}

void ops_norm(const struct norm_shape *s, void *y, const void *x, const void *weight, const void *bias)
{
#pragma omp parallel for schedule(static) if (s->rows * s->dim > ROWS_SERIAL)
    for (int64_t i = 0; i < s->rows; i++) {
        float bx[ROWS_BLOCK], bw[ROWS_BLOCK], bb[ROWS_BLOCK], by[ROWS_BLOCK], mean, r;
        row_stats(s, x, i * s->dim, &mean, &r);
        for (int64_t j = 0; j < s->dim; j += ROWS_BLOCK) {
            int64_t n = min_i64(ROWS_BLOCK, s->dim - j), at = i * s->dim + j;
            float *out = rows_target(y, at, s->dtype, by);
            normalise(out, rows_read(x, at, n, s->dtype, bx), rows_read(weight, j, n, s->dtype, bw),
                      bias ? rows_read(bias, j, n, s->dtype, bb) : NULL, n, mean, r);
            rows_write(y, at, n, s->dtype, out);
        }
    }
}

/* sum_g[j % 16] += g[j], sum_gx[j % 16] += g[j] * xhat[j], with g = dy * weight */
CLONES static void add_products(float sum_g[LANES], float sum_gx[LANES], const float *x, const float *weight, const float *dy,
                                int64_t n, float mean, float r)
{
    float px[LANES], pw[LANES], pd[LANES];
    f32x8 a[2], b[2], vx, vw, vd;
    memcpy(a, sum_g, sizeof a);
    memcpy(b, sum_gx, sizeof b);
    for (int64_t j = 0; j < n; j += LANES) {
        const float *xj = lanes_at(x, j, n, mean, px), *wj = lanes_at(weight, j, n, 0.0f, pw), *dj = lanes_at(dy, j, n, 0.0f, pd);
        for (int half = 0; half < 2; half++) {
            memcpy(&vx, xj + 8 * half, sizeof vx);
            memcpy(&vw, wj + 8 * half, sizeof vw);
            memcpy(&vd, dj + 8 * half, sizeof vd);
            f32x8 g = vd * vw;
            a[half] += g;
            b[half] += g * ((vx - mean) * r);
        }
    }
    memcpy(sum_g, a, sizeof a);
    memcpy(sum_gx, b, sizeof b);
}

CLONES static void add_dx(float *dx, const float *x, const float *weight, const float *dy, int64_t n, float mean, float r,
                          float mean_g, float mean_gx)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        float g = dy[j] * weight[j];
        dx[j] += r * (fmaf(-((x[j] - mean) * r), mean_gx, g) - mean_g);
    }
}

static void grad_row(const struct norm_shape *s, void *dx, const void *x, const void *weight, const float *dy, int64_t i,
                     float mean, float r)
{
    float bx[ROWS_BLOCK], bw[ROWS_BLOCK], bd[ROWS_BLOCK], sum_g[LANES] = {0}, sum_gx[LANES] = {0};
    for (int64_t j = 0; j < s->dim; j += ROWS_BLOCK) {
        int64_t n = min_i64(ROWS_BLOCK, s->dim - j), at = i * s->dim + j;
        add_products(sum_g, sum_gx, rows_read(x, at, n, s->dtype, bx), rows_read(weight, j, n, s->dtype, bw), dy + at, n, mean,
                     r);
    }
    float mean_g = s->kind == NORM_LAYER ? lanes_sum(sum_g) / (float)s->dim : 0.0f;
    float mean_gx = lanes_sum(sum_gx) / (float)s->dim;
    for (int64_t j = 0; j < s->dim; j += ROWS_BLOCK) {
        int64_t n = min_i64(ROWS_BLOCK, s->dim - j), at = i * s->dim + j;
        float *out = rows_target(dx, at, s->dtype, bd);
        rows_read(dx, at, n, s->dtype, bd);
        add_dx(out, rows_read(x, at, n, s->dtype, bx), rows_read(weight, j, n, s->dtype, bw), dy + at, n, mean, r, mean_g,
               mean_gx);
        rows_write(dx, at, n, s->dtype, out);
    }
}

CLONES static void add_columns(float *dw, float *db, const float *x, const float *dy, int64_t n, float mean, float r)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        dw[j] = fmaf(dy[j], (x[j] - mean) * r, dw[j]);
        db[j] += dy[j];
    }
}

/* dx of a group's rows, and its column sums dw[dim], db[dim] unless NULL. */
static void grad_group(const struct norm_shape *s, void *dx, const void *x, const void *weight, const float *dy, float *dw,
                       float *db, int64_t i0)
{
    float buf[ROWS_BLOCK];
    if (dw) {
        memset(dw, 0, (size_t)s->dim * sizeof *dw);
        memset(db, 0, (size_t)s->dim * sizeof *db);
    }
    for (int64_t i = i0; i < min_i64(i0 + ROW_GROUP, s->rows); i++) {
        float mean, r;
        row_stats(s, x, i * s->dim, &mean, &r);
        grad_row(s, dx, x, weight, dy, i, mean, r);
        for (int64_t j = 0; dw && j < s->dim; j += ROWS_BLOCK) {
            int64_t n = min_i64(ROWS_BLOCK, s->dim - j), at = i * s->dim + j;
            add_columns(dw + j, db + j, rows_read(x, at, n, s->dtype, buf), dy + at, n, mean, r);
        }
    }
}

/* out[j0 .. j0 + n) (+)= the groups' sums, in order. */
static void add_groups(float *out, const float *sums, int64_t stride, int64_t groups, int64_t j0, int64_t n, int accumulate)
{
    float total[PANEL] = {0};
    for (int64_t g = 0; g < groups; g++)
        for (int64_t j = 0; j < n; j++)
            total[j] += sums[g * stride + j0 + j];
    for (int64_t j = 0; j < n; j++)
        out[j0 + j] = accumulate ? out[j0 + j] + total[j] : total[j];
}

int64_t ops_norm_grad_workspace(const struct norm_shape *s)
{
    return ceil_div(s->rows, ROW_GROUP) * 2 * s->dim * (int64_t)sizeof(float);
}

void ops_norm_grad(const struct norm_shape *s, void *dx, const void *x, const void *weight, const float *dy, float *dweight,
                   float *dbias, float *work)
{
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
