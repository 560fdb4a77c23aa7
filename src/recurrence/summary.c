/* Summaries of pieces of a sequence, and the states between the pieces. */
#include "recurrence/heads.h"

#include <omp.h>

/* --- Summaries: a scan whose state has the columns of `own`, then those of `move`, whose values are zero --- */

static struct forward_memory memory_of(const struct op_attrs *a, const struct cpu_stream *stream, const struct gemm_tile *tile,
                                       void *work, int threads)
{
    return forward_memory_of(a, a->scan.value_dim + a->scan.key_dim, stream, tile, work, threads);
}

int64_t scan_sum_workspace(const struct op_attrs *a, int threads)
{
    return memory_of(a, NULL, NULL, NULL, threads).floats * (int64_t)sizeof(float) + FLOATS_ALIGN;
}

/* Makes a head's state of its summary; NULL: of no rows. */
static void summary_load(const struct scan *s, float *state, const float *move, const float *own)
{
    const int64_t k = s->a->scan.key_dim, v = s->a->scan.value_dim;
    memset(state, 0, (size_t)state_floats(s) * sizeof *state);
    for (int64_t i = 0; i < k; i++) {
        float *row = state + i * s->value;
        row[v + i] = 1.0f;
        if (!move)
            continue;
        memcpy(row, own + i * v, (size_t)v * sizeof *row);
        memcpy(row + v, move + i * k, (size_t)k * sizeof *row);
    }
}

static void summary_store(const struct scan *s, float *move, float *own, const float *state)
{
    const int64_t k = s->a->scan.key_dim, v = s->a->scan.value_dim;
    for (int64_t i = 0; i < k; i++) {
        const float *row = state + i * s->value;
        memcpy(own + i * v, row, (size_t)v * sizeof *row);
        memcpy(move + i * k, row + v, (size_t)k * sizeof *row);
    }
}

static void head_chunk(const struct forward_memory *m, const struct forward_room *x, int64_t head, int64_t first, int64_t n,
                       void *out)
{
    (void)out;
    float *state = m->states + head * state_floats(&m->s);
    struct gates g;
    gates_find(&m->s, head, first, n, &g);
    chunk_values(&m->s, &g, head, first, state, x, NULL);
    chunk_state(&m->s, &g, head, state, x);
}

void scan_sum_run(const struct gemm_tile *tile, const struct op_attrs *a, void *const *arg, const struct cpu_stream *stream)
{
    struct forward_memory m = memory_of(a, stream, tile, arg[6], stream->threads);
    const int64_t heads = a->scan.heads, k = a->scan.key_dim, v = a->scan.value_dim;
    float *move = arg[0], *own = arg[1];
    m.s.qkv = arg[2], m.s.g = arg[3], m.s.beta = arg[4], m.s.links = arg[5];
#pragma omp parallel num_threads((int)min_i64(stream->threads, heads))
    {
        struct forward_room x;
        int64_t at = m.rooms + omp_get_thread_num() * m.room;
        forward_room_layout(&m.s, &x, m.base, &at);
#pragma omp for schedule(static)
        for (int64_t h = 0; h < heads; h++)
            summary_load(&m.s, m.states + h * state_floats(&m.s), a->scan.accumulate ? move + h * k * k : NULL, own + h * k * v);
        chunks_forward(&m, &x, head_chunk, NULL);
#pragma omp for schedule(static)
        for (int64_t h = 0; h < heads; h++)
            summary_store(&m.s, move + h * k * k, own + h * k * v, m.states + h * state_floats(&m.s));
    }
}

/* --- States between pieces --- */

enum { COLUMNS = 64 }; /* columns of a state that a task folds */

/* Computes n columns of to = move from + own; transposed: with the transpose of move. */
static void fold_piece(const struct op_attrs *a, float *to, const float *from, const float *move, const float *own, int64_t n)
{
    const int64_t k = a->fold.key_dim, v = a->fold.value_dim;
    for (int64_t i = 0; i < k; i++) {
        float sum[COLUMNS];
        memcpy(sum, own + i * v, (size_t)n * sizeof *sum);
        for (int64_t j = 0; j < k; j++) {
            const float w = a->fold.transposed ? move[j * k + i] : move[i * k + j];
            elements_add(sum, w, from + j * v, w == 0.0f ? 0 : n);
        }
        memcpy(to + i * v, sum, (size_t)n * sizeof *sum);
    }
}

/* Folds columns [column, column + n) of a head's state over all pieces. */
static void fold_columns(const struct op_attrs *a, void *const *arg, int64_t head, int64_t column, int64_t n)
{
    float *state = arg[0];
    const float *move = arg[1], *own = arg[2];
    const int32_t *order = arg[3];
    const int64_t pieces = a->fold.pieces, heads = a->fold.heads, k = a->fold.key_dim, v = a->fold.value_dim;
    for (int64_t i = 0; i < pieces; i++) {
        const int64_t at = order[a->fold.transposed ? pieces - 1 - i : i] * heads + head;
        if (i == 0)
            for (int64_t j = 0; j < k; j++)
                memset(state + (at * k + j) * v + column, 0, (size_t)n * sizeof *state);
        if (i + 1 == pieces)
            return;
        const int64_t next = order[a->fold.transposed ? pieces - 2 - i : i + 1] * heads + head;
        fold_piece(a, state + next * k * v + column, state + at * k * v + column, move + at * k * k, own + at * k * v + column,
                   n);
    }
}

enum status recurrence_scan_fold(const struct op_attrs *a, void *const *arg, void *stream)
{
    const int64_t heads = a->fold.heads, v = a->fold.value_dim;
    const int threads = stream ? ((const struct cpu_stream *)stream)->threads : 1;
#pragma omp parallel for collapse(2) schedule(static) num_threads(threads)
    for (int64_t head = 0; head < heads; head++)
        for (int64_t column = 0; column < v; column += COLUMNS)
            fold_columns(a, arg, head, column, min_i64(COLUMNS, v - column));
    return OK;
}
