/* The files that say how a model is used. Private to this folder. */
#ifndef LTRAIN_CHECKPOINT_TEXTS_H
#define LTRAIN_CHECKPOINT_TEXTS_H

#include "base/status.h"

/* Those that there are in one directory into another one, by one rank. */
enum status texts_copy(const char *from, const char *to);
/* The same with the files of another tokenizer, a directory's or one file, in place of the model's; NULL: with the
 * model's own; "": with none. */
enum status texts_gather(const char *model, const char *tokenizer, const char *to);
/* Whether a file of this name is one of them. */
int texts_has(const char *name);
/* Of a tokenizer that is among them nothing of a former one is left beside it. */
enum status texts_move(const char *from, const char *to);

#endif
