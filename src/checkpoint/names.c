/* The directories and the name `latest` in RUN/checkpoints: which there are, and removing what is not needed. */
#include "checkpoint/names.h"

#include "base/sys.h"
#include "checkpoint/files.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* 1 if the name is one of a checkpoint's. */
static int names_parse(const char *name, struct ckpt_entry *e)
{
    static const struct {
        const char *suffix;
        enum form form;
    } forms[] = {{"", FORM_FINAL}, {".old", FORM_OLD}, {".partial", FORM_PARTIAL}, {".old.partial", FORM_PARTIAL}};
    long long step;
    int used = 0;
    if (strlen(name) >= sizeof e->name || sscanf(name, "step-%lld%n", &step, &used) != 1 || step < 0)
        return 0;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (strcmp(name + used, forms[i].suffix) == 0) {
            *e = (struct ckpt_entry){.step = step, .form = forms[i].form};
            strcpy(e->name, name);
            return 1;
        }
    return 0;
}

static int compare_entries(const void *a, const void *b)
{
    const struct ckpt_entry *x = a, *y = b;
    if (x->step != y->step)
        return x->step > y->step ? -1 : 1;
    return (int)x->form - (int)y->form;
}

enum status names_list(const char *dir, struct ckpt_listing *l)
{
    *l = (struct ckpt_listing){NULL, 0};
    DIR *d = sys_opendir(dir);
    if (!d)
        return errno == ENOENT ? OK : status_fail(ERR_IO, "cannot read the directory %s: %s", dir, strerror(errno));
    struct ckpt_entry e;
    for (struct dirent *x; (x = sys_readdir(d));) {
        if (!names_parse(x->d_name, &e))
            continue;
        struct ckpt_entry *more = sys_realloc(l->entries, sizeof e * ((size_t)l->n + 1));
        if (!more) {
            free(l->entries);
            closedir(d);
            return status_fail(ERR_NOMEM, "out of memory: a list of checkpoints");
        }
        l->entries = more;
        l->entries[l->n++] = e;
    }
    int error = errno;
    closedir(d);
    if (error) {
        free(l->entries);
        *l = (struct ckpt_listing){NULL, 0};
        return status_fail(ERR_IO, "cannot read the directory %s: %s", dir, strerror(error));
    }
    if (l->n)
        qsort(l->entries, (size_t)l->n, sizeof e, compare_entries);
    return OK;
}

enum status names_read_latest(const char *dir, char name[48])
{
    char path[CKPT_PATH], *text;
    struct ckpt_entry e;
    name[0] = 0;
    TRY(ckpt_path(path, dir, "latest", ""));
    enum status st = ckpt_read_text(path, CKPT_SMALL_TEXT, &text);
    if (st != OK)
        return st == ERR_NOMEM ? st : OK;
    text[strcspn(text, "\n")] = 0;
    if (names_parse(text, &e) && e.form == FORM_FINAL)
        strcpy(name, text);
    free(text);
    return OK;
}

void names_remove_dead(const char *dir)
{
    struct ckpt_listing l;
    char path[CKPT_PATH];
    if (names_list(dir, &l) != OK)
        return;
    for (int i = 0; i < l.n; i++)
        if (l.entries[i].form == FORM_PARTIAL && ckpt_path(path, dir, l.entries[i].name, "") == OK)
            ckpt_remove_dir(path);
    free(l.entries);
}

void names_prune(const char *dir, int64_t step, int keep)
{
    struct ckpt_listing l;
    char path[CKPT_PATH], dead[CKPT_PATH];
    names_remove_dead(dir);
    if (names_list(dir, &l) != OK)
        return;
    for (int i = 0; i < l.n; i++) {
        const struct ckpt_entry *e = &l.entries[i];
        if (e->form == FORM_PARTIAL || (e->form == FORM_FINAL && (e->step > step || keep-- > 0)))
            continue;
        if (ckpt_path(path, dir, e->name, "") == OK && ckpt_path(dead, dir, e->name, ".partial") == OK &&
            sys_rename(path, dead) == 0)
            ckpt_remove_dir(dead);
    }
    free(l.entries);
}
