/* The problem of a plan: a model, a request on one mesh, costs there, and the budgets. */
#ifndef LTRAIN_PLAN_SEARCH_PROBLEM_H
#define LTRAIN_PLAN_SEARCH_PROBLEM_H

#include "base/num.h"
#include "machine/cost.h"
#include "model/model.h"
#include "settings/settings.h"

/* Constant once set, one for each mesh. The caller owns the model and the request's pointers. */
struct problem {
    const struct model *model;
    struct plan_request request; /* mesh and ZeRO stage are decided */
    struct cost_model cost;      /* costs on one rank of that mesh */
    uint64_t costs;              /* hash of cost */
    int64_t limit[TIERS];        /* bytes */
};

void problem_set(struct problem *out, const struct model *m, const struct plan_request *s, const int64_t limit[TIERS]);

/* Returns `layers` or, if larger, the number of kinds of layers (windows ignored), so that each kind has a layer. */
int64_t problem_least_layers(const struct problem *p, int64_t layers);

/* Creates the model with `layers` layers; if these are fewer than all, each attends to as many pairs as the model's layers do on
 * average. The caller destroys it. */
enum status problem_shortened(const struct problem *p, int64_t layers, struct model **out);
/* Creates a model of the last `layers` layers of p's model, preceded by `more` layers of a kind (an index of model->kinds). A
 * kind that the last layers lack replaces the first layer whose kind occurs twice.
 *
 * of_kind: number of layers of each kind. The caller destroys the model. */
enum status problem_few(const struct problem *p, int64_t layers, int64_t more, int kind, int of_kind[MODEL_KINDS],
                        struct model **out);

#endif
