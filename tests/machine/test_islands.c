/* Tests files of machines with islands: what they say, what is refused, and which stages are on which island. */
#include "machine/islands.h"
#include "machine/rank_cost.h"
#include "plan/cells.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static struct islands x;

static enum status read_text(const char *text, struct hardware *h)
{
    FILE *f = fmemopen((void *)(uintptr_t)text, strlen(text), "r");
    assert_non_null(f);
    memset(&x, 0, sizeof x);
    const enum status st = machine_read("islands.yaml", f, h, &x);
    fclose(f);
    return st;
}

#define BETWEEN "between: {bytes: 2.6e9, seconds: 50e-6}\n"

/* Every island has its own figures; the machine as a whole has the poorest ones, with as much memory for each device. */
static void read(void **state)
{
    (void)state;
    struct hardware h;
    assert_int_equal(
        read_text("islands:\n  - {like: 16xa100-80}\n  - {like: 8xa100-40, across: 2.6e9, devices: 4, nodes: 2}\n" BETWEEN, &h),
        OK);
    assert_true(x.n == 2 && h.islands == &x && x.of[1].islands == &x && x.bytes == 2.6e9 && x.seconds == 50e-6);
    assert_true(x.nodes[0] == 2 && x.nodes[1] == 2 && x.of[1].across == 2.6e9 && x.of[0].across == 21e9);
    assert_true(islands_devices(&x, 0) == 16 && islands_devices(&x, 1) == 8 && islands_all_devices(&x) == 24);
    assert_true(h.device_mem == x.of[1].device_mem && h.device_mem < x.of[0].device_mem);
    assert_true(h.host_mem / h.devices == x.of[1].host_mem / x.of[1].devices);
    assert_true(x.of[0].nodes == 3 && x.of[1].nodes == 6 && islands_alone(&x, 1).nodes == 2);
    assert_int_equal(read_text("islands: [{like: cpu}, {like: cpu, gemm: {fp32: 1e11}}]\nbetween: {bytes: 100MB/s}\n", &h), OK);
    assert_true(x.bytes == 1e8 && x.seconds == 0 && h.cpu);
}

static void stages(void **state)
{
    (void)state;
    static const int legal[] = {3, 6, 12, 24}, of_six[] = {0, 0, 0, 0, 1, 1};
    struct hardware h;
    assert_int_equal(read_text("islands: [{like: 16xa100-80}, {like: 8xh100}]\n" BETWEEN, &h), OK);
    for (int n = islands_stages(&x, 1), i = 0; n > 0; n = islands_stages(&x, n + 1), i++)
        assert_true(i < 4 && n == legal[i]);
    assert_true(!islands_fit(&x, 2) && !islands_fit(&x, 5));
    for (int i = 0; i < 6; i++)
        assert_int_equal(islands_of_stage(&x, i, 6), of_six[i]);
}

/* Messages between stages, and among all ranks, go over the link between islands; those inside a stage do not. */
static void costs(void **state)
{
    (void)state;
    struct hardware h;
    struct plan_request s;
    struct cost_model linked, alone;
    assert_int_equal(read_text("islands: [{like: 16xa100-80}, {like: 16xa100-80}]\n" BETWEEN, &h), OK);
    plan_request_defaults(&s, 4096);
    s.mesh = (struct mesh){{1, 8, 1, 1, 4, 1, 1}};
    s.hardware = &x.of[0];
    plan_cost_model(&s, &linked);
    x.of[0].islands = NULL;
    plan_cost_model(&s, &alone);
    assert_true(linked.lane_bytes[LANE_PP] == 2.6e9 / 8 && alone.lane_bytes[LANE_PP] == 21e9);
    assert_true(linked.lane_seconds[LANE_PP] == 50e-6 && linked.demand[LANE_PP][LINK_BETWEEN] == 1);
    assert_true(linked.lane_bytes[LANE_WORLD] < alone.lane_bytes[LANE_WORLD] && linked.demand[LANE_WORLD][LINK_BETWEEN] == 1);
    assert_true(linked.lane_bytes[LANE_ULYSSES] == alone.lane_bytes[LANE_ULYSSES] &&
                linked.demand[LANE_ULYSSES][LINK_BETWEEN] == 0);
}

static void refused(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"islands: []\n" BETWEEN, "islands.yaml:1: islands: the list is empty: give 2 to 8 islands"},
        {"islands: [{like: h100}]\n" BETWEEN, "islands.yaml:1: islands: one alone is no island"},
        {"islands: 3\n" BETWEEN, "islands.yaml:1: islands: a list is expected"},
        {"islands: [{like: h100}, {like: h100}]\n", "beside islands a line `between: {bytes: 2.6e9, seconds: 50e-6}`"},
        {"islands: [{like: h100}, {like: h100}]\nbetween: {seconds: 1}\n", "beside islands a line `between:"},
        {"islands: [{like: h100}, {like: h100}]\nbetween: {bytes: 10}\n", "did you mean 10GB/s?"},
        {"islands: [{like: h100}, {like: h100}]\nbetween: {bytes: -1e9}\n", "islands.yaml:2: bytes: -1e9 is too small"},
        {"islands: [{like: h100}, {like: h100}]\nbetween: {rate: 1e9}\n", "'rate' is not one of bytes, seconds"},
        {"like: h100\nislands: [{like: h100}, {like: h100}]\n" BETWEEN,
         "islands.yaml:1: like: beside islands stands only `between`"},
        {"islands: [{like: h100}, {islands: [{like: h100}]}]\n" BETWEEN, "islands: an island has none of its own"},
        {"islands: [{like: h100}, {lik: h100}]\n" BETWEEN, "'lik' is not known here: did you mean 'like'?"},
        {"islands: [{like: h100}, {}]\n" BETWEEN, "island 2: a line `like: h200` is missing"},
        {"islands: [{like: h100}, 7]\n" BETWEEN, "island 2: lines like `key: value` are expected"},
        {"islands: [{like: h100}, {like: h101}]\n" BETWEEN, "like: a data sheet's name is expected"},
        {"islands: [{like: h100}, {like: cpu}]\n" BETWEEN, "island 2: processors beside GPUs"},
        {"islands: [{like: l4}, {like: l4}, {like: l4}, {like: l4}, {like: l4}, {like: l4}, {like: l4}, {like: l4}, {like: l4}]\n" BETWEEN,
         "a machine has at most 8 islands"},
        {"islands: [{like: h100, nodes: 60000}, {like: h100, nodes: 60000}]\n" BETWEEN, "more than the 65536 devices"},
    };
    struct hardware h;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (read_text(cases[i][0], &h) != ERR_INVALID)
            fail_msg("%s is taken", cases[i][0]);
        if (!strstr(status_message(), cases[i][1]) || strchr(status_message(), '\n'))
            fail_msg("%s: %s", cases[i][0], status_message());
    }
    FILE *f = fmemopen((void *)(uintptr_t)cases[3][0], strlen(cases[3][0]), "r");
    assert_int_equal(hardware_read("observed.yaml", f, &h), ERR_INVALID); /* one machine, as it was measured */
    assert_non_null(strstr(status_message(), "islands stand in files of --machine"));
    fclose(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(read),
        cmocka_unit_test(stages),
        cmocka_unit_test(costs),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests_name("islands", tests, NULL, NULL);
}
