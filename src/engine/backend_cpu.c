/* CPUs as devices: all work is done when a call returns. */
#include "engine/backend_cpu.h"

#include "attention/attention.h"
#include "base/sys.h"
#include "comm/comm.h"
#include "device/copy.h"
#include "device/cpu_stream.h"
#include "offload/arena.h"
#include "ops/ops.h"
#include "recurrence/recurrence.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

struct cpu {
    struct backend b;
    struct arena *arena;
    struct copy_link link;
    struct cpu_stream stream;
};

static struct cpu *cpu_of(const struct backend *b)
{
    return b->state;
}

static enum status allocate(struct backend *b, int64_t bytes)
{
    struct cpu *c = cpu_of(b);
    TRY(arena_create("device arena", bytes, ARENA_PLAIN, &c->arena));
    b->base = arena_base(c->arena);
    b->bytes = bytes;
    b->host_bytes = arena_bytes(c->arena);
    return OK;
}

static enum status check(const struct backend *b)
{
    return arena_check(cpu_of(b)->arena);
}

static void close_cpu(struct backend *b)
{
    arena_destroy(cpu_of(b)->arena);
    free(cpu_of(b));
}

static enum status enter(struct backend *b)
{
    omp_set_num_threads(b->target.threads);
    return OK;
}

static void may_stop(struct backend *b, const atomic_int *stop)
{
    cpu_of(b)->stream.stop = stop;
}

static enum status copy(struct backend *b, enum lane lane, void *dst, const void *src, int64_t bytes)
{
    (void)lane;
    device_copy(&cpu_of(b)->link, dst, src, bytes);
    return OK;
}

static enum status record(struct backend *b, enum lane lane, int event)
{
    (void)b;
    (void)lane;
    (void)event;
    return OK;
}

static enum status query(struct backend *b, enum lane lane, int event, int *done)
{
    *done = 1;
    return record(b, lane, event);
}

static enum status fill(struct backend *b, void *device, int byte, int64_t bytes)
{
    (void)b;
    memset(device, byte, (size_t)bytes);
    return OK;
}

static enum status read_bytes(struct backend *b, void *host, const void *device, int64_t bytes)
{
    (void)b;
    memcpy(host, device, (size_t)bytes);
    return OK;
}

static enum status write_bytes(struct backend *b, void *device, const void *host, int64_t bytes)
{
    (void)b;
    memcpy(device, host, (size_t)bytes);
    return OK;
}

static int64_t workspace(const struct target *t, enum op_kind op, const struct op_attrs *attrs, int members)
{
    switch (op) {
    case OP_ATTN_FWD:
    case OP_ATTN_BWD:
        return attention_workspace_bytes(op, attrs, t->threads);
    case OP_SCAN:
    case OP_SCAN_GRAD:
    case OP_SCAN_SUM:
    case OP_SCAN_GRAD_SUM:
        return recurrence_workspace_bytes(op, attrs, t->threads);
    case OP_REDUCE_SCATTER:
    case OP_ALL_REDUCE:
        return comm_workspace_bytes(op, attrs, members);
    default:
        return op_workspace_bytes(op, attrs, t->threads);
    }
}

struct target backend_cpu_target(int threads)
{
    return (struct target){.workspace = workspace, .threads = threads};
}

enum status backend_cpu_kernels(op_kernel *table[OP_COUNT])
{
    TRY(ops_cpu_kernels(table));
    attention_cpu_kernels(table);
    recurrence_cpu_kernels(table);
    return OK;
}

enum status backend_cpu_create(const struct backend_cpu_config *config, struct backend **out)
{
    struct cpu *c = sys_calloc(1, sizeof *c);
    if (!c)
        return status_fail(ERR_NOMEM, "out of memory for the device");
    c->stream.threads = config->threads;
    c->link.late = config->discrete;
    c->link.bytes_per_second = config->discrete ? config->link_bytes_per_second : 0;
    c->b = (struct backend){.name = config->discrete ? "cpu:discrete" : "cpu",
                            .host_reaches = !config->discrete,
                            .target = backend_cpu_target(config->threads),
                            .stream = {[LANE_COMPUTE] = &c->stream},
                            .allocate = allocate,
                            .check = check,
                            .close = close_cpu,
                            .enter = enter,
                            .may_stop = may_stop,
                            .copy = copy,
                            .record = record,
                            .query = query,
                            .wait = record,
                            .fill = fill,
                            .read = read_bytes,
                            .write = write_bytes,
                            .state = c};
    enum status st = backend_cpu_kernels(c->b.kernels);
    if (st != OK) {
        free(c);
        return st;
    }
    *out = &c->b;
    return OK;
}
