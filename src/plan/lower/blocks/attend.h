/* The kernel calls of attention, and what they read and write. Private to src/plan/lower/blocks. */
#ifndef LTRAIN_PLAN_LOWER_BLOCKS_ATTEND_H
#define LTRAIN_PLAN_LOWER_BLOCKS_ATTEND_H

#include "plan/lower/lowering.h"

/* Values of one layer: tiles of heads, routed (attention.c). */
struct attention_layer {
    struct value *q, *o, *lse; /* [n_q] */
    struct value *k, *v;       /* [n_kv] */
    struct value *gate;        /* [n_q] where heads are gated */
};

/* Values that the layers of one shape share. */
struct attention_work {
    const struct head_tiles *heads;
    char suffix[16]; /* of their names */
    struct value *d_o, *delta, *dq; /* [n_q] */
    struct value *dk, *dv;          /* [n_kv] */
    struct value *dgate;            /* [n_q] where heads are gated */
    struct value gated;             /* a chunk of one tile, gated */
    /* In the heads layout, of the tile at work and of the next: */
    struct value heads_q[2], heads_k[2], heads_v[2], heads_o[2], heads_do[2], heads_delta[2], heads_dq[2], heads_dk[2],
        heads_dv[2];
    struct value dq_low; /* in storage dtype, to be sent */
    /* Of a chunk at work where heads are normalised: before the norm, its gradient; the gradient after it in fp32. */
    struct value raw_q, raw_k, draw_q, draw_k, dnormed_q;
    /* Where all heads are normalised together: after the norm, and its gradient in fp32. */
    struct value all_q, all_k, dall_q, dall_k;
    /* Of the ring's steps: */
    struct value ring_k, ring_v, o_part, o_sum, lse_part, dq_part, dk_part, dv_part, returned_k[2], returned_v[2];
};

static inline struct attention_work *attention_work(const struct lowering *L, const struct attention_block *w)
{
    return (struct attention_work *)L->shared[BLOCK_ATTENTION] + w->shape;
}

static inline const struct head_tiles *heads_of(const struct lowering *L, const struct attention_block *w)
{
    return &L->heads[w->shape];
}

/* What the forward pass of one tile reads and writes, in the heads layout. */
struct forward_tile {
    const struct attention_block *weights;
    int tile;
    struct value *q, *k, *v, *o, *lse;
    int o_fp32;              /* o is a sum's, in fp32 whatever the run's type */
    int64_t first_key, keys; /* the rows of k and v that are attended; keys 0: those of the rank's tokens */
};

/* What the backward pass of one tile reads and writes, in the heads layout. */
struct backward_tile {
    const struct attention_block *weights;
    int tile;
    struct value *q, *k, *v, *d_o, *delta, *lse, *dq, *dk, *dv;
};

/* The kernel calls of ring step s; 0 is the rank's own block of keys. accumulate: dk and dv are added to. */
void emit_attention_forward(struct lowering *L, int s, const struct forward_tile *f);
void emit_attention_backward(struct lowering *L, int s, const struct backward_tile *b, int accumulate);

/* Where attention's result is made of several parts (blocks of keys, a sink) it is their sum in fp32 until it is whole, and rounded to
 * the run's type once: delta of the backward pass takes the result's rounding for a gradient, which of keys and queries is small
 * (docs/checking.md). sum_begin: what the first part is written to and others are merged with; sum_end: the tile's sinks, if there are
 * any, and the rounding. */
struct forward_tile sum_begin(struct lowering *L, const struct forward_tile *f);
void sum_end(struct lowering *L, const struct forward_tile *f, const struct forward_tile *sum);
/* The value that bf16 runs have for it. */
void sum_create(struct lowering *L, struct attention_work *W);
/* The sinks' gradient, of the member's own heads: the sum over ranks has all. Nothing where there are no trained sinks. */
void emit_sink_gradient(struct lowering *L, const struct backward_tile *b);
/* The sum's o and lse become attention over their keys and those of the part in W->o_part and W->lse_part, which is gone then. */
void emit_attention_merge(struct lowering *L, const struct forward_tile *sum);

/* Predicates of a micro-batch under the block's mask: does this rank attend the keys of the member s before it; does the member s
 * after it attend ours? */
int ring_attends(const struct lowering *L, const struct attention_block *w, int s);
int ring_is_attended(const struct lowering *L, const struct attention_block *w, int s);
/* Puts the last instruction under a predicate (0: none). */
void under_predicate(struct lowering *L, int predicate);

/* Names of what layers of a shape share. */
enum { WORK_NAME = 48 };
const char *work_name(const struct attention_work *W, const char *name, char text[WORK_NAME]);
/* A value of a rank's share of the heads, one row for each token whose attention it computes; the log-sum-exp of a part of its keys. */
void heads_value(struct lowering *L, const struct attention_work *W, struct value *v, const char *name, int64_t row_bytes);
void lse_part_value(struct lowering *L, struct attention_work *W, const char *name);
/* dq on its way to the tokens and at home. */
enum dtype dq_type(const struct lowering *L);

#endif
