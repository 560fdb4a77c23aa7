/* Tests several ranks: more memory never makes the step longer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "plan/lower/mesh.h"
#include "plan/search/requests.h"

/* With more memory, device and host both update: the device has the state of one of two layers. Formerly, with 3% more memory,
 * enough for both layers' state, the search no longer found this, and the step was 2.6% longer. */
static void more_memory_updates_on_both(void **state)
{
    (void)state;
    struct hardware h;
    struct plan_request s;
    struct model *m = preset_of("8b", 2, 65536, "4xh100", &h, &s);
    s.zero = 3;
    s.mesh.degree[MESH_DP] = s.mesh.degree[MESH_ULYSSES] = s.mesh.degree[MESH_RING] = AUTO;
    assert_int_equal(plan_mesh(m, &s, 4, 4), OK);
    not_slower_with_more(m, &s, 6053435567, 6235042177);
    model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(more_memory_updates_on_both)};
    return cmocka_run_group_tests(tests, share_trials, drop_trials);
}
