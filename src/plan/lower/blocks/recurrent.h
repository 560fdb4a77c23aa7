/* Values of recurrences; norms and gates between heads' outputs and the map back. Private to src/plan/lower/blocks. */
#ifndef LTRAIN_PLAN_LOWER_BLOCKS_RECURRENT_H
#define LTRAIN_PLAN_LOWER_BLOCKS_RECURRENT_H

#include "plan/lower/blocks/tails.h"
#include "plan/lower/pieces.h"

/* Values of one layer. ab: outputs of the maps to decays and to strengths, side by side; none without such maps. moves: between ranks, `move` of all pieces'
 * summaries, for the heads whose states this rank computes. */
struct recurrent_layer {
    struct value pre, z, ab, moves;
    struct passing state, tail;
};

/* Values that the layers share. half: one of the maps in ab; low: narrow inputs of z or a; dlow: their gradients, fp32; part: one of several in pre; qkv: the convolution's output; o: heads' outputs; n: outputs of norms; y:
 * of gates; dn, dout: gradients of n in fp32, and of o; dstate, dtail: gradients of the state and the last rows behind a chunk, or
 * room for these behind a text that sampling continues. */
struct recurrent_work {
    struct value half, low, dlow, part, qkv, g, beta, o, n, y, dn, dout, dstate, dtail;
    struct recurrent_ranks *ranks; /* values of sequences that ranks share (recurrent_ranks.c); NULL: they share none */
};

/* Gradients of pre, z and ab. */
struct recurrent_gradients {
    struct value *pre, *z, *ab;
};

static inline struct recurrent_work *recurrent_work(const struct lowering *L)
{
    return L->shared[BLOCK_RECURRENT];
}

static inline const struct recurrent_block *recurrent_of(const struct block *b)
{
    return &b->weights->recurrent;
}

/* Returns the columns of all heads' outputs. */
static inline int64_t recurrent_values(const struct recurrent_block *r)
{
    return r->heads * r->value_dim;
}

/* Returns the convolution over queries, keys and values. */
static inline struct convolution recurrent_convolution(const struct recurrent_block *r)
{
    return (struct convolution){r->channels, r->width, 1, r->conv, r->conv_bias};
}

/* Begins a scan of a block, whose arguments follow. */
struct op_attrs *recurrent_emit_scan(struct lowering *L, const struct block *b, enum op_kind op, int64_t rows);
/* Computes the convolution of chunk c, and decays and strengths, from values that are on the device. */
void recurrent_convolve(struct lowering *L, const struct block *b, int c);
/* Computes heads' outputs of chunk c, and their norms. */
void recurrent_scan(struct lowering *L, const struct block *b, int c);
/* Replaces qkv, g and beta by their gradients, from the gradient of heads' outputs (dout) and rows [row0, row1) of the state's gradient. */
void recurrent_scan_backward(struct lowering *L, const struct block *b, struct value *dout, struct value *dstate, int64_t row0,
                             int64_t row1, int c);
/* Replaces ab by its gradient, from the gradients of g and beta. */
void recurrent_decay_backward(struct lowering *L, const struct block *b, int c);
/* Adds the first maps' inputs' gradients to the stream's gradient, and computes the maps' weights' gradients. */
void recurrent_inputs_backward(struct lowering *L, const struct block *b, const struct recurrent_gradients *d, int c);
/* Ends a visit of chunk c: of the block's own values, and of the stream, too. */
void recurrent_drop_values(struct lowering *L, const struct block *b, int c);
void recurrent_drop(struct lowering *L, const struct block *b, int c);
/* Returns the columns of one of the maps in ab, from row `row` on. */
struct columns recurrent_half(const struct lowering *L, const struct block *b, struct value *ab, int which, int64_t row);
/* Returns the i-th map to columns of pre, which begin at *first; NULL: there is no i-th one. */
const struct model_linear *recurrent_input_map(const struct recurrent_block *r, int i, int64_t *first);
/* Returns how many numbers of a token in ab give the decays and, if a map gives strengths, the strengths. */
int64_t recurrent_numbers(const struct recurrent_block *r);
/* Brings chunk c of ab to the device, if there is one. */
void recurrent_get_numbers(struct lowering *L, const struct block *b, int c);
/* Returns how many numbers of a token and head are decays. */
int64_t recurrent_decays(const struct recurrent_block *r);
/* Returns the width of the narrow inputs of z and a; 0: there are none. */
int64_t recurrent_narrow(const struct recurrent_block *r);
/* Computes a narrow input of chunk c into work's low. */
void recurrent_low(struct lowering *L, const struct block *b, const struct model_linear *low, int c);

/* Computes the states that enter the rank's pieces, before the chunks of `out` are computed. */
void recurrent_ranks_forward(struct lowering *L, struct block *b);
void recurrent_ranks_backward(struct lowering *L, struct block *b);
void recurrent_ranks_of_layer(struct lowering *L, struct block *b);
void recurrent_ranks_create(struct lowering *L, const struct recurrent_block *r);

/* Computes the norms of heads' outputs of chunk c, where norms come before gates. */
void recurrent_norm(struct lowering *L, const struct block *b, int c);
/* Computes the block's outputs of chunk c from gates, heads' outputs and, if norms come first, norms, all on the device. */
void recurrent_branch(struct lowering *L, const struct block *b, int c);
/* Computes the gradient of heads' outputs from df, the gradient of the block's outputs, and returns it; replaces z by its gradient. */
struct value *recurrent_gates_backward(struct lowering *L, const struct block *b, struct value *df, int c);
/* Computes heads' outputs of chunk c again, and their gradient from that of the block's outputs, which it returns; replaces z by its
 * gradient. */
struct value *recurrent_outputs_backward(struct lowering *L, const struct block *b, int c);

#endif
