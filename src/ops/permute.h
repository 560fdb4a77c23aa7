/* Sorting pairs of tokens and experts by expert, and adding the experts' results up by token.
 *
 * A token has k pairs, numbered by token, then by expert's number. A row stands for a pair; rows are sorted by expert, then by
 * token. */
#ifndef LTRAIN_OPS_PERMUTE_H
#define LTRAIN_OPS_PERMUTE_H

#include "base/status.h"

#include <stdint.h>

/* Writes order: each row's pair; place: each pair's row; offsets: each expert's first row, and n behind the last. ERR_CORRUPT: an
 * expert that does not exist. */
enum status ops_permute(int64_t n, int32_t experts, int32_t *order /* [n] */, int32_t *place /* [n] */,
                        int32_t *offsets /* [experts+1] */, const int32_t *ids /* [n] */);

struct combine_shape {
    int64_t rows, dim; /* rows: tokens */
    int32_t k, experts, y_type, dtype, accumulate;
};

/* Pairs of tokens, each with a row of y. bias NULL: p and ids are not read. */
struct combine_pairs {
    const void *y; /* [n,dim] */
    const int32_t *place;
    const float *p;
    const void *bias; /* [experts,dim] */
    const int32_t *ids;
};

/* Computes acc[rows,dim] (+)= the sum of each token's rows, pair after pair, each followed by p times its expert's bias.
 * ERR_CORRUPT: a row or an expert that does not exist. */
enum status ops_combine(const struct combine_shape *s, float *acc, const struct combine_pairs *x);

#endif
