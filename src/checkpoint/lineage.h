/* Recording the ancestors of checkpoints, so that a branch that was given up is never taken for a run's past. Private to this
 * folder. */
#ifndef LTRAIN_CHECKPOINT_LINEAGE_H
#define LTRAIN_CHECKPOINT_LINEAGE_H

#include "base/steps.h"

/* A save's identity: a run that was set back saves some steps again. */
struct checkpoint_id {
    /* saved_ns: time of the save, later than that of all ancestors; 0: written by an ltrain that did not record it */
    int64_t step, saved_ns;
};

enum { LINEAGE_MOST = 256 }; /* most ancestors listed in a manifest */

struct lineage {
    struct checkpoint_id self;
    int n;
    struct checkpoint_id ancestor[LINEAGE_MOST]; /* newest first; only those that existed at the save */
};

/* Finds the lineage of a save of `step` into `dir` (RUN/checkpoints) by a run whose state came from the checkpoint `origin` ("":
 * from none). Rank 0 only. ERR_IO, ERR_NOMEM: `dir` cannot be listed. */
enum status lineage_of_save(const char *dir, const char *origin, int64_t step, struct lineage *out);
enum lineage_damaged { DAMAGED_FIRST, DAMAGED_LAST };
/* Orders a list by what a run would go on from: `latest` and its ancestors, else the newest save and its ancestors; then other
 * branches, the newest save's first, and where `latest` has no readable manifest steps beyond it last. Those without a readable
 * manifest come first, so that a search reports their fault, or last. *branches: number of branches. ERR_NOMEM. */
enum status lineage_sort(const char *dir, enum lineage_damaged damaged, struct steps *l, int *branches);
/* Tells whether the checkpoint of that name in `dir` has a readable manifest. */
int lineage_is_known(const char *dir, const char *name);
/* Tells whether `of` is the checkpoint of that name in `dir`, or descends from it; 1 if either has no readable manifest. */
int lineage_leads_to(const char *dir, const char *of, const char *name);

#endif
