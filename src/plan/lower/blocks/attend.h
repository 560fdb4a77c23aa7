/* Kernel calls of attention, with their operands. Private to src/plan/lower/blocks. */
#ifndef LTRAIN_PLAN_LOWER_BLOCKS_ATTEND_H
#define LTRAIN_PLAN_LOWER_BLOCKS_ATTEND_H

#include "plan/lower/lowering.h"

/* Values of one layer, cut into tiles of heads and routed (attention.c). */
struct attention_layer {
    struct value *q, *o, *lse; /* [n_q] */
    struct value *k, *v;       /* [n_kv] */
    struct value *gate;        /* [n_q], if heads are gated */
    /* Latent attention (latent.c): the latents of keys with values and of queries, before their norms, and the keys' shared part,
     * rotated. */
    struct value kv_latent, q_latent, rotated;
};

/* Values that the layers of one shape share. */
struct attention_work {
    const struct head_tiles *heads;
    int caches_latents;             /* 1: latents are cached, though they may be shaped as heads are */
    struct head_tiles attended;     /* heads as kernels attend them: those of latents, if latents are cached */
    char suffix[16];                /* end of the names of this shape's values */
    struct value *d_o, *delta, *dq; /* [n_q] */
    struct value *dk, *dv;          /* [n_kv] */
    struct value *dgate;            /* [n_q], if heads are gated */
    struct value gated;             /* one chunk of a tile of o, times its gate */
    /* in the heads layout; of each pair, one value belongs to the tile at work, the other to the next tile */
    struct value heads_q[2], heads_k[2], heads_v[2], heads_o[2], heads_do[2], heads_delta[2], heads_dq[2], heads_dk[2],
        heads_dv[2];
    struct value dq_low; /* dq rounded to storage type, for sending */
    /* If heads are normalised, for the chunk at work: q and k before the norm, and their gradients; dnormed_q: q's gradient after
     * the norm, in fp32. */
    struct value raw_q, raw_k, draw_q, draw_k, dnormed_q;
    /* If all heads are normalised together: q and k after the norm, and their gradients in fp32. */
    struct value all_q, all_k, dall_q, dall_k;
    /* Latent attention, for the chunk at work: normalised latents, their gradients in fp32 and those before the norm; the heads' own
     * parts of a tile of keys; the gradients of these and of the shared part, in fp32. */
    struct value kv_normed, q_normed, dkv_normed, dq_normed, dkv_latent, dq_latent, own, d_own, d_rotated;
    /* If latents are cached: queries that attend them, what these get, and a block's latents beside the keys' shared part. */
    struct value absorbed, latent_o, joined;
    /* Keys and values of one step of the ring, results of one step (o_part, lse_part: or of one cached block), and the sums of
     * the forward pass. */
    struct value ring_k, ring_v, o_part, o_sum, lse_part, dq_part, dk_part, dv_part, returned_k[2], returned_v[2];
    /* If latents travel around the ring (latent_ring.c): all members' normalised latents and shared parts of keys, a tile's own parts
     * of keys, and the gradients of these. */
    struct value ring_latents, ring_rotated, ring_own, ring_dlatents, ring_drotated, ring_down, returned_latents[2],
        returned_rotated[2];
};

static inline struct attention_work *attention_work(const struct lowering *L, const struct attention_block *w)
{
    return (struct attention_work *)L->shared[BLOCK_ATTENTION] + w->shape;
}

static inline const struct head_tiles *heads_of(const struct lowering *L, const struct attention_block *w)
{
    return &L->heads[w->shape];
}

/* Tells whether keys and values come from a latent. */
static inline int attends_latents(const struct attention_block *w)
{
    return w->kv_a.weight >= 0;
}

/* Operands of the forward pass of one tile, in the heads layout. */
struct forward_tile {
    const struct attention_block *weights;
    int tile;
    struct value *q, *k, *v, *o, *lse;
    int o_fp32;                           /* 1: o is a sum of parts, in fp32 whatever the run's type */
    int64_t first_key, first_value, keys; /* attended rows of k and v: first rows and number; keys 0: all rows */
};

/* Operands of the backward pass of one tile, in the heads layout. */
struct backward_tile {
    const struct attention_block *weights;
    int tile;
    struct value *q, *k, *v, *d_o, *delta, *lse, *dq, *dk, *dv;
};

/* Emits the kernel calls of ring step s; at step 0 the rank attends its own block of keys. accumulate: dk and dv are added to
 * their destination. */
void emit_attention_forward(struct lowering *L, int s, const struct forward_tile *f);
void emit_attention_backward(struct lowering *L, int s, const struct backward_tile *b, int accumulate);

/* Begins and ends a sum. A result of attention that is made of several parts (blocks of keys, a sink) is summed in fp32 and
 * rounded to the run's type once. Rounded parts would hurt: delta of the backward pass takes the result's rounding for a
 * gradient. The gradients of keys and queries are small beside it (docs/checking.md).
 *
 * sum_begin: returns the tile that the first part is written to and others are merged with. sum_end: merges the tile's sinks, if
 * there are any, and rounds. */
struct forward_tile sum_begin(struct lowering *L, const struct forward_tile *f);
void sum_end(struct lowering *L, const struct forward_tile *f, const struct forward_tile *sum);
/* Creates the fp32 value of sums, which bf16 runs need. */
void sum_create(struct lowering *L, struct attention_work *W);
/* Emits the gradient of the sinks of the rank's own heads, if sinks are trained. Summing gradients over ranks then covers all
 * heads. */
void emit_sink_gradient(struct lowering *L, const struct backward_tile *b);
/* Merges the part in W->o_part and W->lse_part into the sum's o and lse, which then cover both sets of keys; drops the part. */
void emit_attention_merge(struct lowering *L, const struct forward_tile *sum);

/* Returns a predicate of a micro-batch under the block's mask. ring_attends: this rank attends the keys of the member s places
 * before it. ring_is_attended: the member s places after it attends this rank's keys. */
int ring_attends(const struct lowering *L, const struct attention_block *w, int s);
int ring_is_attended(const struct lowering *L, const struct attention_block *w, int s);
/* Puts the last instruction under a predicate (0: none). */
void under_predicate(struct lowering *L, int predicate);

/* Writes the name of a value that the layers of a shape share; returns `text`. */
enum { WORK_NAME = 48 };
const char *work_name(const struct attention_work *W, const char *name, char text[WORK_NAME]);
/* Creates a value of a rank's share of the heads, one row for each token whose attention the rank computes. lse_part_value: the
 * log-sum-exp of one part of the keys. */
void heads_value(struct lowering *L, const struct attention_work *W, struct value *v, const char *name, int64_t row_bytes);
void lse_part_value(struct lowering *L, struct attention_work *W, const char *name);
/* Returns the type of dq while sent to the tokens' owners and at home. */
enum dtype dq_type(const struct lowering *L);

#endif
