#include "base/directory.h"

#include "base/sys.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum status directory_make(const char *path)
{
    char partial[4096];
    snprintf(partial, sizeof partial, "%s", path);
    for (char *p = partial + 1;; p++) {
        if (*p && *p != '/')
            continue;
        char kept = *p;
        *p = 0;
        if (sys_mkdir(partial, 0777) != 0 && errno != EEXIST)
            return status_fail(ERR_IO, "cannot make the directory %s: %s", partial, strerror(errno));
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
