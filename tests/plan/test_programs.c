/* Tests the verifier and value digests on the planner's own programs: programs are accepted, and rejected if any one of their
 * waits is removed or a fault is planted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "machine/rank_cost.h"
#include "plan/cells.h"
#include "plan/lower/fixed.h"
#include "plan/scheduled.h"
#include "verify/mutate.h"
#include "verify/verify.h"

#include <stdlib.h>
#include <string.h>

static const struct cell CELLS[] = {
    {EVERYTHING(ON_DEVICE)},
    {EVERYTHING(ON_HOST), .alpha = KEEP_HALF, .host_update = 1},
    {EVERYTHING(ON_DRIVES), .alpha = KEEP_NONE, .host_update = 1, .discrete = 1, .inputs = INPUTS_THIRD},
    {EVERYTHING(ON_DRIVES), .alpha = KEEP_HALF, .prefetch = AHEAD_1, .inputs = INPUTS_HALF},
    {.params = ON_DRIVES,
     .grads = ON_HOST,
     .optim = ON_DRIVES,
     .acts = ON_HOST,
     .alpha = KEEP_NONE,
     .host_update = 1,
     .discrete = 1},
    {.grads = ON_HOST, .optim = ON_HOST, .acts = ON_DRIVES, .alpha = KEEP_HALF, .discrete = 1},
    {EVERYTHING(ON_DRIVES), .alpha = KEEP_NONE, .host_update = 1, .discrete = 1, .inputs = INPUTS_THIRD,
     .passing = PASS_ON_DEVICE},
    {.params = ON_HOST,
     .grads = ON_HOST,
     .optim = ON_HOST,
     .acts = ON_DRIVES,
     .alpha = KEEP_HALF,
     .host_update = 1,
     .discrete = 1,
     .inputs = INPUTS_HALF,
     .passing = PASS_ON_HOST},
    {EVERYTHING(ON_HOST), .host_update = 1, .discrete = 1, .passing = PASS_ON_DEVICE},
};
enum { N_CELLS = sizeof CELLS / sizeof *CELLS, S = 80 };

static const enum model_family FAMILIES[] = {FAMILY_LLAMA, FAMILY_GPT2};
static const char *const FAMILY_NAMES[] = {"llama", "gpt2"};

static struct plan *make_plan(enum model_family family, int layers, enum dtype dtype, int accum, const struct cell *c,
                              struct model **model)
{
    struct plan_request s;
    struct plan *plan;
    int64_t limit[TIERS] = {1 << 30, 1 << 30, 1 << 30};
    cell_settings(&s, S, dtype);
    cell_apply(c, &s);
    s.grad_accum = accum;
    s.eval_every = 1;
    assert_int_equal(cell_model(family, layers, model), OK);
    if (plan_create(*model, &s, limit, &plan) != OK)
        fail_msg("%s: %s", cell_name(c), status_message());
    return plan;
}

/* Function that is called for every program of sets with and without accumulation, over all cells. */
typedef void program_visitor(const struct program *p, const struct cell *c, void *user);

static void visit_programs(int layers, int n_cells, program_visitor *visit, void *user)
{
    for (int f = 0; f < 2; f++)
        for (int i = 0; i < n_cells; i++)
            for (int accum = 1; accum <= 3; accum += 2) {
                struct model *model;
                struct plan *plan = make_plan(FAMILIES[f], layers, i % 2 ? BF16 : F32, accum, &CELLS[i], &model);
                for (int k = 0; k < PLAN_PROGRAMS; k++)
                    if (plan->programs[k] && (accum == 1 || k == PLAN_MORE || k == PLAN_LAST))
                        visit(plan->programs[k], &CELLS[i], user);
                plan_destroy(plan);
                model_destroy(model);
            }
}

static void expect_accepted(const struct program *p, const struct cell *c, void *user)
{
    if (program_verify(p) != OK)
        fail_msg("%s: %s", cell_name(c), status_message());
    ++*(int *)user;
}

static void accepted(void **state)
{
    (void)state;
    int n = 0;
    visit_programs(2, N_CELLS, expect_accepted, &n);
    print_message("%d programs verified\n", n);
    assert_int_equal(n, 2 * N_CELLS * 6); /* step, update+step, flush, evaluation; more, last */
}

/* Tells whether a later instruction reads rows that an operand of instruction i writes, or whether the rows are live at the end. */
static int is_used(const struct program *p, int i, const struct operand *o, int64_t row0, int64_t row1)
{
    if (o->buffer < p->n_persistent)
        return 1;
    for (int j = i + 1; j < p->n_instrs; j++)
        for (int k = 0; k < p->instrs[j].n_operands; k++) {
            const struct operand *r = &p->operands[p->instrs[j].first_operand + k];
            if (r->buffer == o->buffer && (r->access & ACCESS_READ) && r->tensor == o->tensor &&
                r->version == operand_version_after(o) && r->row0 < row1 && row0 < operand_row1(p, r))
                return 1;
        }
    return 0;
}

static void expect_nothing_in_vain(const struct program *p, const struct cell *c, void *user)
{
    (void)user;
    for (int i = 0; i < p->n_instrs; i++) {
        const struct instr *in = &p->instrs[i];
        int writes = 0, used = 0;
        for (int k = 0; k < in->n_operands; k++) {
            const struct operand *o = &p->operands[in->first_operand + k];
            if (!(o->access & ACCESS_WRITE) || o->tensor < 0)
                continue;
            writes = 1;
            /* parameters come in whole units: a tied head brings the position embeddings too */
            used |= is_used(p, i, o, o->row0, operand_row1(p, o)) || p->tensors[o->tensor].class == CLASS_PARAM;
        }
        if (writes && !used)
            fail_msg("%s, program %s: nobody needs what instruction %d (%s) makes", cell_name(c), p->name, i, op_name(in->op));
    }
}

/* An evaluation does not send layers' inputs and attention outputs to the activations' tier if they stay in a nearer one. */
static void evaluation_saves_nothing(void **state)
{
    static const enum residency pairs[][2] = {{RES_HOST, RES_DEVICE}, {RES_NVME, RES_DEVICE}, {RES_NVME, RES_HOST}};
    static const struct cell none;
    struct model *m;
    (void)state;
    assert_int_equal(cell_model(FAMILY_LLAMA, 4, &m), OK);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct plan_request s;
        struct strategy strategy;
        struct cost_model cost;
        struct io_buffers io;
        struct program *p;
        cell_settings(&s, 256, F32);
        s.device = DEVICE_CPU_DISCRETE;
        assert_int_equal(plan_fixed(m, &s, &strategy), OK);
        strategy.placement.acts = pairs[i][0];
        strategy.placement.passing = pairs[i][1];
        strategy.placement.device_layers = 1;
        plan_cost_model(&s, &cost);
        assert_int_equal(lower_program(m, &strategy, DUTY_FORWARD, &io, &p), OK);
        assert_int_equal(schedule_program(p, &cost, SCHEDULE_OVERLAPPED, 1), OK);
        if (program_verify(p) != OK)
            fail_msg("%s", status_message());
        expect_nothing_in_vain(p, &none, NULL);
        program_destroy(p);
    }
    model_destroy(m);
}

static void nothing_in_vain(void **state)
{
    (void)state;
    visit_programs(3, N_CELLS, expect_nothing_in_vain, NULL);
}

/* --- Waits --- */

struct waits {
    int deleted, weakened;
};

static void expect_waits_needed(const struct program *p, const struct cell *c, void *user)
{
    struct waits *w = user;
    int total = 0, tried, limit = getenv("LTRAIN_LONG") ? 0 : 3000;
    for (int i = 0; i < p->n_instrs; i++)
        total += p->instrs[i].n_waits;
    if (mutate_delete_waits(p, limit, &tried) != 0)
        fail_msg("%s, program %s: a deleted wait was accepted", cell_name(c), p->name);
    w->deleted += tried;
    if (mutate_weaken_waits(p, limit, &tried) != 0)
        fail_msg("%s, program %s: a weakened wait was accepted", cell_name(c), p->name);
    w->weakened += tried;
}

/* Checks that every wait is needed (3000 waits of programs that have more): one layer in all placements, two layers in the
 * smallest. */
static void waits_are_needed(void **state)
{
    (void)state;
    struct waits w = {0};
    visit_programs(1, N_CELLS, expect_waits_needed, &w);
    print_message("one layer: %d deletions and %d weakenings rejected\n", w.deleted, w.weakened);
    for (int f = 0; f < 2; f++) {
        struct model *model;
        struct plan *plan = make_plan(FAMILIES[f], 2, F32, 1, &CELLS[2], &model);
        const struct program *p = plan->programs[PLAN_UPDATE_STEP];
        int deleted, weakened;
        assert_int_equal(mutate_delete_waits(p, 3000, &deleted), 0);
        assert_int_equal(mutate_weaken_waits(p, 3000, &weakened), 0);
        print_message("%s, everything on nvme: %d instructions, %d deletions and %d weakenings rejected\n", FAMILY_NAMES[f],
                      p->n_instrs, deleted, weakened);
        assert_true(deleted > 100);
        plan_destroy(plan);
        model_destroy(model);
    }
}

/* --- Meaning --- */

static void expect_meaning_matters(const struct program *p, const struct cell *c, void *user)
{
    int tried;
    if (mutate_semantics(p, getenv("LTRAIN_LONG") ? 0 : 150, &tried) != 0)
        fail_msg("%s, program %s: a wrong meaning has the right value numbers", cell_name(c), p->name);
    *(int *)user += tried;
}

static void meaning_matters(void **state)
{
    (void)state;
    int n = 0;
    visit_programs(1, 3, expect_meaning_matters, &n);
    print_message("%d semantic mutations change the value numbers\n", n);
}

/* --- Planted faults --- */

static void expect_rejected(struct program *q, const struct cell *c, const char *fault, int where, int *count)
{
    if (program_verify(q) == OK)
        fail_msg("%s, program %s: %s at %d was accepted", cell_name(c), q->name, fault, where);
    ++*count;
}

/* Position of the first and the last instruction during which the first byte of a buffer is certainly in use: written by `first`,
 * read by `last`; -1: none. */
struct use {
    int first, last; /* last: the last read before the next write */
    int again;
};

static struct use *find_uses(const struct program *p)
{
    struct use *u = malloc(sizeof *u * (size_t)p->n_buffers);
    for (int b = 0; b < p->n_buffers; b++)
        u[b] = (struct use){-1, -1, 0};
    for (int i = 0; i < p->n_instrs; i++)
        for (int k = 0; k < p->instrs[i].n_operands; k++) {
            const struct operand *o = &p->operands[p->instrs[i].first_operand + k];
            struct use *x = &u[o->buffer];
            if (o->tensor >= 0 && o->offset == 0 && (o->access & ACCESS_READ) && !x->again)
                x->last = i;
            if (o->access == ACCESS_WRITE && o->offset == 0) {
                x->again = x->first >= 0;
                x->first = x->again ? x->first : i;
            }
        }
    return u;
}

/* Moves a buffer onto the bytes of another buffer that is in use at that time. */
static void plant_addresses(const struct program *p, struct program *q, const struct cell *c, int *count)
{
    struct use *u = find_uses(p);
    for (int b = p->n_persistent; b < p->n_buffers; b += 1 + p->n_buffers / 60) {
        const struct buffer *x = &p->buffers[b];
        for (int o = p->n_buffers - 1; o >= p->n_persistent; o--) {
            const struct buffer *y = &p->buffers[o];
            if (o == b || y->tier != x->tier || u[o].first < 0 || u[b].first <= u[o].first || u[b].first >= u[o].last ||
                y->address + round_up(x->bytes, BUFFER_ALIGN) > p->arena[x->tier])
                continue;
            q->buffers[b].address = y->address;
            expect_rejected(q, c, "the address of another live buffer", b, count);
            q->buffers[b] = *x;
            break;
        }
    }
    free(u);
    for (int b = p->n_persistent; b < p->n_buffers; b += 1 + p->n_buffers / 20) {
        q->buffers[b].address = p->arena[q->buffers[b].tier];
        expect_rejected(q, c, "an address beyond the arena", b, count);
        q->buffers[b] = p->buffers[b];
    }
}

static void plant_operand(const struct program *p, struct program *q, int i, int k, const struct cell *c, int *count)
{
    struct operand *o = &q->operands[k];
    if (o->tensor < 0 || (o->access == ACCESS_WRITE && !is_used(p, i, o, o->row0, operand_row1(p, o))))
        return;
    o->version++;
    expect_rejected(q, c, "a newer version", i, count);
    *o = p->operands[k];
    if (o->row0 > 0) {
        o->row0--;
        expect_rejected(q, c, "other rows", i, count);
        *o = p->operands[k];
    }
}

static void plant_operands(const struct program *p, struct program *q, const struct cell *c, int *count)
{
    for (int i = 0; i < p->n_instrs; i++)
        for (int k = p->instrs[i].first_operand; k < p->instrs[i].first_operand + p->instrs[i].n_operands; k++)
            if (k % (1 + p->n_operands / 100) == 0)
                plant_operand(p, q, i, k, c, count);
}

/* Tells whether an earlier copy put the same rows at the same address, so that a missing copy may do no harm. */
static int was_there(const struct program *p, int i, const struct operand *o)
{
    for (int j = 0; j < i; j++)
        for (int k = 0; k < p->instrs[j].n_operands; k++) {
            const struct operand *r = &p->operands[p->instrs[j].first_operand + k];
            if (r->tensor == o->tensor && operand_version_after(r) == operand_version_after(o) && (r->access & ACCESS_WRITE) &&
                operand_row1(p, r) >= operand_row1(p, o) && p->buffers[r->buffer].tier == p->buffers[o->buffer].tier &&
                p->buffers[r->buffer].address + r->offset - p->buffers[o->buffer].address - o->offset ==
                    (r->row0 - o->row0) * p->tensors[o->tensor].row_bytes)
                return 1;
        }
    return 0;
}

/* Plants copies that leave out their last row. */
static void plant_short_copies(const struct program *p, struct program *q, const struct cell *c, int *count)
{
    int made = 0;
    for (int i = 0; i < p->n_instrs && made < 60; i++) {
        struct instr *in = &q->instrs[i];
        if (in->op != OP_COPY || in->n_operands != 2 || (p->n_instrs > 500 && i % 7))
            continue;
        struct operand *src = &q->operands[in->first_operand], *dst = src + 1;
        int64_t row = q->tensors[src->tensor].row_bytes;
        int64_t row1 = operand_row1(q, dst);
        if (src->bytes < 2 * row || !is_used(p, i, dst, row1 - 1, row1) || was_there(p, i, dst))
            continue;
        src->bytes -= row, dst->bytes -= row;
        mutate_attrs(q, in)->copy.bytes -= row;
        program_call(q, in)->bytes -= row;
        expect_rejected(q, c, "a shortened copy", i, count);
        *in = p->instrs[i];
        mutate_attrs(q, in)->copy.bytes /= 2;
        expect_rejected(q, c, "a copy of half its bytes", i, count);
        *in = p->instrs[i];
        memcpy(src, &p->operands[in->first_operand], 2 * sizeof *src);
        made++;
    }
}

static void expect_faults_rejected(const struct program *p, const struct cell *c, void *user)
{
    struct program *q = mutate_copy(p);
    assert_non_null(q);
    plant_addresses(p, q, c, user);
    plant_operands(p, q, c, user);
    plant_short_copies(p, q, c, user);
    assert_int_equal(program_verify(q), OK); /* all restored */
    program_destroy(q);
}

static void faults_are_rejected(void **state)
{
    (void)state;
    int n = 0;
    visit_programs(1, 4, expect_faults_rejected, &n);
    print_message("%d planted faults rejected\n", n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepted),         cmocka_unit_test(nothing_in_vain), cmocka_unit_test(evaluation_saves_nothing),
        cmocka_unit_test(waits_are_needed), cmocka_unit_test(meaning_matters), cmocka_unit_test(faults_are_rejected)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
