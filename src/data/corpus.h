/* A corpus: documents turned into tokens and packed into training sequences, with a held-out part and a deterministic order. */
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
    int64_t repaired;             /* broken UTF-8 characters of texts that became U+FFFD; 0 where the bytes are the tokens */
    const char *repaired_path;    /* a file with many of them; NULL: there are none */
    int cached;                   /* 1: all tokens come from files that a former run has left in the cache */
    int64_t tokens;               /* number in all documents */
    int64_t empty;                /* files and rows without a token, which are no documents */
    int64_t left_out;             /* files that `exclude` leaves out */
    struct chat_counts chats;     /* totals of all conversations; `ends` has the tokens of --data's conversations only */
    struct packing_report packed; /* totals of all sources; its numbers of sequences and of targets are not set */
    int64_t train_sequences, eval_sequences;
    double unigram_entropy; /* entropy of the training part's token frequencies, in nats per token */
    int64_t json_rows;      /* files named .json, found in directories, that hold rows but are read as whole texts */
    const char *json_path;  /* one of the files that json_rows counts */
    /* a file that two sources have, and a file of a source that is in eval_paths, too; NULL: none */
    const char *read_twice, *evaluated_too;
    const char *foreign_token; /* token that the chat template writes and the tokenizer lacks, or NULL */
    int remembered;            /* 1: no file was read, as an earlier start has left the results of reading the same files */
};

struct corpus_config {
    const char *const *paths; /* files, directories (recursive, sorted by path), globs */
    int n_paths;
    /* patterns of files of paths and eval_paths that are left out; a pattern that matches none is an error; or NULL */
    struct exclusion *exclude;
    /* [n_paths]: each path is a source of its own, with that share of the tokens (any scale); NULL: all are one source */
    const double *weights;
    const char *const *eval_paths; /* files that are only evaluated; NULL: none */
    int n_eval_paths;
    double eval_fraction; /* share of each source's tokens that is held out, at the source's end; 0: none */
    int64_t seq_len;      /* most tokens of a sequence; corpus_cut chooses fewer later */
    enum packing_kind packing;
    enum too_long too_long;
    /* rows of the model's vocabulary; an error if below the tokenizer's number of ids, or below 256 where bytes are read */
    int64_t vocab;
    const struct tokenizer *tokenizer; /* tokenizer of the texts; NULL: their bytes are the tokens. Not kept */
    const struct chat_setup *chats;    /* settings of how rows of conversations are read, or NULL. Not kept */
    const char *cache;                 /* directory for files of tokens, which later runs find and use again */
    int token_bytes;                   /* bytes of an id in files of tokens without a header: 2, 4; 0: such files are refused */
    const char *column;                /* key of the member of .jsonl rows that is the text; NULL: "text" */
    int append_eos;    /* 1: the tokenizer's eos, which must exist, is put behind each text that does not end with it */
    int threads;       /* number of threads that tokenize */
    uint64_t seed;     /* seed of the order */
    const char *known; /* file in which corpus_remember may have left the results of reading; NULL: none */
    /* sliding window: most keys that a query attends to, its own included; 0: all keys of its document up to its own */
    int64_t window;
};

/* Opens a corpus. Documents are files, rows of .jsonl files, or the documents within files of tokens. Hidden files below a given
 * directory are left out; a file named twice counts once. Documents are packed (data/packing.h) in the order of the paths.
 *
 * All files are read once here, for their fingerprints; later each sequence is read from them when it is needed. Memory grows
 * with the number of documents, not with their lengths. Reading a file that has changed meanwhile is an error. Results depend
 * neither on the order of files in directories nor on how a path is spelled.
 *
 * ERR_INVALID, with one sentence: a path matches nothing, files are unreadable or all empty, or nothing in the data can be
 * trained. */
enum status corpus_open(const struct corpus_config *config, struct corpus **out);
void corpus_close(struct corpus *c);
/* Finds the kinds of files among all paths (*holds: HOLDS_* of data/stream.h), without reading the files as a whole. Errors as
 * corpus_open's; no file at all is none. */
enum status corpus_look(const struct corpus_config *config, unsigned *holds);
/* Writes the results of reading the data to a file, which corpus_open uses as long as the data's paths, sizes, inodes, times of
 * modification and of change (in ns) and the number of trained tokens stay the same. Writes nothing if a later change of some
 * file might not show in these. ERR_IO, ERR_NOMEM. */
enum status corpus_remember(const struct corpus *c, const char *path);
/* Makes r hear of each file that has been touched during the run and is therefore read again as a whole. r must outlive the
 * corpus. */
void corpus_tell(struct corpus *c, const struct rereading *r);
/* Packs the documents anew into sequences of another length, at most the one given to corpus_open. The held-out part stays the
 * same. Errors as corpus_open's; going back to that first length never fails. */
enum status corpus_cut(struct corpus *c, int64_t seq_len);
int64_t corpus_get_length(const struct corpus *c);
const struct corpus_report *corpus_get_report(const struct corpus *c);
struct stream;
struct corpus_source {
    const char *name;
    double weight;
    const struct stream *documents; /* data/stream.h */
    const struct packing_report *packed;
    int64_t train_end; /* number of the first token of the stream that is held out */
};
int corpus_sources(const struct corpus *c);
struct corpus_source corpus_get_source(const struct corpus *c, int i);
/* Returns the source of eval_paths; its `documents` is NULL if there is none. All its sequences are held out, though its report
 * counts them as trained. */
struct corpus_source corpus_get_held_out(const struct corpus *c);
/* Returns how often all sequences of the source have been trained after `cursor` sequences of the whole corpus. */
double corpus_epochs(const struct corpus *c, int source, uint64_t cursor);
/* Writes the contents of the corpus as text: a line for the numbers of sequences, one for how they are packed, and one for each
 * file in the order of the stream (data/fingerprint.h): "data ..." or, for eval_paths, "eval-data ...". */
enum status corpus_write_contents(const struct corpus *c, FILE *f);
/* Layout of a corpus in sequences, parsed from a text of corpus_write_contents; corpus_read_layout returns 0 if the text has no
 * such lines. */
struct corpus_layout {
    long long train_sequences, eval_sequences, seq_len;
    long long trained_below; /* number of tokens of all sources before the held-out parts */
    int bare_bytes;          /* bytes of an id in files without a header; 0: there are none */
    char packing[2048];      /* packing and mixing of documents, as text */
};
int corpus_read_layout(const char *text, struct corpus_layout *out);

/* Makes the corpus keep the n training sequences taken last in memory: taking one of them again reads no file. ERR_NOMEM: memory
 * ran out. */
enum status corpus_keep(struct corpus *c, int64_t n);
/* Makes sure that the files of the evaluation are still those that corpus_open read. Errors as those of reading a sequence. */
enum status corpus_check_eval(const struct corpus *c);

/* One packed sequence; all arrays [seq_len], owned by the caller. Tokens are numbered 0 .. seq_len-1. */
struct sequence {
    int32_t *tokens;
    /* next token of the same document, also beyond the sequence's end; -1: the document ends here, or the next token is held out,
     * cut off or not trained */
    int32_t *targets;
    int32_t *positions; /* number of each token in its document's part in this sequence, from 0 */
    /* attended keys lo .. hi of each token: from its document's start, or from own number - window + 1 if that is later, to its own
     * number; both non-decreasing */
    int32_t *lo, *hi;
    float *weights; /* factor of each token's loss; NULL: there are none. A corpus leaves them alone */
    int64_t n_targets;
    int64_t n_tokens; /* number of tokens before the padding; a padding token is 0, has no target and attends to itself alone */
    double pairs;     /* attended pairs of query and key: the sum of hi - lo + 1 over n_tokens */
};

/* Reads a sequence from files: the training sequence number `cursor` of an endless deterministic order, or an evaluation
 * sequence.
 *
 * The order's whole state is the cursor, the number of sequences taken so far. The order mixes sources by weight and permutes
 * each source anew in every epoch by the seed; a sequence's place is found in constant time.
 *
 * May be called from several threads, but from one at a time after corpus_keep. ERR_IO; ERR_CORRUPT: a file is not the one that
 * corpus_open read. */
enum status corpus_train_sequence(struct corpus *c, uint64_t cursor, struct sequence *out);
enum status corpus_eval_sequence(const struct corpus *c, int64_t index, struct sequence *out);

#endif
