/* Moving, clearing and converting bytes within device memory, and rows between token layouts. */
#include "ops/cuda_vec.cuh"

namespace
{

template <typename W> struct zero_words {
    W *dst;
    template <int N> __device__ __forceinline__ void run(int64_t i) const
    {
        dst[i] = W();
    }
};

template <typename W> struct copy_words {
    W *dst;
    const W *src;
    template <int N> __device__ __forceinline__ void run(int64_t i) const
    {
        dst[i] = src[i];
    }
};

template <typename D, typename S> struct cast {
    D *dst;
    const S *src;
    template <int N> __device__ __forceinline__ void run(int64_t i) const
    {
        float x[N];
        load<N>(x, src + i);
        store<N>(dst + i, x);
    }
};

/* Row `row` of the layout goes to or comes from row index[row]. */
template <typename W, bool GATHER> struct move_rows {
    W *dst;
    const W *src;
    const int32_t *index;
    int64_t width; /* words per row */
    template <int N> __device__ __forceinline__ void run(int64_t row, int64_t j) const
    {
        int64_t other = index[row];
        if (GATHER)
            dst[row * width + j] = other < 0 ? W() : src[other * width + j];
        else if (other >= 0)
            dst[other * width + j] = src[row * width + j];
    }
};

enum status zero_bytes(void *dst, int64_t bytes, cuda_stream stream)
{
    int64_t body = aligned_to_vectors({dst}) ? bytes / 16 : 0;
    TRY(launch_elements<1>(zero_words<uint4>{(uint4 *)dst}, body, false, stream));
    return launch_elements<1>(zero_words<uint8_t>{(uint8_t *)dst + 16 * body}, bytes - 16 * body, false, stream);
}

enum status copy_bytes(void *dst, const void *src, int64_t bytes, cuda_stream stream)
{
    if (dst == src)
        return OK;
    int64_t body = aligned_to_vectors({dst, src}) ? bytes / 16 : 0;
    TRY(launch_elements<1>(copy_words<uint4>{(uint4 *)dst, (const uint4 *)src}, body, false, stream));
    return launch_elements<1>(copy_words<uint8_t>{(uint8_t *)dst + 16 * body, (const uint8_t *)src + 16 * body},
                              bytes - 16 * body, false, stream);
}

template <typename W, bool GATHER>
enum status move(void *dst, const void *src, const int32_t *index, int64_t rows, int64_t row_bytes, cuda_stream stream)
{
    int64_t width = row_bytes / (int64_t)sizeof(W);
    return launch_rows<1>(move_rows<W, GATHER>{(W *)dst, (const W *)src, index, width}, rows, width, false, stream);
}

template <bool GATHER>
enum status move_by_width(void *dst, const void *src, const int32_t *index, int64_t rows, int64_t row_bytes, cuda_stream stream)
{
    if (row_bytes % 16 == 0 && aligned_to_vectors({dst, src}))
        return move<uint4, GATHER>(dst, src, index, rows, row_bytes, stream);
    if (row_bytes % 2 == 0 && ((uintptr_t)dst | (uintptr_t)src) % 2 == 0)
        return move<uint16_t, GATHER>(dst, src, index, rows, row_bytes, stream);
    return move<uint8_t, GATHER>(dst, src, index, rows, row_bytes, stream);
}

} // namespace

enum status ops_cuda_fill(const struct op_attrs *attrs, void *const *arg, cuda_stream stream)
{
    return zero_bytes(arg[0], attrs->fill.bytes, stream);
}

enum status ops_cuda_copy(const struct op_attrs *attrs, void *const *arg, cuda_stream stream)
{
    return copy_bytes(arg[1], arg[0], attrs->copy.bytes, stream);
}

enum status ops_cuda_cast(void *dst, enum dtype dst_type, const void *src, enum dtype src_type, int64_t n, cuda_stream stream)
{
    TRY(check_storage("cast", dst_type));
    TRY(check_storage("cast", src_type));
    bool vectors = aligned_to_vectors({dst, src});
    if (dst_type == src_type)
        return copy_bytes(dst, src, n * dtype_size(dst_type), stream);
    if (dst_type == BF16)
        return launch_elements<8>(cast<bf16, float>{(bf16 *)dst, (const float *)src}, n, vectors, stream);
    return launch_elements<8>(cast<float, bf16>{(float *)dst, (const bf16 *)src}, n, vectors, stream);
}

enum status ops_cuda_gather_rows(void *dst, const void *src, const int32_t *index, int64_t rows, int64_t row_bytes,
                                 cuda_stream stream)
{
    return move_by_width<true>(dst, src, index, rows, row_bytes, stream);
}

enum status ops_cuda_scatter_rows(void *dst, const void *src, const int32_t *index, int64_t rows, int64_t row_bytes,
                                  cuda_stream stream)
{
    return move_by_width<false>(dst, src, index, rows, row_bytes, stream);
}
