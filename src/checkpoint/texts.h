/* Copying the files beside config.json that say how a model is used: tokenizer, chat template, generation. Private to this
 * folder. */
#ifndef LTRAIN_CHECKPOINT_TEXTS_H
#define LTRAIN_CHECKPOINT_TEXTS_H

#include "base/status.h"

/* Copies those of the files that exist from one directory to another (one rank only). */
enum status texts_copy(const char *from, const char *to);
/* Copies the files, with another tokenizer in place of the model's. tokenizer: directory or file of that tokenizer; NULL: the
 * model's own; "": none. */
enum status texts_gather(const char *model, const char *tokenizer, const char *to);
/* Tells whether texts_copy copies files of this name. */
int texts_has(const char *name);
/* Moves the text files; if a tokenizer's are among them, removes all files of the former tokenizer. */
enum status texts_move(const char *from, const char *to);

#endif
