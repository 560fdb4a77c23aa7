/* Tests the watch: calls that do not return are reported and later end the process; calls that return late are reported, too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/sys.h"
#include "base/watch.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char said[2048];
static atomic_int sayings;

static void note(const char *sentence)
{
    pthread_mutex_lock(&lock);
    snprintf(said + strlen(said), sizeof said - strlen(said), "%s\n", sentence);
    pthread_mutex_unlock(&lock);
    atomic_fetch_add(&sayings, 1);
}

static void leave(const char *sentence)
{
    note(sentence);
    _exit(write(STDOUT_FILENO, said, strlen(said)) == (ssize_t)strlen(said) ? 7 : 8);
}

/* Runs `hang` in another process, which must exit with 7 after writing both texts. */
static void ends(int (*hang)(void), const char *first, const char *last)
{
    int to[2], status;
    char text[4096] = "";
    assert_int_equal(pipe(to), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(to[1], STDOUT_FILENO);
        const struct watch_rules rules = {.patience = 0.05, .timeout = 0.2, .device_timeout = 0.2, .say = note, .end = leave};
        if (watch_start(&rules) != OK)
            _exit(1);
        watch_remark("the rest");
        _exit(hang());
    }
    close(to[1]);
    for (ssize_t n, at = 0; (n = read(to[0], text + at, sizeof text - 1 - (size_t)at)) > 0; at += n) {
    }
    close(to[0]);
    assert_true(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 7);
    if (!strstr(text, first) || !strstr(text, last))
        fail_msg("'%s' and '%s' are expected: %s", first, last, text);
}

static int read_for_ever(void)
{
    char byte;
    int fd = open("/dev/zero", O_RDONLY);
    sys_inject(SYS_PREAD, 1, SYS_HANG);
    return (int)sys_pread(fd, &byte, 1, 4096);
}

static int rename_for_ever(void)
{
    sys_inject(SYS_RENAME, 1, SYS_HANG);
    return sys_rename("/nowhere/a", "/nowhere/b");
}

static int close_for_ever(void)
{
    sys_inject(SYS_CLOSE, 1, SYS_HANG);
    return sys_close(open("/dev/zero", O_RDONLY));
}

static int compute_for_ever(void)
{
    watch_enter(&(struct watch_call){.fd = -1, .path = "GPU 3 has not finished gemm", .device = 1});
    watch_enter(&(struct watch_call){.verb = "sync", .fd = -1, .path = "/drive/file"});
    return pause();
}

static void calls_that_never_return(void **state)
{
    (void)state;
    ends(read_for_ever,
         "waiting for 0.05 s to read 1 B at offset 4096 of /dev/zero; the run ends when there is no answer for 0.2 s",
         "cannot read 1 B at offset 4096 of /dev/zero: no answer for 0.2 s (--drive-timeout): check the drive; the rest\n");
    ends(close_for_ever, "waiting for 0.05 s to close /dev/zero; ", "cannot close /dev/zero: no answer");
    ends(compute_for_ever, "waiting for 0.05 s to sync /drive/file; ",
         "GPU 3 has not finished gemm for 0.2 s (--device-timeout); the rest\n");
    ends(rename_for_ever, "waiting for 0.05 s to rename /nowhere/a; ", "cannot rename /nowhere/a: no answer");
}

static void one_that_returns_late(void **state)
{
    (void)state;
    const struct watch_rules rules = {.patience = 0.1, .timeout = 1e6, .device_timeout = 1e6, .say = note, .end = leave};
    const struct watch_call call = {.verb = "sync", .fd = -1, .path = "/drive/file"};
    assert_int_equal(watch_enter(&call), -1); /* no watch has started */
    assert_int_equal(watch_start(&rules), OK);
    int slow = watch_enter(&call);
    while (atomic_load(&sayings) < 1)
        clock_sleep_ns(1000000);
    watch_leave(slow);
    assert_int_equal(atomic_load(&sayings), 2); /* reported once, and again when the call returned */
    assert_non_null(strstr(said, "waiting for 0.1 s to sync /drive/file; the run ends when there is no answer for 1e+06 s"));
    assert_non_null(strstr(said, "to sync /drive/file took "));
    watch_stop();
    watch_stop();
    assert_int_equal(watch_enter(&call), -1);
}

/* A call that returns before patience ends is not reported; patience is longer here than any machine stands still. */
static void one_that_returns_in_time(void **state)
{
    (void)state;
    const struct watch_rules rules = {.patience = 1e6, .timeout = 1e6, .device_timeout = 1e6, .say = note, .end = leave};
    const int before = atomic_load(&sayings);
    assert_int_equal(watch_start(&rules), OK);
    int call = watch_enter(&(struct watch_call){.verb = "sync", .fd = -1, .path = "/drive/file"});
    assert_true(call >= 0);
    watch_leave(call);
    watch_stop();
    assert_int_equal(atomic_load(&sayings), before);
}

/* Time for which a process was stopped, by a terminal or a scheduler, does not count as waiting. */
static void stopped_processes_go_on(void **state)
{
    (void)state;
    enum { STOP_SECONDS = 3 }; /* much longer than a loaded machine takes to run the child's few lines */
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        const struct watch_rules rules = {
            .patience = 1e6, .timeout = STOP_SECONDS, .device_timeout = STOP_SECONDS, .say = note, .end = leave};
        int call = watch_start(&rules) == OK ? watch_enter(&(struct watch_call){.verb = "sync", .fd = -1, .path = "/x"}) : -1;
        raise(SIGSTOP);
        clock_sleep_ns(200000000); /* gives the watching thread time to look */
        watch_leave(call);
        watch_stop();
        _exit(call < 0);
    }
    assert_true(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
    clock_sleep_ns(STOP_SECONDS * 1000000000ll + 200000000);
    assert_int_equal(kill(pid, SIGCONT), 0);
    assert_true(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(calls_that_never_return), cmocka_unit_test(one_that_returns_late),
                                       cmocka_unit_test(one_that_returns_in_time), cmocka_unit_test(stopped_processes_go_on)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
