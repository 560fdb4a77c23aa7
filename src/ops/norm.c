/* Normalisation of rows, forward and backward. */
#include "ops/norm.h"

#include "ops/rows.h"
#include "ops/simd.h"

#include <math.h>

enum {
    PANEL = 128,    /* columns that one task of a column sum owns */
    ROW_GROUP = 64, /* rows summed before their sum is added to the total: keeps rounding small for long chunks */
};

/* acc[j % 16] += (x[j] - mean) ^ power */
CLONES static void add_powers(float acc[LANES], const float *x, int64_t n, float mean, int power)
{
    lanes_f32 a, v, m;
    memcpy(&a, acc, sizeof a);
    for (int l = 0; l < LANES; l++)
        m[l] = mean;
    for (int64_t j = 0; j < n; j += LANES) {
        int64_t left = min_i64(n - j, LANES);
        if (left == LANES) {
            memcpy(&v, x + j, sizeof v);
        } else {
            v = m;
            memcpy(&v, x + j, (size_t)left * sizeof *x);
        }
        v -= m;
        a += power == 2 ? v * v : v;
    }
    memcpy(acc, &a, sizeof a);
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
        SIMD
        for (int64_t j = 0; j < n; j++)
            y[j] = fmaf((x[j] - mean) * r, weight[j], bias[j]);
    } else {
        SIMD
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
    lanes_f32 a, b, vx, vw, vd;
    memcpy(&a, sum_g, sizeof a);
    memcpy(&b, sum_gx, sizeof b);
    for (int64_t j = 0; j < n; j += LANES) {
        size_t bytes = (size_t)min_i64(n - j, LANES) * sizeof *x;
        if (bytes < sizeof vx) {
            memset(&vx, 0, sizeof vx);
            memset(&vw, 0, sizeof vw);
            memset(&vd, 0, sizeof vd);
            memcpy(&vx, x + j, bytes);
            memcpy(&vw, weight + j, bytes);
            memcpy(&vd, dy + j, bytes);
        } else {
            memcpy(&vx, x + j, sizeof vx);
            memcpy(&vw, weight + j, sizeof vw);
            memcpy(&vd, dy + j, sizeof vd);
        }
        lanes_f32 g = vd * vw;
        a += g;
        b += g * ((vx - mean) * r);
    }
    memcpy(sum_g, &a, sizeof a);
    memcpy(sum_gx, &b, sizeof b);
}

CLONES static void add_dx(float *dx, const float *x, const float *weight, const float *dy, int64_t n, float mean, float r, float mean_g,
                          float mean_gx)
{
    SIMD
    for (int64_t j = 0; j < n; j++) {
        float g = dy[j] * weight[j];
        dx[j] += r * (fmaf(-((x[j] - mean) * r), mean_gx, g) - mean_g);
    }
}

static void grad_row(const struct norm_shape *s, void *dx, const void *x, const void *weight, const float *dy, int64_t i, float mean, float r)
{
    float bx[ROWS_BLOCK], bw[ROWS_BLOCK], bd[ROWS_BLOCK], sum_g[LANES] = {0}, sum_gx[LANES] = {0};
    for (int64_t j = 0; j < s->dim; j += ROWS_BLOCK) {
        int64_t n = min_i64(ROWS_BLOCK, s->dim - j), at = i * s->dim + j;
        add_products(sum_g, sum_gx, rows_read(x, at, n, s->dtype, bx), rows_read(weight, j, n, s->dtype, bw), dy + at, n, mean, r);
    }
    float mean_g = s->kind == NORM_LAYER ? lanes_sum(sum_g) / (float)s->dim : 0.0f;
    float mean_gx = lanes_sum(sum_gx) / (float)s->dim;
    for (int64_t j = 0; j < s->dim; j += ROWS_BLOCK) {
        int64_t n = min_i64(ROWS_BLOCK, s->dim - j), at = i * s->dim + j;
        float *out = rows_target(dx, at, s->dtype, bd);
        rows_read(dx, at, n, s->dtype, bd);
        add_dx(out, rows_read(x, at, n, s->dtype, bx), rows_read(weight, j, n, s->dtype, bw), dy + at, n, mean, r, mean_g, mean_gx);
        rows_write(dx, at, n, s->dtype, out);
    }
}

CLONES static void add_columns(float *dw, float *db, const float *x, const float *dy, int64_t n, float mean, float r)
{
    SIMD
    for (int64_t j = 0; j < n; j++) {
        dw[j] = fmaf(dy[j], (x[j] - mean) * r, dw[j]);
        db[j] += dy[j];
    }
}

static void put_columns(float *out, const float *sum, int64_t n, int accumulate)
{
    for (int64_t j = 0; out && j < n; j++)
        out[j] = accumulate ? out[j] + sum[j] : sum[j];
}

/* Columns [j0, j0 + n) of dweight and dbias. */
static void grad_panel(const struct norm_shape *s, const void *x, const float *dy, float *dweight, float *dbias, const float *stats,
                       int64_t j0, int64_t n)
{
    float buf[PANEL], dw[PANEL] = {0}, db[PANEL] = {0};
    for (int64_t i0 = 0; i0 < s->rows; i0 += ROW_GROUP) {
        float gw[PANEL] = {0}, gb[PANEL] = {0};
        for (int64_t i = i0; i < min_i64(i0 + ROW_GROUP, s->rows); i++) {
            int64_t at = i * s->dim + j0;
            add_columns(gw, gb, rows_read(x, at, n, s->dtype, buf), dy + at, n, stats[2 * i], stats[2 * i + 1]);
        }
        for (int64_t j = 0; j < n; j++) {
            dw[j] += gw[j];
            db[j] += gb[j];
        }
    }
    put_columns(dweight ? dweight + j0 : NULL, dw, n, s->accumulate);
    put_columns(dbias ? dbias + j0 : NULL, db, n, s->accumulate);
}

int64_t ops_norm_grad_workspace(const struct norm_shape *s)
{
    return s->rows * 2 * (int64_t)sizeof(float); /* mean and r of every row */
}

void ops_norm_grad(const struct norm_shape *s, void *dx, const void *x, const void *weight, const float *dy, float *dweight, float *dbias,
                   float *work)
{
    int columns = dweight || dbias;
#pragma omp parallel if (s->rows * s->dim > ROWS_SERIAL)
    {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < s->rows; i++) {
            float mean, r;
            row_stats(s, x, i * s->dim, &mean, &r);
            grad_row(s, dx, x, weight, dy, i, mean, r);
            if (columns) {
                work[2 * i] = mean;
                work[2 * i + 1] = r;
            }
        }
#pragma omp for schedule(static)
        for (int64_t j = 0; j < (columns ? s->dim : 0); j += PANEL)
            grad_panel(s, x, dy, dweight, dbias, work, j, min_i64(PANEL, s->dim - j));
    }
}
