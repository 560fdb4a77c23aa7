/* Linked into ltrain around the C library's calls that change files: appends what each has done to the file LTRAIN_RECORD, in the
 * order in which the calls return. */
#include "e2e/recording.h"

#include "checkpoint/checkpoint.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int __real_open64(const char *path, int flags, ...);
int __real_openat64(int dir_fd, const char *path, int flags, ...);
ssize_t __real_pwrite64(int fd, const void *data, size_t n, off_t at);
int __real_rename(const char *from, const char *to);
int __real_unlink(const char *path);
int __real_unlinkat(int dir_fd, const char *name, int flags);
int __real_rmdir(const char *path);
int __real_mkdir(const char *path, mode_t mode);
int __real_fallocate64(int fd, int mode, off_t at, off_t n);
int __real_ftruncate64(int fd, off_t bytes);
int __real_truncate64(const char *path, off_t bytes);
int __real_fclose(FILE *f);
enum status __real_checkpoint_save(struct session *s, const char *run, const struct checkpoint_info *info,
                                   const struct checkpoint_texts *texts, int keep);
int __wrap_open64(const char *path, int flags, ...);
int __wrap_openat64(int dir_fd, const char *path, int flags, ...);
ssize_t __wrap_pwrite64(int fd, const void *data, size_t n, off_t at);
int __wrap_fsync(int fd);
int __wrap_rename(const char *from, const char *to);
int __wrap_unlink(const char *path);
int __wrap_unlinkat(int dir_fd, const char *name, int flags);
int __wrap_rmdir(const char *path);
int __wrap_mkdir(const char *path, mode_t mode);
int __wrap_fallocate64(int fd, int mode, off_t at, off_t n);
int __wrap_ftruncate64(int fd, off_t bytes);
int __wrap_truncate64(const char *path, off_t bytes);
int __wrap_fclose(FILE *f);
enum status __wrap_checkpoint_save(struct session *s, const char *run, const struct checkpoint_info *info,
                                   const struct checkpoint_texts *texts, int keep);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Appends a record in one write, which other processes' writes do not cut in two. */
static void put(struct recorded_event *e, const void *data)
{
    const char *path = getenv("LTRAIN_RECORD");
    const size_t n = e->kind == RECORDED_WRITE ? (size_t)e->bytes : 0;
    char *all = path ? malloc(sizeof *e + n) : NULL;
    if (!all)
        return;
    e->thread = (uint32_t)syscall(SYS_gettid);
    memcpy(all, e, sizeof *e);
    if (n)
        memcpy(all + sizeof *e, data, n);
    pthread_mutex_lock(&lock);
    const int fd = __real_open64(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0 || write(fd, all, sizeof *e + n) != (ssize_t)(sizeof *e + n))
        abort();
    close(fd);
    pthread_mutex_unlock(&lock);
    free(all);
}

static uint64_t inode_of(int fd)
{
    struct stat s;
    return fstat(fd, &s) == 0 ? (uint64_t)s.st_ino : 0;
}

/* Finds a path's directory, by its inode, and its last name. */
static uint64_t place(int dir_fd, const char *path, char name[RECORDED_NAME])
{
    char dir[4096];
    struct stat s;
    size_t n = strlen(path);
    snprintf(dir, sizeof dir, "%s", path);
    while (n > 1 && dir[n - 1] == '/')
        dir[--n] = 0;
    char *cut = strrchr(dir, '/');
    recorded_name(name, cut ? cut + 1 : dir);
    if (cut)
        cut[cut == dir] = 0;
    return fstatat(dir_fd, cut ? dir : ".", &s, 0) == 0 ? (uint64_t)s.st_ino : 0;
}

static int open_at(int dir_fd, const char *path, int flags, mode_t mode)
{
    struct recorded_event e = {.kind = RECORDED_FILE};
    const int is_new = flags & O_CREAT && faccessat(dir_fd, path, F_OK, AT_SYMLINK_NOFOLLOW) != 0,
              fd = __real_openat64(dir_fd, path, flags, mode);
    if (fd >= 0 && is_new) {
        e.inode = inode_of(fd);
        e.dir = place(dir_fd, path, e.name);
        put(&e, NULL);
    }
    return fd;
}

int __wrap_open64(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    return open_at(AT_FDCWD, path, flags, mode);
}

int __wrap_openat64(int dir_fd, const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    return open_at(dir_fd, path, flags, mode);
}

ssize_t __wrap_pwrite64(int fd, const void *data, size_t n, off_t at)
{
    const ssize_t r = __real_pwrite64(fd, data, n, at);
    if (r > 0)
        put(&(struct recorded_event){.kind = RECORDED_WRITE, .inode = inode_of(fd), .at = at, .bytes = r}, data);
    return r;
}

static void put_size(int fd)
{
    struct stat s;
    if (fstat(fd, &s) == 0)
        put(&(struct recorded_event){.kind = RECORDED_SIZE, .inode = (uint64_t)s.st_ino, .bytes = s.st_size}, NULL);
}

/* Records the whole content of a stream's file, whose writes the C library makes itself. */
static void put_stream(int fd)
{
    char path[32], data[65536];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const int from = __real_open64(path, O_RDONLY | O_CLOEXEC);
    if (from < 0)
        return;
    put_size(fd);
    off_t at = 0;
    for (ssize_t n; (n = pread(from, data, sizeof data, at)) > 0; at += n)
        put(&(struct recorded_event){.kind = RECORDED_WRITE, .inode = inode_of(fd), .at = at, .bytes = n}, data);
    close(from);
}

enum { STREAMS = 64 };
static char by_stream[STREAMS]; /* by descriptor; 1: a stream writes it */

FILE *__real_fdopen(int fd, const char *mode);
FILE *__wrap_fdopen(int fd, const char *mode);
FILE *__wrap_fdopen(int fd, const char *mode)
{
    if (fd >= 0 && fd < STREAMS)
        by_stream[fd] = mode[0] == 'w';
    return __real_fdopen(fd, mode);
}

int __wrap_fclose(FILE *f)
{
    const int fd = fileno(f);
    if (fd >= 0 && fd < STREAMS && by_stream[fd]) {
        fflush(f);
        put_stream(fd);
        by_stream[fd] = 0;
    }
    return __real_fclose(f);
}

int __wrap_fsync(int fd)
{
    struct recorded_event e = {.kind = RECORDED_SYNC, .inode = inode_of(fd)};
    if (fd >= 0 && fd < STREAMS && by_stream[fd])
        put_stream(fd);
    put(&e, NULL);
    e.kind = RECORDED_SYNCED; /* in the recording alone: no power fails here */
    put(&e, NULL);
    return 0;
}

int __wrap_rename(const char *from, const char *to)
{
    struct recorded_event e = {.kind = RECORDED_RENAME};
    e.dir = place(AT_FDCWD, from, e.name);
    e.to_dir = place(AT_FDCWD, to, e.to);
    const int r = __real_rename(from, to);
    if (r == 0)
        put(&e, NULL);
    return r;
}

static int unlink_at(int dir_fd, const char *path, int flags)
{
    struct recorded_event e = {.kind = RECORDED_UNLINK};
    e.dir = place(dir_fd, path, e.name);
    const int r = __real_unlinkat(dir_fd, path, flags);
    if (r == 0)
        put(&e, NULL);
    return r;
}

int __wrap_unlink(const char *path)
{
    return unlink_at(AT_FDCWD, path, 0);
}

int __wrap_unlinkat(int dir_fd, const char *name, int flags)
{
    return unlink_at(dir_fd, name, flags);
}

int __wrap_rmdir(const char *path)
{
    return unlink_at(AT_FDCWD, path, AT_REMOVEDIR);
}

int __wrap_mkdir(const char *path, mode_t mode)
{
    struct recorded_event e = {.kind = RECORDED_MKDIR};
    struct stat s;
    const int r = __real_mkdir(path, mode);
    if (r == 0 && lstat(path, &s) == 0) {
        e.dir = place(AT_FDCWD, path, e.name);
        e.inode = (uint64_t)s.st_ino;
        put(&e, NULL);
    }
    return r;
}

int __wrap_fallocate64(int fd, int mode, off_t at, off_t n)
{
    const int r = __real_fallocate64(fd, mode, at, n);
    if (r == 0)
        put_size(fd);
    return r;
}

int __wrap_ftruncate64(int fd, off_t bytes)
{
    const int r = __real_ftruncate64(fd, bytes);
    if (r == 0)
        put_size(fd);
    return r;
}

int __wrap_truncate64(const char *path, off_t bytes)
{
    struct stat s;
    const int r = __real_truncate64(path, bytes);
    if (r == 0 && stat(path, &s) == 0)
        put(&(struct recorded_event){.kind = RECORDED_SIZE, .inode = (uint64_t)s.st_ino, .bytes = s.st_size}, NULL);
    return r;
}

enum status __wrap_checkpoint_save(struct session *s, const char *run, const struct checkpoint_info *info,
                                   const struct checkpoint_texts *texts, int keep)
{
    const enum status st = __real_checkpoint_save(s, run, info, texts, keep);
    if (st == OK)
        put(&(struct recorded_event){.kind = RECORDED_SAVED, .bytes = info->step}, NULL);
    return st;
}
