/* Documents to a file of tokens, on several threads. Private to this folder. */
#ifndef LTRAIN_DATA_TOKENIZE_H
#define LTRAIN_DATA_TOKENIZE_H

#include "base/status.h"
#include "data/chats.h"
#include "data/documents.h"
#include "data/kinds.h"
#include "data/token_file.h"
#include "text/tokenizer.h"

struct tokenize_config {
    const struct tokenizer *tokenizer; /* NULL: texts are their bytes */
    const struct chat_setup *chats; /* how conversations are read; NULL, or without a template: a file that holds some is an error */
    const char *column;             /* of rows of .jsonl files: the text; NULL: "text" */
    int append_eos;                 /* texts, and rows of them, end with the tokenizer's eos; it needs one */
    const char *dir;
    int64_t vocab;   /* ids of files of ids are below it where there is no tokenizer */
    int token_bytes; /* of those without a header */
    int threads;
};

/* kinds: of each file (kinds_find). The tokens of all documents, each between what the tokenizer's template puts before and behind it: from the file of a former run
 * in `dir` if the documents are still those, else they are read and one is made, in as much memory as a few megabytes a thread (or
 * the largest document, where the tokenizer does not allow to cut one). The fingerprints of the documents are known afterwards.
 * cached: whether a former run's file was taken.
 *
 * Rows of .jsonl files are documents: texts, conversations, or ids (data/lines.h). A token of the latter two that is not trained has
 * its id + tokenizer_ids (or vocab), so that ids are below twice as many where there are such rows. */
enum status tokenize_documents(struct documents *d, const struct tokenize_config *config, const struct file_kind *kinds, struct token_file **out,
                               int *cached);

#endif
