/* Tests where the search puts experts, apart from other layers' state. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "plan/search/requests.h"

#include "model/config/config.h"

#include <stdio.h>
#include <stdlib.h>

enum { LAYERS = 8, LENGTH = 8192 };

/* Plans the first layers of Qwen3-30B-A3B on an H100's rates with as large a part of its memory. */
static struct plan *planned_with(enum offload experts, int64_t device_gib)
{
    const int64_t limit[TIERS] = {device_gib * GIB, 256 * GIB, 1024 * GIB};
    struct model_config c;
    struct plan_request s;
    struct hardware h;
    char path[4096];
    static struct model *m; /* lives as long as its plans */
    struct model *preset = preset_of("125m", 1, LENGTH, "h100", &h, &s);
    model_destroy(preset);
    snprintf(path, sizeof path, "%s/tests/model/experts/Qwen3-30B-A3B", getenv("LTRAIN_SOURCE_ROOT"));
    assert_int_equal(model_config_read(path, &c), OK);
    c.layers = LAYERS;
    c.positions = LENGTH;
    model_destroy(m);
    assert_int_equal(model_create(&c, NULL, 0, &m), OK);
    s.effort = EFFORT_QUICK;
    s.experts = experts;
    return planned(m, &s, limit);
}

/* A step whose experts' place is left open is no longer than with any place given, and some have experts apart. */
static void open_places_never_lose(void **state)
{
    static const int64_t device[] = {13, 20};
    int apart = 0;
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct plan *open = planned_with(OFFLOAD_AUTO, device[k]);
        const int at = open->strategy.placement.experts_at;
        const double seconds = open->seconds;
        assert_true(open->fits);
        apart += at > 0;
        print_message("%lld GiB: %.4g s, experts_at %d", (long long)device[k], seconds, at);
        plan_destroy(open);
        for (enum offload e = OFFLOAD_NONE; e <= OFFLOAD_NVME; e++) {
            struct plan *given = planned_with(e, device[k]);
            print_message(", %.4g", given->fits ? given->seconds : -1.0);
            assert_true(!given->fits || seconds < 1.003 * given->seconds); /* 0.003: the smallest gain that is taken */
            plan_destroy(given);
        }
        print_message("\n");
    }
    assert_true(apart > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(open_places_never_lose)};
    return cmocka_run_group_tests(tests, share_trials, drop_trials);
}
