/* Rows of a chunk times decays of channels, by blocks of rows. Private to src/recurrence.
 *
 * A pair's weight is the sum of k_i k_j e^(G_i - G_j) over channels, whose factors e^G_i and e^-G_j overflow by themselves. Pairs of
 * rows of different blocks are products of rows times decays from and to the first row of the later block, all at most 1. Pairs within
 * a block are added up one by one. */
#ifndef LTRAIN_RECURRENCE_CUDA_CHANNELS_CUH
#define LTRAIN_RECURRENCE_CUDA_CHANNELS_CUH

#include "recurrence/cuda_scan.cuh"

namespace
{

constexpr int BLOCK = 16; /* rows of a block: those of a warp's results */

/* Returns the first row of row i's block. */
__device__ __forceinline__ int block_of(int i)
{
    return i / BLOCK * BLOCK;
}

/* Multiplies rows of a tile by their decays from the first rows of their blocks; column j is channel k + j. */
__device__ __forceinline__ void decay_rows(const scan_args &a, const unit &u, tile<SIDE> &x, area in, int k)
{
    fill(x, in, [&](int i, int j) { return x.x[i][j] * channel_decay(a, u, i, block_of(i), k + j); });
}

/* Fills a tile with keys before row `at`, times their decays up to it; rows from `at` on are zero. */
template <typename T>
__device__ __forceinline__ void keys_before(const scan_args &a, const unit &u, tile<SIDE> &x, area in, int k, int at)
{
    fill(x, in, [&](int i, int j) { return i < at ? key_at<T>(a, u, i, k + j) * channel_decay(a, u, at, i, k + j) : 0.0f; });
}

} // namespace

#endif
