/* Decays and steps of linear attention's heads, forward and backward. */
#include "recurrence/cuda_rows.cuh"

namespace
{

constexpr int DECAY_THREADS = 256;

/* Returns log(1 + e^x). */
__device__ __forceinline__ float softplus(float x)
{
    return x > 20.0f ? x : log1pf(expf(x));
}

struct decay_args {
    int64_t rows, ld;
    int heads, per, a_first, b_first, adds;
    float least, factor, rate;
    void *x;
    const void *a_log, *dt_bias;
    float *g, *beta; /* written; of the gradient: read */
    float *da_log, *ddt_bias;
};

template <typename X, typename P> __global__ void __launch_bounds__(DECAY_THREADS) decay(decay_args a)
{
    const int64_t at = (int64_t)blockIdx.x * DECAY_THREADS + threadIdx.x;
    const int64_t decays = (int64_t)a.heads * a.per, row = at / decays;
    if (row >= a.rows)
        return;
    const int k = (int)(at % decays), h = k / a.per;
    const X *x = (const X *)a.x + row * a.ld;
    const float u = get(x, a.a_first + k) + get((const P *)a.dt_bias, k), step = fmaxf(softplus(u), a.least);
    a.g[at] = -expf(get((const P *)a.a_log, h)) * step;
    if (k % a.per == a.per - 1)
        a.beta[row * a.heads + h] = a.b_first < 0 ? step : a.factor * sigmoid(get(x, a.b_first + h));
}

/* Writes decays that are constants of heads, and steps of 1. */
__global__ void __launch_bounds__(DECAY_THREADS) constants(decay_args a)
{
    const int64_t at = (int64_t)blockIdx.x * DECAY_THREADS + threadIdx.x;
    if (at >= a.rows * a.heads)
        return;
    a.g[at] = -a.rate * exp2f(-8.0f * (float)(at % a.heads + 1) / (float)a.heads);
    a.beta[at] = 1.0f;
}

struct decay_space {
    double part[DECAY_THREADS / LT_WARP];
};

/* Returns the sum of v over the thread block, in its first thread; parts: scratch. */
__device__ __forceinline__ double block_sum(double v, double *parts)
{
    const int lane = threadIdx.x % LT_WARP, warp = threadIdx.x / LT_WARP;
    const double part = warp_sum(v);
    if (lane == 0)
        parts[warp] = part;
    __syncthreads();
    double all = 0;
    for (int w = 0; w < DECAY_THREADS / LT_WARP && threadIdx.x == 0; w++)
        all += parts[w];
    __syncthreads();
    return all;
}

/* Writes a gradient, or adds it to the one that is there. */
__device__ __forceinline__ void put_sum(const decay_args &a, float *to, int at, double sum)
{
    if (threadIdx.x == 0 && to)
        to[at] = (a.adds ? to[at] : 0.0f) + (float)sum;
}

/* Replaces this thread's rows of column k of a, a decay of head h, by their gradient. Returns its parts of the sums of da_log and
 * ddt_bias. */
template <typename X, typename P> __device__ __forceinline__ void column_grad(const decay_args &a, int h, int k, double (&sum)[2])
{
    const float rate = expf(get((const P *)a.a_log, h)), bias = get((const P *)a.dt_bias, k);
    for (int64_t row = threadIdx.x; row < a.rows; row += DECAY_THREADS) {
        X *x = (X *)a.x + row * a.ld;
        const float dg = a.g[row * a.heads * a.per + k], u = get(x, a.a_first + k) + bias;
        const float plus = softplus(u), step = fmaxf(plus, a.least);
        const float dstep = -rate * dg + (a.b_first < 0 ? a.beta[row * a.heads + h] : 0.0f);
        const float du = plus < a.least ? 0.0f : sigmoid(u) * dstep;
        put(x, a.a_first + k, du);
        sum[0] += (double)(-rate * step * dg);
        sum[1] += (double)du;
    }
}

/* Computes the gradients of a head, one a block. Sums over the rows are fp64. */
template <typename X, typename P> __global__ void __launch_bounds__(DECAY_THREADS) decay_grad(decay_args a)
{
    LT_SHARED(decay_space, space);
    const int h = blockIdx.x;
    double of_rate = 0;
    for (int k = h * a.per; k < (h + 1) * a.per; k++) {
        double sum[2] = {0, 0};
        column_grad<X, P>(a, h, k, sum);
        of_rate += sum[0];
        put_sum(a, a.ddt_bias, k, block_sum(sum[1], space.part));
    }
    put_sum(a, a.da_log, h, block_sum(of_rate, space.part));
    for (int64_t row = threadIdx.x; row < a.rows && a.b_first >= 0; row += DECAY_THREADS) {
        X *x = (X *)a.x + row * a.ld;
        const float s = sigmoid(get(x, a.b_first + h));
        put(x, a.b_first + h, a.factor * s * (1.0f - s) * a.beta[row * a.heads + h]);
    }
}

enum status args_of(const char *op, const struct op_attrs *attrs, decay_args *a)
{
    const auto &d = attrs->decay;
    TRY(check_storage(op, d.dtype));
    TRY(check_storage(op, d.x_type));
    if (d.rows < 0 || d.heads < 1 || d.per < 0 || d.rows * d.heads * max_i64(d.per, 1) / DECAY_THREADS > INT32_MAX)
        return status_fail(ERR_INVALID, "%s on cuda: %lld rows of %d heads", op, (long long)d.rows, d.heads);
    *a = {};
    a->rows = d.rows;
    a->ld = d.ld;
    a->heads = d.heads;
    a->per = d.per > 0 ? d.per : 1;
    a->a_first = d.a_first;
    a->b_first = d.b_first;
    a->adds = d.accumulate;
    a->least = d.least;
    a->factor = d.factor;
    a->rate = d.rate;
    return OK;
}

} // namespace

enum status ops_cuda_decay(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    decay_args a;
    TRY(args_of("decay", attrs, &a));
    a.g = (float *)arg[0];
    a.beta = (float *)arg[1];
    a.x = arg[2];
    a.a_log = arg[3];
    a.dt_bias = arg[4];
    const int x = attrs->decay.x_type, p = attrs->decay.dtype;
    return launch(dim3((unsigned)ceil_div(a.rows * a.heads * a.per, DECAY_THREADS)), dim3(DECAY_THREADS), 0, stream,
                  !a.x       ? constants
                  : x == F32 ? (p == F32 ? decay<float, float> : decay<float, bf16>)
                             : (p == F32 ? decay<bf16, float> : decay<bf16, bf16>),
                  a);
}

enum status ops_cuda_decay_grad(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    decay_args a;
    TRY(args_of("decay_grad", attrs, &a));
    a.x = arg[0];
    a.da_log = (float *)arg[1];
    a.ddt_bias = (float *)arg[2];
    a.g = (float *)arg[3];
    a.beta = (float *)arg[4];
    a.a_log = arg[5];
    a.dt_bias = arg[6];
    const int x = attrs->decay.x_type, p = attrs->decay.dtype;
    return launch(dim3((unsigned)a.heads), dim3(DECAY_THREADS), sizeof(decay_space), stream,
                  x == F32 ? (p == F32 ? decay_grad<float, float> : decay_grad<float, bf16>)
                           : (p == F32 ? decay_grad<bf16, float> : decay_grad<bf16, bf16>),
                  a);
}
