/* Memory of the context: arguments of instructions, bytes of the arenas. */
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

enum status exec_fill(const struct exec_context *x, enum tier t, int64_t at, int byte, int64_t bytes)
{
    if (t == TIER_DEVICE)
        return backend_status(x->backend, x->backend->fill(x->backend, x->backend->base + at, byte, bytes));
    memset(x->host + at, byte, (size_t)bytes);
    return OK;
}

enum status exec_read(const struct exec_context *x, enum tier t, int64_t at, void *to, int64_t bytes)
{
    if (t == TIER_DEVICE)
        return backend_status(x->backend, x->backend->read(x->backend, to, x->backend->base + at, bytes));
    memcpy(to, x->host + at, (size_t)bytes);
    return OK;
}

enum status exec_write(const struct exec_context *x, enum tier t, int64_t at, const void *from, int64_t bytes)
{
    if (t == TIER_DEVICE)
        return backend_status(x->backend, x->backend->write(x->backend, x->backend->base + at, from, bytes));
    memcpy(x->host + at, from, (size_t)bytes);
    return OK;
}
