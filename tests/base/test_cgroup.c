/* Processor time, read from directory trees that imitate cgroups of both versions. (Their memory: test_memory.c.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/cgroup.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char root[64];

static int remove_one(const char *path, const struct stat *s, int kind, struct FTW *where)
{
    (void)s, (void)kind, (void)where;
    return remove(path);
}

/* Writes a file below the root, with the directories that lead to it. */
static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = 0;
        mkdir(full, 0777);
    }
    FILE *f = fopen(full, "we");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int fresh(void **state)
{
    (void)state;
    strcpy(root, "/tmp/ltrain-cgroup-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int gone(void **state)
{
    (void)state;
    return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void version_2(void **state)
{
    (void)state;
    uint64_t id = 7, other;
    assert_true(cgroup_processors(root, &id) == 0 && id == 0); /* no cgroups */
    put("/proc/self/cgroup", "0::/pod/box\n");
    put("/proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    put("/sys/fs/cgroup/pod/box/cpu.max", "max 100000\n");
    put("/sys/fs/cgroup/pod/cpu.max", "max 100000\n");
    assert_true(cgroup_processors(root, &id) == 0 && id == 0);
    put("/sys/fs/cgroup/pod/cpu.max", "150000 100000\n"); /* limit of an outer cgroup */
    assert_true(cgroup_processors(root, &id) == 1.5 && id != 0);
    put("/sys/fs/cgroup/pod/box/cpu.max", "400000 100000\n"); /* more than the outer cgroup allows */
    assert_true(cgroup_processors(root, &other) == 1.5 && other == id);
    put("/sys/fs/cgroup/pod/box/cpu.max", "50000 100000\n");
    assert_true(cgroup_processors(root, &other) == 0.5 && other != id && other != 0);
}

static void version_1(void **state)
{
    (void)state;
    uint64_t id;
    put("/proc/self/cgroup", "5:memory:/m\n4:cpu,cpuacct:/docker/x\n3:cpuset:/docker/x\n");
    put("/proc/self/mountinfo", "31 23 0:27 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
                                "30 23 0:26 /docker/x /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n");
    put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "50000\n");
    put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    assert_true(cgroup_processors(root, &id) == 0 && id == 0);
    put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "125000\n");
    assert_true(cgroup_processors(root, &id) == 2.5 && id != 0);
}

/* Part of a processor's time keeps a core busy. */
static void cores(void **state)
{
    (void)state;
    setenv("LTRAIN_SYSTEM_ROOT", root, 1);
    const int all = cgroup_cores();
    put("/proc/self/cgroup", "0::/\n");
    put("/proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    put("/sys/fs/cgroup/cpu.max", "50000 100000\n");
    assert_int_equal(cgroup_cores(), 1);
    put("/sys/fs/cgroup/cpu.max", "110000 100000\n");
    assert_int_equal(cgroup_cores(), all < 2 ? all : 2);
    put("/sys/fs/cgroup/cpu.max", "900000000 100000\n");
    assert_int_equal(cgroup_cores(), all);
    unsetenv("LTRAIN_SYSTEM_ROOT");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, fresh, gone)
    const struct CMUnitTest tests[] = {TEST(version_2), TEST(version_1), TEST(cores)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
