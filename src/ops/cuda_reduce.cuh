/* Sums over the threads that share a row, in one fixed order. Private to src/ops. */
#ifndef LTRAIN_OPS_CUDA_REDUCE_CUH
#define LTRAIN_OPS_CUDA_REDUCE_CUH

#include "ops/cuda_vec.cuh"

namespace
{

template <typename V> __device__ __forceinline__ V warp_sum(V v)
{
#pragma unroll
    for (int half = LT_WARP / 2; half > 0; half /= 2)
        v += __shfl_xor_sync(LT_FULL_MASK, v, half);
    return v;
}

__device__ __forceinline__ float warp_max(float v)
{
#pragma unroll
    for (int half = LT_WARP / 2; half > 0; half /= 2)
        v = fmaxf(v, __shfl_xor_sync(LT_FULL_MASK, v, half));
    return v;
}

/* Holds the warps' parts of K sums, in shared memory. */
template <typename V, int K> struct warp_parts {
    V part[K][LT_WARP];
};

/* Sums v[k] over the threads of a row; every thread of the row gets the same bits. A row has blockDim.x threads: one warp, or
 * several warps with separate `parts` (then all rows of the block must call together). Between two uses of the same parts another
 * barrier is needed. */
template <typename V, int K> __device__ __forceinline__ void row_sum(V (&v)[K], warp_parts<V, K> &s)
{
    const int lane = threadIdx.x % LT_WARP, warp = threadIdx.x / LT_WARP, warps = blockDim.x / LT_WARP;
#pragma unroll
    for (int k = 0; k < K; k++)
        v[k] = warp_sum(v[k]);
    if (warps == 1)
        return;
    if (lane == 0) {
#pragma unroll
        for (int k = 0; k < K; k++)
            s.part[k][warp] = v[k];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < K; k++)
        v[k] = warp_sum(lane < warps ? s.part[k][lane] : V(0));
}

__device__ __forceinline__ float row_max(float v, warp_parts<float, 1> &s)
{
    const int lane = threadIdx.x % LT_WARP, warp = threadIdx.x / LT_WARP, warps = blockDim.x / LT_WARP;
    v = warp_max(v);
    if (warps == 1)
        return v;
    if (lane == 0)
        s.part[0][warp] = v;
    __syncthreads();
    return warp_max(lane < warps ? s.part[0][lane] : v);
}

/* Returns the number of threads that reduce one row: whole warps, at most `most`. */
inline unsigned reducing_threads(int64_t runs, unsigned most)
{
    int64_t threads = blocks_of(runs, LT_WARP) * LT_WARP;
    return (unsigned)(threads < most ? threads : most);
}

/* Lowers *pieces to the number of pieces of `each` bytes that fit into the device's shared memory behind `front` bytes. */
inline enum status shared_pieces(int64_t *pieces, size_t front, int64_t each)
{
    int device = 0, limit = 0;
    TRY(CUDA_STATUS(cudaGetDevice(&device)));
    TRY(CUDA_STATUS(cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device)));
    const int64_t room = ((int64_t)limit - (int64_t)front) / each;
    *pieces = *pieces < room ? *pieces : room;
    return OK;
}

} // namespace

#endif
