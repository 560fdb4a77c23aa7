/* Routing: a choice of k experts for each token, with weights, and its gradient (op_table.h).
 *
 * Scores are the softmax of a token's logits, the logits themselves (ROUTE_CHOSEN) or their sigmoids. Experts are chosen by scores
 * plus bias, weighed by scores alone: p = scale v / max(sum v + eps, least) if weights are normalised, else scale v. These may be
 * multiplied by a factor of each expert (not those of ROUTE_CHOSEN). */
#ifndef LTRAIN_OPS_ROUTE_H
#define LTRAIN_OPS_ROUTE_H

#include "base/status.h"
#include "program/op.h"

#include <stdint.h>

enum { ROUTE_EXPERTS = 1024, ROUTE_K = 64 }; /* most experts, and most of a token */

struct route_shape {
    int64_t rows;
    int32_t experts, k, kind, normalise, groups, group_k, ranked, accumulate, parts;
    float scale, eps, least, aux, logit_factor;
};

struct route_result {
    int32_t *ids; /* [rows,k], ascending within a row */
    float *p;     /* [rows,k] */
    /* [experts]: tokens of each expert; tokens of each by the softmax alone; sum of the softmax. NULL: not wanted */
    int32_t *counts, *plain;
    float *sums;
};

struct route_shape route_shape_of(const struct op_attrs *a);

/* Returns the bytes of `work`: counts of blocks of rows. */
int64_t ops_route_workspace(const struct route_shape *s);
void ops_route(const struct route_shape *s, const struct route_result *to, const float *logits,
               const float *bias /* NULL: none */, const int32_t *index /* NULL: all tokens count */,
               const float *factors /* [experts]; NULL: none */, void *work);

/* A token's choice, and the gradient of its weights. */
struct route_choice {
    const int32_t *ids; /* [rows,k] */
    const float *p;     /* [rows,k] */
    const float *dp;    /* [n]: by row of a pair */
    const int32_t *place, *plain /* [parts,experts] */, *index;
    const float *factors; /* [experts]; NULL: none */
    float *dfactor;       /* [n]: gradient of each pair's factor, by row; NULL: not wanted */
};

/* Turns logits into their gradient. The balancing loss is aux E sum of f P: f is an expert's part of the tokens that `plain`
 * counts, P the mean of its softmax over them. ERR_CORRUPT: a number of `ids` or `place` is none of an expert or of a row. */
enum status ops_route_grad(const struct route_shape *s, float *logits, const struct route_choice *c);

#endif
