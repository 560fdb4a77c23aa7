// Tiles in shared memory (device/cuda/tile.cuh) and their products, for the sm_80 attention kernels. Private to src/attention.
#ifndef LTRAIN_ATTENTION_SM80_TILE_CUH
#define LTRAIN_ATTENTION_SM80_TILE_CUH

#include "attention/cuda_cap.cuh"
#include "attention/cuda_mask.cuh"
#include "device/cuda/tile.cuh"

typedef uint16_t bf16_bits; // storage only

// Returns x, hidden from the compiler: values computed from it inside a loop are not kept in registers around the loop.
static __device__ __forceinline__ int recomputed(int x)
{
    asm volatile("" : "+r"(x));
    return x;
}

// Starts copying `rows` rows of `chunks` 16-byte chunks to a tile [ROWS][COLS]; the rest of the tile becomes zero, and nothing is
// read for it. Stride in elements. Called by all threads of the block; the caller commits.
template <int ROWS, int COLS, int THREADS>
static __device__ __forceinline__ void tile_load(uint32_t to, const bf16_bits *from, int64_t stride, int rows, int chunks)
{
    constexpr int CHUNKS = COLS / 8, SHARE = THREADS / CHUNKS;
    constexpr int PASS = SHARE >= 32 ? 32 : SHARE >= 16 ? 16 : SHARE >= 8 ? 8 : SHARE >= 4 ? 4 : 2;
    static_assert(SHARE >= 2 && ROWS % PASS == 0, "every pass copies whole rows");
    const int thread = recomputed(threadIdx.x), row = thread / CHUNKS, chunk = thread % CHUNKS;
    if (PASS * CHUNKS < THREADS && row >= PASS)
        return;
    from += row * stride + chunk * 8;
    rows = chunk < chunks ? rows - row : 0;
#pragma unroll
    for (int j = 0; j < ROWS; j += PASS, from += PASS * stride)
        cp_async_16_zfill(to + tile_at<COLS>(row + j, chunk), from, j < rows ? 16 : 0);
}

// Starts copying the rows from `row` on of one head of x [rows, heads, width].
template <int ROWS, int COLS, int THREADS>
static __device__ __forceinline__ void tile_load_head(uint32_t to, const bf16_bits *x, int rows, int heads, int width, int head,
                                                      int row)
{
    const int64_t stride = (int64_t)heads * width;
    tile_load<ROWS, COLS, THREADS>(to, x + row * stride + head * width, stride, rows - row, width / 8);
}

// Turns products into t (cuda_cap.cuh).
template <int MT, int NT> static __device__ __forceinline__ void tile_cap(float (&c)[MT][NT][4], const attn_scores &s)
{
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                c[m][n][i] = attn_cap_tanh(c[m][n][i], s);
}

// Computes c += A B^T over COLS columns: A is [16 MT][COLS] at a (tile_rows_first), B [8 NT][COLS] at b (tile_chunks_first).
template <int COLS, int MT, int NT>
static __device__ __forceinline__ void product_of_tiles(float (&c)[MT][NT][4], uint32_t a, uint32_t b)
{
#pragma unroll
    for (int k = 0; k < COLS / 16; k++) {
        uint32_t fa[MT][4];
#pragma unroll
        for (int m = 0; m < MT; m++)
            ldmatrix_x4(fa[m], tile_step<COLS>(a, k) + m * 16 * COLS * 2);
#pragma unroll
        for (int n = 0; n < NT; n += 2) {
            uint32_t fb[4];
            ldmatrix_x4(fb, tile_step<COLS>(b, k) + n * 8 * COLS * 2);
#pragma unroll
            for (int m = 0; m < MT; m++) {
                mma_m16n8k16(c[m][n], fa[m], fb[0], fb[1]);
                mma_m16n8k16(c[m][n + 1], fa[m], fb[2], fb[3]);
            }
        }
    }
}

// Computes c += A B over 16 KT: A in registers, B is [16 KT][COLS] at b (tile_rows_first), its columns 0 to 8 NT.
template <int COLS, int MT, int KT, int NT>
static __device__ __forceinline__ void product_of_fragments(float (&c)[MT][NT][4], const uint32_t (&a)[MT][KT][4], uint32_t b)
{
#pragma unroll
    for (int k = 0; k < KT; k++)
#pragma unroll
        for (int n = 0; n < NT; n += 2) {
            uint32_t fb[4];
            ldmatrix_x4_trans(fb, tile_step<COLS>(b, n / 2) + k * 16 * COLS * 2);
#pragma unroll
            for (int m = 0; m < MT; m++) {
                mma_m16n8k16(c[m][n], a[m][k], fb[0], fb[1]);
                mma_m16n8k16(c[m][n + 1], a[m][k], fb[2], fb[3]);
            }
        }
}

// Rounds an accumulator to bf16, as the A operand of the next product: its columns become the summed index.
template <int MT, int NT>
static __device__ __forceinline__ void fragments_of(uint32_t (&a)[MT][NT / 2][4], const float (&c)[MT][NT][4])
{
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < NT; n++) {
            a[m][n / 2][n % 2 * 2] = pack_bf16(c[m][n][0], c[m][n][1]);
            a[m][n / 2][n % 2 * 2 + 1] = pack_bf16(c[m][n][2], c[m][n][3]);
        }
}

#endif
