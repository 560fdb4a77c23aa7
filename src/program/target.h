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
    int fast;             /* backward attention adds to dq in whatever order, where it can: other bits every time */
};

/* Whether a backward attention can, on a GPU whose blocks have that much shared memory: there are no such kernels of capped scores,
 * none whose tiles of 256 columns fit into 99 KiB, and none of wider ones. */
static inline int target_can_be_fast(int64_t shared_bytes, const struct op_attrs *a)
{
    return a->attn.cap == 0.0f && (op_wider_dim(a) <= 128 || (op_wider_dim(a) <= 256 && shared_bytes >= 163 * 1024));
}

/* Whether a deterministic backward attention of that head dimension (the wider one) and length adds to dq in a fixed order, for which
 * blocks wait, instead of computing it in a kernel of its own. To be settled on a GPU: `tools/gpu-check.sh build bench-attention`
 * times them (backward_apart, backward_in_order, backward_late); the shortest length from which the order won goes here, by head dimension. */
static inline int target_adds_in_order(int capability, int64_t head_dim, int64_t queries)
{
    enum { NEVER = 1 << 30 };
    static const int from[2] = {NEVER, NEVER}; /* up to 64, up to 128 */
    return capability == 90 && head_dim <= 128 && queries >= from[head_dim > 64];
}

#endif
