/* A block: a part of a layer that adds to the residual stream, out = in + f(norm(source)); f is its branch. `source` is `in` or,
 * in parallel blocks, the `source` of the first parallel block. Private to src/plan/lower.
 *
 * A kind of block is a row of model/blocks.h and a file of this folder with its NAME_lowering. Such a file creates the block's
 * values once, names the function that computes each value (value.h), and emits the backward pass. */
#ifndef LTRAIN_PLAN_LOWER_BLOCKS_BLOCK_H
#define LTRAIN_PLAN_LOWER_BLOCKS_BLOCK_H

#include "plan/lower/lowering.h"

/* One block of one layer. */
struct block {
    const struct block_lowering *lowering;
    int layer;
    const struct model_block *weights;
    const struct model_norm *norm;
    struct value *in, *out; /* the residual stream before and after the block, in row chunks */
    struct value *
        source; /* the stream that the block normalises: `in` or, in parallel blocks, the `source` of the first of these blocks */
    struct value *normed;      /* norm(source) of the chunks at work; blocks at the same place of other layers share it */
    struct value *acc;         /* fp32 sums of the block's branch and of its norm's gradient: L->acc or, by rows, L->own_acc */
    int by_rows;               /* 1: between slices, each has the block whole and computes its own rows of the stream */
    const struct block *first; /* the layer's first block; all blocks of the layer are one array */
    void *values;              /* values of this layer, a struct of the kind's own */
};

struct row_block;

struct block_lowering {
    /* Appends the element offsets, in the layer's unit, that cut gradients which are written in parts. cuts has room for max.
     * Returns their number. The function is called before values exist. NULL: every parameter's gradient is written whole. */
    int (*grad_cuts)(const struct lowering *L, const struct block *b, int64_t *cuts, int n, int max);
    /* Creates the layer's own values (b->values). */
    void (*layer_values)(struct lowering *L, struct block *b);
    /* Create the values that the layers share (L->shared), once: first those in row chunks, then, after the gradient of the
     * stream, those that are tiled otherwise. NULL: nothing. */
    void (*chunk_values)(struct lowering *L);
    void (*tile_values)(struct lowering *L);
    const struct row_block *rows; /* for blocks whose branch is computed row by row (rows.h); NULL: it is not */
    /* Computes a chunk of `out`. */
    value_produce *produce;
    /* Computes all that must be complete before `out` can be computed chunk by chunk. NULL: nothing. */
    void (*forward)(struct lowering *L, struct block *b);
    /* Forgets values after their last visit of the forward pass. NULL: nothing. */
    void (*leave)(struct lowering *L, struct block *b);
    /* Computes gradients that follow from L->dx, the gradient of `out`, without changing it. NULL: nothing. */
    void (*gradient)(struct lowering *L, struct block *b);
    /* Adds the gradient of `source` to L->dx, and makes the gradients of the block's parameters. All `gradient` functions of
     * parallel blocks run first, and only the last block reads the gradient of `out` here. */
    void (*backward)(struct lowering *L, struct block *b);
    /* Create the persistent values in which sampling caches what the block needs of earlier tokens (blocks.h: per_token, per_text),
     * and bind them at the start (end = 0) or the end (1) of a program. NULL: nothing is cached. */
    void (*cache_create)(struct lowering *L, struct block *b);
    void (*cache_bind)(struct lowering *L, const struct block *b, int end);
    /* Create the persistent values that pass from slice to slice of a sequence forward, or (gradients = 1) backward, and bind them like
     * cache_bind. NULL: nothing passes. */
    void (*carry_create)(struct lowering *L, struct block *b, int gradients);
    void (*carry_bind)(struct lowering *L, const struct block *b, int end);
};

#define BLOCK(KIND, name, ...) extern const struct block_lowering name##_lowering;
#include "model/blocks.h"

/* Makes sure that chunk c of b->normed is on the device.
 *
 * Between slices of layers (--mesh tp) the stream, its gradients and what is added to it have a rank's share of every chunk's rows;
 * b->normed and what a block's maps make have all rows of the chunk. The functions below gather the former and sum the latter.
 * Blocks by rows (b->by_rows) have a rank's share of everything. */
void block_norm(struct lowering *L, const struct block *b, int c);
/* Adds the gradient of the norm's input to L->dx, given that of its output in L->acc, and makes the gradients of its weights. If the
 * branch is added to the norm, L->dx is the norm's gradient, too. */
void block_norm_backward(struct lowering *L, const struct block *b, int c);
/* Computes chunk c of out = in, or its norm, + the branch. The branch is L->acc, summed over slices, plus the bias of w (NULL: none), normalised and
 * scaled as block and model ask. If the layer has a factor for its output, the layer's last block multiplies `out` by that factor. */
void block_add(struct lowering *L, const struct block *b, struct value *out, const struct model_linear *w, int c);
/* Gets chunk c of L->dx, the gradient of `out`, for the block's backward pass, once for each chunk. If the layer's output has a
 * factor, the last block multiplies the gradient by it. */
void block_get_gradient(struct lowering *L, const struct block *b, int c);
/* Finds or makes the gradient of the block's branch. This gradient is L->dx, the stream's, unless the block normalises or scales
 * its branch: then block_make_gradient makes L->df from L->dx and, for a norm, from the branch in L->acc.
 *
 * All of these are on the device. A block has a norm or a scale, never both. */
int block_has_gradient(const struct lowering *L, const struct block *b);
struct value *block_gradient(struct lowering *L, const struct block *b);
void block_make_gradient(struct lowering *L, const struct block *b, const struct model_linear *w, int c);
/* Returns `own`, a gradient of the block's branch, with the rows that the block computes; block_gather_gradient: makes chunk c of
 * it, on the device. Both are one value without slices, and for blocks by rows. */
struct value *block_whole_gradient(struct lowering *L, const struct block *b, struct value *own);
void block_gather_gradient(struct lowering *L, const struct block *b, struct value *own, int c);
/* Sums chunk c of L->acc over slices, unless that has been done: each gets the sums of its rows, in L->own_acc. */
void block_sum_slices(struct lowering *L, int c);
/* Returns L->acc as far as the stream has rows: summed over slices. */
struct value *block_summed(struct lowering *L);
/* Tells whether anything that comes before the block, its norm included, is trained. If not, the gradient of its input is not
 * needed. */
int block_passes_gradient(const struct lowering *L, const struct block *b);
/* Ends a visit: drops chunk c of the stream at every block from the layer's input to this block, since each may have been fetched
 * to compute the next. */
void block_drop_stream(struct lowering *L, const struct block *b, int c);

#endif
