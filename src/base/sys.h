/* Every system call that can fail goes through this table, so that tests can make the n-th one fail.
 *
 * Fault injection: sys_inject(SYS_PWRITE, 3, ENOSPC) makes the third pwrite from now on return -1 with that errno, once;
 * SYS_SHORT as errno makes it transfer half, SYS_HANG makes it never return. The environment variable
 * LTRAIN_FAULT=pwrite:3:ENOSPC[,...] does the same for whole-program tests; with COUNT as errno nothing fails, and the number of
 * those calls is printed at the end. LTRAIN_SLOW_DRIVE=BYTES makes the nvme tier that slow (offload/io.h). tools/structure.sh lets
 * nobody else make the calls that may wait for a drive. */
#ifndef LTRAIN_BASE_SYS_H
#define LTRAIN_BASE_SYS_H

#include "base/status.h"

#include <dirent.h>
#include <fts.h>
#include <glob.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>

enum sys_call {
    SYS_OPEN,
    SYS_CLOSE,
    SYS_PREAD,
    SYS_PWRITE,
    SYS_FSYNC,
    SYS_WRITE_BACK,
    SYS_RENAME,
    SYS_UNLINK,
    SYS_MKDIR,
    SYS_FALLOCATE,
    SYS_NO_COW,
    SYS_STATVFS, /* fstatfs, too */
    SYS_STAT,    /* stat, lstat, fstat */
    SYS_ACCESS,
    SYS_OPENDIR,
    SYS_READDIR,
    SYS_RMDIR,
    SYS_FLOCK,
    SYS_TRUNCATE,
    SYS_FTS, /* fts_open and fts_read */
    SYS_GLOB,
    SYS_REALPATH,
    SYS_QUOTA,
    SYS_MMAP,
    SYS_MLOCK,
    SYS_MALLOC,
    SYS_THREAD,      /* pthread_create */
    SYS_URING_SETUP, /* io_uring_queue_init_params */
    SYS_URING_ENTER, /* first submission, which shows whether the kernel lets the process in */
    SYS_URING_FIRST, /* results of the first submission */
    SYS_URING_BUFFERS,
    SYS_URING_SUBMIT,
    SYS_URING_CQE, /* a completion's result */
    SYS_CALLS
};

#define SYS_SHORT (-1)
#define SYS_HANG (-2)

void sys_inject(enum sys_call call, int nth, int error);
void sys_inject_clear(void);
/* Returns the number of calls of a kind made so far (tests sweep n from 1 to this). */
long sys_count(enum sys_call call);
/* Counts a call that is made elsewhere (io_uring); returns 0, or the errno with which that call is to pretend failure. */
int sys_fault(enum sys_call call);
/* Exempts this thread's calls from counting and faults, as they depend on the clock and not on the program's order. They are
 * still watched. */
void sys_thread_by_clock(void);

int sys_open(const char *path, int flags, mode_t mode);
/* Opens a regular file, and refuses everything else without waiting for a FIFO's other end. With O_CREAT symbolic links are
 * refused, too, as somebody else may have planted them. Returns -1 with an errno that sys_strerror explains. */
int sys_open_file(const char *path, int flags, mode_t mode);
int sys_openat_file(int dir_fd, const char *path, int flags, mode_t mode);
/* Makes a new regular file to write, replacing a regular file of that name; refuses symbolic links and everything else. Never
 * writes into an existing file, which another user may own. Returns -1 with an errno that sys_strerror explains. */
int sys_create_file(const char *path);
const char *sys_strerror(int error);
/* Records the sentence that `path` cannot be opened, with the reason in errno. Returns ERR_IO if the machine failed (EIO, no
 * memory, no descriptor left), else ERR_INVALID: the path is not what the user thinks. */
enum status sys_cannot_open(const char *path);
int sys_openat(int dir_fd, const char *path, int flags, mode_t mode); /* sys_openat counts as an open */
int sys_close(int fd);
ssize_t sys_pread(int fd, void *buf, size_t n, off_t at);
ssize_t sys_pwrite(int fd, const void *buf, size_t n, off_t at);
/* Opens a regular file as a stream, to read it (sys_open_file) or to write it anew (sys_create_file). */
FILE *sys_read_text(const char *path);
FILE *sys_write_text(const char *path);
int sys_fsync(int fd);
/* Calls sync_file_range: from now on writes, also through a mapping, change the file's times. */
int sys_write_back(int fd, off_t at, off_t bytes);
int sys_truncate(const char *path, off_t bytes);
int sys_ftruncate(int fd, off_t bytes); /* sys_ftruncate counts as a truncate */
int sys_flock(int fd, int operation);
int sys_rename(const char *from, const char *to);
int sys_unlink(const char *path);
int sys_unlinkat(int dir_fd, const char *name, int flags); /* sys_unlinkat counts as an unlink */
int sys_rmdir(const char *path);
int sys_mkdir(const char *path, mode_t mode);
int sys_fallocate(int fd, int mode, off_t offset, off_t len);
/* Turns copy on write off for a file that is still empty (btrfs), so that later writes stay in place. */
int sys_no_cow(int fd);
/* ---- looking at files and directories ---- */
int sys_stat(const char *path, struct stat *out);
int sys_lstat(const char *path, struct stat *out);
int sys_fstat(int fd, struct stat *out);
int sys_fstatat(int dir_fd, const char *name, struct stat *out, int flags);
int sys_access(const char *path, int mode);
/* Tells whether errno says that there is no such file, rather than that it could not be looked at. */
int sys_is_absent(int error);
char *sys_realpath(const char *path); /* to be freed */
DIR *sys_opendir(const char *path);
/* Returns the next entry of a directory; NULL with errno 0 at the end. */
struct dirent *sys_readdir(DIR *d);
/* Opens the tree below one root, which names the calls of sys_fts_read; that returns NULL with errno 0 at the end. */
FTS *sys_fts_open(const char *root, int options);
FTSENT *sys_fts_read(FTS *tree, const char *root);
int sys_glob(const char *pattern, int flags, glob_t *out); /* errno is set for GLOB_ABORTED */
/* Finds the free bytes that any user may write; a PiB if the file system has no size. */
int sys_statvfs_free(const char *path, int64_t *free_bytes);
struct statfs;
int sys_fstatfs(int fd, struct statfs *out);
/* Calls quotactl_fd; ENOSYS if the kernel has no such call. */
int sys_quota(int fd, unsigned command, unsigned id, void *out);

/* ---- memory and threads ---- */
void *sys_mmap(size_t bytes, int flags); /* anonymous, read-write; NULL on failure */
int sys_mlock(const void *p, size_t bytes);
void *sys_malloc(size_t bytes);
void *sys_calloc(size_t n, size_t size);
void *sys_realloc(void *p, size_t bytes);
int sys_thread(void *thread, void *(*run)(void *), void *arg); /* pthread_create; returns errno */

#endif
