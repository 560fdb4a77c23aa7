/* The implementations behind attention.h: a portable one (the tests' reference), one for AVX2 + FMA and for AVX-512, and one for
 * BF16 on AMX. */
#ifndef LTRAIN_ATTENTION_KERNELS_H
#define LTRAIN_ATTENTION_KERNELS_H

#include "attention/attention.h"
#include "base/isa.h"
#include "device/cpu_stream.h"

#define ATTN_ALIGN 64 /* alignment of every scratch area; the kernels align `work` themselves */

int64_t attn_portable_workspace(enum op_kind kind, const struct op_attrs *attrs, int threads);
void attn_portable_forward(const struct op_attrs *attrs, void *const *arg, const struct cpu_stream *stream);
void attn_portable_backward(const struct op_attrs *attrs, void *const *arg, const struct cpu_stream *stream);

/* Runs panels_*.c, compiled for AVX2 and AVX-512: x86-64 only, and only if isa_of_processor() is at least as high. */
int64_t avx2_workspace(enum op_kind kind, const struct op_attrs *attrs, int threads);
void avx2_forward(const struct op_attrs *attrs, void *const *arg, const struct cpu_stream *stream);
void avx2_backward(const struct op_attrs *attrs, void *const *arg, const struct cpu_stream *stream);
int64_t avx512_workspace(enum op_kind kind, const struct op_attrs *attrs, int threads);
void avx512_forward(const struct op_attrs *attrs, void *const *arg, const struct cpu_stream *stream);
void avx512_backward(const struct op_attrs *attrs, void *const *arg, const struct cpu_stream *stream);

/* Runs the AMX kernels: x86-64 only, BF16 only, and only if isa_has_amx(). */
int64_t amx_backward_workspace(const struct op_attrs *attrs, int threads);
int64_t amx_workspace(enum op_kind kind, const struct op_attrs *attrs, int threads);
void amx_forward(const struct op_attrs *attrs, void *const *arg, const struct cpu_stream *stream);
void amx_backward(const struct op_attrs *attrs, void *const *arg, const struct cpu_stream *stream);

/* A deterministic kernel. It ends early if the stream says so (cpu_stops); some results are then not written. */
typedef void attention_kernel(const struct op_attrs *attrs, void *const *arg, const struct cpu_stream *stream);

struct attention_kernels {
    attention_kernel *forward, *backward;
    int64_t (*workspace)(enum op_kind kind, const struct op_attrs *attrs, int threads);
};

/* Returns the kernels for `isa`, of either type; the portable ones if there are none for it. */
struct attention_kernels attention_kernels_for(enum isa isa);

static inline enum dtype attn_o_type(const struct op_attrs *attrs)
{
    return attrs->attn.o_fp32 ? F32 : (enum dtype)attrs->attn.dtype;
}

static inline void *attn_align(void *work)
{
    return (void *)(((uintptr_t)work + ATTN_ALIGN - 1) / ATTN_ALIGN * ATTN_ALIGN);
}

#endif
