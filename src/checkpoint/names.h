/* Removing directories of RUN/checkpoints. Private to this folder. */
#ifndef LTRAIN_CHECKPOINT_NAMES_H
#define LTRAIN_CHECKPOINT_NAMES_H

#include <stdint.h>

/* Removes the remains of saves that failed or were killed. */
void names_remove_dead(const char *dir);
/* Removes dead directories and all but `keep` checkpoints up to `step`; the last save's ancestors are kept before others. Later
 * steps belong to a longer run that was not resumed at its end; they stay until this run has passed them. A failed removal is
 * tried again at the next save. */
void names_prune(const char *dir, int64_t step, int keep);

#endif
