/* Summing over ranks on a GPU. */
#include "ops/cuda_vec.cuh"
#include "ops/reduce.h"

namespace
{

__device__ __forceinline__ float rounded(float x, const bf16 *)
{
    return float_of_bits(bf16_pair(x, 0.0f) << 16);
}

__device__ __forceinline__ float rounded(float x, const float *)
{
    return x;
}

template <typename T> struct reduce {
    float *dst;
    const float *own;
    const T *pieces;
    int64_t stride; /* elements */
    int members, me;
    template <int N> __device__ __forceinline__ void run(int64_t i) const
    {
        float sum[N], x[N];
#pragma unroll
        for (int k = 0; k < N; k++)
            sum[k] = -0.0f; /* the zero that changes nothing, not even a sign */
        for (int m = 0; m < members; m++) {
            if (m == me) {
                load<N>(x, own + i);
#pragma unroll
                for (int k = 0; k < N; k++)
                    x[k] = rounded(x[k], pieces);
            } else {
                load<N>(x, pieces + m * stride + i);
            }
#pragma unroll
            for (int k = 0; k < N; k++)
                sum[k] += x[k];
        }
        store<N>(dst + i, sum);
    }
};

template <typename T> enum status run_reduce(const struct reduce_pieces *r, void *stream)
{
    const bool vectors = aligned_to_vectors({r->dst, r->own, r->pieces}) && r->stride % 16 == 0;
    const reduce<T> op = {r->dst, r->own, (const T *)r->pieces, r->stride / (int64_t)sizeof(T), r->members, r->me};
    return launch_elements<WIDTH<T>>(op, r->n, vectors, stream);
}

} // namespace

enum status ops_cuda_reduce(const struct reduce_pieces *r, void *stream)
{
    TRY(check_storage("reduce", r->type));
    return r->type == BF16 ? run_reduce<bf16>(r, stream) : run_reduce<float>(r, stream);
}
