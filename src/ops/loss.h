/* Cross entropy over the vocabulary, with its gradient in place. */
#ifndef LTRAIN_OPS_LOSS_H
#define LTRAIN_OPS_LOSS_H

#include <stdint.h>

struct loss_shape {
    int64_t rows, vocab;
    int32_t gradient;   /* logits become (softmax - onehot) * inv_targets; else they are left alone */
    int32_t accumulate; /* *loss is added to, not written */
};

/* *loss (+)= sum over rows of log sum exp(logits) - logits[target], in fp64, rows in order. One pass over a row finds its maximum
 * and its sum (online softmax, Milakov and Gimelshein 2018, by blocks of 1024), one more writes the gradient. A row whose target
 * is negative counts nothing and gets a zero gradient; a target >= vocab makes the loss NaN (and a zero gradient), so that it is
 * seen. */
void ops_loss(const struct loss_shape *s, float *logits /* [rows,vocab] inout */, double *loss,
              const int32_t *targets /* [rows] */, float inv_targets);

#endif
