/* A small machine acted out: what the system denies ends in a plan that fits or in one sentence, never in a hang or a kill. */
#include "harness.h"

#include <sys/resource.h>

static int limit_address_space(void)
{
    const struct rlimit l = {300000000, 300000000};
    return setrlimit(RLIMIT_AS, &l);
}

static void address_space(void **state)
{
    (void)state;
    if (E2E_SANITIZED) /* shadow memory is terabytes */
        skip();
    struct result r = e2e_succeeds(&(struct launch){.prepare = limit_address_space}, TINY "--steps 1 --out run");
    e2e_contains(r.out, "model: run/hf");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, e2e_setup, e2e_teardown)
    const struct CMUnitTest tests[] = {
        TEST(address_space),
    };
    return cmocka_run_group_tests_name("limits", tests, NULL, NULL);
}
