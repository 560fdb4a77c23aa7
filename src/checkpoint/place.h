/* Exports into users' directories: a whole export appears there, or nothing, and no file of theirs is overwritten. Private to
 * this folder. */
#ifndef LTRAIN_CHECKPOINT_PLACE_H
#define LTRAIN_CHECKPOINT_PLACE_H

#include "base/status.h"

struct place {
    const char *dir;
    char partial[4096]; /* empty directory in `dir` that the export is written to */
    int lock;           /* lock of the directory, for one export at a time; -1: the file system has no locks */
};

/* Makes and locks the directory. ERR_INVALID: another export is writing to it. */
enum status place_begin(const char *dir, struct place *out);
/* Moves everything in `partial` to DIR if st is OK and its names are free, config.json or adapter_config.json last. If st is an
 * error or a move fails, removes everything, and DIR if empty. Returns st or the error of the move (one rank only). */
enum status place_end(struct place *p, enum status st);

#endif
