/* Finding the instructions on which the state at a program's end depends, from its end backwards. */
#include "program/updates.h"

#include "base/sys.h"

#include <stdlib.h>

static int is_state(enum binding_kind r)
{
    return r == BINDING_PARAM || r == BINDING_MASTER || r == BINDING_M || r == BINDING_V;
}

static int touches(const struct program *p, const struct instr *in, const uint8_t *needed, enum access how)
{
    for (int k = 0; k < in->n_operands; k++) {
        const struct operand *o = &p->operands[in->first_operand + k];
        if ((o->access & how) && needed[o->buffer])
            return 1;
    }
    return 0;
}

/* Follows whole buffers, not bytes: every earlier write into a buffer that a marked instruction reads is marked. */
enum status updates_mark(const struct program *p, uint8_t *mark, int *n)
{
    uint8_t *needed = sys_calloc((size_t)p->n_buffers + 1, sizeof *needed);
    if (!needed)
        return status_fail(ERR_NOMEM, "out of memory for the program %s", p->name);
    for (int i = 0; i < p->n_live_out; i++)
        if (is_state((enum binding_kind)p->live_out[i].kind))
            needed[p->live_out[i].buffer] = 1;
    *n = 0;
    for (int i = p->n_instrs - 1; i >= 0; i--) {
        const struct instr *in = &p->instrs[i];
        mark[i] = (uint8_t)touches(p, in, needed, ACCESS_WRITE);
        *n += mark[i];
        for (int k = 0; mark[i] && k < in->n_operands; k++) {
            const struct operand *o = &p->operands[in->first_operand + k];
            if ((o->access & ACCESS_READ) && o->tensor >= 0)
                needed[o->buffer] = 1;
        }
    }
    free(needed);
    return OK;
}
