/* Gated units (Shazeer 2020): y = f(gate) * up, element-wise over n = rows * dim elements.
 *
 * SwiGLU: f(g) = silu(g) = g * sigmoid(g); GeGLU: a gelu. GATE_SIGMOID: f(g) = sigmoid(g), with attention's output as `up`. GATE_IDENTITY: f(g) = g.
 * GATE_ALONE (experts without gates): f(g) = max(g, 0)^2, and nothing multiplies it (ops/gated.h).
 * GATE_CLAMPED (gpt-oss): y = g sigmoid(alpha g) (u + 1) with g = min(gate, limit) and u = up clamped to +-limit; clamped values
 * have no gradient. */
#ifndef LTRAIN_OPS_SWIGLU_H
#define LTRAIN_OPS_SWIGLU_H

#include <stdint.h>

struct gate {
    int32_t kind; /* enum gate_kind */
    float limit, alpha;
};

void ops_swiglu(void *y /* T[n] */, const void *gate /* T[n] */, const void *up /* T[n] */, int64_t n, struct gate f,
                int32_t dtype);

/* Computes in place: up becomes dup = dy * gate * s, gate becomes dgate = dy * up * s * (1 + gate * (1 - s)), with s =
 * sigmoid(gate). dy becomes y, with the bits of ops_swiglu: the next weights' gradient needs it, and gate and up are at hand. */
void ops_swiglu_grad(void *gate /* T[n] */, void *up /* T[n] */, void *dy /* T[n] */, int64_t n, struct gate f, int32_t dtype);

/* Rows that are multiplied by the sigmoid of a number each: y = sigmoid(scalar) f(gate) up. */
struct weighed_rows {
    int64_t rows, dim;
    struct gate f;
    int32_t dtype;
};
void ops_swiglu_weighed(const struct weighed_rows *s, void *y, const void *gate, const void *up,
                        const float *scalar /* [rows] */);
/* Computes the same gradients in place as ops_swiglu_grad; scalar becomes its gradient. */
void ops_swiglu_weighed_grad(const struct weighed_rows *s, void *gate, void *up, void *dy, float *scalar);

#endif
