/* What settings could be changed to: a table of proposals. Private to changes.c. */
#ifndef LTRAIN_PLAN_REPORT_PROPOSALS_H
#define LTRAIN_PLAN_REPORT_PROPOSALS_H

#include "machine/hardware.h"
#include "plan/report/advise.h"

/* The plan that is to be bettered. */
struct seeker {
    const struct plan *p;
    const struct model *m;
    const struct plan_request *s;
    struct report report;
    double stalls;       /* seconds for each second of traffic */
    struct model *sized; /* of another length than the plan's, whose learned positions are fewer; or NULL */
    struct changes *out;
};

/* Changed settings and what they point to. */
struct trial {
    struct plan_request s;
    struct hardware hardware;
    int64_t limit[TIERS];
    struct change change;
};

/* Returns whether there is something to change. */
typedef int proposal_apply(const struct seeker *x, struct trial *t, int64_t arg);

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
int proposal_start(const struct seeker *x, int proposal, int64_t tokens, struct trial *t);

/* Whether that happens for long enough to matter. */
int proposals_waits(const struct seeker *x);
int proposals_computes_twice(const struct seeker *x);
int proposals_computes_faster_in_bf16(const struct seeker *x);

#endif
