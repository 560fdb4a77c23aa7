/* Names of checkpoints, parsed and ordered. */
#include "base/steps.h"

#include "base/sys.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Parses a checkpoint's name; returns 0 for other names. */
static int parse(const char *name, struct step_dir *d)
{
    static const struct {
        const char *suffix;
        enum step_form form;
    } forms[] = {{"", STEP_FINAL}, {".old", STEP_OLD}, {".partial", STEP_PARTIAL}, {".old.partial", STEP_PARTIAL}};
    long long step;
    int used = 0;
    if (strlen(name) >= sizeof d->name || sscanf(name, "step-%lld%n", &step, &used) != 1 || step < 0)
        return 0;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (strcmp(name + used, forms[i].suffix) == 0) {
            *d = (struct step_dir){.step = step, .form = forms[i].form};
            strcpy(d->name, name);
            return 1;
        }
    return 0;
}

static int compare(const void *a, const void *b)
{
    const struct step_dir *x = a, *y = b;
    if (x->step != y->step)
        return x->step > y->step ? -1 : 1;
    return (int)x->form - (int)y->form;
}

static enum status add(struct steps *s, const struct step_dir *d)
{
    struct step_dir *more = sys_realloc(s->dirs, sizeof *d * ((size_t)s->n + 1));
    if (!more)
        return status_fail(ERR_NOMEM, "out of memory: a list of checkpoints");
    s->dirs = more;
    s->dirs[s->n++] = *d;
    return OK;
}

/* Reads the checkpoint's name and step in the file `latest`; "" if the file cannot be read or names no checkpoint: the newest one
 * is tried then. */
static void read_latest(const char *dir, char name[48], int64_t *step)
{
    char path[PATH_MAX], text[64] = "";
    struct step_dir d;
    FILE *f = snprintf(path, sizeof path, "%s/latest", dir) < PATH_MAX ? sys_read_text(path) : NULL;
    name[0] = 0;
    if (!f)
        return;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    text[strcspn(text, "\n")] = 0;
    if (parse(text, &d) && d.form == STEP_FINAL) {
        strcpy(name, text);
        *step = d.step;
    }
}

enum status steps_list(const char *dir, struct steps *out)
{
    *out = (struct steps){.next = -1};
    DIR *d = sys_opendir(dir);
    if (!d)
        return errno == ENOENT ? OK : status_fail(ERR_IO, "cannot read the directory %s: %s", dir, strerror(errno));
    struct step_dir one;
    enum status st = OK;
    for (struct dirent *e; st == OK && (e = sys_readdir(d));)
        if (parse(e->d_name, &one))
            st = add(out, &one);
    if (st == OK && errno)
        st = status_fail(ERR_IO, "cannot read the directory %s: %s", dir, strerror(errno));
    closedir(d);
    if (st != OK) {
        steps_free(out);
        return st;
    }
    if (out->n)
        qsort(out->dirs, (size_t)out->n, sizeof one, compare);
    read_latest(dir, out->latest, &out->latest_step);
    return OK;
}

void steps_free(struct steps *s)
{
    free(s->dirs);
    s->dirs = NULL;
    s->n = 0;
}

const char *steps_next(struct steps *s)
{
    if (s->next < 0) {
        s->next = 0;
        if (s->latest[0])
            return s->latest;
    }
    while (s->next < s->n) {
        const struct step_dir *d = &s->dirs[s->next++];
        if (d->form != STEP_PARTIAL && strcmp(d->name, s->latest) != 0)
            return d->name;
    }
    return NULL;
}
