/* Attention sinks, merged into attention's result, and their gradient. */
#include "ops/cuda_reduce.cuh"

namespace
{

/* The heads at work: head() gives the index among the model's heads. */
struct own_heads {
    const step_record *record;
    int group, share, first;
    __device__ __forceinline__ int64_t head(int64_t h) const
    {
        return (int64_t)record->member[group] * share + first + h;
    }
};

template <typename S> struct merge_args {
    float *o, *lse;
    const S *sinks;
    own_heads own;
    int64_t rows, heads, head_dim;
    int lanes; /* lanes of one warp, a power of two, that share a (row, head) */
};

/* Returns the weight of the attended keys when the sink takes part, as in sink.c; *lse becomes the log-sum-exp with the sink. */
__device__ __forceinline__ float weight_beside(float sink, float *lse)
{
    if (isnan(*lse))
        return *lse;
    const float smaller = expf(-fabsf(*lse - sink)), larger = 1.0f / (1.0f + smaller);
    const float weight = *lse >= sink ? larger : smaller * larger;
    *lse = fmaxf(*lse, sink) + log1pf(smaller);
    return weight;
}

template <typename S, int N> __global__ void __launch_bounds__(THREADS) merge_sinks(merge_args<S> a)
{
    const int64_t i = (int64_t)blockIdx.x * (THREADS / a.lanes) + threadIdx.x / a.lanes;
    const int64_t h = i % a.heads, at = h * a.rows + i / a.heads, first = (int64_t)(threadIdx.x % a.lanes) * N;
    const bool live = i < a.rows * a.heads;
    float lse = live ? a.lse[at] : 0.0f, sink[1] = {0};
    if (live)
        load<1>(sink, a.sinks + a.own.head(h));
    const float weight = weight_beside(sink[0], &lse);
    __syncwarp(); /* all lanes have read lse */
    if (!live)
        return;
    if (first == 0)
        a.lse[at] = lse;
    for (int64_t j = first; j < a.head_dim; j += (int64_t)a.lanes * N) {
        float x[N];
        load<N>(x, a.o + i * a.head_dim + j);
#pragma unroll
        for (int k = 0; k < N; k++)
            x[k] *= weight;
        store<N>(a.o + i * a.head_dim + j, x);
    }
}

template <typename S> struct gradient_args {
    float *dsinks;
    const S *sinks;
    const float *lse, *delta;
    own_heads own;
    int64_t rows, heads;
};

constexpr int ROW_THREADS = 1024; /* threads for a head: few heads, many rows */

/* Computes one head's sink gradient in a block. A thread takes every ROW_THREADS-th row, in fp64, and the threads' sums are added
 * in one order. */
template <typename S> __global__ void __launch_bounds__(ROW_THREADS) sink_gradients(gradient_args<S> a)
{
    typedef warp_parts<double, 1> space;
    LT_SHARED(space, parts);
    const int64_t h = blockIdx.x;
    float sink[1];
    double sum[1] = {0};
    load<1>(sink, a.sinks + a.own.head(h));
    for (int64_t i = threadIdx.x; i < a.rows; i += ROW_THREADS)
        sum[0] += (double)(expf(sink[0] - a.lse[h * a.rows + i]) * a.delta[i * a.heads + h]);
    row_sum(sum, parts);
    if (threadIdx.x == 0)
        a.dsinks[a.own.head(h)] -= (float)sum[0];
}

own_heads own_of(const struct op_attrs *attrs, const void *record)
{
    return {(const step_record *)record, attrs->sink.group, attrs->sink.share, attrs->sink.first};
}

template <typename S> enum status run_merge(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    merge_args<S> a = {(float *)arg[0],  (float *)arg[1],   (const S *)arg[2],    own_of(attrs, arg[3]),
                       attrs->sink.rows, attrs->sink.heads, attrs->sink.head_dim, 1};
    const bool vectors = a.head_dim % WIDTH<float> == 0 && aligned_to_vectors({a.o});
    while (a.lanes < LT_WARP && a.lanes * (vectors ? WIDTH<float> : 1) < a.head_dim)
        a.lanes *= 2;
    const dim3 grid((unsigned)blocks_of(a.rows * a.heads, THREADS / a.lanes));
    return launch(grid, dim3(THREADS), 0, stream, vectors ? merge_sinks<S, WIDTH<float>> : merge_sinks<S, 1>, a);
}

template <typename S> enum status run_gradient(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    const gradient_args<S> a = {(float *)arg[0],       (const S *)arg[1], (const float *)arg[2], (const float *)arg[3],
                                own_of(attrs, arg[4]), attrs->sink.rows,  attrs->sink.heads};
    return launch(dim3((unsigned)a.heads), dim3(ROW_THREADS), sizeof(warp_parts<double, 1>), stream, sink_gradients<S>, a);
}

} // namespace

enum status ops_cuda_attn_sink(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    TRY(check_storage("attn_sink", attrs->sink.dtype));
    if (attrs->sink.rows <= 0 || attrs->sink.heads <= 0)
        return OK;
    return attrs->sink.dtype == BF16 ? run_merge<bf16>(attrs, arg, stream) : run_merge<float>(attrs, arg, stream);
}

enum status ops_cuda_attn_sink_grad(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    TRY(check_storage("attn_sink_grad", attrs->sink.dtype));
    if (attrs->sink.rows <= 0 || attrs->sink.heads <= 0)
        return OK;
    return attrs->sink.dtype == BF16 ? run_gradient<bf16>(attrs, arg, stream) : run_gradient<float>(attrs, arg, stream);
}
