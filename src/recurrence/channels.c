/* SCAN_CHANNELS: chunks whose decays differ among the channels of a key.
 *
 * A pair's weight is the sum of k_i k_j e^(G_i - G_j) over channels, whose factors e^G_i and e^-G_j overflow by themselves. So a chunk is
 * halved: pairs of a row of the right half and one of the left are a product of rows times decays from and to the right half's first
 * row, all at most 1. Blocks of BLOCK rows are added up pair by pair. */
#include "ops/simd.h"
#include "ops/vexp.h"
#include "recurrence/heads.h"

enum { BLOCK = 16 }; /* rows whose pairs are added up one by one */

void channels_layout(const struct scan *s, struct channels *x, float *base, int64_t *at)
{
    x->sum = (double *)(void *)take_floats(base, at, 2 * CHUNK * s->key);
    x->enter = take_floats(base, at, TALL * s->key);
    x->leave = take_floats(base, at, TALL * s->key);
    x->scaled = take_floats(base, at, TALL * s->key);
}

/* --- Decays --- */

/* Computes a row of sums from the row before it; g NULL: nothing is added. */
static void add_row(double *sum, const double *before, const float *g, int64_t n, int64_t wide)
{
    for (int64_t j = 0; j < wide; j++)
        sum[j] = (before ? before[j] : 0) + (g && j < n ? (double)g[j] : 0);
}

/* Computes e^(from - to) of n channels; 0 if the row is not `in` the document. */
CLONES static void decay_row(float *out, const double *from, const double *to, int in, int64_t n)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        const float decay = vexp((float)(from[j] - (to ? to[j] : 0)));
        out[j] = in ? decay : 0.0f;
    }
}

/* Returns the sign with which G_row - G_at is at most 0. */
static double sign_of(int64_t row, int64_t at)
{
    return row < at ? -1 : 1;
}

/* Computes rows [first, last) of x times e^(G_row - G_at), or times e^(G_at - G_row) where the row stands before `at`. */
CLONES static void rows_decayed(float *out, const float *x, const double *sum, int64_t first, int64_t last, int64_t at,
                                int64_t wide)
{
    const double *ref = sum + at * wide;
    for (int64_t i = first; i < last; i++, out += wide) {
        const double *row = sum + i * wide;
        const double sign = sign_of(i, at);
#pragma omp simd
        for (int64_t j = 0; j < wide; j++)
            out[j] = vexp((float)(sign * (row[j] - ref[j]))) * x[i * wide + j];
    }
}

/* Adds rows [first, last) of y, times the same decays, to rows of `to`. */
CLONES static void add_decayed(float *to, const float *y, const double *sum, int64_t first, int64_t last, int64_t at,
                               int64_t wide)
{
    const double *ref = sum + at * wide;
    for (int64_t i = first; i < last; i++, y += wide) {
        const double *row = sum + i * wide;
        const double sign = sign_of(i, at);
#pragma omp simd
        for (int64_t j = 0; j < wide; j++)
            to[i * wide + j] += vexp((float)(sign * (row[j] - ref[j]))) * y[j];
    }
}

static void find_decays(const struct scan *s, int64_t head, const struct channels *x, const struct gates *g, int64_t first)
{
    const int64_t k = s->a->scan.key_dim;
    for (int64_t i = 0; i < g->c; i++) {
        const int follows = i < g->n && s->links[first + i] == ROW_FOLLOWS;
        add_row(x->sum + i * s->key, i > 0 ? x->sum + (i - 1) * s->key : NULL,
                follows ? s->g + ((first + i) * s->a->scan.heads + head) * k : NULL, k, s->key);
        decay_row(x->enter + i * s->key, x->sum + i * s->key, NULL, g->enter[i] != 0.0f, s->key);
    }
    for (int64_t i = 0; i < g->c; i++)
        decay_row(x->leave + i * s->key, x->sum + (g->c - 1) * s->key, x->sum + i * s->key, g->leave[i] != 0.0f, s->key);
}

/* --- Pairs --- */

/* A pair of blocks of rows: [middle, end), and `middle - from` rows before them. */
struct halves {
    int64_t from, middle, end;
};

/* Finds the next halves of a chunk of c rows, small ones first; all zero before the first. Returns 0 behind the last. */
static int next_halves(struct halves *h, int64_t c)
{
    int64_t size = h->middle > 0 ? h->middle - h->from : BLOCK;
    h->from = h->middle > 0 ? h->from + 2 * size : 0;
    for (; h->from + size >= c && size < c; h->from = 0)
        size *= 2;
    h->middle = h->from + size;
    h->end = min_i64(h->middle + size, c);
    return h->middle < c;
}

/* Computes the pairs of both halves' rows. */
static void pairs_of_halves(const struct scan *s, struct key_head *x, const struct halves *h)
{
    const struct channels *d = &x->channels;
    const struct gemm_tile *t = s->tile;
    const int64_t k = s->a->scan.key_dim, rows = h->end - h->middle, cols = h->middle - h->from, at = h->middle * CHUNK + h->from;
    rows_decayed(d->scaled, x->k, d->sum, h->from, h->middle, h->middle, s->key);
    pack_right_across(t, x->k_right, d->scaled, s->key, cols, k);
    rows_decayed(d->scaled, x->k, d->sum, h->middle, h->end, h->middle, s->key);
    pack_left(t, x->k_left, d->scaled, s->key, rows, k);
    multiply(t, WHOLE, rows, cols, k, x->k_left, x->k_right, x->kk + at, CHUNK, 0);
    rows_decayed(d->scaled, x->q, d->sum, h->middle, h->end, h->middle, s->key);
    pack_left(t, x->q_left, d->scaled, s->key, rows, k);
    multiply(t, WHOLE, rows, cols, k, x->q_left, x->k_right, x->qk + at, CHUNK, 0);
}

/* Computes the weights of one pair: the sums over channels of k k' and q k' times the decay. */
CLONES static void pair_weights(const float *k, const float *q, const float *k_before, const double *sum, const double *before,
                                int64_t wide, float out[2])
{
    float kk = 0, qk = 0;
#pragma omp simd reduction(+ : kk, qk)
    for (int64_t j = 0; j < wide; j++) {
        const float w = vexp((float)(sum[j] - before[j])) * k_before[j];
        kk += k[j] * w;
        qk += q[j] * w;
    }
    out[0] = kk;
    out[1] = qk;
}

/* Computes kk and qk: finite above the diagonal and between documents, where chunk_pairs has zeros. */
static void find_pairs(const struct scan *s, struct key_head *x, int64_t c)
{
    const double *sum = x->channels.sum;
    struct halves h = {0, 0, 0};
    memset(x->kk, 0, TALL * CHUNK * sizeof *x->kk);
    memset(x->qk, 0, TALL * CHUNK * sizeof *x->qk);
    while (next_halves(&h, c))
        pairs_of_halves(s, x, &h);
    for (int64_t i = 0; i < c; i++)
        for (int64_t j = i / BLOCK * BLOCK; j <= i; j++) {
            float w[2];
            pair_weights(x->k + i * s->key, x->q + i * s->key, x->k + j * s->key, sum + i * s->key, sum + j * s->key, s->key, w);
            x->kk[i * CHUNK + j] = w[0];
            x->qk[i * CHUNK + j] = w[1];
        }
}

void channels_prepare(const struct scan *s, int64_t head, struct key_head *x, int64_t first, int64_t n, int gradient)
{
    struct channels *d = &x->channels;
    const struct gemm_tile *t = s->tile;
    const int64_t k = s->a->scan.key_dim;
    struct gates g;
    gates_find(s, head, first, n, &g);
    find_decays(s, head, d, &g, first);
    d->keep = d->enter + (g.c - 1) * s->key;
    find_pairs(s, x, g.c);
    elements_multiply(d->scaled, x->q, d->enter, g.c * s->key);
    pack_left(t, x->q_left, d->scaled, s->key, g.c, k);
    if (gradient)
        pack_left_across(t, x->q_across, d->scaled, s->key, g.c, k);
    elements_multiply(d->scaled, x->k, d->enter, g.c * s->key);
    pack_left(t, x->k_left, d->scaled, s->key, g.c, k);
    if (gradient)
        pack_left_across(t, x->k_in, d->scaled, s->key, g.c, k);
    elements_multiply(d->scaled, x->k, d->leave, g.c * s->key);
    pack_left_across(t, x->k_across, d->scaled, s->key, g.c, k);
    if (gradient)
        pack_left(t, x->k_out, d->scaled, s->key, g.c, k);
}

/* --- Gradients --- */

CLONES static void add_row_gradient(float coefficient, const float *factor, const float *y, float *dx, const float *x,
                                    float *dsum, float sign, int64_t n)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        const float part = factor[j] == 0.0f ? 0.0f : coefficient * factor[j] * y[j];
        dx[j] += part;
        dsum[j] += sign * part * x[j];
    }
}

void channels_add(const struct scan *s, int64_t n, const float *coefficient, const float *factor, const float *y, float *dx,
                  const float *x, float *dsum, float sign)
{
    for (int64_t i = 0; i < n; i++)
        add_row_gradient(coefficient ? coefficient[i] : 1.0f, factor + i * s->key, y + i * s->key, dx + i * s->key,
                         x + i * s->key, dsum + i * s->key, sign, s->key);
}

/* Adds what the pairs of one weight, d [rows of the right half][of the left], give to x's rows: `rows` of the right half, and `columns`
 * of the left. k: keys of the left half times decays, packed; x: rows of the right one. */
static void half_gradients(const struct scan *s, const struct key_head *kh, const struct halves *h, const float *d,
                           const float *x, float *rows, const struct pair_gradients *p)
{
    const double *sum = kh->channels.sum;
    const struct gemm_tile *t = s->tile;
    const int64_t m = h->end - h->middle, n = h->middle - h->from;
    d += h->middle * CHUNK + h->from;
    rows_decayed(kh->channels.scaled, kh->k, sum, h->from, h->middle, h->middle, s->key);
    pack_left(t, p->left, d, CHUNK, m, n);
    pack_right(t, p->right, kh->channels.scaled, s->key, n, s->key);
    multiply(t, WHOLE, m, s->key, n, p->left, p->right, p->y, s->key, 0);
    add_decayed(rows, p->y, sum, h->middle, h->end, h->middle, s->key);
    rows_decayed(kh->channels.scaled, x, sum, h->middle, h->end, h->middle, s->key);
    pack_left_across(t, p->left, d, CHUNK, m, n);
    pack_right(t, p->right, kh->channels.scaled, s->key, m, s->key);
    multiply(t, WHOLE, n, s->key, m, p->left, p->right, p->y, s->key, 0);
    add_decayed(p->k_columns, p->y, sum, h->from, h->middle, h->middle, s->key);
}

/* Adds what one pair (i, j) gives, whose weights' gradients are d_kk and d_qk. */
CLONES static void pair_gradient(const struct key_head *kh, const struct pair_gradients *p, int64_t i, int64_t j, float d_kk,
                                 float d_qk, int64_t wide)
{
    const float *k = kh->k + i * wide, *q = kh->q + i * wide, *before = kh->k + j * wide;
    const double *sum = kh->channels.sum + i * wide, *sum_before = kh->channels.sum + j * wide;
    float *k_row = p->k_rows + i * wide, *q_row = p->q_rows + i * wide, *column = p->k_columns + j * wide;
#pragma omp simd
    for (int64_t c = 0; c < wide; c++) {
        const float w = vexp((float)(sum[c] - sum_before[c])), kept = w * before[c];
        k_row[c] += d_kk * kept;
        q_row[c] += d_qk * kept;
        column[c] += w * (d_kk * k[c] + d_qk * q[c]);
    }
}

void channels_pairs_gradient(const struct scan *s, const struct gates *g, const struct key_head *kh,
                             const struct pair_gradients *p)
{
    const size_t bytes = (size_t)(g->c * s->key) * sizeof *p->k_rows;
    struct halves h = {0, 0, 0};
    memset(p->k_rows, 0, bytes);
    memset(p->q_rows, 0, bytes);
    memset(p->k_columns, 0, bytes);
    while (next_halves(&h, g->c)) {
        half_gradients(s, kh, &h, p->d_kk, kh->k, p->k_rows, p);
        half_gradients(s, kh, &h, p->d_qk, kh->q, p->q_rows, p);
    }
    for (int64_t i = 0; i < g->c; i++) {
        const float d = p->d_qk[i * CHUNK + i]; /* a row with itself: no decay */
        for (int64_t j = i / BLOCK * BLOCK; j < i; j++)
            pair_gradient(kh, p, i, j, p->d_kk[i * CHUNK + j], p->d_qk[i * CHUNK + j], s->key);
        elements_add(p->dq + i * s->key, d, kh->k + i * s->key, s->key);
        elements_add(p->dk + i * s->key, d, kh->q + i * s->key, s->key);
    }
    for (int64_t i = 0; i < g->c * s->key; i++) {
        p->dk[i] += p->k_rows[i] + p->k_columns[i];
        p->dq[i] += p->q_rows[i];
        p->dsum[i] += kh->q[i] * p->q_rows[i] + kh->k[i] * (p->k_rows[i] - p->k_columns[i]);
    }
}
