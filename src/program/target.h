/* What a program is made for, as far as making it depends on kernels. */
#ifndef LTRAIN_PROGRAM_TARGET_H
#define LTRAIN_PROGRAM_TARGET_H

#include "program/op.h"

/* Whoever plans passes one (settings.target), so that a plan is a function of its arguments on every machine. A backend has its
 * own; a machine that is not here has the one that stands for it. It outlives the plans. */
struct target {
    /* Bytes of an op's argument `work`; 0: it has none. members: of a collective's group; else not looked at. */
    int64_t (*workspace)(const struct target *t, enum op_kind op, const struct op_attrs *attrs, int members);
    int threads; /* that compute, each with scratch of its own where kernels need some */

    /* Of GPUs; 0 of processors, and of a GPU that is none, whose kernels are the processor's (tests). */
    int capability;       /* 10 * major + minor */
    int processors;       /* streaming multiprocessors */
    int64_t shared_bytes; /* that a block of threads may have */
    int fast;             /* backward attention adds to dq in whatever order, where target_can_be_fast: other bits every time */
};

/* Whether sm_90a's backward attention takes heads of that dimension (the wider one of keys and values). It adds to dq in a fixed order,
 * which costs nothing. */
static inline int target_adds_in_order(int capability, int64_t head_dim)
{
    return capability == 90 && head_dim <= 128;
}

/* Whether a backward attention takes sm_80's kernels, and there are some that add to dq in whatever order, for a GPU whose blocks have
 * that much shared memory: there are none of capped scores, none whose tiles of 256 columns fit into 99 KiB, and none of wider ones. */
static inline int target_can_be_fast(int capability, int64_t shared_bytes, const struct op_attrs *a)
{
    const int64_t dim = op_wider_dim(a);
    return !target_adds_in_order(capability, dim) && a->attn.cap == 0.0f && (dim <= 128 || (dim <= 256 && shared_bytes >= 163 * 1024));
}

#endif
