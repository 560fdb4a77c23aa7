/* Tests machines that lack something or break during a run: disks, io_uring, memory locks. Either the run works and says what is
 * missing, or it ends with one sentence and can be resumed. */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <glob.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Makes the reference run, whose losses the disturbed runs must reproduce. */
static struct curve reference(void)
{
    e2e_succeeds(NULL, TINY "--offload none --steps 3 --out reference");
    return e2e_curve("reference");
}

static void works_and_says(const struct launch *how, const char *words, const char *arguments)
{
    char copy[256], *rest = copy;
    struct curve a = e2e_exists("reference") ? e2e_curve("reference") : reference();
    e2e_remove("run");
    struct result r = e2e_succeeds(how, TINY DISCRETE "--steps 3 --out run %s", arguments);
    snprintf(copy, sizeof copy, "%s", words);
    for (char *word; (word = strsep(&rest, "|"));)
        e2e_contains(r.out, word);
    struct curve b = e2e_curve("run");
    e2e_same_curve(&a, &b, 3);
}

/* ---- nvme paths ---- */

static int mount_small(void)
{
    return e2e_private_mounts() || mount("none", "small", "tmpfs", 0, "size=1m");
}

static int mount_small_of_two(void)
{
    return mount_small() || mkdir("small/a", 0777) || mkdir("small/b", 0777);
}

static int mount_read_only(void)
{
    return e2e_private_mounts() || mount("fixed", "fixed", NULL, MS_BIND, NULL) ||
           mount(NULL, "fixed", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL);
}

static void nvme_paths_that_will_not_do(void **state)
{
    (void)state;
#define ON(path) TINY "--offload nvme --steps 1 --out run --nvme-path " path
    e2e_refuses(2, "nvme path absent|No such file|--nvme-path", NULL, ON("absent"));
    e2e_refuses(2, "nvme path absent|No such file|--nvme-path", NULL, ON("absent --nvme-max 1G"));
    e2e_refuses(2, "nvme path corpus.txt|Not a directory|--nvme-path", NULL, ON("corpus.txt"));
    assert_false(e2e_exists("run"));
    e2e_refuses(2, "nvme path absent|No such file|--nvme-path", NULL, "plan" ON("absent"));
    e2e_succeeds(NULL, "plan" ON("absent --nvme-max 1G")); /* `plan` accepts a path that this machine lacks */
    e2e_succeeds(NULL, ON("run"));                         /* the drive is the run's own directory */
    e2e_remove("run");
    const struct launch full = {.fault = "fallocate:1:ENOSPC"};
    assert_int_equal(mkdir("disk", 0777), 0);
    e2e_refuses(3, "nvme path |/disk: |are needed|a quota or|--nvme-path", &full, ON("disk"));
    assert_int_equal(e2e_count("disk/*"), 0);
    assert_int_equal(e2e_count("run/*.jsonl"), 0);
}

static void nvme_paths_of_other_mounts(void **state)
{
    (void)state;
    if (!e2e_can_mount())
        skip();
    assert_int_equal(mkdir("fixed", 0777) | mkdir("small", 0777), 0);
    e2e_refuses(2, "nvme path fixed|Read-only|--nvme-path", &(struct launch){.prepare = mount_read_only}, ON("fixed"));
    const struct launch small = {.prepare = mount_small};
    e2e_refuses(3, "the plan needs|on the nvme|973 KiB are free (--nvme-max, 5% left free)", &small, ON("small"));
    const struct launch two = {.prepare = mount_small_of_two}; /* free space of two paths on one drive is counted once */
    e2e_refuses(3, "the plan needs|on the nvme|973 KiB are free (--nvme-max, 5% left free)", &two, ON("small/a,small/b"));
    /* --nvme-max exceeds the free space: the free space is the limit, and the message does not advise to raise --nvme-max */
#define MUCH "--offload auto --nvme-path small --nvme-max 1G"
    struct result r = e2e_refuses(3,
                                  "the plan needs|on the nvme|1.0 MiB are free (--nvme-max gives 1.0 GiB: free some or name "
                                  "another --nvme-path). --offload auto would need",
                                  &small, ON("small --nvme-max 1G"));
    assert_null(strstr(r.out, "--nvme-max 4"));
    r = e2e_succeeds(&small, "plan" TINY MUCH);
    assert_non_null(strstr(r.out, "--host-mem  free space"));
    r = e2e_succeeds(&small, TINY MUCH " --steps 1 --out run");
    assert_non_null(strstr(r.out, "nvme 1.0 MiB (all that is free, --nvme-max gives 1.0 GiB)"));
}

static void several_nvme_paths(void **state)
{
    (void)state;
    assert_int_equal(mkdir("d0", 0777) | mkdir("d1", 0777) | mkdir("d2", 0777), 0);
    works_and_says(NULL, "/d0 + /|/d1 + /|/d2: ", "--nvme-path d0,d1,d2");
    assert_int_equal(e2e_count("d?/*"), 0);
}

/* Tries n = 1, 2, ... until the n-th open is the store's, and makes it fail: its number depends on how the data were read. */
static void a_file_system_without_o_direct(void **state)
{
    (void)state;
    for (int nth = 1; nth <= 60; nth++) {
        char fault[32];
        snprintf(fault, sizeof fault, "open:%d:EINVAL", nth);
        e2e_remove("run");
        struct result r = e2e_run(&(struct launch){.fault = fault}, TINY DISCRETE "--steps 3 --out run");
        if (r.status == 0 && strstr(r.out, "no O_DIRECT (run refuses it)")) {
            struct curve a = e2e_curve("run"), b = reference();
            e2e_same_curve(&a, &b, 3);
            return;
        }
    }
    fail_msg("no open with O_DIRECT could be made to fail");
}

/* ---- io_uring and memory locks ---- */

static int no_io_uring(void)
{
    return e2e_without_call(SYS_io_uring_setup, EPERM);
}

/* Allows creating io_uring rings, but makes entering them fail. */
static int no_io_uring_enter(void)
{
    return e2e_without_call(SYS_io_uring_enter, EACCES);
}

static void io_uring_is_denied(void **state)
{
    (void)state;
    struct result r = e2e_succeeds(NULL, TINY "--offload nvme --steps 1 --out look");
    if (!strstr(r.out, "preallocated, io_uring"))
        skip(); /* io_uring is not built in, or already denied */
    works_and_says(&(struct launch){.fault = "uring_setup:1:EPERM"}, "threads (no io_uring: Operation not permitted; ", "");
    works_and_says(&(struct launch){.fault = "uring_setup:2:ENOSYS"}, "threads (no io_uring: Function not implemented; ", "");
    works_and_says(&(struct launch){.prepare = no_io_uring}, "threads (no io_uring: Operation not permitted; ", "");
    works_and_says(&(struct launch){.prepare = no_io_uring_enter}, "threads (no io_uring: Permission denied; ", "");
}

static int low_memlock(void)
{
    return setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){64 << 10, 64 << 10}) || e2e_drop_capability(CAP_IPC_LOCK);
}

static void memory_cannot_be_locked(void **state)
{
    (void)state;
    works_and_says(&(struct launch){.prepare = low_memlock},
                   E2E_SANITIZED ? "host memory: " : "not pinned: memlock limit is 64 KiB (ulimit -l)", "");
    works_and_says(&(struct launch){.fault = "mlock:1:EPERM"}, "host memory: |not pinned", "");
}

/* ---- during the run ---- */

static void the_drive_fails(void **state)
{
    (void)state;
    static const char *const words =
        " bytes at offset |in run/ltrain-0-|(rank 0)|Input/output error|check the drive; there is no checkpoint yet";
    static const char *const faults[] = {"uring_setup:1:EPERM,pread:300:EIO", "uring_setup:1:EPERM,pwrite:300:EIO",
                                         "uring_cqe:500:EIO"};
    for (int i = 0; i < 3; i++) {
        e2e_remove("run");
        struct result r = e2e_run(&(struct launch){.fault = faults[i]}, TINY DISCRETE "--steps 30 --out run");
        if (i == 2 && r.status == 0)
            break; /* without io_uring there are no completions to fail */
        e2e_remove("run");
        e2e_refuses(1, words, &(struct launch){.fault = faults[i]}, TINY DISCRETE "--steps 30 --out run");
        assert_int_equal(e2e_count("run/*.store"), 0);
    }
    e2e_remove("run");
    e2e_refuses(1, "cannot write |No space left|free space there; there is no checkpoint yet",
                &(struct launch){.fault = "uring_setup:1:EPERM,pwrite:300:ENOSPC"}, TINY DISCRETE "--steps 30 --out run");
    /* a transfer that moves only part of its bytes is not a failure */
    works_and_says(&(struct launch){.fault = "uring_setup:1:EPERM,pread:200:SHORT,pwrite:200:SHORT"}, "threads", "");
}

/* Overwrites the store of a running ltrain, except its first page, until the program ends. Returns 0 if there is no store yet. */
static int overwrite_store(void)
{
    static char garbage[1 << 16];
    struct stat s;
    glob_t g = {0};
    int fd = glob("run/ltrain-0-*.store", 0, NULL, &g) == 0 ? open(g.gl_pathv[0], O_WRONLY) : -1;
    globfree(&g);
    if (fd < 0)
        return 0;
    memset(garbage, 0x5a, sizeof garbage);
    if (fstat(fd, &s) == 0)
        for (off_t at = 4096; at < s.st_size; at += (off_t)sizeof garbage)
            if (pwrite(fd, garbage, s.st_size - at < (off_t)sizeof garbage ? (size_t)(s.st_size - at) : sizeof garbage, at) < 0)
                break;
    fdatasync(fd);
    close(fd);
    return 1;
}

static void an_extent_is_corrupted(void **state)
{
    siginfo_t ended = {0};
    int touched = 0;
    (void)state;
    pid_t pid = e2e_start(NULL, TINY DISCRETE "--steps 1000000 --out run");
    while (waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid == 0) {
        /* only after the first step, since initialising the state does not read from the store */
        if (e2e_exists("run/metrics.jsonl"))
            touched += overwrite_store();
        usleep(1000);
    }
    struct result r = e2e_wait(pid);
    assert_true(touched > 0);
    assert_int_equal(r.status, 1);
    static const char *const words[] = {
        "ltrain: extent of ", " bytes at offset ",           " in run/ltrain-0-", "(rank 0)", "does not hold what was written",
        "check the drive",    "; there is no checkpoint yet"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        e2e_contains(r.err, words[i]);
    assert_ptr_equal(strchr(r.err, '\n'), r.err + strlen(r.err) - 1);
    assert_int_equal(e2e_count("run/*.store"), 0);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, e2e_setup, e2e_teardown)
    const struct CMUnitTest tests[] = {
        TEST(nvme_paths_that_will_not_do),
        TEST(nvme_paths_of_other_mounts),
        TEST(several_nvme_paths),
        TEST(a_file_system_without_o_direct),
        TEST(io_uring_is_denied),
        TEST(memory_cannot_be_locked),
        TEST(the_drive_fails),
        TEST(an_extent_is_corrupted),
    };
    return cmocka_run_group_tests_name("machine", tests, NULL, NULL);
}
