/* The CUDA plugin as it was built: it exports its entry and nothing else, loads where there is no driver, and says so. One that was
 * built for other programs is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "device/plugin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *path;

/* A second copy of what the program has would be taken for the first. */
static void exports_its_entry_alone(void **state)
{
    (void)state;
    char command[4400], line[512];
    int n = 0;
    snprintf(command, sizeof command, "nm -D --defined-only '%s'", path);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        if (!strstr(line, " T " DEVICE_PLUGIN_ENTRY))
            fail_msg("it exports %s", line);
        n++;
    }
    assert_int_equal(pclose(f), 0);
    assert_int_equal(n, 1);
}

static void needs_no_library_of_cuda(void **state)
{
    (void)state;
    char command[4400];
    snprintf(command, sizeof command, "readelf -d '%s' | grep NEEDED | grep -i -E 'cuda|cublas|nccl|mpi'", path);
    assert_int_not_equal(system(command), 0);
}

static void answers(void **state)
{
    (void)state;
    const struct device_plugin *p;
    int devices = -1;
    setenv("LTRAIN_CUDA_PLUGIN", path, 1);
    if (device_plugin_load(&p) != OK)
        fail_msg("%s", status_message());
    if (p->count(&devices) == OK) {
        assert_true(devices > 0);
        return;
    }
    assert_int_equal(devices, 0);
    if (!strstr(p->sentence(), "--device cuda: "))
        fail_msg("\"%s\"", p->sentence());
}

static void old_ones_are_refused(void **state)
{
    (void)state;
    const struct device_plugin *p;
    const char *old = getenv("LTRAIN_TEST_OLD_PLUGIN");
    assert_non_null(old);
    setenv("LTRAIN_CUDA_PLUGIN", old, 1);
    assert_int_equal(device_plugin_load(&p), ERR_INVALID);
    if (!strstr(status_message(), "the CUDA plugin is not this ltrain's (its kernels are for other programs): build both anew"))
        fail_msg("\"%s\"", status_message());
}

int main(void)
{
    const struct CMUnitTest refused[] = {cmocka_unit_test(old_ones_are_refused)};
    int failed = cmocka_run_group_tests(refused, NULL, NULL);
    path = getenv("LTRAIN_TEST_PLUGIN");
    if (!path) {
        puts("[  SKIPPED ] the plugin that is built: none is (no nvcc, or -Dcuda=disabled)");
        return failed;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(exports_its_entry_alone), cmocka_unit_test(needs_no_library_of_cuda),
                                       cmocka_unit_test(answers)};
    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
