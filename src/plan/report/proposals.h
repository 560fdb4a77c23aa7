/* What settings could be changed to: a table of proposals. Private to advise*.c. */
#ifndef LTRAIN_PLAN_REPORT_PROPOSALS_H
#define LTRAIN_PLAN_REPORT_PROPOSALS_H

#include "machine/hardware.h"
#include "plan/report/advise.h"
#include "plan/report/figures.h"

/* The plan to be improved, and what is known of it. */
struct advisor {
    const struct plan *p;
    const struct model *m;
    const struct plan_request *s;
    struct report report;
    double stalls; /* seconds that compute waits for a second of traffic */
    struct advice *out;
};

/* What the settings are changed to: with the machine that they point to, its limits, and what is said of the change. */
struct proposal_setup {
    struct plan_request s;
    struct hardware hardware;
    int64_t limit[TIERS];
    struct change change;
};

/* Returns whether there is something to change. */
typedef int proposal_apply(const struct advisor *x, struct proposal_setup *to, int64_t arg);

struct proposal {
    proposal_apply *apply;
    int64_t arg;
    enum proposal_stage { PROPOSAL_PLACEMENT, PROPOSAL_NUMERICS, PROPOSAL_MORE, PROPOSAL_LENGTH } stage;
    enum proposal_kind {
        PROPOSAL_OTHER,
        PROPOSAL_FREES,     /* one thing that is fixed is left to the planner */
        PROPOSAL_FREES_ALL, /* all of them are */
        PROPOSAL_TIMES      /* the same as the one before, more of it */
    } kind;
};

/* In the order in which they are tried; the last one is a shorter sequence. */
extern const struct proposal proposals[];
extern const int proposals_n;

/* Applies a proposal, that of a shorter sequence to so many tokens. Returns whether there is something to try. */
int proposal_start(const struct advisor *x, int proposal, int64_t tokens, struct proposal_setup *to);

/* Whether that happens for long enough to matter. */
int proposals_waits(const struct advisor *x);
int proposals_computes_twice(const struct advisor *x);
int proposals_computes_faster_in_bf16(const struct advisor *x);

#endif
