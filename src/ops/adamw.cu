/* The optimizer update, bit for bit the formula of adamw.h. */
#include "ops/cuda_blocks8.cuh"

namespace
{

constexpr uint32_t WEYL = 0x9e3779b9u;

__device__ __forceinline__ uint32_t mixed(uint32_t w)
{
    w ^= w >> 14;
    return w * (2 * w + 0x7feb352du);
}

/* Draws 16 random bits for each moment of an element. w: its term of the Weyl sequence. */
__device__ __forceinline__ void random_halves(uint32_t w, uint32_t *of_m, uint32_t *of_v)
{
    const uint32_t x = mixed(w);
    *of_m = (x ^ x >> 16) & 0xffffu;
    *of_v = x >> 16;
}

/* Rounds to bf16 after adding 16 random bits. NaN is handled separately: the GPU's own NaN has all bits set and would become
 * zero. */
__device__ __forceinline__ bf16 rounded(float f, uint32_t random)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return (bf16)(isnan(f) ? u >> 16 | 0x40u : (u + random) >> 16);
}

template <int N> __device__ __forceinline__ void store_words(bf16 *p, const bf16 (&in)[N])
{
    if constexpr (N == 4) {
        *reinterpret_cast<uint2 *>(p) = make_uint2(in[0] | (uint32_t)in[1] << 16, in[2] | (uint32_t)in[3] << 16);
    } else {
#pragma unroll
        for (int k = 0; k < N; k++)
            p[k] = in[k];
    }
}

struct scalars {
    float factor, decay, keep1, beta2, keep2, scale, eps, step; /* keep = 1 - beta */
};

/* Computes the step's scalars. All arithmetic here and below uses __f..._rn: single roundings that no compiler option contracts
 * or approximates. */
__device__ __forceinline__ scalars scalars_of(const struct norm_result *norm, const struct step_record *record)
{
    return {norm->factor,
            __fmaf_rn(-record->lr, record->weight_decay, 1.0f),
            __fsub_rn(1.0f, record->beta1),
            record->beta2,
            __fsub_rn(1.0f, record->beta2),
            __fdiv_rn(1.0f, __fsqrt_rn(record->bias2)),
            record->eps,
            __fdiv_rn(record->lr, record->bias1)};
}

/* Updates p, m and v of N elements; the first n_decay of them decay. */
template <int N>
__device__ __forceinline__ void update(const scalars &c, int64_t n_decay, float (&p)[N], float (&m)[N], float (&v)[N],
                                       const float (&grad)[N])
{
#pragma unroll
    for (int k = 0; k < N; k++) {
        const float g = __fmul_rn(grad[k], c.factor);
        m[k] = __fmaf_rn(c.keep1, __fsub_rn(g, m[k]), m[k]);
        v[k] = __fmaf_rn(__fmul_rn(c.keep2, g), g, __fmul_rn(c.beta2, v[k]));
        const float d = __fmaf_rn(__fsqrt_rn(v[k]), c.scale, c.eps);
        p[k] = __fmaf_rn(-c.step, __fdiv_rn(m[k], d), k < n_decay ? __fmul_rn(p[k], c.decay) : p[k]);
    }
}

template <typename MOMENT, bool PARAM> struct adamw {
    float *master;
    MOMENT *m, *v; /* uint8_t: packed */
    const float *grad;
    const struct norm_result *norm;
    const struct step_record *record;
    bf16 *param;
    int64_t n, n_decay, first, share;
    int group;

    /* Returns element i's term of the Weyl sequence (adamw.h). */
    __device__ __forceinline__ uint32_t weyl(int64_t i) const
    {
        return (uint32_t)(first + record->member[group] * share + i) * WEYL + record->rounding;
    }

    template <int N> __device__ __forceinline__ void run(int64_t i) const
    {
        float p[N];
        load<N>(p, master + i);
        if (!norm->skip) {
            float mi[N], vi[N], g[N];
            load<N>(mi, m + i);
            load<N>(vi, v + i);
            load<N>(g, grad + i);
            update<N>(scalars_of(norm, record), n_decay - i, p, mi, vi, g);
            store_moments<N>(i, mi, vi);
            store<N>(master + i, p);
        }
        if (PARAM)
            store<N>(param + i, p);
    }

    template <int N> __device__ __forceinline__ void store_moments(int64_t i, const float (&mi)[N], const float (&vi)[N]) const
    {
        if constexpr (sizeof(MOMENT) == sizeof(float)) {
            store<N>(m + i, mi);
            store<N>(v + i, vi);
        } else {
            bf16 low_m[N], low_v[N];
#pragma unroll
            for (int k = 0; k < N; k++) {
                uint32_t random_m, random_v;
                random_halves(weyl(i) + (uint32_t)k * WEYL, &random_m, &random_v);
                low_m[k] = rounded(mi[k], random_m);
                low_v[k] = rounded(vi[k], random_v);
            }
            store_words<N>(m + i, low_m);
            store_words<N>(v + i, low_v);
        }
    }
};

/* Updates a block of packed moments, by one warp. */
template <bool PARAM> struct adamw_block {
    const adamw<uint8_t, PARAM> &of;
    const blocks8_maps &maps;
    int64_t at; /* first element of the block */
    int count;

    __device__ __forceinline__ float &scale(uint8_t *packed) const
    {
        return reinterpret_cast<float *>(packed)[at / BLOCK8];
    }

    __device__ __forceinline__ uint8_t *codes(uint8_t *packed) const
    {
        return packed + (of.n + BLOCK8 - 1) / BLOCK8 * 4 + at;
    }

    /* Returns the element of the block at which the thread's run number r of N elements begins. With N = 1, a thread's elements
     * are pairs of neighbours. */
    template <int N> __device__ __forceinline__ static int column(int r)
    {
        constexpr int NEAR = N == 1 ? 2 : 1;
        return ((r / NEAR * LT_WARP + (int)threadIdx.x % LT_WARP) * NEAR + r % NEAR) * N;
    }

    /* Updates the block; N is 4 only for a whole block. */
    template <int N> __device__ __forceinline__ void run() const
    {
        constexpr int RUNS = BLOCK8 / LT_WARP / N;
        float m[RUNS][N], v[RUNS][N];
        const bool skip = of.norm->skip;
        const scalars c = scalars_of(of.norm, of.record);
        const float scale_m = scale(of.m), scale_v = scale(of.v);
#pragma unroll
        for (int r = 0; r < RUNS; r++) {
            const int j = column<N>(r);
#pragma unroll
            for (int k = 0; k < N; k++)
                m[r][k] = v[r][k] = NAN;
            if (j >= count)
                continue;
            float p[N];
            load<N>(p, of.master + at + j);
            if (!skip) {
                float g[N];
                load_codes<BLOCKS8_SIGNED, N>(m[r], codes(of.m) + j, maps, scale_m);
                load_codes<BLOCKS8_SQUARES, N>(v[r], codes(of.v) + j, maps, scale_v);
                load<N>(g, of.grad + at + j);
                update<N>(c, of.n_decay - at - j, p, m[r], v[r], g);
                store<N>(of.master + at + j, p);
            }
            if (PARAM)
                store<N>(of.param + at + j, p);
        }
        if (!skip)
            pack<RUNS, N>(m, v);
    }

    template <int RUNS, int N> __device__ __forceinline__ void pack(float (&m)[RUNS][N], float (&v)[RUNS][N]) const
    {
        const float scale_m = scale_of<BLOCKS8_SIGNED>(m), scale_v = scale_of<BLOCKS8_SQUARES>(v);
        __syncwarp(); /* all threads have read the old scales */
        if (threadIdx.x % LT_WARP == 0) {
            scale(of.m) = scale_m;
            scale(of.v) = scale_v;
        }
#pragma unroll
        for (int r = 0; r < RUNS; r++) {
            const int j = column<N>(r);
            uint32_t random_m[N], random_v[N];
#pragma unroll
            for (int k = 0; k < N; k++)
                random_halves(of.weyl(at + j) + (uint32_t)k * WEYL, &random_m[k], &random_v[k]);
            if (j < count) {
                store_codes<BLOCKS8_SIGNED, N>(codes(of.m) + j, maps, scale_m, m[r], random_m);
                store_codes<BLOCKS8_SQUARES, N>(codes(of.v) + j, maps, scale_v, v[r], random_v);
            }
        }
    }
};

constexpr int WARPS = THREADS / LT_WARP;

/* Most thread blocks of a launch: a multiprocessor holds four, and each makes its tables only once. */
constexpr int64_t MOST_BLOCKS = LT_LIMIT(1024, 2);

template <bool PARAM, int N>
__global__ void __launch_bounds__(THREADS) adamw_packed(adamw<uint8_t, PARAM> op, const __grid_constant__ blocks8_values values)
{
    LT_SHARED(blocks8_maps, s);
    make_maps(s, values);
    const int64_t ahead = (int64_t)gridDim.x * WARPS * BLOCK8;
    for (int64_t at = ((int64_t)blockIdx.x * WARPS + threadIdx.x / LT_WARP) * BLOCK8; at < op.n; at += ahead) {
        const adamw_block<PARAM> block = {op, s, at, (int)(op.n - at < BLOCK8 ? op.n - at : (int64_t)BLOCK8)};
        if (block.count == BLOCK8)
            block.template run<N>();
        else
            block.template run<1>();
    }
}

template <typename MOMENT, bool PARAM> enum status run_adamw(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    adamw<MOMENT, PARAM> op = {(float *)arg[0],
                               (MOMENT *)arg[1],
                               (MOMENT *)arg[2],
                               (const float *)arg[3],
                               (const struct norm_result *)arg[4],
                               (const struct step_record *)arg[5],
                               (bf16 *)arg[6],
                               attrs->vec.n,
                               attrs->vec.n_decay,
                               attrs->vec.first,
                               attrs->vec.share,
                               attrs->vec.group};
    const uintptr_t halves = (uintptr_t)arg[6] | (sizeof(MOMENT) == 2 ? (uintptr_t)arg[1] | (uintptr_t)arg[2] : 0);
    bool vectors = aligned_to_vectors({arg[0], arg[3]}) && halves % 8 == 0;
    if (sizeof(MOMENT) == 4)
        vectors = vectors && aligned_to_vectors({arg[1], arg[2]});
    if constexpr (sizeof(MOMENT) == 1) {
        const int64_t blocks = blocks_of(op.n, WARPS * BLOCK8);
        return launch(dim3((unsigned)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS)), dim3(THREADS), sizeof(blocks8_maps), stream,
                      vectors ? adamw_packed<PARAM, 4> : adamw_packed<PARAM, 1>, op, blocks8_all_values());
    } else {
        return launch_elements<4>(op, op.n, vectors, stream);
    }
}

template <typename MOMENT> enum status run_moments(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    return arg[6] ? run_adamw<MOMENT, true>(attrs, arg, stream) : run_adamw<MOMENT, false>(attrs, arg, stream);
}

} // namespace

enum status ops_cuda_adamw(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    if (attrs->vec.moments == I8)
        return run_moments<uint8_t>(attrs, arg, stream);
    TRY(check_storage("adamw", attrs->vec.moments));
    return attrs->vec.moments == BF16 ? run_moments<bf16>(attrs, arg, stream) : run_moments<float>(attrs, arg, stream);
}
