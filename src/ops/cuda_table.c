/* The CUDA kernel table. Matrix multiplication, attention and collectives have no entry (cuda_ops.h). */
#include "ops/cuda_ops.h"

void ops_cuda_kernels(op_kernel *table[OP_COUNT])
{
    table[OP_COPY] = ops_cuda_copy;
    table[OP_FILL] = ops_cuda_fill;
    table[OP_EMBED] = ops_cuda_embed;
    table[OP_EMBED_GRAD] = ops_cuda_embed_grad;
    table[OP_NORM] = ops_cuda_norm;
    table[OP_NORM_GRAD] = ops_cuda_norm_grad;
    table[OP_BIAS] = ops_cuda_bias;
    table[OP_BIAS_GRAD] = ops_cuda_bias_grad;
    table[OP_ADD] = ops_cuda_add;
    table[OP_ROPE] = ops_cuda_rope;
    table[OP_SWIGLU] = ops_cuda_swiglu;
    table[OP_SWIGLU_GRAD] = ops_cuda_swiglu_grad;
    table[OP_GELU] = ops_cuda_gelu;
    table[OP_GELU_GRAD] = ops_cuda_gelu_grad;
    table[OP_ATTN_DELTA] = ops_cuda_attn_delta;
    table[OP_ATTN_MERGE] = ops_cuda_attn_merge;
    table[OP_CAST] = ops_cuda_cast;
    table[OP_LOSS] = ops_cuda_loss;
    table[OP_ACCUM] = ops_cuda_accum;
    table[OP_SUMSQ] = ops_cuda_sumsq;
    table[OP_CLIP] = ops_cuda_clip;
    table[OP_ADAMW] = ops_cuda_adamw;
}
