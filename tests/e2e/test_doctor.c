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
    e2e_refuses(2, "doctor: |--steps|--nvme-path DIR, --measure, --json, --strict, --bundle FILE", NULL, "doctor --steps 3");
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

/* Other programs on the cores. */
static void a_busy_machine(void **state)
{
    (void)state;
    assert_int_equal(system("mkdir -p tree/proc"), 0);
    e2e_write("tree/proc/loadavg", "1e6 3.00 2.00 9/999 4711\n");
    finds(0, "warning load 1e+06 threads of other programs have run or waited on ", e2e_in_tree, "");
    e2e_write("tree/proc/loadavg", "0.04 3.00 2.00 1/999 4711\n");
    finds(0, "ok load 0.04 threads of other programs have run on ", e2e_in_tree, "");
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

/* ---- a plan's needs ---- */

#define PLAN "--model tiny --seq-len 256 --offload nvme" TILES

static int small_job(void)
{
    return e2e_in_tree();
}

static void plans(void **state)
{
    (void)state;
    finds(0, "ok plan tiny, 256 tokens: fits, about ", NULL, PLAN);
    finds(0, "ok path .: the plan stores ", NULL, PLAN);
    finds(0, "unmeasured bandwidth the plan counts on ", NULL, PLAN);
    finds(0, " that are read, and measured are ", NULL, PLAN " --measure");
    finds(0, "warning memlock a rank of the plan locks ", lock_little, PLAN);
    finds(1, "failure plan ", NULL, PLAN " --device-mem 100K");
    finds(1, "failure plan ", NULL, PLAN " --nvme-path . --nvme-max 10K");
    assert_int_equal(system("mkdir -p tree/proc/self tree/sys/fs/cgroup/job_7 && "
                            "printf 'MemTotal: 4194304 kB\\nMemAvailable: 4194304 kB\\n' >tree/proc/meminfo"),
                     0);
    e2e_write("tree/proc/self/cgroup", "0::/job_7\n");
    e2e_write("tree/proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    e2e_write("tree/sys/fs/cgroup/job_7/memory.max", "%d\n", 1 << 30);
    e2e_write("tree/sys/fs/cgroup/job_7/memory.current", "%d\n", (1 << 30) - (1 << 19));
    finds(1, "are left of memory.max of /sys/fs/cgroup/job_7: raise that limit, or give less", small_job,
          PLAN " --device-mem 64M --host-mem 64M");
    e2e_refuses(2, "doctor: --machine names a machine that is not here|ltrain plan", NULL, "doctor " PLAN " --machine h100");
    e2e_refuses(2, "doctor: --explain is for `ltrain plan`", NULL, "doctor " PLAN " --explain");
    e2e_refuses(2, "unknown option --sequence", NULL, "doctor --model tiny --sequence 3");
}

/* ---- the bundle ---- */

static int as_anna(void)
{
    char home[4096];
    return !getcwd(home, sizeof home) || strlen(home) > 4000 || setenv("HOME", strcat(home, "/anna"), 1) ||
           setenv("USER", "annakarenina", 1);
}

/* The bundle has what helps, and neither data nor names. */
static void a_bundle(void **state)
{
    (void)state;
    static const char *const files[] = {"doctor.txt", "doctor.json", "versions.txt", "settings.yaml", "plan.txt", "plan.json"};
    char here[4096], host[256] = "";
    assert_non_null(getcwd(here, sizeof here));
    gethostname(host, sizeof host - 1);
    assert_int_equal(mkdir("anna", 0777) | mkdir("anna/annakarenina-drive", 0777), 0);
    e2e_write("ltrain.yaml", "data: secret-letters.txt\neval-data: [more-secret.txt]\ntoken-cache: hidden-cache\n");
    finds(0, "ok plan", as_anna, PLAN " --nvme-path anna/annakarenina-drive,anna --bundle b.tar");
    assert_int_equal(system("tar xf b.tar"), 0);
    char *all = NULL;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[64];
        snprintf(path, sizeof path, "ltrain-doctor/%s", files[i]);
        char *text = e2e_read(path, NULL);
        assert_true(strlen(text) > 40);
        assert_null(strstr(text, "secret"));
        assert_null(strstr(text, "hidden-cache"));
        assert_null(strstr(text, "annakarenina"));
        if (strlen(host) > 3 && strcmp(host, "localhost") != 0)
            assert_null(strstr(text, host));
        free(text);
    }
    all = e2e_read("ltrain-doctor/settings.yaml", NULL);
    e2e_contains(all, "seq-len: 256");
    e2e_contains(all, "USER-drive");
    free(all);
    e2e_remove("ltrain.yaml");
    e2e_succeeds(NULL, "doctor --bundle alone.tar");
    assert_int_equal(system("test $(tar tf alone.tar | wc -l) = 3"), 0);
    e2e_refuses(1, "--bundle: cannot write nowhere/b.tar: No such file", NULL, "doctor --bundle nowhere/b.tar");
    assert_int_equal(mkdir("is.tar", 0777), 0);
    e2e_refuses(1, "--bundle: cannot write is.tar", NULL, "doctor --bundle is.tar");
}

/* ---- health of GPUs ---- */

static const char *health; /* NAME=VALUE for the fake library */

static int two_gpus(void)
{
    char here[4096];
    if (!getcwd(here, sizeof here) || setenv("LD_LIBRARY_PATH", here, 1) ||
        setenv("LTRAIN_CUDA_PLUGIN", getenv("LTRAIN_CUDA_TWIN"), 1) || setenv("VIRTUAL_ENV", "venv", 1) ||
        setenv("HOME", "/nowhere", 1) || unsetenv("CUDA_HOME") || unsetenv("PYTHONPATH") || setenv("PATH", "/usr/bin:/bin", 1))
        return 1;
    setenv("NVML_ECC", "0", 1);
    setenv("NVML_SLOT", "5", 1);
    return health ? putenv((char *)(uintptr_t)health) : 0;
}

static void gpus(void **state)
{
    (void)state;
    static const struct {
        const char *health;
        int status;
        const char *line;
    } cases[] = {
        {NULL, 0, "ok ecc GPU 0 has had no uncorrected error of memory"},
        {NULL, 0, "ok clocks GPU 1 does not hold its clocks back"},
        {NULL, 0, "ok pcie GPU 1 has a link of PCIe generation 5"},
        {NULL, 0, "ok peers all 2 GPUs reach each other's memory"},
        {NULL, 0, "ok libraries libcublasLt.so.13 is venv/lib/python3.11/site-packages/nvidia/cublas/lib/libcublasLt.so.13"},
        {"NVML_ECC=3", 1, "failure ecc GPU 0 has had 3 uncorrected errors of memory since the driver was loaded: reset the GPU"},
        {"NVML_EVER=2", 0, "warning ecc GPU 1 has had 2 uncorrected errors of memory in its life"},
        {"NVML_PENDING=1", 0, "warning ecc GPU 0 has damaged rows of memory that are still in use"},
        {"NVML_CLOCKS=0x1", 0, "ok clocks GPU 0"}, /* idle */
        {"NVML_CLOCKS=0x48", 0, "warning clocks GPU 0 holds its clocks back, because it is too hot (by its hardware)"},
        {"NVML_CLOCKS=4", 0, "warning clocks GPU 1 holds its clocks back, because of its power limit"},
        {"NVML_SLOT=3", 0, "warning pcie GPU 0 is of PCIe generation 5, its slot of 3"},
        {"NVML_PEER=3", 0, "warning peers GPUs 0 and 1 cannot reach each other's memory"},
        {"NVML_FAILS=18", 1, "failure ecc the driver's libnvidia-ml.so.1 fails: Driver/library version mismatch"},
        {"LD_LIBRARY_PATH=/nowhere", 0, "unmeasured ecc errors of memory (ECC), throttled clocks and access between GPUs"},
        {"VIRTUAL_ENV=", 1,
         "failure libraries there is no libcublasLt.so.13: programs on GPUs cannot run: install CUDA 13, or `pip install"},
    };
#define WHEEL "venv/lib/python3.11/site-packages/nvidia/cublas/lib"
    const int toolkit = access("/usr/local/cuda", F_OK) == 0; /* its libraries are found first */
    if (!getenv("LTRAIN_CUDA_TWIN"))
        skip();
    assert_int_equal(symlink(getenv("LTRAIN_TEST_NVML"), "libnvidia-ml.so.1") | system("mkdir -p " WHEEL), 0);
    e2e_write(WHEEL "/libcublasLt.so.13", "a library");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        health = cases[i].health;
        if (toolkit && strstr(cases[i].line, "libraries"))
            continue;
        finds(cases[i].status, cases[i].line, two_gpus, "");
    }
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, e2e_setup, e2e_teardown)
    const struct CMUnitTest tests[] = {TEST(a_machine_that_is_fit),
                                       TEST(limits),
                                       TEST(directories),
                                       TEST(a_gpu_without_driver),
                                       TEST(a_small_cgroup),
                                       TEST(a_busy_machine),
                                       TEST(launchers),
                                       TEST(plans),
                                       TEST(a_bundle),
                                       TEST(gpus)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
