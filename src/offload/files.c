/* The files of the extent store.
 *
 * A file is alive as long as somebody holds its flock, which the kernel drops when a process dies. The magic is written after the
 * lock is taken, so a file with magic and without a lock belongs to a dead run. */
#include "offload/files.h"

#include "base/num.h"
#include "base/sys.h"
#include "base/units.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "ltrain extent store 1\n"
#define ZEROS (1 << 20)
#define ATTEMPTS 8

static int is_store_name(const char *name)
{
    int rank, pid, end = 0;
    return sscanf(name, "ltrain-%d-%d.store%n", &rank, &pid, &end) == 2 && end > 0 && name[end] == 0;
}

enum dead_files { DEAD_COUNT, DEAD_REMOVE };

/* Counts the file if it is ours and its run is dead, and removes it if asked. What cannot be examined is left alone. */
static void visit_if_dead(const char *name, enum dead_files what, struct files *f)
{
    char magic[sizeof MAGIC] = "";
    struct stat opened, named;
    int fd = sys_open(name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
    if (fd < 0)
        return;
    if (fstat(fd, &opened) == 0 && S_ISREG(opened.st_mode) && sys_pread(fd, magic, sizeof MAGIC - 1, 0) == sizeof MAGIC - 1 &&
        strcmp(magic, MAGIC) == 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
        /* another rank may have removed it since, and a new run may have reused the name */
        stat(name, &named) == 0 && named.st_ino == opened.st_ino && named.st_dev == opened.st_dev &&
        (what == DEAD_COUNT || sys_unlink(name) == 0)) {
        f->n_dead++;
        f->dead_bytes += opened.st_size;
    }
    sys_close(fd);
}

static enum status visit_dead(const char *path, enum dead_files what, struct files *f)
{
    char name[PATH_MAX];
    DIR *d = opendir(path);
    if (!d)
        return status_fail(ERR_IO, "nvme path %s: %s: create the directory or name another (--nvme-path)", path, strerror(errno));
    for (struct dirent *e; (e = readdir(d));)
        if (is_store_name(e->d_name) && snprintf(name, sizeof name, "%s/%s", path, e->d_name) < (int)sizeof name)
            visit_if_dead(name, what, f);
    closedir(d);
    return OK;
}

int64_t store_dead_bytes(const char *path)
{
    struct files f = {.n = 0};
    return visit_dead(path, DEAD_COUNT, &f) == OK ? f.dead_bytes : 0;
}

static enum status no_space(const char *path, int64_t needed, int64_t free_bytes)
{
    char a[32], b[32];
    return status_fail(ERR_NOFIT,
                       "nvme path %s: %s (%lld bytes) are needed and %s (%lld bytes) are free: free some, name another directory "
                       "(--nvme-path) or lower --nvme-max",
                       path, units_format_bytes(needed, a), (long long)needed, units_format_bytes(free_bytes, b),
                       (long long)free_bytes);
}

static enum status check_space(const char *path, int64_t needed)
{
    int64_t free_bytes;
    if (sys_statvfs_free(path, &free_bytes) != 0)
        return status_fail(ERR_IO, "nvme path %s: cannot find out its free space: %s", path, strerror(errno));
    return needed <= free_bytes ? OK : no_space(path, needed, free_bytes);
}

static enum status create(const char *path, const char *name, struct files *f)
{
    int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, fd = sys_open(name, flags | O_DIRECT, 0600);
    if (fd < 0 && errno == EINVAL) {
        unlink(name); /* some file systems refuse O_DIRECT only after having created the file */
        f->buffered = path;
        fd = sys_open(name, flags, 0600);
    }
    if (fd < 0 && errno == EEXIST)
        return status_fail(ERR_IO, "nvme path %s: %s exists and is in use or not ours: remove it if no ltrain is running", path,
                           name);
    if (fd < 0)
        return status_fail(ERR_IO, "nvme path %s: cannot create %s: %s: make it writable or name another (--nvme-path)", path,
                           name, strerror(errno));
    f->fds[f->n++] = fd;
    /* Waits only for a run that is just looking whether the file is dead. Where there are no locks (ENOLCK, ENOSYS), nobody can
     * take one to remove the file either. */
    while (flock(fd, LOCK_EX) != 0 && errno == EINTR)
        ;
    return OK;
}

/* All of it or an errno. A short write is repeated whole, so that O_DIRECT stays aligned. */
static int write_whole(int fd, const char *memory, size_t bytes, off_t at)
{
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        ssize_t r = sys_pwrite(fd, memory, bytes, at);
        if (r == (ssize_t)bytes)
            return 0;
        if (r < 0 && errno != EINTR && errno != EAGAIN)
            return errno;
    }
    return EIO;
}

/* The first transfer also shows what O_DIRECT asks of memory here: sectors, pages, or the impossible. */
static enum status write_header(const char *path, const char *name, int fd, int rank, struct files *f)
{
    char *memory = sys_mmap(2 * FILES_HEADER, 0);
    if (!memory)
        return status_fail(ERR_NOMEM, "no memory for the header of %s", name);
    static const int aligns[] = {512, 4096, 1};
    int error = EINVAL;
    for (int i = 0; i < 3 && error == EINVAL; i++) {
        int align = aligns[i];
        if (align == 1) {
            int flags = fcntl(fd, F_GETFL);
            if (!(flags & O_DIRECT) || fcntl(fd, F_SETFL, flags & ~O_DIRECT) != 0)
                break;
            f->buffered = path;
        }
        char *at = memory + align % FILES_HEADER;
        memset(memory, 0, 2 * FILES_HEADER);
        snprintf(at, FILES_HEADER, MAGIC "rank %d\npid %d\n", rank, (int)getpid());
        error = write_whole(fd, at, FILES_HEADER, 0);
        if (error == 0 && (fcntl(fd, F_GETFL) & O_DIRECT) && align > f->memory_align)
            f->memory_align = align;
    }
    munmap(memory, 2 * FILES_HEADER);
    if (error)
        return status_fail(ERR_IO, "nvme path %s: cannot write %s: %s: check the drive or name another directory (--nvme-path)",
                           path, name, strerror(error));
    return OK;
}

/* Zeros where the file system cannot reserve blocks, so that no write of a later step meets a full disk. */
static int write_zeros(int fd, int64_t bytes)
{
    char *zeros = sys_mmap(ZEROS, 0);
    int error = zeros ? 0 : ENOMEM;
    for (int64_t at = FILES_HEADER; at < bytes && !error; at += ZEROS)
        error = write_whole(fd, zeros, (size_t)min_i64(ZEROS, bytes - at), at);
    if (zeros)
        munmap(zeros, ZEROS);
    return error;
}

static enum status preallocate(const char *path, const char *name, int fd, int64_t bytes)
{
    int error = EINTR;
    for (int attempt = 0; attempt < ATTEMPTS && error == EINTR; attempt++)
        error = sys_fallocate(fd, 0, 0, bytes) == 0 ? 0 : errno;
    if (error == EOPNOTSUPP || error == ENOSYS)
        error = write_zeros(fd, bytes);
    int64_t free_bytes = 0;
    if ((error == ENOSPC || error == EDQUOT) && sys_statvfs_free(path, &free_bytes) == 0)
        return no_space(path, bytes, free_bytes);
    if (error)
        return status_fail(ERR_IO, "nvme path %s: cannot allocate %lld bytes for %s: %s", path, (long long)bytes, name,
                           strerror(error));
    return OK;
}

/* Bytes of file i: its blocks, the last of all cut to what is used. */
static int64_t file_bytes(const struct store_config *config, int64_t block, int i)
{
    int64_t used = round_up(config->bytes, STORE_ALIGN), blocks = ceil_div(used, block), n = config->n_paths;
    int64_t mine = blocks / n + (i < blocks % n), unused = blocks * block - used;
    return FILES_HEADER + mine * block - (blocks > 0 && (blocks - 1) % n == i ? unused : 0);
}

static enum status create_one(const struct store_config *config, int64_t block, struct files *f)
{
    int i = f->n;
    const char *path = config->paths[i];
    char *name = f->names[i];
    int64_t bytes = file_bytes(config, block, i);
    if (snprintf(name, PATH_MAX, "%s/ltrain-%d-%d.store", path, config->rank, (int)getpid()) >= PATH_MAX)
        return status_fail(ERR_INVALID, "nvme path %.80s...: the name is too long", path);
    TRY(check_space(path, bytes));
    TRY(create(path, name, f));
    TRY(write_header(path, name, f->fds[i], config->rank, f));
    return preallocate(path, name, f->fds[i], bytes);
}

enum status files_create(const struct store_config *config, int64_t block, struct files *f)
{
    enum status st;
    f->memory_align = 1;
    for (int i = 0; i < config->n_paths; i++)
        TRY(visit_dead(config->paths[i], DEAD_REMOVE, f));
    for (int i = 0; i < config->n_paths; i++)
        TRY_GOTO(create_one(config, block, f), remove);
    return OK;
remove:
    files_remove(f);
    return st;
}

/* A file that cannot be removed is recognised as dead by the next run. */
void files_remove(struct files *f)
{
    for (int i = 0; i < f->n; i++) {
        sys_unlink(f->names[i]);
        flock(f->fds[i], LOCK_UN); /* now, even if a ring being taken apart still holds the file */
        sys_close(f->fds[i]);
    }
    f->n = 0;
}
