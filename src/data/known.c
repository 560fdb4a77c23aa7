/* Reading and writing the text that a run keeps about its data, with its checksum. */
#include "data/known.h"

#include "base/sys.h"
#include "data/file.h"

#include <errno.h>
#include <inttypes.h>
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

/* Writes the text in place: if the write is cut off, the checksum shows it. */
enum status known_write(const char *path, const char *text, size_t bytes)
{
    char sum[SUM_BYTES + 1];
    FILE *f = sys_write_text(path);
    if (!f)
        return status_fail(ERR_IO, "cannot write %s: %s", path, sys_strerror(errno));
    format_sum(sum, text, bytes);
    int failed = fwrite(text, 1, bytes, f) != bytes || fputs(sum, f) < 0 ? errno : 0;
    if (fclose(f) != 0 && !failed)
        failed = errno;
    return failed ? status_fail(ERR_IO, "cannot write %s: %s", path, strerror(failed)) : OK;
}
