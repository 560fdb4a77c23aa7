/* The files of the extent store.
 *
 * A file is alive while somebody holds its flock, which the kernel drops when a process dies. The magic is written after the lock
 * is taken, so a file with magic and without a lock belongs to a dead run. Its name has a hash of the process (base/process.h)
 * beside the pid: processes in two containers, or on two hosts, may have the same pid and path. */
#include "offload/files.h"

#include "base/disk.h"
#include "base/mix.h"
#include "base/num.h"
#include "base/process.h"
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
#define NAMES 100 /* names tried before a path is given up */

static int is_store_name(const char *name)
{
    int rank, pid, end = 0;
    unsigned hash;
    return sscanf(name, "ltrain-%d-%d-%8x.store%n", &rank, &pid, &hash, &end) == 3 && end > 0 && name[end] == 0;
}

enum dead_files { DEAD_COUNT, DEAD_REMOVE };

/* Tells whether a lock held by another host's process would be seen here. Hosts may share a path while each keeps its locks to
 * itself; then only files of this host are judged. */
static int locks_reach(const char *header, int shared)
{
    struct process self;
    char host[300], boot[64];
    process_self(&self);
    snprintf(host, sizeof host, "\nhost %s\n", self.host);
    snprintf(boot, sizeof boot, "\nboot %s\n", self.boot);
    return !shared || strstr(header, host) || strstr(header, boot);
}

/* Counts the file if it is a store's and its run is dead, and removes it if asked. A file that cannot be examined is left alone. */
static void visit_if_dead(const char *name, enum dead_files what, int shared, struct files *f)
{
    char header[512] = "";
    struct stat opened, named;
    int fd = sys_open(name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
    if (fd < 0)
        return;
    if (sys_fstat(fd, &opened) == 0 && S_ISREG(opened.st_mode) && sys_pread(fd, header, sizeof header - 1, 0) > 0 &&
        strncmp(header, MAGIC, sizeof MAGIC - 1) == 0 && locks_reach(header, shared) && sys_flock(fd, LOCK_EX | LOCK_NB) == 0 &&
        /* another rank may have removed it since, and a new run may have reused the name */
        sys_stat(name, &named) == 0 && named.st_ino == opened.st_ino && named.st_dev == opened.st_dev &&
        (what == DEAD_COUNT || sys_unlink(name) == 0)) {
        f->n_dead++;
        f->dead_bytes += opened.st_size;
    }
    sys_close(fd);
}

static enum status visit_dead(const char *path, enum dead_files what, struct files *f)
{
    char name[PATH_MAX];
    struct disk disk;
    DIR *d = sys_opendir(path);
    if (!d)
        return status_fail(ERR_IO, "nvme path %s: %s: create the directory or name another (--nvme-path)", path, strerror(errno));
    int shared = disk_look(path, &disk) != 0 || disk.shared;
    for (struct dirent *e; (e = sys_readdir(d));)
        if (is_store_name(e->d_name) && snprintf(name, sizeof name, "%s/%s", path, e->d_name) < (int)sizeof name)
            visit_if_dead(name, what, shared, f);
    closedir(d);
    return OK;
}

int64_t store_dead_bytes(const char *path)
{
    struct files f = {.n = 0};
    return visit_dead(path, DEAD_COUNT, &f) == OK ? f.dead_bytes : 0;
}

static enum status no_space(const char *path, int64_t needed, const struct disk *disk)
{
    char a[32], room[64];
    return status_fail(ERR_NOFIT,
                       "nvme path %s: %s (%lld bytes) are needed and %s (%lld bytes): free some, name another directory "
                       "(--nvme-path) or lower --nvme-max",
                       path, units_format_bytes(needed, a), (long long)needed, disk_say_room(disk, room),
                       (long long)disk_room(disk));
}

/* Refuses a path that has room, but not for this process (a quota or a reserve). */
static enum status not_allowed(const char *path, int64_t needed)
{
    char a[32];
    return status_fail(ERR_NOFIT,
                       "nvme path %s: %s (%lld bytes) are needed, and a quota or the file system's reserve does not allow it: "
                       "free some, ask for more, name another directory (--nvme-path) or lower --nvme-max",
                       path, units_format_bytes(needed, a), (long long)needed);
}

static enum status check_space(const char *path, int64_t needed)
{
    struct disk disk;
    if (disk_look(path, &disk) != 0)
        return status_fail(ERR_IO, "nvme path %s: cannot find out its free space: %s", path, strerror(errno));
    return needed <= disk_room(&disk) ? OK : no_space(path, needed, &disk);
}

/* Makes a name for file i of a rank that no other process uses. */
static enum status make_name(const char *path, int rank, int i, uint64_t attempt, char *name)
{
    struct process self;
    process_self(&self);
    uint32_t hash = (uint32_t)mix(mix(process_hash(&self), (uint64_t)i), attempt);
    if (snprintf(name, PATH_MAX, "%s/ltrain-%d-%d-%08x.store", path, rank, (int)self.pid, hash) >= PATH_MAX)
        return status_fail(ERR_INVALID, "nvme path %.80s...: the name is too long", path);
    return OK;
}

static enum status create(const char *path, int rank, char *name, struct files *f)
{
    int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, fd = -1;
    for (uint64_t attempt = 0; attempt < NAMES && fd < 0; attempt++) {
        TRY(make_name(path, rank, f->n, attempt, name));
        fd = sys_open(name, flags | O_DIRECT, 0600);
        if (fd < 0 && errno == EINVAL) {
            sys_unlink(name); /* some file systems refuse O_DIRECT only after creating the file */
            f->buffered = path;
            fd = sys_open(name, flags, 0600);
        }
        if (fd < 0 && errno != EEXIST)
            break;
    }
    if (fd < 0)
        return status_fail(ERR_IO, "nvme path %s: cannot create %s: %s: make it writable or name another (--nvme-path)", path,
                           name, strerror(errno));
    f->fds[f->n++] = fd;
    if (disk_copies_on_write(fd)) /* without this call, preallocated blocks would serve for the first write only */
        sys_no_cow(fd);           /* if this fails, a full drive is reported later */
    /* Waits for the lock, which can be held only by another run that is just checking whether this file is dead. On file systems
     * without locks (ENOLCK, ENOSYS) no run can take the lock that removing the file needs. */
    int locked;
    while ((locked = sys_flock(fd, LOCK_EX)) != 0 && errno == EINTR)
        ;
    if (locked != 0 && errno != ENOLCK && errno != ENOSYS && errno != EOPNOTSUPP)
        return status_fail(ERR_IO, "nvme path %s: cannot lock %s: %s: check the drive or name another directory (--nvme-path)",
                           path, name, strerror(errno));
    return OK;
}

/* Writes all bytes; returns 0 or an errno. A short write is repeated whole, so that O_DIRECT stays aligned. */
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

/* Writes the header. Finds by this first transfer which alignment in memory O_DIRECT asks for here: 512 bytes, 4096, or one that
 * cannot be met, so that the file goes without O_DIRECT. */
static enum status write_header(const char *path, const char *name, int fd, int rank, struct files *f)
{
    struct process self;
    char *memory = sys_mmap(2 * FILES_HEADER, 0);
    if (!memory)
        return status_fail(ERR_NOMEM, "no memory for the header of %s", name);
    process_self(&self);
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
        snprintf(at, FILES_HEADER, MAGIC "rank %d\npid %d\nhost %s\nboot %s\n", rank, (int)self.pid, self.host, self.boot);
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

/* Writes zeros if the file system cannot reserve blocks, so that no write of a later step meets a full disk. */
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
    struct disk disk;
    if (error == ENOSPC && disk_look(path, &disk) == 0 && disk_room(&disk) < bytes)
        return no_space(path, bytes, &disk);
    if (error == ENOSPC || error == EDQUOT)
        return not_allowed(path, bytes);
    if (error)
        return status_fail(ERR_IO, "nvme path %s: cannot allocate %lld bytes for %s: %s", path, (long long)bytes, name,
                           strerror(error));
    return OK;
}

/* Returns the bytes of file i: its blocks, the last block of all cut to what is used. */
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
    TRY(check_space(path, bytes));
    TRY(create(path, config->rank, name, f));
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

/* Removes the files. A file that cannot be removed is recognised as dead by the next run. */
void files_remove(struct files *f)
{
    for (int i = 0; i < f->n; i++) {
        sys_unlink(f->names[i]);
        sys_flock(f->fds[i], LOCK_UN); /* unlocks now, even if an io_uring that is being taken apart still holds the file */
        sys_close(f->fds[i]);
    }
    f->n = 0;
}
