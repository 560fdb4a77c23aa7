/* GELU, forward and backward. */
#include "ops/cuda_vec.cuh"

namespace
{

/* Beyond |x| = 30 both gelus are x or 0 in fp32; clamping keeps the cube and the square finite. */
__device__ __forceinline__ float clamped(float x)
{
    x = x < -30.0f ? -30.0f : x; /* not fminf and fmaxf: NaN stays NaN */
    return x > 30.0f ? 30.0f : x;
}

/* Phi(x), and in *slope x * Phi'(x). */
template <int KIND> __device__ __forceinline__ float phi(float x, float *slope)
{
    float c = clamped(x);
    if constexpr (KIND == GELU_TANH) {
        const float twice_sqrt_2_pi = 1.595769122f, cubic = 0.044715f;
        float p = sigmoid(twice_sqrt_2_pi * c * fmaf(cubic, c * c, 1.0f));
        *slope = c * (twice_sqrt_2_pi * fmaf(3.0f * cubic, c * c, 1.0f)) * (p * (1.0f - p));
        return p;
    } else {
        *slope = c * (0.398942280f * expf(-0.5f * c * c));
        return 0.5f * erfcf(c * -0.707106781f); /* erfc keeps the negative tail, where 1 + erf would cancel */
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

template <typename T, int KIND> enum status run_forward(const struct op_attrs *attrs, void *const *arg, cuda_stream stream)
{
    forward<T, KIND> op = {(T *)arg[0], (const T *)arg[1]};
    return launch_elements<WIDTH<T>>(op, attrs->act.rows * attrs->act.dim, aligned_to_vectors({arg[0], arg[1]}), stream);
}

template <typename T, int KIND> enum status run_backward(const struct op_attrs *attrs, void *const *arg, cuda_stream stream)
{
    backward<T, KIND> op = {(T *)arg[0], (T *)arg[1]};
    return launch_elements<WIDTH<T>>(op, attrs->act.rows * attrs->act.dim, aligned_to_vectors({op.x, op.dy}), stream);
}

} // namespace

enum status ops_cuda_gelu(const struct op_attrs *attrs, void *const *arg, cuda_stream stream)
{
    TRY(check_storage("gelu", attrs->act.dtype));
    if (attrs->act.kind == GELU_ERF)
        return attrs->act.dtype == BF16 ? run_forward<bf16, GELU_ERF>(attrs, arg, stream)
                                        : run_forward<float, GELU_ERF>(attrs, arg, stream);
    return attrs->act.dtype == BF16 ? run_forward<bf16, GELU_TANH>(attrs, arg, stream)
                                    : run_forward<float, GELU_TANH>(attrs, arg, stream);
}

enum status ops_cuda_gelu_grad(const struct op_attrs *attrs, void *const *arg, cuda_stream stream)
{
    TRY(check_storage("gelu_grad", attrs->act.dtype));
    if (attrs->act.kind == GELU_ERF)
        return attrs->act.dtype == BF16 ? run_backward<bf16, GELU_ERF>(attrs, arg, stream)
                                        : run_backward<float, GELU_ERF>(attrs, arg, stream);
    return attrs->act.dtype == BF16 ? run_backward<bf16, GELU_TANH>(attrs, arg, stream)
                                    : run_backward<float, GELU_TANH>(attrs, arg, stream);
}
