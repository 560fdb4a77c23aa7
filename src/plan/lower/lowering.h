/* What one program's lowering works on: the model, the strategy, the program so far, and the values. Private to src/plan/lower.
 */
#ifndef LTRAIN_PLAN_LOWER_LOWERING_H
#define LTRAIN_PLAN_LOWER_LOWERING_H

#include "model/model.h"
#include "plan/lower/program.h"
#include "plan/lower/state.h"
#include "plan/lower/strategy.h"
#include "plan/lower/value.h"

struct memory;

struct lowering {
    const struct model *m;
    struct strategy s;
    int role;
    struct program *p;
    struct memory *memory;                         /* of all values */
    int n_chunks, n_tiles_q, n_tiles_kv, q_per_kv; /* q tiles per kv tile */
    int kv_heads_tile;
    int64_t attn_rows; /* tokens whose attention one rank computes, for its share of the heads */
    int local_heads, local_kv_heads;
    int64_t n_sums, n_loss;
    struct unit_values *units;
    struct value tokens, targets, positions, lo, hi, inv_freq, record, norm, loss, sums;
    struct value all_loss, all_sums;   /* of all ranks; not with a single one */
    struct value *x;                   /* [layers + 1] */
    struct value *q, *k, *v, *o, *lse; /* [layers][tiles] */
    struct value *xmid, *gate, *up;    /* [layers] */
    struct value n1, n2, acc, act, dact, dn, final_n, logits, dx;
    struct value *d_o, *delta, *dq, *dk, *dv; /* [tiles] */
    /* In the heads layout (attention.c), of the tile at work and of the next: */
    struct value heads_q[2], heads_k[2], heads_v[2], heads_o[2], heads_do[2], heads_delta[2], heads_dq[2], heads_dk[2],
        heads_dv[2];
    struct value dq_low; /* in storage dtype, to be sent */
    /* Of the ring's steps: */
    struct value ring_k, ring_v, o_part, o_sum, lse_part, dq_part, dk_part, dv_part, returned_k[2], returned_v[2];
    char phase;
    int layer;
    enum status st; /* sticky */
};

#endif
