/* Chooses the attention kernels of this machine. */
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

int64_t attention_workspace_bytes(enum op_kind kind, const struct op_attrs *attrs)
{
    return attention_kernels_for(isa_of_processor()).workspace(kind, attrs);
}

void attention_cpu_kernels(op_kernel *table[OP_COUNT])
{
    const struct attention_kernels k = attention_kernels_for(isa_of_processor());
    table[OP_ATTN_FWD] = k.forward;
    table[OP_ATTN_BWD] = k.backward;
}
