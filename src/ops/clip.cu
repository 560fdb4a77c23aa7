/* Sum of squares, and the clip factor, with the bits of clip.h. */
#include "device/cuda/ptx.cuh"
#include "ops/cuda_reduce.cuh"

namespace
{

constexpr int LANES = 16;       /* threads that share one block of SUMSQ_BLOCK elements */
constexpr int FEW_THREADS = 64; /* threads of a small thread block, for short inputs: more multiprocessors share them */
constexpr int64_t FEW = LT_LIMIT(1024, 32);    /* longest short input, in blocks of SUMSQ_BLOCK elements */
constexpr int64_t BATCH = LT_LIMIT(65536, 70); /* sums kept per launch: 268 million elements */

__device__ double block_sums[BATCH];
__device__ uint32_t arrived;

/* Pieces in which a block of SUMSQ_BLOCK elements is read; shared memory holds RING<N> of them. Small thread blocks have large
 * pieces, so that few threads keep a multiprocessor's memory busy. */
template <int N> constexpr int PIECE = N > FEW_THREADS ? 256 : 1024;
template <int N> constexpr int RING = 4;

template <int N> struct pieces {
    float at[RING<N>][PIECE<N>];
    float apart[LANES]; /* padding, so that the blocks of a warp's two halves lie in different banks */
};

/* Starts the copy of a piece, W elements at a time; elements beyond the block's `count` become zeros. */
template <int N, int W>
__device__ __forceinline__ void start_piece(pieces<N> &s, const float *x, int64_t count, int piece, int lane)
{
#pragma unroll
    for (int c = lane * W; c < PIECE<N>; c += LANES * W) {
        const int i = piece * PIECE<N> + c;
        const int bytes = count - i >= W ? W * 4 : count > i ? (int)(count - i) * 4 : 0;
        if constexpr (W == 4)
            cp_async_16_zfill(smem_addr(&s.at[piece % RING<N>][c]), x + i, bytes);
        else
            cp_async_4_zfill(smem_addr(&s.at[piece % RING<N>][c]), x + i, bytes);
    }
}

/* Returns the sum of squares of the lane's elements in a block of `count` elements. */
template <int N, int W> __device__ __forceinline__ double lane_squares(pieces<N> &s, const float *x, int64_t count, int lane)
{
    constexpr int PIECES = SUMSQ_BLOCK / PIECE<N>;
    double sum = 0.0;
#pragma unroll
    for (int piece = 0; piece < RING<N>; piece++) {
        start_piece<N, W>(s, x, count, piece, lane);
        cp_async_commit();
    }
#pragma unroll
    for (int piece = 0; piece < PIECES; piece++) {
        cp_async_wait<RING<N> - 1>();
        __syncwarp();
#pragma unroll
        for (int k = lane; k < PIECE<N>; k += LANES) {
            const double d = s.at[piece % RING<N>][k];
            sum += d * d; /* the product is exact, so fusing it changes nothing */
        }
        if (piece + RING<N> < PIECES) {
            __syncwarp();
            start_piece<N, W>(s, x, count, piece + RING<N>, lane);
        }
        cp_async_commit();
    }
    return sum;
}

/* Many threads add numbers x[i] >= 0 to a total, with the bits of one thread adding them in order.
 *
 * While the total stays in a binade [base, 2 base), its last bit has the same worth, and x moves the total by x rounded to that
 * bit. Only if x lies half-way between two steps does the total's last bit decide, because ties go to even. So a run of numbers
 * is described by what it adds to an even and to an odd total of the binade, and runs are joined like functions.
 *
 * A thread knows the total's binade before and after its numbers from sums in any order. Only near powers of two it does not:
 * there numbers are added one by one. */
struct steps {
    double even, odd;
};

struct binade {
    double base, odd,
        end; /* first number of the binade (even; 0 for subnormal totals), second number (odd), first number of the next binade */
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

/* Composes two runs: b after a. */
__device__ __forceinline__ steps joined(const steps &a, const steps &b, const binade &in)
{
    return {a.even + (is_odd(in.base + a.even) ? b.odd : b.even), a.odd + (is_odd(in.odd + a.odd) ? b.odd : b.even)};
}

constexpr int SUMS = 8; /* neighbouring numbers that each of N threads adds */

/* bound on the relative difference of two orders of summing N * SUMS + 1 numbers */
constexpr double ORDERS_DIFFER = 1.0 / (1LL << 36);

struct run {
    steps add;
    int alone; /* thread whose numbers must be added one by one; below 0: none */
};

template <int N> struct order_space {
    double number[N][SUMS]; /* numbers of those threads that add one by one */
    run runs[N / LT_WARP][LT_WARP];
    int n_runs[N / LT_WARP];
    double part[N / LT_WARP]; /* approximate sum of a warp's numbers */
};

/* Returns the approximate sum of the numbers of the threads before this one. */
template <int N> __device__ __forceinline__ double about_before(double mine, order_space<N> &s)
{
    const int lane = threadIdx.x % LT_WARP, warp = threadIdx.x / LT_WARP;
#pragma unroll
    for (int far = 1; far < LT_WARP; far *= 2) {
        const double other = __shfl_up_sync(LT_FULL_MASK, mine, far);
        if (lane >= far)
            mine += other;
    }
    if (lane == LT_WARP - 1)
        s.part[warp] = mine;
    const double before = __shfl_up_sync(LT_FULL_MASK, mine, 1);
    __syncthreads();
    double sum = lane > 0 ? before : 0.0;
    for (int w = 0; w < warp; w++)
        sum += s.part[w];
    return sum;
}

/* Finds the warp's runs: neighbouring threads over whose numbers the total surely stays in its binade (`inside`), or a single
 * thread whose numbers may leave it. `inside` allows for the difference between orders of summing, so that neighbours are in the
 * same binade. */
template <int N>
__device__ __forceinline__ void find_runs(const double (&x)[SUMS], const binade &in, bool inside, order_space<N> &s)
{
    const int lane = threadIdx.x % LT_WARP, warp = threadIdx.x / LT_WARP;
    const unsigned alone = __ballot_sync(LT_FULL_MASK, !inside), firsts = alone | alone << 1 | 1;
    const int first = LT_WARP - 1 - __clz((int)(firsts & LT_FULL_MASK >> (LT_WARP - 1 - lane)));
    double even = in.base, odd = in.odd;
#pragma unroll
    for (int k = 0; k < SUMS; k++) {
        even += x[k];
        odd += x[k];
        if (!inside)
            s.number[threadIdx.x][k] = x[k];
    }
    steps upto = {even - in.base, odd - in.odd};
#pragma unroll
    for (int far = 1; far < LT_WARP; far *= 2) {
        const steps other = {__shfl_up_sync(LT_FULL_MASK, upto.even, far), __shfl_up_sync(LT_FULL_MASK, upto.odd, far)};
        if (lane - far >= first)
            upto = joined(other, upto, in);
    }
    const unsigned lasts = firsts >> 1 | 1u << (LT_WARP - 1);
    if (lasts >> lane & 1)
        s.runs[warp][__popc(lasts & ((1u << lane) - 1))] = {upto, inside ? -1 : (int)threadIdx.x};
    if (lane == 0)
        s.n_runs[warp] = __popc(lasts);
}

/* Returns the total with all runs added; every thread computes it. */
template <int N> __device__ __forceinline__ double add_runs(double total, const order_space<N> &s)
{
    for (int w = 0; w < N / LT_WARP; w++)
        for (int r = 0; r < s.n_runs[w]; r++) {
            const run &next = s.runs[w][r];
            if (next.alone < 0) {
                total += is_odd(total) ? next.add.odd : next.add.even;
                continue;
            }
#pragma unroll
            for (int k = 0; k < SUMS; k++)
                total += s.number[next.alone][k];
        }
    return total;
}

/* Returns total + x[0] + x[1] + ... in order, for numbers >= 0 or not finite; each of N threads gets the result. */
template <int N> __device__ double add_in_order(double total, const double *x, int64_t n, order_space<N> &s)
{
    for (int64_t at = 0; at < n; at += N * SUMS) {
        double mine[SUMS], sum = 0.0; /* adding zeros changes nothing */
#pragma unroll
        for (int k = 0; k < SUMS; k++) {
            const int64_t i = at + threadIdx.x * SUMS + k;
            mine[k] = i < n ? x[i] : 0.0;
            sum += mine[k];
        }
        const double before = total + about_before(sum, s);
        const binade in = binade_of(before);
        const bool inside = before * (1.0 - ORDERS_DIFFER) >= in.base && (before + sum) * (1.0 + ORDERS_DIFFER) < in.end;
        find_runs(mine, in, inside, s);
        __syncthreads();
        total = add_runs(total, s); /* the barrier in about_before separates this read from the next runs */
    }
    return total;
}

template <int N> union squares_space {
    pieces<N> block[N / LANES];
    order_space<N> order; /* used by the last thread block, after the pieces */
};
LT_SHARED_FITS(squares_space<FEW_THREADS>, LT_SHARED_SM86);
LT_SHARED_FITS(squares_space<THREADS>, LT_SHARED_SM86);

/* Sums the squares of blocks of x; the last thread block to finish adds all sums to *out, and divides them. */
template <int N, int W>
__global__ void __launch_bounds__(N) add_squares(double *out, const float *x, int64_t n, int first, double divisor)
{
    LT_SHARED(squares_space<N>, s);
    const int team = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const int64_t block = (int64_t)blockIdx.x * (N / LANES) + team, at = block * SUMSQ_BLOCK;
    double sum = lane_squares<N, W>(s.block[team], x + at, n - at, lane);
#pragma unroll
    for (int half = LANES / 2; half > 0; half /= 2)
        sum += __shfl_xor_sync(LT_FULL_MASK, sum, half);
    if (lane == 0 && at < n)
        block_sums[block] = sum;
    __syncthreads();
    if (!__syncthreads_or(threadIdx.x == 0 && arrive_last(&arrived, gridDim.x)))
        return;
    const double total = add_in_order<N>(first ? 0.0 : *out, block_sums, (n + SUMSQ_BLOCK - 1) / SUMSQ_BLOCK, s.order);
    if (threadIdx.x == 0)
        *out = total / divisor;
}

__global__ void __launch_bounds__(THREADS)
    clip_factor(struct norm_result *result, const double *sums, int64_t n, const struct step_record *record)
{
    LT_SHARED(order_space<THREADS>, s);
    double norm = sqrt(add_in_order<THREADS>(0.0, sums, n, s)), factor = 1.0;
    if (threadIdx.x != 0)
        return;
    if (record->clip > 0.0f)
        factor = fmin(1.0, (double)record->clip / (norm + 1e-6));
    int skip = !isfinite(norm);
    result->norm = norm;
    result->factor = skip ? 0.0f : (float)factor;
    result->skip = skip;
}

template <int N> enum status launch_squares(double *out, const float *x, int64_t n, int first, double divisor, void *stream)
{
    const int64_t blocks = n > 0 ? blocks_of(n, SUMSQ_BLOCK * (N / LANES)) : 1; /* an empty input has the sum 0 */
    return launch(dim3((unsigned)blocks), dim3(N), sizeof(squares_space<N>), stream,
                  aligned_to_vectors({x}) ? add_squares<N, 4> : add_squares<N, 1>, out, x, n, first, divisor);
}

} // namespace

enum status ops_cuda_sumsq(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    const float *x = (const float *)arg[1];
    const int64_t n = attrs->vec.n, all = blocks_of(n, SUMSQ_BLOCK);
    for (int64_t b = 0; b == 0 || b < all; b += BATCH) {
        const int64_t at = b * SUMSQ_BLOCK, rest = n - at, count = rest < BATCH * SUMSQ_BLOCK ? rest : BATCH * SUMSQ_BLOCK;
        const auto squares = count > FEW * SUMSQ_BLOCK ? launch_squares<THREADS> : launch_squares<FEW_THREADS>;
        const double divisor = attrs->vec.share > 1 && b + BATCH >= all ? (double)attrs->vec.share : 1.0;
        TRY(squares((double *)arg[0], x + at, count, b == 0, divisor, stream));
    }
    return OK;
}

enum status ops_cuda_clip(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    return launch(dim3(1), dim3(THREADS), sizeof(order_space<THREADS>), stream, clip_factor, (struct norm_result *)arg[0],
                  (const double *)arg[1], attrs->vec.n, (const struct step_record *)arg[2]);
}
