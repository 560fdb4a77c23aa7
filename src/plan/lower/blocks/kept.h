/* Keys and values of a sequence that stages take in slices: those of the slices so far are kept for the slices that follow, and the
 * gradients that later slices have given them for the backward pass, which takes slices from the last to the first. Private to
 * src/plan/lower.
 *
 * They are persistent, in the heads layout, a row for each token of the sequence. A program knows its slice by the rows' numbers
 * (io_buffers.index) and masks alone, so that all slices run the same one. */
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

/* Creates and binds the values of all layers; nothing without slices. */
void kept_create(struct lowering *L);
void kept_bind(struct lowering *L, int end);

/* Lets a tile attend the kept keys and values, to which the first query tile of a tile of KV heads adds the slice's own. */
void kept_attend(struct lowering *L, const struct block *b, int tile, int is_first, struct forward_tile *f);
/* Lets a tile of the backward pass use them and their gradients' sums. Returns 1 if it adds to these, 0 if it begins them. */
int kept_attend_backward(struct lowering *L, const struct block *b, int tile, int is_first, struct backward_tile *g);
/* Makes g->dk and g->dv, the gradients of the slice's own keys and values, which no earlier slice attends. */
void kept_gradients(struct lowering *L, const struct block *b, int tile, const struct backward_tile *g);

#endif
