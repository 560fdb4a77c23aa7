/* Experts shared out to ranks: each of `ep` ranks has the same number of every layer's experts, in the order of their numbers.
 *
 * A unit of experts holds stacks only, so a rank's share of each is a range of it, and the shares have one layout. */
#ifndef LTRAIN_MODEL_SHARE_H
#define LTRAIN_MODEL_SHARE_H

#include "model/model.h"

/* Refuses a number of ranks that does not divide the experts, and models whose experts cannot be shared out. */
enum status model_share_check(const struct model *m, int ep);

/* Makes a copy of `m` whose units of experts are those of one of `ep` ranks; everything else is m's, which must outlive *out.
 * model_share_free frees what the copy has of its own. */
enum status model_share_create(const struct model *m, int ep, struct model *out);
void model_share_free(struct model *shared);

/* Returns the number by which a unit's elements are divided: `ep` for experts of a model that is not shared out yet, else 1. */
int model_share_of(const struct model *m, int ep, int unit);

/* Finds where the elements from `first` on of a member's share lie in the whole unit (*there). Returns how many of the n elements
 * follow each other there. */
int64_t model_share_piece(const struct model *m, int ep, int member, int unit, int64_t first, int64_t n, int64_t *there);

#endif
