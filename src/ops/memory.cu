/* Moving and clearing bytes within device memory, and rows between token layouts. */
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

/* Moves row `row` of the token layout: from row index[row] if GATHER, else to row index[row]. */
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

/* Refuses odd addresses. Elements are at least 2 bytes wide, so no two threads ever write into one pair of bytes. */
enum status check_even(const char *op, std::initializer_list<const void *> operands)
{
    for (const void *p : operands)
        if ((uintptr_t)p % 2 != 0)
            return status_fail(ERR_INVALID, "%s on cuda: address %p is odd", op, p);
    return OK;
}

/* Division of bytes: 16 at a time if the operands are aligned, then pairs, then an odd one. */
struct pieces {
    int64_t vectors, pairs, odd, pairs_at, odd_at;
};

pieces split(int64_t bytes, bool vectors)
{
    pieces p = {};
    p.vectors = vectors ? bytes / 16 : 0;
    p.pairs_at = 16 * p.vectors;
    p.pairs = (bytes - p.pairs_at) / 2;
    p.odd_at = p.pairs_at + 2 * p.pairs;
    p.odd = bytes - p.odd_at;
    return p;
}

template <typename W> enum status zero_piece(void *dst, int64_t at, int64_t n, void *stream)
{
    return launch_elements<1>(zero_words<W>{(W *)((char *)dst + at)}, n, false, stream);
}

enum status zero_bytes(void *dst, int64_t bytes, void *stream)
{
    TRY(check_even("fill", {dst}));
    pieces p = split(bytes, aligned_to_vectors({dst}));
    TRY(zero_piece<uint4>(dst, 0, p.vectors, stream));
    TRY(zero_piece<uint16_t>(dst, p.pairs_at, p.pairs, stream));
    return zero_piece<uint8_t>(dst, p.odd_at, p.odd, stream);
}

template <typename W> enum status copy_piece(void *dst, const void *src, int64_t at, int64_t n, void *stream)
{
    return launch_elements<1>(copy_words<W>{(W *)((char *)dst + at), (const W *)((const char *)src + at)}, n, false, stream);
}

enum status copy_bytes(void *dst, const void *src, int64_t bytes, void *stream)
{
    TRY(check_even("copy", {dst, src}));
    if (dst == src)
        return OK;
    pieces p = split(bytes, aligned_to_vectors({dst, src}));
    TRY(copy_piece<uint4>(dst, src, 0, p.vectors, stream));
    TRY(copy_piece<uint16_t>(dst, src, p.pairs_at, p.pairs, stream));
    return copy_piece<uint8_t>(dst, src, p.odd_at, p.odd, stream);
}

template <typename W, bool GATHER>
enum status move(void *dst, const void *src, const int32_t *index, int64_t rows, int64_t row_bytes, void *stream)
{
    int64_t width = row_bytes / (int64_t)sizeof(W);
    return launch_rows<1>(move_rows<W, GATHER>{(W *)dst, (const W *)src, index, width}, rows, width, false, stream);
}

template <bool GATHER>
enum status move_by_width(void *dst, const void *src, const int32_t *index, int64_t rows, int64_t row_bytes, void *stream)
{
    if (row_bytes % 16 == 0 && aligned_to_vectors({dst, src}))
        return move<uint4, GATHER>(dst, src, index, rows, row_bytes, stream);
    TRY(check_even("moving rows", {dst, src}));
    if (row_bytes % 2 != 0)
        return status_fail(ERR_INVALID, "moving rows on cuda: a row of %lld bytes is no whole number of elements",
                           (long long)row_bytes);
    return move<uint16_t, GATHER>(dst, src, index, rows, row_bytes, stream);
}

} // namespace

enum status ops_cuda_fill(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    return zero_bytes(arg[0], attrs->fill.bytes, stream);
}

enum status ops_cuda_copy(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    return copy_bytes(arg[1], arg[0], attrs->copy.bytes, stream);
}

enum status ops_cuda_gather_rows(void *dst, const void *src, const int32_t *index, int64_t rows, int64_t row_bytes, void *stream)
{
    return move_by_width<true>(dst, src, index, rows, row_bytes, stream);
}

enum status ops_cuda_scatter_rows(void *dst, const void *src, const int32_t *index, int64_t rows, int64_t row_bytes, void *stream)
{
    return move_by_width<false>(dst, src, index, rows, row_bytes, stream);
}
