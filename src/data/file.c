/* Whole transfers on regular files. */
#include "data/file.h"

#include "base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

enum status file_open(const char *path, int *fd, int64_t *bytes)
{
    struct stat s;
    int f = sys_open_file(path, O_RDONLY, 0);
    if (f < 0)
        return sys_cannot_open(path);
    if (sys_fstat(f, &s) != 0) {
        int error = errno;
        sys_close(f);
        return status_fail(ERR_IO, "cannot open %s: %s", path, strerror(error));
    }
    *fd = f;
    *bytes = (int64_t)s.st_size;
    return OK;
}

enum status file_read(int fd, const char *path, void *buf, size_t n, int64_t at)
{
    size_t done = 0;
    while (done < n) {
        ssize_t got = sys_pread(fd, (char *)buf + done, n - done, (off_t)at + (off_t)done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return status_fail(ERR_IO, "cannot read %s: %s", path, strerror(errno));
        if (got == 0)
            return status_fail(ERR_CORRUPT, "%s has become shorter while it was read", path);
        done += (size_t)got;
    }
    return OK;
}

enum status file_write(int fd, const char *path, const void *buf, size_t n, int64_t at)
{
    size_t done = 0;
    while (done < n) {
        ssize_t put = sys_pwrite(fd, (const char *)buf + done, n - done, (off_t)at + (off_t)done);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return status_fail(ERR_IO, "cannot write %s: %s", path, put < 0 ? strerror(errno) : "no progress");
        done += (size_t)put;
    }
    return OK;
}
