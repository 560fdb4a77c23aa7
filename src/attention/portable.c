/* Attention in plain C: tiles of QT queries by KT keys, row by row. Clear rather than fast: every other kernel is tested against
 * it.
 *
 * Sums run in an order that the sizes alone determine: dot products in 8 interleaved parts, all else key by key or query by
 * query, in fp32 within a tile. Tiles' sums are added in fp64, so that millions of them lose nothing. Backward recomputes each
 * tile twice, once for dq and once for dk and dv, so that every output has one writer. */
#include "attention/kernels.h"
#include "attention/mask.h"

#include <math.h>
#include <omp.h>

#define QT 32
#define KT 64
#define D_MOST 1024

/* Returns the floats of a thread's scratch, for rows of keys and values: four operand tiles, two fp64 accumulators of QT rows,
 * two tiles of scores. */
static int64_t scratch_floats(int64_t d)
{
    return round_up((2 * QT + 2 * KT) * d + 2 * QT * d * 2 + 2 * QT * KT, ATTN_ALIGN / 4);
}

int64_t attn_portable_workspace(enum op_kind kind, const struct op_attrs *attrs, int threads)
{
    (void)kind; /* forward and backward need the same */
    return threads * scratch_floats(op_wider_dim(attrs)) * 4 + ATTN_ALIGN;
}

struct scratch {
    float *q, *o;  /* [QT][d]: queries, and do, which has the width of values */
    float *k, *v;  /* [KT][d] */
    double *a, *b; /* [QT][d] each: accumulators */
    float *p, *s;  /* [QT][KT] */
    const struct cpu_stream *stream;
};

static struct scratch scratch_of(float *base, int64_t d, const struct cpu_stream *stream)
{
    float *f = base + omp_get_thread_num() * scratch_floats(d);
    struct scratch x = {.q = f, .o = f + QT * d, .k = f + 2 * QT * d, .stream = stream};
    x.v = x.k + KT * d;
    x.a = (double *)(void *)(x.v + KT * d);
    x.b = x.a + QT * d;
    x.p = (float *)(void *)(x.b + QT * d);
    x.s = x.p + QT * KT;
    return x;
}

/* Loads rows [row, row + n) of one head of x [rows, heads, d], as fp32 [n][d]. */
static void load_rows(float *out, const void *x, int32_t dtype, int64_t row, int64_t n, int64_t heads, int64_t head, int64_t d)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t at = ((row + i) * heads + head) * d;
        if (dtype == F32)
            memcpy(out + i * d, (const float *)x + at, (size_t)d * 4);
        else
            for (int64_t j = 0; j < d; j++)
                out[i * d + j] = bf16_to_float(((const bf16 *)x)[at + j]);
    }
}

static float dot(const float *x, const float *y, int64_t d)
{
    float sum[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= d; i += 8)
        for (int j = 0; j < 8; j++)
            sum[j] += x[i + j] * y[i + j];
    for (int j = 0; i + j < d; j++)
        sum[j] += x[i + j] * y[i + j];
    return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}

static void add_scaled(float *y, float c, const float *x, int64_t d)
{
    for (int64_t i = 0; i < d; i++)
        y[i] += c * x[i];
}

/* Adds to sum the weighted sum of the rows [from, to) of x [rows][d], whose weights are c[i * stride]. */
static void add_rows(double *sum, const float *c, int64_t stride, const float *x, int64_t from, int64_t to, int64_t d)
{
    float part[D_MOST] = {0};
    for (int64_t i = from; i < to; i++)
        add_scaled(part, c[i * stride], x + i * d, d);
    for (int64_t i = 0; i < d; i++)
        sum[i] += (double)part[i];
}

static void zero(double *x, int64_t n)
{
    memset(x, 0, (size_t)n * sizeof *x);
}

/* Finds the part of keys [k, k + n) that query row q attends, relative to k. */
static void row_span(const struct mask *m, int64_t q, int64_t k, int64_t n, int64_t *from, int64_t *to)
{
    *from = max_i64(mask_from(m, q) - k, 0);
    *to = min_i64(mask_to(m, q) - k, n);
}

/* Returns the score of a query and a key; *slope: derivative of the cap, 1 without one. */
static float score(const struct op_attrs *attrs, const float *q, const float *k, float *slope)
{
    const float s = attrs->attn.scale * dot(q, k, attrs->attn.head_dim), cap = attrs->attn.cap;
    *slope = 1;
    if (cap == 0)
        return s;
    const float t = tanhf(s / cap);
    *slope = 1 - t * t;
    return cap * t;
}

static void forward_tile(const struct op_attrs *attrs, void *const *arg, const struct mask *m, int64_t head, int64_t q,
                         struct scratch *x)
{
    const int64_t d = attrs->attn.head_dim, hq = attrs->attn.hq, hk = attrs->attn.hk, kv = head / (hq / hk);
    const int64_t nq = min_i64(QT, m->sq - q), end = mask_to(m, q + nq - 1), w = op_value_dim(attrs);
    float max[QT];
    double sum[QT];
    for (int64_t i = 0; i < nq; i++)
        max[i] = -INFINITY, sum[i] = 0;
    load_rows(x->q, arg[2], attrs->attn.dtype, q, nq, hq, head, d);
    zero(x->a, nq * w);
    for (int64_t k = mask_from(m, q) / KT * KT; k < end; k += KT) {
        int64_t nk = min_i64(KT, m->sk - k);
        if (cpu_stops(x->stream))
            return;
        load_rows(x->k, arg[3], attrs->attn.dtype, k, nk, hk, kv, d);
        load_rows(x->v, arg[4], attrs->attn.dtype, k, nk, hk, kv, w);
        for (int64_t i = 0; i < nq; i++) {
            int64_t from, to;
            row_span(m, q + i, k, nk, &from, &to);
            if (from >= to)
                continue;
            float top = max[i];
            for (int64_t j = from; j < to; j++) {
                float slope;
                x->s[j] = score(attrs, x->q + i * d, x->k + j * d, &slope);
                top = fmaxf(top, x->s[j]);
            }
            double shrink = exp((double)(max[i] - top));
            for (int64_t c = 0; c < w && shrink != 1; c++)
                x->a[i * w + c] *= shrink;
            sum[i] *= shrink;
            max[i] = top;
            for (int64_t j = from; j < to; j++) {
                x->s[j] = expf(x->s[j] - top);
                sum[i] += (double)x->s[j];
            }
            add_rows(x->a + i * w, x->s, 1, x->v, from, to, w);
        }
    }
    for (int64_t i = 0; i < nq; i++) {
        int64_t at = ((q + i) * hq + head) * w;
        double inv = sum[i] > 0 ? 1 / sum[i] : sum[i]; /* NaN stays NaN */
        ((float *)arg[1])[head * m->sq + q + i] = sum[i] == 0 ? -INFINITY : (float)((double)max[i] + log(sum[i]));
        for (int64_t c = 0; c < w; c++)
            if (attn_o_type(attrs) == F32)
                ((float *)arg[0])[at + c] = (float)(x->a[i * w + c] * inv);
            else
                ((bf16 *)arg[0])[at + c] = bf16_from_float((float)(x->a[i * w + c] * inv));
    }
}

void attn_portable_forward(const struct op_attrs *attrs, void *const *arg, const struct cpu_stream *stream)
{
    const struct mask m = mask_of(attrs, arg[5], arg[6]);
    const int64_t tiles = ceil_div(m.sq, QT), tasks = tiles * attrs->attn.hq;
    float *work = attn_align(arg[7]);
#pragma omp parallel for schedule(dynamic) num_threads(stream->threads)
    for (int64_t t = tasks - 1; t >= 0; t--) { /* in reverse, since under a causal mask the last tiles take longest */
        struct scratch x = scratch_of(work, op_wider_dim(attrs), stream);
        forward_tile(attrs, arg, &m, t % attrs->attn.hq, t / attrs->attn.hq * QT, &x);
    }
}

/* Computes p = exp(score - lse) and s = slope p (do.v - delta) of one tile; zero where masked. */
static void backward_tile(const struct op_attrs *attrs, void *const *arg, const struct mask *m, int64_t head, int64_t q,
                          int64_t nq, int64_t k, int64_t nk, struct scratch *x)
{
    const int64_t d = attrs->attn.head_dim, w = op_value_dim(attrs), hq = attrs->attn.hq;
    const float *lse = (const float *)arg[7] + head * m->sq, *delta = (const float *)arg[6] + head;
    for (int64_t i = 0; i < nq; i++) {
        int64_t from, to;
        row_span(m, q + i, k, nk, &from, &to);
        for (int64_t j = 0; j < nk; j++) {
            float *p = x->p + i * KT + j, *s = x->s + i * KT + j;
            *p = *s = 0;
            if (j < from || j >= to)
                continue;
            float slope;
            *p = expf(score(attrs, x->q + i * d, x->k + j * d, &slope) - lse[q + i]);
            *s = slope * *p * (dot(x->o + i * w, x->v + j * w, w) - delta[(q + i) * hq]);
        }
    }
}

static void backward_queries(const struct op_attrs *attrs, void *const *arg, const struct mask *m, int64_t head, int64_t q,
                             struct scratch *x)
{
    const int64_t d = attrs->attn.head_dim, hq = attrs->attn.hq, hk = attrs->attn.hk, kv = head / (hq / hk);
    const int64_t nq = min_i64(QT, m->sq - q), end = mask_to(m, q + nq - 1), w = op_value_dim(attrs);
    load_rows(x->q, arg[3], attrs->attn.dtype, q, nq, hq, head, d);
    load_rows(x->o, arg[8], attrs->attn.dtype, q, nq, hq, head, w);
    zero(x->a, nq * d);
    for (int64_t k = mask_from(m, q) / KT * KT; k < end; k += KT) {
        int64_t nk = min_i64(KT, m->sk - k);
        if (cpu_stops(x->stream))
            return;
        load_rows(x->k, arg[4], attrs->attn.dtype, k, nk, hk, kv, d);
        load_rows(x->v, arg[5], attrs->attn.dtype, k, nk, hk, kv, w);
        backward_tile(attrs, arg, m, head, q, nq, k, nk, x);
        for (int64_t i = 0; i < nq; i++)
            add_rows(x->a + i * d, x->s + i * KT, 1, x->k, 0, nk, d);
    }
    for (int64_t i = 0; i < nq; i++)
        for (int64_t c = 0; c < d; c++)
            ((float *)arg[0])[((q + i) * hq + head) * d + c] = (float)((double)attrs->attn.scale * x->a[i * d + c]);
}

/* Computes dk and dv of QT keys, the number of rows that the accumulators have. */
static void backward_keys(const struct op_attrs *attrs, void *const *arg, const struct mask *m, int64_t kv, int64_t k,
                          struct scratch *x)
{
    const int64_t d = attrs->attn.head_dim, hq = attrs->attn.hq, hk = attrs->attn.hk, group = hq / hk;
    const int64_t nk = min_i64(QT, m->sk - k), end = mask_end_query(m, k + nk - 1), w = op_value_dim(attrs);
    double *dk = x->a, *dv = x->b;
    load_rows(x->k, arg[4], attrs->attn.dtype, k, nk, hk, kv, d);
    load_rows(x->v, arg[5], attrs->attn.dtype, k, nk, hk, kv, w);
    zero(dk, nk * d);
    zero(dv, nk * w);
    for (int64_t head = kv * group; head < (kv + 1) * group; head++)
        for (int64_t q = mask_first_query(m, k) / QT * QT; q < end; q += QT) {
            int64_t nq = min_i64(QT, m->sq - q);
            if (cpu_stops(x->stream))
                return;
            load_rows(x->q, arg[3], attrs->attn.dtype, q, nq, hq, head, d);
            load_rows(x->o, arg[8], attrs->attn.dtype, q, nq, hq, head, w);
            backward_tile(attrs, arg, m, head, q, nq, k, nk, x);
            for (int64_t j = 0; j < nk; j++) {
                add_rows(dv + j * w, x->p + j, KT, x->o, 0, nq, w);
                add_rows(dk + j * d, x->s + j, KT, x->q, 0, nq, d);
            }
        }
    for (int64_t j = 0; j < nk; j++) {
        float *k_out = (float *)arg[1] + ((k + j) * hk + kv) * d, *v_out = (float *)arg[2] + ((k + j) * hk + kv) * w;
        for (int64_t c = 0; c < d; c++)
            k_out[c] = (attrs->attn.accumulate ? k_out[c] : 0) + attrs->attn.scale * (float)dk[j * d + c];
        for (int64_t c = 0; c < w; c++)
            v_out[c] = (attrs->attn.accumulate ? v_out[c] : 0) + (float)dv[j * w + c];
    }
}

void attn_portable_backward(const struct op_attrs *attrs, void *const *arg, const struct cpu_stream *stream)
{
    const struct mask m = mask_of(attrs, arg[9], arg[10]);
    const int64_t hq = attrs->attn.hq, hk = attrs->attn.hk;
    const int64_t q_tasks = ceil_div(m.sq, QT) * hq, k_tasks = ceil_div(m.sk, QT) * hk;
    float *work = attn_align(arg[11]);
#pragma omp parallel num_threads(stream->threads)
    {
        struct scratch x = scratch_of(work, op_wider_dim(attrs), stream);
#pragma omp for schedule(dynamic) nowait
        for (int64_t t = q_tasks - 1; t >= 0; t--)
            backward_queries(attrs, arg, &m, t % hq, t / hq * QT, &x);
#pragma omp for schedule(dynamic)
        for (int64_t t = 0; t < k_tasks; t++)
            backward_keys(attrs, arg, &m, t % hk, t / hk * QT, &x);
    }
}
