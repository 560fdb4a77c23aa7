/* The optimizer update, bit for bit the formula of adamw.h. */
#include "ops/cuda_vec.cuh"

namespace
{

/* Written with __f..._rn: single roundings that no compiler option contracts or approximates. */
template <bool PARAM> struct adamw {
    float *master, *m, *v;
    const float *grad;
    const struct norm_result *norm;
    const struct step_record *record;
    bf16 *param;
    int64_t n_decay;

    template <int N> __device__ __forceinline__ void run(int64_t i) const
    {
        float p[N];
        load<N>(p, master + i);
        if (!norm->skip)
            update<N>(i, p);
        if (PARAM)
            store_param<N>(i, p);
    }

    template <int N> __device__ __forceinline__ void update(int64_t i, float (&p)[N]) const
    {
        float mi[N], vi[N], g[N];
        load<N>(mi, m + i);
        load<N>(vi, v + i);
        load<N>(g, grad + i);
        const float factor = norm->factor, eps = record->eps, beta2 = record->beta2, keep1 = __fsub_rn(1.0f, record->beta1),
                    keep2 = __fsub_rn(1.0f, beta2), root = __fsqrt_rn(record->bias2), step = __fdiv_rn(record->lr, record->bias1),
                    decay = __fmaf_rn(-record->lr, record->weight_decay, 1.0f);
#pragma unroll
        for (int k = 0; k < N; k++) {
            float gk = __fmul_rn(g[k], factor);
            mi[k] = __fmaf_rn(keep1, __fsub_rn(gk, mi[k]), mi[k]);
            vi[k] = __fmaf_rn(__fmul_rn(keep2, gk), gk, __fmul_rn(beta2, vi[k]));
            float d = __fadd_rn(__fdiv_rn(__fsqrt_rn(vi[k]), root), eps);
            p[k] = __fmaf_rn(-step, __fdiv_rn(mi[k], d), i + k < n_decay ? __fmul_rn(p[k], decay) : p[k]);
        }
        store<N>(m + i, mi);
        store<N>(v + i, vi);
        store<N>(master + i, p);
    }

    template <int N> __device__ __forceinline__ void store_param(int64_t i, const float (&p)[N]) const
    {
        if constexpr (N == 4)
            *reinterpret_cast<uint2 *>(param + i) = make_uint2(bf16_pair(p[0], p[1]), bf16_pair(p[2], p[3]));
        else
            store<N>(param + i, p);
    }
};

template <bool PARAM> enum status run_adamw(const struct op_attrs *attrs, void *const *arg, cuda_stream stream)
{
    adamw<PARAM> op = {(float *)arg[0],
                       (float *)arg[1],
                       (float *)arg[2],
                       (const float *)arg[3],
                       (const struct norm_result *)arg[4],
                       (const struct step_record *)arg[5],
                       (bf16 *)arg[6],
                       attrs->vec.n_decay};
    bool vectors = aligned_to_vectors({arg[0], arg[1], arg[2], arg[3]}) && (uintptr_t)arg[6] % 8 == 0;
    return launch_elements<4>(op, attrs->vec.n, vectors, stream);
}

} // namespace

enum status ops_cuda_adamw(const struct op_attrs *attrs, void *const *arg, cuda_stream stream)
{
    return arg[6] ? run_adamw<true>(attrs, arg, stream) : run_adamw<false>(attrs, arg, stream);
}
