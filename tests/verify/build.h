/* Writes small programs by hand. */
#ifndef LTRAIN_TESTS_PROGRAM_BUILD_H
#define LTRAIN_TESTS_PROGRAM_BUILD_H

#include "program/program.h"

static inline struct program *build_begin(const char *name, int64_t device, int64_t host, int64_t nvme)
{
    struct program *p = NULL;
    if (program_create(name, &p) != OK)
        return NULL;
    p->arena[TIER_DEVICE] = device;
    p->arena[TIER_HOST] = host;
    p->arena[TIER_NVME] = nvme;
    p->discrete = 1;
    return p;
}

static inline int build_buffer(struct program *p, enum tier t, int64_t address, int64_t bytes, int persistent)
{
    int b = program_add_buffer(p, t, bytes, CLASS_ACT, persistent);
    p->buffers[b].address = address;
    return b;
}

/* Adds an operand: rows [row0, row1) of a tensor, at `offset` of a buffer. An update turns `version` into version + 1. */
static inline void build_operand(struct program *p, int arg, enum access access, int buffer, int64_t offset, int tensor,
                                 int version, int64_t row0, int64_t row1)
{
    struct operand o = {.arg = (uint32_t)arg,
                        .access = access,
                        .buffer = buffer,
                        .tensor = tensor,
                        .version = version,
                        .offset = offset,
                        .row0 = row0};
    o.bytes = tensor >= 0 ? (row1 - row0) * p->tensors[tensor].row_bytes : row1 - row0;
    program_add_operand(p, o);
}

/* Adds a copy of rows [row0, row1) from offset `from` of one buffer to offset `to` of another. */
static inline void build_copy(struct program *p, enum lane lane, int src, int64_t from, int dst, int64_t to, int tensor,
                              int version, int64_t row0, int64_t row1)
{
    program_add_instr(p, OP_COPY, lane);
    build_operand(p, 0, ACCESS_READ, src, from, tensor, version, row0, row1);
    build_operand(p, 1, ACCESS_WRITE, dst, to, tensor, version, row0, row1);
}

/* Makes the last instruction wait for the instruction with that ticket on `lane`. */
static inline void build_wait(struct program *p, enum lane lane, int64_t ticket)
{
    program_add_wait(p, p->n_instrs - 1, (struct wait){lane, (int32_t)ticket});
}

/* Adds a binding; on nvme, its rows become a separate extent. */
static inline void build_bind(struct program *p, int live_out, int buffer, int64_t offset, int tensor, int version, int64_t row0,
                              int64_t row1)
{
    struct binding b = {.buffer = buffer, .tensor = tensor, .version = version, .offset = offset, .row0 = row0, .row1 = row1};
    b.extent_offset = offset;
    b.extent_bytes = (row1 - row0) * p->tensors[tensor].row_bytes;
    program_add_binding(p, live_out, b);
}

#endif
