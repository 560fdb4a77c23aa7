/* Sorting pairs by expert, and sums of pairs. Sorting counts the pairs of segments by expert, adds the counts up, and places the pairs:
 * without atomic operations, so that rows keep the pairs' order. */
#include "ops/cuda_vec.cuh"
#include "ops/route.h"

namespace
{

constexpr int WARPS = THREADS / LT_WARP;
constexpr int SEGMENTS = LT_LIMIT(512, 40); /* most segments, each a warp's */
constexpr int64_t MOST_PAIRS = 1 << 30;

/* Pairs of each expert in each segment, [expert][segment], then pairs of the expert before the segment; pairs of each expert. */
__device__ int32_t counts[ROUTE_EXPERTS * SEGMENTS];
__device__ int32_t totals[ROUTE_EXPERTS];

struct permute_args {
    int32_t *order, *place, *offsets;
    const int32_t *ids;
    int32_t n, each;             /* each: pairs of a segment, a multiple of LT_WARP */
    int experts, segments, bits; /* bits: of experts' numbers, and of the one behind the last */

    /* Returns the pair's expert; `experts`: there is no such pair, or no such expert. */
    __device__ __forceinline__ int expert(int32_t pair) const
    {
        const int id = pair < n ? ids[pair] : experts;
        return id >= 0 && id < experts ? id : experts;
    }
};

struct counters {
    int32_t of[WARPS][ROUTE_EXPERTS];
    int32_t first[ROUTE_EXPERTS];
};

/* Returns the sum over this lane and those before it. */
__device__ __forceinline__ int sum_upto(int v)
{
    const int lane = threadIdx.x % LT_WARP;
#pragma unroll
    for (int far = 1; far < LT_WARP; far *= 2) {
        const int other = __shfl_up_sync(LT_FULL_MASK, v, far);
        v += lane >= far ? other : 0;
    }
    return v;
}

/* Adds a warp's pairs to its counters. Returns the counter of the lane's expert with the pairs of the lanes before added. */
__device__ __forceinline__ int32_t count_pairs(int32_t *counter, int expert, const permute_args &a)
{
    const unsigned before = (1u << threadIdx.x % LT_WARP) - 1;
    unsigned alike = LT_FULL_MASK;
    for (int b = 0; b < a.bits; b++) {
        const unsigned set = __ballot_sync(LT_FULL_MASK, expert >> b & 1);
        alike &= expert >> b & 1 ? set : ~set;
    }
    const bool counts_it = expert < a.experts;
    const int32_t was = counts_it ? counter[expert] : 0;
    __syncwarp();
    if (counts_it && (alike & before) == 0)
        counter[expert] = was + __popc(alike);
    __syncwarp();
    return was + __popc(alike & before);
}

__global__ void __launch_bounds__(THREADS) count_segments(permute_args a)
{
    LT_SHARED(counters, s);
    const int lane = threadIdx.x % LT_WARP, warp = threadIdx.x / LT_WARP, segment = blockIdx.x * WARPS + warp;
    if (segment >= a.segments)
        return;
    for (int e = lane; e < a.experts; e += LT_WARP)
        s.of[warp][e] = 0;
    __syncwarp();
    for (int32_t i = 0; i < a.each; i += LT_WARP)
        count_pairs(s.of[warp], a.expert(segment * a.each + i + lane), a);
    for (int e = lane; e < a.experts; e += LT_WARP)
        counts[e * a.segments + segment] = s.of[warp][e];
}

/* Turns the counts of an expert's segments into those of all segments before. */
__global__ void __launch_bounds__(THREADS) add_segments(permute_args a)
{
    const int lane = threadIdx.x % LT_WARP, expert = blockIdx.x * WARPS + threadIdx.x / LT_WARP;
    if (expert >= a.experts)
        return;
    int32_t *const of = counts + expert * a.segments, sum = 0;
    for (int first = 0; first < a.segments; first += LT_WARP) {
        const int at = first + lane;
        const int32_t mine = at < a.segments ? of[at] : 0, upto = sum_upto(mine);
        if (at < a.segments)
            of[at] = sum + upto - mine;
        sum += __shfl_sync(LT_FULL_MASK, upto, LT_WARP - 1);
    }
    if (lane == 0)
        totals[expert] = sum;
}

/* Finds each expert's first row; block 0 writes offsets. Called by one warp. */
__device__ __forceinline__ void find_offsets(const permute_args &a, counters &s)
{
    const int lane = threadIdx.x % LT_WARP;
    int32_t sum = 0;
    for (int first = 0; first < a.experts; first += LT_WARP) {
        const int e = first + lane;
        const int32_t mine = e < a.experts ? totals[e] : 0, upto = sum_upto(mine);
        if (e < a.experts) {
            s.first[e] = sum + upto - mine;
            if (blockIdx.x == 0)
                a.offsets[e] = sum + upto - mine;
        }
        sum += __shfl_sync(LT_FULL_MASK, upto, LT_WARP - 1);
    }
    if (blockIdx.x == 0 && lane == 0)
        a.offsets[a.experts] = sum;
}

/* Places the pairs. A pair of an expert that does not exist has no row: place -1, which OP_COMBINE and OP_ROUTE_GRAD turn to NaN. */
__global__ void __launch_bounds__(THREADS) place_pairs(permute_args a)
{
    LT_SHARED(counters, s);
    const int lane = threadIdx.x % LT_WARP, warp = threadIdx.x / LT_WARP, segment = blockIdx.x * WARPS + warp;
    if (warp == 0)
        find_offsets(a, s);
    __syncthreads();
    if (segment >= a.segments)
        return;
    for (int e = lane; e < a.experts; e += LT_WARP)
        s.of[warp][e] = s.first[e] + counts[e * a.segments + segment];
    __syncwarp();
    for (int32_t i = 0; i < a.each; i += LT_WARP) {
        const int32_t pair = segment * a.each + i + lane;
        const int expert = a.expert(pair);
        const int32_t row = count_pairs(s.of[warp], expert, a);
        if (pair < a.n)
            a.place[pair] = expert < a.experts ? row : -1;
        if (expert < a.experts)
            a.order[row] = pair;
    }
}

/* Sums a token's rows in the order of its pairs, with the CPU's bits; NaN if one of them does not exist. */
template <typename Y, typename B> struct combined {
    float *acc;
    const Y *y;
    const int32_t *place;
    const float *p;
    const B *bias;
    const int32_t *ids;
    int64_t dim, pairs;
    int k, experts, adds;

    template <int N> __device__ __forceinline__ void run(int64_t token, int64_t j) const
    {
        float sum[N], v[N];
        bool sound = true;
        if (adds)
            load<N>(sum, acc + token * dim + j);
#pragma unroll 4
        for (int i = 0; i < k; i++) {
            const int64_t pair = token * k + i, row = place[pair], expert = bias ? ids[pair] : 0;
            if (row < 0 || row >= pairs || expert < 0 || expert >= experts) {
                sound = false;
                continue;
            }
            load<N>(v, y + row * dim + j);
#pragma unroll
            for (int c = 0; c < N; c++)
                sum[c] = i > 0 || adds ? sum[c] + v[c] : v[c];
            if (bias) {
                load<N>(v, bias + expert * dim + j);
#pragma unroll
                for (int c = 0; c < N; c++)
                    sum[c] = fmaf(p[pair], v[c], sum[c]);
            }
        }
#pragma unroll
        for (int c = 0; c < N; c++)
            sum[c] = sound ? sum[c] : NAN;
        store<N>(acc + token * dim + j, sum);
    }
};

template <typename Y, typename B> enum status run_combine(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    const combined<Y, B> op = {
        (float *)arg[0],   (const Y *)arg[1],       (const int32_t *)arg[2],  (const float *)arg[3],
        (const B *)arg[4], (const int32_t *)arg[5], attrs->combine.dim,       attrs->combine.rows * attrs->combine.k,
        attrs->combine.k,  attrs->combine.experts,  attrs->combine.accumulate};
    return launch_rows<WIDTH<Y>>(op, attrs->combine.rows, attrs->combine.dim, aligned_to_vectors({op.acc, op.y, op.bias}),
                                 stream);
}

template <typename Y> enum status combine_typed(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    return attrs->combine.dtype == BF16 ? run_combine<Y, bf16>(attrs, arg, stream) : run_combine<Y, float>(attrs, arg, stream);
}

} // namespace

enum status ops_cuda_permute(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    const int64_t n = attrs->route.rows * attrs->route.k;
    if (attrs->route.experts < 1 || attrs->route.experts > ROUTE_EXPERTS || n < 0 || n > MOST_PAIRS)
        return status_fail(ERR_INVALID, "permute on cuda: %lld pairs of %d experts; at most 2^30 of %d can be sorted",
                           (long long)n, attrs->route.experts, ROUTE_EXPERTS);
    permute_args a = {};
    a.order = (int32_t *)arg[0];
    a.place = (int32_t *)arg[1];
    a.offsets = (int32_t *)arg[2];
    a.ids = (const int32_t *)arg[3];
    a.n = (int32_t)n;
    a.experts = attrs->route.experts;
    a.each = (int32_t)(blocks_of(n, (int64_t)SEGMENTS * LT_WARP) * LT_WARP);
    a.segments = a.each > 0 ? (int)blocks_of(n, a.each) : 0;
    while (a.experts >= 1 << a.bits)
        a.bits++;
    const dim3 of_segments((unsigned)blocks_of(a.segments, WARPS)), of_experts((unsigned)blocks_of(a.experts, WARPS));
    TRY(launch(of_segments, dim3(THREADS), sizeof(counters), stream, count_segments, a));
    TRY(launch(of_experts, dim3(THREADS), 0, stream, add_segments, a));
    return launch(dim3(of_segments.x > 0 ? of_segments.x : 1), dim3(THREADS), sizeof(counters), stream, place_pairs, a);
}

enum status ops_cuda_combine(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    TRY(check_storage("combine", attrs->combine.y_type));
    TRY(check_storage("combine", attrs->combine.dtype));
    return attrs->combine.y_type == BF16 ? combine_typed<bf16>(attrs, arg, stream) : combine_typed<float>(attrs, arg, stream);
}
