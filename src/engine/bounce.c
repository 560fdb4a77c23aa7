/* Bounce buffers: each comm lane has one part, since it has one instruction under way at a time. */
#include "engine/bounce.h"

#include "base/sys.h"
#include "offload/arena.h"

#include <stdlib.h>

#define ALIGN 64

struct bounce {
    struct arena *arena;
    int64_t first[COMM_LANES]; /* offset of each lane's part in the arena */
};

/* An instruction's argument that lies on the device. */
struct passage {
    int arg;
    char *device;
    int64_t at, bytes; /* `at`: offset in the lane's part */
};

/* Finds the instruction's arguments that lie on the device and returns their number. *total: their bytes with alignment. */
static int passages(const struct exec_context *x, const struct program *p, const struct instr *in,
                    struct passage out[OP_MAX_ARGS], int64_t *total)
{
    int n = 0;
    *total = 0;
    for (int a = 0; a < op_arg_count(in->op); a++) {
        int64_t offset, bytes;
        char *at = exec_argument(x, p, in, a, &offset, &bytes);
        if (!at || at < x->backend->base || at >= x->backend->base + x->backend->bytes)
            continue;
        out[n++] = (struct passage){a, at, *total, bytes};
        *total += round_up(bytes, ALIGN);
    }
    return n;
}

/* Returns the total that passages() would give, from the program's tiers instead of addresses. */
static int64_t bytes_of(const struct program *p, const struct instr *in)
{
    int64_t total = 0;
    for (int a = 0; a < op_arg_count(in->op); a++) {
        int64_t bytes = 0;
        for (int k = 0; k < in->n_operands; k++) {
            const struct operand *o = &p->operands[in->first_operand + k];
            bytes += o->arg == a && p->buffers[o->buffer].tier == TIER_DEVICE ? o->bytes : 0;
        }
        total += round_up(bytes, ALIGN);
    }
    return total;
}

/* Assigns each lane its part, beginning at first[lane]. Returns the bytes of all parts. */
static int64_t divide(struct program *const *programs, int n, int64_t first[COMM_LANES])
{
    int64_t most[COMM_LANES] = {0}, bytes = 0;
    for (int k = 0; k < n; k++)
        for (int i = 0; programs[k] && i < programs[k]->n_instrs; i++) {
            const struct instr *in = &programs[k]->instrs[i];
            if (lane_is_comm(in->lane))
                most[in->lane - LANE_WORLD] = max_i64(most[in->lane - LANE_WORLD], bytes_of(programs[k], in));
        }
    for (int l = 0; l < COMM_LANES; l++) {
        first[l] = bytes;
        bytes += most[l];
    }
    return bytes;
}

int64_t bounce_bytes(struct program *const *programs, int n)
{
    int64_t first[COMM_LANES];
    return divide(programs, n, first);
}

enum status bounce_create(const struct exec_context *x, struct program *const *programs, int n, struct bounce **out)
{
    struct backend *backend = x->backend;
    struct bounce *b = sys_calloc(1, sizeof *b);
    if (!b)
        return status_fail(ERR_NOMEM, "out of memory for what ranks send");
    const int64_t bytes = divide(programs, n, b->first);
    enum status st = arena_create("bounce buffers", bytes, ARENA_PLACED, &b->arena);
    if (st == OK)
        st = backend_status(backend, backend->pin(backend, arena_base(b->arena), bytes));
    *out = b; /* the arena is set even on failure: memory stays pinned until the backend is closed */
    return st;
}

void bounce_destroy(struct bounce *b)
{
    if (!b)
        return;
    arena_destroy(b->arena);
    free(b);
}

/* Waits until the submitted copies are done. */
static enum status settle(struct backend *b)
{
    TRY(backend_status(b, b->record(b, LANE_WORLD, 0)));
    return backend_status(b, b->wait(b, LANE_WORLD, 0));
}

enum status bounce_in(const struct exec_context *x, const struct program *p, const struct instr *in, int sends,
                      void *arg[OP_MAX_ARGS])
{
    struct passage pass[OP_MAX_ARGS];
    struct backend *b = x->backend;
    int64_t total;
    int copied = 0;
    char *own = (char *)arena_base(x->bounce->arena) + x->bounce->first[in->lane - LANE_WORLD];
    for (int k = 0, n = passages(x, p, in, pass, &total); k < n; k++) {
        const enum op_use use = op_arg_use(in->op, pass[k].arg, &program_call(p, in)->attrs);
        arg[pass[k].arg] = own + pass[k].at;
        if (!sends || (use != ARG_IN && use != ARG_INOUT))
            continue;
        TRY(backend_status(b, b->copy(b, LANE_WORLD, own + pass[k].at, pass[k].device, pass[k].bytes)));
        copied = 1;
    }
    return copied ? settle(b) : OK;
}

enum status bounce_out(const struct exec_context *x, const struct program *p, const struct instr *in, int receives)
{
    struct passage pass[OP_MAX_ARGS];
    struct backend *b = x->backend;
    int64_t total;
    int copied = 0;
    const char *own = (const char *)arena_base(x->bounce->arena) + x->bounce->first[in->lane - LANE_WORLD];
    for (int k = 0, n = passages(x, p, in, pass, &total); k < n && receives; k++) {
        const enum op_use use = op_arg_use(in->op, pass[k].arg, &program_call(p, in)->attrs);
        if (use != ARG_OUT && use != ARG_INOUT)
            continue;
        TRY(backend_status(b, b->copy(b, LANE_WORLD, pass[k].device, own + pass[k].at, pass[k].bytes)));
        copied = 1;
    }
    return copied ? settle(b) : OK;
}
