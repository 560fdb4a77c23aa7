/* SwiGLU, GeGLU, gpt-oss's clamped gates and those of attention's output, forward and backward. */
#include "ops/cuda_gate.cuh"

namespace
{

template <typename T, int KIND> struct forward {
    T *y;
    const T *x, *up;
    clamps of;
    template <int N> __device__ __forceinline__ void run(int64_t i) const
    {
        float g[N], u[N];
        load<N>(g, x + i);
        load<N>(u, up + i);
#pragma unroll
        for (int k = 0; k < N; k++) {
            float slope;
            u[k] = gated<KIND>(g[k], &slope, of) * multiplier<KIND>(u[k], &slope, of);
        }
        store<N>(y + i, u);
    }
};

template <typename T, int KIND> struct backward {
    T *x, *up, *dy; /* gate, up and the gradient of y; all are overwritten with the results */
    clamps of;
    template <int N> __device__ __forceinline__ void run(int64_t i) const
    {
        float g[N], u[N], d[N];
        load<N>(g, x + i);
        load<N>(u, up + i);
        load<N>(d, dy + i);
#pragma unroll
        for (int k = 0; k < N; k++) {
            float slope, of_up, f = gated<KIND>(g[k], &slope, of), m = multiplier<KIND>(u[k], &of_up, of), y = f * m;
            g[k] = d[k] * m * slope;
            u[k] = d[k] * f * of_up;
            d[k] = y;
        }
        store<N>(x + i, g);
        store<N>(up + i, u);
        store<N>(dy + i, d);
    }
};

template <typename T, int KIND> enum status run_forward(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    forward<T, KIND> op = {(T *)arg[0], (const T *)arg[1], (const T *)arg[2], {attrs->act.limit, attrs->act.alpha}};
    return launch_elements<WIDTH<T>>(op, attrs->act.rows * attrs->act.dim, aligned_to_vectors({arg[0], arg[1], arg[2]}), stream);
}

template <typename T, int KIND> enum status run_backward(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    backward<T, KIND> op = {(T *)arg[0], (T *)arg[1], (T *)arg[2], {attrs->act.limit, attrs->act.alpha}};
    return launch_elements<WIDTH<T>>(op, attrs->act.rows * attrs->act.dim, aligned_to_vectors({op.x, op.up, op.dy}), stream);
}

template <int KIND> enum status forward_typed(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    return attrs->act.dtype == BF16 ? run_forward<bf16, KIND>(attrs, arg, stream) : run_forward<float, KIND>(attrs, arg, stream);
}

template <int KIND> enum status backward_typed(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    return attrs->act.dtype == BF16 ? run_backward<bf16, KIND>(attrs, arg, stream)
                                    : run_backward<float, KIND>(attrs, arg, stream);
}

enum status no_gate(const char *name, const struct op_attrs *attrs)
{
    return status_fail(ERR_INVALID, "%s on cuda: %d is no gate", name, attrs->act.kind);
}

} // namespace

enum status ops_cuda_swiglu(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    TRY(check_storage("swiglu", attrs->act.dtype));
    switch (attrs->act.kind) {
    case GATE_SILU:
        return forward_typed<GATE_SILU>(attrs, arg, stream);
    case GATE_GELU_TANH:
        return forward_typed<GATE_GELU_TANH>(attrs, arg, stream);
    case GATE_GELU_ERF:
        return forward_typed<GATE_GELU_ERF>(attrs, arg, stream);
    case GATE_CLAMPED:
        return forward_typed<GATE_CLAMPED>(attrs, arg, stream);
    case GATE_SIGMOID:
        return forward_typed<GATE_SIGMOID>(attrs, arg, stream);
    }
    return no_gate("swiglu", attrs);
}

enum status ops_cuda_swiglu_grad(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    TRY(check_storage("swiglu_grad", attrs->act.dtype));
    switch (attrs->act.kind) {
    case GATE_SILU:
        return backward_typed<GATE_SILU>(attrs, arg, stream);
    case GATE_GELU_TANH:
        return backward_typed<GATE_GELU_TANH>(attrs, arg, stream);
    case GATE_GELU_ERF:
        return backward_typed<GATE_GELU_ERF>(attrs, arg, stream);
    case GATE_CLAMPED:
        return backward_typed<GATE_CLAMPED>(attrs, arg, stream);
    case GATE_SIGMOID:
        return backward_typed<GATE_SIGMOID>(attrs, arg, stream);
    }
    return no_gate("swiglu_grad", attrs);
}
