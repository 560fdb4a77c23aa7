/* The kernel that adds what other ranks have sent, as the fake runtime's streams execute it. */
#include "fake.h"
#include "ops/reduce.h"

#include <stdlib.h>
#include <string.h>

static void start(void *closure)
{
    const struct reduce_pieces *r = closure;
    if (r->dst != r->own)
        memset(r->dst, 0xff, (size_t)r->n * sizeof *r->dst);
}

static cudaError_t end(void *closure)
{
    ops_reduce(closure);
    return cudaSuccess;
}

static cudaError_t enqueue(const struct reduce_pieces *r, cudaStream_t stream)
{
    cudaError_t error = fake_enter();
    const size_t piece = (size_t)(r->n * dtype_size((enum dtype)r->type));
    if (error == cudaSuccess)
        error = fake_load(r->type == BF16 ? "reduce of bf16" : "reduce of fp32", fake_is_busy_beside(stream));
    if (error != cudaSuccess)
        return error;
    if (!fake_on_device(r->dst, (size_t)r->n * 4) || !fake_on_device(r->own, (size_t)r->n * 4) ||
        !fake_on_device(r->pieces, (size_t)((r->members - 1) * r->stride) + piece))
        return fake_misuse(cudaErrorIllegalAddress, "a sum leaves its device allocation");
    struct reduce_pieces *closure = malloc(sizeof *closure);
    if (!closure)
        abort();
    *closure = *r;
    closure->dst = fake_alias(r->dst);
    closure->own = fake_alias(r->own);
    closure->pieces = fake_alias(r->pieces);
    return fake_enqueue(stream, &(struct fake_work){.start = start, .end = end, .closure = closure});
}

enum status ops_cuda_reduce(const struct reduce_pieces *r, void *stream)
{
    pthread_mutex_lock(&fake_lock);
    const cudaError_t error = enqueue(r, stream);
    pthread_mutex_unlock(&fake_lock);
    return error == cudaSuccess
               ? OK
               : status_fail(ERR_IO, "kernel reduce: %s (%s)", cudaGetErrorString(error), cudaGetErrorName(error));
}
