/* Tests several ranks that share a sequence and their state. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "lane_times.h"
#include "extent.h"
#include "plan/lower/mesh.h"
#include "plan/search/requests.h"

/* The fastest mesh is chosen although only finer grids fit the budget, and on default grids four meshes lack about equally much
 * memory. Formerly, the mesh that lacked the least was chosen, which was 11% slower. */
static void fastest_mesh_of_finer_grids(void **state)
{
    (void)state;
    struct hardware h;
    struct plan_request s;
    const int64_t limit[TIERS] = {3470 * GIB / 1000, INT64_MAX / 4, INT64_MAX / 4};
    struct model *m = preset_of("8b", 3, 131072, "8xh100", &h, &s);
    s.zero = 3;
    s.mesh.degree[MESH_DP] = s.mesh.degree[MESH_ULYSSES] = s.mesh.degree[MESH_RING] = AUTO;
    assert_int_equal(plan_mesh(m, &s, 8, 8), OK);
    struct plan *plan = planned(m, &s, limit);
    assert_true(plan->fits && plan->finer);
    for (int ulysses = 1; ulysses <= 8; ulysses *= 2) {
        struct plan_request given = s;
        if (ulysses == plan->strategy.key.mesh.degree[MESH_ULYSSES] && !extent_is_long()) /* this would be the same plan again */
            continue;
        given.mesh.degree[MESH_ULYSSES] = ulysses;
        given.mesh.degree[MESH_RING] = 8 / ulysses;
        given.open_degrees = 0;
        struct plan *other = planned(m, &given, limit);
        print_message("ulysses=%d: %.4g s; chosen: ulysses=%d, %.4g s\n", ulysses, other->fits ? other->seconds : 0,
                      plan->strategy.key.mesh.degree[MESH_ULYSSES], plan->seconds);
        assert_true(!other->fits || plan->seconds < 1.0102 * other->seconds); /* SEARCH_GAIN */
        plan_destroy(other);
    }
    plan_destroy(plan);
    model_destroy(m);
}

/* Returns the step's seconds, plus the part of messages that they take from compute. */
static double weighed(const struct plan *plan)
{
    struct lane_times t;
    program_lane_times(plan->programs[PLAN_UPDATE_STEP], &t);
    return t.total + 0.25 * (t.busy[LANE_WORLD] + t.busy[LANE_ULYSSES] + t.busy[LANE_RING]);
}

/* For four ranks that share a sequence and their state, the choice is within a percent of the best mesh and stage that can be
 * given. */
static void chooses_mesh_and_stage(void **state)
{
    (void)state;
    static const int degrees[] = {1, 2, 4};
    struct model *m = wide(2);
    const int64_t limit[TIERS] = {(int64_t)HUGE << 4, (int64_t)HUGE << 4, HUGE};
    struct plan_request s;
    few_choices(&s, OFFLOAD_NONE, 0);
    s.zero = s.mesh.degree[MESH_DP] = s.mesh.degree[MESH_ULYSSES] = s.mesh.degree[MESH_RING] = s.batch = AUTO;
    assert_int_equal(plan_mesh(m, &s, 4, 4), OK);
    struct plan *plan = planned(m, &s, limit);
    const struct strategy *chosen = &plan->strategy;
    for (int i = 0; i < 3; i++)
        for (int stage = 1; stage <= 3; stage++) {
            s.zero = stage;
            s.mesh.degree[MESH_ULYSSES] = degrees[i];
            s.mesh.degree[MESH_RING] = 4 / degrees[i];
            s.open_degrees = 0;
            struct plan *given = planned(m, &s, limit);
            print_message("ulysses=%d,ring=%d, stage %d: %.4g s; chosen: ulysses=%d,ring=%d, stage %d, %.4g s\n",
                          s.mesh.degree[MESH_ULYSSES], s.mesh.degree[MESH_RING], stage, weighed(given),
                          chosen->key.mesh.degree[MESH_ULYSSES], chosen->key.mesh.degree[MESH_RING], chosen->key.zero,
                          weighed(plan));
            assert_int_equal(given->strategy.key.mesh.degree[MESH_ULYSSES], s.mesh.degree[MESH_ULYSSES]); /* given degrees stay */
            assert_int_equal(given->strategy.key.zero, stage);
            assert_true(weighed(plan) <= 1.0102 * weighed(given));
            plan_destroy(given);
        }
    plan_destroy(plan);
    model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(fastest_mesh_of_finer_grids), cmocka_unit_test(chooses_mesh_and_stage)};
    return cmocka_run_group_tests(tests, share_trials, drop_trials);
}
