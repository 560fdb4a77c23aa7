/* Filling sequences with the documents of a stream.
 *
 * PACKING_BEST_FIT: the longest documents first, each into the sequence with the least room that is enough (best fit decreasing).
 * Only documents longer than a sequence are cut; what stays free in a sequence is padding. PACKING_CONCAT: all documents one
 * behind the other, cut every seq_len tokens; the tail that fills no sequence is dropped. */
#ifndef LTRAIN_DATA_PACKING_H
#define LTRAIN_DATA_PACKING_H

#include "base/status.h"

#include <stdint.h>

struct stream;
struct packing;

enum packing_kind { PACKING_CONCAT, PACKING_BEST_FIT };

/* Treatment of a document that is longer than a sequence; concat always splits. */
enum too_long { TOO_LONG_SPLIT, TOO_LONG_DROP, TOO_LONG_TRUNCATE, TOO_LONG_REFUSE };

struct packing_config {
    const char *key;    /* the data's name in messages ("--data") */
    const char *source; /* name of this source among several; NULL: there is one */
    enum packing_kind kind;
    enum too_long too_long;
    int64_t seq_len;
    double held_out;     /* share of the tokens that is held out, at the end of the stream; 0: none */
    int64_t train_below; /* first token of the stream that is held out, whatever `held_out` says; 0: `held_out` decides */
};

/* Totals of a packing. Kept, dropped, truncated and untrained tokens together are all tokens of the stream. */
struct packing_report {
    int64_t tokens_kept;      /* tokens that are in a sequence */
    int64_t tokens_dropped;   /* tokens of documents that were dropped as too long; with concat: of the tail */
    int64_t tokens_truncated; /* tokens cut off too long documents, behind the first seq_len ones */
    int64_t tokens_untrained; /* tokens of documents, or parts of documents, that are left out as they have no target */
    int64_t targets;          /* number of targets of all sequences */
    int64_t documents_split, documents_dropped, documents_truncated;
    int64_t train_sequences, eval_sequences;
    int64_t train_tokens; /* tokens in the sequences that are trained */
};

/* Packs a stream; reads its tokens only if some are not trained. Memory: 16 bytes for each document and each part of one, and
 * while packing 4 for each token of a sequence. ERR_INVALID: nothing to train is left, or a document is too long. The stream must
 * outlive *out. */
enum status packing_create(const struct stream *s, const struct packing_config *config, struct packing **out);
void packing_destroy(struct packing *p);
const struct packing_report *packing_get_report(const struct packing *p);
/* Returns the number of the stream's token at which training ends: none from there on is read, not even as a target. */
int64_t packing_train_end(const struct packing *p);
/* Tells whether the last token of a part that ends inside its document has the token behind the part as its target. */
int packing_goes_on(const struct packing *p);

/* Tokens [first, first + n) of the stream, all of one document. */
struct part {
    int64_t first;
    int64_t n;
};

/* Visits the parts of sequence i in turn, from *place = 0 on; returns 0 after the last part. Sequences 0 .. train_sequences - 1
 * are trained, later ones are held out. The parts of a sequence are in the order of the stream. Of several adjacent parts only
 * the last may end inside its document. */
int packing_next(const struct packing *p, int64_t i, int64_t *place, struct part *out);

#endif
