/* Changes to the settings that make a plan fit, or faster: each looked at (glance.h), the cheapest planned whole if that is
 * quick.
 */
#ifndef LTRAIN_PLAN_REPORT_ADVISE_H
#define LTRAIN_PLAN_REPORT_ADVISE_H

#include "plan/report/describe.h"

#define CHANGES_HELP 0.02 /* what makes a step faster by less is not worth saying */
enum { CHANGES_MAX = 24, CHANGES_SAID = 3 };

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
    int proposal;             /* private to changes.c: its number */
    int64_t tokens;
};

struct changes {
    int n;
    struct change by_cost[CHANGES_MAX]; /* those that help: what is there used otherwise, more memory or drives, more devices, a
                                           shorter sequence; of each the fastest first */
    int tried;
    int64_t shortest; /* the shortest sequence looked at, and the least bytes that it needs; 0: none was */
    int64_t least[TIERS];
};

/* Of a plan that does not fit: changes that do; if none does, c->shortest says how far off they are. Of one that fits: those that
 * make it faster, if compute waits, computes twice, or would be much faster in bf16. A few seconds at most; the same whenever it
 * is asked. */
enum status changes_find(const struct plan *p, const struct model *m, const struct plan_request *s, struct changes *out);

/* Before anything is planned: *beyond says whether by estimate every placement needs several times what there is. If so,
 * *estimated is a plan without programs that has the least bytes (fits = 0, arena, limit, misfit), and *out the longest sequence
 * that fits, if one does. */
enum status changes_find_early(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS],
                               struct plan *estimated, struct changes *out, int *beyond);

#endif
