/* The least budget of all ranks, and its rank. Private to src/train. */
#ifndef LTRAIN_TRAIN_SCARCE_H
#define LTRAIN_TRAIN_SCARCE_H

#include "comm/comm.h"
#include "plan/plan.h"
#include "settings/settings.h"

/* One rank's budgets. */
struct scarce {
    int64_t limit[TIERS];
    char place[TIERS][200]; /* places of the budgets, for people: a path, a GPU; "": this host's memory */
    int own;                /* 1: this rank itself stores on the drive in place[TIER_NVME] */
};

/* Takes the least of all ranks for each tier, as ranks run one program. If another rank elsewhere has more, s->plan.scarce[tier]
 * names the rank with the least, its host and its place. s->plan.kept_free becomes that of the rank with the least nvme. All
 * ranks call it and get equal results. */
enum status scarce_share(struct comm *c, const struct scarce *own, struct settings *s, int64_t limit[TIERS]);
/* Returns 1 if `bytes` exceed `least` by more than 1/64, the usual change between two looks or between hosts of one kind. */
int scarce_has_more(int64_t bytes, int64_t least);

#endif
