/* A plan's layers by kind: under which mask they attend, and with which heads. */
#ifndef LTRAIN_PLAN_REPORT_KINDS_H
#define LTRAIN_PLAN_REPORT_KINDS_H

#include "plan/plan.h"

#include <stdio.h>

/* One layer of a kind, the mean of all, in one step and on one rank unless said otherwise. */
struct layer_kind {
    int64_t window; /* 0: none */
    struct attention_shape shape;
    int layers;
    int saved, chunks;         /* row chunks that keep what could be recomputed, of all */
    double pairs, causal;      /* that its queries attend in all sequences, on all ranks; and would without a window */
    double compute, attention; /* seconds of the compute lane; of them, attention's */
    double waits;              /* seconds that the compute lane stands still before it has the layer's next work */
    double busy[LANES];        /* seconds of the other lanes for it */
    int64_t moved;             /* bytes, over all lanes but compute and host */
};

/* The model's kinds. */
void layer_kinds_make(const struct plan *p, const struct model *m, struct layer_kind out[MODEL_KINDS]);
/* The lane but compute with the most seconds. */
enum lane layer_kind_busiest(const struct layer_kind *k);
/* A table, of models with more than one kind. */
void layer_kinds_print(const struct layer_kind *kinds, int n, FILE *f);

#endif
