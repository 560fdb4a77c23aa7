/* SwiGLU (Shazeer 2020): y = silu(gate) * up, silu(g) = g * sigmoid(g). Element-wise over n = rows * dim elements. */
#ifndef LTRAIN_OPS_SWIGLU_H
#define LTRAIN_OPS_SWIGLU_H

#include <stdint.h>

void ops_swiglu(void *y /* T[n] */, const void *gate /* T[n] */, const void *up /* T[n] */, int64_t n, int32_t dtype);

/* With s = sigmoid(gate): dup = dy * gate * s,  dgate = dy * up * s * (1 + gate * (1 - s)). dgate may be gate, dup may be up. */
void ops_swiglu_grad(void *dgate /* T[n] */, void *dup /* T[n] */, const void *gate /* T[n] */, const void *up /* T[n] */,
                     const void *dy /* T[n] */, int64_t n, int32_t dtype);

#endif
