/* What placements are reckoned to take, from differences between programs of a few layers. Private to the search. */
#ifndef LTRAIN_PLAN_SEARCH_ESTIMATE_H
#define LTRAIN_PLAN_SEARCH_ESTIMATE_H

#include "plan/search/search.h"

enum { OPTIONS_ACTS = 6 };

/* The choices that the settings leave open. */
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
/* Whether some layers may have the class nearer, in that tier. */
int options_may_be_nearer(const struct options *o, const struct strategy *s, enum tensor_class class, enum residency at);
/* Of a single placement: the tier of the layers that have the class nearer, after its own, and where these are updated. */
void options_open_nearer(struct options *o, enum tensor_class class, enum residency at);

/* Keeps the pointers but to the options and the strategy. ERR_NOMEM. */
enum status estimator_create(const struct model *m, const struct plan_request *s, const struct options *o,
                             const struct strategy *fixed, const struct cost_model *cost, const int64_t limit[TIERS],
                             struct estimator **out);
void estimator_destroy(struct estimator *e); /* NULL is fine */
/* From now on strategies with some chunks on the device can be judged, too. */
enum status estimator_split(struct estimator *e);

/* Fills in what c->strategy is reckoned to take: one of the options, with any number of chunks between the most and the fewest.
 */
void estimator_judge(const struct estimator *e, struct candidate *c);
const struct options *estimator_options(const struct estimator *e);
/* Instructions of a whole step's program, about, and of one layer's part. */
void estimator_instrs(const struct estimator *e, double *all, double *layer);

#endif
