/* The scan's backward pass: the states before all chunks again, then the gradients, chunk after chunk from the last. */
#include "ops/rows.h"
#include "recurrence/chunk_grad.h"

#include <omp.h>

/* Scratch of a call; with base NULL, its size. */
struct memory {
    struct scan s;
    struct grad_head *heads;
    float *states, *base;        /* states: [chunks][heads][state_floats], the state before each chunk */
    int64_t rooms, room, floats; /* offset of the threads' rooms; floats of one, and of all */
};

static void room_layout(const struct scan *s, struct grad_room *x, float *base, int64_t *at)
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
    struct grad_room none;
    struct grad_head no_head;
    key_heads_layout(&m.s, m.base, &m.floats, 1);
    m.heads =
        (struct grad_head *)(void *)take_floats(m.base, &m.floats, a->scan.heads * (int64_t)(sizeof no_head / sizeof(float)));
    for (int64_t h = 0; h < a->scan.heads; h++) {
        struct grad_head *x = m.heads ? &m.heads[h] : &no_head;
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
static void head_state(const struct memory *m, const struct grad_room *x, int64_t head, int64_t first, int64_t n)
{
    struct gates g;
    const float *before = state_of(m, first / CHUNK, head);
    float *after = state_of(m, first / CHUNK + 1, head);
    gates_find(&m->s, head, first, n, &g);
    chunk_values(&m->s, &g, head, first, before, &x->f, NULL);
    memcpy(after, before, (size_t)state_floats(&m->s) * sizeof *after);
    chunk_state(&m->s, &g, head, after, &x->f);
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

/* Writes the gradients of v, beta and g of a head's rows. */
static void write_rows(const struct memory *m, const struct gates *g, int64_t head, int64_t first, const struct grad_room *x,
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

static void head_gradient(const struct memory *m, const struct grad_room *x, int64_t head, int64_t first, int64_t n,
                          void *const *arg)
{
    const struct scan *s = &m->s;
    const struct key_head *kh = key_head_of(s, head);
    const struct grad_head *h = &m->heads[head];
    const float *state = state_of(m, first / CHUNK, head);
    const int64_t v = s->a->scan.value_dim;
    struct gates g;
    struct gate_gradients d = {0};
    gates_find(s, head, first, n, &g);
    if (has_channels(s))
        memset(x->dsum, 0, (size_t)(TALL * s->key) * sizeof *x->dsum);
    chunk_values(s, &g, head, first, state, &x->f, x->error);
    rows_load(s, x->d_out, s->value, arg[5], s->a->scan.heads * v, head * v, v, first, n);
    chunk_values_gradient(s, &g, kh, h->dstate, x);
    chunk_states_gradient(s, &g, kh, state, h, x, &d);
    chunk_products_gradient(s, &g, kh, h, x, &d);
    chunk_keep_gradient(s, &g, kh, h, state, x, &d);
    chunk_state_gradient(s, &g, kh, h, x);
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
    struct grad_head *to = &m->heads[i * group];
    for (int64_t h = 1; h < group; h++) {
        elements_add(to->dk, 1.0f, to[h].dk, n * s->key);
        elements_add(to->dq, 1.0f, to[h].dq, n * s->key);
    }
    write_keys(m, qkv, s->a->scan.k_first + i * k, kh->k, kh->k_norm, 1.0f, to->dk, first, n);
    write_keys(m, qkv, s->a->scan.q_first + i * k, kh->q, kh->q_norm, s->a->scan.scale, to->dq, first, n);
}

/* Computes the states before all chunks. Called by all threads of a team. */
static void find_states(const struct memory *m, const struct grad_room *x)
{
    const struct scan *s = &m->s;
    const int64_t rows = s->a->scan.rows, heads = s->a->scan.heads, state = s->a->scan.key_dim * s->a->scan.value_dim;
#pragma omp for schedule(static)
    for (int64_t h = 0; h < heads; h++)
        state_load(s, state_of(m, 0, h), s->before ? s->before + h * state : NULL);
    for (int64_t first = 0; first + CHUNK < rows; first += CHUNK) {
        key_heads_prepare(s, first, CHUNK, 0);
#pragma omp for schedule(static)
        for (int64_t h = 0; h < heads; h++)
            if (!cpu_stops(s->stream))
                head_state(m, x, h, first, CHUNK);
    }
}

/* Computes the gradients of all rows. Called by all threads of a team. */
static void find_gradients(const struct memory *m, const struct grad_room *x, void *const *arg)
{
    const struct scan *s = &m->s;
    for (int64_t chunk = scan_chunks(s) - 1; chunk >= 0; chunk--) {
        const int64_t first = chunk * CHUNK, n = min_i64(CHUNK, s->a->scan.rows - first);
        key_heads_prepare(s, first, n, 1);
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
        struct grad_room x;
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

static void head_sum(const struct memory *m, const struct grad_room *x, int64_t head, int64_t first, int64_t n, const void *d_out)
{
    const struct scan *s = &m->s;
    const struct key_head *kh = key_head_of(s, head);
    const struct grad_head *h = &m->heads[head];
    const int64_t v = s->a->scan.value_dim;
    struct gates g;
    gates_find(s, head, first, n, &g);
    rows_load(s, x->d_out, s->value, d_out, s->a->scan.heads * v, head * v, v, first, n);
    chunk_pairs(s, &g, head, &x->f);
    chunk_values_gradient(s, &g, kh, h->dstate, x);
    chunk_state_gradient(s, &g, kh, h, x);
}

void scan_grad_sum_run(const struct gemm_tile *tile, const struct op_attrs *a, void *const *arg, const struct cpu_stream *stream)
{
    struct memory m = memory_of(a, 0, stream, tile, arg[6], stream->threads);
    const int64_t heads = a->scan.heads, state = a->scan.key_dim * a->scan.value_dim;
    float *dstate = arg[0];
    m.s.qkv = arg[1], m.s.g = arg[2], m.s.beta = arg[3], m.s.links = arg[5];
#pragma omp parallel num_threads((int)min_i64(stream->threads, heads))
    {
        struct grad_room x;
        int64_t at = m.rooms + omp_get_thread_num() * m.room;
        room_layout(&m.s, &x, m.base, &at);
#pragma omp for schedule(static)
        for (int64_t h = 0; h < heads; h++)
            state_load(&m.s, m.heads[h].dstate, dstate + h * state);
        for (int64_t first = (ceil_div(a->scan.rows, CHUNK) - 1) * CHUNK; first >= 0; first -= CHUNK) {
            const int64_t n = min_i64(CHUNK, a->scan.rows - first);
            key_heads_prepare(&m.s, first, n, 1);
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
