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
    int heads, a_first, b_first, adds;
    float least, factor;
    void *x;
    const void *a_log, *dt_bias;
    float *g, *beta; /* written; of the gradient: read */
    float *da_log, *ddt_bias;
};

template <typename X, typename P> __global__ void __launch_bounds__(DECAY_THREADS) decay(decay_args a)
{
    const int64_t at = (int64_t)blockIdx.x * DECAY_THREADS + threadIdx.x;
    if (at >= a.rows * a.heads)
        return;
    const int64_t row = at / a.heads;
    const int h = (int)(at % a.heads);
    const X *x = (const X *)a.x + row * a.ld;
    const float u = get(x, a.a_first + h) + get((const P *)a.dt_bias, h), step = fmaxf(softplus(u), a.least);
    a.g[at] = -expf(get((const P *)a.a_log, h)) * step;
    a.beta[at] = a.b_first < 0 ? step : a.factor * sigmoid(get(x, a.b_first + h));
}

struct decay_space {
    double part[2][DECAY_THREADS / LT_WARP];
};

/* Computes the gradients of a head, one a block. Sums over the rows are fp64. */
template <typename X, typename P> __global__ void __launch_bounds__(DECAY_THREADS) decay_grad(decay_args a)
{
    LT_SHARED(decay_space, space);
    const int h = blockIdx.x, lane = threadIdx.x % LT_WARP, warp = threadIdx.x / LT_WARP;
    const float rate = expf(get((const P *)a.a_log, h)), bias = get((const P *)a.dt_bias, h);
    double sum[2] = {0, 0};
    for (int64_t row = threadIdx.x; row < a.rows; row += DECAY_THREADS) {
        X *x = (X *)a.x + row * a.ld;
        const float dg = a.g[row * a.heads + h], dbeta = a.beta[row * a.heads + h];
        const float u = get(x, a.a_first + h) + bias, plus = softplus(u), step = fmaxf(plus, a.least);
        float dstep = -rate * dg;
        if (a.b_first < 0) {
            dstep += dbeta;
        } else {
            const float s = sigmoid(get(x, a.b_first + h));
            put(x, a.b_first + h, a.factor * s * (1.0f - s) * dbeta);
        }
        const float du = plus < a.least ? 0.0f : sigmoid(u) * dstep;
        put(x, a.a_first + h, du);
        sum[0] += (double)(-rate * step * dg);
        sum[1] += (double)du;
    }
    for (int k = 0; k < 2; k++) {
        const double part = warp_sum(sum[k]);
        if (lane == 0)
            space.part[k][warp] = part;
    }
    __syncthreads();
    float *const to = threadIdx.x == 0 ? a.da_log : a.ddt_bias;
    if (threadIdx.x >= 2 || !to)
        return;
    double all = 0;
    for (int w = 0; w < DECAY_THREADS / LT_WARP; w++)
        all += space.part[threadIdx.x][w];
    to[h] = (a.adds ? to[h] : 0.0f) + (float)all;
}

enum status args_of(const char *op, const struct op_attrs *attrs, decay_args *a)
{
    const auto &d = attrs->decay;
    TRY(check_storage(op, d.dtype));
    TRY(check_storage(op, d.x_type));
    if (d.rows < 0 || d.heads < 1 || d.rows * d.heads / DECAY_THREADS > INT32_MAX)
        return status_fail(ERR_INVALID, "%s on cuda: %lld rows of %d heads", op, (long long)d.rows, d.heads);
    *a = {};
    a->rows = d.rows;
    a->ld = d.ld;
    a->heads = d.heads;
    a->a_first = d.a_first;
    a->b_first = d.b_first;
    a->adds = d.accumulate;
    a->least = d.least;
    a->factor = d.factor;
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
    return launch(
        dim3((unsigned)ceil_div(a.rows * a.heads, DECAY_THREADS)), dim3(DECAY_THREADS), 0, stream,
        x == F32 ? (p == F32 ? decay<float, float> : decay<float, bf16>) : (p == F32 ? decay<bf16, float> : decay<bf16, bf16>),
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
