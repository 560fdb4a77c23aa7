#include "plan/lower/halves.h"

#include "base/num.h"
#include "base/sys.h"

#include <stdlib.h>
#include <string.h>

/* Rows that lie in a part of a buffer at the cut between the halves. */
struct content {
    struct binding at;
    int64_t bytes;
    int next;          /* next content of the buffer; -1: none */
    int read, written; /* 1: the second half reads them, before it writes them; 1: the second half writes them */
};

struct cutting {
    struct program *p;
    int cut;
    struct content *all;
    int n, room;
    int *first; /* [n_buffers]: first content of a buffer; -1: none */
    int *moved; /* [n_buffers]: a buffer's index in the half; -1: the half lacks the buffer */
};

static enum status out_of_memory(void)
{
    return status_no_memory("while planning");
}

static enum status add_content(struct cutting *x, struct binding at, int64_t bytes)
{
    if (x->n == x->room) {
        const int room = 2 * x->room + 64;
        struct content *all = sys_realloc(x->all, (size_t)room * sizeof *all);
        if (!all)
            return out_of_memory();
        x->all = all;
        x->room = room;
    }
    x->all[x->n] = (struct content){.at = at, .bytes = bytes, .next = x->first[at.buffer]};
    x->first[at.buffer] = x->n++;
    return OK;
}

/* Returns the binding of bytes [from, to) of a content, counted from the content's first byte. */
static struct binding part_of(const struct cutting *x, const struct content *c, int64_t from, int64_t to)
{
    const int64_t row_bytes = x->p->tensors[c->at.tensor].row_bytes;
    struct binding b = c->at;
    b.offset += from;
    b.row0 += from / row_bytes;
    b.row1 = b.row0 + (to - from) / row_bytes;
    return b;
}

/* Takes bytes [begin, end) of a buffer out of its contents. */
static enum status remove_content(struct cutting *x, int buffer, int64_t begin, int64_t end)
{
    for (int *link = &x->first[buffer], i = *link; i >= 0; i = *link) {
        const struct content c = x->all[i];
        const int64_t c0 = c.at.offset, c1 = c.at.offset + c.bytes;
        if (c1 <= begin || c0 >= end) {
            link = &x->all[i].next;
            continue;
        }
        *link = c.next;
        if (c0 < begin)
            TRY(add_content(x, part_of(x, &c, 0, begin - c0), begin - c0));
        if (c1 > end)
            TRY(add_content(x, part_of(x, &c, end - c0, c.bytes), c1 - end));
        link = &x->first[buffer];
    }
    return OK;
}

/* Returns the kind and unit of an operand's rows, as a binding of the whole program has them. */
static struct binding like_bound(const struct program *p, const struct operand *o)
{
    struct binding b = {.kind = BINDING_OTHER, .unit = -1};
    for (int i = 0; i < p->n_live_out; i++)
        if (p->live_out[i].tensor == (int)o->tensor) {
            b = p->live_out[i];
            break;
        }
    return b;
}

static int is_transient(const struct program *p, int buffer)
{
    return buffer >= p->n_persistent;
}

/* Notes the rows that an instruction of the first half writes, as contents of their buffers. */
static enum status note_outputs(struct cutting *x, const struct instr *in)
{
    const struct program *p = x->p;
    for (int k = in->first_operand, first = k; k < in->first_operand + in->n_operands; k++) {
        const struct operand *o = &p->operands[k];
        first = k > first && o->arg == p->operands[first].arg ? first : k;
        if (!(o->access & ACCESS_WRITE))
            continue;
        TRY(remove_content(x, o->buffer, o->offset, o->offset + o->bytes));
        if (o->tensor < 0)
            continue;
        struct binding b = is_transient(p, o->buffer) ? (struct binding){.unit = -1} : like_bound(p, o);
        b.buffer = o->buffer;
        b.tensor = o->tensor;
        b.version = operand_version_after(o);
        b.offset = o->offset;
        b.row0 = o->row0;
        b.row1 = operand_row1(p, o);
        b.extent_offset = p->operands[first].offset;
        b.extent_bytes = 0;
        for (int e = first; e < in->first_operand + in->n_operands && p->operands[e].arg == o->arg; e++)
            b.extent_bytes += p->operands[e].bytes;
        TRY(add_content(x, b, o->bytes));
    }
    return OK;
}

/* Marks the contents that an operand of the second half reads or overwrites. */
static void note_use(struct cutting *x, const struct operand *o)
{
    for (int i = x->first[o->buffer]; i >= 0; i = x->all[i].next) {
        struct content *c = &x->all[i];
        if (c->at.offset >= o->offset + o->bytes || c->at.offset + c->bytes <= o->offset)
            continue;
        c->read |= (o->access & ACCESS_READ) && !c->written;
        c->written |= o->access == ACCESS_WRITE;
    }
}

static enum status find_contents(struct cutting *x)
{
    struct program *p = x->p;
    memset(x->first, 0xff, (size_t)p->n_buffers * sizeof *x->first);
    for (int i = 0; i < p->n_live_in; i++)
        TRY(add_content(x, p->live_in[i],
                        (p->live_in[i].row1 - p->live_in[i].row0) * p->tensors[p->live_in[i].tensor].row_bytes));
    for (int i = 0; i < x->cut; i++)
        TRY(note_outputs(x, &p->instrs[i]));
    for (int k = x->cut < p->n_instrs ? p->instrs[x->cut].first_operand : p->n_operands; k < p->n_operands; k++)
        note_use(x, &p->operands[k]);
    return OK;
}

static int is_saved(const struct cutting *x, int buffer)
{
    int read = 0;
    for (int i = x->first[buffer]; i >= 0 && is_transient(x->p, buffer); i = x->all[i].next)
        read |= x->all[i].read;
    return read;
}

/* Removes the operands and instructions of the other half. */
static void keep_instrs(struct program *p, int cut, enum half half)
{
    const int first = half == HALF_BACKWARD ? cut : 0, end = half == HALF_FORWARD ? cut : p->n_instrs;
    const int from = first < p->n_instrs ? p->instrs[first].first_operand : p->n_operands,
              to = end < p->n_instrs ? p->instrs[end].first_operand : p->n_operands;
    memmove(p->instrs, p->instrs + first, (size_t)(end - first) * sizeof *p->instrs);
    memmove(p->operands, p->operands + from, (size_t)(to - from) * sizeof *p->operands);
    p->n_instrs = end - first;
    p->n_operands = to - from;
    for (int i = 0; i < p->n_instrs; i++)
        p->instrs[i].first_operand -= from;
}

/* Numbers the buffers anew: persistent ones, saved ones, the saved ones of further slots, then the transient ones that the half uses. */
static enum status renumber(struct cutting *x, enum half half, int slots)
{
    struct program *p = x->p;
    const int before = p->n_buffers, persistent = p->n_persistent;
    struct buffer *old = sys_malloc((size_t)before * sizeof *old);
    uint8_t *used = sys_calloc((size_t)before, 1);
    if (!old || !used) {
        free(old);
        free(used);
        return out_of_memory();
    }
    memcpy(old, p->buffers, (size_t)before * sizeof *old);
    for (int k = 0; k < p->n_operands; k++)
        used[p->operands[k].buffer] = 1;
    struct copies *saved = &p->copies[COPIES_SAVED];
    p->n_buffers = saved->first = persistent;
    saved->count = slots;
    for (int b = 0; b < before; b++) {
        x->moved[b] = b < persistent ? b : -1;
        if (!is_saved(x, b))
            continue;
        saved->bytes[old[b].tier] += round_up(old[b].bytes, BUFFER_ALIGN);
        if (half != HALF_BOTH)
            x->moved[b] = program_add_buffer(p, (enum tier)old[b].tier, old[b].bytes, (enum tensor_class)old[b].class, 1);
    }
    saved->n = p->n_buffers - persistent;
    for (int t = 0; t < TIERS && slots > 1; t++)
        if (saved->bytes[t] > 0)
            program_add_buffer(p, (enum tier)t, (slots - 1) * saved->bytes[t], CLASS_ACT, 1);
    p->n_persistent = p->n_buffers;
    for (int b = persistent; b < before; b++)
        if (used[b] && x->moved[b] < 0)
            x->moved[b] = program_add_buffer(p, (enum tier)old[b].tier, old[b].bytes, (enum tensor_class)old[b].class, 0);
    for (int k = 0; k < p->n_operands; k++)
        p->operands[k].buffer = x->moved[p->operands[k].buffer];
    free(old);
    free(used);
    return OK;
}

/* Binds the rows that lie in persistent buffers at the cut: saved rows only if the second half reads them, all others in any case. */
static void bind_at_cut(struct cutting *x, int live_out, int persistent, int before)
{
    struct program *p = x->p;
    *(live_out ? &p->n_live_out : &p->n_live_in) = 0;
    for (int b = 0; b < before; b++)
        for (int i = x->first[b]; i >= 0 && x->moved[b] >= 0; i = x->all[i].next) {
            struct binding at = x->all[i].at;
            if (b >= persistent && (x->moved[b] >= persistent + p->copies[COPIES_SAVED].n || !x->all[i].read))
                continue;
            at.buffer = x->moved[b];
            program_add_binding(p, live_out, at);
        }
}

enum status halves_take(struct program *p, int cut, enum half half, int slots)
{
    struct cutting x = {.p = p, .cut = cut};
    const int persistent = p->n_persistent, before = p->n_buffers;
    x.first = sys_malloc((size_t)(p->n_buffers + 1) * sizeof *x.first);
    x.moved = sys_malloc((size_t)(p->n_buffers + 1) * sizeof *x.moved);
    enum status st = x.first && x.moved ? OK : out_of_memory();
    if (st == OK)
        st = find_contents(&x);
    if (st == OK) {
        keep_instrs(p, cut, half);
        st = renumber(&x, half, slots);
    }
    if (st == OK && half != HALF_BOTH)
        bind_at_cut(&x, half == HALF_FORWARD, persistent, before);
    free(x.first);
    free(x.moved);
    free(x.all);
    return st;
}
