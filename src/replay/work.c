/* The directory for temporary files of a replay. */
#include "replay/work.h"

#include "base/clock.h"
#include "base/sys.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum status work_choose(struct comm *c, char path[WORK_PATH])
{
    const char *tmp = getenv("TMPDIR");
    snprintf(path, WORK_PATH, "%.400s/ltrain-replay-%d-%llx", tmp && tmp[0] ? tmp : "/tmp", (int)getpid(),
             (unsigned long long)clock_wall_ns());
    return comm_broadcast(c, 0, path, WORK_PATH);
}

enum status work_make(struct comm *c, const char *path)
{
    struct stat at;
    enum status st = OK;
    if (sys_mkdir(path, 0700) != 0 && (errno != EEXIST || sys_lstat(path, &at) != 0 || at.st_uid != geteuid()))
        st = status_fail(ERR_IO, "cannot make the directory %s: %s: set TMPDIR, or give --nvme-path", path, strerror(errno));
    return comm_agree(c, st);
}

/* Removes a directory that this process has made, with its contents. */
static void remove_tree(const char *path, int depth)
{
    char file[4096];
    DIR *d = sys_opendir(path);
    for (struct dirent *e; d && (e = sys_readdir(d));) {
        struct stat at;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
            snprintf(file, sizeof file, "%s/%s", path, e->d_name) >= (int)sizeof file || sys_lstat(file, &at) != 0)
            continue;
        if (S_ISDIR(at.st_mode) && depth > 0)
            remove_tree(file, depth - 1);
        else
            sys_unlink(file);
    }
    if (d)
        closedir(d);
    sys_rmdir(path);
}

void work_remove(const char *path)
{
    enum { DEPTH = 2 }; /* checkpoints/step-N/files */
    struct stat at;
    if (sys_lstat(path, &at) == 0 && S_ISDIR(at.st_mode))
        remove_tree(path, DEPTH);
}
