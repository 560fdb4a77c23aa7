/* Sum of squares, and the clip factor, bit for bit what clip.h says. */
#include "ops/cuda_reduce.cuh"

namespace
{

constexpr int LANES = 16;                      /* sums of one block of SUMSQ_BLOCK elements */
constexpr int RUN = 4;                         /* neighbouring lanes that a thread adds up: 16 bytes of x at a time */
constexpr int TEAM = LANES / RUN;              /* threads of one block of SUMSQ_BLOCK elements */
constexpr int BLOCKS = THREADS / TEAM;         /* of SUMSQ_BLOCK elements per block of threads */
constexpr int64_t BATCH = LT_LIMIT(65536, 70); /* sums kept per launch: 268 million elements */
constexpr int CHUNK = 2048;                    /* sums that are staged in shared memory at a time */

__device__ double block_sums[BATCH];

template <bool VECTORS> __global__ void __launch_bounds__(THREADS) square_blocks(const float *x, int64_t n)
{
    const int first = threadIdx.x % TEAM * RUN;
    const int64_t block = (int64_t)blockIdx.x * BLOCKS + threadIdx.x / TEAM, at = block * SUMSQ_BLOCK;
    double sum[RUN] = {};
    if (VECTORS && at + SUMSQ_BLOCK <= n) {
#pragma unroll 8
        for (int j = first; j < SUMSQ_BLOCK; j += LANES) {
            float v[RUN];
            load<RUN>(v, x + at + j);
#pragma unroll
            for (int k = 0; k < RUN; k++)
                sum[k] += (double)v[k] * (double)v[k]; /* the product is exact, so that fusing it changes nothing */
        }
    } else {
        const int64_t end = at + SUMSQ_BLOCK < n ? at + SUMSQ_BLOCK : n;
        for (int64_t j = at + first; j < end; j += LANES) {
#pragma unroll
            for (int k = 0; k < RUN; k++) {
                const double d = j + k < end ? x[j + k] : 0.0;
                sum[k] += d * d;
            }
        }
    }
#pragma unroll
    for (int half = TEAM / 2; half > 0; half /= 2) {
#pragma unroll
        for (int k = 0; k < RUN; k++)
            sum[k] += __shfl_xor_sync(LT_FULL_MASK, sum[k], half);
    }
    if (first == 0 && at < n)
        block_sums[block] = (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

struct staged {
    double sum[2][CHUNK];
};

/* total + x[0] + x[1] + ... in order; the result is thread 0's. The other threads fetch the next chunk meanwhile. */
__device__ __forceinline__ double add_in_order(double total, const double *x, int64_t n, staged &s)
{
    for (int64_t at = 0; at < n + CHUNK; at += CHUNK) {
        const int now = (int)(at / CHUNK) % 2;
        if (at < n) {
            for (int64_t i = threadIdx.x; i < CHUNK && at + i < n; i += THREADS)
                s.sum[now][i] = x[at + i];
        }
        if (threadIdx.x == 0 && at > 0) {
            const int64_t before = at - CHUNK;
            const int count = (int)(n - before < CHUNK ? n - before : CHUNK);
#pragma unroll 8
            for (int i = 0; i < count; i++)
                total += s.sum[1 - now][i];
        }
        __syncthreads();
    }
    return total;
}

__global__ void __launch_bounds__(THREADS) add_blocks(double *out, int64_t n, int first)
{
    LT_SHARED(staged, s);
    double total = add_in_order(first ? 0.0 : *out, block_sums, n, s);
    if (threadIdx.x == 0)
        *out = total;
}

__global__ void __launch_bounds__(THREADS)
    clip_factor(struct norm_result *result, const double *sums, int64_t n, const struct step_record *record)
{
    LT_SHARED(staged, s);
    double norm = sqrt(add_in_order(0.0, sums, n, s)), factor = 1.0;
    if (threadIdx.x != 0)
        return;
    if (record->clip > 0.0f)
        factor = fmin(1.0, (double)record->clip / (norm + 1e-6));
    int skip = !isfinite(norm);
    result->norm = norm;
    result->factor = skip ? 0.0f : (float)factor;
    result->skip = skip;
}

} // namespace

enum status ops_cuda_sumsq(const struct op_attrs *attrs, void *const *arg, cuda_stream stream)
{
    const float *x = (const float *)arg[1];
    const int64_t n = attrs->vec.n, all = blocks_of(n, SUMSQ_BLOCK);
    const auto squares = aligned_to_vectors({x}) ? square_blocks<true> : square_blocks<false>;
    for (int64_t b = 0; b == 0 || b < all; b += BATCH) {
        int64_t at = b * SUMSQ_BLOCK, blocks = all - b < BATCH ? all - b : BATCH;
        TRY(launch(dim3((unsigned)blocks_of(blocks, BLOCKS)), dim3(THREADS), 0, stream, squares, x + at,
                   blocks < all - b ? blocks * SUMSQ_BLOCK : n - at));
        TRY(launch(dim3(1), dim3(THREADS), sizeof(staged), stream, add_blocks, (double *)arg[0], blocks, b == 0));
    }
    return OK;
}

enum status ops_cuda_clip(const struct op_attrs *attrs, void *const *arg, cuda_stream stream)
{
    return launch(dim3(1), dim3(THREADS), sizeof(staged), stream, clip_factor, (struct norm_result *)arg[0],
                  (const double *)arg[1], attrs->vec.n, (const struct step_record *)arg[2]);
}
