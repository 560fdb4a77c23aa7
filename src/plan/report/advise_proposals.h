/* Changes to the settings, as a table of proposals. Private to advise*.c. */
#ifndef LTRAIN_PLAN_REPORT_ADVISE_PROPOSALS_H
#define LTRAIN_PLAN_REPORT_ADVISE_PROPOSALS_H

#include "machine/hardware.h"
#include "plan/report/advise.h"
#include "plan/report/figures.h"

/* The plan to be improved, with its figures and the advice so far. */
struct advisor {
    const struct plan *p;
    const struct model *m;
    const struct plan_request *s;
    struct report report;
    double stalls;       /* seconds that compute waits for a second of traffic */
    struct model *sized; /* owned: m for another length, with another number of learned positions; or NULL (advisor_model) */
    struct advice *out;
};

/* Settings after a proposal: with the machine that they point to, its limits, and the change as it is printed. */
struct proposal_setup {
    struct plan_request s;
    struct hardware hardware;
    int64_t limit[TIERS];
    struct change change;
};

/* Changes *to; arg: as in the proposal. Returns 0 if there is nothing to change. */
typedef int proposal_apply(const struct advisor *x, struct proposal_setup *to, int64_t arg);

struct proposal {
    proposal_apply *apply;
    int64_t arg;
    enum proposal_stage { PROPOSAL_PLACEMENT, PROPOSAL_NUMERICS, PROPOSAL_MORE, PROPOSAL_LENGTH } stage;
    enum proposal_kind {
        PROPOSAL_OTHER,
        PROPOSAL_FREES,     /* leaves one fixed setting to the planner */
        PROPOSAL_FREES_ALL, /* leaves all of them to the planner */
        PROPOSAL_TIMES      /* gives more of what the proposal before gives */
    } kind;
};

/* Proposals in the order in which they are tried; the last one is a shorter sequence. */
extern const struct proposal proposals[];
extern const int proposals_n;

/* Fills *to with the settings after a proposal. tokens: the length, for the proposal of a shorter sequence. Returns 0 if the
 * proposal changes nothing. */
int proposal_start(const struct advisor *x, int proposal, int64_t tokens, struct proposal_setup *to);

/* Fills *to with the settings for a sequence of `tokens` tokens; that always changes something. */
void proposal_shorten(const struct advisor *x, int64_t tokens, struct proposal_setup *to);

/* Returns the model for a proposal's length: learned positions are sized by it. It is valid until a call for another length. */
enum status advisor_model(struct advisor *x, const struct proposal_setup *t, const struct model **out);

/* Returns 1 if compute waits, or computes twice, for more than the share ADVICE_HELPS of the step; if bf16 would pay. */
int advisor_waits(const struct advisor *x);
int advisor_computes_twice(const struct advisor *x);
int advisor_gains_in_bf16(const struct advisor *x);

#endif
