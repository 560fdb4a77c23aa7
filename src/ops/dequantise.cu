/* Turning quantised matrices into numbers. NF4's map is read from the packed scales, which hold it for this purpose; MXFP4's numbers are
 * made of their bits. */
#include "base/quantised.h"
#include "ops/cuda_vec.cuh"

namespace
{

template <typename T> struct dequantise_nf4 {
    T *y;
    const uint8_t *codes; /* codes from the byte of element `first` on, which may be in that byte's lower half */
    const float *scales;
    const uint8_t *scale_codes; /* nested scales; NULL: not nested */
    int64_t cols, first, ld, stride;

    __device__ __forceinline__ float scale_of(int64_t row, int64_t block) const
    {
        const float *f = scales + row * (stride / 4) + NF4_VALUES;
        if (!scale_codes)
            return f[block];
        return __fadd_rn(__fmul_rn(f[1 + scale_codes[row * stride + block]], f[1 + NF4_NESTED_VALUES + block / NF4_NESTED_BLOCK]),
                         f[0]);
    }

    template <int N> __device__ __forceinline__ void run(int64_t row, int64_t j) const
    {
        const int64_t at = first + (stride > 0 ? 0 : row * ld) + j;
        const uint8_t *const code = codes + row * stride;
        float v[N], scale = 0.0f;
#pragma unroll
        for (int k = 0; k < N; k++) {
            const int64_t e = at + k;
            const int byte = code[e / 2 - first / 2];
            if (k == 0 || e % NF4_BLOCK == 0)
                scale = scale_of(row, e / NF4_BLOCK);
            v[k] = scales[e % 2 ? byte & 15 : byte >> 4] * scale;
        }
        store<N>(y + row * cols + j, v);
    }
};

template <typename T> struct dequantise_int8 {
    T *y;
    const int8_t *codes; /* codes from element `first` on */
    const float *scales;
    int64_t cols, first, ld, columns, stride;

    template <int N> __device__ __forceinline__ void run(int64_t row, int64_t j) const
    {
        const int64_t at = (stride > 0 ? 0 : row * ld) + j;
        const int8_t *const code = codes + row * stride;
        const float *const scale = scales + row * (stride / 4);
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
            v[k] = __fmul_rn(__fmul_rn((float)code[at + k], scale[of]), 7.874015718698502e-3f);
        }
        store<N>(y + row * cols + j, v);
    }
};

/* Returns the number of a code of MXFP4: of its bits, that of the mantissa below two of the exponent becomes fp32's; 1 is half. */
__device__ __forceinline__ float mxfp4_number(int code)
{
    const int size = code & 7;
    return copysignf(size < 2 ? 0.5f * size : __uint_as_float((uint32_t)(size + 252) << 22), code & 8 ? -1.0f : 1.0f);
}

template <typename T> struct dequantise_mxfp4 {
    T *y;
    const uint8_t *codes, *scales; /* codes from the byte of element `first` on */
    int64_t cols, first, ld, stride;

    template <int N> __device__ __forceinline__ void run(int64_t row, int64_t j) const
    {
        const int64_t at = first + (stride > 0 ? 0 : row * ld) + j;
        const uint8_t *const code = codes + row * stride, *const power = scales + row * stride;
        float v[N], scale = 0.0f;
#pragma unroll
        for (int k = 0; k < N; k++) {
            const int64_t e = at + k;
            const int byte = code[e / 2 - first / 2];
            if (k == 0 || e % MXFP4_BLOCK == 0) {
                const uint32_t p = power[e / MXFP4_BLOCK];
                scale = __uint_as_float(p > 0 ? p << 23 : 0x400000u);
            }
            v[k] = __fmul_rn(mxfp4_number(e % 2 ? byte >> 4 : byte & 15), scale);
        }
        store<N>(y + row * cols + j, v);
    }
};

template <typename T> enum status run_mxfp4(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    const dequantise_mxfp4<T> op = {
        (T *)arg[0],          (const uint8_t *)arg[1], (const uint8_t *)arg[2], attrs->dequantise.cols, attrs->dequantise.first,
        attrs->dequantise.ld, attrs->dequantise.stride};
    return launch_rows<WIDTH<T>>(op, attrs->dequantise.rows, attrs->dequantise.cols, aligned_to_vectors({op.y}), stream);
}

template <typename T> enum status run_int8(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    const dequantise_int8<T> op = {
        (T *)arg[0],          (const int8_t *)arg[1],    (const float *)arg[2],   attrs->dequantise.cols, attrs->dequantise.first,
        attrs->dequantise.ld, attrs->dequantise.columns, attrs->dequantise.stride};
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
                                  attrs->dequantise.ld,
                                  attrs->dequantise.stride};
    return launch_rows<WIDTH<T>>(op, attrs->dequantise.rows, attrs->dequantise.cols, aligned_to_vectors({op.y}), stream);
}

template <typename T> enum status run(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    const int32_t form = attrs->dequantise.form;
    return (form == QUANTISED_INT8 ? run_int8<T> : form == QUANTISED_MXFP4 ? run_mxfp4<T> : run_nf4<T>)(attrs, arg, stream);
}

} // namespace

enum status ops_cuda_dequantise(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    TRY(check_storage("dequantise", attrs->dequantise.y_type));
    return attrs->dequantise.y_type == BF16 ? run<bf16>(attrs, arg, stream) : run<float>(attrs, arg, stream);
}
