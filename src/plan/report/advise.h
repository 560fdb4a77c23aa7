/* Advice: changes to the settings that make a plan fit, or faster. Each is probed (probe.h); the cheapest is planned whole if
 * that is quick. */
#ifndef LTRAIN_PLAN_REPORT_ADVISE_H
#define LTRAIN_PLAN_REPORT_ADVISE_H

#include "plan/report/describe.h"

#define ADVICE_HELPS 0.02 /* share of a step that a change must save to be worth printing */
enum { ADVICE_MAX = 26, ADVICE_PRINTED = 3 };

/* resources that a change needs, the cheapest first: none, more memory of any tier or drives, more devices */
enum gives { GIVES_NOTHING, GIVES_MEMORY, GIVES_DEVICES };

struct change {
    char say[128];     /* the flags, as typed */
    int gives_more;    /* enum gives: resources that the change needs beyond the present ones */
    int shortens;      /* 1: the change is a shorter sequence */
    int exact;         /* 1: planned whole; 0: a trial's figures */
    double seconds;    /* seconds of a step */
    double per_second; /* tokens a second */
    int64_t arena[TIERS];
    char strategy[PLAN_TEXT]; /* strategy_describe */
    int proposal;             /* private to advise.c: index in the table of proposals */
    int64_t tokens;
};

struct advice {
    int n;
    /* changes that help, cheapest first: with the present resources, with more memory or drives, with more devices, with a
     * shorter sequence; of equally cheap ones the fastest first */
    struct change by_cost[ADVICE_MAX];
    int tried;
    int64_t shortest;     /* shortest sequence tried; 0: none was */
    int64_t least[TIERS]; /* least bytes that this sequence needs */
};

/* Finds changes, in a few seconds at most, always the same for the same plan. For a plan that does not fit: changes that make it
 * fit; if there are none, out->shortest and out->least say how much is missing.
 *
 * For a plan that fits: changes that make it faster, if compute waits, computes twice, or would be much faster in bf16. */
enum status advise_find(const struct plan *p, const struct model *m, const struct plan_request *s, struct advice *out);

/* Estimates before anything is planned. *beyond: 1 if every placement needs several times the available memory. Then *estimated
 * is a plan without programs that has the least bytes (fits = 0, arena, limit, misfit). *out has the longest sequence that fits,
 * if one does. */
enum status advise_early(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS], struct plan *estimated,
                         struct advice *out, int *beyond);

/* Prints the ADVICE_PRINTED cheapest changes, two lines for each: the flags to type, and their effect. */
void advise_print(const struct plan *p, const struct advice *advice, FILE *f);

#endif
