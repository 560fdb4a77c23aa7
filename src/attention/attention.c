/* Chooses the attention kernels of this machine. */
#include "attention/attention.h"

#include "attention/avx2.h"

#include <omp.h>

int avx2_supported(void)
{
#ifdef ATTN_HAVE_AVX2
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return 0;
#endif
}

int64_t attention_workspace_bytes(enum op_kind kind, const struct op_attrs *attrs, int threads)
{
    threads = threads > 0 ? threads : omp_get_max_threads();
#ifdef ATTN_HAVE_AVX2
    if (avx2_supported())
        return kind == OP_ATTN_FWD ? avx2_forward_workspace(attrs, threads) : avx2_backward_workspace(attrs, threads);
#endif
    return attn_portable_workspace(kind, attrs, threads);
}

void attention_cpu_kernels(op_kernel *table[OP_COUNT])
{
    table[OP_ATTN_FWD] = attn_portable_forward;
    table[OP_ATTN_BWD] = attn_portable_backward;
#ifdef ATTN_HAVE_AVX2
    if (avx2_supported()) {
        table[OP_ATTN_FWD] = avx2_forward;
        table[OP_ATTN_BWD] = avx2_backward;
    }
#endif
}
