/* Bias of a linear layer. */
#ifndef LTRAIN_OPS_BIAS_H
#define LTRAIN_OPS_BIAS_H

#include <stdint.h>

/* y += bias */
void ops_bias(void *y /* T[rows,dim] inout */, const void *bias /* T[dim] */, int64_t rows, int64_t dim, int32_t dtype);

/* dbias (+)= column sums of dy: rows in order, in groups of 64 whose sums are added in order; each task owns columns. */
void ops_bias_grad(float *dbias /* [dim] */, const void *dy /* y_type[rows,dim] */, int64_t rows, int64_t dim, int32_t y_type,
                   int32_t accumulate);

#endif
