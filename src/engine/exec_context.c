/* Executing and submitting single instructions. */
#include "engine/exec_context.h"

#include "base/sys.h"
#include "base/watch.h"
#include "engine/again.h"
#include "engine/exec_keep.h"
#include "engine/scrub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Waits until the lane's stream has done all that was submitted. */
static enum status join(struct backend *b, enum lane lane)
{
    TRY(backend_status(b, b->record(b, lane, 0)));
    return backend_status(b, b->wait(b, lane, 0));
}

static void find_arguments(const struct exec_context *x, const struct program *p, const struct instr *in,
                           int64_t offset[OP_MAX_ARGS], void *arg[OP_MAX_ARGS])
{
    memset(arg, 0, OP_MAX_ARGS * sizeof *arg);
    /* goes backwards, so that the first operand of each argument sets its address last */
    for (int k = in->n_operands - 1; k >= 0; k--) {
        const struct operand *o = &p->operands[in->first_operand + k];
        const struct buffer *b = &p->buffers[o->buffer];
        offset[o->arg] = b->address + o->offset;
        arg[o->arg] = b->tier == TIER_NVME ? NULL : (b->tier == TIER_DEVICE ? x->backend->base : x->host) + offset[o->arg];
    }
}

struct exec_halves exec_halves(const struct exec_context *x, const struct program *p, const struct instr *in)
{
    if (in->op != OP_EXCHANGE && in->op != OP_SHIFT)
        return (struct exec_halves){1, 1};
    const struct op_attrs *a = &program_call(p, in)->attrs;
    return (struct exec_halves){exec_holds(x, a->comm.send_if), exec_holds(x, a->comm.recv_if)};
}

/* Fetches the numbers by which a collective's messages travel: the device has gathered them. */
static enum status fetch_counts(const struct exec_context *x, const struct program *p, const struct instr *in, void **arg)
{
    enum { COUNTS = 2 };
    int64_t offset, bytes;
    const void *device = exec_argument(x, p, in, COUNTS, &offset, &bytes);
    arg[COUNTS] = x->counts;
    return backend_status(x->backend, x->backend->read(x->backend, x->counts, device, bytes));
}

int64_t exec_count_bytes(const struct program *p)
{
    int64_t most = 0;
    for (int i = 0; i < p->n_instrs; i++) {
        const struct instr *in = &p->instrs[i];
        const struct op_attrs *a = &program_call(p, in)->attrs;
        if (op_is_counted(in->op))
            most = max_i64(most, p->group_size[in->lane] * (a->comm.type + 1) * dtype_size(I32));
    }
    return most;
}

static enum status submit_collective(const struct exec_context *x, const struct program *p, const struct instr *in, void **arg)
{
    const struct op_attrs *a = &program_call(p, in)->attrs;
    const struct exec_halves h = exec_halves(x, p, in);
    struct backend *b = x->backend;
    if (!h.send && !h.receive)
        return OK;
    if (op_is_counted(in->op))
        TRY(fetch_counts(x, p, in, arg));
    TRY(backend_status(b, b->collective(b, in->lane, in->op, a, arg, h.send, h.receive)));
    comm_count(x->comm, in->lane, in->op, a, arg, h.send, h.receive);
    return OK;
}

enum status exec_submit(const struct exec_context *x, const struct program *p, const struct instr *in)
{
    const struct op_call *call = program_call(p, in);
    struct backend *b = x->backend;
    int64_t offset[OP_MAX_ARGS];
    void *arg[OP_MAX_ARGS];
    find_arguments(x, p, in, offset, arg);
    if (lane_is_comm(in->lane))
        return submit_collective(x, p, in, arg);
    if (in->lane == LANE_COMPUTE)
        return backend_status(b, b->kernels[in->op](&call->attrs, arg, b->stream[LANE_COMPUTE]));
    return backend_status(b, b->copy(b, in->lane, arg[1], arg[0], call->attrs.copy.bytes));
}

/* Executes one instruction, without checksums. */
static enum status execute(const struct exec_context *x, const struct program *p, const struct instr *in)
{
    const struct op_call *call = program_call(p, in);
    int64_t offset[OP_MAX_ARGS];
    void *arg[OP_MAX_ARGS];
    find_arguments(x, p, in, offset, arg);
    if (in->op == OP_EXPERTS_KEEP)
        return exec_experts_keep(x, in->lane, &call->attrs, arg, offset[3]);
    switch (in->lane) {
    case LANE_READ:
        return store_read(x->store, offset[0], arg[1], call->attrs.copy.bytes);
    case LANE_WRITE:
        return store_write(x->store, offset[1], arg[0], call->attrs.copy.bytes);
    case LANE_HOST:
        return x->host_kernels[in->op](&call->attrs, arg, x->host_stream);
    default:
        TRY(exec_submit(x, p, in));
        return join(x->backend, in->lane);
    }
}

enum status exec_instr(const struct exec_context *x, const struct program *p, const struct instr *in)
{
    TRY(scrub_check_read(x->scrub, p, in));
    scrub_begin_write(x->scrub, p, in);
    if (again_is(x->again, p, in)) {
        TRY(again_before(x->again, x, p, in));
        TRY(execute(x, p, in));
        TRY(again_after(x->again, x, p, in));
    } else {
        TRY(execute(x, p, in));
    }
    scrub_end_write(x->scrub, p, in);
    return OK;
}

/* Fills the device bytes that the instruction reads or returns with zeros; the row numbers of OP_SCATTER, which must differ, with -1:
 * none. Scratch, up to 32 MiB a product, keeps what is there. */
static enum status clear_operands(const struct exec_context *x, const struct program *p, const struct instr *in)
{
    const struct op_attrs *attrs = &program_call(p, in)->attrs;
    for (int k = 0; k < in->n_operands; k++) {
        const struct operand *o = &p->operands[in->first_operand + k];
        const struct buffer *b = &p->buffers[o->buffer];
        const int byte = in->op == OP_SCATTER && o->arg == 2 ? 0xff : 0;
        if (b->tier == TIER_DEVICE && op_arg_use(in->op, o->arg, attrs) != ARG_WORK)
            TRY(exec_fill(x, TIER_DEVICE, b->address + o->offset, byte, o->bytes));
    }
    return OK;
}

/* Runs a kernel call once before the first step, watched: a kernel that never ends is found here. */
static enum status prepare_instruction(const struct exec_context *x, const struct program *p, int i)
{
    const struct instr *in = &p->instrs[i];
    struct backend *b = x->backend;
    int64_t offset[OP_MAX_ARGS];
    void *arg[OP_MAX_ARGS];
    char what[320];
    snprintf(what, sizeof what, "%s has not finished %s, which is run once before the first step (instruction %d of program %s),",
             b->name, op_name(in->op), i, p->name);
    find_arguments(x, p, in, offset, arg);
    const int handle = watch_enter(&(struct watch_call){.fd = -1, .path = what, .device = 1});
    enum status st = clear_operands(x, p, in);
    if (st == OK)
        st = backend_status(b, b->prepare(b, in->op, &program_call(p, in)->attrs, arg));
    watch_leave(handle);
    return st;
}

/* Ops and alignments of operands with which a call was prepared: ops with equal work share calls, and kernels are chosen by
 * alignments, too. */
struct alignments {
    uint32_t of[16];
    int n;
};

/* Returns the op, with a bit for each operand that does not begin at a multiple of 16 bytes, the widest load of a kernel. */
static uint32_t find_alignment(const struct exec_context *x, const struct program *p, const struct instr *in)
{
    int64_t offset[OP_MAX_ARGS];
    void *arg[OP_MAX_ARGS];
    uint32_t bits = (uint32_t)in->op << OP_MAX_ARGS;
    _Static_assert(OP_MAX_ARGS + 8 <= 32, "an op and a bit for each operand");
    find_arguments(x, p, in, offset, arg);
    for (int k = 0; k < OP_MAX_ARGS; k++)
        bits |= (uint32_t)((uintptr_t)arg[k] % 16 != 0) << k;
    return bits;
}

/* Notes that a call is prepared with an alignment. Returns 0 if it was before, or if there is no room to note it. */
static int note_alignment(struct alignments *a, uint32_t bits)
{
    for (int i = 0; i < a->n; i++)
        if (a->of[i] == bits)
            return 0;
    if (a->n == 16)
        return 0;
    a->of[a->n++] = bits;
    return 1;
}

enum status exec_prepare(const struct exec_context *x, const struct program *p)
{
    enum status st = OK;
    if (!x->backend->prepare)
        return OK;
    struct alignments *prepared = sys_calloc((size_t)p->n_calls + 1, sizeof *prepared);
    if (!prepared)
        return status_fail(ERR_NOMEM, "out of memory while kernels are prepared");
    for (int i = 0; i < p->n_instrs && st == OK; i++) {
        const struct instr *in = &p->instrs[i];
        if (in->lane == LANE_COMPUTE && note_alignment(&prepared[in->call], find_alignment(x, p, in)))
            st = prepare_instruction(x, p, i);
    }
    free(prepared);
    return st;
}
