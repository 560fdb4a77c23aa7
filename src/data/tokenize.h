/* Turning documents into a file of tokens, on several threads. Private to this folder. */
#ifndef LTRAIN_DATA_TOKENIZE_H
#define LTRAIN_DATA_TOKENIZE_H

#include "base/status.h"
#include "data/chats.h"
#include "data/documents.h"
#include "data/kinds.h"
#include "data/token_file.h"
#include "text/tokenizer.h"

struct tokenize_config {
    const struct tokenizer *tokenizer; /* NULL: the bytes of texts are the tokens */
    /* settings of how conversations are read; NULL, or without a template: a file of conversations is an error */
    const struct chat_setup *chats;
    const char *column; /* key of the member of .jsonl rows that is the text; NULL: "text" */
    int append_eos;     /* 1: texts, in rows too, end with the tokenizer's eos, which must exist */
    const char *dir;
    int64_t vocab;   /* bound of ids in files of ids, if there is no tokenizer: all are below */
    int token_bytes; /* bytes of an id in files without a header */
    int threads;
};

/* Makes or finds the tokens of all documents, each between the ids that the tokenizer's template puts before and behind. kinds:
 * kind of each file (kinds_find).
 *
 * Opens a former run's file of tokens in `dir` if the documents are unchanged (*cached = 1); else reads the documents and makes
 * such a file. Memory: a few megabytes a thread, or the largest document's size if the tokenizer cannot cut it. Afterwards the
 * documents' fingerprints are known.
 *
 * Rows of .jsonl files are documents: texts, conversations, or ids (data/lines.h). In the latter two a token that is not trained
 * is stored as id + N, N being tokenizer_ids (or vocab); stored ids are then below 2 N. */
enum status tokenize_documents(struct documents *d, const struct tokenize_config *config, const struct file_kind *kinds,
                               struct token_file **out, int *cached);

#endif
