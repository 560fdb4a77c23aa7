/* Embedding lookup and its scatter-add. */
#include "ops/cuda_vec.cuh"

namespace
{

template <typename T> struct lookup {
    T *x;
    const T *table, *pos_table;
    const int32_t *tokens, *positions;
    int64_t dim, vocab, max_pos;
    template <int N> __device__ __forceinline__ void run(int64_t row, int64_t j) const
    {
        const int64_t token = tokens[row], pos = pos_table ? positions[row] : 0;
        float a[N], b[N];
        if (token < 0 || token >= vocab || (pos_table && (pos < 0 || pos >= max_pos))) {
#pragma unroll
            for (int k = 0; k < N; k++)
                a[k] = NAN;
        } else {
            load<N>(a, table + token * dim + j);
            if (pos_table) {
                load<N>(b, pos_table + pos * dim + j);
#pragma unroll
                for (int k = 0; k < N; k++)
                    a[k] += b[k];
            }
        }
        store<N>(x + row * dim + j, a);
    }
};

/* The scatter-add gives every table row one writer: a block owns TOKENS rows of the table (by COLUMNS_PER_THREAD columns per
 * thread), walks the whole index in chunks and keeps, in row order, the entries that are its own. Sums of a token run in row
 * order, as on the CPU, so there is nothing to sort beforehand and no atomic addition. Reading the index vocab / TOKENS times
 * costs little: it is small and stays in the L2 cache. */
constexpr int TOKENS = 64;
constexpr int WARPS = 4, GRAD_THREADS = WARPS * LT_WARP;
constexpr int PER_WARP = 8 * LT_WARP; /* entries of the index that a warp looks through per chunk */
constexpr int CHUNK = WARPS * PER_WARP;
constexpr int AHEAD = 4; /* rows of dx in flight */

struct grad_space {
    int found[WARPS];       /* entries that are ours, per warp */
    int start[TOKENS + 1];  /* of each token's rows in `sorted` */
    uint16_t row[CHUNK];    /* of our entries, relative to the chunk, in row order */
    uint16_t token[CHUNK];  /* relative to the block's first */
    uint16_t sorted[CHUNK]; /* rows by token, each token's in row order */
};

/* Fills row and token with this chunk's entries of tokens [first, first + TOKENS); returns how many. */
__device__ __forceinline__ int find_entries(const int32_t *index, int64_t rows, int64_t first, int64_t vocab, int64_t at,
                                            grad_space &s)
{
    const int warp = threadIdx.x / LT_WARP, lane = threadIdx.x % LT_WARP;
    int token[PER_WARP / LT_WARP];
    unsigned ours[PER_WARP / LT_WARP];
    int count = 0;
#pragma unroll
    for (int k = 0; k < PER_WARP / LT_WARP; k++) {
        int64_t i = at + warp * PER_WARP + k * LT_WARP + lane;
        token[k] = i < rows ? index[i] : -1;
    }
#pragma unroll
    for (int k = 0; k < PER_WARP / LT_WARP; k++) {
        ours[k] = __ballot_sync(LT_FULL_MASK, token[k] >= first && token[k] < first + TOKENS && token[k] < vocab);
        count += __popc(ours[k]);
    }
    if (lane == 0)
        s.found[warp] = count;
    __syncthreads();
    int slot = 0, total = 0;
    for (int w = 0; w < WARPS; w++) {
        slot += w < warp ? s.found[w] : 0;
        total += s.found[w];
    }
    for (int k = 0; k < PER_WARP / LT_WARP; k++) {
        if (ours[k] >> lane & 1u) {
            int mine = slot + __popc(ours[k] & ((1u << lane) - 1u));
            s.row[mine] = (uint16_t)(warp * PER_WARP + k * LT_WARP + lane);
            s.token[mine] = (uint16_t)(token[k] - first);
        }
        slot += __popc(ours[k]);
    }
    __syncthreads();
    return total;
}

/* sorted and start from row and token: one thread per token. */
__device__ __forceinline__ void sort_entries(int total, grad_space &s)
{
    const int t = threadIdx.x;
    int mine = 0;
    if (t < TOKENS)
        for (int e = 0; e < total; e++)
            mine += s.token[e] == t;
    if (t < TOKENS)
        s.start[t + 1] = mine;
    if (t == 0)
        s.start[0] = 0;
    __syncthreads();
    if (t == 0)
        for (int k = 0; k < TOKENS; k++)
            s.start[k + 1] += s.start[k];
    __syncthreads();
    if (t < TOKENS && mine > 0) {
        int at = s.start[t];
        for (int e = 0; e < total; e++)
            if (s.token[e] == t)
                s.sorted[at++] = s.row[e];
    }
    __syncthreads();
}

/* dtable_row[j ..] += the rows of dx at `at` + list[0 .. count), in order. */
template <typename T, int N>
__device__ __forceinline__ void add_rows(float *dtable_row, const T *dx, int64_t dim, const uint16_t *list, int count)
{
    float sum[N], v[AHEAD][N];
    load<N>(sum, dtable_row);
    int e = 0;
    for (; e + AHEAD <= count; e += AHEAD) {
#pragma unroll
        for (int a = 0; a < AHEAD; a++)
            load<N>(v[a], dx + list[e + a] * dim);
#pragma unroll
        for (int a = 0; a < AHEAD; a++)
#pragma unroll
            for (int k = 0; k < N; k++)
                sum[k] += v[a][k];
    }
    for (; e < count; e++) {
        load<N>(v[0], dx + list[e] * dim);
#pragma unroll
        for (int k = 0; k < N; k++)
            sum[k] += v[0][k];
    }
    store<N>(dtable_row, sum);
}

template <typename T, int N>
__global__ void __launch_bounds__(GRAD_THREADS)
    scatter_add(float *dtable, const T *dx, const int32_t *index, int64_t rows, int64_t dim, int64_t vocab, int accumulate)
{
    LT_SHARED(grad_space, s);
    const int64_t first = (int64_t)blockIdx.x * TOKENS, j = ((int64_t)blockIdx.y * GRAD_THREADS + threadIdx.x) * N;
    const bool column = j < dim;
    if (!accumulate && column) {
        const float zero[N] = {};
        for (int64_t t = first; t < first + TOKENS && t < vocab; t++)
            store<N>(dtable + t * dim + j, zero);
    }
    /* The lists of one chunk are overwritten two barriers into the next. */
    for (int64_t at = 0; at < rows; at += CHUNK) {
        const int total = find_entries(index, rows, first, vocab, at, s);
        if (total > 0) {
            sort_entries(total, s);
            for (int t = 0; t < TOKENS; t++) {
                int from = s.start[t], count = s.start[t + 1] - from;
                if (column && count > 0)
                    add_rows<T, N>(dtable + (first + t) * dim + j, dx + at * dim + j, dim, s.sorted + from, count);
            }
        }
    }
}

template <typename T> enum status run_embed(const struct op_attrs *attrs, void *const *arg, cuda_stream stream)
{
    lookup<T> op = {(T *)arg[0],      (const T *)arg[1],  (const T *)arg[3],   (const int32_t *)arg[2], (const int32_t *)arg[4],
                    attrs->embed.dim, attrs->embed.vocab, attrs->embed.max_pos};
    return launch_rows<WIDTH<T>>(op, attrs->embed.rows, attrs->embed.dim, aligned_to_vectors({op.x, op.table, op.pos_table}),
                                 stream);
}

template <typename T, int N> enum status launch_embed_grad(const struct op_attrs *attrs, void *const *arg, cuda_stream stream)
{
    dim3 grid((unsigned)blocks_of(attrs->embed.vocab, TOKENS), (unsigned)blocks_of(attrs->embed.dim, GRAD_THREADS * N));
    return launch(grid, dim3(GRAD_THREADS), sizeof(grad_space), stream, scatter_add<T, N>, (float *)arg[0], (const T *)arg[1],
                  (const int32_t *)arg[2], attrs->embed.rows, attrs->embed.dim, attrs->embed.vocab, attrs->embed.accumulate);
}

template <typename T> enum status run_embed_grad(const struct op_attrs *attrs, void *const *arg, cuda_stream stream)
{
    if (attrs->embed.dim % WIDTH<T> == 0 && aligned_to_vectors({arg[0], arg[1]}))
        return launch_embed_grad<T, WIDTH<T>>(attrs, arg, stream);
    return launch_embed_grad<T, 1>(attrs, arg, stream);
}

} // namespace

enum status ops_cuda_embed(const struct op_attrs *attrs, void *const *arg, cuda_stream stream)
{
    TRY(check_storage("embed", attrs->embed.dtype));
    return attrs->embed.dtype == BF16 ? run_embed<bf16>(attrs, arg, stream) : run_embed<float>(attrs, arg, stream);
}

enum status ops_cuda_embed_grad(const struct op_attrs *attrs, void *const *arg, cuda_stream stream)
{
    TRY(check_storage("embed_grad", attrs->embed.dtype));
    if (attrs->embed.dim <= 0)
        return OK;
    return attrs->embed.dtype == BF16 ? run_embed_grad<bf16>(attrs, arg, stream) : run_embed_grad<float>(attrs, arg, stream);
}
