/* The scan's backward pass: the states before all chunks again, then the gradients, chunk after chunk from the last. */
#include "ops/simd.h"
#include "recurrence/heads.h"

#include <omp.h>

/* Memory of a thread for one head's backward pass. */
struct room {
    struct forward_room f;
    float *error, *dz, *d_out, *scaled; /* [TALL][value] */
    float *y;                           /* [TALL][key] */
    float *da, *dr;                     /* [TALL][CHUNK] */
    float *dsum;                        /* [TALL][key]: gradients of the channels' sums of g; SCAN_CHANNELS, as the next three */
    float *k_rows, *q_rows, *k_columns; /* [TALL][key]: struct pair_gradients */
};

/* Gradients of a head: of its state, and of the chunk's keys and queries as it reads them, [TALL][key]. */
struct head {
    float *dstate, *dk, *dq;
    double dskip;
};

/* Scratch of a call; with base NULL, its size. */
struct memory {
    struct scan s;
    struct head *heads;
    float *states, *base;        /* states: [chunks][heads][state_floats], the state before each chunk */
    int64_t rooms, room, floats; /* offset of the threads' rooms; floats of one, and of all */
};

static void room_layout(const struct scan *s, struct room *x, float *base, int64_t *at)
{
    forward_room_layout(s, &x->f, base, at);
    x->error = take_floats(base, at, TALL * s->value);
    x->dz = take_floats(base, at, TALL * s->value);
    x->d_out = take_floats(base, at, TALL * s->value);
    x->scaled = take_floats(base, at, TALL * s->value);
    x->y = take_floats(base, at, TALL * s->key);
    x->da = take_floats(base, at, TALL * CHUNK);
    x->dr = take_floats(base, at, TALL * CHUNK);
    if (!has_channels(s))
        return;
    x->dsum = take_floats(base, at, TALL * s->key);
    x->k_rows = take_floats(base, at, TALL * s->key);
    x->q_rows = take_floats(base, at, TALL * s->key);
    x->k_columns = take_floats(base, at, TALL * s->key);
}

/* Lays out scratch with room for the states before `chunks` chunks. */
static struct memory memory_of(const struct op_attrs *a, int64_t chunks, const struct cpu_stream *stream,
                               const struct gemm_tile *tile, void *work, int threads)
{
    struct memory m = {.s = scan_of(a, stream, tile), .base = work ? floats_align(work) : NULL};
    struct room none;
    struct head no_head;
    key_heads_layout(&m.s, m.base, &m.floats, 1);
    m.heads = (struct head *)(void *)take_floats(m.base, &m.floats, a->scan.heads * (int64_t)(sizeof no_head / sizeof(float)));
    for (int64_t h = 0; h < a->scan.heads; h++) {
        struct head *x = m.heads ? &m.heads[h] : &no_head;
        x->dstate = take_floats(m.base, &m.floats, state_floats(&m.s));
        x->dk = take_floats(m.base, &m.floats, TALL * m.s.key);
        x->dq = take_floats(m.base, &m.floats, TALL * m.s.key);
        x->dskip = 0;
    }
    m.states = take_floats(m.base, &m.floats, chunks * a->scan.heads * state_floats(&m.s));
    m.rooms = m.floats;
    room_layout(&m.s, &none, NULL, &m.room);
    m.floats += threads * m.room;
    return m;
}

int64_t scan_grad_workspace(const struct op_attrs *a, int threads)
{
    return memory_of(a, ceil_div(a->scan.rows, CHUNK), NULL, NULL, NULL, threads).floats * (int64_t)sizeof(float) + FLOATS_ALIGN;
}

static float *state_of(const struct memory *m, int64_t chunk, int64_t head)
{
    return m->states + (chunk * m->s.a->scan.heads + head) * state_floats(&m->s);
}

/* Computes a head's state after the chunk of rows [first, first + n), where the next chunk looks for it. */
static void head_state(const struct memory *m, const struct room *x, int64_t head, int64_t first, int64_t n)
{
    struct gates g;
    const float *before = state_of(m, first / CHUNK, head);
    float *after = state_of(m, first / CHUNK + 1, head);
    gates_find(&m->s, head, first, n, &g);
    chunk_values(&m->s, &g, head, first, before, &x->f, NULL);
    memcpy(after, before, (size_t)state_floats(&m->s) * sizeof *after);
    chunk_state(&m->s, &g, head, after, &x->f);
}

/* Gradients of a chunk's gates: of beta, and of the sums of g. */
struct gate_gradients {
    float beta[CHUNK], sum[CHUNK];
};

/* Computes x->dz, the gradient of Z, from those of the outputs and of the state after the chunk; of delta rules that of beta (V - f K
 * S). */
static void values_gradient(const struct scan *s, const struct gates *g, const struct key_head *kh, const float *dstate,
                            const struct room *x)
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
static void leaving_keys(const struct scan *s, const struct gates *g, const struct key_head *kh, const struct head *h,
                         const struct room *x, struct gate_gradients *d)
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
static void entering_queries(const struct scan *s, const struct gates *g, const struct key_head *kh, const struct head *h,
                             const struct room *x, struct gate_gradients *d)
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
static void entering_keys(const struct scan *s, const struct gates *g, const struct key_head *kh, const struct head *h,
                          const struct room *x, struct gate_gradients *d)
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

/* Computes the parts of dk and dq that come from the states: dk = r Z dS' - beta f dZ S', dq = f dO S'. */
static void states_gradient(const struct scan *s, const struct gates *g, const struct key_head *kh, const float *state,
                            const struct head *h, const struct room *x, struct gate_gradients *d)
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
static void pairs_gradient(const struct scan *s, const struct gates *g, const struct key_head *kh, const struct room *x,
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
static void channels_gradient(const struct scan *s, const struct gates *g, const struct key_head *kh, const struct head *h,
                              const struct room *x, struct gate_gradients *d)
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

/* Adds to dk and dq what comes from pairs of the chunk's rows. */
static void products_gradient(const struct scan *s, const struct gates *g, const struct key_head *kh, const struct head *h,
                              const struct room *x, struct gate_gradients *d)
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

/* Computes the gradient of the state after the chunk that of the state before. */
static void state_gradient(const struct scan *s, const struct gates *g, const struct key_head *kh, const struct head *h,
                           const struct room *x)
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

/* Writes the gradients of g from those of its sums, [rows][1 or the key's channels]. */
static void write_sums(const struct scan *s, const struct gates *g, int64_t head, int64_t first, const float *dsum, float *dg)
{
    const int64_t n = has_channels(s) ? s->a->scan.key_dim : 1, wide = has_channels(s) ? s->key : 1;
    for (int64_t j = 0; j < n; j++) {
        double sum = 0;
        for (int64_t i = g->c - 1; i >= 0; i--) {
            const int32_t link = i < g->n ? s->links[first + i] : ROW_NONE;
            sum += (double)dsum[i * wide + j];
            if (i < g->n)
                dg[((first + i) * s->a->scan.heads + head) * n + j] = link == ROW_FOLLOWS ? (float)sum : 0.0f;
            if (link == ROW_BEGINS)
                sum = 0;
        }
    }
}

/* Adds what the state's own decay gives to the sums of g at the chunk's end. */
static void keep_gradient(const struct scan *s, const struct gates *g, const struct key_head *kh, const struct head *h,
                          const float *state, const struct room *x, struct gate_gradients *d)
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

/* Writes the gradients of v, beta and g of a head's rows. */
static void write_rows(const struct memory *m, const struct gates *g, int64_t head, int64_t first, const struct room *x,
                       struct gate_gradients *d, void *const *arg)
{
    const struct scan *s = &m->s;
    const int64_t v = s->a->scan.value_dim, heads = s->a->scan.heads;
    const float *of_beta = is_delta(s) ? x->error : x->f.v;
    for (int64_t i = 0; i < g->c; i++)
        d->beta[i] += rows_dot(x->dz + i * s->value, of_beta + i * s->value, s->value);
    rows_scale(x->dz, x->dz, g->beta, g->c, s->value);
    if (s->skip) {
        elements_add(x->dz, row_get(s->skip, head, s->a->scan.dtype), x->d_out, g->c * s->value);
        for (int64_t i = 0; i < g->c; i++)
            m->heads[head].dskip += (double)rows_dot(x->d_out + i * s->value, x->f.v + i * s->value, s->value);
    }
    rows_store(s, arg[0], s->a->scan.ld, s->a->scan.v_first + head * v, v, first, g->n, x->dz, s->value);
    for (int64_t i = 0; i < g->n; i++)
        ((float *)arg[2])[(first + i) * heads + head] = s->links[first + i] == ROW_NONE ? 0.0f : d->beta[i];
    write_sums(s, g, head, first, has_channels(s) ? x->dsum : d->sum, arg[1]);
}

static void head_gradient(const struct memory *m, const struct room *x, int64_t head, int64_t first, int64_t n, void *const *arg)
{
    const struct scan *s = &m->s;
    const struct key_head *kh = key_head_of(s, head);
    const struct head *h = &m->heads[head];
    const float *state = state_of(m, first / CHUNK, head);
    const int64_t v = s->a->scan.value_dim;
    struct gates g;
    struct gate_gradients d = {0};
    gates_find(s, head, first, n, &g);
    if (has_channels(s))
        memset(x->dsum, 0, (size_t)(TALL * s->key) * sizeof *x->dsum);
    chunk_values(s, &g, head, first, state, &x->f, x->error);
    rows_load(s, x->d_out, s->value, arg[5], s->a->scan.heads * v, head * v, v, first, n);
    values_gradient(s, &g, kh, h->dstate, x);
    states_gradient(s, &g, kh, state, h, x, &d);
    products_gradient(s, &g, kh, h, x, &d);
    keep_gradient(s, &g, kh, h, state, x, &d);
    state_gradient(s, &g, kh, h, x);
    write_rows(m, &g, head, first, x, &d, arg);
}

/* Writes the gradients of rows of q or k, which `heads` heads from `head` on read: x, made by factors norm, and sum, their gradient. */
static void write_keys(const struct memory *m, void *qkv, int64_t column, const float *x, const float *norm, float scale,
                       float *sum, int64_t first, int64_t n)
{
    const struct scan *s = &m->s;
    for (int64_t i = 0; i < n; i++) {
        float *to = sum + i * s->key;
        if (s->a->scan.eps > 0)
            elements_add(to, -rows_dot(x + i * s->key, to, s->key) / (scale * scale), x + i * s->key, s->key);
    }
    rows_scale(sum, sum, norm, n, s->key);
    rows_store(s, qkv, s->a->scan.ld, column, s->a->scan.key_dim, first, n, sum, s->key);
}

/* Adds up the gradients of key head i over the heads that read it, and writes those of its columns. */
static void key_head_gradient(const struct memory *m, int64_t i, int64_t first, int64_t n, void *qkv)
{
    const struct scan *s = &m->s;
    const int64_t group = s->a->scan.heads / s->a->scan.groups, k = s->a->scan.key_dim;
    const struct key_head *kh = key_head_of(s, i * group);
    struct head *to = &m->heads[i * group];
    for (int64_t h = 1; h < group; h++) {
        elements_add(to->dk, 1.0f, to[h].dk, n * s->key);
        elements_add(to->dq, 1.0f, to[h].dq, n * s->key);
    }
    write_keys(m, qkv, s->a->scan.k_first + i * k, kh->k, kh->k_norm, 1.0f, to->dk, first, n);
    write_keys(m, qkv, s->a->scan.q_first + i * k, kh->q, kh->q_norm, s->a->scan.scale, to->dq, first, n);
}

/* Computes the states before all chunks. Called by all threads of a team. */
static void find_states(const struct memory *m, const struct room *x)
{
    const struct scan *s = &m->s;
    const int64_t rows = s->a->scan.rows, heads = s->a->scan.heads, state = s->a->scan.key_dim * s->a->scan.value_dim;
#pragma omp for schedule(static)
    for (int64_t h = 0; h < heads; h++)
        state_load(s, state_of(m, 0, h), s->before ? s->before + h * state : NULL);
    for (int64_t first = 0; first + CHUNK < rows; first += CHUNK) {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < scan_key_heads(s); i++)
            if (!cpu_stops(s->stream))
                key_head_prepare(s, i, first, CHUNK, 0);
#pragma omp for schedule(static)
        for (int64_t h = 0; h < heads; h++)
            if (!cpu_stops(s->stream))
                head_state(m, x, h, first, CHUNK);
    }
}

/* Computes the gradients of all rows. Called by all threads of a team. */
static void find_gradients(const struct memory *m, const struct room *x, void *const *arg)
{
    const struct scan *s = &m->s;
    for (int64_t chunk = scan_chunks(s) - 1; chunk >= 0; chunk--) {
        const int64_t first = chunk * CHUNK, n = min_i64(CHUNK, s->a->scan.rows - first);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < scan_key_heads(s); i++)
            if (!cpu_stops(s->stream))
                key_head_prepare(s, i, first, n, 1);
#pragma omp for schedule(static)
        for (int64_t h = 0; h < s->a->scan.heads; h++)
            if (!cpu_stops(s->stream))
                head_gradient(m, x, h, first, n, arg);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < s->a->scan.groups; i++)
            if (!cpu_stops(s->stream))
                key_head_gradient(m, i, first, n, arg[0]);
    }
}

void scan_grad_run(const struct gemm_tile *tile, const struct op_attrs *a, void *const *arg, const struct cpu_stream *stream)
{
    struct memory m = memory_of(a, ceil_div(a->scan.rows, CHUNK), stream, tile, arg[9], stream->threads);
    const int64_t heads = a->scan.heads, state = a->scan.key_dim * a->scan.value_dim;
    float *dskip = arg[4], *dstate = arg[3];
    m.s.qkv = arg[0], m.s.g = arg[1], m.s.beta = arg[2], m.s.links = arg[6], m.s.before = arg[7], m.s.skip = arg[8];
#pragma omp parallel num_threads((int)min_i64(stream->threads, heads))
    {
        struct room x;
        int64_t at = m.rooms + omp_get_thread_num() * m.room;
        room_layout(&m.s, &x, m.base, &at);
        find_states(&m, &x);
#pragma omp for schedule(static)
        for (int64_t h = 0; h < heads; h++)
            state_load(&m.s, m.heads[h].dstate, dstate + h * state);
        find_gradients(&m, &x, arg);
#pragma omp for schedule(static)
        for (int64_t h = 0; h < heads; h++) {
            state_store(&m.s, dstate + h * state, m.heads[h].dstate);
            if (dskip)
                dskip[h] = (a->scan.accumulate ? dskip[h] : 0) + (float)m.heads[h].dskip;
        }
    }
}

/* --- The gradient of the state alone --- */

int64_t scan_grad_sum_workspace(const struct op_attrs *a, int threads)
{
    return memory_of(a, 0, NULL, NULL, NULL, threads).floats * (int64_t)sizeof(float) + FLOATS_ALIGN;
}

static void head_sum(const struct memory *m, const struct room *x, int64_t head, int64_t first, int64_t n, const void *d_out)
{
    const struct scan *s = &m->s;
    const struct key_head *kh = key_head_of(s, head);
    const struct head *h = &m->heads[head];
    const int64_t v = s->a->scan.value_dim;
    struct gates g;
    gates_find(s, head, first, n, &g);
    rows_load(s, x->d_out, s->value, d_out, s->a->scan.heads * v, head * v, v, first, n);
    chunk_pairs(s, &g, head, &x->f);
    values_gradient(s, &g, kh, h->dstate, x);
    state_gradient(s, &g, kh, h, x);
}

void scan_grad_sum_run(const struct gemm_tile *tile, const struct op_attrs *a, void *const *arg, const struct cpu_stream *stream)
{
    struct memory m = memory_of(a, 0, stream, tile, arg[6], stream->threads);
    const int64_t heads = a->scan.heads, state = a->scan.key_dim * a->scan.value_dim;
    float *dstate = arg[0];
    m.s.qkv = arg[1], m.s.g = arg[2], m.s.beta = arg[3], m.s.links = arg[5];
#pragma omp parallel num_threads((int)min_i64(stream->threads, heads))
    {
        struct room x;
        int64_t at = m.rooms + omp_get_thread_num() * m.room;
        room_layout(&m.s, &x, m.base, &at);
#pragma omp for schedule(static)
        for (int64_t h = 0; h < heads; h++)
            state_load(&m.s, m.heads[h].dstate, dstate + h * state);
        for (int64_t first = (ceil_div(a->scan.rows, CHUNK) - 1) * CHUNK; first >= 0; first -= CHUNK) {
            const int64_t n = min_i64(CHUNK, a->scan.rows - first);
#pragma omp for schedule(static)
            for (int64_t i = 0; i < scan_key_heads(&m.s); i++)
                if (!cpu_stops(stream))
                    key_head_prepare(&m.s, i, first, n, 1);
#pragma omp for schedule(static)
            for (int64_t h = 0; h < heads; h++)
                if (!cpu_stops(stream))
                    head_sum(&m, &x, h, first, n, arg[4]);
        }
#pragma omp for schedule(static)
        for (int64_t h = 0; h < heads; h++)
            state_store(&m.s, dstate + h * state, m.heads[h].dstate);
    }
}
