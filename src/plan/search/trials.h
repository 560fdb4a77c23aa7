/* Placements on the virtual clock. Private to the search. */
#ifndef LTRAIN_PLAN_SEARCH_TRIALS_H
#define LTRAIN_PLAN_SEARCH_TRIALS_H

#include "plan/search/estimate.h"

struct trials {
    const struct model *m;
    const struct plan_request *s;
    const struct cost_model *cost;
    const int64_t *limit;
    const struct search *search;
    double slack; /* of packing (pack.h) */
    int last;     /* the last pace to look at (fit.h); 0: FIT_SERIAL */
};

/* Of a search's trials: plans are packed more tightly, which takes half a trial of a small program. */
#define TRIAL_SLACK 0.02

/* Programs of up to so many are scheduled whole. */
#define SEARCH_WHOLE 20e3
/* Instructions to schedule for a choice: seconds on one processor. */
#define SEARCH_INSTRS 300e3
/* The same where only a look is wanted. */
#define SEARCH_LITTLE 30e3

/* Those that a trial of c schedules, about. */
double trial_instrs(const struct trials *x, const struct candidate *c);
/* Schedules c, or models of it of two sizes: seconds, and bytes of the whole model, at the given pace (fit.h) or below. */
enum status trial_run(const struct trials *x, struct candidate *c, int pace);
/* The same from the longest distance on, or c->late, and with writes to drives that yield to reads, if that is faster; not tried
 * if c cannot take less than `best` seconds. */
enum status trial_run_yielding(const struct trials *t, struct candidate *c, double best);

/* If c takes about `best` seconds or less: also at shorter distances (the longest that fits is mostly the fastest, not always),
 * with writes that yield more, and with parameters on the host; c->otherwise is set. *c: the cheapest of these, whose classes may
 * be other ones. Adds to *spent the instructions that were scheduled. */
enum status trial_run_otherwise(const struct trials *t, struct candidate *c, double best, double *spent);

/* Seconds that c, not tried, ought to take after the first `tried` of x, and the trials of x->known: its estimate, and stalls in
 * proportion to its traffic. */
double stalls_expect(const struct search *x, int tried, const struct candidate *c);
/* The same without stalls, if no trial tells of c's family: the tiers of activations, of what layers pass on and of optimizer
 * state, the update's place, and whether gradients are on the device. Else INFINITY. */
double stalls_hope(const struct search *x, int tried, const struct candidate *c);

typedef int resemblance(const struct strategy *tried, const struct strategy *c);
/* By how much the price of c is to exceed its estimate, as one that was tried shows: in proportion to traffic; of less traffic to
 * its square, as lanes that hold compute up have time to catch up then. */
double stalls_scaled(const struct candidate *tried, const struct candidate *c);
/* The least of that which trials of x show that are like c; INFINITY: there are none. */
double stalls_of(const struct search *x, const struct candidate *c, resemblance *like);

/* Of about equal prices, which to take: seconds of the step, on planned and slower links alike, and what its traffic is worth. */
double search_score(const struct candidate *c);

/* Whether activations travel in so few row chunks that links slower than planned for hold the step up: at 32k tokens a 70B of 1
 * or 4 chunks took 7% or 4% longer on links 20% slower, of 8 0.1%. */
int search_is_coarse(const struct strategy *s);
#define SEARCH_FEW_CHUNKS 8

/* Whether the residual stream takes more than a thirty-second of the device: larger tiles then leave gaps of up to 8% when they
 * are packed. */
int search_is_bulky(const struct model *m, const struct strategy *s, const int64_t limit[TIERS]);

/* Alike but for the kept chunks. */
int search_same_classes(const struct strategy *a, const struct strategy *b);
/* Whether what was tried tells of c, as of one family: what travels in which pass, and how far, is about the same, or less of it
 * where layers pass things on nearer. */
int search_tells_of(const struct strategy *tried, const struct strategy *c);
/* Whether a trial settles s: that very placement, or one of the same classes that keeps no more and does not fit. */
int candidate_settles(const struct candidate *tried, const struct strategy *s);
int search_settled(const struct search *x, const struct strategy *s);
/* Keeps as many more chunks as ought to fit, up to a number. */
void search_keep_most(const struct search *x, int high, struct candidate *c);

/* Moves some layers of a class of those that were tried nearer, where memory is left: the best of all comes first of x,
 * whose candidates have room for SEARCH_NEARER more. */
enum status search_nearer(const struct trials *t, struct search *x);
enum { SEARCH_NEARER = 24 };

/* Finds numbers of kept chunks between those that were tried, and what within a margin of the lowest price (the step, and what
 * counts like it) moves least: the best of these comes first of x, whose candidates have room for SEARCH_FINER more. */
enum status search_refine(const struct trials *t, struct search *x);
enum { SEARCH_FINER = 13 };

/* Where compute waits: finds placements with some row chunks of all layers' activations on the device, which leaves less to be
 * written, at any time of the pass. The best one comes first of x, whose candidates have room for one more. */
enum status search_split(const struct trials *t, struct search *x);

#endif
