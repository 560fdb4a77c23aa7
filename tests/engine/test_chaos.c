/* Tests that random legal orders of instructions, with unused bytes poisoned, give the threaded executor's bits, and that kernels
 * need no undeclared byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "engine/chaos.h"
#include "engine/rig.h"
#include "extent.h"
#include "plan/cells.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { S = 112, STEPS = 2, MAX_ACCUM = 3 };
static const int64_t DOCUMENTS[MAX_ACCUM][5] = {{30, 41, 1, 0}, {70, 0}, {5, 50, 31, 3, 0}};

enum way { THREADED, CHAOS, DECLARED };

struct trial {
    enum model_family family;
    enum dtype dtype;
    int accum, layers;
    struct cell cell;
};

struct result {
    enum status st; /* status of the program that failed */
    double loss[STEPS], norm[STEPS];
    uint64_t digest;
    int finite;
};

/* Change made to the session before it runs; NULL: none. */
static void (*sabotage)(struct session *s);

static enum status run_program(struct rig *r, enum plan_program which, enum way way, uint64_t seed)
{
    const struct session *s = r->session;
    switch (way) {
    case CHAOS:
        return chaos_run(&s->context, s->plan->programs[which], seed * 100 + (uint64_t)(r->updates * 8) + which);
    case DECLARED:
        return chaos_run_declared(&s->context, s->plan->programs[which]);
    default:
        return session_run(r->session, which, NULL);
    }
}

static void set_record(struct rig *r, int64_t targets)
{
    const struct settings *s = &r->settings;
    double t = (double)r->updates;
    *(struct step_record *)session_io(r->session, r->session->plan->io.record) =
        (struct step_record){.inv_targets = 1.0f / (float)targets,
                             .clip = (float)s->clip,
                             .lr = (float)s->lr,
                             .weight_decay = (float)s->weight_decay,
                             .beta1 = (float)s->beta1,
                             .beta2 = (float)s->beta2,
                             .eps = (float)s->eps,
                             .bias1 = (float)(1 - pow(s->beta1, t)),
                             .bias2 = (float)(1 - pow(s->beta2, t))};
}

static enum status run_micro(struct rig *r, const struct sequence *q, enum plan_program which, enum way way, uint64_t seed,
                             double *loss)
{
    const struct io_buffers *io = &r->session->plan->io;
    const int buffer[] = {io->tokens, io->targets, io->positions, io->lo[0], io->hi[0]};
    const int32_t *const data[] = {q->tokens, q->targets, q->positions, q->lo, q->hi};
    for (int i = 0; i < 5; i++)
        memcpy(session_io(r->session, buffer[i]), data[i], S * 4);
    TRY(run_program(r, which, way, seed));
    const double *part = session_io(r->session, io->loss);
    for (int64_t k = 0; k < ceil_div(S, r->session->plan->strategy.key.loss_tile); k++)
        *loss += part[k];
    return OK;
}

static int state_is_finite(struct rig *r)
{
    int finite = 1;
    for (int u = 0; u < r->model->n_units; u++)
        for (int k = STATE_PARAM; k <= STATE_V; k++) {
            float *x = calloc((size_t)r->model->units[u].elements, sizeof *x);
            assert_int_equal(rig_state(r, u, (enum state_kind)k, x), OK);
            for (int64_t i = 0; i < r->model->units[u].elements; i++)
                finite = finite && isfinite(x[i]);
            free(x);
        }
    return finite;
}

/* Checks that after a chaos run every byte that the program touched is poisoned, except persistent state. */
static void check_all_dead(const struct session *s, const struct program *p)
{
    for (int k = 0; k < p->n_operands; k++) {
        const struct buffer *b = &p->buffers[p->operands[k].buffer];
        if (b->persistent || b->tier == TIER_NVME)
            continue;
        int64_t bytes = p->operands[k].bytes;
        unsigned char *left = malloc((size_t)bytes);
        assert_int_equal(exec_read(&s->context, b->tier, b->address + p->operands[k].offset, left, bytes), OK);
        for (int64_t i = 0; i < bytes; i++)
            assert_int_equal(left[i], 0xff);
        free(left);
    }
}

static enum status run_steps(struct rig *r, const struct trial *t, const struct sequence *batch, enum way way, uint64_t seed,
                             struct result *out)
{
    int64_t targets = 0;
    for (int i = 0; i < t->accum; i++)
        targets += batch[i].n_targets;
    for (int step = 0; step < STEPS; step++) {
        set_record(r, targets);
        for (int i = 0; i < t->accum; i++) {
            enum plan_program which = i == 0             ? (step > 0 ? PLAN_UPDATE_STEP : PLAN_STEP)
                                      : i + 1 < t->accum ? PLAN_MORE
                                                         : PLAN_LAST;
            TRY(run_micro(r, &batch[i], which, way, seed, &out->loss[step]));
        }
        out->norm[step] = ((struct norm_result *)session_io(r->session, r->session->plan->io.norm))->norm;
        r->updates++;
    }
    set_record(r, targets);
    TRY(run_program(r, PLAN_FLUSH, way, seed));
    return session_check_memory(r->session);
}

static void start(struct rig *r, const struct trial *t)
{
    struct model *model;
    rig_defaults(r, S);
    rig_cell_defaults(&r->settings, S, t->dtype);
    cell_apply(&t->cell, &r->settings.plan);
    r->settings.plan.grad_accum = t->accum;
    assert_int_equal(cell_model(t->family, t->layers, &model), OK);
    if (rig_start(r, model) != OK)
        fail_msg("%s", status_message());
    if (sabotage)
        sabotage(r->session);
}

/* Runs the trial from the beginning, whatever the rig has done before. */
static struct result run_from_start(struct rig *r, const struct trial *t, enum way way, uint64_t seed)
{
    struct sequence batch[MAX_ACCUM];
    struct result out = {0};
    for (int i = 0; i < t->accum; i++)
        sequence_random(&batch[i], S, r->model->config.vocab, (uint64_t)(3 + i), DOCUMENTS[i]);
    r->updates = 0;
    if (session_initialise(r->session, 5) != OK || session_zero_moments(r->session) != OK)
        fail_msg("%s", status_message());
    out.st = run_steps(r, t, batch, way, seed, &out);
    if (out.st == OK) {
        if (way == CHAOS)
            check_all_dead(r->session, r->session->plan->programs[PLAN_FLUSH]);
        out.finite = state_is_finite(r);
        for (int i = 0; i < STEPS; i++)
            out.finite = out.finite && isfinite(out.loss[i]) && isfinite(out.norm[i]);
        assert_int_equal(rig_digest(r, &out.digest), OK);
    } else if (!sabotage) {
        fail_msg("%s: %s", cell_name(&t->cell), status_message());
    }
    for (int i = 0; i < t->accum; i++)
        sequence_free(&batch[i]);
    return out;
}

static struct result run(const struct trial *t, enum way way, uint64_t seed)
{
    struct rig r;
    start(&r, t);
    struct result out = run_from_start(&r, t, way, seed);
    rig_stop(&r);
    return out;
}

static int same(const struct result *a, const struct result *b)
{
    return a->st == b->st && memcmp(a->loss, b->loss, sizeof a->loss) == 0 && memcmp(a->norm, b->norm, sizeof a->norm) == 0 &&
           a->digest == b->digest;
}

static void check_equal(const struct trial *t, const struct result *have, const struct result *want, uint64_t seed)
{
    for (int i = 0; i < STEPS; i++)
        if (memcmp(&have->loss[i], &want->loss[i], 8) != 0 || memcmp(&have->norm[i], &want->norm[i], 8) != 0)
            fail_msg("%s, seed %d, step %d: loss %.17g, threaded %.17g; norm %.17g, threaded %.17g", cell_name(&t->cell),
                     (int)seed, i, have->loss[i], want->loss[i], have->norm[i], want->norm[i]);
    if (!same(have, want))
        fail_msg("%s, seed %d: parameters or optimizer state differ", cell_name(&t->cell), (int)seed);
    assert_true(have->finite && want->finite);
}

static const struct trial TRIALS[] = {
    {FAMILY_LLAMA, F32, 1, 2, {EVERYTHING(ON_DEVICE)}},
    {FAMILY_LLAMA, F32, 1, 2, {EVERYTHING(ON_HOST), .alpha = KEEP_HALF, .host_update = 1, .discrete = 1}},
    {FAMILY_LLAMA,
     F32,
     1,
     2,
     {EVERYTHING(ON_DRIVES), .alpha = KEEP_NONE, .host_update = 1, .discrete = 1, .inputs = INPUTS_HALF,
      .passing = PASS_ON_HOST}},
    {FAMILY_LLAMA, BF16, 1, 2, {EVERYTHING(ON_DRIVES), .alpha = KEEP_HALF, .prefetch = AHEAD_1, .host_update = 1}},
    {FAMILY_LLAMA,
     BF16,
     3,
     2,
     {.params = ON_DRIVES, .grads = ON_HOST, .optim = ON_DRIVES, .acts = ON_HOST, .prefetch = AHEAD_0, .discrete = 1}},
    {FAMILY_GPT2, F32, 1, 3, {.alpha = KEEP_NONE, .host_update = 1, .inputs = INPUTS_HALF}},
    {FAMILY_GPT2,
     F32,
     1,
     2,
     {.params = ON_HOST,
      .grads = ON_DRIVES,
      .optim = ON_DRIVES,
      .acts = ON_HOST,
      .alpha = KEEP_HALF,
      .discrete = 1,
      .inputs = INPUTS_HALF,
      .passing = PASS_ON_DEVICE}},
    {FAMILY_GPT2, BF16, 1, 2, {EVERYTHING(ON_DRIVES), .alpha = KEEP_NONE, .host_update = 1, .discrete = 1}},
    {FAMILY_GPT2,
     BF16,
     1,
     2,
     {.params = ON_DRIVES, .optim = ON_HOST, .acts = ON_DRIVES, .prefetch = AHEAD_1, .passing = PASS_ON_DEVICE}},
    {FAMILY_GPT2, F32, 3, 2, {EVERYTHING(ON_DRIVES), .alpha = KEEP_HALF, .host_update = 1, .discrete = 1}},
    {FAMILY_GPT_OSS, BF16, 1, 2, {EVERYTHING(ON_DRIVES), .alpha = KEEP_HALF, .discrete = 1}},
};
enum { N_TRIALS = sizeof TRIALS / sizeof *TRIALS };

static void orders(void **state)
{
    const int n = extent(1, 5, 20);
    (void)state;
    for (int i = 0; i < N_TRIALS; i++) {
        struct rig r;
        start(&r, &TRIALS[i]);
        struct result want = run_from_start(&r, &TRIALS[i], THREADED, 0);
        assert_true(isfinite(want.loss[0]) && isfinite(want.norm[0]) && want.loss[1] < want.loss[0]);
        for (int seed = 1; seed <= n; seed++) {
            struct result have = run_from_start(&r, &TRIALS[i], CHAOS, (uint64_t)seed);
            check_equal(&TRIALS[i], &have, &want, (uint64_t)seed);
        }
        rig_stop(&r);
    }
    print_message("%d chaos orders of %d placements bit-identical to the threaded executor\n", N_TRIALS * n, N_TRIALS);
}

static void declared_operands(void **state)
{
    (void)state;
    static const struct trial trials[] = {
        {FAMILY_LLAMA, F32, 1, 1, {EVERYTHING(ON_DRIVES), .alpha = KEEP_HALF, .host_update = 1, .discrete = 1}},
        {FAMILY_LLAMA, BF16, 3, 1, {.alpha = KEEP_NONE}},
        {FAMILY_GPT2, BF16, 1, 1, {EVERYTHING(ON_HOST), .alpha = KEEP_HALF, .host_update = 1, .discrete = 1}},
        {FAMILY_GPT2, F32, 3, 1, {.params = ON_DRIVES, .grads = ON_HOST, .optim = ON_DRIVES, .acts = ON_DRIVES}},
        {FAMILY_GPT_OSS, F32, 3, 1, {.params = ON_DRIVES, .grads = ON_HOST, .optim = ON_DRIVES, .acts = ON_DRIVES}},
    };
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++) {
        struct rig r;
        start(&r, &trials[i]);
        struct result want = run_from_start(&r, &trials[i], THREADED, 0), have = run_from_start(&r, &trials[i], DECLARED, 0);
        check_equal(&trials[i], &have, &want, 0);
        rig_stop(&r);
    }
}

/* ---- planted errors are noticed ---- */

static void no_waits_of_compute(struct session *s)
{
    struct program *p = s->plan->programs[PLAN_UPDATE_STEP];
    for (int i = 0; i < p->n_instrs; i++)
        if (p->instrs[i].lane == LANE_COMPUTE)
            p->instrs[i].n_waits = 0;
}

static void no_waits_of_writes(struct session *s)
{
    struct program *p = s->plan->programs[PLAN_UPDATE_STEP];
    for (int i = 0; i < p->n_instrs; i++)
        if (p->instrs[i].lane == LANE_WRITE || p->instrs[i].lane == LANE_D2H)
            p->instrs[i].n_waits = 0;
}

/* Makes an instruction wait for a ticket that the awaited lane never reaches. */
static void wait_for_nothing(struct session *s)
{
    struct program *p = s->plan->programs[PLAN_UPDATE_STEP];
    int i = 0;
    while (p->instrs[i].n_waits == 0)
        i++;
    program_waits(p, &p->instrs[i])->ticket = 1 << 30;
}

static op_kernel *honest;

static enum status swiglu_writes_beyond(const struct op_attrs *a, void *const *arg, void *stream)
{
    TRY(honest(a, arg, stream));
    ((float *)arg[0])[a->act.rows * a->act.dim] = 1;
    return OK;
}

static enum status swiglu_reads_beyond(const struct op_attrs *a, void *const *arg, void *stream)
{
    TRY(honest(a, arg, stream));
    ((float *)arg[0])[0] += 1e-6f * ((const float *)arg[1])[a->act.rows * a->act.dim];
    return OK;
}

static enum status swiglu_reads_output(const struct op_attrs *a, void *const *arg, void *stream)
{
    float before = ((const float *)arg[0])[0];
    TRY(honest(a, arg, stream));
    ((float *)arg[0])[0] += 1e-6f * before;
    return OK;
}

static enum status swiglu_leaves_hole(const struct op_attrs *a, void *const *arg, void *stream)
{
    float before = ((const float *)arg[0])[a->act.dim];
    TRY(honest(a, arg, stream));
    ((float *)arg[0])[a->act.dim] = before;
    return OK;
}

static void replace_swiglu(struct session *s, op_kernel *by)
{
    honest = s->context.backend->kernels[OP_SWIGLU];
    s->context.backend->kernels[OP_SWIGLU] = by;
}

static void writes_beyond(struct session *s)
{
    replace_swiglu(s, swiglu_writes_beyond);
}

static void reads_beyond(struct session *s)
{
    replace_swiglu(s, swiglu_reads_beyond);
}

static void reads_output(struct session *s)
{
    replace_swiglu(s, swiglu_reads_output);
}

static void leaves_hole(struct session *s)
{
    replace_swiglu(s, swiglu_leaves_hole);
}

static void faults_show(void **state)
{
    (void)state;
    static const struct trial t = {
        FAMILY_LLAMA, F32, 1, 1, {EVERYTHING(ON_DRIVES), .alpha = KEEP_HALF, .host_update = 1, .discrete = 1}};
    static const struct {
        void (*plant)(struct session *);
        enum way way;
        enum status st; /* expected status; OK: the fault shows in the results, or as an error of the store */
    } faults[] = {{no_waits_of_compute, CHAOS, OK},
                  {no_waits_of_writes, CHAOS, OK},
                  {wait_for_nothing, CHAOS, ERR_CORRUPT},
                  {writes_beyond, DECLARED, ERR_CORRUPT},
                  {reads_beyond, DECLARED, OK},
                  {reads_output, DECLARED, OK},
                  {leaves_hole, DECLARED, OK},
                  {reads_output, CHAOS, OK},
                  {leaves_hole, CHAOS, OK}};
    struct result want = run(&t, THREADED, 0);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        sabotage = faults[i].plant;
        struct result have = run(&t, faults[i].way, 1);
        sabotage = NULL;
        if (faults[i].st != OK && have.st != faults[i].st)
            fail_msg("fault %d: status %d, %s", (int)i, have.st, have.st == OK ? "" : status_message());
        if (same(&have, &want))
            fail_msg("fault %d was not noticed", (int)i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(orders), cmocka_unit_test(declared_operands),
                                       cmocka_unit_test(faults_show)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
