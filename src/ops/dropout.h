/* Dropout by a counter: a number's place decides whether it is dropped, so no mask is kept. Philox4x32-10 (base/rng.h; Salmon et
 * al. 2011) makes the words w of four features from
 *
 * key: dropout[0], dropout[1] of the step record
 *
 * counter: feature / 4, the token's number in its sequence, the module, the record's sequence
 *
 * in this order of words. The number stays if w[feature % 4] >= threshold. All threads, tiles, ranks and devices give the same
 * mask. */
#ifndef LTRAIN_OPS_DROPOUT_H
#define LTRAIN_OPS_DROPOUT_H

#include "program/op.h"

/* A share of threshold / 2^32 of the numbers is dropped; column c is feature first + c of the module. */
struct dropout_shape {
    int64_t rows, cols, y_ld, x_ld;
    uint32_t first, module, threshold;
    float scale;
};

/* Returns the module's feature in the rank's column 0. Of attrs.dropout.slices slices of a layer (0: none) each has `share` features;
 * they are next to each other in the mesh (program/mesh.h). */
static inline uint32_t dropout_first(const struct op_attrs *a, const struct step_record *record)
{
    const uint32_t slices = a->dropout.slices;
    return a->dropout.first + (slices > 0 ? record->member[0] % slices * a->dropout.share : 0);
}

/* Computes y = scale * x for numbers that stay, else zero, in fp32 with each operation rounded, then rounded to dtype.
 * accumulate: adds to y, and x is fp32. */
void ops_dropout(void *y /* [rows, cols] */, const void *x /* [rows, cols] */, const int32_t *numbers /* [rows] */,
                 const struct step_record *record, const struct dropout_shape *s, int32_t dtype, int accumulate);

#endif
