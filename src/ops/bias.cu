/* Bias and its gradient. */
#include "ops/cuda_vec.cuh"

namespace
{

template <typename Y, typename T> struct bias_add {
    Y *y;
    const T *bias;
    int64_t ld;
    template <int N> __device__ __forceinline__ void run(int64_t row, int64_t j) const
    {
        float a[N], b[N];
        load<N>(a, y + row * ld + j);
        load<N>(b, bias + j);
#pragma unroll
        for (int k = 0; k < N; k++)
            a[k] += b[k];
        store<N>(y + row * ld + j, a);
    }
};

constexpr int COLUMNS = 32; /* columns that one block owns */
constexpr int COLUMN_THREADS = 1024;

template <int N> struct column_sums {
    static constexpr int STRIPS =
        COLUMN_THREADS / (COLUMNS / N); /* strips of rows: each is summed by COLUMNS / N threads, one for each run of N columns */
    float part[STRIPS][COLUMNS];
};

/* Computes dbias (+)= column sums of dy. A strip has every STRIPS-th row, in order; strips are added in groups of 32, then the
 * groups. */
template <typename T, int N>
__global__ void __launch_bounds__(COLUMN_THREADS)
    sum_columns(float *dbias, const T *dy, int64_t rows, int64_t dim, int64_t ld, int accumulate)
{
    typedef column_sums<N> space;
    LT_SHARED(space, s);
    const int strip = threadIdx.x / (COLUMNS / N), local = threadIdx.x % (COLUMNS / N) * N;
    const int64_t j = (int64_t)blockIdx.x * COLUMNS + local;
    float sum[N] = {};
    if (j < dim) {
#pragma unroll 4
        for (int64_t row = strip; row < rows; row += space::STRIPS) {
            float v[N];
            load<N>(v, dy + row * ld + j);
#pragma unroll
            for (int k = 0; k < N; k++)
                sum[k] += v[k];
        }
    }
#pragma unroll
    for (int k = 0; k < N; k++)
        s.part[strip][local + k] = sum[k];
    __syncthreads();
    const int column = threadIdx.x % COLUMNS, group = threadIdx.x / COLUMNS;
    const int groups = space::STRIPS < 32 ? 1 : space::STRIPS / 32;
    if (group < groups) {
        float total = 0.0f;
        for (int k = group * 32; k < group * 32 + 32 && k < space::STRIPS; k++)
            total += s.part[k][column];
        s.part[group * 32][column] = total; /* only this thread reads this group's strips */
    }
    __syncthreads();
    const int64_t out = (int64_t)blockIdx.x * COLUMNS + column;
    if (group == 0 && out < dim) {
        float total = 0.0f;
        for (int g = 0; g < groups; g++)
            total += s.part[g * 32][column];
        dbias[out] = accumulate ? dbias[out] + total : total;
    }
}

int64_t ld_of(const struct op_attrs *attrs)
{
    return attrs->bias.ld > 0 ? attrs->bias.ld : attrs->bias.dim;
}

template <typename Y, typename T> enum status run_bias(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    bias_add<Y, T> op = {(Y *)arg[0], (const T *)arg[1], ld_of(attrs)};
    const bool vectors = aligned_to_vectors({op.y, op.bias}) && op.ld % WIDTH<Y> == 0;
    return launch_rows<WIDTH<Y>>(op, attrs->bias.rows, attrs->bias.dim, vectors, stream);
}

template <typename T, int N> enum status launch_bias_grad(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    return launch(dim3((unsigned)blocks_of(attrs->bias.dim, COLUMNS)), dim3(COLUMN_THREADS), sizeof(column_sums<N>), stream,
                  sum_columns<T, N>, (float *)arg[0], (const T *)arg[1], attrs->bias.rows, attrs->bias.dim, ld_of(attrs),
                  attrs->bias.accumulate);
}

template <typename T> enum status run_bias_grad(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    /* 4 columns per thread: 16 bytes of fp32, 8 of bf16. With 8 columns the strips would take 32 KiB of shared memory and gain
     * nothing. */
    if (attrs->bias.dim % 4 == 0 && ld_of(attrs) % 4 == 0 && aligned_to_vectors({arg[1]}))
        return launch_bias_grad<T, 4>(attrs, arg, stream);
    return launch_bias_grad<T, 1>(attrs, arg, stream);
}

} // namespace

enum status ops_cuda_bias(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    TRY(check_storage("bias", attrs->bias.dtype));
    TRY(check_storage("bias", attrs->bias.y_type));
    if (attrs->bias.y_type == BF16 && attrs->bias.dtype == F32)
        return status_fail(ERR_INVALID, "bias on cuda: of F32, added to BF16");
    if (attrs->bias.dtype == F32)
        return run_bias<float, float>(attrs, arg, stream);
    return attrs->bias.y_type == BF16 ? run_bias<bf16, bf16>(attrs, arg, stream) : run_bias<float, bf16>(attrs, arg, stream);
}

enum status ops_cuda_bias_grad(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    TRY(check_storage("bias_grad", attrs->bias.y_type));
    return attrs->bias.y_type == BF16 ? run_bias_grad<bf16>(attrs, arg, stream) : run_bias_grad<float>(attrs, arg, stream);
}
