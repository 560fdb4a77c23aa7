/* Ordering and reading the files of a corpus. */
#include "data/documents_parts.h"

#include "base/num.h"
#include "base/sys.h"
#include "data/file.h"
#include "data/fingerprint.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- ordering ---- */

static int compare(const void *a, const void *b)
{
    const struct document *x = a, *y = b;
    int order = strcmp(x->path, y->path);
    return order != 0 ? order : (int)x->how - (int)y->how;
}

static void find_repeated(struct documents *d)
{
    if (d->n)
        qsort(d->files, (size_t)d->n, sizeof *d->files, compare);
    for (int64_t i = d->n - 1; i > 0; i--)
        if (strcmp(d->files[i - 1].path, d->files[i].path) == 0)
            d->files[i].how = REPEATED;
}

/* Sorts the files, opens each once to see whether it can be read, drops repeated, empty and left-out files, and gives the rest
 * their places in the stream. */
static enum status place(struct documents *d)
{
    int64_t n = d->n, kept = 0;
    enum status st = OK;
    find_repeated(d);
    for (int64_t i = 0; i < n; i++) {
        struct document f = d->files[i];
        const int is_read = f.how != REPEATED && f.how != LEFT_OUT;
        int fd;
        if (st == OK && is_read && (st = file_open(f.path, &fd, &f.bytes)) == OK)
            sys_close(fd);
        if (st != OK || f.bytes == 0) { /* a file that is not read has 0 bytes here, too */
            d->empty += is_read;
            d->left_out += f.how == LEFT_OUT;
            free(f.path);
            continue;
        }
        f.first = d->bytes;
        d->bytes += f.bytes;
        d->files[kept++] = f;
    }
    d->n = kept;
    return st;
}

enum status documents_open(const char *key, const char *const *paths, int n_paths, struct exclusion *exclude,
                           struct documents **out)
{
    enum status st;
    struct documents *d = sys_calloc(1, sizeof *d);
    if (!d)
        return status_fail(ERR_NOMEM, "out of memory: a list of files");
    d->exclude = exclude;
    for (int i = 0; i < n_paths; i++)
        TRY_GOTO(documents_add(d, key, paths[i]), fail);
    TRY_GOTO(place(d), fail);
    d->exclude = NULL;
    if (d->bytes == 0 && d->left_out > 0) {
        st = status_fail(ERR_INVALID, "%s: --data-exclude leaves out %lld file%s, and there is no other one with a byte", key,
                         (long long)d->left_out, d->left_out == 1 ? "" : "s");
        goto fail;
    }
    if (d->bytes == 0) {
        st = status_fail(ERR_INVALID, n_paths ? "%s: all files are empty" : "%s: no files are given", key);
        goto fail;
    }
    *out = d;
    return OK;
fail:
    documents_close(d);
    return st;
}

void documents_close(struct documents *d)
{
    if (!d)
        return;
    for (int64_t i = 0; i < d->n; i++)
        free(d->files[i].path);
    free(d->files);
    free(d);
}

/* ---- reading ---- */

int64_t documents_count(const struct documents *d)
{
    return d->n;
}

const char *documents_path(const struct documents *d, int64_t i)
{
    return d->files[i].path;
}

int documents_is_found(const struct documents *d, int64_t i)
{
    return d->files[i].how == FOUND;
}

struct fingerprint *documents_fingerprint(struct documents *d, int64_t i)
{
    return &d->files[i].print;
}

int64_t documents_empty(const struct documents *d)
{
    return d->empty;
}

int64_t documents_left_out(const struct documents *d)
{
    return d->left_out;
}

int64_t documents_bytes(const struct documents *d)
{
    return d->bytes;
}

int64_t documents_first(const struct documents *d, int64_t i)
{
    return d->files[i].first;
}

int64_t documents_end(const struct documents *d, int64_t i)
{
    return d->files[i].first + d->files[i].bytes;
}

int64_t documents_find(const struct documents *d, int64_t at)
{
    int64_t low = 0, high = d->n; /* files[low].first <= at < files[high].first */
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (d->files[middle].first <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

enum status documents_survey(struct documents *d, fingerprint_visitor *visit, void *user)
{
    for (int64_t i = 0; i < d->n; i++) {
        struct document *f = &d->files[i];
        TRY(fingerprint_take(f->path, visit, user, &f->print));
        if (f->print.bytes != f->bytes)
            return status_fail(ERR_CORRUPT, "%s changes while it is read: start once nothing writes to it any more", f->path);
    }
    return OK;
}

static int recall(struct document *f, const char *kind, const char *line)
{
    char path[PATH_MAX];
    int64_t bytes;
    uint64_t stamp;
    long long known_bytes;
    struct fingerprint *p = &f->print;
    size_t n = strlen(kind);
    int used = 0;
    if (strncmp(line, kind, n) != 0 ||
        sscanf(line + n, " %" SCNx64 " %lld %" SCNx64 "%n", &p->xxh3, &known_bytes, &p->stamp, &used) != 3 ||
        line[n + (size_t)used] != ' ')
        return 0;
    fingerprint_read_path(line + n + used + 1, path, sizeof path);
    p->bytes = known_bytes;
    p->settled = 1;
    return strcmp(path, f->path) == 0 && p->bytes == f->bytes && fingerprint_stamp(f->path, &stamp, &bytes) == OK &&
           stamp == p->stamp;
}

int documents_recall(struct documents *d, const char *kind, const char **text)
{
    for (int64_t i = 0; i < d->n; i++) {
        const char *end = strchr(*text, '\n');
        if (!end || !recall(&d->files[i], kind, *text))
            return 0;
        *text = end + 1;
    }
    return 1;
}

int documents_write_known(const struct documents *d, const char *kind, FILE *f)
{
    for (int64_t i = 0; i < d->n; i++) {
        const struct fingerprint *p = &d->files[i].print;
        if (!p->settled)
            return 0;
        fprintf(f, "%s %016" PRIx64 " %lld %016" PRIx64 " ", kind, p->xxh3, (long long)p->bytes, p->stamp);
        fingerprint_print_path(f, d->files[i].path);
    }
    return 1;
}

void documents_tell(struct documents *d, const struct rereading *r)
{
    d->rereading = r;
}

void documents_print(const struct documents *d, const char *kind, FILE *f)
{
    for (int64_t i = 0; i < d->n; i++)
        fingerprint_print(f, kind, &d->files[i].print, d->files[i].path);
}

/* Opens a file to read it once more. */
static enum status reopen(const struct document *f, int *fd)
{
    int64_t bytes;
    char cause[512];
    enum status st = file_open(f->path, fd, &bytes);
    if (st != ERR_INVALID)
        return st;
    snprintf(cause, sizeof cause, "%s", status_message());
    return status_fail(ERR_IO, "a file that this run has read before is gone: %s", cause);
}

static enum status read_open(int fd, const struct document *f, int64_t at, int64_t n, uint8_t *out, int32_t *next)
{
    uint8_t byte = 0;
    TRY(file_read(fd, f->path, out, (size_t)n, at));
    if (next && at + n < f->bytes)
        TRY(file_read(fd, f->path, &byte, 1, at + n));
    if (next)
        *next = at + n < f->bytes ? byte : -1;
    return OK;
}

static enum status read_part(const struct documents *d, struct document *f, int64_t at, int64_t n, uint8_t *out, int32_t *next)
{
    int fd;
    TRY(reopen(f, &fd));
    enum status st = fingerprint_check(fd, f->path, &f->print, d->rereading), read = OK;
    if (st == OK) {
        read = read_open(fd, f, at, n, out, next);
        if (read == OK || read == ERR_CORRUPT) /* checks again, since the file may have changed during the read */
            st = fingerprint_check(fd, f->path, &f->print, d->rereading);
    }
    sys_close(fd);
    return st == OK ? read : st;
}

enum status documents_read(const struct documents *d, int64_t at, int64_t n, uint8_t *out, int32_t *next)
{
    for (int64_t i = documents_find(d, at); n > 0; i++) {
        struct document *f = &d->files[i];
        int64_t from = at - f->first, part = min_i64(n, f->bytes - from);
        TRY(read_part(d, f, from, part, out, part == n ? next : NULL));
        at += part;
        out += part;
        n -= part;
    }
    return OK;
}

enum status documents_check(const struct documents *d, int64_t at, int64_t n)
{
    for (int64_t i = documents_find(d, at); i < d->n && d->files[i].first < at + n; i++) {
        int fd;
        struct document *f = &d->files[i];
        TRY(reopen(f, &fd));
        enum status st = fingerprint_check(fd, f->path, &f->print, d->rereading);
        sys_close(fd);
        TRY(st);
    }
    return OK;
}
