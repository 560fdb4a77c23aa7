/* What lies in RUN/checkpoints. Private to this folder. */
#ifndef LTRAIN_CHECKPOINT_NAMES_H
#define LTRAIN_CHECKPOINT_NAMES_H

#include <stdint.h>

/* Removes what saves that failed or were killed have left. */
void names_remove_dead(const char *dir);
/* Removes dead directories and all but `keep` up to `step`, the last save's ancestors being kept before others. Later ones are of a longer run that was not resumed at its
 * end: left alone until this one has passed them. What cannot be removed now is tried again at the next save. */
void names_prune(const char *dir, int64_t step, int keep);

#endif
