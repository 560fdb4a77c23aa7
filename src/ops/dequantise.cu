/* Turning quantised matrices into numbers. NF4's map is read from the packed scales, which hold it for this purpose. */
#include "base/quantised.h"
#include "ops/cuda_vec.cuh"

namespace
{

template <typename T> struct dequantise_nf4 {
    T *y;
    const uint8_t *codes; /* codes from the byte of element `first` on, which may be in that byte's lower half */
    const float *scales;
    const uint8_t *scale_codes; /* nested scales; NULL: not nested */
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

template <typename T> struct dequantise_int8 {
    T *y;
    const int8_t *codes; /* codes from element `first` on */
    const float *scales;
    int64_t cols, first, ld, columns;

    template <int N> __device__ __forceinline__ void run(int64_t row, int64_t j) const
    {
        const int64_t at = row * ld + j;
        /* row within the matrix, and number of elements left in that row */
        int64_t of = (first + at) / columns, left = columns - (first + at) % columns;
        float v[N];
#pragma unroll
        for (int k = 0; k < N; k++) {
            if (left == 0) {
                of++;
                left = columns;
            }
            left--;
            v[k] = __fmul_rn(__fmul_rn((float)codes[at + k], scales[of]), 7.874015718698502e-3f);
        }
        store<N>(y + row * cols + j, v);
    }
};

template <typename T> enum status run_int8(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    const dequantise_int8<T> op = {
        (T *)arg[0],          (const int8_t *)arg[1],   (const float *)arg[2], attrs->dequantise.cols, attrs->dequantise.first,
        attrs->dequantise.ld, attrs->dequantise.columns};
    return launch_rows<WIDTH<T>>(op, attrs->dequantise.rows, attrs->dequantise.cols, aligned_to_vectors({op.y}), stream);
}

template <typename T> enum status run_nf4(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    const int64_t n = attrs->dequantise.n;
    const float *scales = (const float *)arg[2];
    const bool nested = attrs->dequantise.form == QUANTISED_NF4;
    const dequantise_nf4<T> op = {(T *)arg[0],
                                  (const uint8_t *)arg[1],
                                  scales,
                                  nested ? (const uint8_t *)(scales + nf4_scale_floats(n, NF4_NESTED)) : NULL,
                                  attrs->dequantise.cols,
                                  attrs->dequantise.first,
                                  attrs->dequantise.ld};
    return launch_rows<WIDTH<T>>(op, attrs->dequantise.rows, attrs->dequantise.cols, aligned_to_vectors({op.y}), stream);
}

template <typename T> enum status run(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    return attrs->dequantise.form == QUANTISED_INT8 ? run_int8<T>(attrs, arg, stream) : run_nf4<T>(attrs, arg, stream);
}

} // namespace

enum status ops_cuda_dequantise(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    TRY(check_storage("dequantise", attrs->dequantise.y_type));
    return attrs->dequantise.y_type == BF16 ? run<bf16>(attrs, arg, stream) : run<float>(attrs, arg, stream);
}
