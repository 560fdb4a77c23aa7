/* Finding, ordering and reading the files of a corpus. */
#include "data/documents.h"

#include "base/num.h"
#include "base/sys.h"
#include "data/file.h"
#include "data/fingerprint.h"

#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <limits.h>
#include <fts.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Ways in which a file was found; a file found in several ways counts as the first of these. */
enum how { NAMED, LEFT_OUT, MATCHED, FOUND, REPEATED }; /* matched by a glob; found below a directory */

struct document {
    char *path;           /* canonical, owned */
    int64_t first, bytes; /* place and length in the stream */
    enum how how;
    struct fingerprint print;
};

struct documents {
    struct document *files;
    int64_t n, room;
    int64_t bytes, empty, left_out;    /* numbers of files without a byte, and of files that patterns leave out */
    struct exclusion *exclude;         /* patterns, while files are looked for; or NULL */
    const struct rereading *rereading; /* or NULL */
};

/* ---- finding ---- */

static enum status add_file(struct documents *d, const char *path, enum how how)
{
    if (d->n == d->room) {
        int64_t room = max_i64(64, 2 * d->room);
        struct document *files = sys_malloc(sizeof *files * (size_t)room);
        if (!files)
            return status_fail(ERR_NOMEM, "out of memory: a list of %lld files", (long long)room);
        if (d->n)
            memcpy(files, d->files, sizeof *files * (size_t)d->n);
        free(d->files);
        d->files = files;
        d->room = room;
    }
    char *canonical = sys_realpath(path);
    if (!canonical)
        return sys_cannot_open(path);
    d->files[d->n++] = (struct document){.path = canonical, .how = how};
    return OK;
}

/* Adds a file. Megatron's NAME.bin and NAME.idx each bring the other, so that its changes are noticed, too; a pattern that leaves
 * one out leaves both out. below: the end of the path that patterns are compared with; NULL: the file is named. */
static enum status add_with_index(struct documents *d, const char *path, const char *below, enum how how)
{
    char other[PATH_MAX] = "";
    struct stat s;
    size_t n = strlen(path);
    int bin = n > 4 && strcmp(path + n - 4, ".bin") == 0, idx = n > 4 && strcmp(path + n - 4, ".idx") == 0;
    if ((bin || idx) && n < sizeof other) {
        memcpy(other, path, n + 1);
        strcpy(other + n - 4, bin ? ".idx" : ".bin");
        if (sys_stat(other, &s) != 0)
            other[0] = 0;
    }
    if (below && (exclusion_takes(d->exclude, below) || (other[0] && exclusion_takes(d->exclude, other + (below - path)))))
        how = LEFT_OUT;
    TRY(add_file(d, path, how));
    return other[0] ? add_file(d, other, how) : OK;
}

/* Refuses a file that cannot be read, and says so if it is a link to nowhere: code bases have such links. */
static enum status cannot_read(const FTSENT *e)
{
    char target[PATH_MAX];
    const ssize_t n = e->fts_info == FTS_SLNONE ? readlink(e->fts_path, target, sizeof target) : -1;
    if (n >= 0)
        return status_fail(ERR_INVALID,
                           "cannot read %s: it is a link to '%.*s', which is not there: remove it, or give the files",
                           e->fts_path, (int)n, target);
    return status_fail(ERR_INVALID, "cannot read %s: %s", e->fts_path, strerror(e->fts_errno ? e->fts_errno : ENOENT));
}

/* Tells whether patterns leave out an unreadable entry; a directory is left out if all of its files would be. */
static int leaves_out(struct documents *d, const FTSENT *e, size_t base)
{
    char inside[PATH_MAX];
    const char *below = e->fts_path + base + strspn(e->fts_path + base, "/");
    snprintf(inside, sizeof inside, "%s/.", below);
    return exclusion_takes(d->exclude, e->fts_info == FTS_DNR ? inside : below);
}

/* Adds the files of a tree. name: pattern of their names; NULL: all. base: bytes of paths that exclusion patterns are not
 * compared with. */
static enum status walk(struct documents *d, const char *root, const char *name, size_t base, FTS *tree)
{
    FTSENT *e;
    while ((e = sys_fts_read(tree, root)) != NULL) {
        if (e->fts_level > FTS_ROOTLEVEL && e->fts_name[0] == '.') {
            if (e->fts_info == FTS_D)
                fts_set(tree, e, FTS_SKIP);
            continue;
        }
        const int is_directory = e->fts_info == FTS_D || e->fts_info == FTS_DP || e->fts_info == FTS_DC;
        if (is_directory || (name && e->fts_info != FTS_DNR && fnmatch(name, e->fts_name, 0) != 0))
            continue;
        if (e->fts_info == FTS_F || e->fts_info == FTS_DEFAULT) /* special files are refused when they are opened */
            TRY(add_with_index(d, e->fts_path, e->fts_path + base + strspn(e->fts_path + base, "/"), name ? MATCHED : FOUND));
        if ((e->fts_info == FTS_DNR || e->fts_info == FTS_ERR || e->fts_info == FTS_NS || e->fts_info == FTS_SLNONE) &&
            !leaves_out(d, e, base))
            return cannot_read(e);
    }
    return errno ? status_fail(ERR_IO, "cannot list %s: %s", root, strerror(errno)) : OK;
}

static enum status add_tree(struct documents *d, const char *path, const char *name, size_t base)
{
    FTS *tree = sys_fts_open(path, FTS_LOGICAL | FTS_NOCHDIR);
    if (!tree)
        return status_fail(ERR_IO, "cannot list %s: %s", path, strerror(errno));
    enum status st = walk(d, path, name, base, tree);
    fts_close(tree);
    return st;
}

/* Adds a path that exists. pattern: the glob that matched the path; NULL: the path is named. */
static enum status add_existing(struct documents *d, const char *key, const char *path, const char *pattern, const struct stat *s)
{
    int64_t before = d->n;
    const char *below = pattern ? exclusion_below(pattern, path) : NULL;
    if (!S_ISDIR(s->st_mode))
        return add_with_index(d, path, below, below ? MATCHED : NAMED);
    TRY(add_tree(d, path, NULL, below ? (size_t)(below - path) : strlen(path)));
    return d->n > before ? OK : status_fail(ERR_INVALID, "%s: directory %s has no files", key, path);
}

static enum status add_glob(struct documents *d, const char *key, const char *pattern)
{
    glob_t g = {0};
    struct stat s;
    enum status st = OK;
    int rc = sys_glob(pattern, GLOB_ERR, &g);
    if (rc != 0)
        st = rc == GLOB_NOMATCH
                 ? status_fail(ERR_INVALID, "%s: %s: no such file or directory, and nothing matches it", key, pattern)
                 : status_fail(ERR_INVALID, "%s: cannot search for %s: %s", key, pattern,
                               strerror(rc == GLOB_NOSPACE ? ENOMEM : errno));
    for (size_t i = 0; st == OK && i < g.gl_pathc; i++)
        st = sys_stat(g.gl_pathv[i], &s) == 0 ? add_existing(d, key, g.gl_pathv[i], pattern, &s) : sys_cannot_open(g.gl_pathv[i]);
    globfree(&g);
    return st;
}

/* Returns the name pattern behind `**`, which stands for any number of directories; NULL: there is none. glob takes two stars for
 * one. */
static const char *find_stars(const char *path)
{
    const char *stars = strncmp(path, "**/", 3) == 0 ? path : strstr(path, "/**/");
    return stars ? stars + (*stars == '/') : NULL;
}

/* Adds the files of that name in the directory before `stars` and below. */
static enum status add_deep(struct documents *d, const char *key, const char *pattern, const char *stars)
{
    char dir[PATH_MAX] = ".";
    struct stat s;
    const char *name = stars + strlen("**/"), *from = pattern;
    size_t n = 0;
    while (from < stars && n < sizeof dir - 1) {
        from += *from == '\\'; /* stars in the working directory's own name are escaped */
        dir[n++] = *from++;
        dir[n] = 0;
    }
    if (from == stars && sys_stat(dir, &s) != 0)
        return status_fail(ERR_INVALID, "%s: %s: no such directory", key, dir);
    if (from < stars || !*name || strchr(name, '/') || !S_ISDIR(s.st_mode))
        return status_fail(ERR_INVALID, "%s: %s: `**` stands between a directory and the pattern of a name, as in 'DIR/**/*.c'",
                           key, pattern);
    const int64_t before = d->n;
    TRY(add_tree(d, dir, name, from == pattern ? strlen("./") : strlen(dir)));
    return d->n > before ? OK : status_fail(ERR_INVALID, "%s: %s: nothing matches it", key, pattern);
}

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

/* Sorts, opens each file once to see that it can be read, drops repeated, empty and left out ones, and gives the others their
 * place. */
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
        if (st != OK || f.bytes == 0) { /* files that are not read have 0 bytes here, too */
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

/* Adds a path: a file, a directory, or a pattern that is no file's name. */
static enum status add_path(struct documents *d, const char *key, const char *path)
{
    struct stat s;
    if (sys_stat(path, &s) == 0)
        return add_existing(d, key, path, NULL, &s);
    const char *stars = find_stars(path);
    if (stars)
        return add_deep(d, key, path, stars);
    return sys_is_absent(errno) ? add_glob(d, key, path)
                                : status_fail(ERR_INVALID, "%s: cannot open %s: %s", key, path, strerror(errno));
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
        TRY_GOTO(add_path(d, key, paths[i]), fail);
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
        if (read == OK || read == ERR_CORRUPT) /* a change during the read is noticed, too */
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
