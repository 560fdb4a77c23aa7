/* Chunks of a scan: the shape of a call, gates of a head's rows, and keys and queries prepared for all heads that read them. Private
 * to src/recurrence. */
#ifndef LTRAIN_RECURRENCE_HEADS_H
#define LTRAIN_RECURRENCE_HEADS_H

#include "device/cpu_stream.h"
#include "recurrence/product.h"
#include "recurrence/recurrence.h"

enum {
    CHUNK = SCAN_CHUNK,
    TALL = 72, /* rows of a chunk's matrices in memory: CHUNK, rounded up to PRODUCT_ROWS */
};

op_kernel recurrence_conv, recurrence_conv_grad, recurrence_decay, recurrence_decay_grad, recurrence_scan_fold;

/* A call of OP_SCAN or OP_SCAN_GRAD. Matrices in scratch have `key` or `value` columns, rounded up to the tile's or to
 * PRODUCT_COLUMNS; columns beyond the head's are zero. */
struct scan {
    const struct op_attrs *a;
    const struct gemm_tile *tile;
    const struct cpu_stream *stream;
    int64_t key, value, key_rows; /* columns of matrices of keys and values; rows of a state, rounded up to PRODUCT_ROWS */
    const void *qkv, *skip;
    const float *g, *beta, *before;
    const int32_t *links;
    struct key_head *keys; /* [groups]; of SCAN_CHANNELS [heads] */
};

/* Decays of a chunk's channels, of one head: SCAN_CHANNELS only. */
struct channels {
    double *sum;          /* [CHUNK][key]: sums of g up to the row */
    float *enter, *leave; /* [TALL][key]: decays from the chunk's begin to a row (f), and to its end (r) */
    const float *keep;    /* [key]: decay over the whole chunk; 0 where a document begins */
    float *scaled;        /* [TALL][key]: room for rows times decays */
};

/* Keys and queries of a chunk, of one key head. With SCAN_CHANNELS each head has such keys, and the packed operands and the pairs
 * contain decays: f K, f Q and r K instead of K, Q and K. Other kinds multiply rows of results by decays. */
struct key_head {
    float *k, *q;                       /* [TALL][key]: after norm and scale */
    float *k_left, *q_left;             /* packed [c,K]: f K, f Q */
    float *k_out;                       /* packed [c,K]: r K */
    float *k_across, *q_across, *k_in;  /* packed transposed, [K,c]: r K, f Q, f K */
    float *k_right, *q_right;           /* packed [c,K] as right operands; of the backward pass */
    float *kk, *qk;                     /* [TALL][CHUNK]: KK' and QK' */
    float k_norm[CHUNK], q_norm[CHUNK]; /* factors that made k and q */
    struct channels channels;
};

/* Gates of a chunk's rows, of one head. SCAN_CHANNELS: without decays, so that enter, leave and keep are 1 or 0. */
struct gates {
    int64_t n, c;            /* rows; the same, rounded up to 4 */
    int32_t document[CHUNK]; /* number of the row's document within the chunk; 0: the one that goes on */
    int32_t has_token[CHUNK];
    double sum[CHUNK]; /* sum of g up to the row */
    float beta[CHUNK];
    /* decays from the chunk's begin to a row (f), from a row to the chunk's end (r), and over the whole chunk; 0 where a document's
     * border lies between */
    float enter[CHUNK], leave[CHUNK], keep;
};

struct scan scan_of(const struct op_attrs *a, const struct cpu_stream *stream, const struct gemm_tile *tile);

static inline int64_t scan_chunks(const struct scan *s)
{
    return ceil_div(s->a->scan.rows, CHUNK);
}

static inline int is_delta(const struct scan *s)
{
    return s->a->scan.kind != SCAN_SSD;
}

static inline int has_channels(const struct scan *s)
{
    return s->a->scan.kind == SCAN_CHANNELS;
}

/* Returns the number of key heads that are prepared for each chunk. */
static inline int64_t scan_key_heads(const struct scan *s)
{
    return has_channels(s) ? s->a->scan.heads : s->a->scan.groups;
}

static inline int64_t state_floats(const struct scan *s)
{
    return s->key_rows * s->value;
}

/* Returns floats of a packed operand with up to `lanes` rows or columns, of depth `depth`. */
static inline int64_t packed_floats(int64_t lanes, int64_t depth)
{
    return round_up(round_up(lanes, PRODUCT_ROWS), PRODUCT_COLUMNS) * round_up(depth, 4);
}

enum { FLOATS_ALIGN = 64 }; /* alignment of all scratch, which kernels see to themselves */

static inline float *floats_align(void *work)
{
    return (float *)(void *)(((uintptr_t)work + FLOATS_ALIGN - 1) / FLOATS_ALIGN * FLOATS_ALIGN);
}

/* Takes n floats on a boundary of 64 bytes from the scratch at *at; NULL: counts them only. */
static inline float *take_floats(float *base, int64_t *at, int64_t n)
{
    float *p = base ? base + *at : NULL;
    *at += round_up(n, 16);
    return p;
}

/* Lays out the key heads from *at on. */
void key_heads_layout(struct scan *s, float *base, int64_t *at, int gradient);
/* Prepares key head i for the chunk of rows [first, first + n). */
void key_head_prepare(const struct scan *s, int64_t i, int64_t first, int64_t n, int gradient);
/* Prepares all key heads for the chunk. Called by all threads of a team. */
void key_heads_prepare(const struct scan *s, int64_t first, int64_t n, int gradient);

/* Finds the gates of a head's rows [first, first + n). */
void gates_find(const struct scan *s, int64_t head, int64_t first, int64_t n, struct gates *out);
/* Computes L [TALL][CHUNK], decays from one row to a later one: zero above the diagonal and between documents. */
void gates_decays(const struct gates *g, float *decays);

/* Loads columns [column, column + dim) of rows [first, first + n) of x [rows,ld] as fp32 [c][wide]; rows without a token, and rows
 * and columns beyond, are zero. */
void rows_load(const struct scan *s, float *out, int64_t wide, const void *x, int64_t ld, int64_t column, int64_t dim,
               int64_t first, int64_t n);
/* Stores n rows of x as columns [column, column + dim) of rows [first, first + n) of out [rows,ld]. */
void rows_store(const struct scan *s, void *out, int64_t ld, int64_t column, int64_t dim, int64_t first, int64_t n,
                const float *x, int64_t wide);

/* Multiplies rows of x [n][wide] by factors: exactly 0 where the factor is 0. out may be x. */
void rows_scale(float *out, const float *x, const float *factor, int64_t n, int64_t wide);
/* Multiplies n elements of x and y. */
void elements_multiply(float *out, const float *x, const float *y, int64_t n);
/* Adds factor x to y: [n]. */
void elements_add(float *y, float factor, const float *x, int64_t n);
/* Returns the sum of n elements. */
float rows_sum(const float *x, int64_t n);
/* Returns the dot product of two rows. */
float rows_dot(const float *x, const float *y, int64_t n);

/* Multiplies a state by a number, exactly 0 if that is 0. */
void state_scale(const struct scan *s, float *state, float factor);
/* Multiplies a state by the decays of the whole chunk. */
void state_keep(const struct scan *s, const struct gates *g, const struct key_head *kh, float *state);
/* Copies a state into scratch, or out of it. */
void state_load(const struct scan *s, float *state, const float *from /* [key_dim,value_dim]; NULL: zeros */);
void state_store(const struct scan *s, float *to /* [key_dim,value_dim] */, const float *state);

/* Solves (1 - strict(A)) z = z in place, A [.][CHUNK] with its lower triangle, z [TALL][wide] with c rows; left, right: memory of packed
 * operands. */
void solve_lower(const struct gemm_tile *t, const float *a, float *z, int64_t c, int64_t wide, float *left, float *right);
/* Solves the transposed system. */
void solve_upper(const struct gemm_tile *t, const float *a, float *z, int64_t c, int64_t wide, float *left, float *right);

/* Memory of a thread for one head's forward pass. */
struct forward_room {
    float *v, *z, *p;      /* [TALL][value] */
    float *a, *system, *r; /* [TALL][CHUNK] */
    float *left, *right;   /* packed operands */
};
void forward_room_layout(const struct scan *s, struct forward_room *x, float *base, int64_t *at);
/* Scratch of a call that visits chunks forward; with base NULL, its size. */
struct forward_memory {
    struct scan s;
    float *states; /* [heads][state_floats] */
    float *base;
    int64_t rooms, room, floats; /* offset of the threads' rooms; floats of one, and of all */
};

/* Lays out that scratch in `work`, with a state that has room for `columns` columns. */
struct forward_memory forward_memory_of(const struct op_attrs *a, int64_t columns, const struct cpu_stream *stream,
                                        const struct gemm_tile *tile, void *work, int threads);
/* Visits a head's chunk of rows [first, first + n), whose key heads are prepared. */
typedef void chunk_visit(const struct forward_memory *m, const struct forward_room *x, int64_t head, int64_t first, int64_t n,
                         void *out);
/* Visits all chunks in order, heads by thread. Called by all threads of a team. */
void chunks_forward(const struct forward_memory *m, const struct forward_room *x, chunk_visit *visit, void *out);
/* Computes L into x->r and, unless the kind is SCAN_SSD, KK' L and -beta KK' L into x->a and x->system. */
void chunk_pairs(const struct scan *s, const struct gates *g, int64_t head, const struct forward_room *x);
/* Computes Z, the rows that are added to the state (formula in recurrence.h), into x->z; error: where V - f K S goes, [TALL][value], NULL: nowhere. Leaves v in x->v,
 * and the results of chunk_pairs. */
void chunk_values(const struct scan *s, const struct gates *g, int64_t head, int64_t first, const float *state,
                  const struct forward_room *x, float *error);
/* Updates the state; x->z is changed. */
void chunk_state(const struct scan *s, const struct gates *g, int64_t head, float *state, const struct forward_room *x);

const struct key_head *key_head_of(const struct scan *s, int64_t head);

/* Lays out the decays of a head's channels from *at on. */
void channels_layout(const struct scan *s, struct channels *x, float *base, int64_t *at);
/* Finds the decays of a head's rows [first, first + n), and kk, qk and the packed operands from k and q. */
void channels_prepare(const struct scan *s, int64_t head, struct key_head *x, int64_t first, int64_t n, int gradient);
/* Adds t = coefficient factor y to dx and sign t x to dsum, for each channel of n rows; a factor of 0 counts as 0 whatever y is.
 * coefficient: of each row; NULL: 1. */
void channels_add(const struct scan *s, int64_t n, const float *coefficient, const float *factor, const float *y, float *dx,
                  const float *x, float *dsum, float sign);

/* Gradients of a chunk's pairs of rows: of the weights KK' and QK' L (d_kk, d_qk [.][CHUNK], 0 elsewhere), and what they give. */
struct pair_gradients {
    const float *d_kk, *d_qk;
    float *dk, *dq, *dsum;                  /* [TALL][key]: added to; dsum: of the channels' sums of g */
    float *k_rows, *q_rows, *k_columns, *y; /* [TALL][key]: scratch */
    float *left, *right;                    /* packed operands */
};
void channels_pairs_gradient(const struct scan *s, const struct gates *g, const struct key_head *kh,
                             const struct pair_gradients *p);

/* Returns the scratch bytes of a scan. */
int64_t scan_workspace(const struct op_attrs *a, int threads);
int64_t scan_grad_workspace(const struct op_attrs *a, int threads);
int64_t scan_sum_workspace(const struct op_attrs *a, int threads);
int64_t scan_grad_sum_workspace(const struct op_attrs *a, int threads);
/* Runs an op of linear attention (a scan, its gradient, the sums of either) with products of the given tile. */
void scan_run(const struct gemm_tile *tile, const struct op_attrs *a, void *const *arg, const struct cpu_stream *stream);
void scan_grad_run(const struct gemm_tile *tile, const struct op_attrs *a, void *const *arg, const struct cpu_stream *stream);
void scan_sum_run(const struct gemm_tile *tile, const struct op_attrs *a, void *const *arg, const struct cpu_stream *stream);
void scan_grad_sum_run(const struct gemm_tile *tile, const struct op_attrs *a, void *const *arg, const struct cpu_stream *stream);

#endif
