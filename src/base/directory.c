#include "base/directory.h"

#include "base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Tells whether the error means that the file system has no fsync of directories: SMB, FUSE, or shared folders of virtual
 * machines. Names are safe there when their server says so. */
static int cannot_sync(int error)
{
    return error == EINVAL || error == EBADF || error == ENOSYS || error == EOPNOTSUPP;
}

enum status directory_sync(const char *path)
{
    int fd = sys_open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0)
        return status_fail(ERR_IO, "cannot open the directory %s: %s", path, strerror(errno));
    enum status st = OK;
    if (sys_fsync(fd) != 0 && !cannot_sync(errno))
        st = status_fail(ERR_IO, "cannot sync the directory %s: %s", path, strerror(errno));
    sys_close(fd);
    return st;
}

enum status directory_keep(const char *path)
{
    char parent[4096];
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    while (n > 0 && path[n - 1] != '/')
        n--;
    snprintf(parent, sizeof parent, "%.*s", n ? (int)n : 1, n ? path : ".");
    return sys_access(parent, R_OK) == 0 ? directory_sync(parent) : OK;
}

enum status directory_make(const char *path)
{
    char partial[4096];
    snprintf(partial, sizeof partial, "%s", path);
    for (char *p = partial + 1;; p++) {
        if (*p && *p != '/')
            continue;
        char kept = *p;
        *p = 0;
        const int made = sys_mkdir(partial, 0777) == 0;
        if (!made && errno != EEXIST)
            return status_fail(ERR_IO, "cannot make the directory %s: %s", partial, strerror(errno));
        if (made)
            TRY(directory_keep(partial));
        *p = kept;
        if (!kept)
            return OK;
    }
}

enum status directory_check_link(const char *path)
{
    struct stat s;
    const uid_t me = geteuid();
    if (sys_lstat(path, &s) != 0 || !S_ISLNK(s.st_mode) || s.st_uid == me || s.st_uid == 0)
        return OK;
    return status_fail(
        ERR_INVALID,
        "%s is a link that belongs to user %lld and this process to user %lld: nothing is written through it: remove "
        "it, or give another place",
        path, (long long)s.st_uid, (long long)me);
}
