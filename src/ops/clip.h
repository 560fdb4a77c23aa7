/* The global gradient norm and the clip factor. */
#ifndef LTRAIN_OPS_CLIP_H
#define LTRAIN_OPS_CLIP_H

#include "program/op.h"

/* Computes *sum = sum of squares of x; squares are exact in fp64. Every backend adds in the same order, for the same bits.
 *
 * In a block of SUMSQ_BLOCK elements, lane l of 16 adds elements l, l + 16, ... in order. Lanes are added as a tree (l + (l+8),
 * then 4, 2, 1), then blocks in order. */
void ops_sumsq(double *sum, const float *x /* [n] */, int64_t n);

/* Computes norm = sqrt(sums added in order) and factor = min(1, clip / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_; factor
 * is 1 if clip is 0. A norm that is not finite gives skip = 1 and factor = 0. */
void ops_clip(struct norm_result *result, const double *sums /* [n] */, int64_t n, float clip);

#endif
