/* Changing the storage type of numbers, and scaling them. */
#include "ops/cuda_vec.cuh"

namespace
{

template <typename Y, typename X> struct cast {
    Y *y;
    const X *x;
    template <int N> __device__ __forceinline__ void run(int64_t i) const
    {
        float v[N];
        load<N>(v, x + i);
        store<N>(y + i, v);
    }
};

template <typename T> struct scale_elements {
    T *y;
    const T *x;
    float scale;
    template <int N> __device__ __forceinline__ void run(int64_t i) const
    {
        float v[N];
        load<N>(v, x + i);
#pragma unroll
        for (int k = 0; k < N; k++)
            v[k] *= scale;
        store<N>(y + i, v);
    }
};

template <typename T> struct multiply_elements {
    T *x;
    const T *factor;
    template <int N> __device__ __forceinline__ void run(int64_t i) const
    {
        float v[N], f[1];
        load<1>(f, factor);
        load<N>(v, x + i);
#pragma unroll
        for (int k = 0; k < N; k++)
            v[k] *= f[0];
        store<N>(x + i, v);
    }
};

template <typename T> enum status run_multiply(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    const multiply_elements<T> op = {(T *)arg[0], (const T *)arg[1]};
    return launch_elements<WIDTH<T>>(op, attrs->cast.n, aligned_to_vectors({arg[0]}), stream);
}

template <typename T> enum status run_scale(const struct op_attrs *attrs, void *const *arg, bool vectors, void *stream)
{
    const scale_elements<T> op = {(T *)arg[0], (const T *)arg[1], attrs->cast.scale};
    return launch_elements<WIDTH<T>>(op, attrs->cast.n, vectors, stream);
}

} // namespace

enum status ops_cuda_cast_rows(bf16 *dst, int64_t dst_ld, const float *src, int64_t src_ld, int64_t rows, int64_t cols,
                               void *stream)
{
    return launch_columns(copy_columns<bf16, float>{dst, src, dst_ld, src_ld}, rows, cols, stream);
}

enum status ops_cuda_cast(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    TRY(check_storage("cast", attrs->cast.y_type));
    TRY(check_storage("cast", attrs->cast.x_type));
    const int64_t n = attrs->cast.n;
    const bool vectors = aligned_to_vectors({arg[0], arg[1]});
    if (attrs->cast.scale != 0.0f && attrs->cast.y_type == attrs->cast.x_type)
        return attrs->cast.y_type == BF16 ? run_scale<bf16>(attrs, arg, vectors, stream)
                                          : run_scale<float>(attrs, arg, vectors, stream);
    if (attrs->cast.y_type == attrs->cast.x_type) {
        struct op_attrs copy = {};
        copy.copy.bytes = n * dtype_size((enum dtype)attrs->cast.x_type);
        void *const source_first[] = {arg[1], arg[0]};
        return ops_cuda_copy(&copy, source_first, stream);
    }
    if (attrs->cast.y_type == BF16)
        return launch_elements<8>(cast<bf16, float>{(bf16 *)arg[0], (const float *)arg[1]}, n, vectors, stream);
    return launch_elements<8>(cast<float, bf16>{(float *)arg[0], (const bf16 *)arg[1]}, n, vectors, stream);
}

enum status ops_cuda_multiply(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    TRY(check_storage("multiply", attrs->cast.x_type));
    return attrs->cast.x_type == BF16 ? run_multiply<bf16>(attrs, arg, stream) : run_multiply<float>(attrs, arg, stream);
}
