/* Advice: changes to the settings that make a plan fit, or faster. Each is probed (probe.h); the cheapest is planned whole where
 * that is quick. */
#ifndef LTRAIN_PLAN_REPORT_ADVISE_H
#define LTRAIN_PLAN_REPORT_ADVISE_H

#include "plan/report/describe.h"

#define ADVICE_HELPS 0.02 /* a change is worth printing if it makes a step faster by this share */
enum { ADVICE_MAX = 24, ADVICE_PRINTED = 3 };

enum gives { GIVES_NOTHING, GIVES_MEMORY, GIVES_DEVICES }; /* the cheaper first; memory of any tier, or drives */

struct change {
    char say[128];     /* the flags, as one types them */
    int gives_more;    /* than there is now: enum gives */
    int shortens;      /* a shorter sequence */
    int exact;         /* planned whole; else a trial's figures */
    double seconds;    /* a step's */
    double per_second; /* tokens */
    int64_t arena[TIERS];
    char strategy[PLAN_TEXT]; /* strategy_describe */
    int proposal;             /* private to advise.c: its index in the table */
    int64_t tokens;
};

struct advice {
    int n;
    struct change by_cost[ADVICE_MAX]; /* changes that help, cheapest first: with what there is, with more memory or
                                          drives, then more devices, then a shorter sequence; of each the fastest first */
    int tried;
    int64_t shortest;     /* the shortest sequence tried; 0: none was */
    int64_t least[TIERS]; /* the least bytes that it needs */
};

/* For a plan that does not fit: changes with which it fits; if there are none, out->shortest says how far off they are. For a
 * plan that fits: changes that make it faster, looked for if compute waits, computes twice, or would be much faster in bf16.
 * Takes a few seconds at most, and is deterministic. */
enum status advise_find(const struct plan *p, const struct model *m, const struct plan_request *s, struct advice *out);

/* Before anything is planned: *beyond says whether by estimate every placement needs several times what there is. If so,
 * *estimated is a plan without programs that has the least bytes (fits = 0, arena, limit, misfit), and *out the longest sequence
 * that fits, if one does. */
enum status advise_early(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS], struct plan *estimated,
                         struct advice *out, int *beyond);

#endif
