/* The directory of a run. */
#include "train/run.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A run is never overwritten by another. */
static enum status refuse_old(const struct settings *s)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/metrics.jsonl", s->out);
    if (access(path, F_OK) != 0)
        return OK;
    snprintf(path, sizeof path, "%s/checkpoints/latest", s->out);
    if (access(path, F_OK) != 0)
        return status_fail(ERR_INVALID,
                           "%s already holds a run, without a checkpoint to continue from: give another --out, or remove it",
                           s->out);
    return status_fail(ERR_INVALID, "%s already holds a run: continue it with --resume %s, or give another --out", s->out,
                       s->out);
}

/* What there is of a path decides: it, or the nearest of its parents. */
enum status run_check_can_be_made(const char *option, const char *path)
{
    char at[4096];
    struct stat sb;
    int there;
    snprintf(at, sizeof at, "%s", path);
    while (!(there = stat(at, &sb) == 0) && (errno == ENOENT || errno == ENOTDIR) && strcmp(at, ".") != 0) {
        char *slash = strrchr(at, '/');
        if (!slash)
            strcpy(at, ".");
        else
            slash[slash == at ? 1 : 0] = 0;
    }
    if (there && S_ISDIR(sb.st_mode) && access(at, W_OK | X_OK) == 0)
        return OK;
    return status_fail(ERR_INVALID, "%s %s: %s: %s: give another directory", option, path, at,
                       strerror(there && !S_ISDIR(sb.st_mode) ? ENOTDIR : errno));
}

enum status run_check_directory(const struct settings *s)
{
    if (!s->resume)
        TRY(refuse_old(s));
    return run_check_can_be_made(s->resume ? "--resume" : "--out", s->out);
}
