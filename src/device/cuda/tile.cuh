/* Tiles of bf16 in shared memory, for ldmatrix and mma.sync.
 *
 * A tile is [rows][COLS] bf16, row-major, its 16-byte chunks swizzled within 128 bytes (64 if a row is no multiple of 128). So the 8
 * rows of one ldmatrix matrix, and a warp's stores of an accumulator, fall into 32 different banks. g = lane / 4, t = lane % 4. An
 * accumulator c[mt][nt][i] is row 16 mt + g + 8 (i / 2), column 8 nt + 2 t + i % 2. */
#ifndef LTRAIN_DEVICE_CUDA_TILE_CUH
#define LTRAIN_DEVICE_CUDA_TILE_CUH

#include "device/cuda/arch.cuh"
#include "device/cuda/ptx.cuh"

template <int COLS> static __device__ __forceinline__ uint32_t tile_at(int row, int chunk)
{
    static_assert(COLS % 32 == 0, "a row is a whole number of swizzle atoms");
    int turn = COLS % 64 == 0 ? row & 7 : (row >> 1) & 3;
    return (uint32_t)(row * COLS * 2 + ((chunk ^ turn) << 4));
}

/* Returns the address of column 16 * step, given the address of column 0 (or 8) of the same row. The swizzle is an exclusive or
 * within an atom, and tiles are aligned to 128 bytes, so it may be applied to the address itself. */
template <int COLS> static __device__ __forceinline__ uint32_t tile_step(uint32_t at, int step)
{
    constexpr int ATOM = COLS % 64 == 0 ? 4 : 2; /* steps of 32 bytes */
    return (at ^ (uint32_t)(step % ATOM * 32)) + (uint32_t)(step / ATOM * ATOM * 32);
}

/* Returns the row that this lane gives to ldmatrix.x4, for the four 8 x 8 matrices in the order: rows 0-7, rows 8-15, rows 0-7
 * of the next chunk, rows 8-15 of it. For A operands, and B operands stored [k][n] (transposed while loading). */
template <int COLS> static __device__ __forceinline__ uint32_t tile_rows_first(int lane)
{
    return tile_at<COLS>(lane & 15, lane >> 4);
}

/* Returns this lane's row for the order: rows 0-7, rows 0-7 of the next chunk, rows 8-15, rows 8-15 of it. For B operands stored
 * [n][k], and A operands stored [k][m] (transposed). */
template <int COLS> static __device__ __forceinline__ uint32_t tile_chunks_first(int lane)
{
    return tile_at<COLS>((lane & 7) + (lane >> 4) * 8, (lane >> 3) & 1);
}

template <int MT, int NT> static __device__ __forceinline__ void tile_zero(float (&c)[MT][NT][4])
{
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                c[m][n][i] = 0;
}

#endif
