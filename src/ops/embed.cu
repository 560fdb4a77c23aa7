/* Embedding lookup and its scatter-add. */
#include "ops/cuda_vec.cuh"

namespace
{

template <typename T> struct lookup {
    T *x;
    const T *table, *pos_table;
    const int32_t *tokens, *positions;
    int64_t dim, vocab, max_pos;
    float scale;     /* used if there are no positions */
    bool by_columns; /* 1: elements are loaded one at a time */
    bool over;       /* 1: rows of x whose token is negative stay as they are */
    template <int N> __device__ __forceinline__ void run(int64_t row, int64_t j) const
    {
        const int64_t token = tokens[row], pos = pos_table ? positions[row] : 0;
        float a[N], b[N];
        if (over && token < 0)
            return;
        if (token < 0 || token >= vocab || (pos_table && (pos < 0 || pos >= max_pos))) {
#pragma unroll
            for (int k = 0; k < N; k++)
                a[k] = NAN;
        } else {
            load<N>(a, table + (by_columns ? j * vocab + token : token * dim + j));
            if (pos_table)
                load<N>(b, pos_table + pos * dim + j);
#pragma unroll
            for (int k = 0; k < N; k++)
                a[k] = pos_table ? a[k] + b[k] : scale * a[k];
        }
        store<N>(x + row * dim + j, a);
    }
};

/* Scatters rows to distinct indices. Two rows with one index would race, so the planner gives each row its own index. */
template <typename T> struct placed {
    T *table;
    const T *x;
    const int32_t *index;
    int64_t dim, vocab;
    template <int N> __device__ __forceinline__ void run(int64_t row, int64_t j) const
    {
        const int64_t at = index[row];
        if (at < 0 || at >= vocab)
            return;
        float a[N];
        load<N>(a, x + row * dim + j);
        store<N>(table + at * dim + j, a);
    }
};

/* The scatter-add has one writer for each table row: no atomic additions, and a token's sum runs in row order, as on the CPU.
 *
 * First the index is grouped by token, in bins of tokens with equal low bits, which spreads frequent neighbours over bins. Each
 * thread block searches the whole index (which stays in the L2 cache) for one bin's tokens. Then the threads at a token's first
 * row add all its rows. */
constexpr int WARPS = 16, BIN_THREADS = WARPS * LT_WARP;
constexpr int BIN_TOKENS = BIN_THREADS; /* most tokens of a bin: one per thread */
constexpr int BIN_BITS = LT_LIMIT(8, 1);
constexpr int BATCH = LT_LIMIT(16384, 1024); /* rows grouped at a time */
constexpr int TURNS = 2, PER_TURN = BATCH / BIN_THREADS / TURNS;
constexpr int AHEAD = 4; /* rows of dx in flight */

/* for a token's first row: start of the token's rows in `sorted_rows`, and their number; for its other rows: count 0 */
struct token_rows {
    int start, count;
};

__device__ token_rows rows_of_first[BATCH];
__device__ int sorted_rows[BATCH];

struct index_args {
    const int32_t *index;
    int64_t vocab;
    int rows, bits;
};

struct bin_space {
    int found[WARPS], below[WARPS]; /* entries of this bin, and of the bins before this one, of each warp */
    int used;                       /* entries used of the bin's part of sorted_rows */
    uint16_t row[BATCH];            /* rows of the bin's entries, in order */
    uint16_t token[BATCH];          /* tokens of the entries, without the low bits that are equal in the bin */
};

/* A lane's tokens of one turn (-1: no token). In each of PER_TURN steps of a turn, a warp has LT_WARP neighbouring rows. */
struct lane_tokens {
    int first, bits; /* row of the first token; number of low bits of a token that are its bin */
    int32_t of[PER_TURN];

    __device__ __forceinline__ lane_tokens(const index_args &args, int turn) : bits(args.bits)
    {
        const int warp = (int)threadIdx.x / LT_WARP;
        first = (warp * TURNS + turn) * PER_TURN * LT_WARP + (int)threadIdx.x % LT_WARP;
#pragma unroll
        for (int k = 0; k < PER_TURN; k++)
            of[k] = row(k) < args.rows ? args.index[row(k)] : -1;
#pragma unroll
        for (int k = 0; k < PER_TURN; k++)
            of[k] = of[k] < args.vocab ? of[k] : -1;
    }

    __device__ __forceinline__ int row(int k) const
    {
        return first + k * LT_WARP;
    }

    __device__ __forceinline__ int bin(int k) const /* beyond all bins if there is no token */
    {
        return of[k] < 0 ? 1 << bits : of[k] & ((1 << bits) - 1);
    }
};

/* Counts the entries of this block's bin, by warp, and returns the total. *slot: position of this warp's first entry in the bin.
 * *below: entries of all bins before. */
__device__ __forceinline__ int count_entries(const index_args &args, int *slot, int *below, bin_space &s)
{
    const int warp = threadIdx.x / LT_WARP, bin = (int)blockIdx.x;
    unsigned ours = 0, before = 0;
    for (int turn = 0; turn < TURNS; turn++) {
        const lane_tokens tokens(args, turn);
#pragma unroll
        for (int k = 0; k < PER_TURN; k++) {
            ours += tokens.bin(k) == bin;
            before += tokens.bin(k) < bin;
        }
    }
    ours = __reduce_add_sync(LT_FULL_MASK, ours);
    before = __reduce_add_sync(LT_FULL_MASK, before);
    if (threadIdx.x % LT_WARP == 0) {
        s.found[warp] = (int)ours;
        s.below[warp] = (int)before;
    }
    __syncthreads();
    int total = 0;
    *slot = *below = 0;
    for (int w = 0; w < WARPS; w++) {
        *slot += w < warp ? s.found[w] : 0;
        total += s.found[w];
        *below += s.below[w];
    }
    return total;
}

/* Lists this block's entries in s.row and s.token, this warp's from `slot` on. */
__device__ __forceinline__ void list_entries(const index_args &args, int slot, bin_space &s)
{
    const int lane = threadIdx.x % LT_WARP, bin = (int)blockIdx.x;
    for (int turn = 0; turn < TURNS; turn++) {
        const lane_tokens tokens(args, turn);
#pragma unroll
        for (int k = 0; k < PER_TURN; k++) {
            const unsigned hits = __ballot_sync(LT_FULL_MASK, tokens.bin(k) == bin);
            if (hits >> lane & 1u) {
                const int mine = slot + __popc(hits & ((1u << lane) - 1u));
                s.row[mine] = (uint16_t)tokens.row(k);
                s.token[mine] = (uint16_t)(tokens.of[k] >> args.bits);
            }
            slot += __popc(hits);
        }
    }
    __syncthreads();
}

/* Groups rows by token: one block per bin, one thread per token of the bin. */
__global__ void __launch_bounds__(BIN_THREADS, 2) group_rows(index_args args)
{
    LT_SHARED(bin_space, s);
    int slot, below, mine = 0;
    if (threadIdx.x == 0)
        s.used = 0;
    const int total = count_entries(args, &slot, &below, s);
    list_entries(args, slot, s);
    for (int e = 0; e < total; e++)
        mine += s.token[e] == threadIdx.x;
    if (mine == 0)
        return;
    /* The order of tokens depends on timing and has no meaning; the rows of one token are in order. */
    const int start = below + atomicAdd(&s.used, mine);
    for (int e = 0, k = 0; k < mine; e++) {
        if (s.token[e] != threadIdx.x)
            continue;
        const token_rows its = {start, k == 0 ? mine : 0};
        rows_of_first[s.row[e]] = its;
        sorted_rows[start + k++] = s.row[e];
    }
}

/* Adds scale * (all rows of dx with the row's token) to dtable, in order, if this row is the token's first one. N is 1 if the
 * table is stored by columns. */
template <typename T, int N>
__global__ void __launch_bounds__(THREADS)
    add_grouped(float *dtable, const T *dx, const int32_t *index, int64_t dim, int64_t vocab, float scale, int by_columns)
{
    const int64_t row = blockIdx.y;
    const int64_t j = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N, token = index[row];
    const token_rows all = rows_of_first[row];
    if (token < 0 || token >= vocab || all.count == 0 || j >= dim)
        return;
    float sum[N], first[N], v[AHEAD][N];
    float *const sums = dtable + (by_columns ? j * vocab + token : token * dim + j);
    load<N>(sum, sums);
    load<N>(first, dx + row * dim + j);
#pragma unroll
    for (int k = 0; k < N; k++)
        sum[k] = __fadd_rn(sum[k], __fmul_rn(scale, first[k]));
    for (int e = 1; e < all.count; e += AHEAD) {
        int64_t others[AHEAD];
#pragma unroll
        for (int a = 0; a < AHEAD; a++)
            others[a] = sorted_rows[all.start + (e + a < all.count ? e + a : 0)];
#pragma unroll
        for (int a = 0; a < AHEAD; a++)
            load<N>(v[a], dx + others[a] * dim + j);
#pragma unroll
        for (int a = 0; a < AHEAD; a++) {
#pragma unroll
            for (int k = 0; k < N; k++)
                sum[k] = e + a < all.count ? __fadd_rn(sum[k], __fmul_rn(scale, v[a][k])) : sum[k];
        }
    }
    store<N>(sums, sum);
}

float scale_of(const struct op_attrs *attrs)
{
    return attrs->embed.scale != 0.0f ? attrs->embed.scale : 1.0f;
}

template <typename T> enum status run_embed(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    lookup<T> op = {
        (T *)arg[0],           (const T *)arg[1],  (const T *)arg[3],    (const int32_t *)arg[2], (const int32_t *)arg[4],
        attrs->embed.dim,      attrs->embed.vocab, attrs->embed.max_pos, scale_of(attrs),         attrs->embed.by_columns != 0,
        attrs->embed.over != 0};
    return launch_rows<WIDTH<T>>(op, attrs->embed.rows, attrs->embed.dim,
                                 !op.by_columns && aligned_to_vectors({op.x, op.table, op.pos_table}), stream);
}

template <typename T> enum status run_scatter(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    placed<T> op = {(T *)arg[0], (const T *)arg[1], (const int32_t *)arg[2], attrs->embed.dim, attrs->embed.vocab};
    return launch_rows<WIDTH<T>>(op, attrs->embed.rows, attrs->embed.dim, aligned_to_vectors({op.table, op.x}), stream);
}

template <typename T, int N> enum status add_batch(const struct op_attrs *attrs, void *const *arg, int64_t first, void *stream)
{
    const int64_t dim = attrs->embed.dim, vocab = attrs->embed.vocab;
    const int64_t rows = attrs->embed.rows - first < BATCH ? attrs->embed.rows - first : BATCH;
    index_args args = {(const int32_t *)arg[2] + first, vocab, (int)rows, BIN_BITS};
    while (vocab > (int64_t)BIN_TOKENS << args.bits)
        args.bits++;
    TRY(launch(dim3(1u << args.bits), dim3(BIN_THREADS), sizeof(bin_space), stream, group_rows, args));
    const unsigned threads = row_threads(blocks_of(dim, N));
    return launch(dim3((unsigned)blocks_of(dim, threads * N), (unsigned)rows), dim3(threads), 0, stream, add_grouped<T, N>,
                  (float *)arg[0], (const T *)arg[1] + first * dim, args.index, dim, vocab, scale_of(attrs),
                  attrs->embed.by_columns);
}

template <typename T> enum status run_embed_grad(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    const bool vectors = !attrs->embed.by_columns && attrs->embed.dim % WIDTH<T> == 0 && aligned_to_vectors({arg[0], arg[1]});
    if (!attrs->embed.accumulate)
        TRY(CUDA_STATUS(
            cudaMemsetAsync(arg[0], 0, (size_t)(attrs->embed.vocab * attrs->embed.dim) * sizeof(float), (cudaStream_t)stream)));
    for (int64_t first = 0; first < attrs->embed.rows; first += BATCH)
        TRY((vectors ? add_batch<T, WIDTH<T>> : add_batch<T, 1>)(attrs, arg, first, stream));
    return OK;
}

} // namespace

enum status ops_cuda_embed(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    TRY(check_storage("embed", attrs->embed.dtype));
    return attrs->embed.dtype == BF16 ? run_embed<bf16>(attrs, arg, stream) : run_embed<float>(attrs, arg, stream);
}

enum status ops_cuda_embed_grad(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    TRY(check_storage("embed_grad", attrs->embed.dtype));
    if (attrs->embed.dim <= 0)
        return OK;
    return attrs->embed.dtype == BF16 ? run_embed_grad<bf16>(attrs, arg, stream) : run_embed_grad<float>(attrs, arg, stream);
}

enum status ops_cuda_scatter(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    TRY(check_storage("scatter", attrs->embed.dtype));
    return attrs->embed.dtype == BF16 ? run_scatter<bf16>(attrs, arg, stream) : run_scatter<float>(attrs, arg, stream);
}
