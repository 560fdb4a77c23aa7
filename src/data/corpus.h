/* Text to training sequences: documents, tokens, packing, held-out split, deterministic order. */
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
    int64_t documents, bytes; /* training and evaluation data together; empty files do not count */
    int64_t repaired;         /* broken characters of the text that became U+FFFD; of bytes: 0 */
    const char *repaired_path; /* a file with many of them; NULL: there are none */
    int cached;               /* all tokens are a former run's */
    int64_t tokens;           /* of all documents */
    int64_t empty;            /* files and rows without a token, which are no documents */
    int64_t left_out;         /* files that `exclude` leaves out */
    struct chat_counts chats; /* of all conversations */
    struct packing_report packed; /* of all sources; its numbers of sequences and targets are not counted */
    int64_t train_sequences, eval_sequences;
    double unigram_entropy;   /* nats per token of the training part */
    int64_t json_rows;        /* files named .json in directories that hold rows and are read as texts */
    const char *json_path;    /* one of them */
    const char *read_twice, *evaluated_too; /* a file that two sources have, and one that is in eval_paths, too; or NULL */
    const char *foreign_token; /* that the chat template writes and the tokenizer has not, or NULL */
    int remembered;           /* no file was read, as all are those of an earlier start */
};

struct corpus_config {
    const char *const *paths; /* files, directories (recursive, sorted by path), globs */
    int n_paths;
    struct exclusion *exclude; /* files of paths and eval_paths that are left out; a pattern that matches none is an error; or NULL */
    const double *weights;         /* [n_paths]: each path is a source of its own, with that share of the tokens (any scale); NULL: all
                                    * are one source */
    const char *const *eval_paths; /* or none */
    int n_eval_paths;
    double eval_fraction;     /* of each source, its last documents; 0: none */
    int64_t seq_len;          /* the longest that sequences will have (corpus_cut) */
    enum packing_kind packing;
    enum too_long too_long;
    int64_t vocab;            /* of the model: fewer than the tokenizer's ids is an error, fewer than 256 where bytes are read */
    const struct tokenizer *tokenizer; /* of the texts; NULL: their bytes are the tokens. Not kept */
    const struct chat_setup *chats; /* how rows of conversations are read, or NULL. Not kept */
    const char *cache;        /* directory of tokens that a tokenizer has made, for the next run */
    int token_bytes;          /* of an id in files of tokens without a header: 2, 4; 0: such files are refused */
    const char *column;       /* of rows of .jsonl files: the member that is the text; NULL: "text" */
    int append_eos;           /* texts end with the tokenizer's eos, unless they do so already; it needs one */
    int threads;              /* that tokenize */
    uint64_t seed;            /* of the order */
    const char *known;        /* a file that corpus_remember may have left; NULL: none */
    int64_t window;           /* sliding: a query attends that many keys at most, its own included; 0: its whole document before it */
};

/* Documents are files, rows of .jsonl files, or what files of tokens have as such; hidden files below a given directory are left out,
 * one named twice counts once. Documents are packed (data/packing.h) in the order of the paths. Errors (ERR_INVALID, one sentence): a
 * path that matches nothing, an unreadable or empty file set, data of which nothing can be trained. All files are read once here, for
 * their fingerprints, and then where they lie, sequence by sequence (memory grows with documents, not with their lengths); one that
 * changes meanwhile is an error of the read that meets it. Nothing depends on directory order or on how a path is spelled. */
enum status corpus_open(const struct corpus_config *config, struct corpus **out);
void corpus_close(struct corpus *c);
/* What kinds of files are among all paths (HOLDS_* of data/stream.h), of which there may be none. Errors as of corpus_open. */
enum status corpus_look(const struct corpus_config *config, unsigned *holds);
/* Leaves in a file what reading the data has given, for corpus_open: it is taken from there as long as paths, sizes, inodes, times of
 * modification and of change (in ns) are the same, and as many tokens are trained. Where a later change of a file might not show by
 * them nothing is left. ERR_IO, ERR_NOMEM. */
enum status corpus_remember(const struct corpus *c, const char *path);
/* Is told of files that were touched while the run goes on, and are read again as a whole; must outlive the corpus. */
void corpus_tell(struct corpus *c, const struct rereading *r);
/* Packs the documents into sequences of another length from here on, at most that of corpus_open. What is held out stays so, whatever
 * the length. Errors as of corpus_open, whose length never fails. */
enum status corpus_cut(struct corpus *c, int64_t seq_len);
int64_t corpus_get_length(const struct corpus *c);
const struct corpus_report *corpus_get_report(const struct corpus *c);
struct stream;
struct corpus_source {
    const char *name;
    double weight;
    const struct stream *documents; /* data/stream.h */
    const struct packing_report *packed;
    int64_t train_end; /* tokens of the stream from here on are held out */
};
int corpus_sources(const struct corpus *c);
struct corpus_source corpus_get_source(const struct corpus *c, int i);
/* Of eval_paths; without documents: there are none. All of its sequences are held out, though it counts them as trained. */
struct corpus_source corpus_get_held_out(const struct corpus *c);
/* How often the source's sequences have been trained once `cursor` of all have. */
double corpus_epochs(const struct corpus *c, int source, uint64_t cursor);
/* What a run is trained on, as text: a line for how many sequences there are and one for how they are packed, and one for each file,
 * in the order of the stream (data/fingerprint.h): "data ..." and, of eval_paths, "eval-data ...". */
enum status corpus_write_contents(const struct corpus *c, FILE *f);
/* How such a text says that the data are cut; 0: it does not say it. */
struct corpus_layout {
    long long train_sequences, eval_sequences, seq_len;
    long long trained_below; /* tokens of all sources that may be trained */
    int bare_bytes;          /* of an id in files without a header; 0: there are none */
    char packing[2048];      /* how documents are packed and mixed, as a text */
};
int corpus_read_layout(const char *text, struct corpus_layout *out);

/* The n training sequences that were taken last are kept, so that taking them again reads no file. ERR_NOMEM. */
enum status corpus_keep(struct corpus *c, int64_t n);
/* Whether the files that evaluation reads are still those that corpus_open read; errors as of reading them. */
enum status corpus_check_eval(const struct corpus *c);

/* One packed sequence. All arrays [seq_len], owned by the caller. Global token numbers are 0 .. seq_len-1. */
struct sequence {
    int32_t *tokens;
    int32_t *targets;   /* next token of the same document, also beyond the sequence's end; -1 for a document's last token, and where the
                         * next token is held out, cut off or not trained */
    int32_t *positions; /* restart at each document */
    int32_t *lo, *hi;   /* attended keys: document start, or own number - window + 1 where that is later, .. own number; non-decreasing */
    int64_t n_targets;
    int64_t n_tokens;   /* those behind are padding: token 0, no target, attends to itself alone */
    double pairs;       /* sum of hi - lo + 1, without padding's */
};

/* Both read files; from one thread at a time once sequences are kept, else from several. ERR_IO, ERR_CORRUPT (a file is not the one
 * that corpus_open read). The cursor is state: the number of training sequences taken so far. Sequence `cursor` of the endless
 * deterministic order: of sources by weight, of each a fresh seeded permutation per epoch; found in constant time. */
enum status corpus_train_sequence(struct corpus *c, uint64_t cursor, struct sequence *out);
enum status corpus_eval_sequence(const struct corpus *c, int64_t index, struct sequence *out);

#endif
