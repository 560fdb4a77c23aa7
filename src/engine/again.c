/* Computing an update twice. */
#include "engine/again.h"

#include "base/num.h"
#include "base/process.h"
#include "base/sys.h"
#include "device/cpu_stream.h"

#include <stdlib.h>
#include <string.h>

/* Arguments of OP_ADAMW: master, m, v, grad, norm, record, param. */
enum { ARGS = 7 };

struct again {
    const struct model *model;
    const struct program *p;
    int chosen; /* instruction of p */
    void *copy[ARGS];
    int64_t bytes[ARGS]; /* 0: the instruction has no such argument */
};

enum status again_create(const struct model *m, struct again **out)
{
    struct again *a = sys_calloc(1, sizeof *a);
    if (!a)
        return status_fail(ERR_NOMEM, "--verify-every: out of memory");
    a->model = m;
    *out = a;
    return OK;
}

static void free_copies(struct again *a)
{
    for (int k = 0; k < ARGS; k++) {
        free(a->copy[k]);
        a->copy[k] = NULL;
        a->bytes[k] = 0;
    }
}

void again_destroy(struct again *a)
{
    if (!a)
        return;
    free_copies(a);
    free(a);
}

static int is_update(const struct instr *in)
{
    return in->op == OP_ADAMW;
}

void again_choose(struct again *a, const struct program *p, int64_t number)
{
    int64_t n = 0;
    a->p = NULL;
    for (int i = 0; p && i < p->n_instrs; i++)
        n += is_update(&p->instrs[i]);
    if (n == 0)
        return;
    number %= n;
    for (int i = 0; i < p->n_instrs; i++)
        if (is_update(&p->instrs[i]) && number-- == 0) {
            a->p = p;
            a->chosen = i;
            return;
        }
}

int again_is(const struct again *a, const struct program *p, const struct instr *in)
{
    return a && a->p == p && in == &p->instrs[a->chosen];
}

/* Returns the instruction's first operand of an argument; NULL: it has none. */
static const struct operand *operand_of(const struct program *p, const struct instr *in, int arg)
{
    for (int k = 0; k < in->n_operands; k++)
        if (p->operands[in->first_operand + k].arg == arg)
            return &p->operands[in->first_operand + k];
    return NULL;
}

/* Reads an argument's bytes as they are now. */
static enum status read_argument(const struct exec_context *x, const struct program *p, const struct instr *in, int arg, void *to,
                                 int64_t bytes)
{
    const struct operand *o = operand_of(p, in, arg);
    const struct buffer *b = &p->buffers[o->buffer];
    return exec_read(x, (enum tier)b->tier, b->address + o->offset, to, bytes);
}

enum status again_before(struct again *a, const struct exec_context *x, const struct program *p, const struct instr *in)
{
    int64_t unused;
    free_copies(a);
    for (int k = 0; k < ARGS; k++) {
        if (!operand_of(p, in, k))
            continue;
        (void)exec_argument(x, p, in, k, &unused, &a->bytes[k]);
        a->copy[k] = sys_malloc((size_t)a->bytes[k]);
        if (!a->copy[k]) {
            a->p = NULL;
            free_copies(a);
            return OK;
        }
        TRY(read_argument(x, p, in, k, a->copy[k], a->bytes[k]));
    }
    return OK;
}

static enum status blame(const struct again *a, const struct program *p, const struct instr *in, int arg)
{
    static const char *const names[ARGS] = {"values", "first moments", "second moments", "", "", "", "parameters"};
    const struct op_attrs *attrs = &program_call(p, in)->attrs;
    struct process self;
    process_self(&self);
    return status_fail(
        ERR_CORRUPT,
        "an update of the unit that begins with %s (%lld elements, on the %s lane) differs in its %s from a second "
        "computation on the host %s: memory or processor erred without a word, and nothing of this step was saved",
        a->model->params[a->model->units[in->unit].first_param].name, (long long)attrs->vec.n, lane_name((enum lane)in->lane),
        names[arg], self.host);
}

/* Compares an argument with its second computation, a block at a time. */
static enum status compare(const struct again *a, const struct exec_context *x, const struct program *p, const struct instr *in,
                           int arg)
{
    enum { BLOCK = 16 << 10 };
    char block[BLOCK];
    const struct operand *o = operand_of(p, in, arg);
    const struct buffer *b = &p->buffers[o->buffer];
    for (int64_t at = 0, n; at < a->bytes[arg]; at += n) {
        n = min_i64(BLOCK, a->bytes[arg] - at);
        TRY(exec_read(x, (enum tier)b->tier, b->address + o->offset + at, block, n));
        if (memcmp(block, (const char *)a->copy[arg] + at, (size_t)n) != 0)
            return blame(a, p, in, arg);
    }
    return OK;
}

enum status again_after(struct again *a, const struct exec_context *x, const struct program *p, const struct instr *in)
{
    struct cpu_stream stream = {.threads = x->host_stream->threads};
    if (!again_is(a, p, in)) /* there was no memory for copies */
        return OK;
    enum status st = x->host_kernels[OP_ADAMW](&program_call(p, in)->attrs, a->copy, &stream);
    for (int k = 0; k < ARGS && st == OK; k++) {
        const struct operand *o = operand_of(p, in, k);
        if (o && (o->access & ACCESS_WRITE))
            st = compare(a, x, p, in, k);
    }
    free_copies(a);
    a->p = NULL;
    return st;
}
