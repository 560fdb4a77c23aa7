/* Tests that the programs of a set fit together: they have one address map, and each leaves behind what its successors need. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "plan/cells.h"
#include "verify/verify.h"

#include <string.h>

enum { S = 80 };
static const char *const PROGRAM_NAMES[PLAN_PROGRAMS] = {"step", "update step", "more", "last", "flush", "evaluation"};

/* Tells whether program b may follow a. With accumulation, MORE or LAST follows a step's first micro-batch; without it, the step
 * is complete, with a pending update. */
static int may_follow(int a, int b, int accum)
{
    int pending = accum > 1 ? a == PLAN_LAST : a == PLAN_STEP || a == PLAN_UPDATE_STEP;
    int between = accum > 1 && (a == PLAN_STEP || a == PLAN_UPDATE_STEP || a == PLAN_MORE);
    if (pending)
        return b == PLAN_UPDATE_STEP || b == PLAN_FLUSH;
    if (between)
        return (b == PLAN_MORE && accum > 2) || (b == PLAN_LAST && (accum == 2 || a == PLAN_MORE));
    return b == PLAN_STEP || b == PLAN_EVAL; /* a is a flush or an evaluation */
}

static const char *binding_name(const struct program *p, const struct binding *b)
{
    return p->tensors[b->tensor].name;
}

/* Tells whether the engine sets a buffer before every program, or once before the first. */
static int is_input(const struct plan *plan, int buffer)
{
    const struct io_buffers *io = &plan->io;
    const int inputs[] = {io->tokens, io->targets, io->positions, io->lo[0], io->hi[0], io->inv_freq, io->record};
    for (int i = 0; i < 7; i++)
        if (inputs[i] == buffer)
            return 1;
    return 0;
}

/* Counts the rows of the binding that one program leaves exactly where the next one expects them. */
static int64_t rows_left(const struct program *p, const struct program *q, const struct binding *need)
{
    int64_t rows = 0, row = q->tensors[need->tensor].row_bytes;
    for (int i = 0; i < p->n_live_out; i++) {
        const struct binding *o = &p->live_out[i];
        int64_t a = max_i64(o->row0, need->row0), b = min_i64(o->row1, need->row1);
        if (a < b && o->buffer == need->buffer && strcmp(binding_name(p, o), binding_name(q, need)) == 0 &&
            o->offset - need->offset == (o->row0 - need->row0) * row)
            rows += b - a;
    }
    return rows;
}

static void check_succession(const struct plan *plan, int a, int b, const struct cell *c)
{
    const struct program *p = plan->programs[a], *q = plan->programs[b];
    for (int i = 0; i < q->n_live_in; i++) {
        const struct binding *need = &q->live_in[i];
        if (!is_input(plan, need->buffer) && rows_left(p, q, need) != need->row1 - need->row0)
            fail_msg("%s: %s needs %s, rows %lld to %lld, which %s does not leave there", cell_name(c), PROGRAM_NAMES[b],
                     binding_name(q, need), (long long)need->row0, (long long)need->row1, PROGRAM_NAMES[a]);
    }
}

/* Checks that a program reads as one extent the rows that the previous program wrote as one extent: the store checks whole
 * extents. */
static void check_extents(const struct plan *plan, int a, int b, const struct cell *c)
{
    const struct program *p = plan->programs[a], *q = plan->programs[b];
    for (int i = 0; i < q->n_live_in; i++)
        for (int k = 0; k < p->n_live_out; k++) {
            const struct binding *need = &q->live_in[i], *left = &p->live_out[k];
            if (q->buffers[need->buffer].tier == TIER_NVME && left->buffer == need->buffer && left->offset == need->offset &&
                (left->extent_offset != need->extent_offset || left->extent_bytes != need->extent_bytes))
                fail_msg("%s: extents of %s differ from %s to %s", cell_name(c), binding_name(q, need), PROGRAM_NAMES[a],
                         PROGRAM_NAMES[b]);
        }
}

static void check_map(const struct plan *plan, const struct cell *c)
{
    const struct program *first = plan->programs[PLAN_STEP];
    for (int k = 0; k < PLAN_PROGRAMS; k++) {
        const struct program *p = plan->programs[k];
        int64_t end[TIERS] = {0};
        if (!p)
            continue;
        assert_int_equal(p->n_persistent, first->n_persistent);
        for (int b = 0; b < p->n_persistent; b++) {
            const struct buffer *x = &p->buffers[b], *y = &first->buffers[b];
            if (!x->persistent || x->tier != y->tier || x->bytes != y->bytes || x->address != y->address || x->class != y->class)
                fail_msg("%s: persistent buffer %d is another one in %s", cell_name(c), b, PROGRAM_NAMES[k]);
            end[x->tier] = max_i64(end[x->tier], x->address + x->bytes);
        }
        for (int b = p->n_persistent; b < p->n_buffers; b++)
            assert_true(!p->buffers[b].persistent && p->buffers[b].address >= end[p->buffers[b].tier]);
        for (int t = 0; t < TIERS; t++)
            assert_true(p->arena[t] <= plan->arena[t]);
    }
}

static void check_set(enum model_family family, enum dtype dtype, int accum, const struct cell *c)
{
    struct plan_request s;
    struct model *model;
    struct plan *plan;
    int64_t limit[TIERS] = {1 << 30, 1 << 30, 1 << 30};
    int successions = 0;
    cell_settings(&s, S, dtype);
    cell_apply(c, &s);
    s.grad_accum = accum;
    s.eval_every = 1;
    assert_int_equal(cell_model(family, 2, &model), OK);
    if (plan_create(model, &s, limit, &plan) != OK)
        fail_msg("%s: %s", cell_name(c), status_message());
    assert_true((plan->programs[PLAN_MORE] != NULL) == (accum > 2));
    assert_true((plan->programs[PLAN_LAST] != NULL) == (accum > 1));
    check_map(plan, c);
    for (int a = 0; a < PLAN_PROGRAMS; a++)
        for (int b = 0; b < PLAN_PROGRAMS; b++)
            if (plan->programs[a] && plan->programs[b] && may_follow(a, b, accum)) {
                check_succession(plan, a, b, c);
                check_extents(plan, a, b, c);
                successions++;
            }
    assert_true(successions >= 6);
    plan_destroy(plan);
    model_destroy(model);
}

static void sets_fit_together(void **state)
{
    (void)state;
    struct cell cells[100];
    int n = cells_covering(cells, 100, 2, 9);
    assert_true(n > 0);
    for (int i = 0; i < n; i++)
        for (int accum = 1; accum <= 3; accum++)
            check_set(i % 2 ? FAMILY_GPT2 : FAMILY_LLAMA, i % 4 < 2 ? F32 : BF16, accum, &cells[i]);
    print_message("%d sets of programs over %d placements\n", 3 * n, n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sets_fit_together)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
