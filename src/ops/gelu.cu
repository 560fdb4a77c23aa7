/* GELU, ReLU and its square, forward and backward. */
#include "ops/cuda_gelu.cuh"

namespace
{

/* Returns y(x); *slope: its derivative. */
template <int KIND> __device__ __forceinline__ float activated(float x, float *slope)
{
    if constexpr (KIND == RELU_SQUARED) {
        const float r = x < 0.0f ? 0.0f : x; /* NaN stays NaN */
        *slope = 2.0f * r;
        return r * r;
    } else if constexpr (KIND == RELU) {
        *slope = x <= 0.0f ? 0.0f : 1.0f;
        return x < 0.0f ? 0.0f : x;
    } else {
        const float p = phi<KIND>(x, slope);
        *slope += p;
        return x * p;
    }
}

template <typename T, int KIND> struct forward {
    T *y;
    const T *x;
    template <int N> __device__ __forceinline__ void run(int64_t i) const
    {
        float a[N];
        load<N>(a, x + i);
#pragma unroll
        for (int k = 0; k < N; k++) {
            float slope;
            a[k] = activated<KIND>(a[k], &slope);
        }
        store<N>(y + i, a);
    }
};

template <typename T, int KIND> struct backward {
    T *x, *dy; /* both are overwritten with the results */
    template <int N> __device__ __forceinline__ void run(int64_t i) const
    {
        float a[N], d[N];
        load<N>(a, x + i);
        load<N>(d, dy + i);
#pragma unroll
        for (int k = 0; k < N; k++) {
            float slope, y = activated<KIND>(a[k], &slope);
            a[k] = d[k] * slope;
            d[k] = y;
        }
        store<N>(x + i, a);
        store<N>(dy + i, d);
    }
};

template <typename T, int KIND> enum status run_forward(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    forward<T, KIND> op = {(T *)arg[0], (const T *)arg[1]};
    return launch_elements<WIDTH<T>>(op, attrs->act.rows * attrs->act.dim, aligned_to_vectors({arg[0], arg[1]}), stream);
}

template <typename T, int KIND> enum status run_backward(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    backward<T, KIND> op = {(T *)arg[0], (T *)arg[1]};
    return launch_elements<WIDTH<T>>(op, attrs->act.rows * attrs->act.dim, aligned_to_vectors({op.x, op.dy}), stream);
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

enum status no_activation(const char *name, const struct op_attrs *attrs)
{
    return status_fail(ERR_INVALID, "%s on cuda: %d is no activation function", name, attrs->act.kind);
}

} // namespace

enum status ops_cuda_gelu(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    TRY(check_storage("gelu", attrs->act.dtype));
    switch (attrs->act.kind) {
    case GELU_TANH:
        return forward_typed<GELU_TANH>(attrs, arg, stream);
    case GELU_ERF:
        return forward_typed<GELU_ERF>(attrs, arg, stream);
    case RELU_SQUARED:
        return forward_typed<RELU_SQUARED>(attrs, arg, stream);
    case RELU:
        return forward_typed<RELU>(attrs, arg, stream);
    }
    return no_activation("gelu", attrs);
}

enum status ops_cuda_gelu_grad(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    TRY(check_storage("gelu_grad", attrs->act.dtype));
    switch (attrs->act.kind) {
    case GELU_TANH:
        return backward_typed<GELU_TANH>(attrs, arg, stream);
    case GELU_ERF:
        return backward_typed<GELU_ERF>(attrs, arg, stream);
    case RELU_SQUARED:
        return backward_typed<RELU_SQUARED>(attrs, arg, stream);
    case RELU:
        return backward_typed<RELU>(attrs, arg, stream);
    }
    return no_activation("gelu_grad", attrs);
}
