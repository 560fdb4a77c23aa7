/* Single columns of a matrix, moved to and from one that has only these. */
#include "ops/cuda_vec.cuh"

namespace
{

template <typename T> struct put {
    T *y;
    const T *x;
    const int32_t *index;
    int64_t y_ld, x_ld;
    template <int N> __device__ __forceinline__ void run(int64_t row, int64_t j) const
    {
        static_assert(N == 1, "columns have no order");
        y[row * y_ld + index[j]] = x[row * x_ld + j];
    }
};

template <typename T> struct take {
    T *x, *y;
    const int32_t *index;
    int64_t y_ld, x_ld;
    template <int N> __device__ __forceinline__ void run(int64_t row, int64_t j) const
    {
        static_assert(N == 1, "columns have no order");
        T *const from = y + row * y_ld + index[j];
        float v[1];
        load<1>(v, from);
        store<1>(x + row * x_ld + j, v);
        v[0] = 0.0f;
        store<1>(from, v);
    }
};

template <typename T> enum status run_put(const struct op_attrs *a, void *const *arg, void *stream)
{
    const put<T> op = {(T *)arg[0], (const T *)arg[1], (const int32_t *)arg[2], a->picked.y_ld, a->picked.x_ld};
    return launch_rows<1>(op, a->picked.rows, a->picked.n, false, stream);
}

template <typename T> enum status run_take(const struct op_attrs *a, void *const *arg, void *stream)
{
    const take<T> op = {(T *)arg[0], (T *)arg[1], (const int32_t *)arg[2], a->picked.y_ld, a->picked.x_ld};
    return launch_rows<1>(op, a->picked.rows, a->picked.n, false, stream);
}

} // namespace

enum status ops_cuda_put_columns(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    TRY(check_storage("put_columns", attrs->picked.dtype));
    return attrs->picked.dtype == BF16 ? run_put<bf16>(attrs, arg, stream) : run_put<float>(attrs, arg, stream);
}

enum status ops_cuda_take_columns(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    TRY(check_storage("take_columns", attrs->picked.dtype));
    return attrs->picked.dtype == BF16 ? run_take<bf16>(attrs, arg, stream) : run_take<float>(attrs, arg, stream);
}
