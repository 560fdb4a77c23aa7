/* Messages and copies behind compute, on the virtual clock: rings and all-to-alls whose link needs 70% of the compute time, and
 * links that need more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "machine/rank_cost.h"
#include "plan/cells.h"
#include "plan/schedule/order.h"
#include "seqpar/seqpar.h"

#include <stdio.h>

/* 16 query heads on 16: as many tiles as a rank has heads. */
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
                           .mesh.degree[MESH_DP] = 1,
                           .mesh.degree[MESH_ULYSSES] = ulysses,
                           .mesh.degree[MESH_RING] = ring,
                           .ranks = ulysses * ring,
                           .zero = 0,
                           .row_chunk = 16384,
                           .loss_tile = 16384,
                           .head_tile = 1,
                           .group = 1 << 30,
                           .prefetch = 16,
                           .keep_every = 1,
                           .target = cell_target(),
                           .dtype = BF16};
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

/* The share of the lane's time that hides behind compute when it needs 70% of that. */
static double hidden(const struct model *m, const struct strategy *s, enum lane lane, int role)
{
    struct plan_request none = {0};
    struct cost_model cost;
    struct io_buffers io;
    struct program *p;
    plan_cost_model(&none, &cost);
    for (int l = 0; l < LANES; l++)
        cost.lane_bytes[l] = 1e15; /* other lanes are not the question */
    cost.overhead = 0;
    assert_int_equal(lower_program(m, s, role, &io, &p), OK);
    struct busy b = busy_of(p, lane, &cost);
    cost.lane_bytes[lane] = 1e15 * b.comm / (0.7 * b.compute);
    b = busy_of(p, lane, &cost);
    assert_true(b.comm > 0.699 * b.compute && b.comm < 0.701 * b.compute);
    double chunk = b.compute / (double)(3 * m->config.layers * ceil_div(s->rows, s->row_chunk));
    assert_int_equal(schedule_program(p, &cost, SCHEDULE_OVERLAPPED, s->prefetch * chunk), OK);
    double share = 1 - (p->seconds - b.compute) / b.comm;
    printf("%s ulysses=%d ring=%d role %d: compute %.3f s, messages %.3f s, step %.3f s, hidden %.1f%%\n", lane_name(lane),
           s->mesh.degree[MESH_ULYSSES], s->mesh.degree[MESH_RING], role, b.compute, b.comm, p->seconds, 100 * share);
    program_destroy(p);
    return share;
}

enum { STEP = ROLE_FORWARD | ROLE_BACKWARD | ROLE_FIRST | ROLE_LAST };

static void rings(void **state)
{
    (void)state;
    struct model *m = wide(2);
    for (int ring = 4; ring <= 16; ring *= 2) {
        struct strategy s;
        strategy_of(&s, 1, ring, 1 << 20);
        assert_true(hidden(m, &s, LANE_RING, ROLE_FORWARD) >= 0.95);
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
    assert_true(hidden(m, &s, LANE_ULYSSES, ROLE_FORWARD) >= 0.9);
    assert_true(hidden(m, &s, LANE_ULYSSES, STEP) >= 0.9);
    model_destroy(m);
}

/* Links that take most of the step: what the first layer needs comes first on them, tokens too, although targets, which lie
 * beside them, are needed a pass later. The first layer of eight is a sixteenth of what they bring. */
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(rings), cmocka_unit_test(ulysses),
                                       cmocka_unit_test(compute_starts_before_everything_is_there)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
