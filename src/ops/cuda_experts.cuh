/* A thread block's tile of a product of bf16 matrices, whose operands' rows may be gathered, summed in fp32 in the order of k. Private
 * to src/ops.
 *
 * Four warps compute 64 x 64 of a tile of 128 x 128 each. Operands pass through a ring of stages in shared memory. One whose rows in
 * memory are the tile's (`lines`) lies there as [128][32], one whose rows are those of k as [32][128]. */
#ifndef LTRAIN_OPS_CUDA_EXPERTS_CUH
#define LTRAIN_OPS_CUDA_EXPERTS_CUH

#include "device/cuda/tile.cuh"
#include "ops/cuda_vec.cuh"

namespace
{

constexpr int SIDE = 128, DEPTH = 32, STAGES = 4, MMA_THREADS = 128;
constexpr int COPIES = SIDE * DEPTH / 8 / MMA_THREADS; /* chunks of 8 elements that a thread copies of an operand's stage */
constexpr uint32_t TWO_NANS = 0x7fc07fc0u;

/* Forms of an operand: 16-byte vectors of bf16 or of fp32, or elements one by one. */
enum form { BF16_VECTORS, F32_VECTORS, SINGLY };

/* Rows of a matrix. A row that order or row numbers give and that does not exist is NaN. */
struct operand {
    const void *data;
    int64_t ld, cols; /* elements from row to row; columns that exist */
    int32_t type;
    const int32_t *order; /* NULL: row i is row i; else row order[i] / per, and order[i] is below `most` */
    int32_t per, most;
};

struct alignas(128) stage {
    bf16 a[SIDE * DEPTH], b[SIDE * DEPTH];
};

__device__ __forceinline__ float element(const operand &x, int64_t at)
{
    return x.type == F32 ? ((const float *)x.data)[at] : float_of_bits((uint32_t)((const bf16 *)x.data)[at] << 16);
}

/* Returns the row in memory of row i; -1: there is none. */
__device__ __forceinline__ int row_of(const operand &x, int64_t i)
{
    if (!x.order)
        return (int)i;
    const int32_t at = x.order[i];
    return at >= 0 && at < x.most ? at / x.per : -1;
}

/* Copies 8 elements from `at` on, of which `left` exist (with vectors: all or none), to shared memory; the others become 0. */
template <int FORM> __device__ __forceinline__ void copy_chunk(bf16 *to, const operand &x, int64_t at, int64_t left)
{
    if constexpr (FORM == BF16_VECTORS) {
        cp_async_16_zfill(smem_addr(to), (const bf16 *)x.data + (left > 0 ? at : 0), left > 0 ? 16 : 0);
    } else {
        float v[8] = {};
        if constexpr (FORM == F32_VECTORS) {
            if (left > 0)
                load<8>(v, (const float *)x.data + at);
        } else {
#pragma unroll
            for (int i = 0; i < 8; i++)
                v[i] = i < left ? element(x, at + i) : 0.0f;
        }
        *reinterpret_cast<uint4 *>(to) =
            make_uint4(bf16_pair(v[0], v[1]), bf16_pair(v[2], v[3]), bf16_pair(v[4], v[5]), bf16_pair(v[6], v[7]));
    }
}

__device__ __forceinline__ void copy_nans(bf16 *to)
{
    *reinterpret_cast<uint4 *>(to) = make_uint4(TWO_NANS, TWO_NANS, TWO_NANS, TWO_NANS);
}

/* Copies an operand whose rows are the tile's: COPIES rows a thread. */
template <int FORM> struct lines {
    static constexpr int CHUNKS = DEPTH / 8, APART = MMA_THREADS / CHUNKS;
    const operand &x;
    int row[COPIES]; /* in memory; -1: NaN; -2: 0 */

    __device__ __forceinline__ lines(const operand &of, int64_t first, int64_t end) : x(of)
    {
#pragma unroll
        for (int j = 0; j < COPIES; j++) {
            const int64_t i = first + (int)threadIdx.x / CHUNKS + j * APART;
            row[j] = i < end ? row_of(x, i) : -2;
        }
    }

    __device__ __forceinline__ void start(bf16 *to, int step)
    {
        const int chunk = threadIdx.x % CHUNKS, column = step * DEPTH + chunk * 8;
#pragma unroll
        for (int j = 0; j < COPIES; j++) {
            bf16 *const at = to + tile_at<DEPTH>((int)threadIdx.x / CHUNKS + j * APART, chunk) / sizeof(bf16);
            if (row[j] == -1)
                copy_nans(at);
            else
                copy_chunk<FORM>(at, x, row[j] * x.ld + column, row[j] < 0 ? 0 : x.cols - column);
        }
    }
};

/* Copies an operand whose rows are those of k, rows [first, end) in all, from column `column` on. */
template <int FORM> struct depths {
    static constexpr int CHUNKS = SIDE / 8, APART = MMA_THREADS / CHUNKS;
    const operand &x;
    int64_t first, end, column;
    int row[COPIES]; /* rows in memory for the next step; -1: NaN; -2: 0 */

    __device__ __forceinline__ depths(const operand &of, int64_t from, int64_t to, int64_t at)
        : x(of), first(from), end(to), column(at + threadIdx.x % CHUNKS * 8)
    {
        find_rows(0);
    }

    /* Looks the rows of a step up ahead, since the order comes from memory. */
    __device__ __forceinline__ void find_rows(int step)
    {
#pragma unroll
        for (int j = 0; j < COPIES; j++) {
            const int64_t i = first + (int64_t)step * DEPTH + (int)threadIdx.x / CHUNKS + j * APART;
            row[j] = i < end ? row_of(x, i) : -2;
        }
    }

    __device__ __forceinline__ void start(bf16 *to, int step)
    {
#pragma unroll
        for (int j = 0; j < COPIES; j++) {
            bf16 *const at = to + tile_at<SIDE>((int)threadIdx.x / CHUNKS + j * APART, threadIdx.x % CHUNKS) / sizeof(bf16);
            if (row[j] == -1)
                copy_nans(at);
            else
                copy_chunk<FORM>(at, x, row[j] * x.ld + column, row[j] < 0 ? 0 : x.cols - column);
        }
        find_rows(step + 1);
    }
};

/* Gives an operand's address in a warp's 64 rows or columns of a stage, and its fragments of 16 of them at step k of 16. */
template <bool LINES> __device__ __forceinline__ uint32_t warp_address(uint32_t tile, int side, bool is_a)
{
    const int lane = threadIdx.x % LT_WARP;
    if (LINES)
        return tile + side * DEPTH * 2 + (is_a ? tile_rows_first<DEPTH>(lane) : tile_chunks_first<DEPTH>(lane));
    return tile + side * 2 + (is_a ? tile_chunks_first<SIDE>(lane) : tile_rows_first<SIDE>(lane));
}

template <bool LINES> __device__ __forceinline__ void fragments(uint32_t (&f)[4], uint32_t at, int sixteenth, int k)
{
    if (LINES)
        ldmatrix_x4(f, tile_step<DEPTH>(at, k) + sixteenth * 16 * DEPTH * 2);
    else
        ldmatrix_x4_trans(f, tile_step<SIDE>(at, sixteenth) + k * 16 * SIDE * 2);
}

typedef float sums[4][8][4];

/* Adds a stage's products to c. */
template <bool LINES_A, bool LINES_B> __device__ __forceinline__ void multiply_stage(sums &c, const stage &s)
{
    const int warp = threadIdx.x / LT_WARP;
    const uint32_t a = warp_address<LINES_A>(smem_addr(s.a), warp / 2 * 64, true);
    const uint32_t b = warp_address<LINES_B>(smem_addr(s.b), warp % 2 * 64, false);
#pragma unroll
    for (int k = 0; k < DEPTH / 16; k++) {
        uint32_t fa[4][4];
#pragma unroll
        for (int m = 0; m < 4; m++)
            fragments<LINES_A>(fa[m], a, m, k);
#pragma unroll
        for (int n = 0; n < 4; n++) {
            uint32_t fb[4];
            fragments<LINES_B>(fb, b, n, k);
#pragma unroll
            for (int m = 0; m < 4; m++) {
                mma_m16n8k16(c[m][2 * n], fa[m], fb[0], fb[1]);
                mma_m16n8k16(c[m][2 * n + 1], fa[m], fb[2], fb[3]);
            }
        }
    }
}

/* Computes a tile over `steps` steps of DEPTH. Called by all threads of the block. */
template <bool LINES_A, bool LINES_B, class A, class B>
__device__ __forceinline__ void multiply(sums &c, A &a, B &b, int steps, stage (&s)[STAGES])
{
    tile_zero(c);
#pragma unroll
    for (int k = 0; k < STAGES - 1; k++) {
        if (k < steps) {
            a.start(s[k].a, k);
            b.start(s[k].b, k);
        }
        cp_async_commit();
    }
    for (int k = 0; k < steps; k++) {
        cp_async_wait<STAGES - 2>();
        __syncthreads(); /* stage k has landed, and stage k - 1 has been read */
        if (k + STAGES - 1 < steps) {
            a.start(s[(k + STAGES - 1) % STAGES].a, k + STAGES - 1);
            b.start(s[(k + STAGES - 1) % STAGES].b, k + STAGES - 1);
        }
        cp_async_commit();
        multiply_stage<LINES_A, LINES_B>(c, s[k % STAGES]);
    }
    cp_async_wait<0>();
}

/* A tile's place in the result. bias: of the tile's columns; NULL: none. */
struct result {
    void *c;
    int64_t ld, rows, cols; /* rows and columns of the tile that exist */
    const void *bias;
    int32_t type, bias_type, adds, pairs; /* pairs: 1: two neighbouring columns are aligned as a vector */
};

/* Stores N columns of a row. */
template <int N, typename T> __device__ __forceinline__ void put(const result &to, int64_t at, float (&v)[N])
{
    T *const c = (T *)to.c + at;
    if constexpr (N == 2) {
        if constexpr (sizeof(T) == 4) {
            const float2 old = to.adds ? *(const float2 *)c : make_float2(0, 0);
            *(float2 *)c = to.adds ? make_float2(old.x + v[0], old.y + v[1]) : make_float2(v[0], v[1]);
        } else {
            const uint32_t old = to.adds ? *(const uint32_t *)c : 0;
            *(uint32_t *)c = to.adds ? bf16_pair(float_of_bits(old << 16) + v[0], float_of_bits(old & 0xffff0000u) + v[1])
                                     : bf16_pair(v[0], v[1]);
        }
    } else {
        float old[1];
        if (to.adds) {
            load<1>(old, c);
            v[0] += old[0];
        }
        store<1>(c, v);
    }
}

template <typename T> __device__ __forceinline__ void put_sums(const result &to, sums &c)
{
    const int lane = threadIdx.x % LT_WARP, warp = threadIdx.x / LT_WARP;
    const int row0 = warp / 2 * 64 + lane / 4, column0 = warp % 2 * 64 + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < 8; n++) {
        const int64_t column = column0 + n * 8;
        float bias[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < 2; i++)
            if (to.bias && column + i < to.cols)
                bias[i] = to.bias_type == F32 ? ((const float *)to.bias)[column + i]
                                              : float_of_bits((uint32_t)((const bf16 *)to.bias)[column + i] << 16);
#pragma unroll
        for (int m = 0; m < 8; m++) {
            const int64_t row = row0 + m * 8;
            float v[2] = {c[m / 2][n][m % 2 * 2] + bias[0], c[m / 2][n][m % 2 * 2 + 1] + bias[1]}, one[1];
            if (row >= to.rows || column >= to.cols)
                continue;
            if (to.pairs) {
                put<2, T>(to, row * to.ld + column, v);
                continue;
            }
            one[0] = v[0];
            put<1, T>(to, row * to.ld + column, one);
            one[0] = v[1];
            if (column + 1 < to.cols)
                put<1, T>(to, row * to.ld + column + 1, one);
        }
    }
}

__device__ __forceinline__ void put_tile(const result &to, sums &c)
{
    if (to.type == F32)
        put_sums<float>(to, c);
    else
        put_sums<bf16>(to, c);
}

} // namespace

#endif
