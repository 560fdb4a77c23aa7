/* Reading a small file whole. */
#include "text/parts.h"

#include "base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LARGEST_FILE ((int64_t)1 << 30)

enum status read_whole(const char *path, char **text, size_t *n)
{
    struct stat s;
    int fd = sys_open_file(path, O_RDONLY, 0);
    if (fd < 0)
        return sys_cannot_open(path);
    enum status st = OK;
    size_t done = 0;
    *text = NULL;
    if (sys_fstat(fd, &s) != 0)
        st = status_fail(ERR_IO, "cannot read the state of %s: %s", path, strerror(errno));
    else if (s.st_size > LARGEST_FILE)
        st = status_fail(ERR_INVALID, "%s has %lld bytes: no tokenizer is that large", path, (long long)s.st_size);
    else if (!(*text = sys_malloc((size_t)s.st_size + 1)))
        st = status_fail(ERR_NOMEM, "out of memory: %s", path);
    while (st == OK && done < (size_t)s.st_size) {
        ssize_t got = sys_pread(fd, *text + done, (size_t)s.st_size - done, (off_t)done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            st = status_fail(got < 0 ? ERR_IO : ERR_CORRUPT, "cannot read %s: %s", path,
                             got < 0 ? strerror(errno) : "it ends early");
        done += got > 0 ? (size_t)got : 0;
    }
    sys_close(fd);
    *n = done;
    if (st != OK) {
        free(*text);
        *text = NULL;
    } else {
        (*text)[done] = 0;
    }
    return st;
}
