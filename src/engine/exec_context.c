/* Instructions, one by one. */
#include "engine/exec_context.h"

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
            at = (b->tier == TIER_DEVICE ? x->device : x->host) + *offset;
    }
    return at;
}

enum status exec_instr(const struct exec_context *x, const struct program *p, const struct instr *in)
{
    const struct op_call *call = program_call(p, in);
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
        device_copy(&x->link, arg[1], arg[0], call->attrs.copy.bytes);
        return OK;
    default:
        x->kernels[in->op](&call->attrs, arg);
        return OK;
    }
}
