/* Simulates a small machine: limits of the system lead to a plan that fits or to one sentence, never to a hang or a kill. */
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static int limit_address_space(void)
{
    const struct rlimit l = {300000000, 300000000};
    return setrlimit(RLIMIT_AS, &l);
}

static void address_space(void **state)
{
    (void)state;
    if (E2E_SANITIZED) /* the sanitizer's shadow memory takes terabytes */
        skip();
    struct result r = e2e_succeeds(&(struct launch){.prepare = limit_address_space}, TINY "--steps 1 --out run");
    e2e_contains(r.out, "model: run/hf");
}

/* With any limit the program runs or prints one sentence, since plans include a rank's memory outside its arenas, such as its
 * threads' stacks. */
static int limit_step; /* limit in units of 10 MB */

static int limit_some(void)
{
    const struct rlimit l = {(rlim_t)limit_step * 10000000, (rlim_t)limit_step * 10000000};
    return setrlimit(limit_step % 2 ? RLIMIT_AS : RLIMIT_DATA, &l);
}

static void any_resource_limit(void **state)
{
    (void)state;
    if (E2E_SANITIZED)
        skip();
    static const int steps[] = {6, 7, 9, 11, 20};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        limit_step = steps[i];
        e2e_remove("run");
        struct result r = e2e_run(&(struct launch){.prepare = limit_some}, TINY "--steps 1 --out run");
        size_t n = strlen(r.err);
        int one_sentence = strncmp(r.err, "ltrain: ", 8) == 0 && strchr(r.err, '\n') == r.err + n - 1;
        if (r.status == 0 ? n > 0 : !one_sentence || (r.status != 3 && r.status != 1))
            fail_msg("with %d0 MB: exit status %d: %s", limit_step, r.status, r.err);
    }
    limit_step = 15;
    e2e_refuses(3, "memory (device |a rank can have |are left of 143 MiB, RLIMIT_AS (ulimit -v)",
                &(struct launch){.prepare = limit_some},
                TINY "--offload none --seq-len 16k --device-mem 1G --steps 1 --out run2");
}

/* ---- cgroups, acted out by a tree of files ---- */

static const struct launch limited = {.prepare = e2e_in_tree};

static void make_tree(const char *cgroup, const char *mount)
{
    e2e_remove("tree");
    assert_int_equal(system("mkdir -p tree/proc/self tree/sys/fs/cgroup/job_7/step_0 && "
                            "grep -E 'MemTotal|MemAvailable' /proc/meminfo >tree/proc/meminfo"),
                     0);
    e2e_write("tree/proc/self/cgroup", "%s:/job_7/step_0\n", cgroup);
    e2e_write("tree/proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - %s\n", mount);
}

static void make_v2(int mib)
{
    make_tree("0:", "cgroup2 cgroup2 rw");
    e2e_write("tree/sys/fs/cgroup/job_7/memory.max", "%d\n", mib << 20);
    e2e_write("tree/sys/fs/cgroup/job_7/memory.current", "%d\n", 30 << 20);
    e2e_write("tree/sys/fs/cgroup/job_7/memory.stat", "inactive_file %d\nactive_file %d\n", 5 << 20, 5 << 20);
    e2e_write("tree/sys/fs/cgroup/job_7/step_0/memory.max", "max\n");
}

static void make_v1(int mib)
{
    make_tree("4:memory", "cgroup cgroup rw,memory");
    e2e_write("tree/sys/fs/cgroup/job_7/memory.limit_in_bytes", "%d\n", mib << 20);
    e2e_write("tree/sys/fs/cgroup/job_7/memory.usage_in_bytes", "%d\n", 30 << 20);
    e2e_write("tree/sys/fs/cgroup/job_7/memory.stat", "total_inactive_file %d\ntotal_active_file %d\n", 5 << 20, 5 << 20);
    e2e_write("tree/sys/fs/cgroup/job_7/step_0/memory.limit_in_bytes", "9223372036854771712\n");
}

#define BIG "--model 25m --data corpus.txt --seq-len 512 --tiles rows=256,heads=8,loss=256,group=1048576 --threads 1 "

static void in_cgroups(void (*make)(int mib), const char *name)
{
    char words[128], left[128];
    snprintf(words, sizeof words, "%s of /sys/fs/cgroup/job_7", name);
    make(300);
    struct result r = e2e_succeeds(&limited, "plan " BIG "--effort quick");
    snprintf(left, sizeof left, "memory: 280 MiB are left of 300 MiB, %s", name);
    e2e_contains(r.out, left);
    e2e_contains(r.out, "tokens: fits");
    e2e_refuses(3, "can have 247 MiB|280 MiB are left of 300 MiB|, and 33 MiB are set aside for stacks and the program|less with",
                &limited, BIG "--device-mem 8G --offload none --effort quick --steps 1 --out run");
    make(90);
    r = e2e_succeeds(&limited, TINY "--steps 1 --save-every 1 --out run"); /* 37 MiB remain for arenas */
    e2e_contains(r.out, words);
    e2e_contains(r.out, "budgets: device 18 MiB, host 15 MiB");
    assert_true(E2E_SANITIZED || r.peak_bytes < 70 << 20);
    e2e_refuses(3, "the plan needs | on the device and 18 MiB are free (--device-mem)|of memory 70 MiB are left of 90 MiB",
                &limited, BIG "--steps 1 --effort quick --out run3");
    make(32);
    e2e_refuses(3, "0 B are free (--device-mem)|of memory 12 MiB are left of 32 MiB|raise that limit", &limited,
                TINY "--steps 1 --out run3");
    e2e_remove("run");
}

static void cgroups(void **state)
{
    (void)state;
    in_cgroups(make_v2, "memory.max");
    in_cgroups(make_v1, "memory.limit_in_bytes");
}

static int in_tree_without_openmp(void)
{
    return unsetenv("OMP_NUM_THREADS") | e2e_in_tree();
}

/* A container with the time of one processor (docker --cpus 1) computes with one thread, on any number of cores. */
static void processors_of_a_cgroup(void **state)
{
    (void)state;
    const struct launch here = {.prepare = in_tree_without_openmp};
    make_v2(900);
    e2e_write("tree/sys/fs/cgroup/job_7/cpu.max", "100000 100000\n");
    struct result r = e2e_succeeds(&here, TINY "--steps 1 --out run");
    e2e_contains(r.out, ", 1 threads");
    assert_null(strstr(r.out, "take turns"));
    r = e2e_succeeds(&here, TINY "--steps 1 --threads 3 --out run2");
    e2e_contains(r.out, "remark: 3 threads take turns on 1 core, ");
}

/* With nvme state on a tmpfs, which is memory, the other two tiers get less. */
static void drives_in_memory(void **state)
{
    (void)state;
    char path[] = "/dev/shm/ltrain-e2e-XXXXXX";
    if (!mkdtemp(path))
        skip();
    make_v2(900); /* a rank gets 847 MiB */
    struct result r = e2e_run(&limited, TINY "--offload nvme --nvme-path %s --steps 1 --out run", path);
    rmdir(path);
    assert_int_equal(r.status, 0);
    e2e_contains(r.out, "remark: what is stored in /dev/shm/ltrain-e2e-");
    const char *budget = strstr(r.out, ", nvme ");
    double mib = 0;
    assert_true(budget && sscanf(budget, ", nvme %lf MiB (in memory)", &mib) == 1);
    assert_true(mib > 30 && mib < 46);
    r = e2e_succeeds(&limited, TINY "--offload nvme --nvme-path %s --nvme-max 64M --steps 1 --out run2", ".");
    e2e_contains(r.out, "nvme 64 MiB");
}

/* A run has two groups of 2^24 elements in memory outside its arenas: a limit may be large enough for the arenas only. */
static void groups_beside_the_arenas(void **state)
{
    (void)state;
    make_v2(
        1670); /* a rank gets 1617 MiB, half-way between its arenas (1561 MiB including AVX-512's scratch) and its whole need */
    e2e_refuses(3, "the plan takes |(device 1.5 GiB, host |, beside them 112 MiB for two groups of state|can have 1.579 GiB",
                &limited,
                "--model 125m --data corpus.txt --seq-len 64 --offload none --device-mem 8G --tiles group=16777216 --threads 1 "
                "--effort quick --steps 1 --save-every 0 --out run");
    assert_false(e2e_exists("run/metrics.jsonl"));
}

/* A check's resident run gets the memory that the cgroup leaves next to the given run. */
static void a_check_in_a_cgroup(void **state)
{
    (void)state;
    make_v2(90);
    struct result r = e2e_succeeds(&limited, "check " TINY "--steps 1");
    const char *left = strstr(r.out, " of memory, ");
    assert_non_null(left);
    double mib = atof(left + strlen(" of memory, "));
    assert_true(mib > 40 && mib < 63 && strstr(left, " MiB are left"));
}

/* Two ranks in one cgroup each get half of the available memory. */
static void ranks_of_a_cgroup(void **state)
{
    (void)state;
    if (E2E_SANITIZED || !strstr(e2e_succeeds(NULL, "--version").out, "MPI")) /* Open MPI leaks (tests/mpi.sh) */
        skip();
    make_v2(230);
    struct result r = e2e_succeeds(&limited, TINY "--ranks 2 --steps 1 --out run");
    e2e_contains(r.out, "are left of 230 MiB, memory.max of /sys/fs/cgroup/job_7, shared by 2 ranks");
    e2e_contains(r.out, "budgets: device 36 MiB, host 29 MiB"); /* 1/2 and 2/5 of 210 / 2 - 33 MiB */
    r = e2e_succeeds(&limited, "plan " TINY "--ranks 2");
    e2e_contains(r.out, "/job_7, shared"); /* "by 2 ranks" is in the next line */
}

/* ---- FIFOs: a program that opens them as files waits for ever ---- */

static void make_fifo(const char *path)
{
    e2e_remove(path);
    assert_int_equal(mkfifo(path, 0666), 0);
}

#define FIFO "it is a FIFO, not a regular file"
#define UNTRAINED TILES "--seq-len 256 --steps 1 --out fresh --data "

static void fifos_of_inputs(void **state)
{
    (void)state;
    make_fifo("fifo");
    e2e_refuses(2, "fifo: " FIFO, NULL, "--model tiny" UNTRAINED "fifo");
    e2e_refuses(2, "fifo: " FIFO, NULL, "--model tiny" UNTRAINED "corpus.txt --eval-data fifo");
    e2e_refuses(2, "cannot read fifo (--config): " FIFO, NULL, "--config fifo");
    e2e_refuses(2, "--machine: cannot read fifo: " FIFO, NULL, "plan --model tiny --seq-len 256 --machine fifo");
    e2e_refuses(2, "--svg: cannot write fifo: " FIFO, NULL, "plan --model tiny --seq-len 256 --svg fifo");
    make_fifo("ltrain.yaml");
    e2e_refuses(2, "cannot read ltrain.yaml: " FIFO, NULL, "--model tiny" UNTRAINED "corpus.txt");
    e2e_remove("ltrain.yaml");
    e2e_succeeds(NULL, TINY "--steps 1 --out run");
    static const char *const files[] = {"config.json", "model.safetensors", "model.safetensors.index.json"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[64];
        e2e_copy("run/hf", "hf");
        if (i == 2)
            e2e_remove("hf/model.safetensors");
        snprintf(path, sizeof path, "hf/%s", files[i]);
        make_fifo(path);
        struct result r = e2e_refuses(2, FIFO, NULL, "--model hf" UNTRAINED "corpus.txt");
        e2e_contains(r.err, path);
    }
    assert_false(e2e_exists("fresh"));
}

/* A checkpoint damaged in any way is passed over for an older one. */
static void fifos_of_a_run(void **state)
{
    (void)state;
    static const char *const files[] = {"latest", "step-000002/manifest.json", "step-000002/model.safetensors"};
    char path[128];
    e2e_succeeds(NULL, TINY "--steps 2 --save-every 1 --out kept");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        e2e_copy("kept", "run");
        snprintf(path, sizeof path, "run/checkpoints/%s", files[i]);
        make_fifo(path);
        struct result r = e2e_succeeds(NULL, "--resume run --steps 3 --save-every 0");
        e2e_contains(r.out, i == 0 ? "latest is missing or damaged" : FIFO);
        e2e_contains(r.out, i == 0 ? "resume: step 2 " : "resume: step 1 ");
    }
    static const char *const others[] = {"config.yaml", "metrics.jsonl", "plan.txt"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        e2e_copy("kept", "run");
        snprintf(path, sizeof path, "run/%s", others[i]);
        make_fifo(path);
        struct result r = e2e_refuses(i == 0 ? 2 : 1, FIFO, NULL, "--resume run --steps 3");
        e2e_contains(r.err, path);
    }
}

/* ---- drives that never answer ---- */

/* Checks what a run with a call that hangs says: one sentence that contains the texts in `words`, which are separated by '|'. A
 * busy drive may be as slow to answer another call, so a sentence about that one is asked for again with more patience. */
static void hangs(const char *fault, const char *words, const char *arguments, double timeout)
{
    enum { TRIES = 3, LONGER = 5 };
    for (int i = 0;; i++, timeout *= LONGER) {
        char copy[256], limit[64], *rest = copy;
        e2e_remove("run");
        snprintf(limit, sizeof limit, "no answer for %g s (--drive-timeout): check the drive", timeout);
        struct result r = e2e_refuses(1, limit, &(struct launch){.fault = fault}, "%s --drive-timeout %g", arguments, timeout);
        snprintf(copy, sizeof copy, "%s", words);
        int missing = 0;
        for (char *word; (word = strsep(&rest, "|"));)
            missing += !strstr(r.err, word);
        if (!missing)
            return;
        if (i == TRIES - 1)
            fail_msg("'%s' is expected with %s: %s", words, fault, r.err);
    }
}

static void drives_that_hang(void **state)
{
    (void)state;
    static const char *const faults[] = {"uring_setup:1:EPERM,pread:100:HANG", "uring_cqe:100:HANG"};
    int uring = strstr(e2e_succeeds(NULL, TINY "--offload nvme --steps 1 --out look").out, "preallocated, io_uring") != NULL;
    for (size_t i = 0; i < 1u + (uring != 0); i++)
        hangs(faults[i], ".store: no answer for |; there is no checkpoint yet", TINY DISCRETE "--steps 60 --out run", 2);
    /* calls that hang while settings and inputs are read are noticed, too */
    hangs("open:1:HANG", "ltrain: cannot open ", "plan" TINY, 0.5);
    hangs("fsync:20:HANG", "ltrain: cannot sync |step-000001: continue with", TINY "--steps 9 --save-every 1 --out run", 2);
    e2e_succeeds(NULL, "--resume run --steps 4 --save-every 0"); /* the saved run can be resumed: its lock is free */
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, e2e_setup, e2e_teardown)
    const struct CMUnitTest tests[] = {
        TEST(address_space),          TEST(any_resource_limit), TEST(cgroups),
        TEST(processors_of_a_cgroup), TEST(drives_in_memory),   TEST(groups_beside_the_arenas),
        TEST(a_check_in_a_cgroup),    TEST(ranks_of_a_cgroup),  TEST(fifos_of_inputs),
        TEST(fifos_of_a_run),         TEST(drives_that_hang),
    };
    return cmocka_run_group_tests_name("limits", tests, NULL, NULL);
}
