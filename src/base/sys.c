/* Wrapped system calls and their injected faults.
 *
 * Per call one counter and one pending fault: the call numbered `trigger` fails with `error`, once. Counters only grow
 * (sys_inject_clear zeroes them), each call draws its own number, so a fault fires exactly once whichever thread draws it. */
#include "base/sys.h"

#include "base/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct {
    atomic_long calls, trigger;
    atomic_int error;
} state[SYS_CALLS];

static const char *const call_names[SYS_CALLS] = {
    [SYS_OPEN] = "open",
    [SYS_CLOSE] = "close",
    [SYS_PREAD] = "pread",
    [SYS_PWRITE] = "pwrite",
    [SYS_FSYNC] = "fsync",
    [SYS_WRITE_BACK] = "write_back",
    [SYS_RENAME] = "rename",
    [SYS_UNLINK] = "unlink",
    [SYS_MKDIR] = "mkdir",
    [SYS_FALLOCATE] = "fallocate",
    [SYS_NO_COW] = "no_cow",
    [SYS_STATVFS] = "statvfs",
    [SYS_STAT] = "stat",
    [SYS_ACCESS] = "access",
    [SYS_OPENDIR] = "opendir",
    [SYS_READDIR] = "readdir",
    [SYS_RMDIR] = "rmdir",
    [SYS_FLOCK] = "flock",
    [SYS_TRUNCATE] = "truncate",
    [SYS_FTS] = "fts",
    [SYS_GLOB] = "glob",
    [SYS_REALPATH] = "realpath",
    [SYS_QUOTA] = "quota",
    [SYS_MMAP] = "mmap",
    [SYS_MLOCK] = "mlock",
    [SYS_MALLOC] = "malloc",
    [SYS_THREAD] = "thread",
    [SYS_URING_SETUP] = "uring_setup",
    [SYS_URING_ENTER] = "uring_enter",
    [SYS_URING_FIRST] = "uring_first",
    [SYS_URING_BUFFERS] = "uring_buffers",
    [SYS_URING_SUBMIT] = "uring_submit",
    [SYS_URING_CQE] = "uring_cqe",
};

static const struct {
    const char *name;
    int error;
} errors[] = {
    {"SHORT", SYS_SHORT}, {"HANG", SYS_HANG}, {"EACCES", EACCES},         {"EAGAIN", EAGAIN},
    {"EBADF", EBADF},     {"EBUSY", EBUSY},   {"EDQUOT", EDQUOT},         {"EEXIST", EEXIST},
    {"EFAULT", EFAULT},   {"EFBIG", EFBIG},   {"EINTR", EINTR},           {"EINVAL", EINVAL},
    {"EIO", EIO},         {"EMFILE", EMFILE}, {"ENFILE", ENFILE},         {"ENODEV", ENODEV},
    {"ENOENT", ENOENT},   {"ENOMEM", ENOMEM}, {"ENOSPC", ENOSPC},         {"ENOSYS", ENOSYS},
    {"EPERM", EPERM},     {"EROFS", EROFS},   {"EOPNOTSUPP", EOPNOTSUPP},
};

static atomic_int printed[SYS_CALLS]; /* numbers of calls to be printed at exit */
static _Thread_local int by_clock;

void sys_thread_by_clock(void)
{
    by_clock = 1;
}

static void print_counts(void)
{
    for (int c = 0; c < SYS_CALLS; c++)
        if (atomic_load(&printed[c]))
            fprintf(stderr, "LTRAIN_FAULT: %s %ld\n", call_names[c], atomic_load(&state[c].calls));
}

/* Makes the number of calls of a kind be printed at exit (LTRAIN_FAULT with COUNT as error). */
static void count(enum sys_call call)
{
    static atomic_int registered;
    atomic_store(&printed[call], 1);
    if (!atomic_exchange(&registered, 1))
        atexit(print_counts);
}

static void arm(enum sys_call call, long nth, int error)
{
    atomic_store(&state[call].trigger, 0);
    atomic_store(&state[call].error, error);
    atomic_store(&state[call].trigger, atomic_load(&state[call].calls) + nth);
}

static int parse_fault(const char *item)
{
    char call[32], error[32], end;
    long nth;
    if (sscanf(item, "%31[a-z_]:%ld:%31[A-Z]%c", call, &nth, error, &end) != 3 || nth < 1)
        return -1;
    for (int c = 0; c < SYS_CALLS; c++) {
        if (strcmp(call, call_names[c]) != 0)
            continue;
        if (strcmp(error, "COUNT") == 0) {
            count((enum sys_call)c);
            return 0;
        }
        for (size_t e = 0; e < sizeof errors / sizeof *errors; e++)
            if (strcmp(error, errors[e].name) == 0) {
                arm((enum sys_call)c, nth, errors[e].error);
                return 0;
            }
    }
    return -1;
}

/* Reads LTRAIN_FAULT. A fault that cannot be understood is reported: a test must not pass silently because of it. */
static void parse_environment(void)
{
    const char *text = getenv("LTRAIN_FAULT");
    while (text && *text) {
        char item[80];
        size_t len = strcspn(text, ",");
        snprintf(item, sizeof item, "%.*s", (int)len, text);
        if (len >= sizeof item || parse_fault(item) != 0)
            fprintf(stderr, "LTRAIN_FAULT: '%s' is not CALL:N:ERRNO like pwrite:3:ENOSPC; ignored\n", item);
        text += len + (text[len] == ',');
    }
}

static void init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, parse_environment);
}

void sys_inject(enum sys_call call, int nth, int error)
{
    init();
    arm(call, nth, error);
}

void sys_inject_clear(void)
{
    init();
    for (int c = 0; c < SYS_CALLS; c++) {
        atomic_store(&state[c].trigger, 0);
        atomic_store(&state[c].calls, 0);
    }
}

long sys_count(enum sys_call call)
{
    return atomic_load(&state[call].calls);
}

int sys_fault(enum sys_call call)
{
    init();
    if (by_clock)
        return 0;
    long number = atomic_fetch_add(&state[call].calls, 1) + 1;
    return number == atomic_load(&state[call].trigger) ? atomic_load(&state[call].error) : 0;
}

static void hang(void)
{
    for (;;)
        pause();
}

/* Returns 1, with errno set, if the call is to fail. A short transfer is not possible for these calls, and becomes EIO. */
static int fails(enum sys_call call)
{
    int f = sys_fault(call);
    if (f == SYS_HANG)
        hang();
    if (f != 0)
        errno = f == SYS_SHORT ? EIO : f;
    return f != 0;
}

/* Returns the bytes to transfer; 0, with errno set, if the call is to fail. A short transfer is half the bytes, which keeps the
 * sector alignment that O_DIRECT needs. */
static size_t transfer(enum sys_call call, size_t n)
{
    int f = sys_fault(call);
    if (f == 0)
        return n;
    if (f == SYS_HANG)
        hang();
    if (f == SYS_SHORT)
        return n >= 1024 ? n / 2 & ~(size_t)511 : n > 1 ? n / 2 : n;
    errno = f;
    return 0;
}

/* ---- calls to drives, which base/watch.h watches until they return ---- */

static int begin(const char *verb, int fd, const char *path, size_t bytes, off_t at)
{
    return watch_enter(&(struct watch_call){.verb = verb, .fd = fd, .path = path, .bytes = (int64_t)bytes, .at = (int64_t)at});
}

/* Begins to watch a call on a name in an open directory. */
static int begin_at(const char *verb, int dir_fd, const char *name)
{
    char link[32], path[PATH_MAX];
    ssize_t n = 0;
    if (dir_fd >= 0 && name[0] != '/') {
        snprintf(link, sizeof link, "/proc/self/fd/%d", dir_fd); /* a path that is resolved without asking a drive */
        n = readlink(link, path, sizeof path - 1);
    }
    if (n > 0)
        snprintf(path + n, sizeof path - (size_t)n, "/%s", name);
    return begin(verb, -1, n > 0 ? path : name, 0, 0);
}

/* Ends the watch of a call and returns the call's result, with its errno. */
static ssize_t end(int handle, ssize_t result)
{
    int error = errno;
    watch_leave(handle);
    errno = error;
    return result;
}

int sys_open(const char *path, int flags, mode_t mode)
{
    int w = begin("open", -1, path, 0, 0);
    return (int)end(w, fails(SYS_OPEN) ? -1 : open(path, flags, mode));
}

int sys_openat(int dir_fd, const char *path, int flags, mode_t mode)
{
    int w = begin_at("open", dir_fd, path);
    return (int)end(w, fails(SYS_OPEN) ? -1 : openat(dir_fd, path, flags, mode));
}

/* Error numbers beyond the kernel's, for paths that are neither regular file nor directory. */
enum { IS_FIFO = 4096, IS_DEVICE, IS_SOCKET, IS_LINK };

static int kind_error(mode_t mode)
{
    return S_ISREG(mode)    ? 0
           : S_ISDIR(mode)  ? EISDIR
           : S_ISFIFO(mode) ? IS_FIFO
           : S_ISSOCK(mode) ? IS_SOCKET
           : S_ISLNK(mode)  ? IS_LINK
                            : IS_DEVICE;
}

const char *sys_strerror(int error)
{
    return error == IS_FIFO     ? "it is a FIFO, not a regular file"
           : error == IS_DEVICE ? "it is a device, not a regular file"
           : error == IS_SOCKET ? "it is a socket, not a regular file"
           : error == IS_LINK   ? "it is a link, and nothing is written through links here: remove it"
                                : strerror(error);
}

enum status sys_cannot_open(const char *path)
{
    static const int of_the_machine[] = {EIO, ESTALE, ETIMEDOUT, ENOMEM, EMFILE, ENFILE, EINTR, EAGAIN};
    const int error = errno;
    enum status st = ERR_INVALID;
    for (size_t i = 0; i < sizeof of_the_machine / sizeof *of_the_machine; i++)
        if (error == of_the_machine[i])
            st = ERR_IO;
    return status_fail(st, "cannot open %s: %s", path, sys_strerror(error));
}

#define CREATE_TURNS 16 /* most attempts to open a file while others keep replacing it */

int sys_open_file(const char *path, int flags, mode_t mode)
{
    return sys_openat_file(AT_FDCWD, path, flags, mode);
}

int sys_openat_file(int dir_fd, const char *path, int flags, mode_t mode)
{
    struct stat s;
    flags |= O_CLOEXEC | O_NOCTTY | (flags & O_CREAT ? O_NOFOLLOW : 0);
    int fd = sys_openat(dir_fd, path, flags | O_NONBLOCK, mode), failed = errno, error;
    /* a server of NFS or SMB on this host has lent the file to a client and asks it back; a blocking open waits, at most
     * lease-break-time */
    if (fd < 0 && failed == EWOULDBLOCK && sys_fstatat(dir_fd, path, &s, 0) == 0 && S_ISREG(s.st_mode)) {
        fd = sys_openat(dir_fd, path, flags, mode);
        failed = errno;
    }
    if (fd < 0) { /* ENXIO: a FIFO without a reader, a socket, a device that is not there; ELOOP: a link */
        int look = failed == ENXIO || (failed == ELOOP && flags & O_NOFOLLOW);
        errno = look && sys_fstatat(dir_fd, path, &s, AT_SYMLINK_NOFOLLOW) == 0 && kind_error(s.st_mode) ? kind_error(s.st_mode)
                                                                                                         : failed;
        return -1;
    }
    error = sys_fstat(fd, &s) == 0 ? kind_error(s.st_mode) : errno;
    if (error) {
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

int sys_create_file(const char *path)
{
    struct stat s;
    int fd = -1;
    for (int turn = 0; fd < 0 && turn < CREATE_TURNS; turn++) {
        fd = sys_open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST)
            break;
        if (sys_lstat(path, &s) != 0) {
            if (errno == ENOENT) /* the file was just removed or renamed */
                continue;
            break;
        }
        if (!S_ISREG(s.st_mode)) {
            errno = kind_error(s.st_mode);
            break;
        }
        if (sys_unlink(path) != 0 && errno != ENOENT)
            break;
        errno = EEXIST;
    }
    return fd;
}

/* Closes a descriptor. As with the kernel's close, it is closed even if this fails. */
int sys_close(int fd)
{
    int w = begin("close", fd, NULL, 0, 0), r = close(fd);
    return (int)end(w, fails(SYS_CLOSE) ? -1 : r);
}

ssize_t sys_pread(int fd, void *buf, size_t n, off_t at)
{
    int w = begin("read", fd, NULL, n, at);
    size_t m = transfer(SYS_PREAD, n);
    return end(w, m == 0 && n > 0 ? -1 : pread(fd, buf, m, at));
}

ssize_t sys_pwrite(int fd, const void *buf, size_t n, off_t at)
{
    int w = begin("write", fd, NULL, n, at);
    size_t m = transfer(SYS_PWRITE, n);
    return end(w, m == 0 && n > 0 ? -1 : pwrite(fd, buf, m, at));
}

int sys_fsync(int fd)
{
    int w = begin("sync", fd, NULL, 0, 0);
    return (int)end(w, fails(SYS_FSYNC) ? -1 : fsync(fd));
}

int sys_write_back(int fd, off_t at, off_t bytes)
{
    const unsigned all = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    int w = begin("sync", fd, NULL, 0, 0);
    return (int)end(w, fails(SYS_WRITE_BACK) ? -1 : sync_file_range(fd, at, bytes, all));
}

int sys_truncate(const char *path, off_t bytes)
{
    int w = begin("truncate", -1, path, 0, 0);
    return (int)end(w, fails(SYS_TRUNCATE) ? -1 : truncate(path, bytes));
}

int sys_ftruncate(int fd, off_t bytes)
{
    int w = begin("truncate", fd, NULL, 0, 0);
    return (int)end(w, fails(SYS_TRUNCATE) ? -1 : ftruncate(fd, bytes));
}

int sys_flock(int fd, int operation)
{
    int w = begin("lock", fd, NULL, 0, 0);
    return (int)end(w, fails(SYS_FLOCK) ? -1 : flock(fd, operation));
}

int sys_rename(const char *from, const char *to)
{
    int w = begin("rename", -1, from, 0, 0);
    return (int)end(w, fails(SYS_RENAME) ? -1 : rename(from, to));
}

int sys_unlink(const char *path)
{
    int w = begin("remove", -1, path, 0, 0);
    return (int)end(w, fails(SYS_UNLINK) ? -1 : unlink(path));
}

int sys_unlinkat(int dir_fd, const char *name, int flags)
{
    int w = begin_at("remove", dir_fd, name);
    return (int)end(w, fails(SYS_UNLINK) ? -1 : unlinkat(dir_fd, name, flags));
}

int sys_rmdir(const char *path)
{
    int w = begin("remove", -1, path, 0, 0);
    return (int)end(w, fails(SYS_RMDIR) ? -1 : rmdir(path));
}

int sys_mkdir(const char *path, mode_t mode)
{
    int w = begin("make", -1, path, 0, 0);
    return (int)end(w, fails(SYS_MKDIR) ? -1 : mkdir(path, mode));
}

int sys_fallocate(int fd, int mode, off_t offset, off_t len)
{
    int w = begin("allocate", fd, NULL, (size_t)len, offset);
    return (int)end(w, fails(SYS_FALLOCATE) ? -1 : fallocate(fd, mode, offset, len));
}

int sys_no_cow(int fd)
{
    int flags = 0, w = begin("prepare", fd, NULL, 0, 0), failed = fails(SYS_NO_COW) || ioctl(fd, FS_IOC_GETFLAGS, &flags) != 0;
    flags |= FS_NOCOW_FL;
    return (int)end(w, failed || ioctl(fd, FS_IOC_SETFLAGS, &flags) != 0 ? -1 : 0);
}

/* ---- looking at files and directories ---- */

int sys_stat(const char *path, struct stat *out)
{
    int w = begin("look at", -1, path, 0, 0);
    return (int)end(w, fails(SYS_STAT) ? -1 : stat(path, out));
}

int sys_lstat(const char *path, struct stat *out)
{
    int w = begin("look at", -1, path, 0, 0);
    return (int)end(w, fails(SYS_STAT) ? -1 : lstat(path, out));
}

int sys_fstat(int fd, struct stat *out)
{
    int w = begin("look at", fd, NULL, 0, 0);
    return (int)end(w, fails(SYS_STAT) ? -1 : fstat(fd, out));
}

int sys_fstatat(int dir_fd, const char *name, struct stat *out, int flags)
{
    int w = begin_at("look at", dir_fd, name);
    return (int)end(w, fails(SYS_STAT) ? -1 : fstatat(dir_fd, name, out, flags));
}

int sys_access(const char *path, int mode)
{
    int w = begin("look at", -1, path, 0, 0);
    return (int)end(w, fails(SYS_ACCESS) ? -1 : access(path, mode));
}

int sys_is_absent(int error)
{
    return error == ENOENT || error == ENOTDIR;
}

char *sys_realpath(const char *path)
{
    int w = begin("look for", -1, path, 0, 0);
    char *whole = fails(SYS_REALPATH) ? NULL : realpath(path, NULL);
    (void)end(w, 0);
    return whole;
}

DIR *sys_opendir(const char *path)
{
    int w = begin("list", -1, path, 0, 0);
    DIR *d = fails(SYS_OPENDIR) ? NULL : opendir(path);
    (void)end(w, 0);
    return d;
}

struct dirent *sys_readdir(DIR *d)
{
    int w = begin("list", dirfd(d), NULL, 0, 0);
    errno = 0;
    struct dirent *e = fails(SYS_READDIR) ? NULL : readdir(d);
    (void)end(w, 0);
    return e;
}

FTS *sys_fts_open(const char *root, int options)
{
    char *roots[] = {(char *)root, NULL};
    int w = begin("list", -1, root, 0, 0);
    FTS *tree = fails(SYS_FTS) ? NULL : fts_open(roots, options, NULL);
    (void)end(w, 0);
    return tree;
}

FTSENT *sys_fts_read(FTS *tree, const char *root)
{
    int w = begin("list", -1, root, 0, 0);
    errno = 0;
    FTSENT *e = fts_read(tree); /* called even if the call is to fail: fts_close does not free a tree that was never read */
    if (fails(SYS_FTS))
        e = NULL;
    (void)end(w, 0);
    return e;
}

int sys_glob(const char *pattern, int flags, glob_t *out)
{
    int w = begin("look for", -1, pattern, 0, 0);
    return (int)end(w, fails(SYS_GLOB) ? GLOB_ABORTED : glob(pattern, flags, NULL, out));
}

int sys_fstatfs(int fd, struct statfs *out)
{
    int w = begin("ask about", fd, NULL, 0, 0);
    return (int)end(w, fails(SYS_STATVFS) ? -1 : fstatfs(fd, out));
}

int sys_quota(int fd, unsigned command, unsigned id, void *out)
{
#ifdef SYS_quotactl_fd
    int w = begin("ask for the quota of", fd, NULL, 0, 0);
    return (int)end(w, fails(SYS_QUOTA) ? -1 : (int)syscall(SYS_quotactl_fd, fd, command, id, out));
#else
    (void)fd, (void)command, (void)id, (void)out;
    errno = ENOSYS;
    return -1;
#endif
}

/* ---- streams ---- */

static FILE *stream_of(int fd, const char *mode)
{
    FILE *f = fd < 0 ? NULL : fdopen(fd, mode);
    int error = errno;
    if (fd >= 0 && !f)
        close(fd);
    errno = error;
    return f;
}

FILE *sys_read_text(const char *path)
{
    return stream_of(sys_open_file(path, O_RDONLY, 0), "r");
}

FILE *sys_write_text(const char *path)
{
    return stream_of(sys_create_file(path), "w");
}

/* bytes taken as free if a file system has no size: ramfs, tmpfs without a limit, some FUSE */
#define UNSAID_FREE ((int64_t)1 << 50)

int sys_statvfs_free(const char *path, int64_t *free_bytes)
{
    struct statvfs v;
    int w = begin("look at", -1, path, 0, 0);
    if (end(w, fails(SYS_STATVFS) ? -1 : statvfs(path, &v)) != 0)
        return -1;
    *free_bytes = v.f_blocks > 0 ? (int64_t)v.f_bavail * (int64_t)v.f_frsize : UNSAID_FREE;
    return 0;
}

void *sys_mmap(size_t bytes, int flags)
{
    if (fails(SYS_MMAP))
        return NULL;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

int sys_mlock(const void *p, size_t bytes)
{
    return fails(SYS_MLOCK) ? -1 : mlock(p, bytes);
}

#define LARGE ((size_t)4 << 20)
#define PAGE ((uintptr_t)4096)

/* Asks the kernel for large pages for a large table: one page fault then serves for 512 small pages. */
static void *in_large_pages(void *p, size_t bytes)
{
    uintptr_t first = (uintptr_t)p & ~(PAGE - 1), end = ((uintptr_t)p + bytes + PAGE - 1) & ~(PAGE - 1);
    if (p && bytes >= LARGE)
        madvise((void *)first, end - first, MADV_HUGEPAGE);
    return p;
}

void *sys_malloc(size_t bytes)
{
    return fails(SYS_MALLOC) ? NULL : in_large_pages(malloc(bytes), bytes);
}

void *sys_calloc(size_t n, size_t size)
{
    return fails(SYS_MALLOC) ? NULL : in_large_pages(calloc(n, size), n * size);
}

void *sys_realloc(void *p, size_t bytes)
{
    return fails(SYS_MALLOC) ? NULL : in_large_pages(realloc(p, bytes), bytes);
}

int sys_thread(void *thread, void *(*run)(void *), void *arg)
{
    return fails(SYS_THREAD) ? errno : pthread_create(thread, NULL, run, arg);
}
