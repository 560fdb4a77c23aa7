/* The optimizer update, bit for bit the formula of adamw.h. */
#include "ops/cuda_vec.cuh"

namespace
{

constexpr uint32_t WEYL = 0x9e3779b9u;

__device__ __forceinline__ uint32_t mixed(uint32_t w)
{
    w ^= w >> 14;
    return w * (2 * w + 0x7feb352du);
}

/* random: 16 bits. The processor's own NaN has all bits set: it must not become a zero. */
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

/* Written with __f..._rn: single roundings that no compiler option contracts or approximates. */
template <typename MOMENT, bool PARAM> struct adamw {
    float *master;
    MOMENT *m, *v;
    const float *grad;
    const struct norm_result *norm;
    const struct step_record *record;
    bf16 *param;
    int64_t n_decay, first, share;

    template <int N> __device__ __forceinline__ void run(int64_t i) const
    {
        float p[N];
        load<N>(p, master + i);
        if (!norm->skip)
            update<N>(i, p);
        if (PARAM)
            store<N>(param + i, p);
    }

    template <int N> __device__ __forceinline__ void update(int64_t i, float (&p)[N]) const
    {
        float mi[N], vi[N], g[N];
        load<N>(mi, m + i);
        load<N>(vi, v + i);
        load<N>(g, grad + i);
        const float factor = norm->factor, eps = record->eps, beta2 = record->beta2, keep1 = __fsub_rn(1.0f, record->beta1),
                    keep2 = __fsub_rn(1.0f, beta2), scale = __fdiv_rn(1.0f, __fsqrt_rn(record->bias2)),
                    step = __fdiv_rn(record->lr, record->bias1), decay = __fmaf_rn(-record->lr, record->weight_decay, 1.0f);
#pragma unroll
        for (int k = 0; k < N; k++) {
            float gk = __fmul_rn(g[k], factor);
            mi[k] = __fmaf_rn(keep1, __fsub_rn(gk, mi[k]), mi[k]);
            vi[k] = __fmaf_rn(__fmul_rn(keep2, gk), gk, __fmul_rn(beta2, vi[k]));
            float d = __fmaf_rn(__fsqrt_rn(vi[k]), scale, eps);
            p[k] = __fmaf_rn(-step, __fdiv_rn(mi[k], d), i + k < n_decay ? __fmul_rn(p[k], decay) : p[k]);
        }
        store_moments<N>(i, mi, vi);
        store<N>(master + i, p);
    }

    template <int N> __device__ __forceinline__ void store_moments(int64_t i, const float (&mi)[N], const float (&vi)[N]) const
    {
        if constexpr (sizeof(MOMENT) == sizeof(float)) {
            store<N>(m + i, mi);
            store<N>(v + i, vi);
        } else {
            const uint32_t number = (uint32_t)(first + record->place * share + i), w = number * WEYL + record->rounding;
            bf16 low_m[N], low_v[N];
#pragma unroll
            for (int k = 0; k < N; k++) {
                const uint32_t x = mixed(w + (uint32_t)k * WEYL);
                low_m[k] = rounded(mi[k], (x ^ x >> 16) & 0xffffu);
                low_v[k] = rounded(vi[k], x >> 16);
            }
            store_words<N>(m + i, low_m);
            store_words<N>(v + i, low_v);
        }
    }
};

template <typename MOMENT, bool PARAM> enum status run_adamw(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    adamw<MOMENT, PARAM> op = {(float *)arg[0],
                               (MOMENT *)arg[1],
                               (MOMENT *)arg[2],
                               (const float *)arg[3],
                               (const struct norm_result *)arg[4],
                               (const struct step_record *)arg[5],
                               (bf16 *)arg[6],
                               attrs->vec.n_decay,
                               attrs->vec.first,
                               attrs->vec.share};
    const uintptr_t halves = (uintptr_t)arg[6] | (sizeof(MOMENT) == 2 ? (uintptr_t)arg[1] | (uintptr_t)arg[2] : 0);
    bool vectors = aligned_to_vectors({arg[0], arg[3]}) && halves % 8 == 0;
    if (sizeof(MOMENT) == 4)
        vectors = vectors && aligned_to_vectors({arg[1], arg[2]});
    return launch_elements<4>(op, attrs->vec.n, vectors, stream);
}

template <typename MOMENT> enum status run_moments(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    return arg[6] ? run_adamw<MOMENT, true>(attrs, arg, stream) : run_adamw<MOMENT, false>(attrs, arg, stream);
}

} // namespace

enum status ops_cuda_adamw(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    TRY(check_storage("adamw", attrs->vec.moments));
    return attrs->vec.moments == BF16 ? run_moments<bf16>(attrs, arg, stream) : run_moments<float>(attrs, arg, stream);
}
