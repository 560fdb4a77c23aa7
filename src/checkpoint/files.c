/* Small files, directories and hashes of checkpoints. */
#include "checkpoint/files.h"

#include "base/num.h"
#include "base/progress.h"
#include "base/sys.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

enum status ckpt_path(char path[CKPT_PATH], const char *dir, const char *name, const char *suffix)
{
    if (snprintf(path, CKPT_PATH, "%s/%s%s", dir, name, suffix) >= CKPT_PATH)
        return status_fail(ERR_INVALID, "%.64s...: the path is too long", dir);
    return OK;
}

/* ---- directories ---- */

enum status ckpt_make_dir(const char *path)
{
    if (sys_mkdir(path, 0777) != 0 && errno != EEXIST)
        return status_fail(ERR_IO, "cannot make the directory %s: %s", path, strerror(errno));
    return OK;
}

enum status ckpt_rename(const char *from, const char *to)
{
    if (sys_rename(from, to) != 0)
        return status_fail(ERR_IO, "cannot rename %s to %s: %s", from, to, strerror(errno));
    return OK;
}

void ckpt_remove_dir(const char *path)
{
    char file[CKPT_PATH];
    struct stat s;
    if (sys_lstat(path, &s) == 0 && S_ISLNK(s.st_mode)) { /* a link's target is not ours to remove */
        sys_unlink(path);
        return;
    }
    DIR *d = sys_opendir(path);
    for (struct dirent *e; d && (e = sys_readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
            snprintf(file, CKPT_PATH, "%s/%s", path, e->d_name) < CKPT_PATH)
            strcmp(e->d_name, CKPT_TEMPLATES) == 0 ? ckpt_remove_dir(file) : (void)sys_unlink(file);
    if (d)
        closedir(d);
    sys_rmdir(path);
}

/* ---- files ---- */

enum status ckpt_write_text(const char *path, const char *text)
{
    size_t n = strlen(text), done = 0;
    int fd = sys_create_file(path);
    if (fd < 0)
        return status_fail(ERR_IO, "cannot create %s: %s", path, sys_strerror(errno));
    while (done < n) {
        ssize_t put = sys_pwrite(fd, text + done, n - done, (off_t)done);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0) {
            errno = put < 0 ? errno : EIO; /* no progress */
            break;
        }
        done += (size_t)put;
    }
    int failed = done < n || sys_fsync(fd) != 0 ? errno : 0;
    if (sys_close(fd) != 0 && !failed)
        failed = errno;
    return failed ? status_fail(ERR_IO, "cannot write %s: %s", path, strerror(failed)) : OK;
}

static enum status open_file(const char *path, int *fd)
{
    *fd = sys_open_file(path, O_RDONLY, 0);
    if (*fd >= 0)
        return OK;
    return errno == ENOENT ? status_fail(ERR_CORRUPT, "%s is missing", path)
                           : status_fail(ERR_IO, "cannot open %s: %s", path, sys_strerror(errno));
}

/* Reads up to n bytes; fewer only at the end of the file. */
static enum status read_some(int fd, const char *path, char *buf, size_t n, int64_t at, size_t *got)
{
    *got = 0;
    while (*got < n) {
        ssize_t k = sys_pread(fd, buf + *got, n - *got, (off_t)at + (off_t)*got);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return status_fail(ERR_IO, "cannot read %s: %s", path, strerror(errno));
        if (k == 0)
            break;
        *got += (size_t)k;
    }
    return OK;
}

enum status ckpt_read_text(const char *path, int64_t most, char **text)
{
    int fd;
    int64_t bytes;
    size_t n = 0;
    TRY(ckpt_size(path, &bytes));
    if (bytes > most)
        return status_fail(ERR_CORRUPT, "%s is larger than %lld bytes", path, (long long)most);
    TRY(open_file(path, &fd));
    char *buf = sys_malloc((size_t)bytes + 1);
    enum status st = buf ? read_some(fd, path, buf, (size_t)bytes, 0, &n)
                         : status_fail(ERR_NOMEM, "out of memory: %lld bytes to read %s", (long long)bytes, path);
    sys_close(fd);
    if (st != OK) {
        free(buf);
        return st;
    }
    buf[n] = 0;
    *text = buf;
    return OK;
}

enum status ckpt_look(const char *path, int *there)
{
    struct stat s;
    *there = sys_lstat(path, &s) == 0;
    return *there || sys_is_absent(errno) ? OK : status_fail(ERR_IO, "cannot look at %s: %s", path, strerror(errno));
}

static enum status write_at(int fd, const char *path, const char *data, size_t n, int64_t at)
{
    for (size_t done = 0; done < n;) {
        ssize_t put = sys_pwrite(fd, data + done, n - done, (off_t)at + (off_t)done);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return status_fail(ERR_IO, "cannot write %s: %s", path, put < 0 ? strerror(errno) : "no progress");
        done += (size_t)put;
    }
    return OK;
}

static enum status copy_bytes(int in, const char *from, int out, const char *to)
{
    char *buf = sys_malloc(CKPT_SEGMENT);
    enum status st = buf ? OK : status_fail(ERR_NOMEM, "out of memory: %d bytes to copy %s", CKPT_SEGMENT, from);
    size_t got = CKPT_SEGMENT;
    for (int64_t at = 0; st == OK && got == CKPT_SEGMENT; at += CKPT_SEGMENT) {
        st = read_some(in, from, buf, CKPT_SEGMENT, at, &got);
        if (st == OK)
            st = write_at(out, to, buf, got, at);
    }
    free(buf);
    if (st == OK && sys_fsync(out) != 0)
        st = status_fail(ERR_IO, "cannot write %s: %s", to, strerror(errno));
    return st;
}

enum status ckpt_copy(const char *from, const char *to)
{
    int in = sys_open_file(from, O_RDONLY, 0);
    if (in < 0)
        return sys_cannot_open(from);
    int out = sys_create_file(to);
    enum status st =
        out < 0 ? status_fail(ERR_IO, "cannot create %s: %s", to, sys_strerror(errno)) : copy_bytes(in, from, out, to);
    if (out >= 0 && sys_close(out) != 0 && st == OK)
        st = status_fail(ERR_IO, "cannot write %s: %s", to, strerror(errno));
    sys_close(in);
    return st;
}

static enum status each_named(const char *from, const char *to, const char *const *names, int n,
                              enum status (*take)(const char *from, const char *to))
{
    char source[CKPT_PATH], target[CKPT_PATH];
    int there;
    for (int i = 0; i < n; i++) {
        TRY(ckpt_path(source, from, names[i], ""));
        TRY(ckpt_path(target, to, names[i], ""));
        TRY(ckpt_look(source, &there));
        if (there)
            TRY(take(source, target));
    }
    return OK;
}

enum status ckpt_copy_named(const char *from, const char *to, const char *const *names, int n)
{
    return each_named(from, to, names, n, ckpt_copy);
}

enum status ckpt_move_named(const char *from, const char *to, const char *const *names, int n)
{
    return each_named(from, to, names, n, ckpt_rename);
}

enum status ckpt_size(const char *path, int64_t *bytes)
{
    struct stat s;
    int fd;
    TRY(open_file(path, &fd)); /* on a network file system opening asks the server; stat alone may not */
    int failed = sys_fstat(fd, &s) == 0 ? 0 : errno;
    sys_close(fd);
    if (failed)
        return status_fail(ERR_IO, "cannot open %s: %s", path, strerror(failed));
    *bytes = (int64_t)s.st_size;
    return OK;
}

int64_t ckpt_segments(int64_t bytes)
{
    return ceil_div(bytes, CKPT_SEGMENT);
}

enum { WINDOW = 8 * CKPT_SEGMENT };

enum status ckpt_window_open(const char *path, struct ckpt_window *out)
{
    struct ckpt_window w = {.path = path};
    TRY(open_file(path, &w.fd));
    w.bytes = sys_malloc(WINDOW);
    if (!w.bytes) {
        sys_close(w.fd);
        return status_fail(ERR_NOMEM, "out of memory: %d bytes to read %s", WINDOW, path);
    }
    *out = w;
    return OK;
}

void ckpt_window_close(struct ckpt_window *w)
{
    if (!w->bytes)
        return;
    sys_close(w->fd);
    free(w->bytes);
    w->bytes = NULL;
}

/* Moves the window to bytes [at, at + n), unless they are in it, and returns them. */
static enum status look_at(struct ckpt_window *w, int64_t at, int64_t n, const char **out)
{
    size_t got = 0;
    if (at < w->at || at + n > w->at + w->n) {
        enum status st = read_some(w->fd, w->path, w->bytes, WINDOW, at, &got);
        w->at = at;
        w->n = st == OK ? (int64_t)got : 0;
        TRY(st);
    }
    *out = w->bytes + (at - w->at);
    return at + n <= w->at + w->n ? OK : status_fail(ERR_CORRUPT, "%s has become shorter while it was read", w->path);
}

enum status ckpt_hash_in(struct ckpt_window *w, const struct ckpt_part *part, int64_t first, int64_t n, uint64_t *sum)
{
    for (int64_t k = first; k < first + n; k++) {
        const int64_t want = min_i64(CKPT_SEGMENT, part->bytes - k * CKPT_SEGMENT);
        const char *bytes;
        TRY(look_at(w, part->at + k * CKPT_SEGMENT, want, &bytes));
        *sum += XXH3_64bits_withSeed(bytes, (size_t)want, part->seed + (uint64_t)k);
        progress_read(want);
    }
    return OK;
}

enum status ckpt_hash(const struct ckpt_part *part, int64_t first, int64_t n, uint64_t *sum)
{
    struct ckpt_window w;
    TRY(ckpt_window_open(part->path, &w));
    enum status st = ckpt_hash_in(&w, part, first, n, sum);
    ckpt_window_close(&w);
    return st;
}

/* ---- do all ranks see the same directory? ---- */

static enum status mark_path(char path[CKPT_PATH], const char *dir, uint64_t mark)
{
    char name[32];
    snprintf(name, sizeof name, "mark-%016" PRIx64, mark);
    return ckpt_path(path, dir, name, "");
}

enum status ckpt_mark(const char *dir, uint64_t mark)
{
    char path[CKPT_PATH];
    TRY(mark_path(path, dir, mark));
    return ckpt_write_text(path, "");
}

void ckpt_unmark(const char *dir, uint64_t mark)
{
    char path[CKPT_PATH];
    if (mark_path(path, dir, mark) == OK)
        sys_unlink(path);
}

enum status ckpt_check_mark(const char *dir, uint64_t mark, double patience)
{
    char path[CKPT_PATH];
    int fd;
    TRY(mark_path(path, dir, mark));
    for (double waited = 0;; waited += 0.1) {
        fd = sys_open_file(path, O_RDONLY, 0);
        if (fd >= 0 || errno != ENOENT || waited >= patience)
            break;
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
    if (fd >= 0)
        sys_close(fd);
    if (fd >= 0)
        return OK;
    if (errno != ENOENT && errno != ENOTDIR)
        return status_fail(ERR_IO, "cannot open %s: %s", path, sys_strerror(errno));
    return status_fail(ERR_INVALID,
                       "%s as rank 0 has made it cannot be seen from here; the run's directory must be on a file system that all "
                       "ranks share",
                       dir);
}
