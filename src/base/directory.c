#include "base/directory.h"

#include "base/sys.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

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
