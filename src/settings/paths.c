/* Finding a run's settings, and the files that they name, from any directory and after the run was moved. */
#include "settings/paths.h"

#include "base/steps.h"
#include "base/sys.h"
#include "settings/read.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the file of settings ---- */

/* Opens a file unless it is empty or all blanks. Returns NULL with the reason in errno. */
static FILE *open_filled(const char *path)
{
    FILE *f = sys_read_text(path);
    int c = EOF;
    errno = f ? 0 : errno;
    while (f && (c = getc(f)) != EOF && strchr(" \t\r\n", c)) {
    }
    if (f && c == EOF) {
        int error = ferror(f) ? errno : ENODATA;
        fclose(f);
        errno = error;
        return NULL;
    }
    if (f)
        rewind(f);
    return f;
}

/* Tells whether config.yaml is gone or empty, so that only checkpoints still have its content. */
static int is_purged(int error)
{
    return error == ENOENT || error == ENODATA;
}

/* Opens the config.yaml of the first checkpoint that has one, in the order in which a resumed run tries checkpoints; *f NULL: no
 * checkpoint has one. */
static enum status open_checkpoints(const char *run, char **path, FILE **f)
{
    char dir[PATH_MAX], file[PATH_MAX + NAME_MAX + 16];
    struct steps steps;
    snprintf(dir, sizeof dir, "%s/checkpoints", run);
    TRY(steps_list(dir, &steps));
    for (const char *name; !*f && (name = steps_next(&steps));) {
        snprintf(file, sizeof file, "%s/%s/config.yaml", dir, name);
        *f = open_filled(file);
    }
    steps_free(&steps);
    char *named = *f ? strdup(file) : NULL;
    if (named) {
        free(*path);
        *path = named;
    }
    return OK;
}

/* Refuses a checkpoint's directory given as a run: it also has a config.yaml, but no checkpoints of its own. */
static enum status refuse_checkpoint(const char *dir)
{
    static const char inner[] = "/checkpoints/";
    char file[PATH_MAX];
    if (snprintf(file, sizeof file, "%s/manifest.json", dir) >= (int)sizeof file || sys_access(file, F_OK) != 0)
        return OK;
    const char *end = NULL;
    for (const char *next = strstr(dir, inner); next; next = strstr(next + 1, inner))
        end = next;
    return status_fail(
        ERR_INVALID,
        "--resume: %s is a checkpoint: a run goes on by its own directory, --resume %.*s, from the checkpoint whose name "
        "is in checkpoints/latest, which may be written there by hand",
        dir, end ? (int)(end - dir) : 3, end ? dir : "RUN");
}

enum status settings_open_run(const char *run, char **path, FILE **f)
{
    *f = NULL;
    *path = NULL;
    TRY(refuse_checkpoint(run));
    if (asprintf(path, "%s/config.yaml", run) < 0) {
        *path = NULL;
        return status_fail(ERR_NOMEM, "out of memory");
    }
    *f = open_filled(*path);
    int error = errno;
    if (!*f && is_purged(error))
        TRY(open_checkpoints(run, path, f));
    return *f ? OK
              : status_fail(ERR_INVALID, "cannot read %s (--resume): %s", *path,
                            error == ENODATA ? "it is empty" : sys_strerror(error));
}

enum status settings_run_is_purged(const char *run, int *purged)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/config.yaml", run);
    FILE *f = open_filled(path);
    *purged = !f && is_purged(errno);
    if (!f && !*purged)
        return status_fail(ERR_IO, "cannot read %s (--resume): %s", path, sys_strerror(errno));
    if (f)
        fclose(f);
    return OK;
}

/* ---- absolute paths ---- */

static int exists(const char *path)
{
    struct stat s;
    return sys_stat(path, &s) == 0;
}

/* Tells whether a file, a directory or a match of the glob exists. */
static int is_there(const char *path)
{
    glob_t g = {0};
    if (exists(path))
        return 1;
    int there = sys_glob(path, 0, &g) == 0;
    globfree(&g);
    return there;
}

/* Copies a directory's path. If a glob follows, puts a backslash before characters that have a meaning in globs. Returns 0 if the
 * copy does not fit. */
static int escape(const char *dir, int glob_follows, char *out, size_t bytes)
{
    size_t n = 0;
    for (; *dir && n + 2 < bytes; dir++) {
        if (glob_follows && strchr("*?[]\\", *dir))
            out[n++] = '\\';
        out[n++] = *dir;
    }
    out[n] = 0;
    return !*dir;
}

enum status settings_absolute_path(char **path)
{
    char here[PATH_MAX], dir[2 * PATH_MAX], *absolute;
    for (size_t n = *path ? strlen(*path) : 0; n > 1 && (*path)[n - 1] == '/'; n--)
        (*path)[n - 1] = 0;
    if (!*path || (*path)[0] == '/')
        return OK;
    if (!getcwd(here, sizeof here))
        return status_fail(ERR_IO, "cannot tell the working directory, which %s is relative to: %s", *path, strerror(errno));
    const char *rest = *path;
    while (rest[0] == '.' && rest[1] == '/')
        for (rest += 2; *rest == '/'; rest++) {
        }
    if (!escape(strcmp(here, "/") == 0 ? "" : here, !exists(*path), dir, sizeof dir) ||
        asprintf(&absolute, "%s%s%s", dir, rest[0] && strcmp(rest, ".") != 0 ? "/" : "", strcmp(rest, ".") != 0 ? rest : "") < 0)
        return status_fail(ERR_NOMEM, "out of memory");
    free(*path);
    *path = absolute;
    return OK;
}

int settings_weight(const char *item, size_t *length, double *weight)
{
    const char *equals = strrchr(item, '=');
    char *end;
    *length = strlen(item);
    if (!equals || equals == item || !strchr("+-.0123456789nNiI", equals[1]) || !equals[1] || exists(item))
        return 0;
    *weight = strtod(equals + 1, &end);
    if (*end)
        return 0;
    *length = (size_t)(equals - item);
    return 1;
}

/* Copies the path in an item of `data`, without the item's weight. */
static enum status path_of(const char *item, char **path, size_t *length)
{
    double weight;
    settings_weight(item, length, &weight);
    *path = strndup(item, *length);
    return *path ? OK : status_fail(ERR_NOMEM, "out of memory");
}

/* Replaces the path in an item of `data` by `path`, which is taken over and freed. */
static enum status put_path(char **item, char *path, size_t length)
{
    char *joined;
    int n = asprintf(&joined, "%s%s", path, *item + length);
    free(path);
    if (n < 0)
        return status_fail(ERR_NOMEM, "out of memory");
    free(*item);
    *item = joined;
    return OK;
}

static enum status data_absolute(struct string_list *list)
{
    for (int i = 0; i < list->n; i++) {
        size_t length;
        char *path;
        TRY(path_of(list->item[i], &path, &length));
        enum status st = settings_absolute_path(&path);
        if (st != OK) {
            free(path);
            return st;
        }
        TRY(put_path(&list->item[i], path, length));
    }
    return OK;
}

static enum status all_absolute(struct string_list *list)
{
    for (int i = 0; i < list->n; i++)
        TRY(settings_absolute_path(&list->item[i]));
    return OK;
}

enum status settings_absolute_paths(struct settings *s, int model_is_name)
{
    TRY(model_is_name ? OK : settings_absolute_path(&s->model));
    if (s->adapter)
        TRY(settings_absolute_path(&s->adapter));
    if (s->tokenizer && strcmp(s->tokenizer, "bytes") != 0)
        TRY(settings_absolute_path(&s->tokenizer));
    if (s->token_cache)
        TRY(settings_absolute_path(&s->token_cache));
    if (s->chat_template && strchr(s->chat_template, '/'))
        TRY(settings_absolute_path(&s->chat_template));
    if (s->observed && strcmp(s->observed, "auto") != 0 && strcmp(s->observed, "no") != 0)
        TRY(settings_absolute_path(&s->observed));
    if (s->metrics_file)
        TRY(settings_absolute_path(&s->metrics_file));
    TRY(data_absolute(&s->data));
    TRY(all_absolute(&s->eval_data));
    return all_absolute(&s->nvme_path);
}

/* ---- a run that has moved ---- */

/* Finds the lengths of two absolute paths after their equal last components are cut off. */
static void cut_equal_ends(const char *a, const char *b, size_t *na, size_t *nb)
{
    *na = strlen(a);
    *nb = strlen(b);
    for (;;) {
        size_t i = *na, j = *nb;
        while (i > 0 && a[i - 1] != '/')
            i--;
        while (j > 0 && b[j - 1] != '/')
            j--;
        if (i == 0 || j == 0 || *na - i != *nb - j || memcmp(a + i, b + j, *na - i) != 0)
            return;
        *na = i - 1;
        *nb = j - 1;
    }
}

/* Returns the part of the path behind the directory; NULL if the path does not lie below it. */
static const char *below(const char *path, const char *dir, size_t n)
{
    return strncmp(path, dir, n) == 0 && path[n] == '/' ? path + n : NULL;
}

/* Replaces the directory `from` at the beginning of a path by `to`, if nothing exists at the path and something at the new one.
 * from, to: each plain, and escaped for globs. */
static enum status move(char **path, char from[2][2 * PATH_MAX], char to[2][2 * PATH_MAX])
{
    if (!*path || is_there(*path))
        return OK;
    for (int k = 0; k < 2; k++) {
        char *moved;
        const char *rest = below(*path, from[k], strlen(from[k]));
        if (!rest)
            continue;
        if (asprintf(&moved, "%s%s", to[k], rest) < 0)
            return status_fail(ERR_NOMEM, "out of memory");
        if (is_there(moved)) {
            free(*path);
            *path = moved;
            return OK;
        }
        free(moved);
    }
    return OK;
}

/* Finds a moved run's former and present directory, less the last components that are equal. Returns 0 if the run did not move,
 * or its former place is unknown. */
static int find_move(const char *out, const char *run, char from[2][2 * PATH_MAX], char to[2][2 * PATH_MAX])
{
    char was[PATH_MAX], *now = sys_realpath(run);
    size_t n_was, n_now;
    int moved = now && out && out[0] == '/' && strlen(out) < sizeof was && strcmp(out, now) != 0;
    if (moved) {
        strcpy(was, out);
        cut_equal_ends(was, now, &n_was, &n_now);
        was[n_was] = now[n_now] = 0;
        for (int k = 0; k < 2 && moved; k++)
            moved = escape(was, k, from[k], sizeof from[k]) && escape(now, k, to[k], sizeof to[k]);
    }
    free(now);
    return moved;
}

enum status settings_move_paths(struct settings *s, const char *run)
{
    struct string_list *const lists[] = {&s->eval_data, &s->nvme_path};
    char from[2][2 * PATH_MAX], to[2][2 * PATH_MAX];
    if (!find_move(s->out, run, from, to))
        return OK;
    TRY(move(&s->model, from, to));
    if (s->adapter)
        TRY(move(&s->adapter, from, to));
    if (s->tokenizer)
        TRY(move(&s->tokenizer, from, to));
    if (s->chat_template)
        TRY(move(&s->chat_template, from, to));
    for (int i = 0; i < s->data.n; i++) {
        size_t length;
        char *path;
        TRY(path_of(s->data.item[i], &path, &length));
        enum status st = move(&path, from, to);
        if (st != OK) {
            free(path);
            return st;
        }
        TRY(put_path(&s->data.item[i], path, length));
    }
    for (int l = 0; l < 2; l++)
        for (int i = 0; i < lists[l]->n; i++)
            TRY(move(&lists[l]->item[i], from, to));
    return OK;
}
