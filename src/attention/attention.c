/* Choosing the attention kernels of this machine. */
#include "attention/attention.h"

#include "attention/kernels.h"

struct attention_kernels attention_kernels_for(enum isa isa)
{
#ifdef __x86_64__
    if (isa == ISA_AVX512)
        return (struct attention_kernels){avx512_forward, avx512_backward, avx512_workspace};
    if (isa == ISA_AVX2)
        return (struct attention_kernels){avx2_forward, avx2_backward, avx2_workspace};
#endif
    (void)isa;
    return (struct attention_kernels){attn_portable_forward, attn_portable_backward, attn_portable_workspace};
}

/* Returns this CPU's kernels for these attributes. Head sizes that are no multiples of 8 go to the portable kernels, since
 * vectors hold 8 numbers of a head. */
static struct attention_kernels kernels_of(const struct op_attrs *attrs)
{
    if (attrs->attn.head_dim % 8 || op_value_dim(attrs) % 8)
        return attention_kernels_for(ISA_PORTABLE);
#ifdef __x86_64__
    if (attrs->attn.dtype == BF16 && isa_has_amx())
        return (struct attention_kernels){amx_forward, amx_backward, amx_workspace};
#endif
    return attention_kernels_for(isa_of_processor());
}

static enum status forward(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    kernels_of(attrs).forward(attrs, arg, stream);
    return OK;
}

static enum status backward(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    kernels_of(attrs).backward(attrs, arg, stream);
    return OK;
}

int64_t attention_workspace_bytes(enum op_kind kind, const struct op_attrs *attrs, int threads)
{
    return kernels_of(attrs).workspace(kind, attrs, threads);
}

void attention_cpu_kernels(op_kernel *table[OP_COUNT])
{
    table[OP_ATTN_FWD] = forward;
    table[OP_ATTN_BWD] = backward;
}
