/* Fields of a block by their use, for parts of a model. Private to model. */
#ifndef LTRAIN_MODEL_FIELDS_H
#define LTRAIN_MODEL_FIELDS_H

#include "model/model.h"

enum { MOST_MAPS = 5, MOST_NORMS = 3 };

/* Fields of a block that slices cut: maps into and out of heads or columns, norms over heads, and the vector with a number for
 * each head. NULL: none. */
struct fields {
    struct model_linear *into[MOST_MAPS], *out_of;
    struct model_norm *norm[MOST_NORMS];
    int *by_head;
};

/* Lists a block's fields; returns 0 if models with blocks of its kind cannot be cut into parts. */
int part_fields(struct model_block *b, struct fields *f);

#endif
