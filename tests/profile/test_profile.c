/* Tests stored figures of a machine: they are found again, distinguished from broken ones, and replaced completely or not at all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/sys.h"
#include "engine/backend_cpu.h"
#include "engine/twin.h"
#include "profile/profile.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char cache[] = "/tmp/ltrain-profile-XXXXXX";

static int enter(void **state)
{
    (void)state;
    return mkdtemp(cache) && setenv("XDG_CACHE_HOME", cache, 1) == 0 ? 0 : -1;
}

/* Finds a stored file's path, and returns the number of stored files. */
static int kept(char path[512])
{
    char directory[64];
    int n = 0;
    snprintf(directory, sizeof directory, "%s/ltrain", cache);
    DIR *d = opendir(directory);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.') {
            snprintf(path, 512, "%s/%.255s", directory, e->d_name);
            n++;
        }
    closedir(d);
    return n;
}

static int leave(void **state)
{
    char path[512];
    (void)state;
    if (kept(path) == 1)
        unlink(path);
    snprintf(path, sizeof path, "%s/ltrain", cache);
    return rmdir(path) == 0 && rmdir(cache) == 0 ? 0 : -1;
}

static void kept_and_found(void **state)
{
    (void)state;
    struct settings s = {.plan.threads = 2}, other = {.plan.threads = 3};
    struct hardware h, back;
    char path[512];
    int found = 7;
    hardware_assumed(&h);
    strcpy(h.source, "measured");
    h.cores[LANE_HOST] = 0.75;
    assert_int_equal(profile_load(&s, &back, &found), OK);
    assert_int_equal(found, 0);
    assert_int_equal(profile_save(&s, &h), OK);
    assert_int_equal(kept(path), 1);
    assert_int_equal(profile_load(&s, &back, &found), OK);
    assert_int_equal(found, 1);
    assert_string_equal(back.source, "measured");
    assert_true(back.cpu && back.cores[LANE_HOST] == 0.75 && back.h2d == h.h2d);
    assert_int_equal(profile_load(&other, &back, &found), OK); /* measured with another number of threads */
    assert_int_equal(found, 0);
}

static void whole_or_not_at_all(void **state)
{
    (void)state;
    struct settings s = {.plan.threads = 2};
    struct hardware h, back;
    char path[512];
    int found;
    hardware_assumed(&h);
    h.read = 7e9;
    sys_inject(SYS_RENAME, 1, ENOSPC);
    assert_int_equal(profile_save(&s, &h), ERR_IO);
    sys_inject_clear();
    assert_int_equal(kept(path), 1); /* the former one */
    assert_int_equal(profile_load(&s, &back, &found), OK);
    assert_true(found == 1 && back.read != 7e9);
}

static void broken_ones(void **state)
{
    (void)state;
    struct settings s = {.plan.threads = 2};
    struct hardware back;
    char path[512];
    int found;
    assert_int_equal(kept(path), 1);
    FILE *f = fopen(path, "r+");
    assert_true(f && fseek(f, -20, SEEK_END) == 0 && fputs("9", f) >= 0 && fclose(f) == 0);
    assert_int_equal(profile_load(&s, &back, &found), OK);
    assert_int_equal(found, -1);
    struct hardware h;
    hardware_assumed(&h);
    assert_int_equal(profile_save(&s, &h), OK);
    assert_int_equal(profile_load(&s, &back, &found), OK);
    assert_int_equal(found, 1);
    assert_int_equal(truncate(path, 2000), 0);
    assert_int_equal(profile_load(&s, &back, &found), OK);
    assert_int_equal(found, -1);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(profile_load(&s, &back, &found), OK);
    assert_int_equal(found, -1);
}

/* Figures of a GPU are found only for this GPU; its rates are measured with its streams' clock. */
static void a_gpu(void **state)
{
    (void)state;
    struct twin twin = {.configure = NULL};
    struct target target = backend_cpu_target(1);
    struct settings s = {.plan = {.threads = 1, .device = DEVICE_CUDA, .target = &target}, .gpu = AUTO, .gpu_name = "twin"};
    struct hardware h, back;
    char path[512];
    int found;
    if (!twin_open(getenv("LTRAIN_CUDA_TWIN"), &twin))
        skip();
    twin.configure("seed=2");
    assert_int_equal(hardware_preset("a10", &h), OK);
    memset(&h.device.gemm, 0, sizeof h.device.gemm);
    h.h2d = h.d2h = h.overhead = 0;
    if (profile_gpu(&s, &h) != OK)
        fail_msg("%s", status_message());
    assert_string_equal(twin.left(), "");
    for (int t = 0; t < COST_TYPES; t++) {
        for (int i = 0; i < GEMM_LAYOUTS * GEMM_SHAPES; i++)
            assert_true(h.device.gemm[t].flops[i / GEMM_SHAPES][i % GEMM_SHAPES] > 0);
        assert_true(h.peak_flops[t] > 0 && h.device.attention[t][1].head_dim == 128 &&
                    h.device.attention[t][1].backward.y[0] > 0);
    }
    assert_true(h.h2d > 0 && h.d2h > 0 && h.overhead > 0);
    assert_int_equal(profile_save(&s, &h), OK);
    assert_int_equal(profile_load(&s, &back, &found), OK);
    assert_int_equal(found, 1);
    assert_true(!back.cpu && back.h2d > 0.999 * h.h2d && back.h2d < 1.001 * h.h2d);
    strcpy(s.gpu_name, "another");
    assert_int_equal(profile_load(&s, &back, &found), OK);
    assert_int_equal(found, 0);
    strcpy(s.gpu_name, "twin");
    s.plan.device = DEVICE_CPU;
    assert_int_equal(profile_load(&s, &back, &found), OK);
    assert_int_equal(found, 0);
    s.plan.device = DEVICE_CUDA;
    while (kept(path) > 1) /* one file is left for the end */
        unlink(path);
    twin.configure("in=cudaEventElapsedTime,fail=3:1");
    assert_int_equal(profile_gpu(&s, &h), ERR_IO);
    assert_string_equal(twin.left(), "");
}

/* Small models' steps have all ops of experts. Their steps take tens of seconds, so this runs with LTRAIN_LONG=1 only. */
static void ops_of_experts(void **state)
{
    static const enum op_kind ops[] = {OP_ROUTE, OP_ROUTE_GRAD, OP_PERMUTE, OP_GATED, OP_GATED_GRAD, OP_COMBINE};
    struct settings s = {.plan.threads = 1, .plan.device = DEVICE_CPU};
    struct hardware h;
    (void)state;
    if (!getenv("LTRAIN_LONG"))
        skip();
    hardware_assumed(&h);
    assert_int_equal(profile_ops(&s, &h), OK);
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        const struct curve *c = &h.device.ops.op[ops[i]][F32];
        if (c->n == 0 || !(c->y[0] > 0))
            fail_msg("%s has no rate", op_name(ops[i]));
    }
    assert_true(h.device.ops.op[OP_GATED][BF16].n > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(kept_and_found), cmocka_unit_test(whole_or_not_at_all),
                                       cmocka_unit_test(broken_ones), cmocka_unit_test(a_gpu), cmocka_unit_test(ops_of_experts)};
    return cmocka_run_group_tests(tests, enter, leave);
}
