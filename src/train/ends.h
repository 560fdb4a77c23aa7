/* Where a result's texts end: at the tokens that its chats were taught to end with. Private to src/train. */
#ifndef LTRAIN_TRAIN_ENDS_H
#define LTRAIN_TRAIN_ENDS_H

#include "data/chats.h"
#include "text/tokenizer.h"

/* Adds the tokens that end trained turns to eos_token_id of the generation_config.json in `dir`, which is made where there is none, and says
 * so. adapter: 1: of adapters, which take no such file along. Nothing is written where all are there. ERR_INVALID: a broken file. */
enum status ends_keep(const struct chat_counts *chats, const struct tokenizer *t, const char *dir, int adapter);

#endif
