/* Instructions, one by one. */
#include "engine/exec_context.h"

#include <string.h>

void *exec_argument(const struct exec_context *x, const struct program *p, const struct instr *in, int arg, int64_t *offset,
                    int64_t *bytes)
{
    void *at = NULL;
    int found = 0;
    *bytes = 0;
    for (int k = 0; k < in->n_operands; k++) {
        const struct operand *o = &p->operands[in->first_operand + k];
        if (o->arg != arg)
            continue;
        const struct buffer *b = &p->buffers[o->buffer];
        *bytes += o->bytes;
        if (found)
            continue;
        found = 1;
        *offset = b->address + o->offset;
        if (b->tier != TIER_NVME)
            at = (b->tier == TIER_DEVICE ? x->backend->base : x->host) + *offset;
    }
    return at;
}

/* Until the lane's stream has done what it was given. */
static enum status join(struct backend *b, enum lane lane)
{
    TRY(b->record(b, lane, 0));
    return b->wait(b, lane, 0);
}

enum status exec_instr(const struct exec_context *x, const struct program *p, const struct instr *in)
{
    const struct op_call *call = program_call(p, in);
    struct backend *b = x->backend;
    int64_t offset[OP_MAX_ARGS], bytes;
    void *arg[OP_MAX_ARGS];
    for (int a = 0; a < OP_MAX_ARGS; a++)
        arg[a] = exec_argument(x, p, in, a, &offset[a], &bytes);
    switch (in->lane) {
    case LANE_READ:
        return store_read(x->store, offset[0], arg[1], call->attrs.copy.bytes);
    case LANE_WRITE:
        return store_write(x->store, offset[1], arg[0], call->attrs.copy.bytes);
    case LANE_H2D:
    case LANE_D2H:
        TRY(b->copy(b, in->lane, arg[1], arg[0], call->attrs.copy.bytes));
        return join(b, in->lane);
    case LANE_HOST:
        return x->host_kernels[in->op](&call->attrs, arg, x->host_stream);
    default:
        TRY(b->kernels[in->op](&call->attrs, arg, b->stream[in->lane]));
        return join(b, in->lane);
    }
}

enum status exec_fill(const struct exec_context *x, enum tier t, int64_t at, int byte, int64_t bytes)
{
    if (t == TIER_DEVICE)
        return x->backend->fill(x->backend, x->backend->base + at, byte, bytes);
    memset(x->host + at, byte, (size_t)bytes);
    return OK;
}

enum status exec_read(const struct exec_context *x, enum tier t, int64_t at, void *to, int64_t bytes)
{
    if (t == TIER_DEVICE)
        return x->backend->read(x->backend, to, x->backend->base + at, bytes);
    memcpy(to, x->host + at, (size_t)bytes);
    return OK;
}

enum status exec_write(const struct exec_context *x, enum tier t, int64_t at, const void *from, int64_t bytes)
{
    if (t == TIER_DEVICE)
        return x->backend->write(x->backend, x->backend->base + at, from, bytes);
    memcpy(x->host + at, from, (size_t)bytes);
    return OK;
}
