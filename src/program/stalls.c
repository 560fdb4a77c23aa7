#include "program/stalls.h"

#include "base/sys.h"

#include <math.h>
#include <stdlib.h>

enum status lane_index_make(const struct program *p, struct lane_index *x)
{
    int n[LANES] = {0}, next[LANES];
    for (int i = 0; i < p->n_instrs; i++)
        n[p->instrs[i].lane]++;
    for (int l = 0, sum = 0; l < LANES; sum += n[l++])
        next[l] = x->first[l] = sum;
    x->at = sys_malloc(sizeof *x->at * (size_t)(p->n_instrs + 1));
    if (!x->at)
        return status_fail(ERR_NOMEM, "out of memory for an index of the program's instructions");
    for (int i = 0; i < p->n_instrs; i++)
        x->at[next[p->instrs[i].lane]++] = i;
    return OK;
}

void lane_index_free(struct lane_index *x)
{
    free(x->at);
    x->at = NULL;
}

enum tensor_class stalls_class(const struct program *p, const struct instr *in)
{
    const struct operand *o = &p->operands[in->first_operand];
    return o->tensor >= 0 ? p->tensors[o->tensor].class : p->buffers[o->buffer].class;
}

static int instr_of(const struct lane_index *x, int lane, int ticket)
{
    return x->at[x->first[lane] + ticket - 1];
}

int stalls_released_by(const struct timeline *t, int i, double *ready)
{
    const struct instr *in = &t->p->instrs[i];
    int last = -1;
    *ready = 0;
    if (in->ticket > 1) {
        last = instr_of(t->index, in->lane, in->ticket - 1);
        struct span before = t->span(t->user, t->p, last);
        *ready = t->submits && lane_is_pipelined((enum lane)in->lane) ? before.start : before.end;
    }
    for (int w = 0; w < in->n_waits; w++) {
        const struct wait *wait = &program_waits(t->p, in)[w];
        int on = instr_of(t->index, wait->lane, wait->ticket);
        double end = t->span(t->user, t->p, on).end;
        if (last >= 0 && end <= *ready)
            continue;
        last = on;
        *ready = end;
    }
    return last;
}

/* Charges a pause of compute [from, to] to the instruction `blame`, and the earlier parts of it to instructions that `blame`
 * itself had to wait for. */
static void charge(const struct timeline *t, double from, double to, int blame, double count, struct stalls *s)
{
    while (blame >= 0 && to > from) {
        const struct instr *in = &t->p->instrs[blame];
        double since = fmin(to, fmax(from, t->span(t->user, t->p, blame).start)), ready;
        if (in->lane != LANE_COMPUTE) {
            enum tensor_class class = stalls_class(t->p, in);
            s->lane[in->lane] += count * (to - since);
            s->class[class] += count * (to - since);
            s->waited[in->lane][class] += count * (to - since);
            s->apart += t->apart && in->unit >= 0 && t->apart[in->unit] ? count * (to - since) : 0;
        }
        to = since;
        blame = stalls_released_by(t, blame, &ready);
    }
}

void stalls_add(const struct timeline *t, double end, double count, struct stalls *s)
{
    double now = 0, latest = 0, ready;
    int last = -1;
    for (int i = 0; i < t->p->n_instrs; i++) {
        struct span at = t->span(t->user, t->p, i);
        if (last < 0 || at.end > latest) {
            last = i;
            latest = at.end;
        }
        if (t->p->instrs[i].lane != LANE_COMPUTE)
            continue;
        int blame = stalls_released_by(t, i, &ready);
        if (ready > now)
            charge(t, now, at.start, blame, count, s);
        now = fmax(now, at.end);
    }
    charge(t, now, end, last, count, s);
}
