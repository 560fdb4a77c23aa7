/* RMSNorm (Zhang and Sennrich 2019) and LayerNorm (Ba et al. 2016) of rows. Inside fp32; T is F32 or BF16, rounded to once.
 *
 * xhat = (x - mean) * r, r = 1 / sqrt(var + eps), y = xhat * weight (+ bias).
 *
 * RMS: mean = 0 and var is the mean square; without weights they count as 1. RMS_ONE: as RMS with 1 + weight. NONE: y = x, dx +=
 * dy.
 *
 * Backward, with g = dy * weight: dx += r * (g - [LAYER: mean(g)] - xhat * mean(g * xhat)), dweight (+)= sum over rows dy * xhat,
 * dbias (+)= sum over rows dy.
 *
 * Column sums take rows in order, in groups of 32 (on CUDA in 1 to 8 parts, by the number of columns), whose sums (in work) are
 * added in order. */
#ifndef LTRAIN_OPS_NORM_H
#define LTRAIN_OPS_NORM_H

#include "program/op.h"

struct norm_shape {
    int64_t rows, dim;
    float eps;
    enum norm_kind kind;
    int32_t dtype;
    int32_t accumulate; /* backward; 1: add to dweight and dbias, 0: overwrite them */
    int64_t segments;   /* segments of a row, of equal length, each normalised as a row */
};
struct norm_shape norm_shape_of(const struct op_attrs *a);

void ops_norm(const struct norm_shape *s, void *y /* T[rows,dim], may be x */, const void *x /* T[rows,dim] */,
              const void *weight /* T[dim]; for RMS norms NULL means no weights */, const void *bias /* T[dim] or NULL */);

/* Returns the bytes of `work`: a pair of column sums per 32 rows. `work` is unused if dweight and dbias are NULL. */
int64_t ops_norm_grad_workspace(const struct norm_shape *s);
void ops_norm_grad(const struct norm_shape *s, void *dx /* T[rows,dim] inout */, const void *x /* T[rows,dim] */,
                   const void *weight /* T[dim]; for RMS norms NULL means no weights */, const float *dy /* [rows,dim] */,
                   float *dweight /* [dim] or NULL */, float *dbias /* [dim] or NULL */, float *work);

#endif
