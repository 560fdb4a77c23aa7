/* Functions of gates and their derivatives, for loops that must vectorise. Private to src/ops. */
#ifndef LTRAIN_OPS_GATE_H
#define LTRAIN_OPS_GATE_H

#include "ops/gelu_phi.h"
#include "ops/rows.h"
#include "ops/swiglu.h"
#include "ops/vexp.h"
#include "program/op.h"

/* Returns f(g); *slope: its derivative. */
INLINE float gate_value(float g, float *slope, struct gate f, int32_t kind)
{
    if (kind == GATE_SILU) {
        float s = vsigmoid(g);
        *slope = s * fmaf(g, 1.0f - s, 1.0f);
        return g * s;
    }
    if (kind == GATE_SIGMOID) {
        float s = vsigmoid(g);
        *slope = s * (1.0f - s);
        return s;
    }
    if (kind == GATE_IDENTITY) {
        *slope = 1.0f;
        return g;
    }
    if (kind == GATE_ALONE) {
        float r = g < 0.0f ? 0.0f : g;
        *slope = 2.0f * r;
        return r * r;
    }
    if (kind == GATE_CLAMPED) {
        float c = g > f.limit ? f.limit : g, s = vsigmoid(f.alpha * c);
        *slope = g > f.limit ? 0.0f : s * fmaf(f.alpha * c, 1.0f - s, 1.0f);
        return c * s;
    }
    if (kind == GATE_GELU_TANH) {
        float u, phi = tanh_phi(g, &u);
        *slope = tanh_slope(g, u, phi);
        return g * phi;
    }
    float phi = erf_phi(g);
    *slope = erf_slope(g, phi);
    return g * phi;
}

/* Returns the factor that multiplies f(gate), made from `up`; *slope: its derivative. */
INLINE float gate_multiplier(float u, float *slope, struct gate f, int32_t kind)
{
    *slope = 1.0f;
    if (kind != GATE_CLAMPED)
        return u;
    float c = u > f.limit ? f.limit : u;
    c = c < -f.limit ? -f.limit : c;
    *slope = u > f.limit || u < -f.limit ? 0.0f : 1.0f;
    return c + 1.0f;
}

/* Calls a loop with the kind of gate f and the dtype as constants. */
#define FOR_GATE(loop, ...)                                                           \
    (f.kind == GATE_SILU        ? FOR_DTYPE(dtype, loop, __VA_ARGS__, GATE_SILU)      \
     : f.kind == GATE_GELU_TANH ? FOR_DTYPE(dtype, loop, __VA_ARGS__, GATE_GELU_TANH) \
     : f.kind == GATE_CLAMPED   ? FOR_DTYPE(dtype, loop, __VA_ARGS__, GATE_CLAMPED)   \
     : f.kind == GATE_SIGMOID   ? FOR_DTYPE(dtype, loop, __VA_ARGS__, GATE_SIGMOID)   \
     : f.kind == GATE_IDENTITY  ? FOR_DTYPE(dtype, loop, __VA_ARGS__, GATE_IDENTITY)  \
     : f.kind == GATE_ALONE     ? FOR_DTYPE(dtype, loop, __VA_ARGS__, GATE_ALONE)     \
                                : FOR_DTYPE(dtype, loop, __VA_ARGS__, GATE_GELU_ERF))

#endif
