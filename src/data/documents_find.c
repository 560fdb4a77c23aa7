/* Finding the files of a corpus. */
#include "data/documents_parts.h"

#include "base/num.h"
#include "base/sys.h"

#include <errno.h>
#include <fnmatch.h>
#include <fts.h>
#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* Adds a file, and with Megatron's NAME.bin or NAME.idx also the other of the two: a change of either is noticed, and a pattern
 * that leaves one out leaves both out. below: the end of the path that patterns are compared with; NULL: the user named the file. */
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

/* Refuses a file that cannot be read. The message tells a dangling link as such: code bases have such links. */
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

/* Tells whether patterns leave out an entry that cannot be read. A directory is left out if patterns leave out every file that
 * might be in it. */
static int leaves_out(struct documents *d, const FTSENT *e, size_t base)
{
    char inside[PATH_MAX];
    const char *below = e->fts_path + base + strspn(e->fts_path + base, "/");
    snprintf(inside, sizeof inside, "%s/.", below);
    return exclusion_takes(d->exclude, e->fts_info == FTS_DNR ? inside : below);
}

/* Adds the files of a tree. name: pattern of their names; NULL: all. base: length of the first part of each path, which exclusion
 * patterns are not compared with. */
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

/* Adds a path that exists. pattern: the glob that matched the path; NULL: the user named the path. */
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

/* Returns the name pattern behind `**`, which stands for any number of directories; NULL: there is none. (glob itself treats `**`
 * like `*`.) */
static const char *find_stars(const char *path)
{
    const char *stars = strncmp(path, "**/", 3) == 0 ? path : strstr(path, "/**/");
    return stars ? stars + (*stars == '/') : NULL;
}

/* Adds the files in the directory before `stars`, and below it, whose names match the pattern behind `stars`. */
static enum status add_deep(struct documents *d, const char *key, const char *pattern, const char *stars)
{
    char dir[PATH_MAX] = ".";
    struct stat s;
    const char *name = stars + strlen("**/"), *from = pattern;
    size_t n = 0;
    while (from < stars && n < sizeof dir - 1) {
        from += *from == '\\'; /* the working directory's own name is escaped, its stars with a backslash */
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

enum status documents_add(struct documents *d, const char *key, const char *path)
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
