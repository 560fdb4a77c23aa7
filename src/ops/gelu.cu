/* GELU, forward and backward. */
#include "ops/cuda_gelu.cuh"

namespace
{

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
            a[k] *= phi<KIND>(a[k], &slope);
        }
        store<N>(y + i, a);
    }
};

template <typename T, int KIND> struct backward {
    T *x, *dy; /* both in place */
    template <int N> __device__ __forceinline__ void run(int64_t i) const
    {
        float a[N], d[N];
        load<N>(a, x + i);
        load<N>(d, dy + i);
#pragma unroll
        for (int k = 0; k < N; k++) {
            float slope, p = phi<KIND>(a[k], &slope), y = a[k] * p;
            a[k] = d[k] * (p + slope);
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

} // namespace

enum status ops_cuda_gelu(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    TRY(check_storage("gelu", attrs->act.dtype));
    if (attrs->act.kind == GELU_ERF)
        return attrs->act.dtype == BF16 ? run_forward<bf16, GELU_ERF>(attrs, arg, stream)
                                        : run_forward<float, GELU_ERF>(attrs, arg, stream);
    return attrs->act.dtype == BF16 ? run_forward<bf16, GELU_TANH>(attrs, arg, stream)
                                    : run_forward<float, GELU_TANH>(attrs, arg, stream);
}

enum status ops_cuda_gelu_grad(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    TRY(check_storage("gelu_grad", attrs->act.dtype));
    if (attrs->act.kind == GELU_ERF)
        return attrs->act.dtype == BF16 ? run_backward<bf16, GELU_ERF>(attrs, arg, stream)
                                        : run_backward<float, GELU_ERF>(attrs, arg, stream);
    return attrs->act.dtype == BF16 ? run_backward<bf16, GELU_TANH>(attrs, arg, stream)
                                    : run_backward<float, GELU_TANH>(attrs, arg, stream);
}
