/* The inside of a corpus, shared by its files: opening (corpus.c), as text (corpus_text.c), sequences (corpus_read.c). Private to
 * this folder. */
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
    int64_t train_below; /* token from which the longest sequences hold out; 0: nothing is held out, or nothing is packed yet */
    double weight;
    const char *name; /* name as given, owned */
};

struct corpus {
    struct tokenizer_print tokenizer;
    /* eval: the source of eval_paths, or without files; evaluation sequences, if any, are then the last ones of the sources */
    struct source *sources, eval;
    int n_sources;
    unsigned holds;   /* HOLDS_*, of all sources and of eval */
    char foreign[64]; /* token of the chat template that the tokenizer lacks; "": there is none */
    int bare_bytes;   /* bytes of an id in files without a header; 0: there are none */
    struct mixture *mixture;
    enum packing_kind packing;
    enum too_long too_long;
    double eval_fraction;
    int64_t seq_len;
    int64_t longest;              /* seq_len as it was opened */
    int64_t surveyed;             /* number of tokens that the entropy is of */
    int64_t given_window, window; /* given_window: 0: none; window: at most seq_len */
    uint64_t seed;
    struct corpus_report report;
    struct kept *kept; /* ring: the entry at next_kept is overwritten next */
    int64_t n_kept, next_kept;
    int32_t *kept_tokens;
};

/* Counts tokens of a source's stream, or of all, that are trained; tokens in between that are left out count, too. */
int64_t corpus_trained_of(const struct corpus *c, const struct source *s);
int64_t corpus_trained_tokens(const struct corpus *c);

/* Tells whether the file of corpus_remember has the results of reading, and puts these into the report. */
int corpus_is_remembered(struct corpus *c, const char *path);

#endif
