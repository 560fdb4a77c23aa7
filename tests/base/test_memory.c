/* Limits of memory, read from directory trees that imitate cgroups of both versions as Slurm, containers and systemd make them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/memory.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define M 1000000LL

static char root[64];

static int remove_one(const char *path, const struct stat *s, int kind, struct FTW *where)
{
    (void)s, (void)kind, (void)where;
    return remove(path);
}

/* Writes a file below the root, with the directories that lead to it. */
__attribute__((format(printf, 2, 3))) static void put(const char *path, const char *format, ...)
{
    char full[512];
    va_list args;
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = 0;
        mkdir(full, 0777);
    }
    FILE *f = fopen(full, "we");
    assert_non_null(f);
    va_start(args, format);
    vfprintf(f, format, args);
    va_end(args);
    fclose(f);
}

static int fresh(void **state)
{
    (void)state;
    strcpy(root, "/tmp/ltrain-memory-XXXXXX");
    if (!mkdtemp(root))
        return -1;
    put("/proc/meminfo", "MemTotal:       16000 kB\nMemFree:        1 kB\nMemAvailable:   15000 kB\n");
    put("/proc/sys/kernel/random/boot_id", "one\n");
    unsetenv("SLURM_JOB_ID");
    return 0;
}

static int gone(void **state)
{
    (void)state;
    return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void v2(const char *dir, const char *max, const char *high, long long current, long long cache)
{
    char path[256];
#define AT(name) (snprintf(path, sizeof path, "/sys/fs/cgroup%s/" name, dir), path)
    put(AT("memory.max"), "%s\n", max);
    put(AT("memory.high"), "%s\n", high);
    put(AT("memory.current"), "%lld\n", current);
    put(AT("memory.stat"), "anon 1\nfile 9\ninactive_file %lld\nactive_file %lld\nworkingset_refault_file 7\n", cache, cache);
}

static void v1(const char *dir, long long limit, long long memsw, long long used, long long swapped, long long hierarchical)
{
    char path[256];
#define AT1(name) (snprintf(path, sizeof path, "/sys/fs/cgroup/memory%s/" name, dir), path)
    put(AT1("memory.limit_in_bytes"), "%lld\n", limit);
    put(AT1("memory.memsw.limit_in_bytes"), "%lld\n", memsw);
    put(AT1("memory.usage_in_bytes"), "%lld\n", used);
    put(AT1("memory.memsw.usage_in_bytes"), "%lld\n", used + swapped);
    put(AT1("memory.stat"),
        "cache 5\ninactive_file 1\nhierarchical_memory_limit %lld\nhierarchical_memsw_limit 9223372036854771712\n"
        "total_inactive_file %lld\ntotal_active_file %lld\n",
        hierarchical, M, M);
}

/* Returns the tightest limit other than the process's own resource limits. */
static struct memory_limit tightest(struct memory_limits *l)
{
    int least = 0;
    memory_limits_read(root, l);
    assert_true(l->n >= 1 && l->at[0].name[0] == 0 && l->at[0].left == 15000LL * 1024);
    for (int i = 0; i < l->n; i++)
        if (!l->at[i].addresses && l->at[i].left < l->at[least].left)
            least = i;
    return l->at[least];
}

#define MOUNT_V2 "30 23 0:26 %s /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"

/* Slurm with cgroup v2: the job's step has no limit of its own, so the job's limit counts; page cache counts as free. */
static void of_an_ancestor(void **state)
{
    (void)state;
    struct memory_limits l;
    put("/proc/self/cgroup", "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n");
    put("/proc/self/mountinfo", MOUNT_V2, "/");
    v2("/system.slice/slurmstepd.scope/job_7", "10000000", "max", 6 * M, M);
    v2("/system.slice/slurmstepd.scope/job_7/step_0/user/task_0", "max", "max", 4 * M, M);
    struct memory_limit t = tightest(&l);
    assert_string_equal(t.name, "memory.max of /sys/fs/cgroup/system.slice/slurmstepd.scope/job_7");
    assert_int_equal(t.bytes, 10 * M);
    assert_int_equal(t.left, 6 * M);
    v2("/system.slice", "max", "7000000", 6 * M, M); /* an outer cgroup's memory.high slows down processes that exceed it */
    t = tightest(&l);
    assert_string_equal(t.name, "memory.high of /sys/fs/cgroup/system.slice");
    assert_int_equal(t.left, 3 * M);
    v2("/system.slice", "max", "7000000", 60 * M, M); /* more than this limit is already in use */
    assert_int_equal(tightest(&l).left, 0);
}

/* A container sees its own cgroup as the root of the tree, or a mount of a part of the tree. */
static void of_a_container(void **state)
{
    (void)state;
    struct memory_limits l;
    put("/proc/self/cgroup", "0::/\n");
    put("/proc/self/mountinfo", MOUNT_V2, "/");
    v2("", "5000000", "max", M, 0);
    assert_int_equal(tightest(&l).left, 4 * M);
    assert_string_equal(tightest(&l).name, "memory.max of /sys/fs/cgroup");
    put("/proc/self/cgroup", "0::/docker/abc/inner\n");
    put("/proc/self/mountinfo", MOUNT_V2, "/docker/abc");
    v2("/inner", "3000000", "max", M, 0);
    assert_string_equal(tightest(&l).name, "memory.max of /sys/fs/cgroup/inner");
    put("/proc/self/cgroup", "0::/a b/job\n");
    put("/proc/self/mountinfo", MOUNT_V2, "/a\\040b");
    v2("/job", "2000000", "max", M, 0);
    assert_string_equal(tightest(&l).name, "memory.max of /sys/fs/cgroup/job");
    put("/proc/self/cgroup", "0::/../other\n"); /* a cgroup outside of the namespace */
    assert_string_equal(tightest(&l).name, "memory.max of /sys/fs/cgroup");
    put("/proc/self/cgroup", "0::/nowhere\n"); /* the container runtime mounts another part of the tree than the kernel names */
    assert_string_equal(tightest(&l).name, "memory.max of /sys/fs/cgroup");
}

/* Version 1 together with an empty version 2, as in systemd's hybrid mode and in Docker on older kernels. */
static void of_version_1(void **state)
{
    (void)state;
    struct memory_limits l;
    put("/proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/slurm/uid_1/job_7/step_0\n3:cpuset:/\n0::/\n");
    put("/proc/self/mountinfo",
        "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
        "35 31 0:32 / /sys/fs/cgroup/memory rw shared:3 - cgroup cgroup rw,cpu,memory\n"
        "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    const long long none = 9223372036854771712;
    v1("", none, none, 50 * M, 0, none);
    v1("/slurm/uid_1/job_7", 12 * M, 13 * M, 6 * M, 0, 12 * M);
    v1("/slurm/uid_1/job_7/step_0", none, none, 4 * M, 0, none);
    struct memory_limit t = tightest(&l);
    assert_string_equal(t.name, "memory.limit_in_bytes of /sys/fs/cgroup/memory/slurm/uid_1/job_7");
    assert_int_equal(t.left, 8 * M);
    v1("/slurm/uid_1/job_7", 12 * M, 13 * M, 6 * M, 4 * M, 12 * M); /* 4 MB of the cgroup's pages are swapped out */
    t = tightest(&l);
    assert_string_equal(t.name, "memory.memsw.limit_in_bytes of /sys/fs/cgroup/memory/slurm/uid_1/job_7");
    assert_int_equal(t.left, 5 * M);
    v1("/slurm/uid_1/job_7/step_0", none, none, 4 * M, 0, 5 * M); /* a limit of a cgroup that this mount does not show */
    t = tightest(&l);
    assert_string_equal(t.name, "hierarchical_memory_limit of /sys/fs/cgroup/memory/slurm/uid_1/job_7/step_0");
    assert_int_equal(t.left, 3 * M);
}

/* Ranks in one cgroup get the same number for its limit; ranks in different cgroups, or on another host, get different numbers. */
static void who_shares_it(void **state)
{
    (void)state;
    static struct memory_limits a, b;
    put("/proc/self/mountinfo", MOUNT_V2, "/");
    v2("/job", "9000000", "max", M, 0);
    v2("/job/task_0", "5000000", "max", M, 0);
    v2("/job/task_1", "5000000", "max", M, 0);
    put("/proc/self/cgroup", "0::/job/task_0\n");
    memory_limits_read(root, &a);
    put("/proc/self/cgroup", "0::/job/task_1\n");
    memory_limits_read(root, &b);
    assert_true(a.n == 3 && b.n == 3); /* machine, task, job */
    assert_true(a.at[0].sharers == b.at[0].sharers && a.at[2].sharers == b.at[2].sharers);
    assert_true(a.at[1].sharers != b.at[1].sharers);
    put("/proc/sys/kernel/random/boot_id", "two\n");
    memory_limits_read(root, &b);
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++)
            assert_true(a.at[i].sharers != b.at[k].sharers);
}

static void of_a_slurm_job(void **state)
{
    (void)state;
    struct memory_limits l;
    setenv("SLURM_MEM_PER_NODE", "10", 1);
    assert_string_equal(tightest(&l).name, ""); /* outside a job */
    setenv("SLURM_JOB_ID", "7", 1);
    struct memory_limit t = tightest(&l);
    assert_string_equal(t.name, "SLURM_MEM_PER_NODE");
    assert_int_equal(t.bytes, 10 << 20);
    assert_true(t.own > 0 &&
                t.left == (t.own < 10 << 20 ? (10 << 20) - t.own : 0)); /* only this process's part of the limit is known */
    setenv("SLURM_MEM_PER_NODE", "0", 1);                               /* 0 stands for all memory of the node */
    assert_string_equal(tightest(&l).name, "");
    unsetenv("SLURM_MEM_PER_NODE");
    setenv("SLURM_MEM_PER_CPU", "3", 1);
    setenv("SLURM_CPUS_ON_NODE", "4", 1);
    assert_int_equal(tightest(&l).bytes, 12 << 20);
    setenv("SLURM_MEM_PER_CPU", "4611686018427387905", 1); /* times 4 this is 4 modulo 2^64 */
    assert_string_equal(tightest(&l).name, "");
    setenv("SLURM_MEM_PER_CPU", "0", 1);
    assert_string_equal(tightest(&l).name, "");
    unsetenv("SLURM_MEM_PER_CPU");
    setenv("SLURM_MEM_PER_GPU", "5", 1); /* the number of GPUs is unknown */
    assert_string_equal(tightest(&l).name, "");
    setenv("SLURM_GPUS_ON_NODE", "2", 1);
    t = tightest(&l);
    assert_string_equal(t.name, "SLURM_MEM_PER_GPU");
    assert_int_equal(t.bytes, 10 << 20);
    setenv("SLURM_MEM_PER_GPU", "0", 1);
    assert_string_equal(tightest(&l).name, "");
    unsetenv("SLURM_MEM_PER_GPU");
    unsetenv("SLURM_GPUS_ON_NODE");
    unsetenv("SLURM_JOB_ID");
}

/* The kernel's limit of reserved memory, less what it keeps for itself, is shared by all processes of the machine; it counts in
 * overcommit mode 2 only. */
static void of_what_is_reserved(void **state)
{
    (void)state;
    static struct memory_limits l;
    put("/proc/meminfo", "MemTotal: 16000 kB\nMemAvailable:   15000 kB\nCommitLimit:     8000 kB\nCommitted_AS:    3000 kB\n");
    put("/proc/sys/vm/admin_reserve_kbytes", "100\n");
    put("/proc/sys/vm/user_reserve_kbytes", "900\n");
    for (int mode = 0; mode < 3; mode++) {
        int found = 0;
        put("/proc/sys/vm/overcommit_memory", "%d\n", mode);
        memory_limits_read(root, &l);
        for (int i = 0; i < l.n; i++)
            if (strstr(l.at[i].name, "CommitLimit")) {
                found++;
                assert_int_equal(l.at[i].bytes, 8000 * 1024);
                assert_int_equal(l.at[i].left, 4000 * 1024);
                assert_true(l.at[i].addresses && l.at[i].sharers != 0 && l.at[i].sharers != l.at[0].sharers);
            }
        assert_int_equal(found, mode == 2);
    }
}

/* A cpuset of two of three nodes: these nodes' free memory and page cache count. A cpuset of all nodes with memory is no limit. */
static void of_a_cpuset(void **state)
{
    (void)state;
    struct memory_limits l;
    char path[64];
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "/sys/devices/system/node/node%d/meminfo", i);
        put(path,
            "Node %d MemTotal:       4000 kB\nNode %d MemFree:        %d kB\nNode %d MemUsed: 7 kB\n"
            "Node %d Active(file):   20 kB\nNode %d Inactive(file): 3 kB\n",
            i, i, 1000 * (i + 1), i, i, i);
    }
    put("/sys/devices/system/node/has_memory", "0-1,3\n");
    put("/proc/self/status", "Name:\tx\nMems_allowed:\t0000000f\nMems_allowed_list:\t0-3\n");
    assert_string_equal(tightest(&l).name, "");
    put("/proc/self/status", "Name:\tx\nMems_allowed:\t0000000d\nMems_allowed_list:\t0,2-3\n");
    struct memory_limit t = tightest(&l);
    assert_string_equal(t.name, "cpuset.mems (NUMA nodes 0,2-3)");
    assert_int_equal(t.bytes, 8000 * 1024);
    assert_int_equal(t.left, (1000 + 4000 + 2 * 23) * 1024);
    assert_true(t.sharers != 0 && !t.addresses);
}

static int own_limits(int which)
{
    const rlim_t bytes = (rlim_t)1 << 45; /* sanitizers reserve terabytes */
    static struct memory_limits l;
    struct rlimit limit = {bytes, bytes};
    memory_limits_read(root, &l);
    int before = l.n;
    if (setrlimit((__rlimit_resource_t)which, &limit) != 0)
        return 1;
    memory_limits_read(root, &l);
    const struct memory_limit *own = &l.at[l.n - 1];
    return !(l.n == before + 1 && own->addresses && own->sharers == 0 && own->bytes == (int64_t)bytes && own->left > 0 &&
             own->left < own->bytes);
}

static void of_the_process(void **state)
{
    (void)state;
    const int which[] = {RLIMIT_AS, RLIMIT_DATA};
    for (int i = 0; i < 2; i++) {
        int status;
        pid_t pid = fork();
        if (pid == 0)
            _exit(own_limits(which[i]));
        assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
        assert_int_equal(status, 0);
    }
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, fresh, gone)
    const struct CMUnitTest tests[] = {TEST(of_an_ancestor), TEST(of_a_container),      TEST(of_version_1), TEST(who_shares_it),
                                       TEST(of_a_slurm_job), TEST(of_what_is_reserved), TEST(of_a_cpuset),  TEST(of_the_process)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
