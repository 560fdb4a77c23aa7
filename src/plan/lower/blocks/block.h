/* A block: what a layer adds to the residual stream, out = in + f(norm(source)), where source is `in` or, in parallel blocks,
 * what the first of them reads. Private to src/plan/lower.
 *
 * A kind of block is a file of this folder and a row of layers.c's table: it creates its values once, tells what computes each
 * of them (value.h), and emits its backward pass. */
#ifndef LTRAIN_PLAN_LOWER_BLOCKS_BLOCK_H
#define LTRAIN_PLAN_LOWER_BLOCKS_BLOCK_H

#include "plan/lower/lowering.h"

/* One block of one layer. */
struct block {
    const struct block_lowering *lowering;
    int layer;
    const struct model_block *weights;
    const struct model_norm *norm;
    struct value *in, *out;    /* the residual stream before and after it, in row chunks */
    struct value *source;      /* what it normalises: `in`, or of a parallel block what the one before it does */
    struct value *normed;      /* norm(source) of the chunks at work; blocks at the same place of other layers use it, too */
    const struct block *first; /* of its layer; the blocks from there to this one follow one another */
    void *values;              /* of this layer, by kind */
};

struct block_lowering {
    /* Appends the element offsets, in the unit of the layer, at which gradients are written piecewise. cuts has room for max.
     * Returns their number. Called before there are values. NULL: every parameter's gradient is written whole. */
    int (*grad_cuts)(const struct lowering *L, const struct block *b, int64_t *cuts, int n, int max);
    /* Creates what a layer has for itself (b->values). */
    void (*layer_values)(struct lowering *L, struct block *b);
    /* Create what the layers share (L->shared), once: values in row chunks, and after the gradient of the stream what is tiled
     * otherwise. NULL: nothing. */
    void (*chunk_values)(struct lowering *L);
    void (*tile_values)(struct lowering *L);
    /* Computes a chunk of `out`. */
    value_produce *produce;
    /* What comes before `out` can be computed chunk by chunk. NULL: nothing. */
    void (*forward)(struct lowering *L, struct block *b);
    /* After the last visit of the forward pass. NULL: nothing. */
    void (*leave)(struct lowering *L, struct block *b);
    /* What can be made of L->dx, the gradient of `out`, without changing it. NULL: nothing. */
    void (*gradient)(struct lowering *L, struct block *b);
    /* Adds the gradient of `source` to L->dx, and makes those of the block's parameters. Of parallel blocks all `gradient`s come
     * first, and only the last block reads the gradient of `out` here. */
    void (*backward)(struct lowering *L, struct block *b);
};

/* Makes sure that chunk c of b->normed is on the device. */
void block_norm(struct lowering *L, const struct block *b, int c);
/* Of chunk c: out = in + what the block gives, that is L->acc (+ the bias of w), normalised and scaled as the block and the model
 * say; of a layer's last block multiplied by the layer's number, where it has one. */
void block_add(struct lowering *L, const struct block *b, struct value *out, const struct model_linear *w, int c);
/* Gets chunk c of L->dx, the gradient of `out`, for the block's backward pass: behind a layer's last block that of the layer's output
 * becomes that of what is multiplied by the layer's number. The last block visits it once. */
void block_get_gradient(struct lowering *L, const struct block *b, int c);
/* The gradient of what the block gives: the stream's, L->dx, unless the block has one of its own, L->df, which is made of L->dx
 * and, where what it gives is normalised, of that in L->acc. All of them are on the device. A norm and a scale exclude each
 * other. */
int block_has_gradient(const struct lowering *L, const struct block *b);
struct value *block_gradient(struct lowering *L, const struct block *b);
void block_make_gradient(struct lowering *L, const struct block *b, const struct model_linear *w, int c);
/* Whether anything is trained that comes before the block, its norm included: else the gradient of its input is not needed. */
int block_passes_gradient(const struct lowering *L, const struct block *b);
/* End of a visit: drops chunk c of the stream from the layer's input to the block's, for each may have been fetched to compute
 * the next. */
void block_drop_stream(struct lowering *L, const struct block *b, int c);

#endif
