/* GELU (Hendrycks and Gimpel 2016): y = x * Phi(x). Element-wise over n = rows * dim elements.
 *   ERF:  Phi(x) = (1 + erf(x / sqrt 2)) / 2
 *   TANH: Phi(x) = (1 + tanh(u)) / 2 = sigmoid(2 u),  u = sqrt(2 / pi) * (x + 0.044715 x^3)   ("gelu_new")
 * RELU_SQUARED: y = max(x, 0)^2 (So et al. 2021). RELU: y = max(x, 0), whose slope at 0 is 0.
 * Error of a GELU below 1e-7 + 2e-7 |y|; in the negative tail (x < -4), where 1 + erf or 1 + tanh would cancel, below 1e-8. */
#ifndef LTRAIN_OPS_GELU_H
#define LTRAIN_OPS_GELU_H

#include "program/op.h"

void ops_gelu(void *y /* T[n] */, const void *x /* T[n] */, int64_t n, enum activation_kind kind, int32_t dtype);
/* Computes in place: x becomes dx = dy * y'(x) (for a GELU dy * (Phi(x) + x * Phi'(x))), and dy becomes y, with the bits of
 * ops_gelu. */
void ops_gelu_grad(void *x /* T[n] */, void *dy /* T[n] */, int64_t n, enum activation_kind kind, int32_t dtype);

#endif
