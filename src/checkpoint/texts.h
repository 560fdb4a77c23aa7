/* The files that say how a model is used. Private to this folder. */
#ifndef LTRAIN_CHECKPOINT_TEXTS_H
#define LTRAIN_CHECKPOINT_TEXTS_H

#include "base/status.h"

/* Those that there are in one directory into another one, by one rank. */
enum status texts_copy(const char *from, const char *to);
/* Of a tokenizer that is among them nothing of a former one is left beside it. */
enum status texts_move(const char *from, const char *to);

#endif
