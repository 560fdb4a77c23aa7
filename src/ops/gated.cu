/* Gated units with a weight for each row, forward and backward. */
#include "ops/cuda_gate.cuh"
#include "ops/cuda_reduce.cuh"

namespace
{

struct layout {
    int64_t dim, pairs;
    int interleaved;
};

/* Loads elements [j, j + N) of gate and up of a row; GATE_ALONE has no `up`, which is 1. */
template <int KIND, int N, typename T>
__device__ __forceinline__ void load_both(float (&gate)[N], float (&up)[N], const T *x, int64_t row, int64_t j, const layout &at)
{
    if constexpr (KIND == GATE_ALONE) {
        load<N>(gate, x + row * at.dim + j);
#pragma unroll
        for (int k = 0; k < N; k++)
            up[k] = 1.0f;
        return;
    }
    x += row * 2 * at.dim;
    if (!at.interleaved) {
        load<N>(gate, x + j);
        load<N>(up, x + at.dim + j);
        return;
    }
    float both[2 * N];
    load<2 * N>(both, x + 2 * j);
#pragma unroll
    for (int k = 0; k < N; k++) {
        gate[k] = both[2 * k];
        up[k] = both[2 * k + 1];
    }
}

template <int KIND, int N, typename T>
__device__ __forceinline__ void store_both(T *x, const float (&gate)[N], const float (&up)[N], int64_t row, int64_t j,
                                           const layout &at)
{
    if constexpr (KIND == GATE_ALONE) {
        store<N>(x + row * at.dim + j, gate);
        return;
    }
    x += row * 2 * at.dim;
    if (!at.interleaved) {
        store<N>(x + j, gate);
        store<N>(x + at.dim + j, up);
        return;
    }
    float both[2 * N];
#pragma unroll
    for (int k = 0; k < N; k++) {
        both[2 * k] = gate[k];
        both[2 * k + 1] = up[k];
    }
    store<2 * N>(x + 2 * j, both);
}

template <typename T, int KIND> struct weighted {
    T *act;
    const T *x;
    const float *p;
    const int32_t *place;
    layout at;
    clamps of;

    template <int N> __device__ __forceinline__ void run(int64_t pair, int64_t j) const
    {
        const int64_t row = place[pair];
        float g[N], u[N];
        if (row < 0 || row >= at.pairs)
            return;
        load_both<KIND, N>(g, u, x, row, j, at);
#pragma unroll
        for (int k = 0; k < N; k++) {
            float slope;
            const float f = gated<KIND>(g[k], &slope, of);
            u[k] = p[pair] * (f * multiplier<KIND>(u[k], &slope, of));
        }
        store<N>(act + row * at.dim + j, u);
    }
};

/* Arguments of the gradient. dy, bias and ids: NULL if the second map has no bias. */
template <typename T> struct gradient_args {
    T *x, *g; /* gate and up; the gradient of act */
    float *dp;
    const float *p;
    const int32_t *place;
    const T *dy, *bias;
    const int32_t *ids;
    int64_t width;
    int k, experts;
    layout at;
    clamps of;
};

/* Computes the gradients of N elements. Returns g's product with the unweighted values. */
template <int KIND, int N, typename T>
__device__ __forceinline__ float element_gradients(const gradient_args<T> &a, float p, int64_t row, int64_t j)
{
    float g[N], u[N], d[N], sum = 0;
    load_both<KIND, N>(g, u, a.x, row, j, a.at);
    load<N>(d, a.g + row * a.at.dim + j);
#pragma unroll
    for (int k = 0; k < N; k++) {
        float slope, of_up;
        const float f = gated<KIND>(g[k], &slope, a.of), m = multiplier<KIND>(u[k], &of_up, a.of), y = f * m;
        g[k] = p * d[k] * m * slope;
        u[k] = p * d[k] * f * of_up;
        sum = fmaf(d[k], y, sum);
        d[k] = p * y;
    }
    store_both<KIND, N>(a.x, g, u, row, j, a.at);
    store<N>(a.g + row * a.at.dim + j, d);
    return sum;
}

/* Computes a pair's gradients: blockDim.x threads share its row, blockDim.y rows a block if a row has one warp. */
template <typename T, int KIND, int N> __global__ void __launch_bounds__(THREADS) pair_gradients(gradient_args<T> a)
{
    typedef warp_parts<float, 1> parts;
    LT_SHARED(parts, s);
    const int64_t pair = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (pair >= a.at.pairs)
        return;
    const int64_t row = a.place[pair], expert = a.bias ? a.ids[pair] : 0;
    if (row < 0 || row >= a.at.pairs || expert < 0 || expert >= a.experts)
        return;
    const float p = a.p[pair];
    float sum[1] = {0};
    for (int64_t j = (int64_t)threadIdx.x * N; j < a.at.dim; j += (int64_t)blockDim.x * N)
        sum[0] += element_gradients<KIND, N>(a, p, row, j);
    for (int64_t j = (int64_t)threadIdx.x * N; j < (a.bias ? a.width : 0); j += (int64_t)blockDim.x * N) {
        float d[N], b[N];
        load<N>(d, a.dy + pair / a.k * a.width + j);
        load<N>(b, a.bias + expert * a.width + j);
#pragma unroll
        for (int k = 0; k < N; k++)
            sum[0] = fmaf(d[k], b[k], sum[0]);
    }
    row_sum(sum, s);
    if (threadIdx.x == 0)
        a.dp[row] = sum[0];
}

layout layout_of(const struct op_attrs *attrs)
{
    return {attrs->gated.dim, attrs->gated.rows * attrs->gated.k, attrs->gated.interleaved};
}

template <typename T, int KIND> enum status run_forward(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    const weighted<T, KIND> op = {(T *)arg[0],           (const T *)arg[1],
                                  (const float *)arg[2], (const int32_t *)arg[3],
                                  layout_of(attrs),      {attrs->gated.limit, attrs->gated.alpha}};
    return launch_rows<WIDTH<T>>(op, op.at.pairs, op.at.dim, aligned_to_vectors({op.act, op.x}), stream);
}

template <typename T, int KIND> enum status run_backward(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    constexpr int N = WIDTH<T>;
    const gradient_args<T> a = {(T *)arg[0],
                                (T *)arg[1],
                                (float *)arg[2],
                                (const float *)arg[3],
                                (const int32_t *)arg[4],
                                (const T *)arg[5],
                                (const T *)arg[6],
                                (const int32_t *)arg[7],
                                attrs->gated.width,
                                attrs->gated.k,
                                attrs->gated.experts,
                                layout_of(attrs),
                                {attrs->gated.limit, attrs->gated.alpha}};
    const bool vectors = a.at.dim % N == 0 && (!a.bias || a.width % N == 0) && aligned_to_vectors({a.x, a.g, a.dy, a.bias});
    const unsigned x = reducing_threads(blocks_of(a.at.dim, vectors ? N : 1), THREADS), y = x == LT_WARP ? THREADS / LT_WARP : 1;
    return launch(dim3((unsigned)blocks_of(a.at.pairs, y)), dim3(x, y), sizeof(warp_parts<float, 1>), stream,
                  vectors ? pair_gradients<T, KIND, N> : pair_gradients<T, KIND, 1>, a);
}

template <int KIND> enum status forward_typed(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    return attrs->gated.dtype == BF16 ? run_forward<bf16, KIND>(attrs, arg, stream)
                                      : run_forward<float, KIND>(attrs, arg, stream);
}

template <int KIND> enum status backward_typed(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    return attrs->gated.dtype == BF16 ? run_backward<bf16, KIND>(attrs, arg, stream)
                                      : run_backward<float, KIND>(attrs, arg, stream);
}

} // namespace

enum status ops_cuda_gated(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    TRY(check_storage("gated", attrs->gated.dtype));
    return for_gate("gated", attrs->gated.kind,
                    [&](auto gate) { return forward_typed<decltype(gate)::value>(attrs, arg, stream); });
}

enum status ops_cuda_gated_grad(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    TRY(check_storage("gated_grad", attrs->gated.dtype));
    return for_gate("gated_grad", attrs->gated.kind,
                    [&](auto gate) { return backward_typed<decltype(gate)::value>(attrs, arg, stream); });
}
