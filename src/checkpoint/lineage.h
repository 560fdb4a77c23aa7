/* Ancestors of checkpoints: which ones a run went through, so that a branch that was given up is never taken for its past. Private to
 * this folder. */
#ifndef LTRAIN_CHECKPOINT_LINEAGE_H
#define LTRAIN_CHECKPOINT_LINEAGE_H

#include "base/steps.h"

/* Names a checkpoint: a run that was set back saves some steps again. */
struct checkpoint_id {
    int64_t step, saved_ns; /* saved_ns: time of the save, later than that of all ancestors; 0: of an ltrain that did not record it */
};

enum { LINEAGE_MOST = 256 }; /* ancestors that a manifest lists */

struct lineage {
    struct checkpoint_id self;
    int n;
    struct checkpoint_id ancestor[LINEAGE_MOST]; /* newest first; only those that were there at the save */
};

/* Finds the lineage of a save of `step` into `dir` (RUN/checkpoints) by a run whose state came from the checkpoint `origin` ("": from
 * none). By rank 0. ERR_IO, ERR_NOMEM: `dir` cannot be listed. */
enum status lineage_of_save(const char *dir, const char *origin, int64_t step, struct lineage *out);
enum lineage_damaged { DAMAGED_FIRST, DAMAGED_LAST };
/* Orders a list by what a run would go on from: `latest` and its ancestors, else the newest save and its; then other branches, the newest
 * save's first. Those without a readable manifest come first, so that search says what is wrong with them, or last. ERR_NOMEM. */
enum status lineage_sort(const char *dir, enum lineage_damaged damaged, struct steps *l);
/* Tells whether `of` is the checkpoint of that name in `dir`, or descends from it; 1 where either has no readable manifest. */
int lineage_leads_to(const char *dir, const char *of, const char *name);

#endif
