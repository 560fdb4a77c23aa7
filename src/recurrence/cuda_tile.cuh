/* Products of tiles in shared memory by a thread block of eight warps. Private to src/recurrence.
 *
 * Results have SCAN_CHUNK rows; a warp computes 16 of them, and half of the columns. Its accumulators are those of mma.m16n8k16, also
 * where products are fp32. */
#ifndef LTRAIN_RECURRENCE_CUDA_TILE_CUH
#define LTRAIN_RECURRENCE_CUDA_TILE_CUH

#include "recurrence/cuda_rows.cuh"

namespace
{

constexpr int SIDE = SCAN_CHUNK, THREADS = 256;

/* Holds a matrix, whose rows lie four banks apart. */
template <int COLS> struct tile {
    float x[SIDE][COLS + 4];
};

/* Sums of a result of 16 NT columns. */
template <int NT> using sums = float[NT][4];

/* Returns the first row of this warp's results, and the first column. */
__device__ __forceinline__ int warp_row()
{
    return threadIdx.x / LT_WARP % 4 * 16;
}

template <int NT> __device__ __forceinline__ int warp_column()
{
    return threadIdx.x / LT_WARP / 4 * 8 * NT;
}

template <int NT> __device__ __forceinline__ void clear(float (&c)[NT][4])
{
#pragma unroll
    for (int n = 0; n < NT; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            c[n][i] = 0.0f;
}

/* Rows and columns of a tile that are in use, 32 or SIDE of each. Warps whose share of a result is beyond do nothing. */
struct area {
    int rows, cols;
};

/* Tells whether this warp has a share of the result. */
template <int NT> __device__ __forceinline__ bool has_share(area in)
{
    return warp_row() < in.rows && warp_column<NT>() < in.cols;
}

/* Calls f(row, column, n, e) for each of this thread's elements [n][e]; e / 2 tells its two rows apart. */
template <int NT, typename F> __device__ __forceinline__ void each_at(area in, F f)
{
    const int lane = threadIdx.x % LT_WARP, row = warp_row() + lane / 4, column = warp_column<NT>() + lane % 4 * 2;
    if (!has_share<NT>(in))
        return;
#pragma unroll
    for (int n = 0; n < NT; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            f(row + e / 2 * 8, column + n * 8 + e % 2, n, e);
}

/* Calls f(row, column, element) for each of this thread's elements. */
template <int NT, typename F> __device__ __forceinline__ void each(area in, float (&c)[NT][4], F f)
{
    each_at<NT>(in, [&](int row, int column, int n, int e) { f(row, column, c[n][e]); });
}

/* Operands of a product: as they lie, or the transpose. */
enum turned { PLAIN, ACROSS };

/* Adds a b to c, over depths [from, to), multiples of 16. TENSOR: operands are rounded to bf16. */
template <bool TENSOR, turned A, turned B, int NT, int CA, int CB>
__device__ __forceinline__ void multiply(area in, float (&c)[NT][4], const tile<CA> &a, const tile<CB> &b, int from, int to)
{
    const int lane = threadIdx.x % LT_WARP, g = lane / 4, t = lane % 4 * 2, row = warp_row() + g, column = warp_column<NT>();
    const auto left = [&a](int i, int k) { return A == PLAIN ? a.x[i][k] : a.x[k][i]; };
    const auto right = [&b](int k, int j) { return B == PLAIN ? b.x[k][j] : b.x[j][k]; };
    if (!has_share<NT>(in))
        return;
    if constexpr (TENSOR) {
        for (int k = from; k < to; k += 16) {
            const int l = k + t;
            const uint32_t x[4] = {pack_bf16(left(row, l), left(row, l + 1)), pack_bf16(left(row + 8, l), left(row + 8, l + 1)),
                                   pack_bf16(left(row, l + 8), left(row, l + 9)),
                                   pack_bf16(left(row + 8, l + 8), left(row + 8, l + 9))};
#pragma unroll
            for (int n = 0; n < NT; n++) {
                const int j = column + n * 8 + g;
                mma_m16n8k16(c[n], x, pack_bf16(right(l, j), right(l + 1, j)), pack_bf16(right(l + 8, j), right(l + 9, j)));
            }
        }
    } else {
        for (int k = from; k < to; k++) {
            const float x[2] = {left(row, k), left(row + 8, k)};
#pragma unroll
            for (int n = 0; n < NT; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    c[n][i] += x[i / 2] * right(k, column + n * 8 + t + i % 2);
        }
    }
}

/* Fills rows and columns of a tile: element (i, j) is f(i, j). */
template <int COLS, typename F> __device__ __forceinline__ void fill(tile<COLS> &to, area in, F f)
{
    const int shift = COLS == SIDE && in.cols == SIDE ? 6 : 5;
    static_assert(SIDE == 1 << 6, "a division by the columns is a shift");
#pragma unroll 4
    for (int e = threadIdx.x; e < in.rows << shift; e += THREADS)
        to.x[e >> shift][e & (in.cols - 1)] = f(e >> shift, e & (in.cols - 1));
}

/* Stores sums into a tile. */
template <int NT, int COLS> __device__ __forceinline__ void store(tile<COLS> &to, area in, float (&c)[NT][4])
{
    each(in, c, [&to](int i, int j, float &value) { to.x[i][j] = value; });
}

} // namespace

#endif
