/* SwiGLU, forward and backward. */
#include "ops/cuda_vec.cuh"

namespace
{

template <typename T> struct forward {
    T *y;
    const T *gate, *up;
    template <int N> __device__ __forceinline__ void run(int64_t i) const
    {
        float g[N], u[N];
        load<N>(g, gate + i);
        load<N>(u, up + i);
#pragma unroll
        for (int k = 0; k < N; k++)
            u[k] = g[k] * sigmoid(g[k]) * u[k];
        store<N>(y + i, u);
    }
};

template <typename T> struct backward {
    T *gate, *up, *dy; /* all in place */
    template <int N> __device__ __forceinline__ void run(int64_t i) const
    {
        float g[N], u[N], d[N];
        load<N>(g, gate + i);
        load<N>(u, up + i);
        load<N>(d, dy + i);
#pragma unroll
        for (int k = 0; k < N; k++) {
            float s = sigmoid(g[k]), x = g[k], y = x * s * u[k];
            g[k] = d[k] * u[k] * (s * fmaf(x, 1.0f - s, 1.0f));
            u[k] = d[k] * (x * s);
            d[k] = y;
        }
        store<N>(gate + i, g);
        store<N>(up + i, u);
        store<N>(dy + i, d);
    }
};

template <typename T> enum status run_forward(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    forward<T> op = {(T *)arg[0], (const T *)arg[1], (const T *)arg[2]};
    return launch_elements<WIDTH<T>>(op, attrs->act.rows * attrs->act.dim, aligned_to_vectors({arg[0], arg[1], arg[2]}), stream);
}

template <typename T> enum status run_backward(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    backward<T> op = {(T *)arg[0], (T *)arg[1], (T *)arg[2]};
    return launch_elements<WIDTH<T>>(op, attrs->act.rows * attrs->act.dim, aligned_to_vectors({op.gate, op.up, op.dy}), stream);
}

enum status check_kind(const char *name, const struct op_attrs *attrs)
{
    if (attrs->act.kind == GATE_SILU)
        return OK;
    return status_fail(ERR_INVALID, "%s on cuda: gates other than silu are computed on the CPU only so far", name);
}

} // namespace

enum status ops_cuda_swiglu(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    TRY(check_storage("swiglu", attrs->act.dtype));
    TRY(check_kind("swiglu", attrs));
    return attrs->act.dtype == BF16 ? run_forward<bf16>(attrs, arg, stream) : run_forward<float>(attrs, arg, stream);
}

enum status ops_cuda_swiglu_grad(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    TRY(check_storage("swiglu_grad", attrs->act.dtype));
    TRY(check_kind("swiglu_grad", attrs));
    return attrs->act.dtype == BF16 ? run_backward<bf16>(attrs, arg, stream) : run_backward<float>(attrs, arg, stream);
}
