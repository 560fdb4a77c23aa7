/* Tests signals in the middle of a step, and output that nobody reads: nothing is lost or happens without a message. */
#include "harness.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STEPS 6
/* Options for steps of half a second, nearly all of which is transfers over the link. */
#define SLOW TINY DISCRETE "--link-gbps 0.004 --steps 6 "
#define FAST " --link-gbps 0 "

static const struct launch plain = {.prepare = e2e_let_root_start_ranks};

static void wait_ms(long ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

static void wait_for_file(pid_t pid, const char *path)
{
    siginfo_t info = {0};
    while (!e2e_exists(path) && waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0)
        wait_ms(5);
}

/* Tell whether the signal came at the right time: when `step` was the last finished one and the step after it was then discarded
 * (first function) or finished (second function). */
static int is_thrown_away(const struct result *r, int step)
{
    return e2e_curve("run").n > step ? 1 : strstr(r->out, " is thrown away, ") ? 0 : -1;
}

static int is_finished(const struct result *r, int step)
{
    (void)r;
    return e2e_curve("run").n - (step + 1);
}

/* Stops a slow run in the third step with a signal that comes twice, as timeout(1) sends it. */
static struct result stop_in_step(const char *arguments, int number, int (*where)(const struct result *r, int step))
{
    struct result r =
        e2e_stop(&plain, arguments, &(struct stop){.step = 2, .ms = 150, .number = number, .times = 2, .where = where});
    if (r.status != 128 + number)
        fail_msg("signal %d: exit status %d: %s%s", number, r.status, r.out, r.err);
    assert_string_equal(r.err, "");
    e2e_contains(r.out, "saved: continue with ltrain --resume run");
    assert_int_equal(e2e_count("run/checkpoints/step-??????"), 1);
    assert_false(e2e_exists("run/hf"));
    return r;
}

/* Checks that a stopped run, when it is resumed, equals the run that was not stopped. */
static void goes_on(const char *whole)
{
    e2e_succeeds(&plain, "--resume run" FAST);
    struct curve a = e2e_curve(whole), b = e2e_curve("run");
    char path[64];
    assert_int_equal(b.n, STEPS);
    e2e_same_curve(&a, &b, STEPS);
    snprintf(path, sizeof path, "%s/hf/model.safetensors", whole);
    e2e_same_file(path, "run/hf/model.safetensors");
}

static void unfinished_step_is_thrown_away(void **state)
{
    static const int numbers[] = {SIGTERM, SIGHUP, SIGXCPU};
    (void)state;
    e2e_succeeds(&plain, SLOW FAST "--out whole");
    for (int i = 0; i < 3; i++) {
        struct result r = stop_in_step(SLOW "--out run", numbers[i], is_thrown_away);
        e2e_contains(r.out, "step 3 is thrown away, ");
        e2e_contains(r.out, "; the state is that after step 2\n");
        e2e_contains(r.out, "stopping now and saving the last update");
        assert_int_equal(e2e_curve("run").n, 2);
        if (i == 0)
            goes_on("whole");
    }
}

static void step_is_finished_if_asked(void **state)
{
    (void)state;
    struct result r = stop_in_step(SLOW "--stop step --out run", SIGUSR1, is_finished);
    assert_null(strstr(r.out, "thrown away"));
    e2e_contains(r.out, "stopping after this step and saving\n");
}

/* While the model is written after training, only the export can be stopped; in this test the export would never end. */
static void training_is_done(void **state)
{
    static const char *const stops[] = {"", "--stop step "};
    (void)state;
    for (int i = 0; i < 2; i++) {
        char arguments[512];
        /* the rename of run/hf/export.partial, after those of config.yaml and card.json */
        const struct launch hangs = {.fault = "rename:3:HANG"};
        snprintf(arguments, sizeof arguments, TINY "--offload none --steps 1 --out run%d %s", i, stops[i]);
        pid_t pid = e2e_start(&hangs, arguments);
        snprintf(arguments, sizeof arguments, "run%d/hf/export.partial/config.json", i);
        wait_for_file(pid, arguments);
        kill(pid, SIGTERM);
        e2e_wait_for_output(pid, "SIGTERM");
        wait_ms(400);
        kill(pid, SIGTERM);
        struct result r = e2e_wait(pid);
        assert_int_equal(r.status, 128 + SIGTERM);
        e2e_contains(r.out, "\nltrain: SIGTERM: training is done: finishing the export; once more to stop at once\n");
    }
}

/* Ranks agree on the step at which they stop: with ZeRO 2 the update itself has collectives, which no rank may leave out. */
static void ranks_stop_together(void **state)
{
    (void)state;
    if (E2E_SANITIZED || system("command -v mpiexec >/dev/null") != 0)
        skip();
#define TWO "--ranks 2 --mesh dp=2 --zero 2 "
    e2e_succeeds(&plain, TWO SLOW FAST "--out whole");
    stop_in_step(TWO SLOW "--out run", SIGTERM, is_thrown_away);
    goes_on("whole");
}

/* ---- output and limits ---- */

static int nobody_reads(void)
{
    int ends[2];
    e2e_let_root_start_ranks();
    if (pipe(ends) != 0 || dup2(ends[1], STDOUT_FILENO) < 0)
        return -1;
    close(ends[0]);
    close(ends[1]);
    return 0;
}

static int small_files(void)
{
    struct rlimit limit = {256 << 10, 256 << 10};
    return setrlimit(RLIMIT_FSIZE, &limit);
}

static void closed_output_ends_nothing(void **state)
{
    const struct launch closed = {.prepare = nobody_reads};
    (void)state;
    struct result r = e2e_run(&closed, TINY "--offload none --steps 3 --out run");
    assert_int_equal(r.status, 0);
    assert_string_equal(r.err, "ltrain: standard output is closed or full: training goes on, and so does run/metrics.jsonl\n");
    assert_int_equal(e2e_curve("run").n, 3);
    assert_true(e2e_exists("run/hf/model.safetensors"));
    if (E2E_SANITIZED || system("command -v mpiexec >/dev/null") != 0)
        return;
    r = e2e_run(&closed, "--ranks 2" TINY "--offload none --steps 3 --out ranks");
    assert_int_equal(r.status, 0);
    e2e_contains(r.err, "ltrain: standard output is closed or full: the run goes on, ");
    assert_int_equal(e2e_curve("ranks").n, 3);
}

/* Starts the program with a small non-blocking pipe as output; this process becomes the reader, and reads only once the pipe is
 * full. */
static int slow_reader(void)
{
    int ends[2], full = 0, status = 0;
    char text[4096];
    siginfo_t info = {0};
    e2e_let_root_start_ranks();
    if (pipe2(ends, O_CLOEXEC) != 0 || fcntl(ends[1], F_SETPIPE_SZ, sizeof text) < 0 || fcntl(ends[1], F_SETFL, O_NONBLOCK) != 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0)
        return dup2(ends[1], STDOUT_FILENO) < 0;
    close(ends[1]);
    while (full < 3500 && waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0) {
        wait_ms(20);
        ioctl(ends[0], FIONREAD, &full);
    }
    wait_ms(300);
    for (ssize_t n; (n = read(ends[0], text, sizeof text)) > 0;)
        if (write(STDOUT_FILENO, text, (size_t)n) != n)
            _exit(1);
    waitpid(pid, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

static void slow_output_loses_nothing(void **state)
{
    (void)state;
    if (E2E_SANITIZED || system("command -v mpiexec >/dev/null") != 0)
        skip();
    struct result r = e2e_run(&(struct launch){.prepare = slow_reader}, "--ranks 2" TINY "--offload none --steps 60 --out run");
    assert_int_equal(r.status, 0);
    assert_string_equal(r.err, "");
    for (int step = 1; step <= 60; step++) {
        char line[32];
        snprintf(line, sizeof line, "\nstep %d/60", step);
        e2e_contains(r.out, line);
    }
}

static void limit_of_file_size_is_said(void **state)
{
    const struct launch small = {.prepare = small_files};
    (void)state;
    struct result r = e2e_run(&small, TINY "--offload none --steps 2 --out run");
    assert_int_equal(r.status, 1);
    e2e_contains(r.err, "File too large");
    assert_int_equal(e2e_curve("run").n, 2);
}

/* Names a transport that does not exist, as an old job script's environment may: MPI then ends its processes itself. */
static int no_transport(void)
{
    e2e_let_root_start_ranks();
    return setenv("OMPI_MCA_btl", "openib,self", 1);
}

static void mpi_that_cannot_start_says_so(void **state)
{
    const struct launch lost = {.prepare = no_transport};
    (void)state;
    if (E2E_SANITIZED || system("command -v mpiexec >/dev/null") != 0)
        skip();
    struct result r = e2e_run(&lost, "--ranks 2" TINY "--offload none --steps 1 --out run");
    assert_int_equal(r.status, 1);
    e2e_contains(r.err, "MPI cannot start");
    e2e_contains(r.err, "OMPI_MCA_btl=openib,self");
}

static int small_shared_memory(void)
{
    e2e_let_root_start_ranks();
    return e2e_private_mounts() || mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=1m");
}

static int only_shared_memory(void)
{
    return setenv("OMPI_MCA_btl", "vader,self", 1) || small_shared_memory();
}

/* Containers have little shared memory, so ranks use TCP instead. If the user asks for shared memory only, the message says that
 * there is too little, and does not advise to unset a variable that ltrain itself has set. */
static void shared_memory_may_be_short(void **state)
{
    const struct launch small = {.prepare = small_shared_memory}, only = {.prepare = only_shared_memory};
    (void)state;
    if (E2E_SANITIZED || !e2e_can_mount() || system("command -v mpiexec >/dev/null") != 0)
        skip();
    struct result r = e2e_succeeds(&small, "--ranks 2" TINY "--offload none --steps 1 --out run");
    e2e_contains(r.out, "remark: /dev/shm has 1.0 MiB free, and 2 ranks need 8.1 MiB there: the ranks send over TCP");
    r = e2e_run(&only, "--ranks 2" TINY "--offload none --steps 1 --out none");
    assert_int_equal(r.status, 1);
    e2e_contains(r.err, "MPI cannot start and has ended this process: /dev/shm has 1.0 MiB free, and ");
    assert_null(strstr(r.err, "unset"));
}

static int small_temporary_directory(void)
{
    e2e_let_root_start_ranks();
    return e2e_private_mounts() || mkdir("small", 0700) || mount("tmpfs", "small", "tmpfs", 0, "size=1m") ||
           setenv("TMPDIR", "small", 1);
}

/* Open MPI puts no files into a full TMPDIR, where it would hang. */
static void temporary_directory_may_be_full(void **state)
{
    const struct launch small = {.prepare = small_temporary_directory};
    (void)state;
    if (E2E_SANITIZED || !e2e_can_mount() || system("command -v mpiexec >/dev/null") != 0)
        skip();
    struct result r = e2e_succeeds(&small, "--ranks 2" TINY "--offload none --steps 1 --out run");
    e2e_contains(r.out, "remark: small (1.0 MiB are free) is no place for mpiexec's files: they are in /");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, e2e_setup, e2e_teardown)
    const struct CMUnitTest tests[] = {
        TEST(unfinished_step_is_thrown_away),
        TEST(step_is_finished_if_asked),
        TEST(ranks_stop_together),
        TEST(training_is_done),
        TEST(slow_output_loses_nothing),
        TEST(closed_output_ends_nothing),
        TEST(limit_of_file_size_is_said),
        TEST(mpi_that_cannot_start_says_so),
        TEST(shared_memory_may_be_short),
        TEST(temporary_directory_may_be_full),
    };
    return cmocka_run_group_tests_name("signals", tests, NULL, NULL);
}
