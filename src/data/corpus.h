/* A corpus: text as training sequences, by documents, tokens, packing, held-out split and a deterministic order. */
#ifndef LTRAIN_DATA_CORPUS_H
#define LTRAIN_DATA_CORPUS_H

#include "base/status.h"
#include "data/chats.h"
#include "data/exclude.h"
#include "data/fingerprint.h"
#include "data/packing.h"

#include "text/tokenizer.h"

#include <stdint.h>
#include <stdio.h>

struct corpus;

struct corpus_report {
    int64_t documents, bytes;     /* training and evaluation data together; empty files do not count */
    int64_t repaired;             /* broken characters of the text that became U+FFFD; of bytes: 0 */
    const char *repaired_path;    /* a file with many of them; NULL: there are none */
    int cached;                   /* all tokens come from a former run */
    int64_t tokens;               /* number in all documents */
    int64_t empty;                /* files and rows without a token, which are no documents */
    int64_t left_out;             /* files that `exclude` leaves out */
    struct chat_counts chats;     /* totals of all conversations; `ends` are those of --data only */
    struct packing_report packed; /* totals of all sources, without numbers of sequences and targets */
    int64_t train_sequences, eval_sequences;
    double unigram_entropy;                 /* nats per token of the training part */
    int64_t json_rows;                      /* files named .json in directories that hold rows and are read as texts */
    const char *json_path;                  /* one of them */
    const char *read_twice, *evaluated_too; /* a file that two sources have, and one that is in eval_paths, too; or NULL */
    const char *foreign_token;              /* token that the chat template writes and the tokenizer lacks, or NULL */
    int remembered;                         /* no file was read, as all are those of an earlier start */
};

struct corpus_config {
    const char *const *paths; /* files, directories (recursive, sorted by path), globs */
    int n_paths;
    struct exclusion
        *exclude;          /* files of paths and eval_paths that are left out; a pattern that matches none is an error; or NULL */
    const double *weights; /* [n_paths]: each path is a source of its own, with that share of the tokens (any scale); NULL: all
                                    * are one source */
    const char *const *eval_paths; /* or none */
    int n_eval_paths;
    double eval_fraction; /* share of each source that is held out, its last documents; 0: none */
    int64_t seq_len;      /* longest length that sequences will have (corpus_cut) */
    enum packing_kind packing;
    enum too_long too_long;
    /* the model's vocabulary: fewer than the tokenizer's ids is an error; so is fewer than 256 if bytes are read */
    int64_t vocab;
    const struct tokenizer *tokenizer; /* tokenizer of the texts; NULL: their bytes are the tokens. Not kept */
    const struct chat_setup *chats;    /* settings of how rows of conversations are read, or NULL. Not kept */
    const char *cache;                 /* directory of tokens that a tokenizer has made, for the next run */
    int token_bytes;                   /* bytes of an id in files of tokens without a header: 2, 4; 0: such files are refused */
    const char *column;                /* member of rows of .jsonl files that is the text; NULL: "text" */
    int append_eos;    /* texts end with the tokenizer's eos, unless they do so already; the tokenizer must have one */
    int threads;       /* number of threads that tokenize */
    uint64_t seed;     /* seed of the order */
    const char *known; /* file that corpus_remember may have left; NULL: none */
    /* sliding window: a query attends to that many keys at most, its own included; 0: its whole document before it */
    int64_t window;
};

/* Opens a corpus. Documents are files, rows of .jsonl files, or the documents within files of tokens. Hidden files below a given
 * directory are left out; a file named twice counts once. Documents are packed (data/packing.h) in the order of the paths.
 *
 * All files are read once here, for their fingerprints, and later where they lie, sequence by sequence; memory grows with the
 * number of documents, not with their lengths. Reading a file that has changed meanwhile is an error. Nothing depends on
 * directory order or on how a path is spelled.
 *
 * ERR_INVALID, with one sentence: a path matches nothing, files are unreadable or all empty, or nothing in the data can be
 * trained. */
enum status corpus_open(const struct corpus_config *config, struct corpus **out);
void corpus_close(struct corpus *c);
/* Finds the kinds of files among all paths (HOLDS_* of data/stream.h), of which there may be none. Errors as of corpus_open. */
enum status corpus_look(const struct corpus_config *config, unsigned *holds);
/* Writes the results of reading the data to a file for corpus_open. They are used as long as paths, sizes, inodes, times of
 * modification and of change (in ns) and the number of trained tokens stay the same. Writes nothing if these might not show a
 * later change of a file. ERR_IO, ERR_NOMEM. */
enum status corpus_remember(const struct corpus *c, const char *path);
/* Reports to r files that are touched during the run and read again as a whole. r must outlive the corpus. */
void corpus_tell(struct corpus *c, const struct rereading *r);
/* Packs the documents anew into sequences of another length, at most that of corpus_open. The held-out part stays the same.
 * Errors as of corpus_open; that of corpus_open itself never fails. */
enum status corpus_cut(struct corpus *c, int64_t seq_len);
int64_t corpus_get_length(const struct corpus *c);
const struct corpus_report *corpus_get_report(const struct corpus *c);
struct stream;
struct corpus_source {
    const char *name;
    double weight;
    const struct stream *documents; /* data/stream.h */
    const struct packing_report *packed;
    int64_t train_end; /* first token of the stream that is held out */
};
int corpus_sources(const struct corpus *c);
struct corpus_source corpus_get_source(const struct corpus *c, int i);
/* Returns the source of eval_paths; without documents: there are none. All of its sequences are held out, though its report
 * counts them as trained. */
struct corpus_source corpus_get_held_out(const struct corpus *c);
/* Returns how often the source's sequences have been trained once `cursor` of all have. */
double corpus_epochs(const struct corpus *c, int source, uint64_t cursor);
/* Writes the contents of the corpus as text: a line for the numbers of sequences, one for how they are packed, and one for each
 * file in the order of the stream (data/fingerprint.h): "data ..." or, for eval_paths, "eval-data ...". */
enum status corpus_write_contents(const struct corpus *c, FILE *f);
/* Cutting of the data, as told by such a text; corpus_read_layout returns 0 if the text does not tell it. */
struct corpus_layout {
    long long train_sequences, eval_sequences, seq_len;
    long long trained_below; /* number of tokens of all sources that may be trained */
    int bare_bytes;          /* bytes of an id in files without a header; 0: there are none */
    char packing[2048];      /* packing and mixing of documents, as text */
};
int corpus_read_layout(const char *text, struct corpus_layout *out);

/* Keeps the last n training sequences taken, so that taking them again reads no file. ERR_NOMEM: memory ran out. */
enum status corpus_keep(struct corpus *c, int64_t n);
/* Makes sure that the files of evaluation are still those that corpus_open read; errors as of reading them. */
enum status corpus_check_eval(const struct corpus *c);

/* One packed sequence; all arrays [seq_len], owned by the caller. Tokens are numbered 0 .. seq_len-1. */
struct sequence {
    int32_t *tokens;
    int32_t
        *targets; /* next token of the same document, also beyond the sequence's end; -1: the document ends, or the next token is
                         * held out, cut off or not trained */
    int32_t *positions; /* restart at each document */
    int32_t *lo,
        *hi; /* attended keys: document start, or own number - window + 1 where that is later, .. own number; non-decreasing */
    int64_t n_targets;
    int64_t n_tokens; /* number of tokens; those behind are padding: token 0, no target, attends to itself alone */
    double pairs;     /* sum of hi - lo + 1, without padding's */
};

/* Reads a sequence from files: the training sequence number `cursor` of an endless deterministic order, or an evaluation
 * sequence. The cursor, the number of sequences taken so far, is the whole state. The order mixes sources by weight, and permutes
 * each source anew in every epoch by the seed; it is found in constant time. From one thread at a time once sequences are kept,
 * else from several. ERR_IO; ERR_CORRUPT: a file is not the one that corpus_open read. */
enum status corpus_train_sequence(struct corpus *c, uint64_t cursor, struct sequence *out);
enum status corpus_eval_sequence(const struct corpus *c, int64_t index, struct sequence *out);

#endif
