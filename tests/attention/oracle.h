/* Attention by its definition, in fp64, one pair at a time: the oracle of the attention tests. */
#ifndef TEST_ATTENTION_ORACLE_H
#define TEST_ATTENTION_ORACLE_H

#include "attention/attention.h"

#include <math.h>

/* Turns sanitizers off in the oracle, where they would take most of the test's time. */
#define ORACLE __attribute__((no_sanitize("address", "undefined", "thread"))) static inline

/* Inputs and outputs, all row-major fp64 in the layouts of attention.h; dq, dk, dv are written. */
struct oracle {
    double *q, *k, *v, *o, *go, *lse, *dq, *dk, *dv;
    const int32_t *lo, *hi;
    double dq_terms, dk_terms; /* norms of p delta k and p delta q, terms that cancel in dq and dk */
    double *sinks,
        *dsinks; /* [hq]: score of an additional key with value 0 that every query of the head attends; NULL: no sinks */
};

ORACLE int oracle_attends(const struct op_attrs *a, const struct oracle *x, int64_t i, int64_t j)
{
    return x->lo[i] <= a->attn.k0 + j && a->attn.k0 + j <= x->hi[i];
}

ORACLE double oracle_dot(const double *x, const double *y, int64_t n)
{
    double s = 0;
#pragma omp simd reduction(+ : s)
    for (int64_t i = 0; i < n; i++)
        s += x[i] * y[i];
    return s;
}

ORACLE double oracle_score(const struct op_attrs *a, const struct oracle *x, int64_t h, int64_t i, int64_t j)
{
    int64_t d = a->attn.head_dim, kv = h / (a->attn.hq / a->attn.hk);
    double s = a->attn.scale * oracle_dot(x->q + (i * a->attn.hq + h) * d, x->k + (j * a->attn.hk + kv) * d, d),
           cap = a->attn.cap;
    return cap > 0 ? cap * tanh(s / cap) : s;
}

ORACLE void oracle_forward(const struct op_attrs *a, struct oracle *x)
{
    const int64_t w = op_value_dim(a), hq = a->attn.hq, hk = a->attn.hk;
#pragma omp parallel for collapse(2)
    for (int64_t h = 0; h < hq; h++)
        for (int64_t i = 0; i < a->attn.sq; i++) {
            double max = x->sinks ? x->sinks[h] : -INFINITY, sum = x->sinks ? 1 : 0, *o = x->o + (i * hq + h) * w;
            for (int64_t j = 0; j < a->attn.sk; j++)
                if (oracle_attends(a, x, i, j))
                    max = fmax(max, oracle_score(a, x, h, i, j));
            sum *= x->sinks ? exp(x->sinks[h] - max) : 0;
            for (int64_t c = 0; c < w; c++)
                o[c] = 0;
            for (int64_t j = 0; j < a->attn.sk; j++)
                if (oracle_attends(a, x, i, j)) {
                    double p = exp(oracle_score(a, x, h, i, j) - max);
                    sum += p;
                    for (int64_t c = 0; c < w; c++)
                        o[c] += p * x->v[(j * hk + h / (hq / hk)) * w + c];
                }
            for (int64_t c = 0; c < w && sum > 0; c++)
                o[c] /= sum;
            x->lse[h * a->attn.sq + i] = sum > 0 ? max + log(sum) : -INFINITY;
        }
}

/* Computes gradients from the given lse and o, as the kernel does, so that the caller decides about their rounding. */
ORACLE void oracle_backward(const struct op_attrs *a, struct oracle *x)
{
    const int64_t d = a->attn.head_dim, w = op_value_dim(a), hq = a->attn.hq, hk = a->attn.hk, group = hq / hk;
    memset(x->dq, 0, (size_t)(a->attn.sq * hq * d) * 8);
    memset(x->dk, 0, (size_t)(a->attn.sk * hk * d) * 8);
    memset(x->dv, 0, (size_t)(a->attn.sk * hk * w) * 8);
    x->dq_terms = x->dk_terms = 0;
    for (int64_t h = 0; x->sinks && h < hq; h++)
        x->dsinks[h] = 0;
    for (int64_t kv = 0; kv < hk; kv++)
        for (int64_t h = kv * group; h < (kv + 1) * group; h++)
            for (int64_t i = 0; i < a->attn.sq; i++) {
                const double *q = x->q + (i * hq + h) * d, *o = x->o + (i * hq + h) * w, *go = x->go + (i * hq + h) * w;
                double *dq = x->dq + (i * hq + h) * d, delta = oracle_dot(o, go, w);
                if (x->sinks) /* p (do v - delta) with v = 0 */
                    x->dsinks[h] += exp(x->sinks[h] - x->lse[h * a->attn.sq + i]) * (0 - delta);
                for (int64_t j = 0; j < a->attn.sk; j++) {
                    if (!oracle_attends(a, x, i, j))
                        continue;
                    const double *k = x->k + (j * hk + kv) * d, *v = x->v + (j * hk + kv) * w;
                    double *dk = x->dk + (j * hk + kv) * d, *dv = x->dv + (j * hk + kv) * w;
                    double score = oracle_score(a, x, h, i, j), p = exp(score - x->lse[h * a->attn.sq + i]);
                    double turned = a->attn.cap > 0 ? score / a->attn.cap : 0, slope = a->attn.scale * (1 - turned * turned);
                    double ds = slope * p * (oracle_dot(go, v, w) - delta), t = slope * p * delta;
                    x->dq_terms += t * t * oracle_dot(k, k, d);
                    x->dk_terms += t * t * oracle_dot(q, q, d);
                    for (int64_t c = 0; c < w; c++)
                        dv[c] += p * go[c];
                    for (int64_t c = 0; c < d; c++) {
                        dq[c] += ds * k[c];
                        dk[c] += ds * q[c];
                    }
                }
            }
    x->dq_terms = sqrt(x->dq_terms);
    x->dk_terms = sqrt(x->dk_terms);
}

#endif
