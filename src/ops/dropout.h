/* Dropout by a counter: whether a number is dropped follows from where it stands, so that nothing is kept of the mask. Philox4x32-10
 * (base/rng.h; Salmon et al. 2011) makes four features' words w of
 *
 *     key      dropout[0], dropout[1] of the step record
 *     counter  feature / 4, the token's number in its sequence, the module, the record's sequence
 *
 * in that order of words, and the number stays where w[feature % 4] >= threshold. Threads, tiles, ranks and devices give the same. */
#ifndef LTRAIN_OPS_DROPOUT_H
#define LTRAIN_OPS_DROPOUT_H

#include "program/op.h"

/* Dropped are threshold / 2^32 of the numbers; column c is feature first + c of the module. */
struct dropout_shape {
    int64_t rows, cols, y_ld, x_ld;
    uint32_t first, module, threshold;
    float scale;
};

/* y = scale * x where it stays, else zero, in fp32, each operation rounded, and rounded to their type, dtype. accumulate: y is added
 * to, and x is fp32. */
void ops_dropout(void *y /* [rows, cols] */, const void *x /* [rows, cols] */, const int32_t *numbers /* [rows] */,
                 const struct step_record *record, const struct dropout_shape *s, int32_t dtype, int accumulate);

#endif
