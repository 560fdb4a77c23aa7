/* Which nvme paths a rank uses. */
#include "offload/drives.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int is_made_with(const char *path, const char *run)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    return strncmp(path, run, n) == 0 && (run[n] == 0 || run[n] == '/');
}

enum status drives_check(const char *const *path, int n_paths, const char *run)
{
    struct stat sb;
    for (int i = 0; i < n_paths; i++) {
        int there = stat(path[i], &sb) == 0;
        if (!there && errno == ENOENT && is_made_with(path[i], run))
            continue;
        if (!there || !S_ISDIR(sb.st_mode))
            return status_fail(ERR_INVALID, "nvme path %s: %s: create the directory or name another (--nvme-path)", path[i],
                               strerror(there ? ENOTDIR : errno));
        if (access(path[i], W_OK | X_OK) != 0)
            return status_fail(ERR_INVALID, "nvme path %s: %s: make it writable or name another (--nvme-path)", path[i],
                               strerror(errno));
    }
    return OK;
}

int drives_of_rank(int n_paths, int local_rank, int local_size, int *index)
{
    int n = 0, own = n_paths >= local_size;
    for (int i = 0; i < n_paths; i++)
        if (!own || i % local_size == local_rank)
            index[n++] = i;
    return n;
}

const char *drives_describe(int n_paths, int local_size, char *text, int bytes)
{
    if (bytes > 0)
        text[0] = 0;
    if (n_paths == 0 || local_size < 2)
        return text;
    if (n_paths < local_size)
        snprintf(text, (size_t)bytes, "drives: each of the %d ranks of a host stripes over %s", local_size,
                 n_paths == 1 ? "the one nvme path" : "all nvme paths");
    else if (n_paths == local_size)
        snprintf(text, (size_t)bytes, "drives: the n-th rank of a host has the n-th of %d nvme paths to itself", n_paths);
    else
        snprintf(text, (size_t)bytes,
                 "drives: of %d nvme paths each of the %d ranks of a host has every %d-th to itself, from its own number on",
                 n_paths, local_size, local_size);
    return text;
}
