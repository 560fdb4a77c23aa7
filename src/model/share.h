/* Experts shared out to ranks: each of `ep` ranks has the same number of every layer's experts, in the order of their numbers.
 *
 * A unit of experts holds stacks only, so a rank's share of each stack is a range of its matrices, and all shares have one layout. */
#ifndef LTRAIN_MODEL_SHARE_H
#define LTRAIN_MODEL_SHARE_H

#include "model/model.h"

/* Refuses a number of ranks that does not divide the experts, and models without any. */
enum status model_share_check(const struct model *m, int ep);

/* Copies `m`, with units of experts reduced to the share of one of `ep` ranks. The copy points into m, which must outlive *out;
 * model_share_free frees the rest. */
enum status model_share_create(const struct model *m, int ep, struct model *out);
void model_share_free(struct model *shared);

/* Returns the number by which a unit's elements are divided: `ep` for experts of a model that is not shared out yet, else 1. */
int model_share_of(const struct model *m, int ep, int unit);

/* A member's share, one of `ep`. */
struct model_share {
    int ep, member;
};

/* Finds n elements (model_share_bytes: bytes of quantised matrices), from `first` on, of a share in the whole unit: the first one's index
 * there (*there). Returns how many of the n are adjacent there. */
int64_t model_share_piece(const struct model *m, const struct model_share *s, int unit, int64_t first, int64_t n, int64_t *there);
int64_t model_share_bytes(const struct model *m, const struct model_share *s, int unit, int64_t first, int64_t n, int64_t *there);

#endif
