/* A corpus as its files see it: opening (corpus.c), as text (corpus_text.c), sequences (corpus_read.c). Private to this folder. */
#ifndef LTRAIN_DATA_CORPUS_PARTS_H
#define LTRAIN_DATA_CORPUS_PARTS_H

#include "data/corpus.h"
#include "data/order.h"
#include "data/stream.h"

/* A sequence as it was read. */
struct kept {
    int source; /* -1: nothing is kept here */
    int64_t number;
    int32_t *tokens, *targets;
};

/* Of the tokenizer; ids 0: none. */
struct tokenizer_print {
    uint64_t hash;
    int64_t ids;
    const char *name; /* of its file, without the directory: static */
};

/* Files that are packed together. */
struct source {
    struct stream *files;
    struct packing *packing;
    int64_t train_below; /* as the longest sequences hold out what is behind it; 0: nothing is, or nothing is packed yet */
    double weight;
    const char *name; /* as it was given, owned */
};

struct corpus {
    struct tokenizer_print tokenizer;
    struct source *sources, eval; /* eval: of eval_paths, or without files; evaluation sequences, if any, are then the last ones of the sources */
    int n_sources;
    unsigned holds; /* HOLDS_*, of all sources and of eval */
    char foreign[64]; /* a token of the chat template that is none of the tokenizer's; "": there is none */
    int bare_bytes; /* of an id in files without a header; 0: there are none */
    struct mixture *mixture;
    enum packing_kind packing;
    enum too_long too_long;
    double eval_fraction;
    int64_t seq_len;
    int64_t longest;  /* seq_len as it was opened */
    int64_t surveyed; /* tokens that the entropy is of */
    int64_t given_window, window; /* given_window: 0 if there is none; window: at most seq_len */
    uint64_t seed;
    struct corpus_report report;
    struct kept *kept; /* the next one is written over first */
    int64_t n_kept, next_kept;
    int32_t *kept_tokens;
};

/* Tokens of the sources' streams that are trained, those between them that are left out included. */
int64_t corpus_trained_of(const struct corpus *c, const struct source *s);
int64_t corpus_trained_tokens(const struct corpus *c);

/* All is read from files of bytes. */
int corpus_is_bytes(const struct corpus *c);
/* Whether corpus_remember has left in the file what reading would give; it is in the report then. */
int corpus_is_remembered(struct corpus *c, const char *path);

#endif
