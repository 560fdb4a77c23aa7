/* Exact tiled attention: no S x S memory, the mask as one interval of keys per query.
 *
 * Layouts (row-major, T = attrs->attn.dtype: F32 or BF16; head_dim and value_dim at most 512 on GPUs, in steps of 8; 1024 elsewhere):
 *   q      T  [sq, hq, head_dim]      dq  F32 [sq, hq, head_dim]
 *   k      T  [sk, hk, head_dim]      dk  F32 [sk, hk, head_dim]
 *   o, do  T  [sq, hq, value_dim]        (o F32 with attrs->attn.o_fp32)
 *   v      T  [sk, hk, value_dim]     dv  F32 [sk, hk, value_dim]
 *   lse       F32 [hq, sq]               lo, hi I32 [sq]
 *   delta     F32 [sq, hq]
 * hq is a multiple of hk; query head i uses key head i / (hq / hk).
 * Query row i attends the keys j of this call with lo[i] <= k0 + j <= hi[i] (global token numbers; both arrays non-decreasing;
 * q0 is the global number of row 0, informative only). A query without keys gives o = 0, lse = -inf, and no gradient; never NaN.
 *   s = scale * q.k, or cap * tanh(scale * q.k / cap) with attrs->attn.cap,  p = exp(s - lse),  o = sum p v,  lse = log sum exp(s)
 * Backward uses p from lse and the given delta = rowsum(do * o) (OP_ATTN_DELTA): FlashAttention-2 (Dao 2023), algorithm 2. dq is
 * written; dk and dv are written, or added to if attrs->attn.accumulate. With the lse and delta of attention over several calls'
 * keys, each call gives its keys' part of the gradients. Deterministic, independent of the number of threads,
 * which is that of the CPU kernels' stream (struct cpu_stream; at least 1). If T is BF16 and the CPU has AMX (isa_has_amx()), p
 * and the scores' gradients are rounded to BF16 for the products that take them, and denormals are zero in products. scale > 0.
 * Sums over keys and queries are made of blocks' sums: at 2^24 keys the CPU's F32 kernels agree with fp64 within 1e-6
 * (tests/attention/test_length.c; cuda_kernels.h says what tensor cores do). */
#ifndef LTRAIN_ATTENTION_ATTENTION_H
#define LTRAIN_ATTENTION_ATTENTION_H

#include "device/kernel.h"

/* Returns the scratch bytes of OP_ATTN_FWD or OP_ATTN_BWD for these attributes and threads. They grow with S x head_dim, not with
 * S x threads: forward has packed K and V of one KV head; backward has packed q, do and dq of one query head (q and do twice with
 * AMX). */
int64_t attention_workspace_bytes(enum op_kind kind, const struct op_attrs *attrs, int threads);

/* Sets table[OP_ATTN_FWD] and table[OP_ATTN_BWD]. Argument order in program/op.h. */
void attention_cpu_kernels(op_kernel *table[OP_COUNT]);

#endif
