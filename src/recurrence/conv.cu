/* Causal convolutions of a few taps, forward and backward: a thread has a column of a block of rows. */
#include "recurrence/cuda_rows.cuh"

namespace
{

constexpr int CONV_THREADS = 128, ROWS = CUDA_CONV_ROWS;

struct conv_args {
    int64_t rows, ld, blocks;
    int cols, first, width, silu, adds;
    void *x; /* becomes its gradient in the backward pass */
    void *y, *after;
    const void *weight, *bias, *tail, *dy;
    const int32_t *links;
    float *dtail, *dweight, *dbias, *past, *carry, *parts; /* the last three: struct conv_layout */
};

/* A column: its weights by distance from the row, and its bias. */
struct taps {
    float weight[CONV_TAPS], bias;
};

template <typename T> __device__ __forceinline__ taps taps_of(const conv_args &a, int64_t column)
{
    taps t;
#pragma unroll
    for (int k = 0; k < CONV_TAPS; k++)
        t.weight[k] = k >= a.width ? 0.0f : a.weight ? get((const T *)a.weight, column * a.width + a.width - 1 - k) : 1.0f;
    t.bias = a.bias ? get((const T *)a.bias, column) : 0.0f;
    return t;
}

/* Sets past[k] to value if k is `which`: so the array stays in registers. */
__device__ __forceinline__ void set_past(float (&past)[CONV_TAPS], int which, float value)
{
#pragma unroll
    for (int k = 1; k < CONV_TAPS; k++)
        past[k] = k == which ? value : past[k];
}

/* Finds x of the tokens before a row, of their document if that goes on: past[k] of the k-th, 0 if there is none. */
template <typename T>
__device__ __forceinline__ void find_past(const conv_args &a, int64_t row, int64_t column, float (&past)[CONV_TAPS])
{
    int n = 1;
#pragma unroll
    for (int k = 0; k < CONV_TAPS; k++)
        past[k] = 0.0f;
    while (n < a.width && row > 0) {
        const int32_t link = a.links[--row];
        if (link == ROW_NONE)
            continue;
        set_past(past, n++, get((const T *)a.x, row * a.ld + a.first + column));
        if (link == ROW_BEGINS)
            return;
    }
    for (int at = a.width - 2; n < a.width && a.tail; n++, at--)
        set_past(past, n, get((const T *)a.tail, (int64_t)at * a.cols + column));
}

template <int N> __device__ __forceinline__ void clear_past(float (&past)[N])
{
#pragma unroll
    for (int k = 1; k < N; k++)
        past[k] = 0.0f;
}

/* Makes the row's x, past[0], that of the latest token before the next row. */
__device__ __forceinline__ void move_past(float (&past)[CONV_TAPS])
{
#pragma unroll
    for (int k = CONV_TAPS - 1; k > 0; k--)
        past[k] = past[k - 1];
}

__device__ __forceinline__ float sum_taps(const taps &t, int width, const float (&past)[CONV_TAPS])
{
    float sum = t.bias;
#pragma unroll
    for (int k = CONV_TAPS - 1; k >= 0; k--)
        sum = k < width ? fmaf(t.weight[k], past[k], sum) : sum;
    return sum;
}

template <typename T> __global__ void __launch_bounds__(CONV_THREADS) conv(conv_args a)
{
    const int64_t column = (int64_t)blockIdx.y * CONV_THREADS + threadIdx.x;
    if (column >= a.cols)
        return;
    const int64_t from = (int64_t)blockIdx.x * ROWS, end = from + ROWS < a.rows ? from + ROWS : a.rows;
    const taps t = taps_of<T>(a, column);
    float past[CONV_TAPS];
    find_past<T>(a, from, column, past);
    for (int64_t i = from; i < end; i++) {
        const int32_t link = a.links[i];
        if (link == ROW_NONE) {
            put((T *)a.y, i * a.cols + column, 0.0f);
            continue;
        }
        if (link == ROW_BEGINS)
            clear_past(past);
        past[0] = get((const T *)a.x, i * a.ld + a.first + column);
        const float sum = sum_taps(t, a.width, past);
        put((T *)a.y, i * a.cols + column, a.silu ? sum * sigmoid(sum) : sum);
        move_past(past);
    }
    if (blockIdx.x + 1 == gridDim.x && a.after)
        for (int k = 1; k < a.width; k++)
            put((T *)a.after, (int64_t)(a.width - 1 - k) * a.cols + column, past[k]);
}

/* --- Backward --- */

/* Returns the gradient of a row's sum. */
template <typename T> __device__ __forceinline__ float sum_gradient(const conv_args &a, int64_t row, int64_t column, float sum)
{
    const float s = sigmoid(sum), slope = a.silu ? s * fmaf(sum, 1.0f - s, 1.0f) : 1.0f;
    return slope * get((const T *)a.dy, row * a.cols + column);
}

/* Computes the gradients of the tokens before the next row, carry[k] of the k-th, those of the tokens before this row. */
__device__ __forceinline__ void move_carry(float (&carry)[CONV_TAPS + 1], const taps &t, int width, float d)
{
#pragma unroll
    for (int k = 1; k < CONV_TAPS; k++)
        carry[k] = k < width ? fmaf(t.weight[k], d, carry[k + 1]) : 0.0f;
}

/* Finds, for each block, x of the tokens before it, and the gradients that tokens behind it give to its last ones: x is overwritten
 * afterwards. */
template <typename T> __global__ void __launch_bounds__(CONV_THREADS) conv_edges(conv_args a)
{
    const int64_t column = (int64_t)blockIdx.y * CONV_THREADS + threadIdx.x, b = blockIdx.x;
    if (column >= a.cols)
        return;
    const int64_t end = (b + 1) * ROWS < a.rows ? (b + 1) * ROWS : a.rows;
    const taps t = taps_of<T>(a, column);
    float past[CONV_TAPS], carry[CONV_TAPS + 1] = {0};
    find_past<T>(a, b * ROWS, column, past);
    for (int k = 1; k < a.width; k++)
        a.past[(b * (a.width - 1) + k - 1) * a.cols + column] = past[k];
    int64_t to = end;
    int tokens = 0;
    for (; to < a.rows && tokens < a.width - 1 && a.links[to] != ROW_BEGINS; to++)
        tokens += a.links[to] != ROW_NONE;
#pragma unroll
    for (int k = 1; k < CONV_TAPS; k++)
        if (k < a.width && to == a.rows && tokens < a.width - 1)
            carry[k] = a.dtail[(int64_t)(a.width - 1 - k) * a.cols + column];
    for (int64_t i = to - 1; i >= end; i--) {
        if (a.links[i] == ROW_NONE)
            continue;
        find_past<T>(a, i, column, past);
        past[0] = get((const T *)a.x, i * a.ld + a.first + column);
        move_carry(carry, t, a.width, sum_gradient<T>(a, i, column, sum_taps(t, a.width, past)));
    }
    for (int k = 1; k < a.width; k++)
        a.carry[(b * (a.width - 1) + k - 1) * a.cols + column] = carry[k];
}

struct conv_space {
    float d[ROWS][CONV_THREADS]; /* gradients of sums; each thread has a column of its own */
};

/* Computes the gradients of a block's sums, and its part of the weights' gradients. */
template <typename T>
__device__ __forceinline__ void conv_sums(const conv_args &a, const taps &t, int64_t from, int64_t end, int64_t column,
                                          float (*d)[CONV_THREADS])
{
    const int64_t b = blockIdx.x;
    float past[CONV_TAPS] = {0}, part[CONV_TAPS] = {0}, bias = 0;
#pragma unroll
    for (int k = 1; k < CONV_TAPS; k++)
        if (k < a.width)
            past[k] = a.past[(b * (a.width - 1) + k - 1) * a.cols + column];
    for (int64_t i = from; i < end; i++) {
        const int32_t link = a.links[i];
        if (link == ROW_NONE)
            continue;
        if (link == ROW_BEGINS)
            clear_past(past);
        past[0] = get((const T *)a.x, i * a.ld + a.first + column);
        const float of_sum = sum_gradient<T>(a, i, column, sum_taps(t, a.width, past));
        d[i - from][threadIdx.x] = of_sum;
#pragma unroll
        for (int k = 0; k < CONV_TAPS; k++)
            part[k] = fmaf(of_sum, past[k], part[k]);
        bias += of_sum;
        move_past(past);
    }
#pragma unroll
    for (int k = 0; k < CONV_TAPS; k++)
        if (k < a.width)
            a.parts[(b * (a.width + 1) + k) * a.cols + column] = part[k];
    a.parts[(b * (a.width + 1) + a.width) * a.cols + column] = bias;
}

template <typename T> __global__ void __launch_bounds__(CONV_THREADS) conv_grad(conv_args a)
{
    LT_SHARED(conv_space, space);
    const int64_t column = (int64_t)blockIdx.y * CONV_THREADS + threadIdx.x, b = blockIdx.x;
    if (column >= a.cols)
        return;
    const int64_t from = b * ROWS, end = from + ROWS < a.rows ? from + ROWS : a.rows;
    const taps t = taps_of<T>(a, column);
    float carry[CONV_TAPS + 1] = {0};
    conv_sums<T>(a, t, from, end, column, space.d);
#pragma unroll
    for (int k = 1; k < CONV_TAPS; k++)
        if (k < a.width)
            carry[k] = a.carry[(b * (a.width - 1) + k - 1) * a.cols + column];
    for (int64_t i = end - 1; i >= from; i--) {
        const int32_t link = a.links[i];
        const float d = link == ROW_NONE ? 0.0f : space.d[i - from][threadIdx.x];
        put((T *)a.x, i * a.ld + a.first + column, link == ROW_NONE ? 0.0f : fmaf(t.weight[0], d, carry[1]));
        if (link == ROW_FOLLOWS)
            move_carry(carry, t, a.width, d);
        if (link == ROW_BEGINS)
            clear_past(carry);
    }
    if (b == 0)
        for (int k = 1; k < a.width; k++)
            a.dtail[(int64_t)(a.width - 1 - k) * a.cols + column] = carry[k];
}

/* Adds up the blocks' parts of the weights' gradients, in fp64. */
__global__ void __launch_bounds__(CONV_THREADS) conv_weights(conv_args a)
{
    const int64_t column = (int64_t)blockIdx.x * CONV_THREADS + threadIdx.x;
    const int tap = blockIdx.y; /* a.width: the bias */
    if (column >= a.cols)
        return;
    float *const to = tap == a.width ? a.dbias : a.dweight;
    if (!to)
        return;
    const int64_t at = tap == a.width ? column : column * a.width + a.width - 1 - tap;
    double sum = 0;
    for (int64_t b = 0; b < a.blocks; b++)
        sum += (double)a.parts[(b * (a.width + 1) + tap) * a.cols + column];
    to[at] = (a.adds ? to[at] : 0.0f) + (float)sum;
}

enum status args_of(const char *op, const struct op_attrs *attrs, conv_args *a)
{
    const auto &c = attrs->conv;
    TRY(check_storage(op, c.dtype));
    if (c.rows < 0 || c.cols < 1 || c.width < 1 || c.width > CONV_TAPS || c.cols > 65535 * CONV_THREADS ||
        c.rows / ROWS > INT32_MAX)
        return status_fail(ERR_INVALID, "%s on cuda: %lld rows of %d columns, %d taps; at most %d taps are possible", op,
                           (long long)c.rows, c.cols, c.width, CONV_TAPS);
    *a = {};
    a->rows = c.rows;
    a->ld = c.ld;
    a->blocks = ceil_div(c.rows, ROWS);
    a->cols = c.cols;
    a->first = c.first;
    a->width = c.width;
    a->silu = c.silu;
    a->adds = c.accumulate;
    return OK;
}

} // namespace

enum status ops_cuda_conv(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    conv_args a;
    TRY(args_of("conv", attrs, &a));
    a.y = arg[0];
    a.after = arg[1];
    a.x = arg[2];
    a.weight = arg[3];
    a.bias = arg[4];
    a.links = (const int32_t *)arg[5];
    a.tail = arg[6];
    const unsigned blocks = a.blocks > 0 ? (unsigned)a.blocks : 1; /* without rows, the tail passes */
    return launch(dim3(blocks, (unsigned)ceil_div(a.cols, CONV_THREADS)), dim3(CONV_THREADS), 0, stream,
                  attrs->conv.dtype == F32 ? conv<float> : conv<bf16>, a);
}

enum status ops_cuda_conv_grad(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    conv_args a;
    TRY(args_of("conv_grad", attrs, &a));
    const struct conv_layout l = conv_layout_of(attrs);
    const int is_float = attrs->conv.dtype == F32;
    const dim3 grid((unsigned)a.blocks, (unsigned)ceil_div(a.cols, CONV_THREADS)), block(CONV_THREADS);
    a.x = arg[0];
    a.dtail = (float *)arg[1];
    a.dweight = (float *)arg[2];
    a.dbias = (float *)arg[3];
    a.dy = arg[4];
    a.weight = arg[5];
    a.bias = arg[6];
    a.links = (const int32_t *)arg[7];
    a.tail = arg[8];
    a.past = (float *)arg[9] + l.past;
    a.carry = (float *)arg[9] + l.carry;
    a.parts = (float *)arg[9] + l.parts;
    TRY(launch(grid, block, 0, stream, is_float ? conv_edges<float> : conv_edges<bf16>, a));
    TRY(launch(grid, block, sizeof(conv_space), stream, is_float ? conv_grad<float> : conv_grad<bf16>, a));
    if (!a.dweight && !a.dbias)
        return OK;
    return launch(dim3(grid.y, (unsigned)a.width + 1), block, 0, stream, conv_weights, a);
}
