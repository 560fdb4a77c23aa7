/* The scan's forward pass: chunk after chunk, heads by thread. */
#include "ops/rows.h"
#include "recurrence/heads.h"

#include <omp.h>

static struct forward_memory memory_of(const struct op_attrs *a, const struct cpu_stream *stream, const struct gemm_tile *tile,
                                       void *work, int threads)
{
    return forward_memory_of(a, a->scan.value_dim, stream, tile, work, threads);
}

int64_t scan_workspace(const struct op_attrs *a, int threads)
{
    return memory_of(a, NULL, NULL, NULL, threads).floats * (int64_t)sizeof(float) + FLOATS_ALIGN;
}

/* Computes a head's outputs of the chunk of rows [first, first + n), and its state after them. */
static void head_chunk(const struct forward_memory *m, const struct forward_room *x, int64_t head, int64_t first, int64_t n,
                       void *o)
{
    const struct scan *s = &m->s;
    const struct key_head *kh = key_head_of(s, head);
    const int64_t k = s->a->scan.key_dim, v = s->a->scan.value_dim;
    float *state = m->states + head * state_floats(s);
    struct gates g;
    gates_find(s, head, first, n, &g);
    chunk_values(s, &g, head, first, state, x, NULL);
    pack_right(s->tile, x->right, state, s->value, k, s->value);
    multiply(s->tile, WHOLE, g.c, s->value, k, kh->q_left, x->right, x->p, s->value, 0);
    rows_scale(x->p, x->p, g.enter, g.c, s->value);
    elements_multiply(x->r, kh->qk, x->r, g.c * CHUNK);
    pack_left(s->tile, x->left, x->r, CHUNK, g.c, g.c);
    pack_right(s->tile, x->right, x->z, s->value, g.c, s->value);
    multiply(s->tile, LEFT_LOWER, g.c, s->value, g.c, x->left, x->right, x->p, s->value, 1);
    if (s->skip)
        elements_add(x->p, row_get(s->skip, head, s->a->scan.dtype), x->v, g.c * s->value);
    rows_store(s, o, s->a->scan.heads * v, head * v, v, first, n, x->p, s->value);
    chunk_state(s, &g, head, state, x);
}

void scan_run(const struct gemm_tile *tile, const struct op_attrs *a, void *const *arg, const struct cpu_stream *stream)
{
    struct forward_memory m = memory_of(a, stream, tile, arg[8], stream->threads);
    const int64_t heads = a->scan.heads, state = a->scan.key_dim * a->scan.value_dim;
    m.s.qkv = arg[2], m.s.g = arg[3], m.s.beta = arg[4], m.s.links = arg[5], m.s.before = arg[6], m.s.skip = arg[7];
#pragma omp parallel num_threads((int)min_i64(stream->threads, heads))
    {
        struct forward_room x;
        int64_t at = m.rooms + omp_get_thread_num() * m.room;
        forward_room_layout(&m.s, &x, m.base, &at);
#pragma omp for schedule(static)
        for (int64_t h = 0; h < heads; h++)
            state_load(&m.s, m.states + h * state_floats(&m.s), m.s.before ? m.s.before + h * state : NULL);
        chunks_forward(&m, &x, head_chunk, arg[0]);
#pragma omp for schedule(static)
        for (int64_t h = 0; h < heads; h++)
            if (arg[1])
                state_store(&m.s, (float *)arg[1] + h * state, m.states + h * state_floats(&m.s));
    }
}
