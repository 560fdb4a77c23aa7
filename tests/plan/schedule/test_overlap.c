/* Tests how messages and copies overlap with compute, on the virtual clock: rings and all-to-alls whose link needs 70% of the
 * compute time, and links that need more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "machine/rank_cost.h"
#include "plan/cells.h"
#include "plan/scheduled.h"
#include "seqpar/layouts.h"
#include "verify/verify.h"

#include <stdio.h>

/* Creates a model with 16 query heads on 16 KV heads: as many tiles as a rank has heads. */
static struct model *wide(int layers)
{
    struct model *m;
    struct model_config c = {.family = FAMILY_LLAMA,
                             .vocab = 256,
                             .dim = 1024,
                             .ffn = 2816,
                             .layers = layers,
                             .heads = 32,
                             .kv_heads = 32,
                             .head_dim = 32,
                             .max_positions = 1 << 21,
                             .norm_eps = 1e-5f,
                             .init_std = 0.02f,
                             .rope_theta = 10000};
    strcpy(c.name, "wide");
    assert_int_equal(model_create(&c, NULL, 0, &m), OK);
    return m;
}

static void strategy_of(struct strategy *s, int ulysses, int ring, int64_t seq_len)
{
    struct seq_shape shape;
    assert_int_equal(seq_shape_create(seq_len, ulysses, ring, SEQ_AUTO, &shape), OK);
    *s = (struct strategy){.seq_len = shape.padded,
                           .rows = seq_rank_rows(&shape),
                           .key.mesh.degree[MESH_DP] = 1,
                           .key.mesh.degree[MESH_ULYSSES] = ulysses,
                           .key.mesh.degree[MESH_RING] = ring,
                           .ranks = ulysses * ring,
                           .key.zero = 0,
                           .key.row_chunk = 16384,
                           .key.loss_tile = 16384,
                           .key.head_tile = 1,
                           .key.group = 1 << 30,
                           .key.packed = 1,
                           .placement.prefetch = 16,
                           .placement.keep_inputs = 1,
                           .target = cell_target(),
                           .key.dtype = BF16};
}

struct busy {
    double compute, comm, total;
};

static struct busy busy_of(const struct program *p, enum lane lane, const struct cost_model *cost)
{
    struct busy b = {.total = p->seconds};
    for (int i = 0; i < p->n_instrs; i++) {
        if (p->instrs[i].lane == LANE_COMPUTE)
            b.compute += cost_seconds(cost, &p->instrs[i], program_call(p, &p->instrs[i]));
        if (p->instrs[i].lane == lane)
            b.comm += cost_seconds(cost, &p->instrs[i], program_call(p, &p->instrs[i]));
    }
    return b;
}

/* Returns the share of the lane's time that hides behind compute if the lane is busy for 70% of compute's time. */
static double hidden(const struct model *m, const struct strategy *s, enum lane lane, int duties)
{
    struct plan_request none = {0};
    struct cost_model cost;
    struct io_buffers io;
    struct program *p;
    plan_cost_model(&none, &cost);
    for (int l = 0; l < LANES; l++)
        cost.lane_bytes[l] = 1e15; /* other lanes do not slow the step */
    cost.overhead = 0;
    assert_int_equal(lower_program(m, s, duties, &io, &p), OK);
    struct busy b = busy_of(p, lane, &cost);
    cost.lane_bytes[lane] = 1e15 * b.comm / (0.7 * b.compute);
    b = busy_of(p, lane, &cost);
    assert_true(b.comm > 0.699 * b.compute && b.comm < 0.701 * b.compute);
    double chunk = b.compute / (double)(3 * m->config.layers * ceil_div(s->rows, s->key.row_chunk));
    assert_int_equal(schedule_program(p, &cost, SCHEDULE_OVERLAPPED, s->placement.prefetch * chunk), OK);
    double share = 1 - (p->seconds - b.compute) / b.comm;
    printf("%s ulysses=%d ring=%d duties %d: compute %.3f s, messages %.3f s, step %.3f s, hidden %.1f%%\n", lane_name(lane),
           s->key.mesh.degree[MESH_ULYSSES], s->key.mesh.degree[MESH_RING], duties, b.compute, b.comm, p->seconds, 100 * share);
    program_destroy(p);
    return share;
}

enum { STEP = DUTY_FORWARD | DUTY_BACKWARD | DUTY_FIRST | DUTY_LAST };

static void rings(void **state)
{
    (void)state;
    struct model *m = wide(2);
    for (int ring = 4; ring <= 16; ring *= 2) {
        struct strategy s;
        strategy_of(&s, 1, ring, 1 << 20);
        assert_true(hidden(m, &s, LANE_RING, DUTY_FORWARD) >= 0.95);
        assert_true(hidden(m, &s, LANE_RING, STEP) >= 0.95);
    }
    model_destroy(m);
}

static void ulysses(void **state)
{
    (void)state;
    struct model *m = wide(2);
    struct strategy s;
    strategy_of(&s, 2, 1, 1 << 20);
    assert_true(hidden(m, &s, LANE_ULYSSES, DUTY_FORWARD) >= 0.9);
    assert_true(hidden(m, &s, LANE_ULYSSES, STEP) >= 0.9);
    model_destroy(m);
}

/* --- Gradients over all ranks --- */

/* Makes the program of 8 ranks that have different sequences, with links that need `part` of the compute time for the messages of
 * a further micro-batch. */
static struct program *sharded(const struct model *m, int zero, int duties, double part, enum schedule_mode mode, struct busy *b)
{
    struct plan_request none = {0};
    struct strategy s;
    struct cost_model cost;
    struct io_buffers io;
    struct program *p;
    strategy_of(&s, 1, 1, 1 << 16);
    s.ranks = s.key.mesh.degree[MESH_DP] = 8;
    s.key.zero = zero;
    s.key.wire = BF16;
    s.key.group = 1 << 19;
    plan_cost_model(&none, &cost);
    for (int l = 0; l < LANES; l++)
        cost.lane_bytes[l] = 1e15;
    cost.overhead = 0;
    assert_int_equal(lower_program(m, &s, duties, &io, &p), OK);
    *b = busy_of(p, LANE_WORLD, &cost);
    cost.lane_bytes[LANE_WORLD] = 1e15 * b->comm / (part * b->compute);
    *b = busy_of(p, LANE_WORLD, &cost);
    assert_int_equal(
        schedule_program(p, &cost, mode, 64 * b->compute / (double)(3 * m->config.layers * s.rows / s.key.row_chunk)), OK);
    b->total = p->seconds;
    assert_int_equal(program_verify(p), OK);
    return p;
}

/* Messages hide behind compute except at both ends of the micro-batch, which have no compute: an eighth of all messages with 8
 * layers. If compute waits for reductions at once, more than a third is exposed. */
static void gradients(void **state)
{
    (void)state;
    struct model *m = wide(8);
    for (int zero = 2; zero <= 3; zero++) {
        struct busy b, at_once;
        program_destroy(sharded(m, zero, DUTY_FORWARD | DUTY_BACKWARD, 0.5, SCHEDULE_OVERLAPPED, &b));
        program_destroy(sharded(m, zero, DUTY_FORWARD | DUTY_BACKWARD, 0.5, SCHEDULE_SETTLED, &at_once));
        printf("zero %d: compute %.3f s, messages %.3f s, step %.3f s, settled at once %.3f s\n", zero, b.compute, b.comm,
               b.total, at_once.total);
        assert_true(b.total - b.compute < 0.125 * b.comm);
        assert_true(at_once.total - b.compute > 0.33 * b.comm);
    }
    model_destroy(m);
}

/* If links need twice the compute time, they are always busy. */
static void messages_alone_limit(void **state)
{
    (void)state;
    struct model *m = wide(8);
    struct busy b;
    program_destroy(sharded(m, 3, DUTY_FORWARD | DUTY_BACKWARD, 2, SCHEDULE_OVERLAPPED, &b));
    printf("compute %.3f s, messages %.3f s, step %.3f s\n", b.compute, b.comm, b.total);
    assert_true(b.total < 1.08 * b.comm);
    model_destroy(m);
}

/* A layer's first reductions start before its backward pass ends, and their sums come after compute of the next layer. All sums
 * are done before the layer after the next one ends. */
static void gradients_settle_later(void **state)
{
    (void)state;
    enum { LAYERS = 8 };
    struct model *m = wide(LAYERS);
    struct busy b;
    struct program *p = sharded(m, 2, DUTY_FORWARD | DUTY_BACKWARD, 0.5, SCHEDULE_OVERLAPPED, &b);
    double reduced[LAYERS + 2], ended[LAYERS + 2] = {0}, added[LAYERS + 2] = {0};
    for (int u = 0; u < LAYERS + 2; u++)
        reduced[u] = 1e300;
    for (int i = 0; i < p->n_instrs; i++) {
        const struct instr *in = &p->instrs[i];
        if (in->phase != PHASE_BACKWARD || in->unit < 0)
            continue;
        if (in->op == OP_REDUCE_SCATTER && in->start < reduced[in->unit])
            reduced[in->unit] = in->start;
        if (in->lane == LANE_COMPUTE && in->op == OP_ACCUM && in->end > added[in->unit])
            added[in->unit] = in->end;
        if (in->lane == LANE_COMPUTE && in->op == OP_GEMM && in->end > ended[in->unit])
            ended[in->unit] = in->end;
    }
    for (int u = LAYERS; u > 2; u--) {
        assert_true(reduced[u] < ended[u]);
        assert_true(added[u] > ended[u]);
        assert_true(added[u] < ended[u - 2]);
    }
    program_destroy(p);
    model_destroy(m);
}

/* Compute does not wait for the gather of a layer's updated parameters, if updates run in the step. */
static void updates_precede_gathers(void **state)
{
    (void)state;
    struct model *m = wide(8);
    struct busy b, without;
    const int step = DUTY_FORWARD | DUTY_BACKWARD | DUTY_FIRST | DUTY_LAST;
    program_destroy(sharded(m, 3, step | DUTY_UPDATE, 0.5, SCHEDULE_OVERLAPPED, &b));
    program_destroy(sharded(m, 3, step, 0.5, SCHEDULE_OVERLAPPED, &without));
    printf("with the update: compute %.3f s, step %.3f s; without: %.3f s, %.3f s\n", b.compute, b.total, without.compute,
           without.total);
    assert_true(b.total - b.compute < 0.125 * b.comm);
    model_destroy(m);
}

/* On links that take most of the step, data of the first layer comes first, tokens too; targets, stored beside tokens, are needed
 * a pass later. The first layer of eight has a sixteenth of all transfers. */
static void compute_starts_before_everything_is_there(void **state)
{
    (void)state;
    const int64_t limit[TIERS] = {1ll << 32, 1ll << 32, 1ll << 32};
    struct model *m;
    struct plan *plan;
    struct plan_request s;
    int i = 0;
    cell_settings(&s, 256, F32);
    s.params = s.grads = s.optim = OFFLOAD_CPU;
    s.update = UPDATE_HOST;
    s.device = DEVICE_CPU_DISCRETE;
    s.link_gbps = 0.01;
    assert_int_equal(cell_model(FAMILY_LLAMA, 8, &m), OK);
    assert_int_equal(plan_create(m, &s, limit, &plan), OK);
    const struct program *p = plan->programs[PLAN_STEP];
    while (p->instrs[i].lane != LANE_COMPUTE || p->instrs[i].phase != PHASE_FORWARD)
        i++;
    assert_true(p->instrs[i].start < p->seconds / 8);
    plan_destroy(plan);
    model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rings),
                                       cmocka_unit_test(ulysses),
                                       cmocka_unit_test(gradients),
                                       cmocka_unit_test(messages_alone_limit),
                                       cmocka_unit_test(gradients_settle_later),
                                       cmocka_unit_test(updates_precede_gathers),
                                       cmocka_unit_test(compute_starts_before_everything_is_there)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
