/* Products of experts: y = x W^T for each expert's rows, and the gradients of the matrices and biases. Thread blocks read from device
 * memory which rows an expert has: the grid has as many as any split of the rows needs, and the surplus ends at once. */
#include "ops/cuda_experts.cuh"
#include "ops/route.h"

namespace
{

constexpr int GROUP = 64; /* rows of dbias summed in fp32 before their sum is added to an fp64 total (bias.c) */
constexpr int WARPS = THREADS / LT_WARP;

struct experts_args {
    void *c; /* y or dw */
    operand a, b;
    const void *bias; /* addend of y; NULL: none */
    const int32_t *offsets;
    int64_t rows, in, out;
    int experts, first, count, tiles; /* tiles: of columns, or of a matrix of dw by rows and by columns */
    int32_t y_type, w_type, adds, pairs;
};

/* Rows [first, first + rows) of an expert. sound: 0: the offsets do not ascend from 0 to at most all rows. */
struct expert_rows {
    int expert, first, rows, sound;
};

struct product_space {
    stage s[STAGES];
    expert_rows at;
};

/* Finds the rows of the `tile`-th tile of SIDE rows, counted expert by expert; `rows` is 0 for the surplus. Called by one warp. */
__device__ __forceinline__ expert_rows find_tile(const experts_args &a, int tile)
{
    const int lane = threadIdx.x % LT_WARP;
    expert_rows found = {0, 0, 0, 1};
    int before = 0;
    bool sound = a.offsets[0] == 0 && a.offsets[a.experts] <= a.rows;
    for (int first = 0; first < a.experts; first += LT_WARP) {
        const int e = first + lane;
        const int32_t from = e < a.experts ? a.offsets[e] : 0, to = e < a.experts ? a.offsets[e + 1] : 0;
        sound &= from <= to;
        const int mine = e >= a.first && e < a.first + a.count && from < to ? (to - from + SIDE - 1) / SIDE : 0;
        int upto = mine;
#pragma unroll
        for (int far = 1; far < LT_WARP; far *= 2) {
            const int other = __shfl_up_sync(LT_FULL_MASK, upto, far);
            upto += lane >= far ? other : 0;
        }
        upto += before;
        const unsigned here = __ballot_sync(LT_FULL_MASK, tile >= upto - mine && tile < upto);
        if (here) {
            const int source = __ffs((int)here) - 1, skipped = (tile - (upto - mine)) * SIDE;
            found.expert = first + source;
            found.first = __shfl_sync(LT_FULL_MASK, from + skipped, source);
            found.rows = __shfl_sync(LT_FULL_MASK, to - from - skipped, source);
        }
        before = __shfl_sync(LT_FULL_MASK, upto, LT_WARP - 1);
    }
    found.sound = __all_sync(LT_FULL_MASK, sound);
    return found;
}

/* Finds the rows of an expert. Called by one warp. */
__device__ __forceinline__ expert_rows find_expert(const experts_args &a, int expert)
{
    bool sound = a.offsets[0] == 0 && a.offsets[a.experts] <= a.rows;
    for (int e = threadIdx.x % LT_WARP; e < a.experts; e += LT_WARP)
        sound &= a.offsets[e] <= a.offsets[e + 1];
    return {expert, a.offsets[expert], a.offsets[expert + 1] - a.offsets[expert], __all_sync(LT_FULL_MASK, sound)};
}

__device__ __forceinline__ void set_nan(sums &c)
{
    for (int m = 0; m < 4; m++)
        for (int n = 0; n < 8; n++)
            for (int i = 0; i < 4; i++)
                c[m][n][i] = NAN;
}

/* Returns the type's bytes times n. */
__device__ __forceinline__ int64_t bytes_of(int64_t n, int32_t type)
{
    return n * (type == F32 ? 4 : 2);
}

/* Computes a tile of y. Without sound offsets it is NaN, for rows that its number gives. TRANSPOSED: matrices are [out,in]. */
template <int FORM_A, int FORM_B, bool TRANSPOSED> __global__ void __launch_bounds__(MMA_THREADS, 2) multiply_rows(experts_args a)
{
    LT_SHARED(product_space, space);
    const int tile = blockIdx.x / a.tiles, column = blockIdx.x % a.tiles * SIDE;
    if (threadIdx.x < LT_WARP) {
        const expert_rows found = find_tile(a, tile);
        if (threadIdx.x == 0)
            space.at = found;
    }
    __syncthreads();
    expert_rows at = space.at;
    if (!at.sound) {
        at.first = (int)((int64_t)tile * SIDE < a.rows ? tile * SIDE : a.rows);
        at.rows = (int)(a.rows - at.first);
        at.expert = a.first;
    }
    if (at.rows <= 0)
        return;
    const int64_t matrix = at.expert - a.first, end = at.first + at.rows;
    const result to = {(char *)a.c + bytes_of((int64_t)at.first * a.out + column, a.y_type),
                       a.out,
                       at.rows,
                       a.out - column,
                       a.bias ? (const char *)a.bias + bytes_of(matrix * a.out + column, a.w_type) : nullptr,
                       a.y_type,
                       a.w_type,
                       a.adds,
                       a.pairs};
    sums c;
    if (at.sound) {
        operand w = a.b;
        w.data = (const char *)w.data + bytes_of(matrix * a.in * a.out, a.w_type);
        const int steps = (int)((a.in + DEPTH - 1) / DEPTH);
        lines<FORM_A> from(a.a, at.first, end);
        if constexpr (TRANSPOSED) {
            lines<FORM_B> by(w, column, a.out);
            multiply<true, true>(c, from, by, steps, space.s);
        } else {
            depths<FORM_B> by(w, 0, a.in, column);
            multiply<true, false>(c, from, by, steps, space.s);
        }
    } else {
        set_nan(c);
    }
    put_tile(to, c);
}

/* Computes a tile of a matrix's gradient, over the expert's rows in order; zeros if it has none. */
template <int FORM_A, int FORM_B> __global__ void __launch_bounds__(MMA_THREADS, 2) multiply_columns(experts_args a)
{
    LT_SHARED(product_space, space);
    const int across = (int)((a.b.cols + SIDE - 1) / SIDE), tile = blockIdx.x % a.tiles;
    const int64_t matrix = blockIdx.x / a.tiles, row = (int64_t)(tile / across) * SIDE, column = (int64_t)(tile % across) * SIDE;
    if (threadIdx.x < LT_WARP) {
        const expert_rows found = find_expert(a, a.first + (int)matrix);
        if (threadIdx.x == 0)
            space.at = found;
    }
    __syncthreads();
    const expert_rows at = space.at;
    const result to = {(float *)a.c + (matrix * a.a.cols + row) * a.b.cols + column,
                       a.b.cols,
                       a.a.cols - row,
                       a.b.cols - column,
                       nullptr,
                       F32,
                       F32,
                       a.adds,
                       a.pairs};
    sums c;
    if (at.sound) {
        depths<FORM_A> from(a.a, at.first, at.first + at.rows, row);
        depths<FORM_B> by(a.b, at.first, at.first + at.rows, column);
        multiply<false, false>(c, from, by, (at.rows + DEPTH - 1) / DEPTH, space.s);
    } else {
        set_nan(c);
    }
    put_tile(to, c);
}

/* Arguments of the biases' gradient. p: by pair, NULL: 1. */
struct bias_args {
    experts_args of;
    float *dbias;
    operand dy;
    const float *p;
    const int32_t *order;
};

struct bias_space {
    double part[WARPS][LT_WARP];
    expert_rows at;
};

/* Returns the sum of a column of up to GROUP rows from `first` on. */
__device__ __forceinline__ float sum_group(const bias_args &a, int64_t first, int64_t end, int64_t column)
{
    float sum = 0;
#pragma unroll 4
    for (int64_t i = first; i < (end < first + GROUP ? end : first + GROUP); i++) {
        const int row = row_of(a.dy, i);
        const int32_t pair = a.p ? a.order[i] : 0;
        const bool there = row >= 0 && pair >= 0 && pair < a.of.rows;
        const float factor = a.p && there ? a.p[pair] : 1.0f;
        sum = fmaf(factor, there ? element(a.dy, row * a.dy.ld + column) : NAN, sum);
    }
    return sum;
}

/* Computes LT_WARP columns of a bias's gradient: warps take groups of rows in turn. */
__global__ void __launch_bounds__(THREADS) sum_columns(bias_args a)
{
    LT_SHARED(bias_space, space);
    const int lane = threadIdx.x % LT_WARP, warp = threadIdx.x / LT_WARP;
    const int64_t matrix = blockIdx.x / a.of.tiles, column = (int64_t)(blockIdx.x % a.of.tiles) * LT_WARP + lane;
    if (warp == 0) {
        const expert_rows found = find_expert(a.of, a.of.first + (int)matrix);
        if (lane == 0)
            space.at = found;
    }
    __syncthreads();
    const expert_rows at = space.at;
    double sum = 0;
    for (int64_t i = (int64_t)warp * GROUP; i < (at.sound ? at.rows : 0); i += WARPS * GROUP)
        if (column < a.of.out)
            sum += (double)sum_group(a, at.first + i, at.first + at.rows, column);
    space.part[warp][lane] = sum;
    __syncthreads();
    if (warp > 0 || column >= a.of.out)
        return;
    for (int w = 1; w < WARPS; w++)
        sum += space.part[w][lane];
    float *const to = a.dbias + matrix * a.of.out + column;
    *to = (at.sound ? (float)sum : NAN) + (a.of.adds ? *to : 0.0f);
}

enum status check_experts(const char *op, const struct op_attrs *attrs, bool multiplies, int32_t a_type, int32_t b_type)
{
    const auto &x = attrs->experts;
    TRY(check_storage(op, x.x_type));
    TRY(check_storage(op, x.w_type));
    TRY(check_storage(op, x.y_type));
    if (multiplies && a_type == F32 && b_type == F32)
        return status_fail(ERR_INVALID, "%s on cuda: one operand at least is bf16: use --dtype bf16", op);
    if (x.rows < 0 || x.rows > INT32_MAX - SIDE || x.experts < 1 || x.experts > ROUTE_EXPERTS || x.count < 0 || x.first < 0 ||
        x.count > x.experts - x.first || x.in < 1 || x.out < 1 || x.in > INT32_MAX - SIDE || x.out > INT32_MAX - SIDE ||
        x.per < 1)
        return status_fail(
            ERR_INVALID,
            "%s on cuda: %lld rows of %d experts, matrices of experts %d to %d, %lld x %lld; at most 2^31 rows and %d "
            "experts are possible",
            op, (long long)x.rows, x.experts, x.first, x.first + x.count, (long long)x.out, (long long)x.in, ROUTE_EXPERTS);
    return OK;
}

bool is_aligned(const void *p, size_t bytes)
{
    return (uintptr_t)p % bytes == 0;
}

/* Tells whether 8 elements of a row, from a multiple of 8 on, are always aligned to 16 bytes. */
bool has_vectors(const operand &x)
{
    return is_aligned(x.data, 16) && x.ld % 8 == 0 && x.cols % 8 == 0;
}

experts_args args_of(const struct op_attrs *attrs)
{
    experts_args a = {};
    a.rows = attrs->experts.rows;
    a.in = attrs->experts.in;
    a.out = attrs->experts.out;
    a.experts = attrs->experts.experts;
    a.first = attrs->experts.first;
    a.count = attrs->experts.count;
    a.y_type = attrs->experts.y_type;
    a.w_type = attrs->experts.w_type;
    a.adds = attrs->experts.result == GEMM_ADDS;
    return a;
}

/* Returns a matrix with `cols` columns; order: NULL: its rows are not gathered. */
operand operand_of(const struct op_attrs *attrs, const void *data, int64_t cols, int32_t type, const void *order)
{
    operand x = {};
    x.data = data;
    x.ld = x.cols = cols;
    x.type = type;
    x.order = (const int32_t *)order;
    x.per = attrs->experts.per;
    x.most = (int32_t)attrs->experts.rows;
    return x;
}

typedef void kernel_of(experts_args);

/* Chooses the kernel by the operands' types and alignment. */
template <bool TRANSPOSED> kernel_of *kernel_of_rows(const experts_args &a)
{
    if (!has_vectors(a.a) || !has_vectors(a.b))
        return multiply_rows<SINGLY, SINGLY, TRANSPOSED>;
    return a.a.type == F32   ? multiply_rows<F32_VECTORS, BF16_VECTORS, TRANSPOSED>
           : a.b.type == F32 ? multiply_rows<BF16_VECTORS, F32_VECTORS, TRANSPOSED>
                             : multiply_rows<BF16_VECTORS, BF16_VECTORS, TRANSPOSED>;
}

kernel_of *kernel_of_columns(const experts_args &a)
{
    if (!has_vectors(a.a) || !has_vectors(a.b))
        return multiply_columns<SINGLY, SINGLY>;
    return a.a.type == F32   ? multiply_columns<F32_VECTORS, BF16_VECTORS>
           : a.b.type == F32 ? multiply_columns<BF16_VECTORS, F32_VECTORS>
                             : multiply_columns<BF16_VECTORS, BF16_VECTORS>;
}

} // namespace

enum status ops_cuda_experts(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    TRY(check_experts("experts", attrs, true, attrs->experts.x_type, attrs->experts.w_type));
    experts_args a = args_of(attrs);
    const int transposed = attrs->experts.transposed;
    a.c = arg[0];
    a.a = operand_of(attrs, arg[1], a.in, attrs->experts.x_type, arg[4]);
    a.b = operand_of(attrs, arg[2], transposed ? a.in : a.out, a.w_type, nullptr);
    a.offsets = (const int32_t *)arg[3];
    a.bias = arg[5];
    a.tiles = (int)blocks_of(a.out, SIDE);
    a.pairs = a.out % 2 == 0 && is_aligned(a.c, a.y_type == F32 ? 8 : 4);
    const int64_t blocks = a.tiles * (blocks_of(a.rows, SIDE) + a.count);
    if (blocks > INT32_MAX)
        return status_fail(ERR_INVALID, "experts on cuda: %lld rows x %lld columns are too many", (long long)a.rows,
                           (long long)a.out);
    return launch(dim3((unsigned)(a.count > 0 ? blocks : 0)), dim3(MMA_THREADS), sizeof(product_space), stream,
                  transposed ? kernel_of_rows<true>(a) : kernel_of_rows<false>(a), a);
}

enum status ops_cuda_experts_grad(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    TRY(check_experts("experts_grad", attrs, arg[0] != nullptr, attrs->experts.x_type, attrs->experts.y_type));
    experts_args a = args_of(attrs);
    const bool gathers_dy = attrs->experts.gathers == GATHERS_DY;
    const operand dy = operand_of(attrs, arg[1], a.out, attrs->experts.y_type, gathers_dy ? arg[4] : nullptr);
    const operand x = operand_of(attrs, arg[2], a.in, attrs->experts.x_type, gathers_dy ? nullptr : arg[4]);
    a.c = arg[0];
    a.a = attrs->experts.transposed ? dy : x;
    a.b = attrs->experts.transposed ? x : dy;
    a.offsets = (const int32_t *)arg[3];
    a.tiles = (int)(blocks_of(a.a.cols, SIDE) * blocks_of(a.b.cols, SIDE));
    a.pairs = a.b.cols % 2 == 0 && is_aligned(a.c, 8);
    if (a.c)
        TRY(launch(dim3((unsigned)(a.count * a.tiles)), dim3(MMA_THREADS), sizeof(product_space), stream, kernel_of_columns(a),
                   a));
    if (!arg[5])
        return OK;
    a.tiles = (int)blocks_of(a.out, LT_WARP);
    const bias_args b = {a, (float *)arg[5], dy, (const float *)arg[6], (const int32_t *)arg[4]};
    return launch(dim3((unsigned)(a.count * a.tiles)), dim3(THREADS), sizeof(bias_space), stream, sum_columns, b);
}
