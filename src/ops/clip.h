/* Global gradient norm and what follows from it. */
#ifndef LTRAIN_OPS_CLIP_H
#define LTRAIN_OPS_CLIP_H

#include "program/op.h"

/* *sum = sum of squares of x. Squares are exact in fp64. One order, which every backend repeats bit for bit: within a block of
 * SUMSQ_BLOCK elements, lane l of 16 adds elements l, l + 16, ... in order; the lanes are added as a tree (l + (l+8), then 4, 2,
 * 1); blocks in order. */
void ops_sumsq(double *sum, const float *x /* [n] */, int64_t n);

/* norm = sqrt(sums added in order), factor = min(1, clip / (norm + 1e-6)) as torch.nn.utils.clip_grad_norm_, or 1 if clip is 0;
 * skip = 1 and factor = 0 if the norm is not finite. */
void ops_clip(struct norm_result *result, const double *sums /* [n] */, int64_t n, float clip);

#endif
