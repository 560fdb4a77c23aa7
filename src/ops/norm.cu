/* Normalisation of rows, forward and backward: the formulas of norm.h. */
#include "ops/cuda_reduce.cuh"

namespace
{

constexpr int NORM_THREADS = 512; /* most that share a row */
constexpr int ROW_GROUP = 32;     /* rows whose column sums one block takes; what norm.h says of `work` */
constexpr int PANEL_RUNS = 2;     /* runs of columns whose sums a thread keeps in registers */

/* Every operand of either direction. */
template <typename T> struct norm_args {
    int64_t rows, dim;
    float eps;
    int kind;
    T *out; /* y, or dx */
    const T *x, *weight, *bias;
    const float *dy;
    float *work; /* [groups][2][dim], or NULL */
};

/* This thread's part of the sum of (x - mean) ^ power. */
template <typename T, int N> __device__ __forceinline__ float powers(const T *x, int64_t dim, float mean, bool square)
{
    float sum = 0.0f;
#pragma unroll 2
    for (int64_t j = (int64_t)threadIdx.x * N; j < dim; j += (int64_t)blockDim.x * N) {
        float v[N];
        load<N>(v, x + j);
#pragma unroll
        for (int k = 0; k < N; k++) {
            float d = v[k] - mean;
            sum += square ? d * d : d;
        }
    }
    return sum;
}

template <typename T, int N> __global__ void __launch_bounds__(NORM_THREADS) norm_rows(norm_args<T> p)
{
    typedef warp_parts<float, 1> space;
    LT_SHARED(space, s);
    int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= p.rows)
        return; /* rows share a block only if each is one warp's, and then nobody waits for it */
    const T *x = p.x + row * p.dim;
    T *y = p.out + row * p.dim;
    float mean = 0.0f, sum[1];
    if (p.kind == NORM_LAYER) {
        sum[0] = powers<T, N>(x, p.dim, 0.0f, false);
        row_sum(sum, s);
        mean = sum[0] / (float)p.dim;
    }
    sum[0] = powers<T, N>(x, p.dim, mean, true);
    row_sum(sum, s);
    float r = 1.0f / sqrtf(sum[0] / (float)p.dim + p.eps);
#pragma unroll 2
    for (int64_t j = (int64_t)threadIdx.x * N; j < p.dim; j += (int64_t)blockDim.x * N) {
        float v[N], w[N], b[N] = {};
        load<N>(v, x + j);
        load<N>(w, p.weight + j);
        if (p.bias)
            load<N>(b, p.bias + j);
#pragma unroll
        for (int k = 0; k < N; k++)
            v[k] = fmaf((v[k] - mean) * r, w[k], b[k]);
        store<N>(y + j, v);
    }
}

struct row_stats {
    float mean, r, mean_g, mean_gx;
};

/* Statistics of a row, and the means of g = dy * weight and g * xhat. */
template <typename T, int N>
__device__ __forceinline__ row_stats gradient_stats(const norm_args<T> &p, const T *x, const float *dy, warp_parts<float, 3> &s)
{
    row_stats st = {};
    float sum[3] = {};
    if (p.kind == NORM_LAYER) {
        sum[0] = powers<T, N>(x, p.dim, 0.0f, false);
        row_sum(sum, s);
        st.mean = sum[0] / (float)p.dim;
        sum[0] = 0.0f;
    }
#pragma unroll 2
    for (int64_t j = (int64_t)threadIdx.x * N; j < p.dim; j += (int64_t)blockDim.x * N) {
        float v[N], w[N], d[N];
        load<N>(v, x + j);
        load<N>(w, p.weight + j);
        load<N>(d, dy + j);
#pragma unroll
        for (int k = 0; k < N; k++) {
            float centred = v[k] - st.mean, g = d[k] * w[k];
            sum[0] += centred * centred;
            sum[1] += g;
            sum[2] += g * centred;
        }
    }
    row_sum(sum, s);
    st.r = 1.0f / sqrtf(sum[0] / (float)p.dim + p.eps);
    st.mean_g = p.kind == NORM_LAYER ? sum[1] / (float)p.dim : 0.0f;
    st.mean_gx = sum[2] * st.r / (float)p.dim;
    return st;
}

/* dx of N columns of a row, whose terms are added to the column sums dw and db. */
template <typename T, int N>
__device__ __forceinline__ void gradient_run(const norm_args<T> &p, const row_stats &st, int64_t row, int64_t j, float (&dw)[N],
                                             float (&db)[N])
{
    const int64_t at = row * p.dim + j;
    float v[N], w[N], d[N], dx[N];
    load<N>(dx, p.out + at);
    load<N>(v, p.x + at);
    load<N>(w, p.weight + j);
    load<N>(d, p.dy + at);
#pragma unroll
    for (int k = 0; k < N; k++) {
        float xhat = (v[k] - st.mean) * st.r;
        dx[k] += st.r * (fmaf(-xhat, st.mean_gx, d[k] * w[k]) - st.mean_g);
        dw[k] = fmaf(d[k], xhat, dw[k]);
        db[k] += d[k];
    }
    store<N>(p.out + at, dx);
}

/* One block: ROW_GROUP rows, one after the other. A thread owns columns, so their sums stay in its registers; where the row is
 * wider than a panel (all threads' registers), the rows are walked once per panel. */
template <typename T, int N> __global__ void __launch_bounds__(NORM_THREADS) norm_grad_rows(norm_args<T> p)
{
    typedef warp_parts<float, 3> space;
    LT_SHARED(space, s);
    const int64_t group = blockIdx.x, first = group * ROW_GROUP, end = first + ROW_GROUP < p.rows ? first + ROW_GROUP : p.rows;
    const int64_t stride = (int64_t)blockDim.x * N, panel = stride * PANEL_RUNS;
    for (int64_t j0 = (int64_t)threadIdx.x * N, start = 0; start < p.dim; start += panel, j0 += panel) {
        float dw[PANEL_RUNS][N] = {}, db[PANEL_RUNS][N] = {};
        for (int64_t row = first; row < end; row++) {
            row_stats st = gradient_stats<T, N>(p, p.x + row * p.dim, p.dy + row * p.dim, s);
#pragma unroll
            for (int c = 0; c < PANEL_RUNS; c++)
                if (j0 + c * stride < p.dim)
                    gradient_run<T, N>(p, st, row, j0 + c * stride, dw[c], db[c]);
        }
        if (!p.work)
            continue;
#pragma unroll
        for (int c = 0; c < PANEL_RUNS; c++) {
            int64_t j = j0 + c * stride;
            if (j < p.dim) {
                store<N>(p.work + 2 * group * p.dim + j, dw[c]);
                store<N>(p.work + (2 * group + 1) * p.dim + j, db[c]);
            }
        }
    }
}

constexpr int STRIPS = 32; /* of groups, each added up by one warp */

struct strip_sums {
    float part[STRIPS][LT_WARP];
};

/* out[j] (+)= sum over groups of sums[g * stride + j]: strips of groups in order, then the strips in order. */
__global__ void __launch_bounds__(STRIPS *LT_WARP)
    add_groups(float *out, const float *sums, int64_t stride, int64_t groups, int64_t dim, int accumulate)
{
    LT_SHARED(strip_sums, s);
    const int strip = threadIdx.y, lane = threadIdx.x;
    const int64_t j = (int64_t)blockIdx.x * LT_WARP + lane, each = (groups + STRIPS - 1) / STRIPS;
    int64_t end = (strip + 1) * each < groups ? (strip + 1) * each : groups;
    float total = 0.0f;
    if (j < dim) {
#pragma unroll 8
        for (int64_t g = strip * each; g < end; g++)
            total += sums[g * stride + j];
    }
    s.part[strip][lane] = total;
    __syncthreads();
    if (strip == 0 && j < dim) {
        for (int k = 1; k < STRIPS; k++)
            total += s.part[k][lane];
        out[j] = accumulate ? out[j] + total : total;
    }
}

enum status reduce_groups(float *out, const float *sums, const struct op_attrs *attrs, cuda_stream stream)
{
    if (!out)
        return OK;
    int64_t dim = attrs->norm.dim;
    return launch(dim3((unsigned)blocks_of(dim, LT_WARP)), dim3(LT_WARP, STRIPS), sizeof(strip_sums), stream, add_groups, out,
                  sums, 2 * dim, blocks_of(attrs->norm.rows, ROW_GROUP), dim, attrs->norm.accumulate);
}

template <typename T, int N> enum status launch_norm(const norm_args<T> &p, cuda_stream stream)
{
    unsigned x = reducing_threads(blocks_of(p.dim, N), NORM_THREADS / 2), y = x == LT_WARP ? 8 : 1;
    return launch(dim3((unsigned)blocks_of(p.rows, y)), dim3(x, y), sizeof(warp_parts<float, 1>), stream, norm_rows<T, N>, p);
}

template <typename T, int N> enum status launch_norm_grad(const norm_args<T> &p, cuda_stream stream)
{
    unsigned threads = reducing_threads(blocks_of(p.dim, N * PANEL_RUNS), NORM_THREADS);
    return launch(dim3((unsigned)blocks_of(p.rows, ROW_GROUP)), dim3(threads), sizeof(warp_parts<float, 3>), stream,
                  norm_grad_rows<T, N>, p);
}

template <typename T> norm_args<T> args_of(const struct op_attrs *attrs, void *const *arg)
{
    norm_args<T> p = {};
    p.rows = attrs->norm.rows;
    p.dim = attrs->norm.dim;
    p.eps = attrs->norm.eps;
    p.kind = attrs->norm.kind;
    p.out = (T *)arg[0];
    p.x = (const T *)arg[1];
    p.weight = (const T *)arg[2];
    return p;
}

template <typename T> enum status run_norm(const struct op_attrs *attrs, void *const *arg, cuda_stream stream)
{
    norm_args<T> p = args_of<T>(attrs, arg);
    p.bias = (const T *)arg[3];
    if (p.dim % WIDTH<T> == 0 && aligned_to_vectors({p.out, p.x, p.weight, p.bias}))
        return launch_norm<T, WIDTH<T>>(p, stream);
    return launch_norm<T, 1>(p, stream);
}

template <typename T> enum status run_norm_grad(const struct op_attrs *attrs, void *const *arg, cuda_stream stream)
{
    norm_args<T> p = args_of<T>(attrs, arg);
    float *dweight = (float *)arg[4], *dbias = (float *)arg[5];
    p.dy = (const float *)arg[3];
    p.work = dweight || dbias ? (float *)arg[6] : NULL;
    if (p.dim % WIDTH<T> == 0 && aligned_to_vectors({p.out, p.x, p.weight, p.dy, p.work}))
        TRY((launch_norm_grad<T, WIDTH<T>>(p, stream)));
    else
        TRY((launch_norm_grad<T, 1>(p, stream)));
    TRY(reduce_groups(dweight, p.work, attrs, stream));
    return reduce_groups(dbias, p.work + p.dim, attrs, stream);
}

} // namespace

enum status ops_cuda_norm(const struct op_attrs *attrs, void *const *arg, cuda_stream stream)
{
    TRY(check_storage("norm", attrs->norm.dtype));
    if (attrs->norm.rows <= 0 || attrs->norm.dim <= 0)
        return OK;
    return attrs->norm.dtype == BF16 ? run_norm<bf16>(attrs, arg, stream) : run_norm<float>(attrs, arg, stream);
}

enum status ops_cuda_norm_grad(const struct op_attrs *attrs, void *const *arg, cuda_stream stream)
{
    TRY(check_storage("norm_grad", attrs->norm.dtype));
    if (attrs->norm.dim <= 0)
        return OK;
    return attrs->norm.dtype == BF16 ? run_norm_grad<bf16>(attrs, arg, stream) : run_norm_grad<float>(attrs, arg, stream);
}
