/* Small files, directories and hashes of checkpoints. */
#include "engine/checkpoint_files.h"

#include "base/sys.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { MAX_TEXT_BYTES = 1 << 20, HASH_CHUNK = 1 << 20 };

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

enum status ckpt_sync_dir(const char *path)
{
    int fd = sys_open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0)
        return status_fail(ERR_IO, "cannot open the directory %s: %s", path, strerror(errno));
    enum status st = sys_fsync(fd) == 0 ? OK : status_fail(ERR_IO, "cannot sync the directory %s: %s", path, strerror(errno));
    sys_close(fd);
    return st;
}

enum status ckpt_rename(const char *from, const char *to)
{
    if (sys_rename(from, to) != 0)
        return status_fail(ERR_IO, "cannot rename %s to %s: %s", from, to, strerror(errno));
    return OK;
}

void ckpt_remove_dir(const char *path)
{
    DIR *d = opendir(path);
    char file[CKPT_PATH];
    for (struct dirent *e; d && (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
            snprintf(file, CKPT_PATH, "%s/%s", path, e->d_name) < CKPT_PATH)
            sys_unlink(file);
    if (d)
        closedir(d);
    rmdir(path);
}

/* ---- files ---- */

enum status ckpt_write_text(const char *path, const char *text)
{
    size_t n = strlen(text), done = 0;
    int fd = sys_open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return status_fail(ERR_IO, "cannot create %s: %s", path, strerror(errno));
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
    *fd = sys_open(path, O_RDONLY | O_CLOEXEC, 0);
    if (*fd >= 0)
        return OK;
    return errno == ENOENT ? status_fail(ERR_CORRUPT, "%s is missing", path)
                           : status_fail(ERR_IO, "cannot open %s: %s", path, strerror(errno));
}

/* Up to n bytes; less only at the end of the file. */
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

enum status ckpt_read_text(const char *path, char **text)
{
    int fd;
    size_t n = 0;
    TRY(open_file(path, &fd));
    char *buf = sys_malloc(MAX_TEXT_BYTES + 1);
    enum status st = buf ? read_some(fd, path, buf, MAX_TEXT_BYTES + 1, 0, &n)
                         : status_fail(ERR_NOMEM, "out of memory: %d bytes to read %s", MAX_TEXT_BYTES + 1, path);
    sys_close(fd);
    if (st == OK && n > MAX_TEXT_BYTES)
        st = status_fail(ERR_CORRUPT, "%s is larger than %d bytes", path, MAX_TEXT_BYTES);
    if (st != OK) {
        free(buf);
        return st;
    }
    buf[n] = 0;
    *text = buf;
    return OK;
}

enum status ckpt_size(const char *path, int64_t *bytes)
{
    struct stat s;
    if (stat(path, &s) != 0)
        return errno == ENOENT ? status_fail(ERR_CORRUPT, "%s is missing", path)
                               : status_fail(ERR_IO, "cannot open %s: %s", path, strerror(errno));
    *bytes = (int64_t)s.st_size;
    return OK;
}

enum status ckpt_hash(const char *path, uint64_t *xxh3)
{
    int fd;
    size_t got = HASH_CHUNK;
    enum status st = OK;
    TRY(open_file(path, &fd));
    char *buf = sys_malloc(HASH_CHUNK);
    XXH3_state_t *hash = XXH3_createState();
    if (!buf || !hash)
        st = status_fail(ERR_NOMEM, "out of memory: %d bytes to read %s", HASH_CHUNK, path);
    else
        XXH3_64bits_reset(hash);
    for (int64_t at = 0; st == OK && got == HASH_CHUNK; at += HASH_CHUNK) {
        st = read_some(fd, path, buf, HASH_CHUNK, at, &got);
        if (st == OK)
            XXH3_64bits_update(hash, buf, got);
    }
    if (st == OK)
        *xxh3 = XXH3_64bits_digest(hash);
    XXH3_freeState(hash);
    free(buf);
    sys_close(fd);
    return st;
}
