/* The bias of a linear layer. */
#ifndef LTRAIN_OPS_BIAS_H
#define LTRAIN_OPS_BIAS_H

#include <stdint.h>

/* Computes y += bias; rows lie ld elements apart. y_type is dtype, or F32. */
void ops_bias(void *y /* y_type[rows,dim] inout */, const void *bias /* dtype[dim] */, int64_t rows, int64_t dim, int64_t ld,
              int32_t y_type, int32_t dtype);

/* Computes dbias (+)= column sums of dy. Rows are added in order, in groups of 64, whose sums are added in order; each task owns
 * columns. */
void ops_bias_grad(float *dbias /* [dim] */, const void *dy /* y_type[rows,dim] */, int64_t rows, int64_t dim, int64_t ld,
                   int32_t y_type, int32_t accumulate);

#endif
