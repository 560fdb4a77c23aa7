/* Which placements are worth planning: all of them estimated, the best of these scheduled on a model of fewer layers. */
#ifndef LTRAIN_PLAN_SEARCH_SEARCH_H
#define LTRAIN_PLAN_SEARCH_SEARCH_H

#include "machine/cost.h"
#include "plan/lower/program.h"
#include "settings/settings.h"

#define SEARCH_GAIN 0.01 /* of what changes more than a placement, or computes more */
/* What needs more than this share of a budget is not tried with fewer inputs: attention outputs, which stay, are as large. */
#define SEARCH_TURNS_HELP 2.0

/* A placement and what it is reckoned to take. Estimates are without stalls and gaps, so that a plan is seldom better. */
struct candidate {
    struct strategy strategy;
    double estimate;            /* seconds of a step, all micro-batches */
    double compute;             /* busy seconds of compute, what is computed again included */
    double least_compute;       /* of these, attention, and products at the best rate: what no tile sizes change */
    double traffic;             /* of all other lanes */
    double messages;            /* of these, of the lanes between ranks */
    double written;             /* of these, of the drives' writes */
    int64_t bytes[TIERS];       /* what it needs: at least, in lowering order; if tried, in the order found */
    int64_t layer_bytes[TIERS]; /* of that for one layer more */
    int redundant;              /* never better than another one */
    int place;                  /* in the order of choices; the first ones keep the most on the device */
    int tried;                  /* scheduled: seconds and pace are known */
    int whole;                  /* on all layers */
    double seconds;             /* of a step: simulated, else the estimate */
    double slow;                /* if tried: of a step on links slower by FIT_SLOW than planned for */
    double excess;              /* the largest share of a tier's limit that is needed: above 1, it does not fit */
    int pace;                   /* of the schedule (fit.h) */
    int late;                   /* the pace from which on it was looked for, where that is faster than from 0 on */
    int otherwise;              /* other paces and depths of drive writes had their turn, too */
};

struct search {
    struct candidate *candidates; /* those tried that fit by time, then the others that were, then the rest by estimate */
    int n, n_tried;
    int whole;                  /* programs are small enough to be tried with all layers */
    double beat;                /* seconds of another grid's best to beat by a little; else INFINITY */
    const struct search *known; /* while it lasts: the one on another grid, whose trials show stalls, too; or NULL */
    int given;    /* the first one is tried in any case: the best placement of that grid, or what was found on this one */
    int brief;    /* few are tried, and nothing around them */
    double spent; /* instructions scheduled while trying */
    struct estimator *estimator; /* of the grid that was searched; NULL: a single placement */
};

/* Every placement that the settings leave open, for the mesh and tiles of `fixed`. From differences: programs of a few layers are
 * lowered with one class elsewhere at a time, and what they need is added up. The most promising are tried. A single placement is
 * neither estimated nor tried. Fewer layer inputs are kept than `fixed` says where the settings leave that open, memory limits
 * the best placement and it pays. */
enum status search_create(const struct model *m, const struct plan_request *s, const struct strategy *fixed,
                          const struct cost_model *cost, const int64_t limit[TIERS], struct search *out);

/* What is reckoned on the grid of `fixed`: instructions of a step's program, about, and the least seconds of what ought to fit
 * (INFINITY: nothing). */
enum status search_glance(const struct model *m, const struct plan_request *s, const struct strategy *fixed,
                          const struct cost_model *cost, const int64_t limit[TIERS], double *instrs, double *least);

/* What a search is to be better than, and goes on from. */
struct search_lead {
    const struct candidate *beat;  /* the best so far; NULL: none */
    double gain;                   /* by so much, as a share of its step */
    const struct search *known;    /* the one on another grid whose trials count here, too, if those here are whole: `beat`'s
                                    * placement is tried first; or NULL */
    const struct candidate *first; /* what was found on this grid already: tried first, as it is; or NULL */
};
/* The same, but nothing is tried (out->n_tried = 0) unless a placement is reckoned to be as much faster than lead->beat, or that
 * one does not fit. Below a gain of SEARCH_GAIN few are tried, with the layer inputs of `fixed`. */
enum status search_to_beat(const struct model *m, const struct plan_request *s, const struct strategy *fixed,
                           const struct cost_model *cost, const int64_t limit[TIERS], const struct search_lead *lead,
                           struct search *out);
/* The best one (out->tried) of so few that it is found at once: lead->beat's placement and what ought to be faster, given
 * lead->known. Adds to *spent the instructions that were scheduled. */
enum status search_briefly(const struct model *m, const struct plan_request *s, const struct strategy *fixed,
                           const struct cost_model *cost, const int64_t limit[TIERS], const struct search_lead *lead,
                           double *spent, struct candidate *out);
/* Puts one that was tried on any grid among those tried; there is room for so many. */
enum { SEARCH_PUT = 4 };
void search_put(struct search *x, int at, const struct candidate *c);
void search_destroy(struct search *s);

/* Schedules candidates in order of estimate, with the stalls that trials have shown until then, until none ought to be faster
 * than the best one or enough instructions have been looked at, and sorts them. What they take follows from models of two sizes,
 * unless the model is small. */
enum status search_try(const struct model *m, const struct plan_request *s, const struct cost_model *cost,
                       const int64_t limit[TIERS], struct search *x);

/* Tries the first one, with the distance that fits and the depth of drive writes that it has. */
enum status search_try_as_is(const struct model *m, const struct plan_request *s, const struct cost_model *cost,
                             const int64_t limit[TIERS], struct search *x);

/* Tries the leanest ones in the serial order until one fits, and sorts them: seconds mean nothing. */
enum status search_try_leanest(const struct model *m, const struct plan_request *s, const struct cost_model *cost,
                               const int64_t limit[TIERS], struct search *x);

/* The placement that needs the least share of the budgets; out->excess <= 1: something fits. Layer inputs as in search_create. */
enum status search_leanest(const struct model *m, const struct plan_request *s, const struct strategy *fixed,
                           const struct cost_model *cost, const int64_t limit[TIERS], struct candidate *out);

/* Nothing is tried: the placement that is reckoned to need the least share of the budgets. */
enum status search_least(const struct model *m, const struct plan_request *s, const struct strategy *fixed,
                         const struct cost_model *cost, const int64_t limit[TIERS], struct candidate *out);

/* The best of a few: tried in order of estimate and `rate` seconds of stalls for every second of traffic, as many as a small part
 * of a search has time for. Those that ought not to fit are not tried: out->tried and out->excess <= 1, or something else may
 * fit still. */
enum status search_promising(const struct model *m, const struct plan_request *s, const struct strategy *fixed,
                             const struct cost_model *cost, const int64_t limit[TIERS], double rate, struct candidate *out);

/* What one strategy takes, tried in the same way; out->bytes: what its first program needs. */
enum status search_price(const struct model *m, const struct plan_request *s, const struct strategy *strategy,
                         const struct cost_model *cost, const int64_t limit[TIERS], struct candidate *out);

/* The same with nothing else in place of its distance and its depth of drive writes. */
enum status search_price_as_is(const struct model *m, const struct plan_request *s, const struct strategy *strategy,
                               const struct cost_model *cost, const int64_t limit[TIERS], struct candidate *out);

/* The same in the serial order: whether it fits. */
enum status search_fits(const struct model *m, const struct plan_request *s, const struct strategy *strategy,
                        const struct cost_model *cost, const int64_t limit[TIERS], struct candidate *out);

/* The model with so many layers. The caller destroys it. */
enum status search_shortened(const struct model *m, const struct plan_request *s, int64_t layers, struct model **out);

/* Compares candidates: those that fit by seconds, what differs by less than a thousandth by traffic; then the others by excess.
 */
int search_order(const void *a, const void *b);

/* What the search gives of the step for less traffic, as a share of it. */
double search_margin(const struct plan_request *s);

/* Whether links slower by FIT_SLOW add more to the step than they may. */
int search_suffers(const struct candidate *c);
/* Seconds of the step, and what such links add beyond that: all of it; and as far as it counts, with what writes to drives do. */
double search_slow_cost(const struct candidate *c);
double search_cost(const struct candidate *c);
/* The latter, and what messages cost compute, hidden or not: the price that searches go by. */
double search_weighed(const struct candidate *c);

/* The largest share of a tier's limit that is needed, and of which tier. */
double search_excess(const int64_t bytes[TIERS], const int64_t limit[TIERS]);
enum tier search_scarce(const int64_t bytes[TIERS], const int64_t limit[TIERS]);

#endif
