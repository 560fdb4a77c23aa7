/* Slices and stages of layers are chosen where they are faster, and never where they are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "extent.h"
#include "machine/islands.h"
#include "plan/hybrid.h"
#include "plan/lower/mesh.h"
#include "plan/lower/mesh_parts.h"
#include "plan/report/refuse.h"
#include "plan/roles.h"
#include "plan/search/island_layers.h"
#include "plan/search/parts.h"
#include "plan/search/requests.h"

/* A request for nodes of A100 whose links between nodes have `across` bytes a second. */
struct slow {
    struct hardware h;
    struct plan_request s;
    struct model *m;
    int64_t limit[TIERS];
};

static void open_slow(int64_t tokens, int64_t batch, double across, struct slow *x)
{
    x->m = preset_of("8b", 8, tokens, "32xa100-80", &x->h, &x->s);
    x->h.across = across;
    x->s.machine = (char *)"slow.yaml";
    x->s.zero = 3;
    x->s.zero_is_unsaid = 1;
    x->s.effort = EFFORT_QUICK;
    x->s.batch = batch;
    x->s.stage_ahead = AUTO;
    x->s.mesh = mesh_uniform(AUTO);
    hardware_limits(&x->h, 32, x->limit);
}

static void settle(struct slow *x)
{
    assert_int_equal(plan_mesh(x->m, &x->s, 32, 8), OK);
}

static void plan_of(struct slow *x, struct plan **out)
{
    if (plan_ranks_create(x->m, &x->s, 0, x->limit, out) != OK)
        fail_msg("%s", status_message());
    assert_true((*out)->fits);
}

/* Stages are taken where the network between nodes is slow, and the plan says which mesh of whole layers was weighed. */
static void slow_network(void **state)
{
    (void)state;
    struct slow x;
    struct plan *chosen, *plain;
    open_slow(65536, 1, 3.25e8, &x);
    settle(&x);
    plan_of(&x, &chosen);
    x.s.open_parts = 0;
    plan_of(&x, &plain);
    assert_int_equal(strategy_stages(&chosen->strategy), 4);
    assert_int_equal(chosen->strategy.key.zero, 1);
    assert_true(plan_step_seconds(chosen) < plain->seconds / 2); /* 2.2 and 8.6 s when this was written */
    assert_true(chosen->meshes.n > 1 && mesh_equal(&chosen->meshes.of[0].mesh, &plain->strategy.key.mesh));
    plan_destroy(chosen);
    plan_destroy(plain);
    model_destroy(x.m);
}

/* Given stages have the number of slices that is fastest, unless it is given, too. */
static void slices_of_given_stages(void **state)
{
    (void)state;
    struct slow x;
    struct plan *chosen, *by_rule;
    open_slow(32768, 1, 2.5e10, &x);
    x.s.mesh.degree[MESH_PP] = 4;
    settle(&x);
    plan_of(&x, &chosen);
    x.s.open_parts = 0;
    plan_of(&x, &by_rule);
    print_message("%d slices %.4g s, by rule %d: %.4g s\n", strategy_slices(&chosen->strategy), plan_step_seconds(chosen),
                  strategy_slices(&by_rule->strategy), plan_step_seconds(by_rule));
    assert_int_equal(strategy_stages(&chosen->strategy), 4);
    assert_true(strategy_slices(&chosen->strategy) != strategy_slices(&by_rule->strategy));
    assert_true(plan_step_seconds(chosen) < 0.98 * plan_step_seconds(by_rule));
    plan_destroy(chosen);
    plan_destroy(by_rule);
    x.s.mesh = mesh_uniform(AUTO);
    x.s.mesh.degree[MESH_PP] = 4;
    x.s.mesh.degree[MESH_SLICES] = 4;
    settle(&x);
    assert_int_equal(x.s.open_parts, 0);
    model_destroy(x.m);
}

/* A fast network, where compute hides messages, costs nothing: no mesh with parts is weighed. */
static void fast_network(void **state)
{
    (void)state;
    struct slow x;
    struct parts_weighed weighed;
    open_slow(1 << 19, 1, 2.5e10, &x);
    settle(&x);
    assert_int_equal(parts_weigh(x.m, &x.s, x.limit, &weighed), OK);
    assert_int_equal(weighed.n, 0);
    model_destroy(x.m);
}

static int lists(const struct slow *x, enum mesh_dim d)
{
    struct mesh list[64];
    const int n = mesh_list_parts(x->m, &x->s, list, 64);
    assert_true(n <= 64);
    for (int i = 0; i < n; i++)
        if (list[i].degree[d] > 1)
            return 1;
    return 0;
}

/* Slices and stages are weighed together; stages are whole nodes, or equal parts of one. */
static void both_at_once(void **state)
{
    (void)state;
    struct slow x;
    struct mesh list[64];
    int within = 0, both = 0;
    open_slow(65536, 1, 3.25e8, &x);
    settle(&x);
    const int n = mesh_list_parts(x.m, &x.s, list, 64);
    for (int i = 0; i < n; i++) {
        const int tp = mesh_degree(&list[i], MESH_TP), pp = mesh_degree(&list[i], MESH_PP);
        assert_true(tp * pp > 1 && 8 % tp == 0 && (4 % pp == 0 || (pp % 4 == 0 && 8 / tp % (pp / 4) == 0)));
        assert_int_equal(tp * pp * mesh_degree(&list[i], MESH_RING), 32);
        within += pp > 4;
        both += tp > 1 && pp > 1;
    }
    assert_true(within > 0 && both > 0);
    model_destroy(x.m);
}

/* Parts that other settings refuse are not weighed; given degrees, and machines that nobody describes, leave none open. */
static void refused(void **state)
{
    (void)state;
    struct slow x;
    open_slow(65536, 1, 3.25e8, &x);
    settle(&x);
    assert_true(lists(&x, MESH_TP) && lists(&x, MESH_PP));
    x.s.eval_every = 10; /* stages evaluate, too */
    assert_true(lists(&x, MESH_TP) && lists(&x, MESH_PP));
    x.s.zero = x.s.zero_is_unsaid = 0;
    assert_true(lists(&x, MESH_TP) && !lists(&x, MESH_PP));
    x.s.optim_dtype = BF16;
    assert_true(!lists(&x, MESH_TP) && !lists(&x, MESH_PP));
    model_destroy(x.m);
    open_slow(65536, 1, 3.25e8, &x);
    x.s.mesh.degree[MESH_RING] = 4;
    settle(&x);
    assert_int_equal(x.s.open_parts, 0);
    x.s.mesh = mesh_uniform(AUTO);
    x.s.machine = NULL;
    settle(&x);
    assert_int_equal(x.s.open_parts, 0);
    model_destroy(x.m);
}

/* Slices and stages are taken together where few tokens of a rank hide no message of whole layers' state. */
static void few_tokens(void **state)
{
    (void)state;
    struct slow x;
    struct plan *chosen, *plain;
    open_slow(256, 4, 2.5e10, &x);
    settle(&x);
    plan_of(&x, &chosen);
    x.s.open_parts = 0;
    plan_of(&x, &plain);
    assert_true(mesh_degree(&chosen->strategy.key.mesh, MESH_TP) > 1 && mesh_degree(&chosen->strategy.key.mesh, MESH_PP) > 1);
    assert_true(plan_step_seconds(chosen) < 0.6 * plain->seconds); /* 0.055 and 0.124 s when this was written; tp=8 alone 0.08 */
    plan_destroy(chosen);
    plan_destroy(plain);
    model_destroy(x.m);
}

/* Memory that is far too small for whole layers refuses no mesh with parts, given or open. */
static void little_memory(void **state)
{
    (void)state;
    struct slow x;
    struct plan *p;
    struct plan_request unused;
    open_slow(4096, 8, 2.5e10, &x);
    model_destroy(x.m);
    x.m = preset_of("8b", 32, 4096, "32xa100-80", &x.h, &unused);
    x.limit[TIER_DEVICE] = (int64_t)11 << 30;
    x.limit[TIER_HOST] = x.limit[TIER_NVME] = 1 << 20;
    settle(&x);
    assert_int_equal(refuse_early(x.m, &x.s, x.limit), OK);
    x.s.mesh = mesh_uniform(AUTO);
    x.s.mesh.degree[MESH_TP] = 8;
    x.s.mesh.degree[MESH_PP] = 4;
    x.s.zero = 1;
    settle(&x);
    assert_int_equal(refuse_early(x.m, &x.s, x.limit), OK);
    plan_of(&x, &p);
    plan_destroy(p);
    model_destroy(x.m);
}

/* Layers follow the speeds of stages. */
static void layers_of_stages(void **state)
{
    (void)state;
    static const double each[] = {1, 1, 1 / 0.6, 1 / 0.6}, none[4] = {0}, ends[] = {3, 3, 0, 0};
    struct mesh_stages x;
    stages_share_layers(4, each, none, 36, &x);
    assert_true(x.layers[0] == 11 && x.layers[1] == 11 && x.layers[2] == 7 && x.layers[3] == 7); /* 11.7, even ones 15.0 */
    stages_share_layers(4, each, ends, 36, &x);
    assert_true(x.layers[0] + x.layers[1] == 20 && x.layers[2] + x.layers[3] == 16);
    stages_share_layers(3, (double[]){1, 1, 100}, none, 7, &x);
    assert_true(x.layers[0] == 3 && x.layers[1] == 3 && x.layers[2] == 1);
}

/* Two islands: stages never straddle them, the faster one's have more layers, and all programs match. */
static void islands(void **state)
{
    (void)state;
    struct slow x;
    struct plan *p;
    static struct islands isles;
    open_slow(16384, 1, 21e9, &x);
    isles = (struct islands){.n = 2, .bytes = 1e10, .seconds = 50e-6, .nodes = {2, 2}};
    assert_int_equal(hardware_preset("16xh100", &isles.of[0]), OK);
    assert_int_equal(hardware_preset("16xa100-80", &isles.of[1]), OK);
    islands_number(&isles);
    islands_mix(&isles, &x.h);
    x.h.islands = isles.of[0].islands = isles.of[1].islands = &isles;
    x.s.mesh.degree[MESH_PP] = 1;
    assert_int_equal(plan_mesh(x.m, &x.s, 32, 8), ERR_INVALID);
    assert_string_equal(status_message(), "--mesh: pp=1 stages of 32 ranks would straddle islands: take pp=2, 4, 8, 16");
    x.s.mesh = mesh_uniform(AUTO);
    settle(&x);
    assert_int_equal(mesh_degree(&x.s.mesh, MESH_PP), 2);
    plan_of(&x, &p);
    const int stages = strategy_stages(&p->strategy);
    const struct mesh_stages *layers = &p->strategy.key.stages;
    assert_true(stages > 1 && layers->n == stages && layers->layers[0] > layers->layers[stages - 1]);
    if (plan_verify_ranks(p) != OK)
        fail_msg("%s", status_message());
    assert_true(plan_of_role(p, 0)->cost.peak_flops > plan_of_role(p, plan_n_roles(p) - 1)->cost.peak_flops);
    assert_true(plan_peak_flops(p) == (isles.of[0].peak_flops[BF16] + isles.of[1].peak_flops[BF16]) / 2);
    x.s.mesh = mesh_uniform(AUTO);
    x.s.mesh.degree[MESH_PP] = stages;
    x.s.stage_layers = (struct mesh_stages){.n = stages};
    for (int i = 0; i < stages; i++)
        x.s.stage_layers.layers[i] = (int16_t)(8 / stages);
    settle(&x);
    struct plan *even;
    plan_of(&x, &even);
    assert_true(p->seconds < 0.95 * even->seconds); /* a third of the layers' time is saved; messages and ends are not */
    plan_destroy(even);
    plan_destroy(p);
    model_destroy(x.m);
}

/* Memory that is short by a little, which plans of stages need beyond their trials, does not send everything to the drives. */
static void a_little_short(void **state)
{
    (void)state;
    double seconds[2];
    for (int i = 0; i < 2; i++) {
        struct hardware h;
        struct plan_request s;
        struct plan *p;
        int64_t limit[TIERS];
        struct model *m = preset_of("25m", 8, 2048, "4xrtx4090", &h, &s);
        s.machine = (char *)"4xrtx4090";
        s.batch = 1;
        s.effort = EFFORT_NORMAL;
        s.zero = 1;
        s.stage_ahead = AUTO;
        s.mesh = mesh_uniform(AUTO);
        s.mesh.degree[MESH_PP] = s.mesh.degree[MESH_ULYSSES] = 2;
        hardware_limits(&h, 4, limit);
        limit[TIER_DEVICE] = i ? 90000000 : 76000000;
        assert_int_equal(plan_mesh(m, &s, 4, 4), OK);
        assert_int_equal(plan_ranks_create(m, &s, 0, limit, &p), OK);
        assert_true(p->fits);
        seconds[i] = plan_step_seconds(p);
        print_message("%lld bytes: %g s a step\n", (long long)limit[TIER_DEVICE], seconds[i]);
        plan_destroy(p);
        model_destroy(m);
    }
    assert_true(seconds[1] < 1.2 * seconds[0]); /* once 12 times as long */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_of_stages), cmocka_unit_test(islands),
        cmocka_unit_test(slow_network),     cmocka_unit_test(fast_network),
        cmocka_unit_test(refused),          cmocka_unit_test(both_at_once),
        cmocka_unit_test(few_tokens),       cmocka_unit_test(little_memory),
        cmocka_unit_test(a_little_short),   cmocka_unit_test(slices_of_given_stages),
    };
    return cmocka_run_group_tests_name("mesh_parts", tests, NULL, NULL);
}
