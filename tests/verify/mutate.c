/* Plants faults in programs. */
#include "verify/mutate.h"

#include "verify/value_numbers.h"
#include "verify/verify.h"

#include <stdlib.h>
#include <string.h>

static void *copy_table(const void *table, int n, size_t size)
{
    void *copy = malloc((size_t)(n + 1) * size);
    if (copy && n)
        memcpy(copy, table, (size_t)n * size);
    return copy;
}

struct program *mutate_copy(const struct program *p)
{
    struct program *q = malloc(sizeof *q);
    if (!q)
        return NULL;
    *q = *p;
    q->tensors = copy_table(p->tensors, p->n_tensors, sizeof *p->tensors);
    q->buffers = copy_table(p->buffers, p->n_buffers, sizeof *p->buffers);
    q->operands = copy_table(p->operands, p->n_operands, sizeof *p->operands);
    q->instrs = copy_table(p->instrs, p->n_instrs, sizeof *p->instrs);
    q->calls = copy_table(p->calls, p->n_calls, sizeof *p->calls);
    q->waits = copy_table(p->waits, p->n_waits, sizeof *p->waits);
    q->call_index = NULL;
    q->cap_call_index = 0;
    q->live_in = copy_table(p->live_in, p->n_live_in, sizeof *p->live_in);
    q->live_out = copy_table(p->live_out, p->n_live_out, sizeof *p->live_out);
    q->cap_tensors = p->n_tensors + 1;
    q->cap_buffers = p->n_buffers + 1;
    q->cap_operands = p->n_operands + 1;
    q->cap_instrs = p->n_instrs + 1;
    q->cap_calls = p->n_calls + 1;
    q->cap_waits = p->n_waits + 1;
    q->cap_live_in = p->n_live_in + 1;
    q->cap_live_out = p->n_live_out + 1;
    if (!q->tensors || !q->buffers || !q->operands || !q->instrs || !q->calls || !q->waits || !q->live_in || !q->live_out) {
        program_destroy(q);
        return NULL;
    }
    return q;
}

struct op_attrs *mutate_attrs(struct program *p, struct instr *in)
{
    if (p->n_calls == p->cap_calls) {
        p->cap_calls *= 2;
        p->calls = realloc(p->calls, sizeof *p->calls * (size_t)p->cap_calls);
        if (!p->calls)
            abort();
    }
    p->calls[p->n_calls] = *program_call(p, in);
    in->call = p->n_calls++;
    return &program_call(p, in)->attrs;
}

int mutate_find(const struct program *p, enum lane lane, int k)
{
    for (int i = 0; i < p->n_instrs; i++) {
        if (p->instrs[i].lane == lane && k-- == 0)
            return i;
    }
    return -1;
}

void mutate_drop(struct program *p, enum lane lane, int k)
{
    int i = mutate_find(p, lane, k);
    memmove(&p->instrs[i], &p->instrs[i + 1], sizeof *p->instrs * (size_t)(p->n_instrs - i - 1));
    p->n_instrs--;
    program_number(p);
    for (int j = i; j < p->n_instrs; j++) {
        struct instr *in = &p->instrs[j];
        for (int w = 0; w < in->n_waits; w++) {
            struct wait *waits = program_waits(p, in);
            if (waits[w].lane == (int)lane && waits[w].ticket > k && --waits[w].ticket == 0)
                waits[w--] = waits[--in->n_waits];
        }
    }
}

/* Tells whether number `i` of `total` is chosen when about `max` evenly spaced numbers are. */
static int chosen(int i, int total, int max)
{
    return max <= 0 || total <= max || (int64_t)(i + 1) * max / total != (int64_t)i * max / total;
}

static int count_waits(const struct program *p)
{
    int n = 0;
    for (int i = 0; i < p->n_instrs; i++)
        n += p->instrs[i].n_waits;
    return n;
}

enum wait_fault { DELETE, WEAKEN };

static int mutate_waits(const struct program *p, enum wait_fault fault, int max, int *tried)
{
    struct program *q = mutate_copy(p);
    int total = count_waits(p), seen = 0, survivors = 0;
    *tried = 0;
    for (int i = 0; q && i < p->n_instrs; i++) {
        for (int w = 0; w < p->instrs[i].n_waits; w++) {
            if (!chosen(seen++, total, max))
                continue;
            struct instr *in = &q->instrs[i];
            struct wait *waits = program_waits(q, in), was = waits[w];
            if (fault == WEAKEN && was.ticket > 1) {
                waits[w].ticket--;
            } else {
                waits[w] = waits[--in->n_waits];
            }
            ++*tried;
            if (program_verify(q) == OK) {
                fprintf(stderr, "survivor: program %s, instruction %d (%s), wait for %s ticket %lld %s\n", p->name, i,
                        op_name(in->op), lane_name((enum lane)was.lane), (long long)was.ticket,
                        fault == DELETE ? "deleted" : "weakened");
                survivors++;
            }
            *in = p->instrs[i];
            memcpy(waits, program_waits(p, in), sizeof *waits * (size_t)in->n_waits);
        }
    }
    program_destroy(q);
    return q ? survivors : -1;
}

int mutate_delete_waits(const struct program *p, int max, int *tried)
{
    return mutate_waits(p, DELETE, max, tried);
}

int mutate_weaken_waits(const struct program *p, int max, int *tried)
{
    return mutate_waits(p, WEAKEN, max, tried);
}

/* --- Mutations that change the meaning --- */

/* Makes the instruction's operands a and b swap their contents, but not their argument numbers. */
static int swap_inputs(struct program *q, const struct instr *in, int a, int b)
{
    struct operand *x = &q->operands[in->first_operand + a], *y = &q->operands[in->first_operand + b], t = *x;
    int same = x->tensor == y->tensor && x->row0 == y->row0 && x->version == y->version;
    if (x->access != ACCESS_READ || y->access != ACCESS_READ || x->arg == y->arg || x->bytes != y->bytes || same)
        return 0;
    int16_t arg_x = x->arg, arg_y = y->arg;
    *x = *y;
    *y = t;
    x->arg = arg_x;
    y->arg = arg_y;
    return 1;
}

/* Makes input k begin one row later in its tensor and its buffer. */
static int shift_input(struct program *q, const struct instr *in, int k)
{
    struct operand *o = &q->operands[in->first_operand + k];
    if (o->access != ACCESS_READ || in->op == OP_COPY)
        return 0;
    const struct tensor *t = &q->tensors[o->tensor];
    if (operand_row1(q, o) >= t->rows || o->offset + o->bytes + t->row_bytes > q->buffers[o->buffer].bytes)
        return 0;
    o->row0++;
    o->offset += t->row_bytes;
    return 1;
}

/* Makes the op accumulate instead of write, or write instead of accumulate. */
static int flip_accumulate(struct program *q, struct instr *in)
{
    struct op_attrs *a = mutate_attrs(q, in);
    int flag_at = 0, flipped = 0;
    for (int arg = 0; arg < op_arg_count(in->op); arg++) {
        if (op_arg(in->op, arg)->use == ARG_SUM)
            flag_at = op_arg(in->op, arg)->flag_at;
    }
    if (flag_at == 0)
        return 0;
    int32_t *flag = (int32_t *)((char *)a + flag_at);
    for (int k = in->first_operand; k < in->first_operand + in->n_operands; k++) {
        struct operand *o = &q->operands[k];
        if (op_arg(in->op, o->arg)->use != ARG_SUM)
            continue;
        if (o->tensor < 0)
            return 0;
        o->access = *flag ? ACCESS_WRITE : ACCESS_UPDATE;
        o->version += *flag ? 1 : -1;
        flipped = 1;
    }
    *flag = !*flag;
    return flipped;
}

static int change_flag(struct program *q, struct instr *in)
{
    struct op_attrs *a = mutate_attrs(q, in);
    switch (in->op) {
    case OP_NORM:
    case OP_NORM_GRAD:
        a->norm.eps *= 2;
        return 1;
    case OP_GEMM:
        a->gemm.ta ^= 1;
        return 1;
    case OP_ROPE:
        a->rope.inverse ^= 1;
        return 1;
    case OP_GELU:
    case OP_GELU_GRAD:
        a->act.kind ^= 1;
        return 1;
    case OP_ATTN_FWD:
    case OP_ATTN_BWD:
        a->attn.scale *= 2;
        return 1;
    case OP_ADAMW:
        a->vec.n_decay++;
        return 1;
    default:
        return 0;
    }
}

/* Makes mutation number m of an instruction. Returns 1 if made, 0 if it does not apply, -1 if there are no more. */
static int make_mutation(struct program *q, int i, int m)
{
    struct instr *in = &q->instrs[i];
    int n = in->n_operands;
    if (in->op == OP_COPY || in->op == OP_FILL)
        return -1;
    if (m == 0)
        return flip_accumulate(q, in);
    if (m == 1)
        return change_flag(q, in);
    if (m == 2)
        return mutate_attrs(q, in)->words[0]++, 1; /* rows, m, sq or n */
    m -= 3;
    if (m < n)
        return shift_input(q, in, m);
    m -= n;
    return m < n * n ? (m % n < m / n ? swap_inputs(q, in, m % n, m / n) : 0) : -1;
}

static void restore(struct program *q, const struct program *p, int i)
{
    const struct instr *in = &p->instrs[i];
    q->instrs[i] = *in;
    q->n_calls = p->n_calls;
    memcpy(q->operands + in->first_operand, p->operands + in->first_operand, sizeof *p->operands * (size_t)in->n_operands);
}

/* Makes all mutations of the meaning one after another, and compares digests; digest NULL: only counts the mutations. */
static int walk_semantics(const struct program *p, struct program *q, const uint64_t *digest, int total, int max, int *count,
                          int *tried)
{
    int survivors = 0;
    *count = 0;
    for (int i = 0; i < p->n_instrs; i++) {
        for (int m = 0, made; (made = make_mutation(q, i, m)) >= 0; m++) {
            uint64_t other = 0;
            if (made && chosen((*count)++, total, max) && digest) {
                ++*tried;
                if (program_value_digest(q, &other) == OK && other == *digest) {
                    fprintf(stderr, "survivor: program %s, instruction %d (%s), semantic mutation %d\n", p->name, i,
                            op_name(p->instrs[i].op), m);
                    survivors++;
                }
            }
            restore(q, p, i);
        }
    }
    return survivors;
}

int mutate_semantics(const struct program *p, int max, int *tried)
{
    struct program *q = mutate_copy(p);
    int total, count, survivors;
    uint64_t digest;
    *tried = 0;
    if (!q || program_value_digest(p, &digest) != OK) {
        program_destroy(q);
        return -1;
    }
    walk_semantics(p, q, NULL, 0, 0, &total, tried);
    survivors = walk_semantics(p, q, &digest, total, max, &count, tried);
    program_destroy(q);
    return survivors;
}
