#include "data/known.h"

#include "base/sys.h"
#include "data/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { SUM_BYTES = 21 }; /* "sum 0123456789abcdef\n" */

static void format_sum(char sum[SUM_BYTES + 1], const char *text, size_t bytes)
{
    snprintf(sum, SUM_BYTES + 1, "sum %016" PRIx64 "\n", (uint64_t)XXH3_64bits(text, bytes));
}

char *known_read(const char *path)
{
    int fd;
    int64_t bytes;
    char sum[SUM_BYTES + 1];
    if (file_open(path, &fd, &bytes) != OK)
        return NULL;
    char *text = bytes > SUM_BYTES ? sys_malloc((size_t)bytes + 1) : NULL;
    int whole = text && file_read(fd, path, text, (size_t)bytes, 0) == OK;
    sys_close(fd);
    if (whole) {
        char *end = text + bytes - SUM_BYTES;
        text[bytes] = 0;
        format_sum(sum, text, (size_t)(end - text));
        whole = strcmp(end, sum) == 0;
        *end = 0;
    }
    if (whole)
        return text;
    free(text);
    return NULL;
}

enum status known_write(const char *path, const char *text, size_t bytes)
{
    char partial[PATH_MAX], sum[SUM_BYTES + 1];
    if (snprintf(partial, sizeof partial, "%s.partial", path) >= PATH_MAX)
        return status_fail(ERR_INVALID, "%.64s...: the path is too long", path);
    int fd = sys_open_file(partial, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0)
        return status_fail(ERR_IO, "cannot create %s: %s", partial, sys_strerror(errno));
    format_sum(sum, text, bytes);
    enum status st = file_write(fd, partial, text, bytes, 0);
    if (st == OK)
        st = file_write(fd, partial, sum, SUM_BYTES, (int64_t)bytes);
    if (sys_close(fd) != 0 && st == OK)
        st = status_fail(ERR_IO, "cannot write %s: %s", partial, strerror(errno));
    if (st == OK && sys_rename(partial, path) != 0)
        st = status_fail(ERR_IO, "cannot rename %s to %s: %s", partial, path, strerror(errno));
    if (st != OK)
        sys_unlink(partial);
    return st;
}
