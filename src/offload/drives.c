/* Choosing and checking the nvme paths of a rank. */
#include "offload/drives.h"

#include "base/disk.h"
#include "base/num.h"
#include "base/sys.h"
#include "offload/store.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Returns the path from the root on, since of two paths one may be relative and the other not. */
static const char *from_root(const char *path, char whole[PATH_MAX])
{
    char here[PATH_MAX];
    if (path[0] == '/' || !getcwd(here, sizeof here) || snprintf(whole, PATH_MAX, "%s/%s", here, path) >= PATH_MAX)
        return path;
    return whole;
}

static int is_made_with(const char *path, const char *run)
{
    char a[PATH_MAX], b[PATH_MAX];
    path = from_root(path, a);
    run = from_root(run, b);
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    return strncmp(path, run, n) == 0 && (run[n] == 0 || run[n] == '/');
}

/* Refuses two names of one directory, which would be striped over as if they were two drives. */
static enum status check_distinct(const char *const *path, int i)
{
    struct stat a, b;
    for (int k = 0; k < i; k++) {
        int there = sys_stat(path[i], &a) == 0 && sys_stat(path[k], &b) == 0;
        if (!there && !sys_is_absent(errno)) /* the run's directory may not be there yet */
            return status_fail(ERR_IO, "cannot look at nvme paths %s and %s: %s", path[k], path[i], strerror(errno));
        if (there && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
            return status_fail(ERR_INVALID, "nvme paths %s and %s are the same directory: name it once (--nvme-path)", path[k],
                               path[i]);
    }
    return OK;
}

enum status drives_check(const char *const *path, int n_paths, const char *run)
{
    struct stat sb;
    for (int i = 0; i < n_paths; i++) {
        int there = sys_stat(path[i], &sb) == 0;
        if (!there && errno == ENOENT && is_made_with(path[i], run))
            continue;
        if (!there || !S_ISDIR(sb.st_mode))
            return status_fail(ERR_INVALID, "nvme path %s: %s: create the directory or name another (--nvme-path)", path[i],
                               strerror(there ? ENOTDIR : errno));
        if (sys_access(path[i], W_OK | X_OK) != 0)
            return status_fail(ERR_INVALID, "nvme path %s: %s: make it writable or name another (--nvme-path)", path[i],
                               strerror(errno));
        TRY(check_distinct(path, i));
    }
    return OK;
}

#define FILE_SYSTEMS 64 /* most file systems that are told apart */

struct room {
    uint64_t id; /* identity of the file system */
    int64_t bytes;
    int files; /* number of files of all ranks of the host */
    int path;  /* first path on the file system */
};

/* Adds a path to its file system. Skips a path that neither exists nor is made by the run. */
static void add_path(const char *path, int index, const char *run, int files, struct room *rooms, int *n)
{
    struct disk disk;
    struct stat s;
    int k = 0;
    if ((sys_stat(path, &s) != 0 && !is_made_with(path, run)) || disk_look(path, &disk) != 0)
        return;
    while (k < *n && rooms[k].id != disk.id)
        k++;
    if (k == *n)
        rooms[(*n)++] = (struct room){disk.id, disk_room(&disk), 0, index};
    rooms[k].files += files;
    rooms[k].bytes += store_dead_bytes(path);
}

int64_t drives_room(const char *const *path, int n_paths, int local_size, const char *run, int64_t *reserved, int *tightest)
{
    struct room rooms[FILE_SYSTEMS];
    struct disk disk;
    int n = 0, own = n_paths >= local_size;
    int64_t least = INT64_MAX;
    *tightest = -1;
    for (int i = 0; i < n_paths && n < FILE_SYSTEMS; i++)
        add_path(path[i], i, run, own ? 1 : local_size, rooms, &n);
    if (n_paths == 0)
        add_path(run, -1, run, local_size, rooms, &n);
    int known = disk_look(run, &disk) == 0;
    int64_t left_out = *reserved;
    *reserved = 0;
    for (int k = 0; k < n; k++) {
        int64_t bytes = rooms[k].bytes;
        if (known && rooms[k].id == disk.id)
            bytes -= *reserved = left_out;
        const int64_t each = max_i64(0, bytes) / rooms[k].files;
        *tightest = each < least ? rooms[k].path : *tightest;
        least = min_i64(least, each);
    }
    return least == INT64_MAX ? INT64_MAX : least * max_i64(1, own ? ceil_div(n_paths, local_size) : n_paths);
}

const char *drives_in_memory(const char *const *path, int n_paths, const char *run)
{
    struct disk disk;
    for (int i = 0; i < n_paths; i++)
        if (disk_look(path[i], &disk) == 0 && disk.in_memory)
            return path[i];
    return n_paths == 0 && disk_look(run, &disk) == 0 && disk.in_memory ? run : NULL;
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
