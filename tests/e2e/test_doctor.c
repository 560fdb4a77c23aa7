/* ltrain doctor: each check on a machine that it is made to fail on. */
#include "harness.h"

#include <errno.h>
#include <jansson.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Runs a doctor; fails unless it exits with `status`, says nothing on stderr, and prints a finding that begins with `line`. */
static struct result finds(int status, const char *line, int (*prepare)(void), const char *arguments)
{
    char *words, pattern[256];
    struct result r = e2e_run(&(struct launch){.prepare = prepare}, "doctor %s", arguments);
    assert_int_equal(r.status, status);
    assert_string_equal(r.err, "");
    words = strdup(r.out);
    assert_non_null(words);
    for (char *at = words, *to = words;; at++) { /* lines are joined, and blanks become one */
        const char c = *at == '\n' ? ' ' : *at;
        if (c != ' ' || (to > words && to[-1] != ' '))
            *to++ = c;
        if (!c)
            break;
    }
    snprintf(pattern, sizeof pattern, "%s", line);
    if (!strstr(words, pattern))
        fail_msg("no '%s' in %s", pattern, r.out);
    free(words);
    return r;
}

static void a_machine_that_is_fit(void **state)
{
    (void)state;
    struct result r = e2e_succeeds(NULL, "doctor --json");
    json_error_t error;
    json_t *root = json_loads(r.out, 0, &error), *check;
    static const char *const names[] = {"ok", "warning", "failure", "unmeasured"};
    int seen[4] = {0};
    size_t i;
    assert_non_null(root);
    json_array_foreach(json_object_get(root, "checks"), i, check) for (int v = 0; v < 4; v++) seen[v] +=
        strcmp(json_string_value(json_object_get(check, "verdict")), names[v]) == 0;
    for (int v = 0; v < 4; v++)
        assert_int_equal(json_integer_value(json_object_get(root, names[v])), seen[v]);
    assert_true(seen[0] >= 4 && seen[2] == 0 && i == (size_t)(seen[0] + seen[1] + seen[3]));
    json_decref(root);
    assert_int_equal(e2e_count("*.store"), 0);
    r = e2e_succeeds(NULL, "doctor --help");
    e2e_contains(r.out, "--strict");
    e2e_refuses(2, "doctor: |--steps|--nvme-path DIR, --measure, --json and --strict", NULL, "doctor --steps 3");
    e2e_refuses(2, "--nvme-path names no directory", NULL, "doctor --nvme-path ,");
}

static int limit(int resource, rlim_t value)
{
    return setrlimit(resource, &(struct rlimit){value, value});
}

static int lock_little(void)
{
    return limit(RLIMIT_MEMLOCK, 64 << 10);
}

static int open_few(void)
{
    return limit(RLIMIT_NOFILE, 100);
}

static int write_little(void)
{
    return limit(RLIMIT_FSIZE, 1 << 30);
}

static void limits(void **state)
{
    (void)state;
    finds(0, "warning memlock memory that is locked: 64 KiB; host memory beyond it", lock_little, "");
    finds(1, "warning memlock", lock_little, "--strict");
    finds(1, "failure files open files: 100: `ulimit -n 1024`", open_few, "");
    finds(0, "warning files a file may have 1.0 GiB: larger checkpoints", write_little, "");
}

static int no_io_uring(void)
{
    return e2e_without_call(SYS_io_uring_setup, EPERM);
}

static int not_root(void)
{
    return e2e_drop_capability(CAP_DAC_OVERRIDE);
}

static void directories(void **state)
{
    (void)state;
    finds(0, "warning io_uring not to be had here; threads move blocks instead", no_io_uring, "");
    finds(1, "failure path nothere: there is no such directory: make the directory", NULL, "--nvme-path nothere");
    finds(1, "failure path corpus.txt: it is no directory", NULL, "--nvme-path .,corpus.txt");
    assert_int_equal(mkdir("others", 0555), 0);
    finds(1, "failure path others: you may not write there", not_root, "--nvme-path others");
    if (access("/dev/shm", W_OK) == 0)
        finds(0, "warning path /dev/shm lies in memory (tmpfs)", NULL, "--nvme-path /dev/shm");
    finds(0, "GB/s written", NULL, "--measure");
    assert_int_equal(e2e_count("*.store"), 0);
}

/* A GPU on the bus without a driver, in a slot with too few lanes, and a card of another kind. */
static void a_gpu_without_driver(void **state)
{
    (void)state;
    assert_int_equal(system("mkdir -p tree/sys/bus/pci/devices/0000:01:00.0 tree/sys/bus/pci/devices/0000:02:00.0"), 0);
#define DEVICE "tree/sys/bus/pci/devices/0000:0"
    e2e_write(DEVICE "1:00.0/vendor", "0x10de\n");
    e2e_write(DEVICE "1:00.0/class", "0x030200\n");
    e2e_write(DEVICE "1:00.0/current_link_width", "4\n");
    e2e_write(DEVICE "1:00.0/max_link_width", "16\n");
    e2e_write(DEVICE "2:00.0/vendor", "0x10de\n");
    e2e_write(DEVICE "2:00.0/class", "0x020700\n");
    struct result r = e2e_run(&(struct launch){.prepare = e2e_in_tree}, "doctor");
    e2e_contains(r.out, "GPU 0000:01:00.0 has 4 lanes of 16");
    assert_null(strstr(r.out, "0000:02:00.0"));
    if (access("/proc/driver/nvidia/version", F_OK) == 0)
        skip();
    finds(1, "failure gpu 1 NVIDIA GPU on the bus, and no driver that programs can open: install the NVIDIA driver", e2e_in_tree,
          "");
    assert_int_equal(system("mkdir -p tree/proc/driver/nvidia"), 0);
    e2e_write("tree/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX 580.0\n");
    finds(1, "libcuda.so.1 is missing: in a container, start it with the GPU", e2e_in_tree, "");
    e2e_write(DEVICE "1:00.0/current_link_width", "16\n");
    finds(1, "ok pcie GPU 0000:01:00.0 has 16 lanes of up to unknown speed", e2e_in_tree, "");
}

/* A job that may have little of the machine's memory. */
static void a_small_cgroup(void **state)
{
    (void)state;
    assert_int_equal(system("mkdir -p tree/proc/self tree/sys/fs/cgroup/job_7 && "
                            "printf 'MemTotal: 4194304 kB\\nMemAvailable: 4194304 kB\\n' >tree/proc/meminfo"),
                     0);
    e2e_write("tree/proc/self/cgroup", "0::/job_7\n");
    e2e_write("tree/proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    e2e_write("tree/sys/fs/cgroup/job_7/memory.max", "%d\n", 1 << 30);
    e2e_write("tree/sys/fs/cgroup/job_7/memory.current", "%d\n", 1 << 28);
    finds(0, "warning memory 768 MiB are left of 1.0 GiB, memory.max of /sys/fs/cgroup/job_7", e2e_in_tree, "");
    finds(0, "grants 1.0 GiB of the machine's 4.0 GiB", e2e_in_tree, "");
}

static int no_path(void)
{
    return setenv("PATH", "/nowhere", 1);
}

static int two_minds(void)
{
    return setenv("RANK", "0", 1) || setenv("WORLD_SIZE", "4", 1) || setenv("OMPI_COMM_WORLD_RANK", "1", 1) ||
           setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
}

static void launchers(void **state)
{
    (void)state;
    finds(1, "failure launcher", two_minds, "");
    if (strstr(e2e_succeeds(NULL, "doctor").out, "libmpi"))
        finds(0, "neither mpiexec nor srun is in PATH: one rank can be started", no_path, "");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, e2e_setup, e2e_teardown)
    const struct CMUnitTest tests[] = {TEST(a_machine_that_is_fit), TEST(limits),         TEST(directories),
                                       TEST(a_gpu_without_driver),  TEST(a_small_cgroup), TEST(launchers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
