/* Tests the built CUDA plugin: it exports only its entry function, has kernels for all targets, loads without a driver, and says
 * that there is none. A plugin built for another version of programs is refused. */
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

/* The plugin exports nothing else: a second copy of one of the program's symbols would be replaced by the program's. */
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

/* nvcc's container of a file's kernels: a header, then an entry for each target. Flag A marks sm_90a. */
struct fatbin {
    uint32_t magic;
    uint16_t version, header;
    uint64_t bytes;
};
struct fatbin_entry {
    uint16_t kind, unused;
    uint32_t header;
    uint64_t bytes;
    uint32_t more[3], capability;
    uint64_t others, flags;
};
enum { FATBIN = (int)0xba55ed50u, PTX = 1, MACHINE_CODE = 2, FLAG_A = 0x100000 };

/* Kernels for A100, H100 and H200, those of Hopper's own attention, and PTX for later GPUs. */
static void has_code_for_all_targets(void **state)
{
    (void)state;
    const uint32_t magic = (uint32_t)FATBIN;
    int sm80 = 0, sm90 = 0, sm90a = 0, later = 0;
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    const size_t n = (size_t)ftell(f);
    char *all = malloc(n);
    rewind(f);
    assert_true(all && fread(all, 1, n, f) == n);
    fclose(f);
    for (char *at = all; (at = memmem(at, (size_t)(all + n - at), &magic, sizeof magic)) != NULL; at++) {
        struct fatbin file;
        memcpy(&file, at, sizeof file);
        for (char *p = at + file.header, *end = p + file.bytes; p + sizeof(struct fatbin_entry) <= end && end <= all + n;) {
            struct fatbin_entry e;
            memcpy(&e, p, sizeof e);
            sm80 += e.kind == MACHINE_CODE && e.capability == 80;
            sm90 += e.kind == MACHINE_CODE && e.capability == 90 && !(e.flags & FLAG_A);
            sm90a += e.kind == MACHINE_CODE && e.capability == 90 && (e.flags & FLAG_A);
            later += e.kind == PTX && e.capability == 90;
            p += e.header + e.bytes;
        }
    }
    free(all);
    print_message("files of kernels: %d for sm_80, %d for sm_90, %d for sm_90a, %d as PTX\n", sm80, sm90, sm90a, later);
    assert_true(sm80 >= 20 && sm90 == sm80 && later == sm80 && sm90a >= 2);
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
                                       cmocka_unit_test(has_code_for_all_targets), cmocka_unit_test(answers)};
    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
