/* Attention's work per row and head: delta of the backward pass, the merge of attention over two disjoint sets of keys, copies of
 * some heads' columns, and heads that share a part. */
#include "ops/cuda_vec.cuh"

namespace
{

/* A (row, head) is shared by `lanes` lanes of one warp, a power of two. Each lane has runs of N elements, of which head_dim is a
 * multiple. A block takes THREADS / lanes (row, head) pairs. */
struct heads_grid {
    int64_t rows, heads, head_dim;
    int lanes;
};

/* Returns the (row, head) of this thread, possibly beyond the last; *first: first element of its run. */
template <int N> __device__ __forceinline__ int64_t head_of(const heads_grid &g, int64_t *first)
{
    *first = (int64_t)(threadIdx.x % g.lanes) * N;
    return (int64_t)blockIdx.x * (THREADS / g.lanes) + threadIdx.x / g.lanes;
}

template <typename T, int N>
__global__ void __launch_bounds__(THREADS) delta_heads(heads_grid g, float *delta, const T *o, const T *d_o)
{
    int64_t first;
    const int64_t i = head_of<N>(g, &first);
    float sum = 0;
    for (int64_t j = first; i < g.rows * g.heads && j < g.head_dim; j += (int64_t)g.lanes * N) {
        float x[N], y[N];
        load<N>(x, o + i * g.head_dim + j);
        load<N>(y, d_o + i * g.head_dim + j);
#pragma unroll
        for (int k = 0; k < N; k++)
            sum = fmaf(x[k], y[k], sum);
    }
    for (int d = g.lanes / 2; d > 0; d /= 2)
        sum += __shfl_xor_sync(LT_FULL_MASK, sum, d);
    if (first == 0 && i < g.rows * g.heads)
        delta[i] = sum;
}

/* Computes the weights of o and of the part in their union, and returns the union's lse, as in heads.c. */
__device__ __forceinline__ float merge_weights(float lse, float part, float *keep, float *add)
{
    if (part == -INFINITY || lse == -INFINITY) {
        *keep = part == -INFINITY;
        *add = part != -INFINITY;
        return part == -INFINITY ? lse : part;
    }
    const float smaller = expf(-fabsf(lse - part)), larger = 1.0f / (1.0f + smaller);
    *keep = lse >= part ? larger : smaller * larger;
    *add = lse >= part ? smaller * larger : larger;
    return fmaxf(lse, part) + log1pf(smaller);
}

struct merge_args {
    float *o, *lse;
    const float *o_part, *lse_part;
};

template <int N> __global__ void __launch_bounds__(THREADS) merge_heads(heads_grid g, merge_args a)
{
    int64_t first;
    const int64_t i = head_of<N>(g, &first), at = i % g.heads * g.rows + i / g.heads;
    const bool live = i < g.rows * g.heads;
    float keep = 1, add = 0, merged = 0;
    if (live)
        merged = merge_weights(a.lse[at], a.lse_part[at], &keep, &add);
    __syncwarp(); /* all lanes have read lse */
    if (!live)
        return;
    if (first == 0)
        a.lse[at] = merged;
    if (add == 0) /* o stays as it is, even if the part is not finite */
        return;
    for (int64_t j = first; j < g.head_dim; j += (int64_t)g.lanes * N) {
        float x[N], y[N];
        load<N>(y, a.o_part + i * g.head_dim + j);
        if (keep != 0) { /* with weight 0 the contents of o must not count, even if not finite */
            load<N>(x, a.o + i * g.head_dim + j);
#pragma unroll
            for (int k = 0; k < N; k++)
                y[k] = fmaf(keep, x[k], add * y[k]);
        }
        store<N>(a.o + i * g.head_dim + j, y);
    }
}

heads_grid grid_of(const struct op_attrs *attrs, int width)
{
    heads_grid g = {attrs->heads.rows, attrs->heads.heads, attrs->heads.head_dim, 1};
    while (g.lanes < LT_WARP && g.lanes * width < g.head_dim)
        g.lanes *= 2;
    return g;
}

dim3 blocks_for(const heads_grid &g)
{
    return dim3((unsigned)blocks_of(g.rows * g.heads, THREADS / g.lanes));
}

/* Tells whether heads can be read 16 bytes at a time: whole runs, and every row aligned. */
template <typename T> bool vectors_of(const struct op_attrs *attrs, std::initializer_list<const void *> operands)
{
    return attrs->heads.head_dim % WIDTH<T> == 0 && aligned_to_vectors(operands);
}

template <typename T> enum status run_delta(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    float *delta = (float *)arg[0];
    const T *o = (const T *)arg[1], *d_o = (const T *)arg[2];
    const bool vectors = vectors_of<T>(attrs, {o, d_o});
    const heads_grid g = grid_of(attrs, vectors ? WIDTH<T> : 1);
    return launch(blocks_for(g), dim3(THREADS), 0, stream, vectors ? delta_heads<T, WIDTH<T>> : delta_heads<T, 1>, g, delta, o,
                  d_o);
}

template <typename Y, typename X> enum status run_columns(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    const copy_columns<Y, X> op = {(Y *)arg[0] + attrs->columns.y_first, (const X *)arg[1] + attrs->columns.x_first,
                                   attrs->columns.y_ld, attrs->columns.x_ld};
    return launch_columns(op, attrs->columns.rows, attrs->columns.cols, stream);
}

/* Heads of `own` elements beside `shared` ones that all heads of a row have. */
struct joined {
    int64_t rows, heads, own, shared;
};

/* Writes y, an element a thread. */
template <typename T> __global__ void __launch_bounds__(THREADS) join_heads(joined s, T *y, const T *x, const T *z)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, wide = s.own + s.shared;
    if (i >= s.rows * s.heads * wide)
        return;
    const int64_t head = i / wide, j = i % wide;
    y[i] = j < s.own ? x[head * s.own + j] : z[head / s.heads * s.shared + j - s.own];
}

/* Writes dx and, in the threads after those, dz: the sum over heads in their order. */
__global__ void __launch_bounds__(THREADS) split_heads(joined s, float *dx, float *dz, const float *dy, int accumulate)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, own = s.rows * s.heads * s.own, wide = s.own + s.shared;
    if (i < own) {
        dx[i] = dy[i / s.own * wide + i % s.own];
        return;
    }
    const int64_t k = i - own;
    if (k >= s.rows * s.shared)
        return;
    const float *from = dy + k / s.shared * s.heads * wide + s.own + k % s.shared;
    float sum = accumulate ? dz[k] : 0.0f;
    for (int64_t h = 0; h < s.heads; h++)
        sum += from[h * wide];
    dz[k] = sum;
}

template <typename T> enum status run_join(const joined &s, void *const *arg, void *stream)
{
    const int64_t n = s.rows * s.heads * (s.own + s.shared);
    return launch(dim3((unsigned)blocks_of(n, THREADS)), dim3(THREADS), 0, stream, join_heads<T>, s, (T *)arg[0],
                  (const T *)arg[1], (const T *)arg[2]);
}

joined joined_of(const struct op_attrs *attrs)
{
    return {attrs->join.rows, attrs->join.heads, attrs->join.own, attrs->join.shared};
}

bool nothing_to_do(const struct op_attrs *attrs)
{
    return attrs->heads.rows <= 0 || attrs->heads.heads <= 0;
}

} // namespace

enum status ops_cuda_attn_delta(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    TRY(check_storage("attn_delta", attrs->heads.dtype));
    if (nothing_to_do(attrs))
        return OK;
    return attrs->heads.dtype == BF16 ? run_delta<bf16>(attrs, arg, stream) : run_delta<float>(attrs, arg, stream);
}

enum status ops_cuda_attn_merge(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    if (nothing_to_do(attrs))
        return OK;
    const merge_args a = {(float *)arg[0], (float *)arg[1], (const float *)arg[2], (const float *)arg[3]};
    const bool vectors = vectors_of<float>(attrs, {a.o, a.o_part});
    const heads_grid g = grid_of(attrs, vectors ? WIDTH<float> : 1);
    return launch(blocks_for(g), dim3(THREADS), 0, stream, vectors ? merge_heads<WIDTH<float>> : merge_heads<1>, g, a);
}

enum status ops_cuda_columns(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    TRY(check_storage("columns", attrs->columns.y_type));
    TRY(check_storage("columns", attrs->columns.x_type));
    if (attrs->columns.y_type == BF16)
        return attrs->columns.x_type == BF16 ? run_columns<bf16, bf16>(attrs, arg, stream)
                                             : run_columns<bf16, float>(attrs, arg, stream);
    return attrs->columns.x_type == BF16 ? run_columns<float, bf16>(attrs, arg, stream)
                                         : run_columns<float, float>(attrs, arg, stream);
}

enum status ops_cuda_heads_join(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    const joined s = joined_of(attrs);
    TRY(check_storage("heads_join", attrs->join.dtype));
    if (s.rows <= 0 || s.heads <= 0 || s.own + s.shared <= 0)
        return OK;
    return attrs->join.dtype == BF16 ? run_join<bf16>(s, arg, stream) : run_join<float>(s, arg, stream);
}

enum status ops_cuda_heads_split(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    const joined s = joined_of(attrs);
    const int64_t n = s.rows * (s.heads * s.own + s.shared);
    if (n <= 0)
        return OK;
    return launch(dim3((unsigned)blocks_of(n, THREADS)), dim3(THREADS), 0, stream, split_heads, s, (float *)arg[0],
                  (float *)arg[1], (const float *)arg[2], (int)attrs->join.accumulate);
}
