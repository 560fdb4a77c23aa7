/* What is planned for: a model, a request on one mesh, what that costs there, and the budgets. */
#ifndef LTRAIN_PLAN_SEARCH_PROBLEM_H
#define LTRAIN_PLAN_SEARCH_PROBLEM_H

#include "base/num.h"
#include "machine/cost.h"
#include "model/model.h"
#include "settings/settings.h"

/* Set once for each mesh, and constant from then on. The model and what the request points to are the caller's. */
struct problem {
    const struct model *model;
    struct plan_request request; /* mesh and ZeRO stage are decided */
    struct cost_model cost;      /* of one rank of that mesh */
    int64_t limit[TIERS];        /* bytes */
};

void problem_set(struct problem *out, const struct model *m, const struct plan_request *s, const int64_t limit[TIERS]);

/* So many layers, or as many as it takes to have one of each shape. */
static inline int64_t problem_least_layers(const struct problem *p, int64_t layers)
{
    return max_i64(layers, p->model->n_shapes);
}

/* The model with `layers` layers; where these are fewer than all, each attends as many pairs as the model's layers do on average.
 * The caller destroys it. */
enum status problem_shortened(const struct problem *p, int64_t layers, struct model **out);
/* The last `layers` layers of p's model, and before them `more` of a kind (model_layer_kind). Kinds that these lack take the places
 * of the first ones whose kinds there are more of. of_kind: how many there are of each of p's model's kinds. The caller destroys it. */
enum status problem_few(const struct problem *p, int64_t layers, int64_t more, int kind, int of_kind[MODEL_KINDS],
                        struct model **out);

#endif
