/* GELU, forward and backward. */
#include "device/cuda/ptx.cuh"
#include "ops/cuda_vec.cuh"

namespace
{

/* Beyond |x| = 30 both slopes are 0 in fp32; clamping keeps the cube and the square finite. */
__device__ __forceinline__ float clamped(float x)
{
    x = x < -30.0f ? -30.0f : x; /* not fminf and fmaxf: NaN stays NaN */
    return x > 30.0f ? 30.0f : x;
}

/* log2 of the normal distribution's upper tail 1 - Phi(t), t >= 0: least maximum error of t * tail (1.4e-8) on [0, 6.5], and
 * falling to -inf beyond. */
__device__ __forceinline__ float log2_tail(float t)
{
    float p = fmaf(-2.27595842e-6f, t, 3.29691538e-5f);
    p = fmaf(p, t, -1.57284754e-4f);
    p = fmaf(p, t, -2.02462776e-4f);
    p = fmaf(p, t, 7.14275753e-3f);
    p = fmaf(p, t, -5.25464155e-2f);
    p = fmaf(p, t, -0.459193051f);
    p = fmaf(p, t, -1.15110695f);
    return fmaf(p, t, -0.99999994f);
}

/* Phi(x), and in *slope x * Phi'(x). */
template <int KIND> __device__ __forceinline__ float phi(float x, float *slope)
{
    float c = clamped(x);
    if constexpr (KIND == GELU_TANH) {
        const float twice_sqrt_2_pi = 1.595769122f, cubic = 0.044715f, in_log2 = -1.595769122f * 1.44269504f;
        float p = rcp(1.0f + ex2(x * fmaf(in_log2 * cubic, x * x, in_log2)));
        *slope = c * (twice_sqrt_2_pi * fmaf(3.0f * cubic, c * c, 1.0f)) * (p * (1.0f - p));
        return p;
    } else {
        const float tail = ex2(log2_tail(fabsf(x)));
        *slope = c * (0.398942280f * ex2(-0.721347520f * c * c));
        return x < 0.0f ? tail : 1.0f - tail; /* the negative tail does not cancel */
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
