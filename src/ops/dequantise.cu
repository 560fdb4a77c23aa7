/* Matrices in NF4, as numbers. The map is read from the part of scales, where it lies for this. */
#include "base/nf4.h"
#include "ops/cuda_vec.cuh"

namespace
{

template <typename T> struct dequantise {
    T *y;
    const uint8_t *codes; /* of element `first`, in the middle of whose byte it may begin */
    const float *scales;
    const uint8_t *scale_codes; /* nested; NULL */
    int64_t cols, first, ld;

    __device__ __forceinline__ float scale_of(int64_t block) const
    {
        const float *f = scales + NF4_VALUES;
        if (!scale_codes)
            return f[block];
        return __fadd_rn(__fmul_rn(f[1 + scale_codes[block]], f[1 + NF4_NESTED_VALUES + block / NF4_NESTED_BLOCK]), f[0]);
    }

    template <int N> __device__ __forceinline__ void run(int64_t row, int64_t j) const
    {
        const int64_t at = first + row * ld + j;
        float v[N], scale = 0.0f;
#pragma unroll
        for (int k = 0; k < N; k++) {
            const int64_t e = at + k;
            const int byte = codes[e / 2 - first / 2];
            if (k == 0 || e % NF4_BLOCK == 0)
                scale = scale_of(e / NF4_BLOCK);
            v[k] = scales[e % 2 ? byte & 15 : byte >> 4] * scale;
        }
        store<N>(y + row * cols + j, v);
    }
};

template <typename T> enum status run_dequantise(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    const int64_t n = attrs->dequantise.n;
    const float *scales = (const float *)arg[2];
    const bool nested = attrs->dequantise.scales == NF4_NESTED;
    const dequantise<T> op = {(T *)arg[0],
                              (const uint8_t *)arg[1],
                              scales,
                              nested ? (const uint8_t *)(scales + nf4_scale_floats(n, NF4_NESTED)) : NULL,
                              attrs->dequantise.cols,
                              attrs->dequantise.first,
                              attrs->dequantise.ld};
    return launch_rows<WIDTH<T>>(op, attrs->dequantise.rows, attrs->dequantise.cols, aligned_to_vectors({op.y}), stream);
}

} // namespace

enum status ops_cuda_dequantise(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    TRY(check_storage("dequantise", attrs->dequantise.y_type));
    return attrs->dequantise.y_type == BF16 ? run_dequantise<bf16>(attrs, arg, stream) : run_dequantise<float>(attrs, arg, stream);
}
