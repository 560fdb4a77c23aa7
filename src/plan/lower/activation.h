/* Values of activations and of their gradients: a row for each token, cut into row chunks. Private to src/plan/lower. */
#ifndef LTRAIN_PLAN_LOWER_ACTIVATION_H
#define LTRAIN_PLAN_LOWER_ACTIVATION_H

#include "plan/lower/blocks/block.h"

enum shape {
    CHUNKS,
    STREAM, /* row chunks of the residual stream, of which each slice of the layers has its share of every chunk */
    ROUTED  /* one row per token and ulysses member; on the device one buffer of all rows while the value is visited */
};

/* Chunks of a value that the backward pass finds, although they could be computed again: BY_ALPHA: the first kept_chunks; ALL: all;
 * REVISITED: all, and the layer's forward pass reads them several times; NONE: none. */
enum keeping { KEPT_BY_ALPHA, KEPT_ALL, KEPT_REVISITED, KEPT_NONE };

/* A value of activations, as the functions below create it. */
struct activation {
    struct value *value;
    const char *name;
    int64_t cols;
    enum dtype type;
    enum shape shape;
    value_produce *produce; /* function that computes a tile on demand; NULL: none */
    enum keeping kept;      /* for values with `produce` */
};

/* Creates a value that all layers use in turn. index: number in the value's name; -1: none. */
void activation_of_work(struct lowering *L, enum residency r, int index, const struct activation *a);
/* Creates a value of a block of one layer, which the backward pass reads. With `produce` only the first kept_chunks chunks are
 * kept until then. Without `produce` all are kept, and the layer's forward pass may read them again. */
void activation_of_layer(struct lowering *L, struct block *b, int index, const struct activation *a);
/* Creates the residual stream at a layer's input; layer = number of layers: after the last layer. before: the block that computes
 * the stream there; NULL: the embedding does. */
void activation_of_stream(struct lowering *L, struct value *v, int layer, struct block *before);
/* Tells whether the backward pass finds a layer's input where the forward pass left it. The last layer's input is always kept:
 * its backward pass follows at once. */
int lower_keeps_input(const struct lowering *L, int layer);
/* Returns the tier in which a layer's activations stay. */
enum residency activation_residency(const struct lowering *L, int layer);

#endif
