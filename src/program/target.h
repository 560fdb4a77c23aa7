/* The backend and device that a program is made for, as far as planning depends on their kernels. */
#ifndef LTRAIN_PROGRAM_TARGET_H
#define LTRAIN_PROGRAM_TARGET_H

#include "program/op.h"

/* A target, which the planner's caller passes (settings.target), so that a plan is a function of its arguments on every machine.
 * Each backend has its own target; for a named machine one is made from that machine's figures. A target outlives the plans. */
struct target {
    /* Returns the bytes that an op needs as its argument `work`; 0: none. members: size of the group, for collectives only. */
    int64_t (*workspace)(const struct target *t, enum op_kind op, const struct op_attrs *attrs, int members);
    int threads; /* number of computing threads, each with scratch of its own if kernels need some */

    /* GPUs only; 0 on CPUs, and on the tests' fake GPU, whose kernels are the CPU's. */
    int capability;       /* 10 * major + minor */
    int processors;       /* streaming multiprocessors */
    int64_t shared_bytes; /* most bytes of shared memory of a block of threads */
    int fast; /* 1: backward attention may add to dq in any order where target_can_be_fast allows; results then differ from run to run */
};

/* Tells whether sm_90a's backward attention takes heads of that dimension (the wider of keys' and values'). That kernel adds to
 * dq in a fixed order at no cost. */
static inline int target_adds_in_order(int capability, int64_t head_dim)
{
    return capability == 90 && head_dim <= 128;
}

/* Tells whether a backward attention can run on kernels of sm_80 that add to dq in any order. shared_bytes: shared memory of the
 * GPU's blocks. There are no such kernels for capped scores, for tiles of 256 columns in 99 KiB, or for wider ones. */
static inline int target_can_be_fast(int capability, int64_t shared_bytes, const struct op_attrs *a)
{
    const int64_t dim = op_wider_dim(a);
    return !target_adds_in_order(capability, dim) && a->attn.cap == 0.0f &&
           (dim <= 128 || (dim <= 256 && shared_bytes >= 163 * 1024));
}

#endif
