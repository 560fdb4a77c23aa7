/* A plan's layers by kind: by their blocks, and the mask and heads of attention. */
#ifndef LTRAIN_PLAN_REPORT_KINDS_H
#define LTRAIN_PLAN_REPORT_KINDS_H

#include "plan/plan.h"

#include <stdio.h>

/* One layer of a kind, the mean of all such layers, in one step and on one rank unless said otherwise. */
struct layer_kind {
    int attends;    /* 1: it has attention, under `window` with heads of `shape` */
    int64_t window; /* 0: none */
    struct attention_shape shape;
    char blocks[KIND_NAME]; /* names of the kind's blocks; "" if all layers of the model have the same blocks */
    int layers;
    int kept, chunks; /* row chunks that keep their recomputable values, and all row chunks */
    /* query-key pairs of all sequences on all ranks: attended pairs, and pairs of a causal layer without a window */
    double pairs, causal;
    double compute, attention; /* seconds of the compute lane, and attention's part of them */
    double waits;              /* seconds for which the compute lane stands still before work of the layer */
    double busy[LANES];        /* seconds that the other lanes work for the layer */
    int64_t moved;             /* bytes, over all lanes but compute and host */
};

/* Fills in the figures of the model's kinds. */
void layer_kinds_make(const struct plan *p, const struct model *m, struct layer_kind out[MODEL_KINDS]);
/* Prints a table if there is more than one kind. */
void layer_kinds_print(const struct layer_kind *kinds, int n, FILE *f);

#endif
