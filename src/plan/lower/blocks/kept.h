/* Keys and values of a sequence that a pipeline takes in slices. Forward, later slices attend the kept keys and values of earlier ones;
 * backward, from the last slice to the first, each slice adds to the gradients of all keys and values that it attends. Private to
 * src/plan/lower.
 *
 * States of recurrences and last rows before convolutions pass from slice to slice likewise (passing.h).
 *
 * Keys, values and gradients are persistent, in the heads layout, a row for each token of the sequence. All slices run one program: the
 * rows' numbers (io_buffers.index) and the masks alone tell a slice from others. */
#ifndef LTRAIN_PLAN_LOWER_BLOCKS_KEPT_H
#define LTRAIN_PLAN_LOWER_BLOCKS_KEPT_H

#include "plan/lower/blocks/attend.h"

struct block;

/* One layer's kept values, by tile of KV heads; dk, dv: sums of gradients in fp32. */
struct kept_layer {
    struct value *k, *v, *dk, *dv; /* [n] */
    int n;
};

/* Tells whether slices keep keys and values. */
static inline int kept_keys(const struct lowering *L)
{
    return strategy_slices(&L->s) > 1;
}

/* Creates, and binds, the values of all layers; both do nothing without slices. */
void kept_create(struct lowering *L);
void kept_bind(struct lowering *L, int end);

/* Makes a query tile attend the kept keys and values. is_first: the first query tile of a tile of KV heads, which first adds the
 * slice's own keys and values to them. */
void kept_attend(struct lowering *L, const struct block *b, int tile, int is_first, struct forward_tile *f);
/* Makes a query tile of the backward pass use the kept keys and values and the sums of their gradients. Returns 1 if the tile adds to
 * the sums, 0 if the tile sets them. */
int kept_attend_backward(struct lowering *L, const struct block *b, int tile, int is_first, struct backward_tile *g);
/* Sets g->dk and g->dv to the gradients of the slice's own keys and values: complete, since earlier slices do not attend these. */
void kept_gradients(struct lowering *L, const struct block *b, int tile, const struct backward_tile *g);

#endif
