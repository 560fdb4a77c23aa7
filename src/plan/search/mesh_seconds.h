/* A step's seconds and bytes on a mesh in closed form: rates times volumes, nothing lowered. Private to the search. */
#ifndef LTRAIN_PLAN_SEARCH_MESH_SECONDS_H
#define LTRAIN_PLAN_SEARCH_MESH_SECONDS_H

#include "plan/search/problem.h"

/* Products of one shape, over all layers. A model's shapes are collected once. */
enum { MESH_PRODUCTS = 96 };
struct mesh_products {
    struct {
        int64_t in, out, times;
        int trained; /* the weights have gradients */
        int ends;    /* the weights are the embedding's or the head's, not a layer's */
        int by_rows; /* the weights are experts, which slices of layers have whole, each for its share of the rows */
    } of[MESH_PRODUCTS];
    int n;
    double scale; /* all products' FLOPs over those of the kept shapes; 1 unless a model has more shapes than there is room for */
};
void mesh_products_of(const struct model *m, struct mesh_products *out);

/* A mesh in closed form. */
struct mesh_figures {
    double seconds; /* a step's */
    double compute; /* seconds in which a rank computes */
    double excess;  /* least share of all memory that is needed; above 1: it does not fit */
};

/* Finds the figures of a step on the request's mesh. m: the model, a stage's or a slice's; of a whole model with stages, the largest stage
 * counts. Slices of layers (tp) must be cut already. Errors as plan_fixed. */
enum status mesh_seconds(const struct model *m, const struct mesh_products *products, const struct plan_request *s,
                         const int64_t limit[TIERS], struct mesh_figures *out);

#endif
