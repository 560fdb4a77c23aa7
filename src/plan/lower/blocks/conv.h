/* Values of short convolutions between gates, and their steps for a chunk. Private to src/plan/lower/blocks. */
#ifndef LTRAIN_PLAN_LOWER_BLOCKS_CONV_H
#define LTRAIN_PLAN_LOWER_BLOCKS_CONV_H

#include "plan/lower/blocks/tails.h"

/* Values of one layer: the outputs of three maps, and the convolution's last rows, which pass from chunk to chunk. */
struct conv_layer {
    struct value before, after, x;
    struct passing tail;
};

/* Values that the layers share: the convolution's input, its output, and the gated output; the gradient of the last rows behind a chunk,
 * or room for the last rows behind a text that sampling continues. */
struct conv_work {
    struct value pre, o, y, dtail;
    struct conv_ranks *ranks; /* values of sequences that ranks share (conv_ranks.c); NULL: they share none */
};

static inline struct conv_work *conv_work(const struct lowering *L)
{
    return L->shared[BLOCK_CONV];
}

static inline const struct conv_block *conv_of(const struct block *b)
{
    return &b->weights->conv;
}

static inline struct convolution conv_convolution(const struct conv_block *w)
{
    return (struct convolution){w->x.out, w->width, 0, w->conv, w->bias};
}

/* Makes sure that the maps' outputs for chunk c are on the device. */
void conv_fetch(struct lowering *L, const struct block *b, int c);
/* Computes pre, the convolution's input, for chunk c. */
void conv_input(struct lowering *L, const struct block *b, int c);
/* Computes the convolution of chunk c, and at the first visit its last rows, from values that are on the device. */
void conv_convolve(struct lowering *L, const struct block *b, int c);
/* Computes the block's output of chunk c from the convolution's output. */
void conv_branch(struct lowering *L, const struct block *b, int c);
/* Computes the gradients of the convolution's output (in o), of `after` and of the last map from the gradient of `out` in L->dx. */
void conv_output_backward(struct lowering *L, const struct block *b, int c);
/* Computes the first maps' gradients from pre, which holds its gradient here, and dafter, and adds to the stream's gradient. */
void conv_inputs_backward(struct lowering *L, const struct block *b, struct value *dafter, int c);
/* Ends a visit of chunk c. */
void conv_drop(struct lowering *L, const struct block *b, int c);

/* Finds the rows before the rank's pieces, before the chunks of `out` are computed. */
void conv_ranks_forward(struct lowering *L, struct block *b);
void conv_ranks_backward(struct lowering *L, struct block *b);
void conv_ranks_create(struct lowering *L, const struct conv_block *w);

#endif
