/* SwiGLU, GeGLU, gpt-oss's clamped gates and those of attention's output, forward and backward. */
#include "ops/cuda_gate.cuh"
#include "ops/cuda_reduce.cuh"

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

/* Computes the forward pass with a weight for each row, the sigmoid of its scalar. */
template <typename T, int KIND> struct weighed {
    forward<T, KIND> unweighed;
    const float *scalar;
    int64_t dim;
    template <int N> __device__ __forceinline__ void run(int64_t row, int64_t j) const
    {
        const int64_t at = row * dim + j;
        const float factor = sigmoid(scalar[row]);
        float g[N], u[N];
        load<N>(g, unweighed.x + at);
        load<N>(u, unweighed.up + at);
#pragma unroll
        for (int k = 0; k < N; k++) {
            float slope;
            u[k] = factor * (gated<KIND>(g[k], &slope, unweighed.of) * multiplier<KIND>(u[k], &slope, unweighed.of));
        }
        store<N>(unweighed.y + at, u);
    }
};

/* Computes a row's gradients and that of its scalar: blockDim.x threads share the row, blockDim.y rows a block if a row has one
 * warp. */
template <typename T, int KIND, int N>
__global__ void __launch_bounds__(THREADS) weighed_gradients(backward<T, KIND> of, float *scalar, int64_t rows, int64_t dim)
{
    typedef warp_parts<float, 1> parts;
    LT_SHARED(parts, s);
    const int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows)
        return;
    const float factor = sigmoid(scalar[row]);
    float sum[1] = {0};
    for (int64_t j = (int64_t)threadIdx.x * N; j < dim; j += (int64_t)blockDim.x * N) {
        const int64_t at = row * dim + j;
        float g[N], u[N], d[N];
        load<N>(g, of.x + at);
        load<N>(u, of.up + at);
        load<N>(d, of.dy + at);
#pragma unroll
        for (int k = 0; k < N; k++) {
            float slope, of_up;
            const float f = gated<KIND>(g[k], &slope, of.of), m = multiplier<KIND>(u[k], &of_up, of.of), y = f * m;
            sum[0] = fmaf(d[k], y, sum[0]);
            g[k] = factor * d[k] * m * slope;
            u[k] = factor * d[k] * f * of_up;
            d[k] = factor * y;
        }
        store<N>(of.x + at, g);
        store<N>(of.up + at, u);
        store<N>(of.dy + at, d);
    }
    row_sum(sum, s);
    __syncwarp(); /* a warp that has a row for itself has read its scalar */
    if (threadIdx.x == 0)
        scalar[row] = sum[0] * factor * (1.0f - factor);
}

template <typename T, int KIND> enum status run_forward(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    forward<T, KIND> op = {(T *)arg[0], (const T *)arg[1], (const T *)arg[2], {attrs->act.limit, attrs->act.alpha}};
    if (arg[3])
        return launch_rows<WIDTH<T>>(weighed<T, KIND>{op, (const float *)arg[3], attrs->act.dim}, attrs->act.rows, attrs->act.dim,
                                     aligned_to_vectors({op.y, op.x, op.up}), stream);
    return launch_elements<WIDTH<T>>(op, attrs->act.rows * attrs->act.dim, aligned_to_vectors({arg[0], arg[1], arg[2]}), stream);
}

template <typename T, int KIND> enum status run_backward(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    backward<T, KIND> op = {(T *)arg[0], (T *)arg[1], (T *)arg[2], {attrs->act.limit, attrs->act.alpha}};
    const bool vectors = aligned_to_vectors({op.x, op.up, op.dy});
    if (!arg[3])
        return launch_elements<WIDTH<T>>(op, attrs->act.rows * attrs->act.dim, vectors, stream);
    const bool runs = vectors && attrs->act.dim % WIDTH<T> == 0;
    const unsigned x = reducing_threads(blocks_of(attrs->act.dim, runs ? WIDTH<T> : 1), THREADS),
                   y = x == LT_WARP ? THREADS / LT_WARP : 1;
    return launch(dim3((unsigned)blocks_of(attrs->act.rows, y)), dim3(x, y), sizeof(warp_parts<float, 1>), stream,
                  runs ? weighed_gradients<T, KIND, WIDTH<T>> : weighed_gradients<T, KIND, 1>, op, (float *)arg[3],
                  attrs->act.rows, attrs->act.dim);
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

} // namespace

enum status ops_cuda_swiglu(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    TRY(check_storage("swiglu", attrs->act.dtype));
    return for_gate("swiglu", attrs->act.kind,
                    [&](auto gate) { return forward_typed<decltype(gate)::value>(attrs, arg, stream); });
}

enum status ops_cuda_swiglu_grad(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    TRY(check_storage("swiglu_grad", attrs->act.dtype));
    return for_gate("swiglu_grad", attrs->act.kind,
                    [&](auto gate) { return backward_typed<decltype(gate)::value>(attrs, arg, stream); });
}
