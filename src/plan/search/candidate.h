/* A placement that may be chosen: what it is estimated to take, what its trial took, and what that costs. */
#ifndef LTRAIN_PLAN_SEARCH_CANDIDATE_H
#define LTRAIN_PLAN_SEARCH_CANDIDATE_H

#include "plan/lower/strategy.h"
#include "plan/search/problem.h"

/* Fields up to layer_bytes come from the estimator (estimate.h), the others from a trial (trial.h). An estimate has no stalls and
 * no gaps, so a plan is seldom faster. */
struct candidate {
    struct strategy strategy;
    double estimate;            /* seconds of a step, all micro-batches */
    double compute;             /* busy seconds of compute, recomputation included */
    double least_compute;       /* part of compute that no tile sizes change: attention, and products at the best rate */
    double traffic;             /* busy seconds of all other lanes */
    double messages;            /* part of traffic on the lanes between ranks */
    double written;             /* part of traffic that writes to drives */
    int64_t bytes[TIERS];       /* bytes needed: by estimate the least, in lowering order; by a trial those found */
    int64_t layer_bytes[TIERS]; /* bytes that one layer more adds */
    int redundant;              /* 1: another candidate is at least as good in every respect */
    int place;                  /* number among the choices; the first ones keep the most on the device */
    int tried;                  /* a trial has set the fields below */
    int all_layers;             /* the trial had all layers */
    double seconds;             /* seconds of a step: simulated, or else the estimate */
    double slow;                /* seconds of a step on links slower by FIT_SLOW than planned for; set by trials */
    double excess;              /* largest share of a tier's limit that is needed; above 1: does not fit */
    int level;                  /* prefetch level that the trial found (prefetch.h) */
    int first_level;            /* prefetch level that the trial started from, where that is faster than level 0 */
    int retried;                /* retry.h was applied */
};

/* Returns the largest share of a tier's limit that is needed, and the tier that needs it. */
double budget_excess(const int64_t bytes[TIERS], const int64_t limit[TIERS]);
enum tier budget_scarce_tier(const int64_t bytes[TIERS], const int64_t limit[TIERS]);

/* Orders candidates for qsort: those that fit by seconds, or by traffic where seconds differ by less than a thousandth; then the
 * others by excess. */
int candidate_order(const void *a, const void *b);

/* Returns seconds of a step, and a charge for slow links and for writes to drives. */
double candidate_cost(const struct candidate *c);
/* Returns candidate_cost and the time that messages take from compute, hidden or not. The search minimises this price. */
double candidate_price(const struct candidate *c);
/* Returns the score that decides between about equal prices: seconds on planned and on slow links, and a charge for traffic. */
double candidate_score(const struct candidate *c);
/* Returns the share of the step within which prices count as equal: among equal prices the search takes the least traffic. */
double price_margin(const struct plan_request *s);

/* Tells whether links slower by FIT_SLOW lengthen the step by more than 3%. */
int candidate_suffers(const struct candidate *c);

/* Tells whether the trial `tried` makes a trial of `s` needless: both have the same placement, or the same classes, and `tried`
 * keeps fewer chunks and still does not fit. */
int candidate_decides(const struct candidate *tried, const struct strategy *s);

/* Tells whether activations travel in so few row chunks that slow links hold the step up: at 32k tokens a 70B model in 1, 4 or 8
 * chunks took 7%, 4% or 0.1% longer on links 20% slower. */
int tiles_are_coarse(const struct strategy *s);

/* Tells whether the residual stream takes more than 1/32 of the device's memory: larger tiles then leave gaps of up to 8% when
 * they are packed. */
int tiles_are_bulky(const struct problem *p, const struct strategy *s);

#endif
