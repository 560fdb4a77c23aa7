/* Attention in fp64: a problem, its solution by definition on one rank, and attention to one block of keys as in a ring step. */
#ifndef TESTS_SEQPAR_PROBLEM_H
#define TESTS_SEQPAR_PROBLEM_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Shapes: q, g (the gradient of o), o, dq [n][H][D]; k, v, dk, dv [n][K][D]; lse [n][H]. */
struct problem {
    int64_t n;
    int H, K, D;
    double scale;
    int32_t *lo;
    double *q, *k, *v, *g, *o, *lse, *dq, *dk, *dv;
};

static inline double *doubles(int64_t n)
{
    double *x = calloc((size_t)n + 1, sizeof *x);
    if (!x)
        abort();
    return x;
}

static inline double uniform(void)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 11) / 4503599627370496.0 - 1.0;
}

static inline double *randoms(int64_t n, double gain)
{
    double *x = doubles(n);
    for (int64_t i = 0; i < n; i++)
        x[i] = gain * uniform();
    return x;
}

static inline double dot(const double *a, const double *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static inline void axpy(double *y, double a, const double *x, int n)
{
    for (int i = 0; i < n; i++)
        y[i] += a * x[i];
}

/* Computes one query's o over keys [from, to] of one head and returns lse. stride: elements between rows of k and v. Without
 * keys: o = 0, lse = -inf. */
static inline double attend(double *o, const double *q, const double *k, const double *v, int64_t from, int64_t to,
                            int64_t stride, int D, double scale)
{
    double max = -INFINITY, sum = 0;
    memset(o, 0, sizeof *o * (size_t)D);
    for (int64_t j = from; j <= to; j++)
        max = fmax(max, scale * dot(q, k + j * stride, D));
    for (int64_t j = from; j <= to; j++) {
        double p = exp(scale * dot(q, k + j * stride, D) - max);
        sum += p;
        axpy(o, p, v + j * stride, D);
    }
    for (int d = 0; d < D && sum > 0; d++)
        o[d] /= sum;
    return sum > 0 ? max + log(sum) : -INFINITY;
}

/* Adds one query's contributions to dq, dk and dv. */
static inline void attend_grad(double *dq, double *dk, double *dv, const double *q, const double *k, const double *v,
                               const double *g, double lse, double delta, int64_t from, int64_t to, int64_t stride, int D,
                               double scale)
{
    for (int64_t j = from; j <= to; j++) {
        double p = exp(scale * dot(q, k + j * stride, D) - lse), ds = scale * p * (dot(g, v + j * stride, D) - delta);
        axpy(dv + j * stride, p, g, D);
        axpy(dq, ds, k + j * stride, D);
        axpy(dk + j * stride, ds, q, D);
    }
}

static inline void problem_create(struct problem *x, int64_t n, int H, int K, int D, double gain)
{
    *x = (struct problem){.n = n, .H = H, .K = K, .D = D, .scale = 1 / sqrt(D)};
    x->q = randoms(n * H * D, gain);
    x->k = randoms(n * K * D, 1);
    x->v = randoms(n * K * D, 1);
    x->g = randoms(n * H * D, 1);
    x->o = doubles(n * H * D);
    x->lse = doubles(n * H);
    x->dq = doubles(n * H * D);
    x->dk = doubles(n * K * D);
    x->dv = doubles(n * K * D);
    x->lo = calloc((size_t)n, sizeof *x->lo);
}

static inline void problem_destroy(struct problem *x)
{
    free(x->q), free(x->k), free(x->v), free(x->g), free(x->o), free(x->lse), free(x->dq), free(x->dk), free(x->dv), free(x->lo);
}

/* Solves the problem on one rank: query q attends keys lo[q] to q. */
static inline void problem_solve(struct problem *x)
{
    int64_t wq = (int64_t)x->H * x->D, wk = (int64_t)x->K * x->D;
    memset(x->dq, 0, sizeof *x->dq * (size_t)(x->n * wq));
    memset(x->dk, 0, sizeof *x->dk * (size_t)(x->n * wk));
    memset(x->dv, 0, sizeof *x->dv * (size_t)(x->n * wk));
    for (int64_t i = 0; i < x->n; i++)
        for (int h = 0; h < x->H; h++) {
            int64_t at = i * wq + h * x->D, kv = h / (x->H / x->K) * x->D;
            double *o = x->o + at, *lse = x->lse + i * x->H + h;
            *lse = attend(o, x->q + at, x->k + kv, x->v + kv, x->lo[i], i, wk, x->D, x->scale);
            attend_grad(x->dq + at, x->dk + kv, x->dv + kv, x->q + at, x->k + kv, x->v + kv, x->g + at, *lse,
                        dot(x->g + at, o, x->D), x->lo[i], i, wk, x->D, x->scale);
        }
}

#endif
