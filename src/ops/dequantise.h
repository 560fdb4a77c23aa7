/* Turning quantised matrices (base/quantised.h) into numbers. */
#ifndef LTRAIN_OPS_DEQUANTISE_H
#define LTRAIN_OPS_DEQUANTISE_H

#include "base/quantised.h"

/* Elements first + r * ld + c of a matrix of n elements, for r < rows and c < cols; or elements first + c of each of `rows` matrices. */
struct dequantise_shape {
    int64_t rows, cols, first, ld, n;
    int64_t columns; /* int8: columns of the matrix; blocks of the other forms run across rows */
    int64_t stride;  /* bytes from matrix to matrix; 0: there is one */
    enum quantised_form form;
};

/* Computes y = map[code] * scale for NF4 and MXFP4, y = code * scale * (1 / 127) for int8, in fp32, rounded to nearest even if y is bf16.
 * codes: begins with the byte that holds element `first`. scales: the (first) matrix's scales. */
void ops_dequantise(void *y /* T[rows, cols] */, const uint8_t *codes, const void *scales, const struct dequantise_shape *s,
                    int32_t dtype);

#endif
