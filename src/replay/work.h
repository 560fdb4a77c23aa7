/* A directory for what a replay stores on the way, outside the run's own. Private to src/replay. */
#ifndef LTRAIN_REPLAY_WORK_H
#define LTRAIN_REPLAY_WORK_H

#include "comm/comm.h"

enum { WORK_PATH = 512 };

/* Chooses a directory in $TMPDIR (/tmp), the same on all ranks, that is not there yet. */
enum status work_choose(struct comm *c, char path[WORK_PATH]);
/* Makes the directory, on every host. */
enum status work_make(struct comm *c, const char *path);
/* Removes the directory with the checkpoints in it, as far as they are there. All ranks call it, once no store is open any more. */
void work_remove(const char *path);

#endif
