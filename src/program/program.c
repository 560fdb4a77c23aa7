/* Building programs: growing tables, merging operands, numbering, printing. */
#include "program/program.h"

#include "base/sys.h"

#include <stdlib.h>
#include <string.h>

const char *tier_name(enum tier t)
{
    static const char *const names[] = {"device", "host", "nvme"};
    return names[t];
}

const char *lane_name(enum lane l)
{
    static const char *const names[] = {"compute", "h2d", "d2h",     "read", "write", "host",  "world", "ulysses",
                                        "ring",    "ep",  "experts", "tp",   "zero",  "stage", "pp",    "sequence"};
    return names[l];
}

int lane_in_record(enum lane l)
{
    static const signed char at[COMM_LANES] = {[LANE_WORLD - LANE_WORLD] = 0,   [LANE_ULYSSES - LANE_WORLD] = 1,
                                               [LANE_RING - LANE_WORLD] = -1,   [LANE_EP - LANE_WORLD] = 3,
                                               [LANE_EXPERTS - LANE_WORLD] = 4, [LANE_TP - LANE_WORLD] = -1,
                                               [LANE_ZERO - LANE_WORLD] = 2,    [LANE_STAGE - LANE_WORLD] = 5,
                                               [LANE_PP - LANE_WORLD] = -1,     [LANE_SEQUENCE - LANE_WORLD] = -1};
    return at[lane_comm(l)];
}

const char *class_name(enum tensor_class c)
{
    static const char *const names[] = {"parameters", "gradients", "optimizer", "activations", "workspace", "input/output"};
    return names[c];
}

char phase_letter(enum phase f)
{
    static const char letters[PHASES] = {
        [PHASE_IO] = 'i', [PHASE_UPDATE] = 'u', [PHASE_FORWARD] = 'f', [PHASE_LOSS] = 'l', [PHASE_BACKWARD] = 'b'};
    return letters[f];
}

/* Makes a table larger, a small one by more; returns 0 if memory is short. */
static int enlarge(void **table, int *cap, size_t size)
{
    int new_cap = *cap == 0 ? 64 : *cap < 4096 ? *cap * 4 : *cap * 2;
    void *bigger = sys_realloc(*table, (size_t)new_cap * size);
    if (!bigger)
        return 0;
    *table = bigger;
    *cap = new_cap;
    return 1;
}

/* Creates a program, each of whose tables has room for one entry at least, which `grow` relies on. */
enum status program_create(const char *name, struct program **out)
{
    struct program *p = sys_calloc(1, sizeof *p);
    if (!p || !enlarge((void **)&p->tensors, &p->cap_tensors, sizeof *p->tensors) ||
        !enlarge((void **)&p->buffers, &p->cap_buffers, sizeof *p->buffers) ||
        !enlarge((void **)&p->operands, &p->cap_operands, sizeof *p->operands) ||
        !enlarge((void **)&p->calls, &p->cap_calls, sizeof *p->calls) ||
        !enlarge((void **)&p->waits, &p->cap_waits, sizeof *p->waits) ||
        !enlarge((void **)&p->instrs, &p->cap_instrs, sizeof *p->instrs) ||
        !enlarge((void **)&p->live_in, &p->cap_live_in, sizeof *p->live_in) ||
        !enlarge((void **)&p->live_out, &p->cap_live_out, sizeof *p->live_out)) {
        program_destroy(p);
        return status_no_memory("while planning");
    }
    snprintf(p->name, sizeof p->name, "%s", name);
    *out = p;
    return OK;
}

void program_destroy(struct program *p)
{
    if (!p)
        return;
    free(p->tensors);
    free(p->buffers);
    free(p->operands);
    free(p->calls);
    free(p->call_index);
    free(p->waits);
    free(p->instrs);
    free(p->live_in);
    free(p->live_out);
    free(p);
}

enum status program_built(const struct program *p)
{
    if (p->out_of_memory)
        return status_no_memory("while planning");
    if (p->excess == EXCESS_BYTES)
        return status_fail(ERR_NOFIT,
                           "one buffer of a step would have more than the %lld GiB that are planned for: give a shorter "
                           "--seq-len, or more ranks that share a sequence",
                           (long long)(PROGRAM_MOST_BYTES >> 30));
    if (p->excess)
        return status_fail(ERR_NOFIT, "a step would have more parts than are planned for, which are millions of buffers and "
                                      "instructions: larger --tiles (rows, heads, loss, group), fewer ranks in a ring or a "
                                      "shorter --seq-len make them fewer");
    return OK;
}

static void note_excess(struct program *p, int beyond, enum program_excess what)
{
    if (beyond && p->excess < what)
        p->excess = what;
}

/* Returns the index of a new zeroed entry. If memory is short, sets out_of_memory and returns the index of the last entry,
 * cleared: lowering goes on with wrong tables, and looks at the flag at its end. */
static int grow(struct program *p, void **table, int *n, int *cap, size_t size)
{
    if (*n == *cap && !enlarge(table, cap, size)) {
        p->out_of_memory = 1;
        --*n;
    }
    memset((char *)*table + (size_t)*n * size, 0, size);
    return (*n)++;
}

int program_add_tensor(struct program *p, const char *name, enum tensor_class class, int64_t rows, int64_t row_bytes)
{
    int i = grow(p, (void **)&p->tensors, &p->n_tensors, &p->cap_tensors, sizeof *p->tensors);
    struct tensor *t = &p->tensors[i];
    snprintf(t->name, sizeof t->name, "%s", name);
    t->class = class;
    t->rows = rows;
    t->row_bytes = row_bytes;
    note_excess(p, rows >= PROGRAM_MOST_ROWS, EXCESS_BYTES);
    note_excess(p, i >= PROGRAM_MOST_NAMES, EXCESS_PARTS);
    return i;
}

int program_add_buffer(struct program *p, enum tier tier, int64_t bytes, enum tensor_class class, int persistent)
{
    int i = grow(p, (void **)&p->buffers, &p->n_buffers, &p->cap_buffers, sizeof *p->buffers);
    struct buffer *b = &p->buffers[i];
    b->tier = (uint8_t)tier;
    b->bytes = bytes;
    b->class = (uint8_t) class;
    b->persistent = (uint8_t)persistent;
    b->address = -1;
    note_excess(p, bytes >= PROGRAM_MOST_BYTES, EXCESS_BYTES);
    note_excess(p, i >= PROGRAM_MOST_NAMES, EXCESS_PARTS);
    return i;
}

int program_add_instr(struct program *p, enum op_kind op, enum lane lane)
{
    int i = grow(p, (void **)&p->instrs, &p->n_instrs, &p->cap_instrs, sizeof *p->instrs);
    struct instr *in = &p->instrs[i];
    in->op = (uint8_t)op;
    in->lane = (uint8_t)lane;
    int call = grow(p, (void **)&p->calls, &p->n_calls, &p->cap_calls, sizeof *p->calls);
    in->call = (uint32_t)call;
    note_excess(p, call >= PROGRAM_MOST_CALLS, EXCESS_PARTS);
    in->first_operand = p->n_operands;
    in->unit = -1;
    return i;
}

/* Returns the slot of the index that has a call equal to this one, or else the free slot for it. */
static int32_t *find_call(struct program *p, const struct op_call *c)
{
    uint64_t words[sizeof *c / sizeof(uint64_t)], h = 0, factor = 0x9e3779b97f4a7c15u;
    memcpy(words, c, sizeof words);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++, factor *= 0x9e3779b97f4a7c15u)
        h += (words[i] ^ words[i] >> 32) * factor; /* products that do not depend on each other */
    h ^= h >> 29;
    int at = (int)(h >> 32) & (p->cap_call_index - 1);
    while (p->call_index[at] >= 0 && memcmp(&p->calls[p->call_index[at]], c, sizeof *c) != 0)
        at = (at + 1) & (p->cap_call_index - 1);
    return &p->call_index[at];
}

/* Makes the index of calls twice as large and enters all but the last call; returns 0 if memory is short. */
static int enlarge_call_index(struct program *p)
{
    int cap = p->cap_call_index ? 2 * p->cap_call_index : 256;
    int32_t *bigger = sys_malloc((size_t)cap * sizeof *bigger);
    if (!bigger)
        return 0;
    free(p->call_index);
    p->call_index = bigger;
    p->cap_call_index = cap;
    for (int i = 0; i < cap; i++)
        bigger[i] = -1;
    for (int i = 0; i < p->n_calls - 1; i++)
        *find_call(p, &p->calls[i]) = i;
    return 1;
}

void program_share_call(struct program *p)
{
    struct instr *in = &p->instrs[p->n_instrs - 1];
    if (2 * p->n_calls > p->cap_call_index && !enlarge_call_index(p)) {
        p->out_of_memory = 1;
        return;
    }
    int32_t *shared = find_call(p, &p->calls[in->call]);
    if (*shared < 0) {
        *shared = (int32_t)in->call;
    } else {
        in->call = (uint32_t)*shared;
        p->n_calls--;
    }
}

static void append_wait(struct program *p, struct wait w)
{
    int at = grow(p, (void **)&p->waits, &p->n_waits, &p->cap_waits, sizeof *p->waits);
    p->waits[at] = w;
}

/* Adds a wait. An instruction's waits are adjacent in the table: unless they stand at its end already, they are moved there
 * first. */
void program_add_wait(struct program *p, int i, struct wait w)
{
    struct instr *in = &p->instrs[i];
    if (in->n_waits == 0 || in->first_wait + in->n_waits != p->n_waits) {
        int from = in->first_wait;
        in->first_wait = p->n_waits;
        for (int k = 0; k < in->n_waits; k++)
            append_wait(p, p->waits[from + k]);
    }
    append_wait(p, w);
    in->n_waits++;
}

void program_add_operand(struct program *p, struct operand o)
{
    struct instr *in = &p->instrs[p->n_instrs - 1];
    if (in->n_operands > 0) {
        struct operand *last = &p->operands[p->n_operands - 1];
        if (last->arg == o.arg && last->buffer == o.buffer && last->tensor == o.tensor && o.tensor >= 0 &&
            last->access == o.access && last->version == o.version && last->offset + last->bytes == o.offset &&
            operand_row1(p, last) == o.row0) {
            last->bytes += o.bytes;
            return;
        }
    }
    int i = grow(p, (void **)&p->operands, &p->n_operands, &p->cap_operands, sizeof *p->operands);
    p->operands[i] = o;
    note_excess(p, o.version + 1 >= PROGRAM_MOST_VERSIONS, EXCESS_PARTS);
    note_excess(p, in->n_operands + 1 >= PROGRAM_MOST_OPERANDS, EXCESS_PARTS);
    in->n_operands++;
}

void program_add_binding(struct program *p, int live_out, struct binding b)
{
    if (live_out) {
        int i = grow(p, (void **)&p->live_out, &p->n_live_out, &p->cap_live_out, sizeof *p->live_out);
        p->live_out[i] = b;
    } else {
        int i = grow(p, (void **)&p->live_in, &p->n_live_in, &p->cap_live_in, sizeof *p->live_in);
        p->live_in[i] = b;
    }
}

void program_add_copies(struct program *p, enum copies_kind kind, int first, int count)
{
    struct copies *c = &p->copies[kind];
    *c = (struct copies){.first = first, .n = p->n_buffers - first, .count = count};
    for (int b = first; b < p->n_buffers; b++)
        c->bytes[TIER_DEVICE] += round_up(p->buffers[b].bytes, BUFFER_ALIGN);
    if (count > 1 && c->n > 0)
        program_add_buffer(p, TIER_DEVICE, (count - 1) * c->bytes[TIER_DEVICE], CLASS_ACT, 1);
}

void program_number(struct program *p)
{
    int32_t next[LANES] = {0};
    for (int i = 0; i < p->n_instrs; i++)
        p->instrs[i].ticket = ++next[p->instrs[i].lane];
}

int program_permute(struct program *p, const int *order)
{
    int32_t next[LANES] = {0};
    struct instr *to = sys_malloc(sizeof *to * (size_t)p->cap_instrs);
    if (!to)
        return 0;
    for (int i = 0; i < p->n_instrs; i++) {
        to[i] = p->instrs[order[i]];
        to[i].ticket = ++next[to[i].lane];
    }
    free(p->instrs);
    p->instrs = to;
    return 1;
}

static void print_operand(const struct program *p, const struct operand *o, FILE *f)
{
    const struct buffer *b = &p->buffers[o->buffer];
    const char *name = o->tensor >= 0 ? p->tensors[o->tensor].name : "scratch";
    char mode = o->access == ACCESS_READ ? '<' : o->access == ACCESS_WRITE ? '>' : '=';
    fprintf(f, " %c%s", mode, name);
    if (o->tensor >= 0)
        fprintf(f, ".%d[%lld:%lld]", operand_version_after(o), (long long)o->row0, (long long)operand_row1(p, o));
    fprintf(f, "@%s+%llx", tier_name(b->tier), (unsigned long long)(b->address + o->offset));
}

void program_print(const struct program *p, FILE *f)
{
    fprintf(f, "program %s: %d instructions, %d buffers, %.6f s simulated\n", p->name, p->n_instrs, p->n_buffers, p->seconds);
    for (int i = 0; i < p->n_instrs; i++) {
        const struct instr *in = &p->instrs[i];
        fprintf(f, "%6d %-7s %5d %c%-3d %-10s", i, lane_name(in->lane), in->ticket, in->phase ? phase_letter(in->phase) : ' ',
                in->unit, op_name(in->op));
        for (int k = 0; k < in->n_operands; k++)
            print_operand(p, &p->operands[in->first_operand + k], f);
        for (int w = 0; w < in->n_waits; w++)
            fprintf(f, "%s%s:%d", w ? "," : "  waits ", lane_name((enum lane)program_waits(p, in)[w].lane),
                    program_waits(p, in)[w].ticket);
        fprintf(f, "\n");
    }
}
