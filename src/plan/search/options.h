/* The choices that settings leave open on one grid of tiles. Private to the search. */
#ifndef LTRAIN_PLAN_SEARCH_OPTIONS_H
#define LTRAIN_PLAN_SEARCH_OPTIONS_H

#include "plan/lower/lowering.h"
#include "settings/settings.h"

enum { OPTIONS_ACTS = 6 };

struct options {
    enum residency params[3], grads[3], optim[3], acts[OPTIONS_ACTS], passing[OPTIONS_ACTS]; /* the last two go together */
    int n_params, n_grads, n_optim, n_acts;
    int update[2], n_update;
    int device_layers[4], n_device_layers;
    int split; /* activations may be split by row chunks: any number of the last ones on the device, if others are not */
    int kept[5], n_kept; /* row chunks, most first; of a model whose choice it is, all between are open */
};

void options_of(const struct plan_request *s, const struct strategy *fixed, int layers, struct options *o);
int options_count(const struct options *o);
/* The i-th choice of all. */
void options_place(const struct options *o, int i, struct strategy *out);
/* Whether some layers may have the class in the nearer tier `at`. */
int options_may_be_nearer(const struct options *o, const struct strategy *s, enum tensor_class class, enum residency at);
/* Of a single placement: opens the tier of the layers that have the class nearer, after its own, and where these are updated. */
void options_open_nearer(struct options *o, enum tensor_class class, enum residency at);

#endif
