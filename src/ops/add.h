/* Sums: the residual connection and gradient accumulation. */
#ifndef LTRAIN_OPS_ADD_H
#define LTRAIN_OPS_ADD_H

#include <stdint.h>

/* Adds with one rounding to T: y = x + scale (delta (+ bias)); with scale 1, (x + delta) + bias. y may be x. */
void ops_add(void *y /* T[rows,dim] */, const void *x /* T[rows,dim] */, const float *delta /* [rows,dim] */,
             const void *bias /* T[dim] or NULL */, float scale, int64_t rows, int64_t dim, int32_t dtype);

/* Computes y += x. */
void ops_accum(float *y /* [n] */, const float *x /* [n] */, int64_t n);

#endif
