/* Documents as one stream of tokens: the bytes of the texts, or the tokens that a tokenizer makes of them. */
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
    const char *key; /* name of the list of paths in messages ("--data") */
    const char *const *paths;
    int n_paths;
    struct exclusion *exclude;         /* files that are left out, or NULL */
    const struct tokenizer *tokenizer; /* NULL: the bytes of the texts are the tokens */
    const struct chat_setup *chats;    /* settings of how conversations are read, or NULL */
    const char *cache;                 /* directory where files of tokens are kept for later runs */
    const char *column;                /* key of the member of .jsonl rows that is the text */
    int append_eos;                    /* 1: texts end with the tokenizer's eos, which must exist */
    int64_t vocab;                     /* bound of ids in files of ids, if there is no tokenizer: all are below */
    int token_bytes;                   /* bytes of an id in files of ids without a header; 0: such files are refused */
    int threads;
};

/* Kinds of files in a stream, as bits. */
enum {
    HOLDS_ROWS = 1,     /* rows of texts, in .jsonl files */
    HOLDS_CHATS = 2,    /* conversations, in .jsonl files */
    HOLDS_BARE_IDS = 4, /* ids without a header */
    HOLDS_TEXTS = 16,   /* texts, as files or as rows; without a tokenizer their bytes are read */
    HOLDS_TOKENS = 8,   /* any file whose tokens are kept in a file of tokens for later runs: all but texts read as bytes */
};
/* Finds the kinds of files (*holds: HOLDS_*) by their names and first bytes, without reading them. */
enum status stream_look(const struct stream_config *config, unsigned *holds);

/* Opens a stream. With a tokenizer all files are read here, unless a former run has left their tokens in the cache. */
enum status stream_open(const struct stream_config *config, struct stream **out);
void stream_close(struct stream *s);

int64_t stream_documents(const struct stream *s);
int64_t stream_tokens(const struct stream *s);
int64_t stream_text_bytes(const struct stream *s);
/* Counts the broken characters of the text; *most: the file with the most of them. */
int64_t stream_repaired(const struct stream *s, const char **most);
int64_t stream_empty(const struct stream *s);    /* files and rows that have no token and are no documents */
int64_t stream_left_out(const struct stream *s); /* number of files that patterns leave out */
/* Counts the files that hold rows but are read as whole texts; *first: one of them, or NULL. */
int64_t stream_json_rows(const struct stream *s, const char **first);
struct chat_counts stream_chats(const struct stream *s); /* totals of the stream's conversations */
int stream_is_cached(const struct stream *s);            /* 1: the tokens come from a former run */
int stream_is_masked(const struct stream *s);            /* 1: some tokens are not trained */
int stream_is_bytes(const struct stream *s);             /* 1: read from the files' bytes, without a file of tokens */
unsigned stream_holds(const struct stream *s);           /* kinds of the files, as bits HOLDS_* */
/* Refuses texts read as bytes if the vocabulary has fewer than 256 ids: ERR_INVALID. */
enum status stream_check_bytes(const struct stream_config *config, const struct stream *s);
int stream_has_ids(const struct stream *s); /* 1: ids come from files of ids, and there is no tokenizer that says what ids mean */
int64_t stream_ids(const struct stream *s); /* bound of ids: all are below */

/* Reads the files once, in order, for their fingerprints, if their bytes are the tokens. Adds to counts [ids] (may be NULL) how
 * often each id is among the first n tokens. Must come before the first stream_read. */
enum status stream_survey(struct stream *s, int64_t n, int64_t *counts);
/* Recalls or writes the results of an earlier start's reading (documents_recall, documents_write_known), for streams of bytes
 * only. */
int stream_recall(struct stream *s, const char *kind, const char **text);
int stream_write_known(const struct stream *s, const char *kind, FILE *f);
/* Makes r hear of each file that is read again as a whole. */
void stream_tell(struct stream *s, const struct rereading *r);
/* Returns the path of a file that both streams have, or NULL. */
const char *stream_common(const struct stream *a, const struct stream *b);
/* Prints a line for each file, with its fingerprint (data/fingerprint.h). */
void stream_print(const struct stream *s, const char *kind, FILE *f);

/* Returns the document holding token `at`, 0 <= at < tokens; document i is tokens [first, end). */
int64_t stream_find(const struct stream *s, int64_t at);
int64_t stream_first(const struct stream *s, int64_t i);
int64_t stream_end(const struct stream *s, int64_t i);
/* Returns the path of document i's file. *number: the document's number within the file, from 1 on. */
const char *stream_where(const struct stream *s, int64_t i, int64_t *number);
/* Reads tokens [at, at + n); a token that is not trained is given as -1 - id. *next: the token behind the last one in the same
 * document; negative: there is none, or it is not trained. ERR_CORRUPT: the files are not those that stream_survey read. From any
 * thread. */
enum status stream_read(const struct stream *s, int64_t at, int64_t n, int32_t *out, int32_t *next);
/* Makes sure, without reading, that stream_read could read these tokens. */
enum status stream_check(const struct stream *s, int64_t at, int64_t n);

#endif
