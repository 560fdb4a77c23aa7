/* The inside of a corpus, shared by the files that open a corpus (corpus.c), write it as text (corpus_text.c) and read sequences
 * (corpus_read.c). Private to this folder. */
#ifndef LTRAIN_DATA_CORPUS_PARTS_H
#define LTRAIN_DATA_CORPUS_PARTS_H

#include "data/corpus.h"
#include "data/order.h"
#include "data/stream.h"

/* A sequence kept in memory after it was read. */
struct kept {
    int source; /* -1: nothing is kept here */
    int64_t number;
    int32_t *tokens, *targets;
};

/* Identity of the tokenizer; ids 0: there is none. */
struct tokenizer_print {
    uint64_t hash;
    int64_t ids;
    const char *name; /* name of its file, without the directory; static */
};

/* Files that are packed together. */
struct source {
    struct stream *files;
    struct packing *packing;
    /* first held-out token as found for the longest sequences, which other lengths keep; 0: nothing is held out, or not yet known */
    int64_t train_below;
    double weight;
    const char *name; /* name as given, owned */
};

struct corpus {
    struct tokenizer_print tokenizer;
    /* eval: the source of eval_paths; without files if eval_paths is empty, and then the evaluation sequences are the last ones
     * of `sources` */
    struct source *sources, eval;
    int n_sources;
    unsigned holds;   /* kinds of files of all sources and of eval: HOLDS_* */
    char foreign[64]; /* token of the chat template that the tokenizer lacks; "": there is none */
    int bare_bytes;   /* bytes of an id in files without a header; 0: there are none */
    struct mixture *mixture;
    enum packing_kind packing;
    enum too_long too_long;
    double eval_fraction;
    int64_t seq_len;
    int64_t longest;              /* seq_len that was given to corpus_open */
    int64_t surveyed;             /* number of tokens whose frequencies give the report's unigram_entropy */
    int64_t given_window, window; /* given_window: as configured, 0: none; window: most keys of a query in sequences of seq_len */
    uint64_t seed;
    struct corpus_report report;
    struct kept *kept; /* ring: the entry at next_kept is overwritten next */
    int64_t n_kept, next_kept;
    int32_t *kept_tokens;
};

/* Counts the tokens before the held-out part of one source, or of all sources; tokens in between that packing leaves out count,
 * too. */
int64_t corpus_trained_of(const struct corpus *c, const struct source *s);
int64_t corpus_trained_tokens(const struct corpus *c);

/* Tells whether the file of corpus_remember has the results of reading these very files. If so, puts the results into the report. */
int corpus_is_remembered(struct corpus *c, const char *path);

#endif
