/* Residual addition, gradient accumulation and biases. */
#include "ops/cuda_vec.cuh"

namespace
{

/* Adds without bias: x + scale * delta; with scale 1 the product is exact. */
template <typename T> struct add {
    T *y;
    const T *x;
    const float *delta;
    float scale;
    template <int N> __device__ __forceinline__ void run(int64_t i) const
    {
        float a[N], b[N];
        load<N>(a, x + i);
        load<N>(b, delta + i);
#pragma unroll
        for (int k = 0; k < N; k++)
            a[k] = fmaf(scale, b[k], a[k]);
        store<N>(y + i, a);
    }
};

/* Adds with bias: (x + delta) + bias, or x + scale * (delta + bias). */
template <typename T, bool SCALED> struct add_with_bias {
    T *y;
    const T *x;
    const float *delta;
    const T *bias;
    int64_t dim;
    float scale;
    template <int N> __device__ __forceinline__ void run(int64_t row, int64_t j) const
    {
        int64_t i = row * dim + j;
        float a[N], b[N], c[N];
        load<N>(a, x + i);
        load<N>(b, delta + i);
        load<N>(c, bias + j);
#pragma unroll
        for (int k = 0; k < N; k++)
            a[k] = SCALED ? fmaf(scale, b[k] + c[k], a[k]) : a[k] + b[k] + c[k];
        store<N>(y + i, a);
    }
};

struct accumulate {
    float *y;
    const float *x;
    template <int N> __device__ __forceinline__ void run(int64_t i) const
    {
        float a[N], b[N];
        load<N>(a, y + i);
        load<N>(b, x + i);
#pragma unroll
        for (int k = 0; k < N; k++)
            a[k] += b[k];
        store<N>(y + i, a);
    }
};

template <typename T> enum status run_add(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    int64_t rows = attrs->add.rows, dim = attrs->add.dim;
    T *y = (T *)arg[0];
    const T *x = (const T *)arg[1], *bias = (const T *)arg[3];
    const float *delta = (const float *)arg[2], scale = attrs->add.scale != 0.0f ? attrs->add.scale : 1.0f;
    bool vectors = aligned_to_vectors({y, x, delta, bias});
    if (bias && scale != 1.0f)
        return launch_rows<WIDTH<T>>(add_with_bias<T, true>{y, x, delta, bias, dim, scale}, rows, dim, vectors, stream);
    if (bias)
        return launch_rows<WIDTH<T>>(add_with_bias<T, false>{y, x, delta, bias, dim, scale}, rows, dim, vectors, stream);
    return launch_elements<WIDTH<T>>(add<T>{y, x, delta, scale}, rows * dim, vectors, stream);
}

} // namespace

enum status ops_cuda_add(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    TRY(check_storage("add", attrs->add.dtype));
    return attrs->add.dtype == BF16 ? run_add<bf16>(attrs, arg, stream) : run_add<float>(attrs, arg, stream);
}

enum status ops_cuda_accum(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    accumulate op = {(float *)arg[0], (const float *)arg[1]};
    return launch_elements<4>(op, attrs->vec.n, aligned_to_vectors({op.y, op.x}), stream);
}
