/* Sum of squares, and the clip factor, bit for bit what clip.h says. */
#include "ops/cuda_reduce.cuh"

namespace
{

constexpr int LANES = 16;                      /* sums of one block of SUMSQ_BLOCK elements */
constexpr int RUN = 4;                         /* neighbouring lanes that a thread adds up: 16 bytes of x at a time */
constexpr int TEAM = LANES / RUN;              /* threads of one block of SUMSQ_BLOCK elements */
constexpr int BLOCKS = THREADS / TEAM;         /* of SUMSQ_BLOCK elements per block of threads */
constexpr int64_t BATCH = LT_LIMIT(65536, 70); /* sums kept per launch: 268 million elements */
constexpr int AHEAD = 16;                      /* loads in flight per thread: 1 KiB of every block */

__device__ double block_sums[BATCH];

template <bool VECTORS> __global__ void __launch_bounds__(THREADS, 2) square_blocks(const float *x, int64_t n)
{
    const int first = threadIdx.x % TEAM * RUN;
    const int64_t block = (int64_t)blockIdx.x * BLOCKS + threadIdx.x / TEAM, at = block * SUMSQ_BLOCK;
    double sum[RUN] = {};
    if (VECTORS && at + SUMSQ_BLOCK <= n) {
        for (int j = first; j < SUMSQ_BLOCK; j += AHEAD * LANES) {
            float v[AHEAD][RUN];
#pragma unroll
            for (int a = 0; a < AHEAD; a++)
                load<RUN>(v[a], x + at + j + a * LANES);
#pragma unroll
            for (int a = 0; a < AHEAD; a++)
#pragma unroll
                for (int k = 0; k < RUN; k++)
                    sum[k] += (double)v[a][k] * (double)v[a][k]; /* the product is exact, so that fusing it changes nothing */
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

/* Numbers x[i] >= 0 are added to a total in order by many threads, with the bits of one thread's additions. As long as the total
 * stays within a binade [base, 2 base), its last bit is worth the same, and x moves it by x rounded to that bit; only where x
 * lies half-way between two does the total's own last bit decide, because ties go to even. So a run of numbers is known by what
 * it adds to an even and to an odd total of the binade, and runs are joined like functions. Where the total leaves the binade,
 * the run is added one by one, and the rest starts again with the next. */
struct steps {
    double even, odd;
};

struct binade {
    double base, odd, end; /* its first (even) and second number, and the next binade's first; base is 0 for subnormal totals */
};

__device__ __forceinline__ bool is_odd(double total)
{
    return __double_as_longlong(total) & 1;
}

__device__ __forceinline__ binade binade_of(double total)
{
    const long long exponent = 0x7ff0000000000000, first = __double_as_longlong(total) & exponent;
    return {__longlong_as_double(first), __longlong_as_double(first | 1), __longlong_as_double(first + 0x0010000000000000)};
}

/* What b adds after a. */
__device__ __forceinline__ steps joined(const steps &a, const steps &b, const binade &in)
{
    return {a.even + (is_odd(in.base + a.even) ? b.odd : b.even), a.odd + (is_odd(in.odd + a.odd) ? b.odd : b.even)};
}

constexpr int SUMS = 16; /* neighbouring numbers that a thread adds */

struct order_space {
    steps warp[THREADS / LT_WARP];
    double total;
    int from; /* the first thread whose numbers are not in the total yet */
};

/* What this lane's numbers and those of the lanes before it add; the first `lanes` lanes, a power of two, have some. */
__device__ __forceinline__ steps steps_up_to(steps mine, int lanes, const binade &in)
{
#pragma unroll
    for (int far = 1; far < lanes; far *= 2) {
        const steps other = {__shfl_up_sync(LT_FULL_MASK, mine.even, far), __shfl_up_sync(LT_FULL_MASK, mine.odd, far)};
        if ((int)threadIdx.x % LT_WARP >= far)
            mine = joined(other, mine, in);
    }
    return mine;
}

/* `upto` of `lane`; nothing before the first. */
__device__ __forceinline__ steps steps_of_lane(const steps &upto, int lane)
{
    const steps its = {__shfl_sync(LT_FULL_MASK, upto.even, lane & (LT_WARP - 1)),
                       __shfl_sync(LT_FULL_MASK, upto.odd, lane & (LT_WARP - 1))};
    return lane < 0 ? steps{0.0, 0.0} : its;
}

/* What the numbers of the threads before this one add; mine: this thread's. */
__device__ __forceinline__ steps steps_before(const steps &mine, const binade &in, order_space &s)
{
    const int lane = threadIdx.x % LT_WARP, warp = threadIdx.x / LT_WARP, warps = THREADS / LT_WARP;
    const steps upto = steps_up_to(mine, LT_WARP, in);
    if (lane == LT_WARP - 1)
        s.warp[warp] = upto;
    __syncthreads();
    const steps warps_upto = steps_up_to(lane < warps ? s.warp[lane] : steps{0.0, 0.0}, warps, in);
    return joined(steps_of_lane(warps_upto, warp - 1), steps_of_lane(upto, lane - 1), in);
}

/* Adds the threads' numbers from thread `from` on to the total, up to where it has left its binade; returns the thread to go on
 * with.
 */
__device__ __forceinline__ int add_in_binade(double *total, const double (&x)[SUMS], int from, order_space &s)
{
    const binade in = binade_of(*total);
    const int thread = threadIdx.x;
    double even = in.base, odd = in.odd;
    for (int k = 0; k < SUMS && thread >= from; k++) {
        even += x[k];
        odd += x[k];
    }
    const steps mine = {even - in.base, odd - in.odd}, before = steps_before(thread < from ? steps{0.0, 0.0} : mine, in, s);
    const double start = *total + (is_odd(*total) ? before.odd : before.even);
    double end = start + (is_odd(start) ? mine.odd : mine.even);
    const bool inside = thread < from || end < in.end, leaves = !inside && start < in.end;
    if (leaves) {
        end = start;
        for (int k = 0; k < SUMS; k++)
            end += x[k];
    }
    if (leaves || (inside && thread == THREADS - 1)) { /* one thread: sums only grow */
        s.total = end;
        s.from = thread + 1;
    }
    __syncthreads();
    *total = s.total;
    return s.from;
}

/* total + x[0] + x[1] + ... in order, of numbers >= 0 or not finite; every thread gets it. */
__device__ double add_in_order(double total, const double *x, int64_t n, order_space &s)
{
    for (int64_t at = 0; at < n; at += THREADS * SUMS) {
        double mine[SUMS]; /* adding zeros changes nothing */
#pragma unroll
        for (int k = 0; k < SUMS; k++) {
            const int64_t i = at + threadIdx.x * SUMS + k;
            mine[k] = i < n ? x[i] : 0.0;
        }
        for (int from = 0; from < THREADS && isfinite(total);)
            from = add_in_binade(&total, mine, from, s);
        if (!isfinite(total)) { /* and stays so, in any order */
            for (int64_t i = at + threadIdx.x; i < n; i += THREADS)
                total += x[i];
            return __syncthreads_or(isnan(total)) ? (double)NAN : (double)INFINITY;
        }
    }
    return total;
}

__global__ void __launch_bounds__(THREADS) add_blocks(double *out, int64_t n, int first)
{
    LT_SHARED(order_space, s);
    double total = add_in_order(first ? 0.0 : *out, block_sums, n, s);
    if (threadIdx.x == 0)
        *out = total;
}

__global__ void __launch_bounds__(THREADS)
    clip_factor(struct norm_result *result, const double *sums, int64_t n, const struct step_record *record)
{
    LT_SHARED(order_space, s);
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

enum status ops_cuda_sumsq(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    const float *x = (const float *)arg[1];
    const int64_t n = attrs->vec.n, all = blocks_of(n, SUMSQ_BLOCK);
    const auto squares = aligned_to_vectors({x}) ? square_blocks<true> : square_blocks<false>;
    for (int64_t b = 0; b == 0 || b < all; b += BATCH) {
        int64_t at = b * SUMSQ_BLOCK, blocks = all - b < BATCH ? all - b : BATCH;
        TRY(launch(dim3((unsigned)blocks_of(blocks, BLOCKS)), dim3(THREADS), 0, stream, squares, x + at,
                   blocks < all - b ? blocks * SUMSQ_BLOCK : n - at));
        TRY(launch(dim3(1), dim3(THREADS), sizeof(order_space), stream, add_blocks, (double *)arg[0], blocks, b == 0));
    }
    return OK;
}

enum status ops_cuda_clip(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    return launch(dim3(1), dim3(THREADS), sizeof(order_space), stream, clip_factor, (struct norm_result *)arg[0],
                  (const double *)arg[1], attrs->vec.n, (const struct step_record *)arg[2]);
}
