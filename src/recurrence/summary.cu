/* Summaries of pieces of a sequence, by the scan's kernels, and the states between the pieces. */
#include "recurrence/cuda_scan.cuh"

namespace
{

constexpr int FOLD_COLUMNS = 8; /* columns of a state that a thread block has: few, since pieces follow each other */
constexpr int FOLD_ROWS = THREADS / FOLD_COLUMNS; /* rows of a state that the threads have at a time */
constexpr int EACH = SIDE / FOLD_ROWS;            /* rows of a tile of SIDE rows that a thread has */

struct fold_args {
    int64_t pieces;
    int heads, key, value, transposed;
    float *state;
    const float *move, *own;
    const int32_t *order;
};

struct fold_space {
    float move[SIDE][SIDE + 1];                  /* rows lie a bank apart: both ways to fill them are without conflicts */
    float state[2][CUDA_SCAN_DIM][FOLD_COLUMNS]; /* this piece's, and the next one's */
};

/* Loads rows from `row` and columns from k on of `move`, or of its transpose; zeros beyond. Neighbouring threads read neighbours. */
__device__ __forceinline__ void load_move(const fold_args &a, const float *move, int row, int k, fold_space &s)
{
    for (int e = threadIdx.x; e < SIDE * SIDE; e += THREADS) {
        const int far = e / SIDE, near = e % SIDE, i = a.transposed ? near : far, j = a.transposed ? far : near;
        const int64_t at = a.transposed ? (int64_t)(k + far) * a.key + row + near : (int64_t)(row + far) * a.key + k + near;
        s.move[i][j] = row + i < a.key && k + j < a.key ? move[at] : 0.0f;
    }
}

/* Computes the state of the next piece from that of this one: next = own + move state, in the order of the columns of `move`. What is
 * not finite does not pass where `move` is zero. */
__device__ __forceinline__ void fold_piece(const fold_args &a, int64_t piece, int column, const float (*from)[FOLD_COLUMNS],
                                           float (*to)[FOLD_COLUMNS], fold_space &s)
{
    const float *const move = a.move + piece * a.key * a.key, *const own = a.own + piece * a.key * a.value + column;
    const int j = threadIdx.x % FOLD_COLUMNS, first = threadIdx.x / FOLD_COLUMNS;
    for (int row = 0; row < a.key; row += SIDE) {
        float sum[EACH];
        for (int r = 0; r < EACH; r++) {
            const int i = row + r * FOLD_ROWS + first;
            sum[r] = i < a.key && column + j < a.value ? own[(int64_t)i * a.value + j] : 0.0f;
        }
        for (int k = 0; k < a.key; k += SIDE) {
            const int end = a.key - k < SIDE ? a.key - k : SIDE;
            __syncthreads();
            load_move(a, move, row, k, s);
            __syncthreads();
            for (int l = 0; l < end; l++)
                for (int r = 0; r < EACH; r++) {
                    const float w = s.move[r * FOLD_ROWS + first][l];
                    sum[r] = w == 0.0f ? sum[r] : sum[r] + w * from[k + l][j];
                }
        }
        for (int r = 0; r < EACH; r++)
            if (row + r * FOLD_ROWS + first < a.key)
                to[row + r * FOLD_ROWS + first][j] = sum[r];
    }
    __syncthreads();
}

/* Computes FOLD_COLUMNS columns of a head's states, piece after piece. */
__global__ void __launch_bounds__(THREADS) fold(fold_args a)
{
    LT_SHARED(fold_space, s);
    const int head = blockIdx.x, column = (int)blockIdx.y * FOLD_COLUMNS;
    for (int e = threadIdx.x; e < a.key * FOLD_COLUMNS; e += THREADS)
        s.state[0][e / FOLD_COLUMNS][e % FOLD_COLUMNS] = 0.0f;
    __syncthreads();
    for (int64_t i = 0; i < a.pieces; i++) {
        const int64_t piece = (int64_t)a.order[a.transposed ? a.pieces - 1 - i : i] * a.heads + head;
        float *const to = a.state + piece * a.key * a.value + column;
        for (int e = threadIdx.x; e < a.key * FOLD_COLUMNS; e += THREADS)
            if (column + e % FOLD_COLUMNS < a.value)
                to[(int64_t)(e / FOLD_COLUMNS) * a.value + e % FOLD_COLUMNS] = s.state[i % 2][e / FOLD_COLUMNS][e % FOLD_COLUMNS];
        if (i + 1 < a.pieces)
            fold_piece(a, piece, column, s.state[i % 2], s.state[(i + 1) % 2], s);
    }
}

LT_SHARED_FITS(fold_space, 48 * 1024);

} // namespace

enum status ops_cuda_scan_sum(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    scan_args a;
    TRY(scan_cuda_args("scan_sum", OP_SCAN_SUM, attrs, arg[6], &a));
    a.move = (float *)arg[0];
    a.after = (float *)arg[1];
    a.before = a.adds ? a.after : nullptr;
    a.qkv = arg[2];
    a.g = (float *)arg[3];
    a.beta = (float *)arg[4];
    a.links = (const int32_t *)arg[5];
    return scan_cuda_states(attrs, &a, stream);
}

enum status ops_cuda_scan_grad_sum(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    scan_args a;
    TRY(scan_cuda_args("scan_grad_sum", OP_SCAN_GRAD_SUM, attrs, arg[6], &a));
    a.dstate = (float *)arg[0];
    a.qkv = arg[1];
    a.g = (float *)arg[2];
    a.beta = (float *)arg[3];
    a.d_out = arg[4];
    a.links = (const int32_t *)arg[5];
    TRY(scan_cuda_prepare(attrs, &a, stream));
    return scan_cuda_dstates(attrs, &a, stream);
}

enum status ops_cuda_scan_fold(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    const auto &f = attrs->fold;
    if (f.key_dim < 1 || f.value_dim < 1 || f.key_dim > CUDA_SCAN_DIM || f.value_dim > CUDA_SCAN_DIM)
        return status_fail(ERR_INVALID, "scan_fold on cuda: keys of %d and values of %d columns; at most %d are possible",
                           f.key_dim, f.value_dim, CUDA_SCAN_DIM);
    if (f.pieces < 0 || f.heads < 1)
        return status_fail(ERR_INVALID, "scan_fold on cuda: %lld pieces of %d heads", (long long)f.pieces, f.heads);
    const fold_args a = {f.pieces,
                         f.heads,
                         f.key_dim,
                         f.value_dim,
                         f.transposed,
                         (float *)arg[0],
                         (const float *)arg[1],
                         (const float *)arg[2],
                         (const int32_t *)arg[3]};
    return launch(dim3((unsigned)f.heads, (unsigned)ceil_div(f.value_dim, FOLD_COLUMNS)), dim3(THREADS), sizeof(fold_space),
                  stream, fold, a);
}
