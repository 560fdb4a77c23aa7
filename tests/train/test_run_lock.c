/* Tests the lock of a run's directory: second runs, dead owners, other hosts, file systems without locks, moved directories. */
#include "base/process.h"
#include "base/sys.h"
#include "base/watch.h"
#include "train/run_lock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64], file[96];
static struct comm *self;
static const struct lock_rules here = {.patience = 60, .poll = 0.02, .settle = 0.1, .shared = 0, .locks = 1};
static const struct lock_rules without = {.patience = 1, .poll = 0.02, .settle = 0.1, .shared = 1, .locks = 0};
static const struct lock_rules elsewhere = {.patience = 1, .poll = 0.02, .settle = 0.1, .shared = 1, .locks = 1};

static int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/ltrain-test-lock-XXXXXX");
    if (!mkdtemp(dir) || comm_create_self(&self) != OK)
        return -1;
    snprintf(file, sizeof file, "%s/run.lock", dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sys_inject_clear();
    comm_destroy(self);
    unlink(file);
    return rmdir(dir);
}

static void says(enum status st, enum status want, const char *words)
{
    if (st != want || (want != OK && !strstr(status_message(), words)))
        fail_msg("status %d, not %d; \"%s\" is not in: %s", (int)st, (int)want, words, status_message());
}

/* Starts a child that has the lock and waits to be killed. */
static pid_t owner_of(const struct lock_rules *rules)
{
    int pipes[2];
    char c;
    assert_int_equal(pipe(pipes), 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        struct run_lock *l;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        c = run_lock_take_by(self, dir, rules, &l) == OK;
        if (write(pipes[1], &c, 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(pipes[0], &c, 1), 1);
    assert_int_equal(c, 1);
    close(pipes[0]);
    close(pipes[1]);
    return child;
}

static void end(pid_t child)
{
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

static void one_at_a_time(const struct lock_rules *rules)
{
    struct run_lock *l;
    char words[64];
    pid_t child = owner_of(rules);
    snprintf(words, sizeof words, "process %d on host ", (int)child);
    for (int i = 0; i < 2; i++) {
        says(run_lock_take_by(self, dir, rules, &l), ERR_INVALID, words);
        assert_non_null(strstr(status_message(), "(rank 0 of 1)"));
        assert_null(l);
    }
    end(child);
    assert_int_equal(access(file, F_OK), 0);
    says(run_lock_take_by(self, dir, rules, &l), OK, "");
    says(run_lock_check(l), OK, "");
    run_lock_release(l);
    assert_int_equal(access(file, F_OK), -1); /* a run that ends normally leaves no lock file */
    says(run_lock_take_by(self, dir, rules, &l), OK, "");
    run_lock_release(l);
}

static void on_one_host(void **state)
{
    (void)state;
    one_at_a_time(&here);
}

static void on_one_host_without_locks(void **state)
{
    (void)state;
    one_at_a_time(&without);
}

static void write_owner(const char *boot, unsigned beat)
{
    char text[768];
    memset(text, '\n', sizeof text);
    int n = snprintf(text, sizeof text,
                     "ltrain run\nhost node7\nboot %s\npid 1\npid-namespace 4\nborn 77\nranks 8\n"
                     "id 00000000000000ab\nbeat %u",
                     boot, beat);
    text[n] = '\n';
    int fd = open(file, O_WRONLY | O_CREAT, 0666);
    assert_true(fd >= 0 && pwrite(fd, text, sizeof text, 0) == sizeof text);
    close(fd);
}

static atomic_int beating;

static void *beat(void *user)
{
    const char *boot = user;
    for (unsigned n = 0; atomic_load(&beating); n++) {
        write_owner(boot, n);
        usleep(1000);
    }
    return NULL;
}

/* A living owner on another host, or in another container of this host, is recognised only by its changing text; a dead owner's
 * text does not change. */
static void watched(const struct lock_rules *rules, const char *boot)
{
    struct run_lock *l;
    pthread_t thread;
    write_owner(boot, 0);
    atomic_store(&beating, 1);
    assert_int_equal(pthread_create(&thread, NULL, beat, (void *)boot), 0);
    enum status st = run_lock_take_by(self, dir, rules, &l);
    atomic_store(&beating, 0);
    pthread_join(thread, NULL);
    says(st, ERR_INVALID, "is in use: process 1 on host node7 (rank 0 of 8)");
    says(run_lock_take_by(self, dir, rules, &l), OK, "");
    run_lock_release(l);
}

static void from_another_host(void **state)
{
    (void)state;
    struct process me;
    process_self(&me);
    watched(&elsewhere, "b2a53e5e-0000-4000-8000-000000000001");
    watched(&without, "b2a53e5e-0000-4000-8000-000000000001");
    watched(&without, me.boot); /* in another pid namespace of this host */
    /* on a file system that only this host uses, the owner is from an earlier boot, so it is dead */
    struct run_lock *l;
    write_owner("b2a53e5e-0000-4000-8000-000000000001", 5);
    says(run_lock_take_by(self, dir, &here, &l), OK, "");
    run_lock_release(l);
}

/* A text that is not a lock's, as after a crash on a full disk, names no owner. */
static void damaged_text(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "ltrain run\nhost x\n", "\xff\xfe binary", "ltrain run\nhost a b c\nboot"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct run_lock *l;
        FILE *f = fopen(file, "we");
        assert_true(f && fputs(texts[i], f) >= 0 && fclose(f) == 0);
        says(run_lock_take_by(self, dir, &here, &l), OK, "");
        says(run_lock_check(l), OK, "");
        run_lock_release(l);
    }
}

/* The lock's name belongs to another kind of file. */
static void no_regular_file(void **state)
{
    (void)state;
    static const struct {
        mode_t kind;
        const char *words;
    } cases[] = {{S_IFIFO, "/run.lock: it is a FIFO, not a regular file"},
                 {S_IFSOCK, "/run.lock: it is a socket, not a regular file"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct run_lock *l;
        assert_int_equal(mknod(file, cases[i].kind | 0600, 0), 0);
        says(run_lock_take_by(self, dir, &here, &l), ERR_IO, cases[i].words);
        assert_int_equal(unlink(file), 0);
    }
}

static void moved_or_taken_over(void **state)
{
    (void)state;
    struct run_lock *l;
    char moved[80], words[128];
    snprintf(moved, sizeof moved, "%s.moved", dir);
    says(run_lock_take_by(self, dir, &here, &l), OK, "");
    assert_int_equal(rename(dir, moved), 0);
    snprintf(words, sizeof words, "was renamed while the run goes on (it is %s now)", moved);
    says(run_lock_check(l), ERR_IO, words);
    assert_int_equal(mkdir(dir, 0777), 0); /* another directory at its path is not mistaken for it */
    says(run_lock_check(l), ERR_IO, words);
    assert_int_equal(rmdir(dir) | rename(moved, dir), 0);
    says(run_lock_check(l), OK, "");
    assert_int_equal(unlink(file), 0); /* somebody tidied up */
    says(run_lock_check(l), OK, "");
    assert_int_equal(access(file, F_OK), 0);
    write_owner("b2a53e5e-0000-4000-8000-000000000001", 9);
    says(run_lock_check(l), ERR_INVALID, "process 1 on host node7 (rank 0 of 8) has taken");
    run_lock_release(l);
    assert_int_equal(access(file, F_OK), 0); /* the other run's lock is still there */
    assert_int_equal(unlink(file), 0);
    says(run_lock_take_by(self, dir, &here, &l), OK, "");
    assert_int_equal(unlink(file) | rmdir(dir), 0);
    says(run_lock_check(l), ERR_IO, "was removed while the run goes on");
    run_lock_release(l);
    assert_int_equal(mkdir(dir, 0777), 0);
}

static atomic_int hanging, hung;

/* Replaces the C library's function: in the thread that updates the lock it does not return while the simulated file system
 * hangs. */
ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at)
{
    while (atomic_load(&hanging) && gettid() != getpid()) {
        atomic_store(&hung, 1);
        usleep(1000);
    }
    return syscall(SYS_pwrite64, fd, bytes, n, at);
}

static void say_nothing(const char *sentence)
{
    (void)sentence;
}

static void end_process(const char *sentence)
{
    _exit(strstr(sentence, "cannot write 768 B at offset 0 of /tmp/ltrain-test-lock-") &&
                  strstr(sentence, "/run.lock: no answer for 5 s")
              ? 7
              : 8);
}

/* The file system hangs while the thread updates the lock: saves do not wait for the thread, the removed file is made again, and
 * the watch ends the process. */
static void file_system_hangs(void **state)
{
    (void)state;
    int pipes[2], status;
    char c;
    assert_int_equal(pipe(pipes), 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        struct run_lock *l;
        alarm(280);
        if (watch_start(&(struct watch_rules){
                .patience = 1, .timeout = 5, .device_timeout = 5, .say = say_nothing, .end = end_process}) != OK ||
            run_lock_take_by(self, dir, &elsewhere, &l) != OK)
            _exit(1);
        atomic_store(&hanging, 1);
        while (!atomic_load(&hung))
            usleep(1000);
        c = run_lock_check(l) == OK && unlink(file) == 0 && run_lock_check(l) == OK && access(file, F_OK) == 0;
        if (write(pipes[1], &c, 1) != 1)
            _exit(1);
        run_lock_release(l);
        _exit(0);
    }
    close(pipes[1]);
    assert_int_equal(read(pipes[0], &c, 1), 1);
    assert_int_equal(c, 1);
    close(pipes[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 7);
}

/* If a run's lock was taken over while the run was stopped, the run does not overwrite its successor's text. */
static void beats_no_more(void **state)
{
    (void)state;
    struct run_lock *l;
    says(run_lock_take_by(self, dir, &elsewhere, &l), OK, "");
    write_owner("b2a53e5e-0000-4000-8000-000000000001", 9);
    usleep(300000); /* three beats */
    says(run_lock_check(l), ERR_INVALID, "process 1 on host node7 (rank 0 of 8) has taken");
    run_lock_release(l);
    assert_int_equal(access(file, F_OK), 0);
}

/* If the n-th call fails, there is an error message, and the next run gets the lock. */
static void failing_calls(void **state)
{
    (void)state;
    static const struct {
        enum sys_call call;
        int error;
    } faults[] = {{SYS_OPEN, EACCES}, {SYS_PWRITE, ENOSPC}, {SYS_PWRITE, SYS_SHORT}, {SYS_MALLOC, ENOMEM}, {SYS_THREAD, EAGAIN},
                  {SYS_STAT, EIO},    {SYS_FLOCK, EIO},     {SYS_TRUNCATE, EIO},     {SYS_STATVFS, EIO},   {SYS_UNLINK, EIO}};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        for (int n = 1, came = 1; came; n++) {
            struct run_lock *l;
            sys_inject_clear();
            sys_inject(faults[i].call, n, faults[i].error);
            enum status st = run_lock_take_by(self, dir, &here, &l);
            came = sys_count(faults[i].call) >= n;
            sys_inject_clear();
            assert_true(st == OK ? l != NULL : l == NULL && status_message()[0]);
            run_lock_release(l);
            says(run_lock_take_by(self, dir, &here, &l), OK, "");
            run_lock_release(l);
        }
}

/* If looking at the lock fails, it does not count as moved, removed or taken over. */
static void failing_looks(void **state)
{
    (void)state;
    struct run_lock *l;
    says(run_lock_take_by(self, dir, &here, &l), OK, "");
    for (int n = 1; n <= 3; n++) {
        sys_inject_clear();
        sys_inject(SYS_STAT, n, EIO);
        says(run_lock_check(l), ERR_IO, "cannot look at ");
        sys_inject_clear();
        says(run_lock_check(l), OK, "");
    }
    run_lock_release(l);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(on_one_host),     TEST(on_one_host_without_locks), TEST(from_another_host),
        TEST(damaged_text),    TEST(moved_or_taken_over),       TEST(failing_calls),
        TEST(failing_looks),   TEST(file_system_hangs),         TEST(beats_no_more),
        TEST(no_regular_file),
    };
    return cmocka_run_group_tests_name("run_lock", tests, NULL, NULL);
}
