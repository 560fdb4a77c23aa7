/* Values of activations and of their gradients: a row for each token, cut into row chunks. Private to src/plan/lower. */
#ifndef LTRAIN_PLAN_LOWER_ACTIVATION_H
#define LTRAIN_PLAN_LOWER_ACTIVATION_H

#include "plan/lower/blocks/block.h"

enum shape { CHUNKS, ROUTED /* one row per token and ulysses member; one buffer on the device while it is visited */ };

/* A value of activations, as the functions below create it. */
struct activation {
    struct value *value;
    const char *name;
    int64_t cols;
    enum dtype type;
    enum shape shape;
    value_produce *produce; /* NULL: it is not computed on demand */
};

/* Creates a value that all layers use one after another. index: its number in the name; -1: none. */
void activation_of_work(struct lowering *L, enum residency r, int index, const struct activation *a);
/* Creates a value of a block of one layer, which the backward pass reads. With `produce` its first kept_chunks chunks are kept
 * until then. Without it all are kept, and the layer's forward pass may read them again. */
void activation_of_layer(struct lowering *L, struct block *b, int index, const struct activation *a);
/* Creates the residual stream at a layer's input or, layer = layers, after the last one. before: the block that computes it; NULL
 * for the embedding. */
void activation_of_stream(struct lowering *L, struct value *v, int layer, struct block *before);
/* Tells whether the backward pass finds a layer's input where the forward pass left it. The last layer's input is always kept:
 * its backward pass follows at once. */
int lower_keeps_input(const struct lowering *L, int layer);
/* Returns the tier in which a layer's activations stay. */
enum residency activation_residency(const struct lowering *L, int layer);

#endif
