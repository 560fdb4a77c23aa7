/* Keys and queries of a chunk, prepared once for all heads that read them; the values and the state of a head. */
#include "recurrence/heads.h"

#include <math.h>

struct scan scan_of(const struct op_attrs *a, const struct cpu_stream *stream, const struct gemm_tile *tile)
{
    return (struct scan){.a = a,
                         .tile = tile,
                         .stream = stream,
                         .key = round_up(a->scan.key_dim, tile ? tile->cols : PRODUCT_COLUMNS),
                         .value = round_up(a->scan.value_dim, PRODUCT_COLUMNS),
                         .key_rows = round_up(a->scan.key_dim, PRODUCT_ROWS)};
}

void key_heads_layout(struct scan *s, float *base, int64_t *at, int gradient)
{
    const int64_t flat = packed_floats(CHUNK, s->key), tall = packed_floats(s->a->scan.key_dim, CHUNK);
    struct key_head none,
        *heads = (struct key_head *)(void *)take_floats(base, at, scan_key_heads(s) * (int64_t)(sizeof none / 4 + 1));
    for (int64_t i = 0; i < scan_key_heads(s); i++) {
        struct key_head *x = heads ? &heads[i] : &none;
        x->k = take_floats(base, at, TALL * s->key);
        x->q = take_floats(base, at, TALL * s->key);
        x->k_left = take_floats(base, at, flat);
        x->q_left = take_floats(base, at, flat);
        x->k_across = take_floats(base, at, tall);
        x->q_across = take_floats(base, at, gradient ? tall : 0);
        x->k_right = take_floats(base, at, packed_floats(s->key, CHUNK));
        x->q_right = take_floats(base, at, gradient ? packed_floats(s->key, CHUNK) : 0);
        x->kk = take_floats(base, at, TALL * CHUNK);
        x->qk = take_floats(base, at, TALL * CHUNK);
        x->k_out = has_channels(s) && gradient ? take_floats(base, at, flat) : x->k_left;
        x->k_in = has_channels(s) && gradient ? take_floats(base, at, tall) : x->k_across;
        if (has_channels(s))
            channels_layout(s, &x->channels, base, at);
    }
    s->keys = heads;
}

/* Loads rows of a key head, and multiplies them by `scale` and, with eps, their norms' inverses. */
static void load_normed(const struct scan *s, float *x, float *norm, int64_t column, float scale, int64_t first, int64_t n)
{
    const struct op_attrs *a = s->a;
    rows_load(s, x, s->key, s->qkv, a->scan.ld, column, a->scan.key_dim, first, n);
    for (int64_t i = 0; i < round_up(n, 4); i++) {
        const float square = a->scan.eps > 0 ? rows_dot(x + i * s->key, x + i * s->key, s->key) : 0.0f;
        norm[i] = a->scan.eps > 0 ? 1.0f / sqrtf(square + a->scan.eps) * scale : scale;
    }
    rows_scale(x, x, norm, round_up(n, 4), s->key);
}

void key_head_prepare(const struct scan *s, int64_t i, int64_t first, int64_t n, int gradient)
{
    struct key_head *x = &s->keys[i];
    const struct gemm_tile *t = s->tile;
    const int64_t c = round_up(n, 4), k = s->a->scan.key_dim, column = i * s->a->scan.groups / scan_key_heads(s) * k;
    load_normed(s, x->k, x->k_norm, s->a->scan.k_first + column, 1.0f, first, n);
    load_normed(s, x->q, x->q_norm, s->a->scan.q_first + column, s->a->scan.scale, first, n);
    if (has_channels(s)) {
        channels_prepare(s, i, x, first, n, gradient);
        return;
    }
    pack_left(t, x->k_left, x->k, s->key, c, k);
    pack_left(t, x->q_left, x->q, s->key, c, k);
    pack_left_across(t, x->k_across, x->k, s->key, c, k);
    pack_right_across(t, x->k_right, x->k, s->key, c, k);
    if (is_delta(s))
        multiply(t, WHOLE, c, c, k, x->k_left, x->k_right, x->kk, CHUNK, 0);
    multiply(t, WHOLE, c, c, k, x->q_left, x->k_right, x->qk, CHUNK, 0);
    if (!gradient)
        return;
    pack_left_across(t, x->q_across, x->q, s->key, c, k);
    pack_right(t, x->k_right, x->k, s->key, c, s->key);
    pack_right(t, x->q_right, x->q, s->key, c, s->key);
}

void key_heads_prepare(const struct scan *s, int64_t first, int64_t n, int gradient)
{
#pragma omp for schedule(static)
    for (int64_t i = 0; i < scan_key_heads(s); i++)
        if (!cpu_stops(s->stream))
            key_head_prepare(s, i, first, n, gradient);
}

const struct key_head *key_head_of(const struct scan *s, int64_t head)
{
    return &s->keys[head * scan_key_heads(s) / s->a->scan.heads];
}

void forward_room_layout(const struct scan *s, struct forward_room *x, float *base, int64_t *at)
{
    const int64_t wide = s->value > CHUNK ? s->value : CHUNK, deep = s->key > CHUNK ? s->key : CHUNK;
    x->v = take_floats(base, at, TALL * s->value);
    x->z = take_floats(base, at, TALL * s->value);
    x->p = take_floats(base, at, TALL * s->value);
    x->a = take_floats(base, at, TALL * CHUNK);
    x->system = take_floats(base, at, TALL * CHUNK);
    x->r = take_floats(base, at, TALL * CHUNK);
    x->left = take_floats(base, at, packed_floats(CHUNK, wide));
    x->right = take_floats(base, at, packed_floats(wide, deep));
}

/* Computes V - f K S. */
static void find_errors(const struct scan *s, const struct gates *g, const struct key_head *kh, const float *state,
                        const struct forward_room *x, float *error)
{
    pack_right(s->tile, x->right, state, s->value, s->a->scan.key_dim, s->value);
    multiply(s->tile, WHOLE, g->c, s->value, s->a->scan.key_dim, kh->k_left, x->right, error, s->value, 0);
    for (int64_t i = 0; i < g->c; i++)
        for (int64_t j = 0; j < s->value; j++)
            error[i * s->value + j] =
                x->v[i * s->value + j] - (g->enter[i] == 0.0f ? 0.0f : g->enter[i] * error[i * s->value + j]);
}

void chunk_pairs(const struct scan *s, const struct gates *g, int64_t head, const struct forward_room *x)
{
    float minus_beta[CHUNK];
    gates_decays(g, x->r);
    if (s->a->scan.kind == SCAN_SSD)
        return;
    elements_multiply(x->a, key_head_of(s, head)->kk, x->r, g->c * CHUNK);
    for (int64_t i = 0; i < g->c; i++)
        minus_beta[i] = -g->beta[i];
    rows_scale(x->system, x->a, minus_beta, g->c, CHUNK);
}

void chunk_values(const struct scan *s, const struct gates *g, int64_t head, int64_t first, const float *state,
                  const struct forward_room *x, float *error)
{
    const int64_t v = s->a->scan.value_dim;
    rows_load(s, x->v, s->value, s->qkv, s->a->scan.ld, s->a->scan.v_first + head * v, v, first, g->n);
    chunk_pairs(s, g, head, x);
    if (s->a->scan.kind == SCAN_SSD) {
        rows_scale(x->z, x->v, g->beta, g->c, s->value);
        return;
    }
    error = error ? error : x->p;
    find_errors(s, g, key_head_of(s, head), state, x, error);
    rows_scale(x->z, error, g->beta, g->c, s->value);
    solve_lower(s->tile, x->system, x->z, g->c, s->value, x->left, x->right);
}

void chunk_state(const struct scan *s, const struct gates *g, int64_t head, float *state, const struct forward_room *x)
{
    const int64_t k = s->a->scan.key_dim;
    const struct key_head *kh = key_head_of(s, head);
    rows_scale(x->z, x->z, g->leave, g->c, s->value);
    pack_right(s->tile, x->right, x->z, s->value, g->c, s->value);
    state_keep(s, g, kh, state);
    multiply(s->tile, WHOLE, k, s->value, g->c, kh->k_across, x->right, state, s->value, 1);
}

struct forward_memory forward_memory_of(const struct op_attrs *a, int64_t columns, const struct cpu_stream *stream,
                                        const struct gemm_tile *tile, void *work, int threads)
{
    struct forward_memory m = {.s = scan_of(a, stream, tile), .base = work ? floats_align(work) : NULL};
    struct forward_room none;
    m.s.value = round_up(columns, PRODUCT_COLUMNS);
    key_heads_layout(&m.s, m.base, &m.floats, 0);
    m.states = take_floats(m.base, &m.floats, a->scan.heads * state_floats(&m.s));
    m.rooms = m.floats;
    forward_room_layout(&m.s, &none, NULL, &m.room);
    m.floats += threads * m.room;
    return m;
}

void chunks_forward(const struct forward_memory *m, const struct forward_room *x, chunk_visit *visit, void *out)
{
    const struct scan *s = &m->s;
    for (int64_t first = 0; first < s->a->scan.rows; first += CHUNK) {
        const int64_t n = min_i64(CHUNK, s->a->scan.rows - first);
        key_heads_prepare(s, first, n, 0);
#pragma omp for schedule(static)
        for (int64_t h = 0; h < s->a->scan.heads; h++)
            if (!cpu_stops(s->stream))
                visit(m, x, h, first, n, out);
    }
}
