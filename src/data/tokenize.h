/* Documents to a file of tokens, on several threads. Private to this folder. */
#ifndef LTRAIN_DATA_TOKENIZE_H
#define LTRAIN_DATA_TOKENIZE_H

#include "base/status.h"
#include "data/chats.h"
#include "data/documents.h"
#include "data/token_file.h"
#include "text/tokenizer.h"

/* The tokens of all documents, each between what the tokenizer's template puts before and behind it: from the file of a former run
 * in `dir` if the documents are still those, else they are read and one is made, in as much memory as a few megabytes a thread (or
 * the largest document, where the tokenizer does not allow to cut one). The fingerprints of the documents are known afterwards.
 * cached: whether a former run's file was taken.
 *
 * A .jsonl file whose first line is a conversation holds one a line (data/chats.h), each of them a document. A token of theirs that is
 * not trained has its id + tokenizer_ids, so that ids are below twice as many where there are such files. chats may be NULL, or without
 * a template: then such a file is an error that says so. */
enum status tokenize_documents(struct documents *d, const struct tokenizer *t, const struct chat_setup *chats, const char *dir, int threads,
                               struct token_file **out, int *cached);

#endif
