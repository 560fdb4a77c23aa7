/* Documents as one stream of tokens: their bytes, or what a tokenizer makes of their texts. */
#ifndef LTRAIN_DATA_STREAM_H
#define LTRAIN_DATA_STREAM_H

#include "base/status.h"
#include "data/chats.h"
#include "data/exclude.h"
#include "data/fingerprint.h"
#include "text/tokenizer.h"

#include <stdint.h>
#include <stdio.h>

struct stream;

struct stream_config {
    const char *key; /* what messages call it ("--data") */
    const char *const *paths;
    int n_paths;
    struct exclusion *exclude;         /* files that are left out, or NULL */
    const struct tokenizer *tokenizer; /* NULL: bytes */
    const struct chat_setup *chats;    /* how conversations are read, or NULL */
    const char *cache;                 /* where tokens are kept */
    const char *column;                /* of rows of .jsonl files: the text */
    int append_eos;                    /* behind texts; it needs a tokenizer with an eos */
    int64_t vocab;                     /* ids of files of tokens are below it where there is no tokenizer */
    int token_bytes;                   /* of an id in files of tokens without a header; 0: such files are refused */
    int threads;
};

/* What kinds of files there are. */
enum {
    HOLDS_ROWS = 1,     /* of texts, in .jsonl files */
    HOLDS_CHATS = 2,    /* conversations, in .jsonl files */
    HOLDS_BARE_IDS = 4, /* ids without a header */
    HOLDS_TEXTS = 16,   /* texts, as files or as rows; without a tokenizer their bytes are read */
    HOLDS_TOKENS = 8,   /* what is kept as tokens for the next run: all but files whose bytes are read */
};
/* Of files as they are named and begin; what they say is not read. *holds: HOLDS_*. */
enum status stream_look(const struct stream_config *config, unsigned *holds);

/* With a tokenizer all is read here, unless a former run has left the tokens. */
enum status stream_open(const struct stream_config *config, struct stream **out);
void stream_close(struct stream *s);

int64_t stream_documents(const struct stream *s);
int64_t stream_tokens(const struct stream *s);
int64_t stream_text_bytes(const struct stream *s);
int64_t stream_repaired(const struct stream *s, const char **most); /* broken characters of the text, and the file with the most of them */
int64_t stream_empty(const struct stream *s);    /* files and rows that have no token and are no documents */
int64_t stream_left_out(const struct stream *s); /* number of files that patterns leave out */
int64_t stream_json_rows(const struct stream *s, const char **first); /* files read as texts that hold rows; *first: NULL, or one */
struct chat_counts stream_chats(const struct stream *s); /* of conversations in it */
int stream_is_cached(const struct stream *s);    /* a former run's tokens */
int stream_is_masked(const struct stream *s);    /* some tokens are not trained */
int stream_is_bytes(const struct stream *s);     /* no file of tokens is between */
unsigned stream_holds(const struct stream *s);   /* HOLDS_* */
/* ERR_INVALID: texts would be read as bytes, and the vocabulary has no row for some. */
enum status stream_check_bytes(const struct stream_config *config, const struct stream *s);
int stream_has_ids(const struct stream *s);      /* they come from files, and no tokenizer says what they mean */
int64_t stream_ids(const struct stream *s);      /* ids are below it */

/* Reads bytes once, in order, for their fingerprints. counts [ids], may be NULL: how often each id is among the first n tokens is added. Before the
 * first stream_read. */
enum status stream_survey(struct stream *s, int64_t n, int64_t *counts);
/* Of bytes: what an earlier start has read (documents_recall, documents_write_known). */
int stream_recall(struct stream *s, const char *kind, const char **text);
int stream_write_known(const struct stream *s, const char *kind, FILE *f);
/* Who is told of files that are read again. */
void stream_tell(struct stream *s, const struct rereading *r);
/* A file that both have, or NULL. */
const char *stream_common(const struct stream *a, const struct stream *b);
/* A line for each file (data/fingerprint.h). */
void stream_print(const struct stream *s, const char *kind, FILE *f);

/* The document holding token `at`, 0 <= at < tokens; document i is tokens [first, end). */
int64_t stream_find(const struct stream *s, int64_t at);
int64_t stream_first(const struct stream *s, int64_t i);
int64_t stream_end(const struct stream *s, int64_t i);
/* The file that document i is in, and which of the file's documents it is, from 1 on. */
const char *stream_where(const struct stream *s, int64_t i, int64_t *number);
/* Tokens [at, at + n), those that are not trained as -1 - id; *next: the one behind them in the same document, negative: none, or none that is trained. ERR_CORRUPT: what is read is not what was surveyed.
 * From any thread. */
enum status stream_read(const struct stream *s, int64_t at, int64_t n, int32_t *out, int32_t *next);
/* Whether stream_read could read these tokens, without reading them. */
enum status stream_check(const struct stream *s, int64_t at, int64_t n);

#endif
