/* Matrices in NF4 (base/nf4.h), as numbers. */
#ifndef LTRAIN_OPS_DEQUANTISE_H
#define LTRAIN_OPS_DEQUANTISE_H

#include "base/nf4.h"

/* Elements first + r * ld + c of a matrix of n elements, for r < rows and c < cols. */
struct dequantise_shape {
    int64_t rows, cols, first, ld, n;
    enum nf4_scales scales;
};

/* y = map[code] * scale in fp32, rounded to nearest even where y is bf16. codes: the byte that holds element `first`, and what
 * follows; scales: the matrix's part of scales. */
void ops_dequantise(void *y /* T[rows, cols] */, const uint8_t *codes, const void *scales, const struct dequantise_shape *s, int32_t dtype);

#endif
