/* Gradients of one head's chunk of rows. */
#include "recurrence/chunk_grad.h"

#include "ops/simd.h"

void chunk_values_gradient(const struct scan *s, const struct gates *g, const struct key_head *kh, const float *dstate,
                           const struct grad_room *x)
{
    pack_right(s->tile, x->f.right, dstate, s->value, s->a->scan.key_dim, s->value);
    multiply(s->tile, WHOLE, g->c, s->value, s->a->scan.key_dim, kh->k_out, x->f.right, x->dz, s->value, 0);
    rows_scale(x->dz, x->dz, g->leave, g->c, s->value);
    elements_multiply(x->dr, kh->qk, x->f.r, g->c * CHUNK);
    pack_left_across(s->tile, x->f.left, x->dr, CHUNK, g->c, g->c);
    pack_right(s->tile, x->f.right, x->d_out, s->value, g->c, s->value);
    multiply(s->tile, LEFT_UPPER, g->c, s->value, g->c, x->f.left, x->f.right, x->dz, s->value, 1);
    if (is_delta(s))
        solve_upper(s->tile, x->f.system, x->dz, g->c, s->value, x->f.left, x->f.right);
}

/* Computes dk = r y, and what it gives to sums of g. */
static void leaving_keys(const struct scan *s, const struct gates *g, const struct key_head *kh, const struct grad_head *h,
                         const struct grad_room *x, struct gate_gradients *d)
{
    const int64_t wide = s->key, last = (g->c - 1) * wide;
    if (has_channels(s)) {
        memset(h->dk, 0, (size_t)(g->c * wide) * sizeof *h->dk);
        channels_add(s, g->c, NULL, kh->channels.leave, x->y, h->dk, kh->k, x->dsum, -1.0f);
        for (int64_t i = 0; i < g->c; i++)
            for (int64_t j = 0; j < wide; j++)
                x->dsum[last + j] += h->dk[i * wide + j] * kh->k[i * wide + j];
        return;
    }
    rows_scale(h->dk, x->y, g->leave, g->c, wide);
    for (int64_t i = 0; i < g->c; i++) {
        const float part = rows_dot(h->dk + i * wide, kh->k + i * wide, s->a->scan.key_dim);
        d->sum[i] -= part;
        d->sum[g->c - 1] += part;
    }
}

/* Computes dq = f y, and what it gives to sums of g. */
static void entering_queries(const struct scan *s, const struct gates *g, const struct key_head *kh, const struct grad_head *h,
                             const struct grad_room *x, struct gate_gradients *d)
{
    const int64_t wide = s->key;
    if (has_channels(s)) {
        memset(h->dq, 0, (size_t)(g->c * wide) * sizeof *h->dq);
        channels_add(s, g->c, NULL, kh->channels.enter, x->y, h->dq, kh->q, x->dsum, 1.0f);
        return;
    }
    rows_scale(h->dq, x->y, g->enter, g->c, wide);
    for (int64_t i = 0; i < g->c; i++)
        d->sum[i] += rows_dot(h->dq + i * wide, kh->q + i * wide, s->a->scan.key_dim);
}

/* Adds -beta f y to dk, and what it gives to sums of g. */
static void entering_keys(const struct scan *s, const struct gates *g, const struct key_head *kh, const struct grad_head *h,
                          const struct grad_room *x, struct gate_gradients *d)
{
    const int64_t wide = s->key, k = s->a->scan.key_dim;
    float factor[CHUNK];
    for (int64_t i = 0; i < g->c; i++)
        factor[i] = -g->beta[i] * g->enter[i];
    if (has_channels(s)) {
        channels_add(s, g->c, factor, kh->channels.enter, x->y, h->dk, kh->k, x->dsum, 1.0f);
        return;
    }
    for (int64_t i = 0; i < g->c; i++) {
        if (factor[i] == 0.0f)
            continue;
        d->sum[i] += factor[i] * rows_dot(x->y + i * wide, kh->k + i * wide, k);
        elements_add(h->dk + i * wide, factor[i], x->y + i * wide, k);
    }
}

void chunk_states_gradient(const struct scan *s, const struct gates *g, const struct key_head *kh, const float *state,
                           const struct grad_head *h, const struct grad_room *x, struct gate_gradients *d)
{
    const int64_t k = s->a->scan.key_dim, v = s->a->scan.value_dim, wide = s->key;
    pack_left(s->tile, x->f.left, x->f.z, s->value, g->c, v);
    pack_right_across(s->tile, x->f.right, h->dstate, s->value, k, v);
    multiply(s->tile, WHOLE, g->c, k, v, x->f.left, x->f.right, x->y, wide, 0);
    leaving_keys(s, g, kh, h, x, d);
    pack_right_across(s->tile, x->f.right, state, s->value, k, v);
    pack_left(s->tile, x->f.left, x->d_out, s->value, g->c, v);
    multiply(s->tile, WHOLE, g->c, k, v, x->f.left, x->f.right, x->y, wide, 0);
    entering_queries(s, g, kh, h, x, d);
    if (!is_delta(s))
        return;
    pack_left(s->tile, x->f.left, x->dz, s->value, g->c, v);
    multiply(s->tile, WHOLE, g->c, k, v, x->f.left, x->f.right, x->y, wide, 0);
    entering_keys(s, g, kh, h, x, d);
}

/* A row of the chunk's pairs: its weights, and the sums that pairs add to. */
struct pair_row {
    const float *decays, *weights, *products; /* L; KK' L or none; KK' or QK' */
    float *d;                                 /* gradients of the weights; become those of the products */
    float *column;                            /* [CHUNK]: minus the gradients of sums of g, by the pair's second row */
    float part[CHUNK], own[CHUNK];            /* each pair's addition to the first row's sum of g, and to its beta */
};

/* Handles pairs (i, j), j < end, of one row, whose gradients are `factor` times d. */
CLONES static void pair_row_gradient(struct pair_row *p, float factor, float sign, int64_t end, int64_t c)
{
    memset(p->part, 0, sizeof p->part);
    memset(p->own, 0, sizeof p->own);
#pragma omp simd
    for (int64_t j = 0; j < end; j++) {
        const float d = sign * p->d[j], w = factor * d * p->decays[j];
        p->own[j] = d * p->weights[j];
        p->part[j] = w * p->products[j];
        p->column[j] += p->part[j];
        p->d[j] = w;
    }
    for (int64_t j = end; j < c; j++)
        p->d[j] = 0.0f;
}

/* Turns x->da and x->dr, the gradients of pairs' weights, into those of the products KK' and QK'. */
static void pairs_gradient(const struct scan *s, const struct gates *g, const struct key_head *kh, const struct grad_room *x,
                           struct gate_gradients *d)
{
    float column[CHUNK] = {0};
    struct pair_row p = {.column = column};
    for (int64_t i = 0; i < g->c; i++) {
        const int64_t at = i * CHUNK;
        p.decays = p.weights = x->f.r + at;
        p.products = kh->qk + at;
        p.d = x->dr + at;
        pair_row_gradient(&p, 1.0f, 1.0f, i + 1, g->c);
        d->sum[i] += rows_sum(p.part, CHUNK);
        if (!is_delta(s))
            continue;
        p.weights = x->f.a + at;
        p.products = kh->kk + at;
        p.d = x->da + at;
        pair_row_gradient(&p, g->beta[i], -1.0f, i, g->c);
        d->sum[i] += rows_sum(p.part, CHUNK);
        d->beta[i] += rows_sum(p.own, CHUNK);
    }
    for (int64_t i = 0; i < g->c; i++)
        d->sum[i] -= column[i];
}

/* Turns x->da and x->dr into the gradients of KK' L and QK' L, and adds to dk, dq and the channels' sums what they give. */
static void channels_gradient(const struct scan *s, const struct gates *g, const struct key_head *kh, const struct grad_head *h,
                              const struct grad_room *x, struct gate_gradients *d)
{
    const struct pair_gradients p = {.d_kk = x->da,
                                     .d_qk = x->dr,
                                     .dk = h->dk,
                                     .dq = h->dq,
                                     .dsum = x->dsum,
                                     .k_rows = x->k_rows,
                                     .q_rows = x->q_rows,
                                     .k_columns = x->k_columns,
                                     .y = x->y,
                                     .left = x->f.left,
                                     .right = x->f.right};
    for (int64_t i = 0; i < g->c; i++)
        for (int64_t j = 0; j < g->c; j++) {
            const int64_t at = i * CHUNK + j;
            const int own = j < i && x->f.r[at] != 0.0f;
            d->beta[i] -= own ? x->da[at] * x->f.a[at] : 0;
            x->da[at] = own ? -g->beta[i] * x->da[at] : 0;
            x->dr[at] = x->f.r[at] != 0.0f ? x->dr[at] : 0;
        }
    channels_pairs_gradient(s, g, kh, &p);
}

void chunk_products_gradient(const struct scan *s, const struct gates *g, const struct key_head *kh, const struct grad_head *h,
                             const struct grad_room *x, struct gate_gradients *d)
{
    const int64_t v = s->a->scan.value_dim, c = g->c;
    pack_right_across(s->tile, x->f.right, x->f.z, s->value, c, v);
    pack_left(s->tile, x->f.left, x->d_out, s->value, c, v);
    multiply(s->tile, WHOLE, c, c, v, x->f.left, x->f.right, x->dr, CHUNK, 0);
    if (is_delta(s)) {
        pack_left(s->tile, x->f.left, x->dz, s->value, c, v);
        multiply(s->tile, WHOLE, c, c, v, x->f.left, x->f.right, x->da, CHUNK, 0);
    }
    if (has_channels(s)) {
        channels_gradient(s, g, kh, h, x, d);
        return;
    }
    pairs_gradient(s, g, kh, x, d);
    pack_left(s->tile, x->f.left, x->dr, CHUNK, c, c);
    multiply(s->tile, LEFT_LOWER, c, s->key, c, x->f.left, kh->k_right, h->dq, s->key, 1);
    pack_left_across(s->tile, x->f.left, x->dr, CHUNK, c, c);
    multiply(s->tile, LEFT_UPPER, c, s->key, c, x->f.left, kh->q_right, h->dk, s->key, 1);
    if (!is_delta(s))
        return;
    for (int64_t i = 0; i < c; i++)
        for (int64_t j = i + 1; j < c; j++)
            x->da[i * CHUNK + j] = x->da[j * CHUNK + i];
    pack_left(s->tile, x->f.left, x->da, CHUNK, c, c);
    multiply(s->tile, WHOLE, c, s->key, c, x->f.left, kh->k_right, h->dk, s->key, 1);
}

void chunk_state_gradient(const struct scan *s, const struct gates *g, const struct key_head *kh, const struct grad_head *h,
                          const struct grad_room *x)
{
    const int64_t k = s->a->scan.key_dim;
    float factor[CHUNK];
    state_keep(s, g, kh, h->dstate);
    rows_scale(x->scaled, x->d_out, g->enter, g->c, s->value);
    pack_right(s->tile, x->f.right, x->scaled, s->value, g->c, s->value);
    multiply(s->tile, WHOLE, k, s->value, g->c, kh->q_across, x->f.right, h->dstate, s->value, 1);
    if (!is_delta(s))
        return;
    for (int64_t i = 0; i < g->c; i++)
        factor[i] = -g->beta[i] * g->enter[i];
    rows_scale(x->scaled, x->dz, factor, g->c, s->value);
    pack_right(s->tile, x->f.right, x->scaled, s->value, g->c, s->value);
    multiply(s->tile, WHOLE, k, s->value, g->c, kh->k_in, x->f.right, h->dstate, s->value, 1);
}

void chunk_keep_gradient(const struct scan *s, const struct gates *g, const struct key_head *kh, const struct grad_head *h,
                         const float *state, const struct grad_room *x, struct gate_gradients *d)
{
    if (g->keep == 0.0f)
        return;
    if (!has_channels(s)) {
        d->sum[g->c - 1] += g->keep * rows_dot(h->dstate, state, state_floats(s));
        return;
    }
    for (int64_t j = 0; j < s->a->scan.key_dim; j++)
        x->dsum[(g->c - 1) * s->key + j] +=
            kh->channels.keep[j] * rows_dot(h->dstate + j * s->value, state + j * s->value, s->value);
}
