/* The entries of cuda_attention.h: checks, and the choice between sm_90a and sm_80 kernels. */
#include "attention/cuda_kernels.h"

enum status attention_cuda_forward(const struct op_attrs *attrs, void *const *arg, const struct attn_cuda *cuda,
                                   struct CUstream_st *stream)
{
    TRY(attention_cuda_check(attrs, cuda));
    TRY(attention_cuda_check_addresses(OP_ATTN_FWD, arg));
    return attention_cuda_on_sm90(OP_ATTN_FWD, attrs, cuda) ? attn_sm90_forward(attrs, arg, cuda, stream)
                                                            : attn_sm80_forward(attrs, arg, cuda, stream);
}

enum status attention_cuda_backward(const struct op_attrs *attrs, void *const *arg, const struct attn_cuda *cuda,
                                    struct CUstream_st *stream)
{
    TRY(attention_cuda_check(attrs, cuda));
    TRY(attention_cuda_check_addresses(OP_ATTN_BWD, arg));
    return attention_cuda_on_sm90(OP_ATTN_BWD, attrs, cuda) ? attn_sm90_backward(attrs, arg, cuda, stream)
                                                            : attn_sm80_backward(attrs, arg, cuda, stream);
}
