/* The least budget of all ranks, and whose it is. Private to src/train. */
#ifndef LTRAIN_TRAIN_SCARCE_H
#define LTRAIN_TRAIN_SCARCE_H

#include "comm/comm.h"
#include "plan/plan.h"
#include "settings/settings.h"

/* One rank's budgets. */
struct scarce {
    int64_t limit[TIERS];
    char place[TIERS][200]; /* where they are, for people: a path, a GPU; "": this host's memory */
    int own;                /* the nvme tier's place is one that this rank itself uses */
};

/* Takes the least of all ranks for each tier, as ranks run one program. s->plan.scarce[tier] names the rank that has it, with its
 * host and place, where another rank has more elsewhere; s->plan.kept_free becomes that of the rank with the least nvme. All
 * ranks call it and get the same. */
enum status scarce_share(struct comm *c, const struct scarce *own, struct settings *s, int64_t limit[TIERS]);
/* Returns 1 if `bytes` are more than `least` by more than changes between two looks, or between hosts of one kind: 1/64. */
int scarce_has_more(int64_t bytes, int64_t least);

#endif
