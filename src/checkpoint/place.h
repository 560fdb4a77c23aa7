/* Exports into directories of people: a whole export appears there, or nothing, and nothing of theirs is written over. Private to this folder. */
#ifndef LTRAIN_CHECKPOINT_PLACE_H
#define LTRAIN_CHECKPOINT_PLACE_H

#include "base/status.h"

/* DIR, where it is not there yet, and an empty directory in it to write to. */
enum status place_begin(const char *dir, char partial[4096]);
/* Everything in `partial` moves to DIR if st is OK and its names are free, config.json or adapter_config.json last. Otherwise, and where a
 * move fails, nothing of it is left, nor DIR if it is empty then. By one rank; gives st or what failed. */
enum status place_end(const char *dir, const char *partial, enum status st);

#endif
