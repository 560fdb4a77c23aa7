/* Tests the sizes of update groups: large if no state moves, else by the rule or as given. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "plan/search/requests.h"

struct groups_case {
    const char *name, *machine;
    enum offload optim;
    int64_t group, want; /* want 0: any size below 2^24 */
    enum effort effort;
};

static double check_case(const struct groups_case *k)
{
    const int64_t limit[TIERS] = {100 * GIB, 100 * GIB, 100 * GIB};
    struct plan_request s;
    struct hardware h;
    struct model *m = preset_of("125m", 12, 4096, k->machine, &h, &s);
    s.effort = k->effort;
    s.group = k->group;
    s.params = s.grads = s.acts = s.passing = OFFLOAD_NONE;
    s.optim = k->optim;
    s.row_chunk = s.loss_tile = 4096;
    struct plan *plan = planned(m, &s, limit);
    const int64_t group = plan->strategy.key.group;
    const double seconds = plan->seconds;
    if (!plan->fits || (k->want ? group != k->want : group >= 1 << 24))
        fail_msg("%s: groups of %lld elements", k->name, (long long)group);
    plan_destroy(plan);
    model_destroy(m);
    return seconds;
}

static void test_groups(void **state)
{
    (void)state;
    const double seconds = check_case(&(struct groups_case){"resident", "h200", OFFLOAD_NONE, AUTO, 1 << 24, EFFORT_NORMAL});
    const double given = check_case(&(struct groups_case){"given", "h200", OFFLOAD_NONE, 1 << 20, 1 << 20, EFFORT_NORMAL});
    assert_true(seconds < 0.99 * given);
    check_case(&(struct groups_case){"quick", "h200", OFFLOAD_NONE, AUTO, 0, EFFORT_QUICK});
    check_case(&(struct groups_case){"optimizer on the host", "h200", OFFLOAD_CPU, AUTO, 0, EFFORT_NORMAL});
}

/* Returns the group size for 125m's layers on eight GPUs that hold shares of all state: larger if messages limit the step, else
 * by the rule or as given. */
static int64_t group_of_ranks(int64_t tokens, int64_t group)
{
    const int64_t limit[TIERS] = {70 * GIB, 100 * GIB, 100 * GIB};
    struct plan_request s;
    struct hardware h;
    struct model *m = preset_of("125m", 4, tokens, "8xh100", &h, &s);
    s.effort = EFFORT_NORMAL;
    s.mesh = (struct mesh){{8, 1, 1}};
    s.batch = 8;
    s.group = group;
    s.params = s.grads = s.acts = s.passing = s.optim = OFFLOAD_NONE;
    s.row_chunk = s.loss_tile = tokens;
    struct plan *plan = planned(m, &s, limit);
    const int64_t used = plan->strategy.key.group;
    assert_true(plan->fits);
    plan_destroy(plan);
    model_destroy(m);
    return used;
}

static void test_groups_of_ranks(void **state)
{
    (void)state;
    const int64_t usual = group_of_ranks(16384, AUTO);
    assert_true(group_of_ranks(256, AUTO) >= 4 * usual);
    assert_int_equal(group_of_ranks(256, usual), usual);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_groups), cmocka_unit_test(test_groups_of_ranks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
