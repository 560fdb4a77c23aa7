/* End tokens of a result: those that its chats were taught to end with. Private to src/train. */
#ifndef LTRAIN_TRAIN_ENDS_H
#define LTRAIN_TRAIN_ENDS_H

#include "data/chats.h"
#include "data/corpus.h"
#include "text/tokenizer.h"

/* Adds the tokens that end trained turns to eos_token_id of the generation_config.json in `dir`, and says so. Makes the file if
 * absent; leaves the file alone if all tokens are there. adapter: 1: the result is an adapter, which is exported without this
 * file. ERR_INVALID: a broken file. */
enum status ends_keep(const struct chat_counts *chats, const struct tokenizer *t, const char *dir, int adapter);

/* Remarks that documents of ids end at one token that is no eos of the model whose files are in `dir`: its result would not stop
 * there. Looks at a few documents of a source that holds nothing else. t: names the token; or NULL. */
enum status ends_remark(const struct corpus_source *source, const struct tokenizer *t, const char *dir);

#endif
