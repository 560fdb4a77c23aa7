/* Cross entropy and its gradient: the formulas of loss.h. */
#include "ops/cuda_reduce.cuh"

#include <float.h>

namespace
{

constexpr int ROW_THREADS = 1024;
constexpr int64_t BATCH = LT_LIMIT(65536, 1050); /* rows per launch, whose losses are kept until they are summed */

__device__ double row_losses[BATCH];

struct loss_space {
    warp_parts<float, 1> max;
    warp_parts<double, 1> sum;
};

/* Rows of any vocabulary start anywhere: elements before the first 16-byte boundary, vectors, and what is left. */
struct row_parts {
    int64_t head, body; /* [0, head) and [body, n) are taken one by one */
};

__device__ __forceinline__ row_parts split_row(const float *x, int64_t n)
{
    int64_t head = (int64_t)((16 - (uintptr_t)x % 16) % 16 / 4);
    head = head < n ? head : n;
    return {head, head + (n - head) / 4 * 4};
}

/* The largest logit so far and the sum of exp(x - max). */
struct online {
    float max, sum;
    template <int N> __device__ __forceinline__ void take(const float *x)
    {
        float v[N], larger = max;
        load<N>(v, x);
#pragma unroll
        for (int k = 0; k < N; k++)
            larger = fmaxf(larger, v[k]);
        if (larger > max)
            sum *= expf(max - larger);
        max = larger;
#pragma unroll
        for (int k = 0; k < N; k++)
            sum += expf(v[k] - max);
    }
};

template <int N>
__device__ __forceinline__ void gradient_run(float *x, int64_t j, int64_t target, float max, float scale, float inv_targets)
{
    float v[N];
    load<N>(v, x + j);
#pragma unroll
    for (int k = 0; k < N; k++) {
        v[k] = expf(v[k] - max) * scale;
        if (j + k == target)
            v[k] -= inv_targets;
    }
    store<N>(x + j, v);
}

template <int N> __device__ __forceinline__ void zero_run(float *x)
{
    float v[N] = {};
    store<N>(x, v);
}

/* Calls one(j) or four(j) for the parts of a row of n elements at x that are this thread's. */
template <typename ONE, typename FOUR>
__device__ __forceinline__ void walk_row(const float *x, int64_t n, const ONE &one, const FOUR &four)
{
    const row_parts part = split_row(x, n);
    for (int64_t j = threadIdx.x; j < part.head; j += blockDim.x)
        one(j);
#pragma unroll 4
    for (int64_t j = part.head + 4 * (int64_t)threadIdx.x; j < part.body; j += 4 * (int64_t)blockDim.x)
        four(j);
    for (int64_t j = part.body + threadIdx.x; j < n; j += blockDim.x)
        one(j);
}

__global__ void __launch_bounds__(ROW_THREADS)
    loss_rows(float *logits, const int32_t *targets, const struct step_record *record, int64_t vocab, int gradient)
{
    LT_SHARED(loss_space, s);
    float *x = logits + (int64_t)blockIdx.x * vocab;
    const int64_t target = targets[blockIdx.x];
    if (target < 0 || target >= vocab) {
        if (gradient)
            walk_row(
                x, vocab, [&](int64_t j) { zero_run<1>(x + j); }, [&](int64_t j) { zero_run<4>(x + j); });
        if (threadIdx.x == 0)
            row_losses[blockIdx.x] = target < 0 ? 0.0 : (double)NAN;
        return;
    }
    const float at_target = x[target]; /* before anybody overwrites it: the sums below are barriers */
    online part = {-FLT_MAX, 0.0f};    /* not -inf: a row of -inf has m - m = 0 terms, not NaN */
    walk_row(
        x, vocab, [&](int64_t j) { part.take<1>(x + j); }, [&](int64_t j) { part.take<4>(x + j); });
    const float max = row_max(part.max, s.max);
    double sum[1] = {(double)part.sum * (double)expf(part.max - max)};
    row_sum(sum, s.sum);
    if (threadIdx.x == 0)
        row_losses[blockIdx.x] = log(sum[0]) + (double)max - (double)at_target;
    if (!gradient)
        return;
    const float inv_targets = record->inv_targets, scale = (float)((double)inv_targets / sum[0]);
    walk_row(
        x, vocab, [&](int64_t j) { gradient_run<1>(x, j, target, max, scale, inv_targets); },
        [&](int64_t j) { gradient_run<4>(x, j, target, max, scale, inv_targets); });
}

/* *loss (+)= the rows' losses: every thread its rows in order, then the threads as a tree. */
__global__ void __launch_bounds__(ROW_THREADS) add_rows(double *loss, int64_t rows, int accumulate)
{
    typedef warp_parts<double, 1> space;
    LT_SHARED(space, s);
    double sum[1] = {0.0};
    for (int64_t i = threadIdx.x; i < rows; i += ROW_THREADS)
        sum[0] += row_losses[i];
    row_sum(sum, s);
    if (threadIdx.x == 0)
        *loss = accumulate ? *loss + sum[0] : sum[0];
}

} // namespace

enum status ops_cuda_loss(const struct op_attrs *attrs, void *const *arg, cuda_stream stream)
{
    float *logits = (float *)arg[0];
    double *loss = (double *)arg[1];
    const int32_t *targets = (const int32_t *)arg[2];
    const struct step_record *record = (const struct step_record *)arg[3];
    const int64_t rows = attrs->loss.rows, vocab = attrs->loss.vocab;
    if (attrs->loss.gradient && !record)
        return status_fail(ERR_INVALID, "loss on cuda: a gradient needs the step record, which holds 1 / target tokens");
    const unsigned threads = reducing_threads(blocks_of(vocab, 4), ROW_THREADS);
    for (int64_t i = 0; i == 0 || i < rows; i += BATCH) {
        int64_t batch = rows - i < BATCH ? rows - i : BATCH;
        TRY(launch(dim3((unsigned)batch), dim3(threads), sizeof(loss_space), stream, loss_rows, logits + i * vocab, targets + i,
                   record, vocab, attrs->loss.gradient));
        TRY(launch(dim3(1), dim3(ROW_THREADS), sizeof(warp_parts<double, 1>), stream, add_rows, loss, batch,
                   attrs->loss.accumulate || i > 0));
    }
    return OK;
}
