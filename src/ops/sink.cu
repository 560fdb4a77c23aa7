/* Attention sinks: not on GPUs so far. */
#include "ops/cuda_vec.cuh"

enum status ops_cuda_attn_sink(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    (void)attrs, (void)arg, (void)stream;
    return status_fail(ERR_INVALID, "attn_sink on cuda: attention sinks are computed on the CPU only so far");
}

enum status ops_cuda_attn_sink_grad(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    (void)attrs, (void)arg, (void)stream;
    return status_fail(ERR_INVALID, "attn_sink_grad on cuda: attention sinks are computed on the CPU only so far");
}
