/* Chunks of a scan on CUDA: arguments, scratch, and loads of rows. Private to src/recurrence. */
#ifndef LTRAIN_RECURRENCE_CUDA_SCAN_CUH
#define LTRAIN_RECURRENCE_CUDA_SCAN_CUH

#include "recurrence/cuda_tile.cuh"

/* A call of a scan or its sums. Scratch: struct scan_layout; NULL: the op has no such part. */
struct scan_args {
    int64_t rows, ld;
    int64_t chunks, units, key_wide, value_wide;
    int heads, groups, key, value, key_used, q_first, k_first, v_first, is_delta, adds; /* key_used: key, rounded up to 32 */
    float scale, eps;
    void *qkv; /* becomes its gradient in the backward pass, as g and beta do */
    float *g, *beta;
    const void *skip, *d_out;
    const int32_t *links;
    const float *before;
    void *o;
    float *after, *dstate, *dskip, *move; /* move: of OP_SCAN_SUM, whose `own` is before and after */
    struct chunk_gates *gates;
    float *norms, *y, *z, *states, *inverse, *dz, *dstates;
    double *dskips, *sums;
    float *pairs;
};

/* Refuses shapes that no kernel takes. */
enum status scan_cuda_args(const char *op, enum op_kind kind, const struct op_attrs *attrs, void *work, struct scan_args *a);
/* Computes gates, norms, Y, and those of T and T beta V that a has room for. */
enum status scan_cuda_prepare(const struct op_attrs *attrs, const struct scan_args *a, void *stream);
/* Does that, and computes Z, the states before all chunks, if a has room for them, and the state or summary after the last. */
enum status scan_cuda_states(const struct op_attrs *attrs, const struct scan_args *a, void *stream);
/* Computes R' dO of all chunks, the states' gradients after them, if a has room for them, and a->dstate before the first. */
enum status scan_cuda_dstates(const struct op_attrs *attrs, const struct scan_args *a, void *stream);
/* Computes a's sums and pairs, of SCAN_CHANNELS. is_half: rows are bf16, and products take operands rounded to it. */
enum status channels_cuda_prepare(const struct scan_args &a, bool is_half, void *stream);
/* Computes the gradients of a chunk's rows, of SCAN_CHANNELS: of values, g and beta, and of each head's keys and queries. */
enum status channels_cuda_gradients(const struct scan_args &a, bool is_half, void *stream);

namespace
{

/* Head of a chunk. */
struct unit {
    int64_t at, first; /* number of the unit; first row */
    int n, tall, head; /* rows; the same, rounded up to 32 */
};

__device__ __forceinline__ unit unit_of(const scan_args &a, int64_t chunk, int head)
{
    const int64_t first = chunk * SIDE, left = a.rows - first;
    const int n = (int)(left < SIDE ? left : SIDE);
    return {chunk * a.heads + head, first, n, (n + 31) / 32 * 32, head};
}

/* Returns this thread block's unit. */
__device__ __forceinline__ unit unit_here(const scan_args &a)
{
    return unit_of(a, blockIdx.x / a.heads, (int)(blockIdx.x % a.heads));
}

/* Returns the columns of a slice that products take, a multiple of 32: those of scratch beyond are not defined. */
__device__ __forceinline__ int slice_columns(int dim, int from)
{
    const int left = (dim - from + 31) / 32 * 32;
    return left < SIDE ? left : SIDE;
}

__device__ __forceinline__ bool has_token(const scan_args &a, const unit &u, int i)
{
    return i < u.n && a.links[u.first + i] != ROW_NONE;
}

/* Returns column j of row i of the unit's keys, after their norm. */
template <typename T> __device__ __forceinline__ float key_at(const scan_args &a, const unit &u, int i, int j)
{
    const int64_t row = u.first + i, group = (int64_t)u.head * a.groups / a.heads;
    if (j >= a.key || !has_token(a, u, i))
        return 0.0f;
    return get((const T *)a.qkv, row * a.ld + a.k_first + group * a.key + j) * a.norms[(row * a.groups + group) * 2];
}

/* Returns column j of row i of the unit's queries, after their norm and scale. */
template <typename T> __device__ __forceinline__ float query_at(const scan_args &a, const unit &u, int i, int j)
{
    const int64_t row = u.first + i, group = (int64_t)u.head * a.groups / a.heads;
    if (j >= a.key || !has_token(a, u, i))
        return 0.0f;
    return get((const T *)a.qkv, row * a.ld + a.q_first + group * a.key + j) * a.norms[(row * a.groups + group) * 2 + 1];
}

/* Returns the decay of channel j of a key from row `before` to row i of a unit: SCAN_CHANNELS. */
__device__ __forceinline__ float channel_decay(const scan_args &a, const unit &u, int i, int before, int j)
{
    const double *const sum = a.sums + u.at * SIDE * a.key_wide + j;
    return expf((float)(sum[i * a.key_wide] - sum[before * a.key_wide]));
}

/* Returns the decay of a channel from the chunk's beginning to row i; 1 of other kinds, whose gates have it. */
__device__ __forceinline__ float entering(const scan_args &a, const unit &u, int i, int j)
{
    return a.sums ? expf((float)a.sums[(u.at * SIDE + i) * a.key_wide + j]) : 1.0f;
}

/* Returns the decay of a channel from row i to the chunk's end; 1 of other kinds. */
__device__ __forceinline__ float leaving(const scan_args &a, const unit &u, int i, int j)
{
    return a.sums ? channel_decay(a, u, SIDE - 1, i, j) : 1.0f;
}

template <typename T> __device__ __forceinline__ float value_at(const scan_args &a, const unit &u, int i, int j)
{
    if (j >= a.value || !has_token(a, u, i))
        return 0.0f;
    return get((const T *)a.qkv, (u.first + i) * a.ld + a.v_first + (int64_t)u.head * a.value + j);
}

/* Returns the element of rows [rows,heads*value], outputs or their gradient, at which a unit's row i begins. */
__device__ __forceinline__ int64_t output_row(const scan_args &a, const unit &u, int i)
{
    return ((u.first + i) * a.heads + u.head) * a.value;
}

/* Returns column j of row i of the outputs' gradient. */
template <typename T> __device__ __forceinline__ float d_out_at(const scan_args &a, const unit &u, int i, int j)
{
    if (j >= a.value || !has_token(a, u, i))
        return 0.0f;
    return get((const T *)a.d_out, output_row(a, u, i) + j);
}

/* Copies a unit's gates into shared memory. */
__device__ __forceinline__ void gates_load(chunk_gates &to, const chunk_gates &from)
{
    static_assert(sizeof(chunk_gates) % 4 == 0, "whole words");
    for (int i = threadIdx.x; i < (int)(sizeof to / 4); i += THREADS)
        ((uint32_t *)&to)[i] = ((const uint32_t *)&from)[i];
}

/* Returns L, the decay from one row to a later one: 0 above the diagonal and between documents. */
__device__ __forceinline__ float decay_between(const chunk_gates &g, int i, int j)
{
    return j <= i && g.document[i] == g.document[j] ? expf((float)(g.sum[i] - g.sum[j])) : 0.0f;
}

/* Working memory of a thread block for the pairs of a unit's rows, r, and for what is multiplied with them. */
struct pair_space {
    tile<SIDE> x, y, r;
    chunk_gates gates;
};

/* Loads the unit's gates, and leaves R = Q K' L in s.r. */
template <typename T, bool TENSOR> __device__ __forceinline__ void weigh_pairs(const scan_args &a, const unit &u, pair_space &s)
{
    gates_load(s.gates, a.gates[u.at]);
    if (a.pairs) {
        fill(s.r, {u.tall, u.tall}, [&](int i, int j) { return a.pairs[((u.at * 2 + 1) * SIDE + i) * SIDE + j]; });
        return;
    }
    sums<4> c;
    clear(c);
    for (int k = 0; k < a.key; k += SIDE) {
        const int cols = slice_columns(a.key, k);
        __syncthreads();
        fill(s.x, {u.tall, cols}, [&](int i, int j) { return query_at<T>(a, u, i, k + j); });
        fill(s.y, {u.tall, cols}, [&](int i, int j) { return key_at<T>(a, u, i, k + j); });
        __syncthreads();
        multiply<TENSOR, PLAIN, ACROSS>({u.tall, u.tall}, c, s.x, s.y, 0, cols);
    }
    each({u.tall, u.tall}, c, [&](int i, int j, float &value) { s.r.x[i][j] = value * decay_between(s.gates, i, j); });
}

} // namespace

#endif
