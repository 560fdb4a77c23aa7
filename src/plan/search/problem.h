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

/* The model with `layers` layers. The caller destroys it. */
enum status problem_shortened(const struct problem *p, int64_t layers, struct model **out);

#endif
