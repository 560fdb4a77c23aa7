/* Quantised matrices (base/quantised.h), as numbers. */
#ifndef LTRAIN_OPS_DEQUANTISE_H
#define LTRAIN_OPS_DEQUANTISE_H

#include "base/quantised.h"

/* Elements first + r * ld + c of a matrix of n elements, for r < rows and c < cols. */
struct dequantise_shape {
    int64_t rows, cols, first, ld, n;
    int64_t columns; /* of the matrix; NF4, whose blocks know no rows, does not look at it */
    enum quantised_form form;
};

/* y = map[code] * scale of NF4, code * scale * (1 / 127) of int8, in fp32, rounded to nearest even where y is bf16. codes: the byte that
 * holds element `first`, and what follows; scales: the matrix's part of scales. */
void ops_dequantise(void *y /* T[rows, cols] */, const uint8_t *codes, const void *scales, const struct dequantise_shape *s, int32_t dtype);

#endif
