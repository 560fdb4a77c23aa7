/* The kernel that casts a product's operand, as the fake runtime's streams execute it. */
#include "fake.h"
#include "ops/cuda_ops.h"

#include <stdlib.h>
#include <string.h>

struct launch {
    bf16 *dst;
    const float *src;
    int64_t dst_ld, src_ld, rows, cols;
};

static void start(void *closure)
{
    const struct launch *l = closure;
    for (int64_t i = 0; i < l->rows; i++)
        memset(l->dst + i * l->dst_ld, 0xff, (size_t)l->cols * sizeof *l->dst);
}

static cudaError_t end(void *closure)
{
    const struct launch *l = closure;
    for (int64_t i = 0; i < l->rows; i++)
        for (int64_t j = 0; j < l->cols; j++)
            l->dst[i * l->dst_ld + j] = bf16_from_float(l->src[i * l->src_ld + j]);
    return cudaSuccess;
}

static cudaError_t enqueue(const struct launch *l, cudaStream_t stream)
{
    cudaError_t error = fake_enter();
    if (error == cudaSuccess)
        error = fake_load("cast_rows", fake_is_busy_beside(stream));
    if (error != cudaSuccess)
        return error;
    if (!fake_on_device(l->dst, (size_t)(l->dst_ld * (l->rows - 1) + l->cols) * sizeof *l->dst) ||
        !fake_on_device(l->src, (size_t)(l->src_ld * (l->rows - 1) + l->cols) * sizeof *l->src))
        return fake_misuse(cudaErrorIllegalAddress, "a cast leaves its device allocation");
    struct launch *closure = malloc(sizeof *closure);
    if (!closure)
        abort();
    *closure = *l;
    closure->dst = fake_alias(l->dst);
    closure->src = fake_alias(l->src);
    return fake_enqueue(stream, &(struct fake_work){.start = start, .end = end, .closure = closure});
}

enum status ops_cuda_cast_rows(bf16 *dst, int64_t dst_ld, const float *src, int64_t src_ld, int64_t rows, int64_t cols,
                               void *stream)
{
    const struct launch l = {dst, src, dst_ld, src_ld, rows, cols};
    pthread_mutex_lock(&fake_lock);
    const cudaError_t error = enqueue(&l, stream);
    pthread_mutex_unlock(&fake_lock);
    return error == cudaSuccess
               ? OK
               : status_fail(ERR_IO, "kernel cast_rows: %s (%s)", cudaGetErrorString(error), cudaGetErrorName(error));
}
