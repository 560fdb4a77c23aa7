/* Tests where the store puts its files: bad paths, full drives, files of dead and living runs, file systems without O_DIRECT,
 * kernels without io_uring. */
#include "offload_test.h"

#include "offload/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* Opens a store, moves a few bytes, checks that its description contains `want` (if not NULL), and closes it. Returns 0 or the
 * number of the check that failed. */
static int works(const struct store_config *c, const char *want)
{
    static char from[100000], to[100000];
    struct store *s;
    fill(from, sizeof from, 4);
    if (store_open(c, &s) != OK)
        return 1;
    int bad = store_write(s, 4096, from, sizeof from) != OK                             ? 2
              : store_read(s, 4096, to, sizeof to) != OK || memcmp(from, to, sizeof to) ? 3
              : want && !strstr(store_describe(s), want)                                ? 4
                                                                                        : 0;
    if (bad)
        fprintf(stderr, "%s | %s | wanted: %s\n", status_message(), store_describe(s), want ? want : "");
    store_close(s);
    return bad;
}

/* Runs `body` in a child process, as user nobody if as_nobody. Returns the child's exit status; 77: it cannot be tested here. */
static int in_child(int (*body)(void), int as_nobody)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        if (as_nobody && getuid() == 0 && setuid(65534) != 0)
            _exit(77);
        _exit(body());
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void refused(const struct store_config *c, enum status want, const char *first, const char *second)
{
    struct store *s = NULL;
    assert_int_equal(store_open(c, &s), want);
    assert_null(s);
    if (!strstr(status_message(), first) || !strstr(status_message(), second))
        fail_msg("'%s' names '%s' or '%s' not", status_message(), first, second);
}

static void a_missing_path_is_named(void **state)
{
    (void)state;
    struct store_config c = config_of(2, 1 << 20, STORE_AUTO);
    c.paths[1] = "/nonexistent/scratch";
    refused(&c, ERR_IO, "/nonexistent/scratch", "No such file or directory");
    assert_int_equal(count_files(folder[0]), 0);
    c.paths[1] = "/dev/null";
    refused(&c, ERR_IO, "/dev/null", "Not a directory");
    c = config_of(0, 1 << 20, STORE_AUTO);
    refused(&c, ERR_INVALID, "0 paths", "");
    c = config_of(1, -1, STORE_AUTO);
    refused(&c, ERR_INVALID, "-1 bytes", "");
    c = config_of(1, 1 << 20, STORE_AUTO);
    c.depth = 1000;
    refused(&c, ERR_INVALID, "1000 in flight", "");
    assert_int_equal(count_files(folder[0]), 0);
}

static int read_only_child(void)
{
    struct store_config c = config_of(1, 1 << 20, STORE_AUTO);
    struct store *s;
    if (store_open(&c, &s) != ERR_IO)
        return 1;
    return strstr(status_message(), folder[0]) && strstr(status_message(), "Permission denied") ? 0 : 2;
}

static void a_read_only_path_is_named(void **state)
{
    (void)state;
    assert_int_equal(chmod(folder[0], 0555), 0);
    int r = in_child(read_only_child, 1);
    chmod(folder[0], 0777);
    if (r == 77)
        skip();
    assert_int_equal(r, 0);
}

static void too_little_space_is_said_in_bytes(void **state)
{
    (void)state;
    struct store_config c = config_of(1, 1LL << 50, STORE_AUTO);
    refused(&c, ERR_NOFIT, folder[0], "1125899906846720 bytes"); /* 1 PiB plus the header */
    assert_non_null(strstr(status_message(), "are free"));
    assert_int_equal(count_files(folder[0]), 0);
}

static void a_disk_that_fills_up_meanwhile(void **state)
{
    (void)state;
    struct store_config c = config_of(2, 8 << 20, STORE_AUTO);
    static const int denied[] = {ENOSPC, EDQUOT}; /* errors returned although statvfs reports free space */
    for (int i = 0; i < 2; i++) {
        sys_inject_clear();
        sys_inject(SYS_FALLOCATE, 2, denied[i]);
        refused(&c, ERR_NOFIT, folder[1], " bytes) are needed, and a quota or the file system's reserve");
        assert_null(strstr(status_message(), "are free"));
    }
    assert_int_equal(count_files(folder[0]) + count_files(folder[1]), 0);
}

static void without_fallocate_zeros_are_written(void **state)
{
    (void)state;
    struct store_config c = config_of(1, (3 << 20) + 5, STORE_AUTO);
    sys_inject(SYS_FALLOCATE, 1, EOPNOTSUPP);
    assert_int_equal(works(&c, NULL), 0);
    assert_true(sys_count(SYS_PWRITE) >= 4);
}

static void the_file_systems_in_memory(void **state)
{
    (void)state;
    char path[] = "/dev/shm/ltrain-test-XXXXXX";
    if (!mkdtemp(path))
        skip();
    struct store_config c = config_of(1, 1 << 20, STORE_AUTO);
    c.paths[0] = path;
    int r = works(&c, NULL);         /* kernels since 6.6 allow O_DIRECT on this file system */
    sys_inject(SYS_OPEN, 3, EINVAL); /* the third open: the first two examine the file system */
    int without = works(&c, "no O_DIRECT");
    c.way = STORE_THREADS;
    sys_inject(SYS_OPEN, 3, EINVAL); /* the third open: the first two examine the file system */
    int threads = works(&c, "threads, no O_DIRECT");
    rmdir(path);
    assert_int_equal(r, 0);
    assert_int_equal(without, 0);
    assert_int_equal(threads, 0);
}

/* Some file systems allow opening with O_DIRECT, but refuse the transfers or require page alignment. */
static void direct_transfers_are_tried_out(void **state)
{
    (void)state;
    struct store_config c = config_of(1, 1 << 20, STORE_AUTO);
    sys_inject(SYS_PWRITE, 1, EINVAL);
    assert_int_equal(works(&c, ", O_DIRECT"), 0);
    sys_inject(SYS_PWRITE, 1, EIO);
    refused(&c, ERR_IO, folder[0], "Input/output error");
    assert_int_equal(count_files(folder[0]), 0);
}

/* Needs root; the mount ends with the process. */
static int ramfs_child(void)
{
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", folder[0], "ramfs", 0, NULL) != 0)
        return 77;
    struct store_config c = config_of(1, 1 << 20, STORE_AUTO);
    return works(&c, "1.0 MiB preallocated");
}

static void a_file_system_without_a_size_has_room(void **state)
{
    (void)state;
    int r = in_child(ramfs_child, 0);
    if (r == 77)
        skip();
    assert_int_equal(r, 0);
}

/* On btrfs each allocated block would be used only once if the store did not prevent it. Needs root, mkfs.btrfs and loop devices;
 * the mount ends with the process. */
static int btrfs_child(void)
{
    static char block[1 << 20] __attribute__((aligned(4096)));
    char command[512];
    int64_t room;
    struct store *s;
    snprintf(command, sizeof command,
             "exec >/dev/null 2>&1; truncate -s 256M %s/image && mkfs.btrfs -q %s/image && mount -o loop %s/image %s", folder[1],
             folder[1], folder[1], folder[0]);
    int mounted = unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 && system(command) == 0;
    snprintf(command, sizeof command, "%s/image", folder[1]);
    unlink(command);
    if (!mounted || sys_statvfs_free(folder[0], &room) != 0)
        return 77;
    struct store_config c = config_of(1, room * 9 / 10 / (int64_t)sizeof block * (int64_t)sizeof block, STORE_THREADS);
    if (store_open(&c, &s) != OK)
        return 1;
    for (int turn = 0; turn < 3; turn++)
        for (int64_t at = 0; at < c.bytes; at += (int64_t)sizeof block) {
            fill(block, 4096, (uint64_t)(at + turn));
            if (store_write(s, at, block, sizeof block) != OK) {
                fprintf(stderr, "turn %d: %s\n", turn, status_message());
                return 2;
            }
        }
    store_close(s);
    return 0;
}

static void on_btrfs_blocks_are_written_again(void **state)
{
    (void)state;
    int r = in_child(btrfs_child, 0);
    if (r == 77)
        skip();
    assert_int_equal(r, 0);
}

/* Skips the test if io_uring is denied or not built in: an injected denial could not be told from the real one. */
static void needs_io_uring(void)
{
    struct store_config c = config_of(1, 1 << 20, STORE_URING);
    struct store *s;
    if (store_open(&c, &s) != OK)
        skip();
    store_close(s);
    sys_inject_clear();
}

static void denied_io_uring_falls_back(void **state)
{
    (void)state;
    struct store_config c = config_of(3, 1 << 20, STORE_AUTO);
    needs_io_uring();
    for (int nth = 1; nth <= 2; nth++) {
        sys_inject(SYS_URING_SETUP, nth, EPERM);
        assert_int_equal(works(&c, "threads (no io_uring: Operation not permitted; "), 0);
        sys_inject_clear();
        sys_inject(SYS_URING_ENTER, nth, EACCES);
        assert_int_equal(works(&c, "threads (no io_uring: Permission denied; "), 0);
        sys_inject_clear();
    }
    /* the first read and the first write of each of three files, on two rings: each file system is tested */
    for (int nth = 1; nth <= 12; nth++) {
        sys_inject(SYS_URING_FIRST, nth, nth % 2 ? EINVAL : EOPNOTSUPP); /* Linux 5.1 to 5.5 returns EINVAL, vboxsf EOPNOTSUPP */
        assert_int_equal(works(&c, "threads (no io_uring: Operation not supported; "), 0);
        assert_true(sys_count(SYS_URING_FIRST) >= nth);
        sys_inject_clear();
    }
    c.way = STORE_URING;
    sys_inject(SYS_URING_SETUP, 1, EPERM);
    refused(&c, ERR_IO, "io_uring is not available", "Operation not permitted");
    assert_int_equal(count_files(folder[0]), 0);
}

static int without_call(unsigned call, int error)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), /* loads the system call's number */
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {4, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        return 77;
    struct store_config c = config_of(1, 1 << 20, STORE_AUTO);
    return works(&c, "no io_uring");
}

/* Denies io_uring_setup as Docker's default profile does. */
static int no_setup_child(void)
{
    return without_call(SYS_io_uring_setup, EPERM);
}

/* Allows creating io_uring rings, but denies entering them. */
static int no_enter_child(void)
{
    return without_call(SYS_io_uring_enter, EPERM);
}

static int unknown_enter_child(void)
{
    return without_call(SYS_io_uring_enter, ENOSYS);
}

static void seccomp_falls_back(void **state)
{
    (void)state;
    int (*const children[])(void) = {no_setup_child, no_enter_child, unknown_enter_child};
    for (size_t i = 0; i < sizeof children / sizeof *children; i++) {
        int r = in_child(children[i], 0);
        if (r == 77)
            skip();
        assert_int_equal(r, 0);
    }
}

static int low_memlock_child(void)
{
    struct rlimit limit = {64 << 10, 64 << 10};
    struct arena *a;
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0)
        return 77;
    if (arena_create("host arena", 1 << 20, ARENA_PINNED, &a) != OK)
        return 10;
    struct store_config c = config_of(1, 1 << 20, STORE_AUTO);
    c.pinned = arena_base(a);
    c.pinned_bytes = arena_bytes(a);
    struct store *s;
    if (store_open(&c, &s) != OK)
        return 11;
    int uring = strstr(store_describe(s), "io_uring,") != NULL;
    int said = !uring || strstr(store_describe(s), "no fixed buffers: memlock limit is 64 KiB (ulimit -l)");
    int moved = store_write(s, 0, c.pinned, 500000) == OK && store_read(s, 0, c.pinned, 500000) == OK;
    store_close(s);
    arena_destroy(a);
    return said && moved ? 0 : 12;
}

static void low_memlock_goes_without_fixed_buffers(void **state)
{
    (void)state;
    int r = in_child(low_memlock_child, 1);
    if (r == 77)
        skip();
    assert_int_equal(r, 0);
}

static void one_direction_without_fixed_buffers_is_said(void **state)
{
    (void)state;
    static char pinned[1 << 16] __attribute__((aligned(4096)));
    struct store_config c = config_of(1, 1 << 20, STORE_AUTO);
    c.pinned = pinned;
    c.pinned_bytes = sizeof pinned;
    needs_io_uring();
    for (int nth = 1; nth <= 2; nth++) {
        sys_inject_clear();
        sys_inject(SYS_URING_BUFFERS, nth, ENOMEM);
        assert_int_equal(works(&c, "fixed buffers in one direction: Cannot allocate memory"), 0);
    }
}

/* Starts a child that opens a store, tells this process so, and waits to be killed. Returns its pid. */
static pid_t living_run(int rank, int *tell)
{
    int pipes[2];
    char c;
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        struct store_config config = config_of(1, 5 << 20, STORE_THREADS);
        struct store *s;
        config.rank = rank;
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* so that it does not outlive a failed test */
        c = store_open(&config, &s) == OK;
        if (write(pipes[1], &c, 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(pipes[0], &c, 1), 1);
    assert_int_equal(c, 1);
    close(pipes[0]);
    close(pipes[1]);
    *tell = 1;
    return child;
}

static void dead_files_go_and_living_ones_stay(void **state)
{
    (void)state;
    char name[256], alien[128];
    int ready, status;
    struct stat st;
    pid_t child = living_run(7, &ready);
    store_file_name(folder[0], 7, child, name);
    struct store_config c = config_of(1, 1 << 20, STORE_AUTO);

    /* This file has a name like a store's, but is not a store: it has no magic number. */
    snprintf(alien, sizeof alien, "%s/ltrain-1-1-0123abcd.store", folder[0]);
    int fd = open(alien, O_WRONLY | O_CREAT, 0600);
    assert_int_equal(write(fd, "precious data that looks like nothing of ours", 45), 45);
    close(fd);

    assert_int_equal(works(&c, NULL), 0);
    assert_int_equal(stat(name, &st), 0); /* its process is alive */
    assert_int_equal(store_dead_bytes(folder[0]), 0);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(store_dead_bytes(folder[0]), st.st_size);
    assert_int_equal(stat(name, &st), 0); /* its process is dead, and the file is still there */
    assert_int_equal(works(&c, "removed 1 file of dead runs (5.0 MiB)"), 0);
    assert_int_equal(stat(name, &st), -1);
    assert_int_equal(stat(alien, &st), 0);
    assert_int_equal(unlink(alien), 0);
}

/* Opens two stores in one process, as processes of two containers that share everything would: neither takes the other's process
 * for dead. */
static void stores_side_by_side(void **state)
{
    (void)state;
    struct store_config c = config_of(1, 1 << 20, STORE_AUTO), d = c;
    struct store *s, *t, *u;
    d.rank = 1;
    assert_int_equal(store_open(&c, &s), OK);
    assert_int_equal(store_open(&d, &t), OK);
    assert_int_equal(count_files(folder[0]), 2);
    assert_null(strstr(store_describe(t), "dead"));
    assert_int_equal(store_open(&c, &u), OK);
    assert_int_equal(count_files(folder[0]), 3);
    store_close(s);
    assert_int_equal(count_files(folder[0]), 2);
    store_close(t);
    store_close(u);
    assert_int_equal(count_files(folder[0]), 0);
}

static void the_description_reads_well(void **state)
{
    (void)state;
    struct store_config c = config_of(2, 3 << 20, STORE_THREADS);
    struct store *s;
    char want[256];
    assert_int_equal(store_open(&c, &s), OK);
    snprintf(want, sizeof want, "nvme %s + %s: 3.0 MiB preallocated, threads, ", folder[0], folder[1]);
    assert_memory_equal(store_describe(s), want, strlen(want));
    store_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_path_is_named),
        cmocka_unit_test(a_read_only_path_is_named),
        cmocka_unit_test(too_little_space_is_said_in_bytes),
        cmocka_unit_test_setup_teardown(a_disk_that_fills_up_meanwhile, clear_faults, clear_faults),
        cmocka_unit_test_setup_teardown(without_fallocate_zeros_are_written, clear_faults, clear_faults),
        cmocka_unit_test_setup_teardown(the_file_systems_in_memory, clear_faults, clear_faults),
        cmocka_unit_test_setup_teardown(direct_transfers_are_tried_out, clear_faults, clear_faults),
        cmocka_unit_test_setup_teardown(denied_io_uring_falls_back, clear_faults, clear_faults),
        cmocka_unit_test(a_file_system_without_a_size_has_room),
        cmocka_unit_test(on_btrfs_blocks_are_written_again),
        cmocka_unit_test(seccomp_falls_back),
        cmocka_unit_test(low_memlock_goes_without_fixed_buffers),
        cmocka_unit_test_setup_teardown(one_direction_without_fixed_buffers_is_said, clear_faults, clear_faults),
        cmocka_unit_test(dead_files_go_and_living_ones_stay),
        cmocka_unit_test(stores_side_by_side),
        cmocka_unit_test(the_description_reads_well),
    };
    return cmocka_run_group_tests(tests, make_folders, remove_folders);
}
