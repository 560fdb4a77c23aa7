#include "eval/result_file.h"

#include "base/directory.h"
#include "base/sys.h"
#include "settings/read.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

static enum status cannot_write(enum status st, const struct result_file *x, int error)
{
    return status_fail(st, "--%s: cannot write %s: %s", x->option, x->given, sys_strerror(error));
}

/* Refuses a link of another user, naming the option. */
static enum status check_link(const char *option, const char *path)
{
    char cause[512];
    const enum status st = directory_check_link(path);
    snprintf(cause, sizeof cause, "%s", st == OK ? "" : status_message());
    return st == OK ? OK : status_fail(st, "--%s: %s", option, cause);
}

/* Sets the paths. A symbolic link stays a link: its target is written. */
static enum status name(struct result_file *x, const char *option, const char *path)
{
    TRY(check_link(option, path));
    char *real = sys_realpath(path);
    *x = (struct result_file){.option = option, .given = path};
    const int n = snprintf(x->path, sizeof x->path, "%s", real ? real : path);
    free(real);
    snprintf(x->partial, sizeof x->partial, "%s.partial", x->path);
    return n < (int)sizeof x->path ? OK : status_fail(ERR_INVALID, "--%s: %.64s...: the path is too long", option, path);
}

enum status result_file_begin(struct result_file *x, const char *option, const char *path)
{
    TRY(name(x, option, path));
    const int there = sys_open_file(x->path, O_WRONLY | O_CLOEXEC, 0);
    if (there < 0 && !sys_is_absent(errno))
        return cannot_write(ERR_INVALID, x, errno);
    if (there >= 0)
        sys_close(there);
    x->f = sys_write_text(x->partial);
    return x->f ? OK : cannot_write(ERR_INVALID, x, errno);
}

enum status result_file_end(struct result_file *x, enum status st)
{
    int failed = ferror(x->f) || fflush(x->f) != 0 || (st == OK && sys_fsync(fileno(x->f)) != 0), reason = errno;
    if (fclose(x->f) != 0 && !failed) {
        failed = 1;
        reason = errno;
    }
    if (st == OK && !failed && sys_rename(x->partial, x->path) == 0)
        return OK;
    if (st == OK)
        st = cannot_write(ERR_IO, x, failed ? reason : errno);
    sys_unlink(x->partial);
    return st;
}

/* ---- input files ---- */

static int is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Tells whether `file` is `root` or below that directory. Unreadable directories are ignored: the reader of the data reports
 * them. */
static int is_below(const char *root, const struct stat *file)
{
    int found = 0;
    FTS *tree = sys_fts_open(root, FTS_LOGICAL | FTS_NOCHDIR);
    for (FTSENT *e = tree ? sys_fts_read(tree, root) : NULL; e && !found; e = found ? NULL : sys_fts_read(tree, root))
        found = e->fts_info == FTS_F && is_same(e->fts_statp, file);
    if (tree)
        fts_close(tree);
    return found;
}

/* Refuses a result file that is among the paths of a list, which may be globs and have weights. */
static enum status refuse_files_of(const char *key, const struct string_list *list, const struct result_file *x,
                                   const struct stat *file)
{
    int found = 0;
    for (int i = 0; i < list->n && !found; i++) {
        glob_t g = {0};
        size_t length;
        double weight;
        settings_weight(list->item[i], &length, &weight);
        char *path = strndup(list->item[i], length);
        const int some = path && sys_glob(path, 0, &g) == 0;
        for (size_t k = 0; some && k < g.gl_pathc && !found; k++)
            found = is_below(g.gl_pathv[k], file);
        found = found || (path && !some && is_below(path, file));
        globfree(&g);
        free(path);
    }
    return found ? status_fail(ERR_INVALID, "--%s: %s is one of the files that --%s names: give another one", x->option, x->given,
                               key)
                 : OK;
}

enum status result_file_check(const char *option, const char *path, const struct settings *s)
{
    struct result_file x;
    struct stat at;
    TRY(name(&x, option, path));
    const char *const written[] = {x.path, x.partial};
    for (int i = 0; i < 2; i++)
        if (sys_stat(written[i], &at) == 0) {
            TRY(refuse_files_of("data", &s->data, &x, &at));
            TRY(refuse_files_of("eval-data", &s->eval_data, &x, &at));
        }
    TRY(result_file_begin(&x, option, path));
    (void)result_file_end(&x, ERR_CANCELLED); /* nothing is kept */
    return OK;
}
