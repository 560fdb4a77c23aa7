/* Dropout by a counter (ops/dropout.h). */
#include "ops/cuda_vec.cuh"

namespace
{

struct words {
    uint32_t c[4];
};

__device__ __forceinline__ words philox(words b, uint32_t key0, uint32_t key1)
{
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * b.c[0], p1 = (uint64_t)0xCD9E8D57u * b.c[2];
        b = {{(uint32_t)(p1 >> 32) ^ b.c[1] ^ key0, (uint32_t)p1, (uint32_t)(p0 >> 32) ^ b.c[3] ^ key1, (uint32_t)p0}};
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return b;
}

template <typename Y, typename X, bool ADD> struct dropout {
    Y *y;
    const X *x;
    const int32_t *numbers;
    const struct step_record *record;
    int64_t y_ld, x_ld;
    uint32_t first, share, slices, module, threshold;
    float scale;

    __device__ __forceinline__ words words_of(uint32_t feature, int64_t row) const
    {
        return philox({{feature / 4, (uint32_t)numbers[row], module, record->sequence}}, record->dropout[0], record->dropout[1]);
    }

    /* Returns the module's feature in the rank's column 0, as dropout_first does. */
    __device__ __forceinline__ uint32_t first_of_rank() const
    {
        return first + (slices > 0 ? record->member[0] % slices * share : 0);
    }

    /* Applies dropout to N numbers, from `feature` on; if N > 1, the first number begins a group of four. */
    template <int N> __device__ __forceinline__ void drop(float (&v)[N], uint32_t feature, int64_t row) const
    {
        if constexpr (N == 1) {
            const words w = words_of(feature, row);
            const uint32_t low = feature % 2 ? w.c[1] : w.c[0], high = feature % 2 ? w.c[3] : w.c[2];
            v[0] = (feature % 4 / 2 ? high : low) >= threshold ? __fmul_rn(scale, v[0]) : 0.0f;
        } else {
#pragma unroll
            for (int q = 0; q < N; q += 4) {
                const words w = words_of(feature + q, row);
#pragma unroll
                for (int k = 0; k < 4; k++)
                    v[q + k] = w.c[k] >= threshold ? __fmul_rn(scale, v[q + k]) : 0.0f;
            }
        }
    }

    template <int N> __device__ __forceinline__ void run(int64_t row, int64_t j) const
    {
        float v[N];
        load<N>(v, x + row * x_ld + j);
        drop<N>(v, first_of_rank() + (uint32_t)j, row);
        if constexpr (ADD) {
            float sum[N];
            load<N>(sum, y + row * y_ld + j);
#pragma unroll
            for (int k = 0; k < N; k++)
                v[k] = __fadd_rn(sum[k], v[k]);
        }
        store<N>(y + row * y_ld + j, v);
    }
};

template <typename Y, typename X, bool ADD> enum status run_dropout(const struct op_attrs *a, void *const *arg, void *stream)
{
    constexpr int N = WIDTH < Y >> WIDTH<X> ? WIDTH<Y> : WIDTH<X>;
    const dropout<Y, X, ADD> op = {
        (Y *)arg[0],       (const X *)arg[1], (const int32_t *)arg[2], (const struct step_record *)arg[3],
        a->dropout.y_ld,   a->dropout.x_ld,   a->dropout.first,        a->dropout.share,
        a->dropout.slices, a->dropout.module, a->dropout.threshold,    a->dropout.scale};
    const bool vectors =
        aligned_to_vectors({op.y, op.x}) && op.y_ld % N == 0 && op.x_ld % N == 0 && op.first % 4 == 0 && op.share % 4 == 0;
    return launch_rows<N>(op, a->dropout.rows, a->dropout.cols, vectors, stream);
}

template <typename T> enum status run_either(const struct op_attrs *a, void *const *arg, void *stream)
{
    return a->dropout.accumulate ? run_dropout<T, float, true>(a, arg, stream) : run_dropout<T, T, false>(a, arg, stream);
}

} // namespace

enum status ops_cuda_dropout(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    TRY(check_storage("dropout", attrs->dropout.dtype));
    return attrs->dropout.dtype == BF16 ? run_either<bf16>(attrs, arg, stream) : run_either<float>(attrs, arg, stream);
}
