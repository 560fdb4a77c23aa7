/* The two implementations behind attention.h: a portable one, which is also the reference in tests, and one for AVX2 + FMA. */
#ifndef LTRAIN_ATTENTION_KERNELS_H
#define LTRAIN_ATTENTION_KERNELS_H

#include "attention/attention.h"

#define ATTN_ALIGN 64 /* of every scratch area; the kernels align `work` themselves */

int64_t attn_portable_workspace(enum op_kind kind, const struct op_attrs *attrs, int threads);
void attn_portable_forward(const struct op_attrs *attrs, void *const *arg);
void attn_portable_backward(const struct op_attrs *attrs, void *const *arg);

/* Only where avx2_supported(). */
int avx2_supported(void);
int64_t avx2_forward_workspace(const struct op_attrs *attrs, int threads);
int64_t avx2_backward_workspace(const struct op_attrs *attrs, int threads);
void avx2_forward(const struct op_attrs *attrs, void *const *arg);
void avx2_backward(const struct op_attrs *attrs, void *const *arg);

static inline void *attn_align(void *work)
{
    return (void *)(((uintptr_t)work + ATTN_ALIGN - 1) / ATTN_ALIGN * ATTN_ALIGN);
}

#endif
