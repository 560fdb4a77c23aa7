/* Tests that placement never changes a bit. Compares losses and final state of three steps over a design of tiers, alpha,
 * prefetch distances and devices.
 *
 * Every other cell for a discrete device runs on the fake GPU (tests/cudasim/fake), whose streams run in an order of their own.
 * By default the design covers all pairs of settings, with LTRAIN_LONG all quadruples (the full product of 17,496 cells takes
 * hours for each model). Sanitizers run only its first cells, which differ most. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/mix.h"
#include "engine/rig.h"
#include "engine/twin.h"
#include "extent.h"
#include "plan/cells.h"
#include "program/digest.h"
#include "verify/value_numbers.h"
#include "verify/verify.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { S = 112, STEPS = 3, MAX_ACCUM = 3, LAYERS = 3 /* LAYERS: the second layer may not keep its input */, MAX_CELLS = 1000 };
static const int64_t DOCUMENTS[MAX_ACCUM][5] = {{30, 41, 1, 0}, {70, 0}, {5, 50, 31, 3, 0}};

/* Results that must be equal in all cells. */
struct result {
    double loss[STEPS], norm[STEPS];
    uint64_t digest, gradients, value[PLAN_PROGRAMS];
};

static struct twin twin;
static int has_twin;

/* Hash of a program, which must differ where the settings differ. */
struct trace {
    struct cell cell;
    uint64_t hash;
};

/* Adds the bytes that copies move, by class and lane, in one run of the program. */
static void add_moved(const struct program *p, int64_t moved[CLASSES][LANES], int64_t total[LANES])
{
    for (int i = 0; i < p->n_instrs; i++) {
        const struct instr *in = &p->instrs[i];
        total[in->lane] += program_call(p, in)->bytes;
        if (in->op == OP_COPY)
            moved[p->tensors[p->operands[in->first_operand].tensor].class][in->lane] += program_call(p, in)->bytes;
    }
}

/* Tells whether the bytes of the class went over the lanes that its tier needs, and over the drives' lanes only if its tier is
 * nvme. */
static int class_moved(enum factor f, const struct cell *c, const int64_t m[LANES])
{
    int tier = c->level[f], up = m[LANE_H2D] > 0, down = m[LANE_D2H] > 0;
    int by_host = tier == 1 || (tier == 2 && c->level[F_DEVICE]);
    if ((m[LANE_READ] > 0) != (tier == 2) || (m[LANE_WRITE] > 0) != (tier == 2))
        return 0;
    if (tier == 0 && !c->level[F_UPDATE])
        return !up && !down;
    if (!by_host)
        return 1; /* an update on the host fetches bytes from the device */
    switch (f) {
    case F_PARAMS:
        return up;
    case F_GRADS:
        return down;
    case F_OPTIM:
        return c->level[F_UPDATE] || (up && down);
    default:
        return up && down;
    }
}

static void check_moved(struct rig *r, const struct cell *c, int runs[PLAN_PROGRAMS], int64_t began)
{
    static const enum tensor_class class[] = {
        [F_PARAMS] = CLASS_PARAM, [F_GRADS] = CLASS_GRAD, [F_OPTIM] = CLASS_OPTIM, [F_ACTS] = CLASS_ACT};
    int64_t moved[CLASSES][LANES] = {{0}}, total[LANES] = {0};
    struct lane_stats stats[LANES];
    for (int k = 0; k < PLAN_PROGRAMS; k++)
        for (int i = 0; i < runs[k]; i++)
            add_moved(r->session->plan->programs[k], moved, total);
    executor_take_stats(r->session->executor, stats);
    /* Compute is not idle while it computes. A GPU's instructions end when a thread notices that a later one has: all at once, if late. */
    const struct lane_stats *compute = &stats[LANE_COMPUTE];
    const int64_t least = r->settings.plan.device != DEVICE_CUDA;
    if (compute->busy_ns < least || compute->busy_ns + compute->waited_ns > clock_ns() - began)
        fail_msg("%s: compute was busy for %lld ns and waited for %lld, of %lld", cell_name(c), (long long)compute->busy_ns,
                 (long long)compute->waited_ns, (long long)(clock_ns() - began));
    for (int l = 0; l < LANES; l++)
        if (stats[l].bytes != total[l])
            fail_msg("%s: lane %s moved %lld bytes, its programs say %lld", cell_name(c), lane_name((enum lane)l),
                     (long long)stats[l].bytes, (long long)total[l]);
    for (enum factor f = F_PARAMS; f <= F_ACTS; f++) {
        const int64_t *m = moved[class[f]];
        if (!class_moved(f, c, m))
            fail_msg("%s: %s moved h2d %lld, d2h %lld, read %lld, write %lld bytes", cell_name(c), class_name(class[f]),
                     (long long)m[LANE_H2D], (long long)m[LANE_D2H], (long long)m[LANE_READ], (long long)m[LANE_WRITE]);
    }
}

/* Hashes the gradients of the last step, read as `ltrain check` reads them. */
static uint64_t digest_of_gradients(struct rig *r, const struct cell *c)
{
    uint64_t hash = 1;
    for (int u = 0; u < r->model->n_units; u++) {
        const int64_t n = r->model->units[u].elements;
        uint32_t *bits = test_calloc((size_t)n, sizeof *bits);
        if (rig_state(r, u, STATE_GRAD, (float *)bits) != OK)
            fail_msg("%s: gradients of unit %d: %s", cell_name(c), u, status_message());
        for (int64_t i = 0; i < n; i++)
            hash = mix(hash, bits[i]);
        test_free(bits);
    }
    return hash;
}

static void run_cell(enum model_family family, int layers, enum dtype dtype, enum dtype moments, int accum, const struct cell *c,
                     struct result *out, struct trace *trace)
{
    struct rig r;
    struct model *model;
    struct sequence batch[MAX_ACCUM];
    int runs[PLAN_PROGRAMS] = {0};
    static int on_gpu;
    rig_defaults(&r, S);
    r.disk = 1;
    rig_cell_defaults(&r.settings, S, dtype);
    cell_apply(c, &r.settings.plan);
    r.settings.plan.optim_dtype = moments;
    if (moments == I8)
        r.settings.plan.group =
            8192; /* whole quantisation blocks only; the decayed part ends within a block and at the end of an extent */
    r.settings.plan.grad_accum = accum;
    if (has_twin && c->discrete && on_gpu++ % 2 == 0) {
        char words[32];
        snprintf(words, sizeof words, "seed=%d", on_gpu);
        twin.configure(words);
        r.settings.plan.device = DEVICE_CUDA;
        r.settings.gpu = AUTO;
    }
    assert_int_equal(cell_model(family, layers, &model), OK);
    for (int i = 0; i < accum; i++)
        sequence_random(&batch[i], S, model->config.vocab, (uint64_t)(3 + i), DOCUMENTS[i]);
    if (rig_start(&r, model) != OK || session_initialise(r.session, 5) != OK)
        fail_msg("%s: %s", cell_name(c), status_message());
    const struct plan *plan = r.session->plan;
    assert_true(plan->fits);
    assert_true(plan->strategy.key.head_tile < model->config.heads);
    memset(out, 0, sizeof *out);
    trace->cell = *c;
    trace->hash = 1;
    for (int k = 0; k < PLAN_PROGRAMS; k++)
        if (plan->programs[k]) {
            assert_int_equal(program_value_digest(plan->programs[k], &out->value[k]), OK);
            trace->hash = mix(trace->hash, program_digest(plan->programs[k]));
        }
    const int64_t began = clock_ns();
    for (int step = 0; step < STEPS; step++)
        if (rig_step(&r, batch, accum, &out->loss[step], &out->norm[step]) != OK)
            fail_msg("%s: %s", cell_name(c), status_message());
    out->gradients = digest_of_gradients(&r, c);
    assert_int_equal(rig_flush(&r), OK);
    runs[PLAN_STEP] = runs[PLAN_FLUSH] = 1;
    runs[PLAN_UPDATE_STEP] = STEPS - 1;
    runs[PLAN_MORE] = STEPS * (accum - 2 > 0 ? accum - 2 : 0);
    runs[PLAN_LAST] = accum > 1 ? STEPS : 0;
    check_moved(&r, c, runs, began);
    assert_int_equal(rig_digest(&r, &out->digest), OK);
    for (int i = 0; i < accum; i++)
        sequence_free(&batch[i]);
    rig_stop(&r);
}

static void check_equal(const struct cell *c, const struct result *have, const struct result *want)
{
    for (int k = 0; k < PLAN_PROGRAMS; k++)
        if (have->value[k] != want->value[k])
            fail_msg("%s: program %d computes other values", cell_name(c), k);
    for (int i = 0; i < STEPS; i++)
        if (memcmp(&have->loss[i], &want->loss[i], 8) != 0 || memcmp(&have->norm[i], &want->norm[i], 8) != 0)
            fail_msg("%s, step %d: loss %.17g, resident %.17g; norm %.17g, resident %.17g", cell_name(c), i, have->loss[i],
                     want->loss[i], have->norm[i], want->norm[i]);
    if (have->gradients != want->gradients)
        fail_msg("%s: the gradients of step %d differ", cell_name(c), STEPS - 1);
    if (have->digest != want->digest)
        fail_msg("%s: parameters or optimizer state differ after %d steps", cell_name(c), STEPS);
}

/* Tells whether two cells must have different programs. Prefetch distances only matter for fetched bytes. The discrete device
 * only matters for bytes that pass between nvme and the device (a host update's optimizer state does not). */
static int must_differ(const struct cell *a, const struct cell *b)
{
    for (int f = 0; f < F_INPUTS; f++)
        if (f != F_PREFETCH && f != F_DEVICE && a->level[f] != b->level[f])
            return 1;
    if (cell_passing(a) != cell_passing(b))
        return 1;
    /* levels above 0 make equal programs: of three layers at most one can lack its input */
    if ((a->level[F_INPUTS] > 0) != (b->level[F_INPUTS] > 0))
        return 1;
    int passes = a->level[F_PARAMS] == 2 || a->level[F_GRADS] == 2 || a->level[F_ACTS] == 2 ||
                 (a->level[F_OPTIM] == 2 && a->level[F_UPDATE] == 0);
    return passes && a->level[F_DEVICE] != b->level[F_DEVICE];
}

static void check_matrix(enum model_family family, enum dtype dtype, enum dtype moments, int accum, int extra)
{
    static struct cell cells[MAX_CELLS];
    static struct trace trace[MAX_CELLS];
    struct result want, have;
    const char *name = family == FAMILY_LLAMA ? "llama" : family == FAMILY_GPT2 ? "gpt2" : "gpt-oss";
    int n =
        cells_covering(cells, MAX_CELLS - 10, extent(2, 2, 4), 1 + (family == FAMILY_GPT2) + 2 * dtype + 10 * (unsigned)accum);
    assert_true(n > 0);
    if (!extent_is_long()) /* adds random cells */
        for (int i = 0; i < extra; i++, n++)
            for (int f = 0; f < FACTORS; f++)
                cells[n].level[f] =
                    (int)rng_below(77, (family == FAMILY_GPT2) + 2 * dtype, (uint64_t)(i * FACTORS + f), (uint64_t)LEVELS[f]);
    n = (int)min_i64(n, extent(7, family == FAMILY_GPT_OSS ? 10 : MAX_CELLS, MAX_CELLS));
    for (int i = 0; i < n; i++) {
        run_cell(family, LAYERS, dtype, moments, accum, &cells[i], &have, &trace[i]);
        if (i == 0)
            want = have;
        check_equal(&cells[i], &have, &want);
        for (int j = 0; j < i; j++)
            if (trace[i].hash == trace[j].hash && must_differ(&trace[i].cell, &trace[j].cell)) {
                char other[192];
                snprintf(other, sizeof other, "%s", cell_name(&trace[j].cell));
                fail_msg("same programs for %s and %s", cell_name(&trace[i].cell), other);
            }
    }
    for (int i = 0; i < STEPS; i++)
        assert_true(isfinite(want.loss[i]) && isfinite(want.norm[i]) && want.norm[i] > 0 &&
                    (i == 0 || want.loss[i] < want.loss[i - 1]));
    print_message("%s %s, moments %s, %d micro-batches: %d cells bit-identical, losses %.6f %.6f %.6f\n", name, dtype_name(dtype),
                  dtype_name(moments), accum, n, want.loss[0], want.loss[1], want.loss[2]);
}

static void llama_fp32(void **state)
{
    (void)state;
    check_matrix(FAMILY_LLAMA, F32, F32, 1, 6);
}

static void llama_bf16(void **state)
{
    (void)state;
    check_matrix(FAMILY_LLAMA, BF16, F32, 1, 6);
}

static void gpt2_fp32(void **state)
{
    (void)state;
    check_matrix(FAMILY_GPT2, F32, BF16, 1, 6);
}

static void gpt2_bf16(void **state)
{
    (void)state;
    check_matrix(FAMILY_GPT2, BF16, BF16, 1, 6);
}

static void sinks_bf16(void **state)
{
    (void)state;
    check_matrix(FAMILY_GPT_OSS, BF16, F32, 3, 0);
}

static void accumulated_llama(void **state)
{
    (void)state;
    check_matrix(FAMILY_LLAMA, F32, F32, 3, 0);
}

static void accumulated_gpt2(void **state)
{
    (void)state;
    check_matrix(FAMILY_GPT2, BF16, BF16, 3, 0);
}

static void llama_int8_moments(void **state)
{
    (void)state;
    check_matrix(FAMILY_LLAMA, BF16, I8, 1, 0);
}

/* Leaves out the inputs of two layers in a row: one is computed from the other. */
static void chained_inputs(void **state)
{
    (void)state;
    static const struct cell kept = {EVERYTHING(ON_DEVICE)};
    static const struct cell cells[] = {
        {.alpha = KEEP_NONE, .inputs = INPUTS_THIRD},
        {.params = ON_DRIVES,
         .grads = ON_HOST,
         .optim = ON_DRIVES,
         .acts = ON_DRIVES,
         .alpha = KEEP_HALF,
         .host_update = 1,
         .discrete = 1,
         .inputs = INPUTS_THIRD},
        {EVERYTHING(ON_HOST), .alpha = KEEP_NONE, .discrete = 1, .inputs = INPUTS_HALF},
    };
    for (int f = 0; f < 2; f++) {
        const enum model_family family = f ? FAMILY_GPT2 : FAMILY_LLAMA;
        struct result want, have;
        struct trace trace;
        run_cell(family, 4, BF16, F32, 1, &kept, &want, &trace);
        for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
            run_cell(family, 4, BF16, F32, 1, &cells[i], &have, &trace);
            check_equal(&cells[i], &have, &want);
        }
    }
}

/* Returns the hash of a cell's program on its own device; executes nothing. */
static uint64_t hash_of(enum model_family family, int layers, const struct cell *c)
{
    const int64_t limit[TIERS] = {1 << 30, 1 << 30, 1 << 30};
    struct plan_request s;
    struct model *model;
    struct plan *plan;
    cell_settings(&s, S, F32);
    cell_apply(c, &s);
    assert_int_equal(cell_model(family, layers, &model), OK);
    assert_int_equal(plan_create(model, &s, limit, &plan), OK);
    const uint64_t hash = program_digest(plan->programs[PLAN_UPDATE_STEP]);
    plan_destroy(plan);
    model_destroy(model);
    return hash;
}

/* Layers with a window and the other layers keep different numbers of chunks. The programs differ from those with one number for
 * all layers, whatever that number; the bits are the same. */
static void kinds_of_layers(void **state)
{
    (void)state;
    static const struct cell resident = {EVERYTHING(ON_DEVICE)};
    static const struct cell cells[] = {
        {.kinds = KINDS_NONE_AND_ALL, EVERYTHING(ON_HOST), .discrete = 1},
        {.kinds = KINDS_ALL_AND_NONE, EVERYTHING(ON_HOST), .discrete = 1},
        {.kinds = KINDS_HALF_AND_ALL, EVERYTHING(ON_DRIVES), .host_update = 1, .discrete = 1},
        {.kinds = KINDS_NONE_AND_ALL, EVERYTHING(ON_DRIVES), .inputs = INPUTS_HALF, .passing = PASS_ON_DEVICE},
        {.kinds = KINDS_HALF_AND_ALL, EVERYTHING(ON_DEVICE), .inputs = INPUTS_THIRD},
        {EVERYTHING(ON_HOST), .alpha = KEEP_HALF, .discrete = 1},
    };
    enum { CELLS = sizeof cells / sizeof *cells };
    struct result want, have;
    struct trace trace[CELLS + 1];
    run_cell(FAMILY_GPT_OSS, LAYERS, F32, F32, 1, &resident, &want, &trace[CELLS]);
    for (int i = 0; i < CELLS; i++) {
        run_cell(FAMILY_GPT_OSS, LAYERS, F32, F32, 1, &cells[i], &have, &trace[i]);
        check_equal(&cells[i], &have, &want);
        for (int j = 0; j < i; j++)
            assert_true(trace[i].hash != trace[j].hash);
        for (int alpha = KEEP_ALL; cells[i].kinds != KINDS_ALIKE && alpha <= KEEP_NONE; alpha++) {
            struct cell alike = cells[i];
            alike.kinds = KINDS_ALIKE;
            alike.alpha = alpha;
            if (hash_of(FAMILY_GPT_OSS, LAYERS, &cells[i]) == hash_of(FAMILY_GPT_OSS, LAYERS, &alike))
                fail_msg("same programs for %s and with one alpha", cell_name(&cells[i]));
        }
    }
}

/* If everything is fetched, each prefetch distance gives another program. */
static void distances_differ(void **state)
{
    (void)state;
    uint64_t hash[3];
    for (int d = 0; d < 3; d++)
        hash[d] =
            hash_of(FAMILY_LLAMA, 2, &(struct cell){EVERYTHING(ON_DRIVES), .alpha = KEEP_NONE, .prefetch = d, .discrete = 1});
    assert_true(hash[0] != hash[1] && hash[1] != hash[2] && hash[0] != hash[2]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(distances_differ),  cmocka_unit_test(llama_fp32),        cmocka_unit_test(llama_bf16),
        cmocka_unit_test(gpt2_fp32),         cmocka_unit_test(gpt2_bf16),         cmocka_unit_test(sinks_bf16),
        cmocka_unit_test(accumulated_llama), cmocka_unit_test(accumulated_gpt2),  cmocka_unit_test(chained_inputs),
        cmocka_unit_test(kinds_of_layers),   cmocka_unit_test(llama_int8_moments)};
    has_twin = twin_open(getenv("LTRAIN_CUDA_TWIN"), &twin);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
