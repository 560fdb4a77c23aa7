/* Cross entropy over the vocabulary, with its gradient in place or in bf16. */
#ifndef LTRAIN_OPS_LOSS_H
#define LTRAIN_OPS_LOSS_H

#include "base/num.h"

struct loss_shape {
    int64_t rows, vocab, ld; /* elements from row to row, at least vocab */
    int32_t gradient;        /* 1: logits become (softmax - onehot) * inv_targets; 0: they are left alone */
    int32_t gradient_bf16;   /* 1: that gradient goes to `rounded` instead, rounded from fp32 */
    float scale, cap;        /* logits become cap * tanh(scale * logit / cap); cap 0: scale * logit */
};

/* Computes *loss = sum over rows of log sum exp(logits) - logits[target], in fp64, rows in order. A row is read for its maximum,
 * then for its exponentials and their sum, in blocks of 1024; the gradient scales the exponentials.
 *
 * With weights, a row's part of the sum and its gradient are that many times as large; `each` is not.
 *
 * A row whose target is negative counts nothing and gets a zero gradient. A target >= vocab makes the loss NaN, so that it is
 * noticed, and gives a zero gradient. */
void ops_loss(const struct loss_shape *s, float *logits /* [rows,ld], vocab used, inout */, double *loss,
              const int32_t *targets /* [rows] */, float inv_targets, float *each /* [rows]: receives each row's loss, or NULL */,
              bf16 *rounded /* [rows,ld], or NULL */, const float *weights /* [rows], or NULL: 1 each */);

#endif
