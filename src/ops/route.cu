/* Choosing experts for tokens, and the gradient of their weights, with the CPU's bits. A warp computes a token. */
#include "ops/cuda_route.cuh"

namespace
{

constexpr int WARPS = THREADS / LT_WARP;
constexpr int BLOCK = 64; /* rows whose counts are added up in order by one thread block, as on the CPU */

struct route_args {
    route_shape s;
    int32_t *ids, *counts, *plain;
    float *p, *sums;
    const float *logits, *bias, *factors;
    const int32_t *index;
    int32_t *tally; /* counts of blocks: [block][3][experts]; the third ones are fp32 sums */
};

template <int PER> struct route_space {
    float score[WARPS][PER * LT_WARP]; /* biased scores, then probabilities */
    uint32_t chosen[WARPS][PER];       /* bits of the chosen experts, */
    uint32_t plain[WARPS][PER];        /* and of those chosen by the softmax alone */
    uint32_t groups[WARPS][PER];       /* bits of the chosen groups */
    float v[WARPS][ROUTE_K];           /* scores of the chosen experts, ascending by number */
    int counted[WARPS];                /* 1: the warp's token counts */
};

/* Returns the greatest score of a group, or the sum of the two greatest. */
__device__ __forceinline__ float score_of_group(const float *score, int size, int ranked)
{
    float most = score[0], second = 0;
    for (int i = 1; i < size; i++) {
        const float x = score[i];
        if (rank_of(x) > rank_of(most)) {
            second = most;
            most = x;
        } else if (i == 1 || rank_of(x) > rank_of(second)) {
            second = x;
        }
    }
    return size > 1 && ranked > 1 ? __fadd_rn(most, second) : most;
}

/* Lowers the ranks of experts outside the best groups to 0. */
template <int PER>
__device__ __forceinline__ void leave_groups(uint32_t (&rank)[PER], const float (&score)[PER], const route_shape &s, int warp,
                                             route_space<PER> &space)
{
    const int lane = threadIdx.x % LT_WARP, size = s.experts / s.groups;
    uint32_t of_group[PER];
#pragma unroll
    for (int i = 0; i < PER; i++)
        space.score[warp][i * LT_WARP + lane] = score[i];
    __syncwarp();
#pragma unroll
    for (int i = 0; i < PER; i++) {
        const int g = i * LT_WARP + lane;
        of_group[i] = g < s.groups ? rank_of(score_of_group(space.score[warp] + g * size, size, s.ranked)) : 0;
    }
    const uint32_t marks = mark_greatest(of_group, s.group_k);
#pragma unroll
    for (int i = 0; i < PER; i++) {
        const unsigned set = __ballot_sync(LT_FULL_MASK, marks >> i & 1);
        if (lane == 0)
            space.groups[warp][i] = set;
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < PER; i++) {
        const int g = (i * LT_WARP + lane) / size;
        rank[i] = g < s.groups && space.groups[warp][g / LT_WARP] >> g % LT_WARP & 1 ? rank[i] : 0;
    }
    __syncwarp();
}

/* Marks a token's experts. */
template <int PER>
__device__ __forceinline__ uint32_t choose(const float (&score)[PER], const route_args &a, int warp, route_space<PER> &space)
{
    const int lane = threadIdx.x % LT_WARP;
    float biased[PER];
    uint32_t rank[PER];
#pragma unroll
    for (int i = 0; i < PER; i++) {
        const int e = i * LT_WARP + lane;
        biased[i] = a.bias && e < a.s.experts ? __fadd_rn(score[i], a.bias[e]) : score[i];
        rank[i] = e < a.s.experts ? rank_of(biased[i]) : 0;
    }
    if (a.s.groups > 0)
        leave_groups(rank, biased, a.s, warp, space);
    return mark_greatest(rank, a.s.k);
}

/* Writes the chosen experts' numbers, ascending, and their scores to space.v. */
template <int PER>
__device__ __forceinline__ void list_chosen(const float (&score)[PER], uint32_t marks, int32_t *ids, int warp,
                                            route_space<PER> &space)
{
    const int lane = threadIdx.x % LT_WARP;
    int before = 0;
#pragma unroll
    for (int i = 0; i < PER; i++) {
        const unsigned set = __ballot_sync(LT_FULL_MASK, marks >> i & 1);
        if (marks >> i & 1) {
            const int at = before + __popc(set & ((1u << lane) - 1));
            ids[at] = i * LT_WARP + lane;
            space.v[warp][at] = score[i];
        }
        before += __popc(set);
        if (lane == 0)
            space.chosen[warp][i] = set;
    }
    __syncwarp();
}

/* Turns the chosen scores v into weights. */
__device__ __forceinline__ void weigh(const route_shape &s, const float *v, const int32_t *ids, const float *factors, float *p)
{
    constexpr int PER = ROUTE_K / LT_WARP;
    const int lane = threadIdx.x % LT_WARP;
    float weight[PER], divisor = 1.0f, sum = 0;
#pragma unroll
    for (int i = 0; i < PER; i++)
        weight[i] = i * LT_WARP + lane < s.k ? v[i * LT_WARP + lane] : 0.0f;
    if (s.kind == ROUTE_CHOSEN) {
        const float logit[PER] = {weight[0], weight[1]};
        softmax(weight, logit, s.k);
    } else {
        for (int i = 0; i < s.k; i++)
            sum = __fadd_rn(sum, v[i]);
        divisor = divisor_of(s, sum);
    }
#pragma unroll
    for (int i = 0; i < PER; i++)
        if (i * LT_WARP + lane < s.k) {
            const float w = __fmul_rn(__fdiv_rn(weight[i], divisor), s.scale);
            p[i * LT_WARP + lane] = factors ? __fmul_rn(w, factors[ids[i * LT_WARP + lane]]) : w;
        }
}

/* Keeps a token's softmax, and marks the experts that it alone would choose. */
template <int PER>
__device__ __forceinline__ void keep_softmax(const float (&y)[PER], const route_shape &s, int warp, route_space<PER> &space)
{
    const int lane = threadIdx.x % LT_WARP;
    uint32_t rank[PER];
#pragma unroll
    for (int i = 0; i < PER; i++) {
        rank[i] = i * LT_WARP + lane < s.experts ? rank_of(y[i]) : 0;
        space.score[warp][i * LT_WARP + lane] = y[i];
    }
    const uint32_t marks = mark_greatest(rank, s.k);
#pragma unroll
    for (int i = 0; i < PER; i++) {
        const unsigned set = __ballot_sync(LT_FULL_MASK, marks >> i & 1);
        if (lane == 0)
            space.plain[warp][i] = set;
    }
}

template <int PER>
__device__ __forceinline__ void route_token(const route_args &a, int64_t row, int warp, route_space<PER> &space)
{
    const int lane = threadIdx.x % LT_WARP;
    float logit[PER], score[PER];
#pragma unroll
    for (int i = 0; i < PER; i++)
        logit[i] = i * LT_WARP + lane < a.s.experts
                       ? __fmul_rn(a.s.logit_factor, a.logits[row * a.s.experts + i * LT_WARP + lane])
                       : 0.0f;
    if (a.s.kind == ROUTE_SOFTMAX) {
        softmax(score, logit, a.s.experts);
    } else {
#pragma unroll
        for (int i = 0; i < PER; i++)
            score[i] = a.s.kind == ROUTE_SIGMOID ? vsigmoid(logit[i]) : logit[i];
    }
    list_chosen(score, choose(score, a, warp, space), a.ids + row * a.s.k, warp, space);
    weigh(a.s, space.v[warp], a.ids + row * a.s.k, a.factors, a.p + row * a.s.k);
    if (lane == 0)
        space.counted[warp] = !(a.index && a.index[row] < 0);
    if (!a.plain && !a.sums)
        return;
    if (a.s.kind != ROUTE_SOFTMAX)
        softmax(score, logit, a.s.experts);
    keep_softmax(score, a.s, warp, space);
}

/* Adds the warps' tokens to this thread's experts' counts, in order. */
template <int PER> struct block_tally {
    static constexpr int MINE = (PER + WARPS - 1) / WARPS; /* experts of a thread */
    int32_t counts[MINE], plain[MINE];
    float sums[MINE];

    __device__ __forceinline__ block_tally() : counts{}, plain{}, sums{}
    {
    }

    __device__ __forceinline__ void add(const route_args &a, int warps, const route_space<PER> &space)
    {
#pragma unroll
        for (int m = 0; m < MINE; m++) {
            const int e = m * THREADS + (int)threadIdx.x;
            if (e >= a.s.experts)
                continue;
            for (int w = 0; w < warps; w++) {
                if (!space.counted[w])
                    continue;
                counts[m] += space.chosen[w][e / LT_WARP] >> e % LT_WARP & 1;
                if (a.plain || a.sums) {
                    plain[m] += space.plain[w][e / LT_WARP] >> e % LT_WARP & 1;
                    sums[m] = __fadd_rn(sums[m], space.score[w][e]);
                }
            }
        }
    }

    __device__ __forceinline__ void put(const route_args &a) const
    {
        int32_t *const to = a.tally + (int64_t)blockIdx.x * 3 * a.s.experts;
#pragma unroll
        for (int m = 0; m < MINE; m++) {
            const int e = m * THREADS + (int)threadIdx.x;
            if (e >= a.s.experts)
                continue;
            to[e] = counts[m];
            to[a.s.experts + e] = plain[m];
            to[2 * a.s.experts + e] = __float_as_int(sums[m]);
        }
    }
};

template <int PER> __global__ void __launch_bounds__(THREADS) route_tokens(route_args a)
{
    LT_SHARED(route_space<PER>, space);
    const int warp = threadIdx.x / LT_WARP;
    block_tally<PER> tally;
    for (int first = 0; first < BLOCK; first += WARPS) {
        const int64_t row = (int64_t)blockIdx.x * BLOCK + first, left = a.s.rows - row;
        if (left <= 0)
            break;
        if (warp < left)
            route_token(a, row + warp, warp, space);
        __syncthreads();
        tally.add(a, left < WARPS ? (int)left : WARPS, space);
        __syncthreads();
    }
    if (a.counts || a.plain || a.sums)
        tally.put(a);
}

/* Adds up the blocks' counts, in order. */
__global__ void __launch_bounds__(THREADS) add_tallies(route_args a)
{
    const int e = blockIdx.x * THREADS + threadIdx.x, experts = a.s.experts;
    int32_t counts = 0, plain = 0;
    double sum = 0;
    if (e >= experts)
        return;
#pragma unroll 8
    for (int64_t b = 0; b < (a.s.rows + BLOCK - 1) / BLOCK; b++) {
        const int32_t *const from = a.tally + b * 3 * experts + e;
        counts += from[0];
        plain += from[experts];
        sum += (double)__int_as_float(from[2 * experts]);
    }
    if (a.counts)
        a.counts[e] = counts + (a.s.accumulate ? a.counts[e] : 0);
    if (a.plain)
        a.plain[e] = plain + (a.s.accumulate ? a.plain[e] : 0);
    if (a.sums)
        a.sums[e] = __fadd_rn((float)sum, a.s.accumulate ? a.sums[e] : 0.0f);
}

template <int PER> enum status run_route(const route_args &a, void *stream)
{
    TRY(launch(dim3((unsigned)blocks_of(a.s.rows, BLOCK)), dim3(THREADS), sizeof(route_space<PER>), stream, route_tokens<PER>,
               a));
    if (!a.counts && !a.plain && !a.sums)
        return OK;
    return launch(dim3((unsigned)blocks_of(a.s.experts, THREADS)), dim3(THREADS), 0, stream, add_tallies, a);
}

} // namespace

enum status ops_cuda_route(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    route_args a = {};
    a.s = shape_of(attrs);
    TRY(check_route("route", a.s));
    a.ids = (int32_t *)arg[0];
    a.p = (float *)arg[1];
    a.counts = (int32_t *)arg[2];
    a.plain = (int32_t *)arg[3];
    a.sums = (float *)arg[4];
    a.logits = (const float *)arg[5];
    a.bias = (const float *)arg[6];
    a.index = (const int32_t *)arg[7];
    a.factors = (const float *)arg[8];
    a.tally = (int32_t *)arg[9];
    if (a.s.experts <= 128)
        return run_route<4>(a, stream);
    return a.s.experts <= 256 ? run_route<8>(a, stream) : run_route<32>(a, stream);
}
