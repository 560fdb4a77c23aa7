/* Loading runs of N elements from their storage type into fp32 registers, and the element-wise kernels built on that. Private to
 * src/ops.
 *
 * A thread takes 16 bytes of the narrowest operand at a time if every operand is aligned to 16 bytes, else one element. An
 * element-wise op is a struct of pointers with a method that computes N elements. __restrict__ is absent on purpose: an output
 * may be an input's own memory, element for element. */
#ifndef LTRAIN_OPS_CUDA_VEC_CUH
#define LTRAIN_OPS_CUDA_VEC_CUH

#include "device/cuda/launch.cuh"
#include "ops/cuda_ops.h"

#include <cuda_bf16.h>
#include <initializer_list>
#include <math.h>
#include <string.h>

namespace
{

constexpr int THREADS = 256;

/* Gives the elements per thread: 16 bytes of T. */
template <typename T> constexpr int WIDTH = 16 / (int)sizeof(T);

__device__ __forceinline__ float float_of_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}

__device__ __forceinline__ uint32_t bf16_pair(float low, float high)
{
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    uint32_t u;
    memcpy(&u, &pair, 4);
    return u;
}

template <int N> __device__ __forceinline__ void load(float (&out)[N], const float *p)
{
    if constexpr (N % 4 == 0) {
#pragma unroll
        for (int q = 0; q < N / 4; q++) {
            float4 v = reinterpret_cast<const float4 *>(p)[q];
            out[4 * q] = v.x;
            out[4 * q + 1] = v.y;
            out[4 * q + 2] = v.z;
            out[4 * q + 3] = v.w;
        }
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            out[i] = p[i];
    }
}

/* Unpacks four bf16 from two words. */
__device__ __forceinline__ void unpack(float *out, uint32_t low, uint32_t high)
{
    out[0] = float_of_bits(low << 16);
    out[1] = float_of_bits(low & 0xffff0000u);
    out[2] = float_of_bits(high << 16);
    out[3] = float_of_bits(high & 0xffff0000u);
}

template <int N> __device__ __forceinline__ void load(float (&out)[N], const bf16 *p)
{
    if constexpr (N % 8 == 0) {
#pragma unroll
        for (int q = 0; q < N / 8; q++) {
            uint4 v = reinterpret_cast<const uint4 *>(p)[q];
            unpack(out + 8 * q, v.x, v.y);
            unpack(out + 8 * q + 4, v.z, v.w);
        }
    } else if constexpr (N == 4) {
        uint2 v = *reinterpret_cast<const uint2 *>(p);
        unpack(out, v.x, v.y);
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            out[i] = float_of_bits((uint32_t)p[i] << 16);
    }
}

/* Stores to global memory. __stwb is a plain store, but one instruction: nvcc splits vectors that are stored on a condition. */
template <int N> __device__ __forceinline__ void store(float *p, const float (&in)[N])
{
    if constexpr (N % 4 == 0) {
#pragma unroll
        for (int q = 0; q < N / 4; q++)
            __stwb(reinterpret_cast<float4 *>(p) + q, make_float4(in[4 * q], in[4 * q + 1], in[4 * q + 2], in[4 * q + 3]));
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            p[i] = in[i];
    }
}

template <int N> __device__ __forceinline__ void store(bf16 *p, const float (&in)[N])
{
    if constexpr (N % 8 == 0) {
#pragma unroll
        for (int q = 0; q < N / 8; q++) {
            const float *f = in + 8 * q;
            __stwb(reinterpret_cast<uint4 *>(p) + q,
                   make_uint4(bf16_pair(f[0], f[1]), bf16_pair(f[2], f[3]), bf16_pair(f[4], f[5]), bf16_pair(f[6], f[7])));
        }
    } else if constexpr (N == 4) {
        *reinterpret_cast<uint2 *>(p) = make_uint2(bf16_pair(in[0], in[1]), bf16_pair(in[2], in[3]));
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            p[i] = (bf16)bf16_pair(in[i], 0.0f);
    }
}

__device__ __forceinline__ float sigmoid(float x)
{
    return __fdividef(1.0f, 1.0f + expf(-x)); /* error: 2 ulp; 0 where exp overflows */
}

template <typename OP, int N> __global__ void __launch_bounds__(THREADS) each_element(OP op, int64_t n)
{
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * N;
    if (i + N <= n) {
        op.template run<N>(i);
    } else {
        for (; i < n; i++)
            op.template run<1>(i);
    }
}

/* Calls op.run<N>(row, j) for every run of N columns of every row. blockDim.x threads share a row, blockDim.y rows share a block. */
template <typename OP, int N> __global__ void __launch_bounds__(THREADS) each_of_rows(OP op, int64_t rows, int64_t dim)
{
    int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows)
        return;
    int64_t j = (int64_t)threadIdx.x * N;
    for (; j + N <= dim; j += (int64_t)blockDim.x * N)
        op.template run<N>(row, j);
    for (; j < dim; j++) /* only the thread whose run crosses the end has elements left */
        op.template run<1>(row, j);
}

inline bool aligned_to_vectors(std::initializer_list<const void *> operands)
{
    uintptr_t bits = 0;
    for (const void *p : operands)
        bits |= (uintptr_t)p;
    return bits % 16 == 0;
}

inline int64_t blocks_of(int64_t work, int64_t per_block)
{
    return (work + per_block - 1) / per_block;
}

/* Returns the number of threads for one row of `runs` runs of elements: a power of two from 1 to THREADS. */
inline unsigned row_threads(int64_t runs)
{
    unsigned threads = 1;
    while (threads < THREADS && threads < runs)
        threads *= 2;
    return threads;
}

template <int N, typename OP> enum status launch_elements(OP op, int64_t n, bool vectors, void *stream)
{
    if (n <= 0)
        return OK;
    if (vectors)
        return launch(dim3((unsigned)blocks_of(n, THREADS * N)), dim3(THREADS), 0, stream, each_element<OP, N>, op, n);
    return launch(dim3((unsigned)blocks_of(n, THREADS)), dim3(THREADS), 0, stream, each_element<OP, 1>, op, n);
}

template <int N, typename OP> enum status launch_rows(OP op, int64_t rows, int64_t dim, bool vectors, void *stream)
{
    if (rows <= 0 || dim <= 0)
        return OK;
    vectors = vectors && dim % N == 0;
    unsigned x = row_threads(blocks_of(dim, vectors ? N : 1)), y = THREADS / x;
    dim3 grid((unsigned)blocks_of(rows, y)), block(x, y);
    if (vectors)
        return launch(grid, block, 0, stream, each_of_rows<OP, N>, op, rows, dim);
    return launch(grid, block, 0, stream, each_of_rows<OP, 1>, op, rows, dim);
}

/* Copies y[row, j] = x[row, j], in any types; rows lie y_ld and x_ld elements apart. */
template <typename Y, typename X> struct copy_columns {
    Y *y;
    const X *x;
    int64_t y_ld, x_ld;
    template <int N> __device__ __forceinline__ void run(int64_t row, int64_t j) const
    {
        float v[N];
        load<N>(v, x + row * x_ld + j);
        store<N>(y + row * y_ld + j, v);
    }
};

template <typename Y, typename X>
enum status launch_columns(const copy_columns<Y, X> &op, int64_t rows, int64_t cols, void *stream)
{
    const bool vectors = aligned_to_vectors({op.y, op.x}) && op.y_ld % WIDTH<Y> == 0 && op.x_ld % WIDTH<X> == 0;
    return launch_rows<8>(op, rows, cols, vectors, stream);
}

} // namespace

/* Refuses a dtype that is no storage type of kernels (ERR_INVALID). */
static inline enum status check_storage(const char *op, int32_t dtype)
{
    if (dtype == F32 || dtype == BF16)
        return OK;
    return status_fail(ERR_INVALID, "%s on cuda: dtype %d is neither F32 nor BF16", op, (int)dtype);
}

#endif
