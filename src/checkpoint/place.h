/* Exports into directories of people: a whole export appears there, or nothing, and nothing of theirs is written over. Private to this folder. */
#ifndef LTRAIN_CHECKPOINT_PLACE_H
#define LTRAIN_CHECKPOINT_PLACE_H

#include "base/status.h"

struct place {
    const char *dir;
    char partial[4096]; /* what is written to: an empty directory in it */
    int lock;           /* of the directory, which one export at a time has; -1: its file system has no locks */
};

/* Makes the directory where it is not there yet. ERR_INVALID: another export is writing to it. */
enum status place_begin(const char *dir, struct place *out);
/* Everything in `partial` moves to DIR if st is OK and its names are free, config.json or adapter_config.json last. Otherwise, and where a
 * move fails, nothing of it is left, nor DIR if it is empty then. By one rank; gives st or what failed. */
enum status place_end(struct place *p, enum status st);

#endif
