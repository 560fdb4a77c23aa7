/* The wrapped system calls work, and fail when told to. The program starts itself again with LTRAIN_FAULT set. */
#include "base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/ltrain-test-sys-XXXXXX", file[64];

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(file, sizeof file, "%s/file", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(file);
    return rmdir(folder);
}

static int clear(void **state)
{
    (void)state;
    sys_inject_clear();
    return 0;
}

static void *touch(void *arg)
{
    *(int *)arg = 1;
    return NULL;
}

/* Calls that look at files and directories work; the directory holds an empty file. */
static void looks_work(void)
{
    struct stat s;
    struct statfs fs;
    struct dirent *e;
    FTSENT *t;
    glob_t g = {0};
    int entries = 0, files = 0, fd = sys_open(file, O_RDWR | O_CREAT, 0600), dir = sys_open(folder, O_RDONLY | O_DIRECTORY, 0);
    assert_int_equal(sys_ftruncate(fd, 7) | sys_stat(file, &s), 0);
    assert_int_equal(s.st_size, 7);
    assert_int_equal(sys_truncate(file, 5) | sys_fstat(fd, &s), 0);
    assert_int_equal(s.st_size, 5);
    assert_int_equal(sys_lstat(file, &s) | sys_fstatat(dir, "file", &s, 0) | sys_access(file, R_OK) | sys_flock(fd, LOCK_EX), 0);
    assert_int_equal(sys_stat("/nonexistent", &s), -1);
    assert_true(sys_is_absent(errno) && !sys_is_absent(EIO));
    assert_int_equal(sys_fstatfs(fd, &fs), 0);
    DIR *d = sys_opendir(folder);
    while ((e = sys_readdir(d)))
        entries++;
    assert_int_equal(errno, 0);
    closedir(d);
    assert_int_equal(entries, 3);
    FTS *tree = sys_fts_open(folder, FTS_LOGICAL | FTS_NOCHDIR);
    while ((t = sys_fts_read(tree, folder)))
        files += t->fts_info == FTS_F;
    assert_int_equal(errno, 0);
    fts_close(tree);
    assert_int_equal(files, 1);
    char *whole = sys_realpath(file);
    assert_string_equal(whole, file);
    free(whole);
    assert_int_equal(sys_glob(file, 0, &g), 0);
    globfree(&g);
    sys_close(fd);
    assert_int_equal(sys_unlinkat(dir, "file", 0), 0);
    sys_close(dir);
}

/* Each of these calls fails, without being made. */
static void looks_fail(int fd)
{
    struct stat s;
    struct statfs fs;
    glob_t g = {0};
    DIR *d = opendir(folder);
    char *roots[] = {folder, NULL};
    FTS *tree = fts_open(roots, FTS_LOGICAL | FTS_NOCHDIR, NULL);
    assert_int_equal(sys_stat(folder, &s), -1);
    assert_int_equal(sys_access(folder, F_OK), -1);
    assert_null(sys_opendir(folder));
    assert_null(sys_readdir(d));
    assert_int_equal(errno, ENFILE);
    assert_int_equal(sys_rmdir("/nonexistent"), -1);
    assert_int_equal(errno, ENFILE);
    assert_int_equal(sys_flock(fd, LOCK_EX), -1);
    assert_int_equal(sys_truncate("/nonexistent", 0), -1);
    assert_int_equal(errno, ENFILE);
    assert_null(sys_fts_open(folder, FTS_LOGICAL));
    sys_inject(SYS_FTS, 1, ENFILE);
    assert_null(sys_fts_read(tree, folder));
    assert_int_equal(errno, ENFILE);
    assert_int_equal(sys_glob(folder, 0, &g), GLOB_ABORTED);
    assert_null(sys_realpath(folder));
    assert_int_equal(sys_quota(fd, 0, 0, &s), -1);
    assert_int_equal(sys_no_cow(fd), -1);
    assert_int_equal(errno, ENFILE);
    static const enum sys_call each[] = {SYS_STAT, SYS_STAT, SYS_STAT, SYS_STATVFS, SYS_UNLINK, SYS_TRUNCATE};
    for (int i = 0; i < 6; i++) { /* these calls are counted under one name */
        sys_inject_clear();
        sys_inject(each[i], 1, ENFILE);
        int failed = i == 0   ? sys_lstat(folder, &s)
                     : i == 1 ? sys_fstat(fd, &s)
                     : i == 2 ? sys_fstatat(AT_FDCWD, folder, &s, 0)
                     : i == 3 ? sys_fstatfs(fd, &fs)
                     : i == 4 ? sys_unlinkat(AT_FDCWD, "/nonexistent", 0)
                              : sys_ftruncate(fd, 0);
        assert_int_equal(failed, -1);
        assert_int_equal(errno, ENFILE);
    }
    closedir(d);
    fts_close(tree);
}

static volatile sig_atomic_t asked;

static void give_back(int number)
{
    asked = number;
}

/* Takes a lease on the file, as an NFS server does for a client, and gives it back when asked. Returns 77 if leases are not
 * possible here. */
static int lend(int tell)
{
    int fd = open(file, O_RDWR);
    signal(SIGIO, give_back);
    sigset_t io, before;
    sigemptyset(&io);
    sigaddset(&io, SIGIO);
    sigprocmask(SIG_BLOCK, &io, &before);
    if (fcntl(fd, F_SETLEASE, F_WRLCK) != 0)
        return 77;
    if (write(tell, "", 1) != 1)
        return 1;
    while (!asked)
        sigsuspend(&before);
    return fcntl(fd, F_SETLEASE, F_UNLCK) != 0;
}

static void what_is_lent_is_waited_for(void **state)
{
    (void)state;
    int pipes[2], status;
    char byte;
    close(sys_open(file, O_RDWR | O_CREAT, 0600));
    assert_int_equal(pipe(pipes), 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(pipes[0]);
        _exit(lend(pipes[1]));
    }
    close(pipes[1]);
    if (read(pipes[0], &byte, 1) == 1) {
        int fd = sys_open_file(file, O_RDWR, 0), error = errno;
        if (fd < 0) {
            kill(pid, SIGKILL);
            fail_msg("%s", strerror(error));
        }
        close(fd);
    }
    close(pipes[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(status, 0);
}

/* Calls of a thread that runs at times of the clock are not counted, and get no faults. */
static void *by_clock(void *arg)
{
    struct stat s;
    sys_thread_by_clock();
    *(int *)arg = sys_stat(folder, &s);
    return NULL;
}

static void calls_by_the_clock(void **state)
{
    struct stat s;
    pthread_t t;
    int result = 1;
    (void)state;
    sys_inject(SYS_STAT, 1, EIO);
    assert_int_equal(pthread_create(&t, NULL, by_clock, &result), 0);
    pthread_join(t, NULL);
    assert_int_equal(result, 0);
    assert_int_equal(sys_count(SYS_STAT), 0);
    assert_int_equal(sys_stat(folder, &s), -1);
}

static void calls_without_faults_work(void **state)
{
    (void)state;
    char buf[3000], other[80];
    int64_t free_bytes = 0;
    memset(buf, 'x', sizeof buf);
    int fd = sys_open(file, O_RDWR | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(sys_fallocate(fd, 0, 0, 8192), 0);
    assert_int_equal(sys_pwrite(fd, buf, sizeof buf, 100), sizeof buf);
    assert_int_equal(sys_fsync(fd), 0);
    assert_int_equal(sys_pread(fd, buf, sizeof buf, 99), sizeof buf);
    assert_int_equal(buf[0], 0);
    assert_int_equal(buf[1], 'x');
    assert_int_equal(sys_pread(fd, buf, 10, 8192), 0);
    assert_int_equal(sys_close(fd), 0);
    snprintf(other, sizeof other, "%s/other", folder);
    assert_int_equal(sys_mkdir(other, 0700), 0);
    assert_int_equal(rmdir(other), 0);
    assert_int_equal(sys_rename(file, other), 0);
    assert_int_equal(sys_unlink(other), 0);
    assert_int_equal(sys_unlink(other), -1);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(sys_statvfs_free(folder, &free_bytes), 0);
    assert_true(free_bytes > 0);

    looks_work();
    char *p = sys_mmap(4096, 0);
    assert_non_null(p);
    assert_int_equal(p[4095], 0);
    assert_int_equal(sys_mlock(p, 4096), 0);
    munmap(p, 4096);
    p = sys_calloc(3, 5);
    assert_non_null(p);
    assert_int_equal(p[14], 0);
    free(p);
    free(sys_malloc(10));

    pthread_t t;
    int ran = 0;
    assert_int_equal(sys_thread(&t, touch, &ran), 0);
    pthread_join(t, NULL);
    assert_int_equal(ran, 1);
    assert_int_equal(sys_count(SYS_PREAD), 2);
    assert_int_equal(sys_count(SYS_URING_CQE), 0);
}

static void the_nth_call_fails_once(void **state)
{
    (void)state;
    int64_t n;
    sys_statvfs_free(folder, &n);
    sys_inject(SYS_STATVFS, 3, EIO); /* calls are counted from here on */
    for (int i = 1; i <= 5; i++) {
        errno = 0;
        assert_int_equal(sys_statvfs_free(folder, &n), i == 3 ? -1 : 0);
        if (i == 3)
            assert_int_equal(errno, EIO);
    }
    sys_inject(SYS_STATVFS, 1, EIO);
    sys_inject_clear();
    assert_int_equal(sys_statvfs_free(folder, &n), 0);
    assert_int_equal(sys_count(SYS_STATVFS), 1);
}

static void every_call_can_fail(void **state)
{
    (void)state;
    int64_t n;
    char c = 0;
    pthread_t t;
    for (int call = 0; call < SYS_CALLS; call++)
        sys_inject((enum sys_call)call, 1, ENFILE);
    assert_int_equal(sys_open(file, O_RDONLY, 0), -1);
    assert_int_equal(errno, ENFILE);
    int fd = open("/dev/null", O_RDWR);
    assert_int_equal(sys_pread(fd, &c, 1, 0), -1);
    assert_int_equal(sys_pwrite(fd, &c, 1, 0), -1);
    assert_int_equal(sys_fsync(fd), -1);
    assert_int_equal(sys_fallocate(fd, 0, 0, 1), -1);
    assert_int_equal(sys_close(fd), -1);
    assert_int_equal(fcntl(fd, F_GETFD), -1); /* the file is closed in spite of the error */
    assert_int_equal(sys_rename(file, file), -1);
    assert_int_equal(sys_unlink(file), -1);
    assert_int_equal(sys_mkdir(folder, 0700), -1);
    assert_int_equal(sys_statvfs_free(folder, &n), -1);
    assert_null(sys_mmap(4096, 0));
    assert_int_equal(sys_mlock(&c, 1), -1);
    assert_null(sys_malloc(1));
    sys_inject(SYS_MALLOC, 1, ENFILE);
    assert_null(sys_calloc(1, 1));
    assert_int_equal(sys_thread(&t, touch, &c), ENFILE);
    looks_fail(open("/dev/null", O_RDWR));
    for (int call = SYS_URING_SETUP; call <= SYS_URING_CQE; call++)
        sys_inject((enum sys_call)call, 1, ENFILE);
    for (int call = SYS_URING_SETUP; call <= SYS_URING_CQE; call++) {
        assert_int_equal(sys_fault((enum sys_call)call), ENFILE);
        assert_int_equal(sys_fault((enum sys_call)call), 0);
    }
}

static void short_transfers(void **state)
{
    (void)state;
    static char buf[8192];
    int fd = open(file, O_RDWR | O_CREAT, 0600);
    sys_inject(SYS_PWRITE, 1, SYS_SHORT);
    assert_int_equal(sys_pwrite(fd, buf, 8192, 0), 4096);
    assert_int_equal(sys_pwrite(fd, buf, 8192, 0), 8192);
    sys_inject(SYS_PREAD, 1, SYS_SHORT);
    assert_int_equal(sys_pread(fd, buf, 3000, 0), 1024);
    sys_inject(SYS_PREAD, 1, SYS_SHORT);
    assert_int_equal(sys_pread(fd, buf, 1, 0), 1);
    sys_inject(SYS_FSYNC, 1, SYS_SHORT);
    assert_int_equal(sys_fsync(fd), -1);
    assert_int_equal(errno, EIO);
    assert_int_equal(sys_fault(SYS_URING_CQE), 0);
    sys_inject(SYS_URING_CQE, 1, SYS_SHORT);
    assert_int_equal(sys_fault(SYS_URING_CQE), SYS_SHORT);
    close(fd);
}

static atomic_int fired;

static void *draw(void *arg)
{
    for (int i = 0; i < 10000; i++)
        if (sys_fault(SYS_URING_SUBMIT) != 0)
            atomic_fetch_add(&fired, 1);
    return arg;
}

static void one_fault_fires_once_among_threads(void **state)
{
    (void)state;
    pthread_t t[4];
    sys_inject(SYS_URING_SUBMIT, 15000, EIO);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&t[i], NULL, draw, NULL), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    assert_int_equal(fired, 1);
    assert_int_equal(sys_count(SYS_URING_SUBMIT), 40000);
}

/* Runs this program with LTRAIN_FAULT=fault. Returns the bits of child_main, and its stderr in `said`. */
static int run_child(const char *fault, char said[512])
{
    int pipes[2], status;
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(pipes[1], 2);
        close(pipes[0]);
        close(pipes[1]);
        setenv("LTRAIN_FAULT", fault, 1);
        execl("/proc/self/exe", "test_sys", "child", (char *)NULL);
        _exit(99);
    }
    close(pipes[1]);
    ssize_t n, len = 0;
    while (len < 511 && (n = read(pipes[0], said + len, 511 - (size_t)len)) > 0)
        len += n;
    said[len] = 0;
    close(pipes[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Returns a bit for each thing that happened: bit 0: the second malloc failed with ENOMEM; bit 1: the first CQE was short; bit 2:
 * the first unlink failed with EROFS. */
static int child_main(void)
{
    void *a = sys_malloc(1), *b = sys_malloc(1), *c = sys_malloc(1);
    int bits = a && !b && c && errno == ENOMEM;
    free(a);
    free(b);
    free(c);
    bits |= (sys_fault(SYS_URING_CQE) == SYS_SHORT) << 1;
    bits |= (sys_unlink("/nonexistent") == -1 && errno == EROFS) << 2;
    return bits;
}

static void the_environment_injects(void **state)
{
    (void)state;
    char said[512];
    assert_int_equal(run_child("malloc:2:ENOMEM", said), 1);
    assert_string_equal(said, "");
    assert_int_equal(run_child("malloc:2:ENOMEM,uring_cqe:1:SHORT,unlink:1:EROFS", said), 7);
    assert_string_equal(said, "");
    assert_int_equal(run_child("malloc:1:COUNT,unlink:1:EROFS", said), 4);
    assert_string_equal(said, "LTRAIN_FAULT: malloc 3\n");
    assert_int_equal(run_child("", said), 0);
    static const char *const bad[] = {"malloc",        "malloc:0:EIO",  "malloc:1:EWHAT",
                                      "mallocs:1:EIO", "malloc:1:EIOx", "malloc:1:EIO:2"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char fault[64];
        snprintf(fault, sizeof fault, "%s,unlink:1:EROFS", bad[i]);
        assert_int_equal(run_child(fault, said), 4);
        assert_non_null(strstr(said, bad[i]));
    }
}

/* A file that is not regular is refused at once, with its kind in the message, whether or not another process has opened its
 * other end. */
static void only_regular_files_are_opened(void **state)
{
    (void)state;
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path, sizeof name.sun_path, "%s/socket", folder);
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_true(s >= 0 && bind(s, (struct sockaddr *)&name, sizeof name) == 0);
    unlink(file);
    assert_int_equal(mkfifo(file, 0600), 0);
    const struct {
        const char *path, *why;
    } kinds[] = {{file, "it is a FIFO, not a regular file"},
                 {"/dev/null", "it is a device, not a regular file"},
                 {"/dev/zero", "it is a device, not a regular file"},
                 {name.sun_path, "it is a socket, not a regular file"},
                 {folder, "Is a directory"}};
    for (int reader = 0; reader < 2; reader++) { /* if there is a reader, opening a FIFO for writing would succeed */
        int fd = reader ? open(file, O_RDONLY | O_NONBLOCK) : -1;
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
            assert_int_equal(sys_open_file(kinds[i].path, O_RDONLY, 0), -1);
            assert_string_equal(sys_strerror(errno), kinds[i].why);
            assert_int_equal(sys_open_file(kinds[i].path, O_WRONLY | O_CREAT, 0600), -1);
            assert_string_equal(sys_strerror(errno), kinds[i].why);
            assert_null(sys_read_text(kinds[i].path));
            assert_string_equal(sys_strerror(errno), kinds[i].why);
            assert_null(sys_write_text(kinds[i].path));
            assert_string_equal(sys_strerror(errno), kinds[i].why);
        }
        close(fd);
    }
    unlink(file);
    close(s);
    unlink(name.sun_path);
    FILE *f = sys_write_text(file);
    assert_true(f && fputs("one\n", f) >= 0 && fclose(f) == 0);
    char text[16] = "";
    f = sys_read_text(file);
    assert_true(f && fread(text, 1, sizeof text - 1, f) == 4 && fclose(f) == 0);
    assert_string_equal(text, "one\n");
    unlink(file);
    assert_int_equal(sys_open_file(file, O_RDONLY, 0), -1);
    assert_int_equal(errno, ENOENT);
}

/* Links that others have planted (to a file, to nowhere, or a second name of a file) are never written through. */
static void nothing_is_written_through_links(void **state)
{
    (void)state;
    char place[] = "/tmp/ltrain-links-XXXXXX", victim[64], link_to[64], text[16];
    struct stat s;
    assert_non_null(mkdtemp(place));
    snprintf(victim, sizeof victim, "%s/victim", place);
    snprintf(link_to, sizeof link_to, "%s/link", place);
    FILE *f = fopen(victim, "w");
    assert_true(f && fputs("kept", f) >= 0 && fclose(f) == 0);
    for (int there = 1; there >= 0; there--) {
        assert_int_equal(symlink(there ? "victim" : "nowhere", link_to), 0);
        assert_int_equal(sys_create_file(link_to), -1);
        assert_non_null(strstr(sys_strerror(errno), "it is a link"));
        assert_null(sys_write_text(link_to));
        assert_int_equal(sys_open_file(link_to, O_RDWR | O_CREAT, 0600), -1);
        assert_non_null(strstr(sys_strerror(errno), "it is a link"));
        assert_int_equal(lstat(link_to, &s) | !S_ISLNK(s.st_mode), 0); /* left as found */
        unlink(link_to);
    }
    assert_int_equal(link(victim, link_to), 0);
    int fd = sys_create_file(link_to);
    assert_true(fd >= 0 && write(fd, "new", 3) == 3 && close(fd) == 0);
    f = fopen(victim, "r");
    assert_true(f && fgets(text, sizeof text, f) && fclose(f) == 0);
    assert_string_equal(text, "kept");
    assert_int_equal(unlink(link_to) | unlink(victim) | rmdir(place), 0);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "child") == 0)
        return child_main();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(calls_without_faults_work, clear, clear),
        cmocka_unit_test_setup_teardown(the_nth_call_fails_once, clear, clear),
        cmocka_unit_test_setup_teardown(nothing_is_written_through_links, clear, clear),
        cmocka_unit_test_setup_teardown(every_call_can_fail, clear, clear),
        cmocka_unit_test_setup_teardown(calls_by_the_clock, clear, clear),
        cmocka_unit_test_setup_teardown(short_transfers, clear, clear),
        cmocka_unit_test_setup_teardown(one_fault_fires_once_among_threads, clear, clear),
        cmocka_unit_test(the_environment_injects),
        cmocka_unit_test_setup_teardown(only_regular_files_are_opened, clear, clear),
        cmocka_unit_test_setup_teardown(what_is_lent_is_waited_for, clear, clear),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
