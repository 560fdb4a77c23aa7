/* A directory for temporary files of a replay, outside the run's own. Private to src/replay. */
#ifndef LTRAIN_REPLAY_WORK_H
#define LTRAIN_REPLAY_WORK_H

#include "comm/comm.h"

enum { WORK_PATH = 512 };

/* Chooses a directory in $TMPDIR (/tmp), the same on all ranks, that is not there yet. */
enum status work_choose(struct comm *c, char path[WORK_PATH]);
/* Makes the directory, on every host. */
enum status work_make(struct comm *c, const char *path);
/* Removes the directory and the checkpoints in it; missing ones are no error. All ranks call it, after all stores are closed. */
void work_remove(const char *path);

#endif
