/* Saving, finding, loading and pruning whole checkpoints; streams of state are in checkpoint_state.c.
 *
 * Names in RUN/checkpoints, N = step, and who makes them:
 *   step-N.partial   being written by checkpoint_save, or being removed by prune (step-N.old.partial too): never read
 *   step-N           whole: save's rename of step-N.partial, after everything in it was synced
 *   step-N.old       whole: the former step-N while save puts its successor in place; read if step-N is missing, removed by prune
 *   latest           written as latest.partial, synced, renamed
 * Invariants: 1. what has a final name was synced before it got it; 2. what `latest` names is removed only after `latest` names
 * another, or moved aside as .old, which checkpoint_find reads too; 3. removal renames to .partial first, so that a half-removed
 * directory is never read. */
#include "engine/checkpoint.h"

#include "base/sys.h"
#include "base/units.h"
#include "engine/checkpoint_files.h"
#include "engine/checkpoint_manifest.h"
#include "engine/checkpoint_state.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- what lies in the directory ---- */

enum form { FORM_FINAL, FORM_OLD, FORM_PARTIAL };

struct entry {
    char name[48];
    int64_t step;
    enum form form;
};

struct listing {
    struct entry *entries; /* newest step first; of one step, the final one first */
    int n;
};

static int parse_name(const char *name, struct entry *e)
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
            *e = (struct entry){.step = step, .form = forms[i].form};
            strcpy(e->name, name);
            return 1;
        }
    return 0;
}

static int compare_entries(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->step != y->step)
        return x->step > y->step ? -1 : 1;
    return (int)x->form - (int)y->form;
}

/* Free l->entries. A directory that does not exist is empty. */
static enum status list(const char *dir, struct listing *l)
{
    *l = (struct listing){NULL, 0};
    DIR *d = opendir(dir);
    if (!d)
        return errno == ENOENT ? OK : status_fail(ERR_IO, "cannot read the directory %s: %s", dir, strerror(errno));
    struct entry e;
    for (struct dirent *x; (x = readdir(d));) {
        if (!parse_name(x->d_name, &e))
            continue;
        struct entry *more = realloc(l->entries, sizeof e * ((size_t)l->n + 1));
        if (!more) {
            free(l->entries);
            closedir(d);
            return status_fail(ERR_NOMEM, "out of memory: a list of checkpoints");
        }
        l->entries = more;
        l->entries[l->n++] = e;
    }
    closedir(d);
    if (l->n)
        qsort(l->entries, (size_t)l->n, sizeof e, compare_entries);
    return OK;
}

/* ---- saving ---- */

static enum status check_space(struct session *s, const char *dir)
{
    int64_t free_bytes, need = state_bytes(s) + (1 << 20);
    char have[32], want[32];
    if (sys_statvfs_free(dir, &free_bytes) != 0 || free_bytes >= need)
        return OK; /* if it cannot be asked, writing will tell */
    return status_fail(ERR_IO, "a checkpoint needs %s, and %s has %s free; free some, or keep fewer checkpoints",
                       units_format_bytes(need, want), dir, units_format_bytes(free_bytes, have));
}

/* Everything in `dir` written and synced, the manifest last. */
static enum status write_files(struct session *s, const char *dir, const struct checkpoint_info *info)
{
    struct manifest m = {.info = *info};
    char path[CKPT_FILES][CKPT_PATH];
    for (int i = 0; i < CKPT_FILES; i++)
        TRY(ckpt_path(path[i], dir, ckpt_file_names[i], ""));
    TRY(state_write_model(s, path[CKPT_MODEL], &m.files[CKPT_MODEL].xxh3));
    TRY(state_write_optimizer(s, path[CKPT_OPTIMIZER], &m.files[CKPT_OPTIMIZER].xxh3));
    TRY(model_config_write(dir, &s->model->config, s->plan->strategy.dtype));
    TRY(ckpt_hash(path[CKPT_CONFIG], &m.files[CKPT_CONFIG].xxh3));
    for (int i = 0; i < CKPT_FILES; i++)
        TRY(ckpt_size(path[i], &m.files[i].bytes));
    TRY(manifest_write(dir, &m, s->model, s->plan->strategy.dtype));
    return ckpt_sync_dir(dir);
}

/* Gives a whole partial directory its final name. One of the same step (a save cut off before `latest`, then trained again) steps
 * aside first. */
static enum status put_in_place(const char *partial, const char *final, const char *old)
{
    struct stat x;
    int replaces = stat(final, &x) == 0;
    if (replaces) {
        ckpt_remove_dir(old); /* final has that name because it is whole: an older .old is not needed */
        TRY(ckpt_rename(final, old));
    }
    enum status st = ckpt_rename(partial, final);
    if (st != OK && replaces)
        sys_rename(old, final); /* else it is found as .old */
    return st;
}

static enum status write_latest(const char *dir, const char *name)
{
    char path[CKPT_PATH], partial[CKPT_PATH], text[64];
    TRY(ckpt_path(path, dir, "latest", ""));
    TRY(ckpt_path(partial, dir, "latest", ".partial"));
    snprintf(text, sizeof text, "%s\n", name);
    TRY(ckpt_write_text(partial, text));
    TRY(ckpt_rename(partial, path));
    return ckpt_sync_dir(dir);
}

/* Removes dead directories and all but the last `keep` up to `step`. Later ones are of a longer run that was not resumed at its
 * end: left alone until this one has passed them. What cannot be removed now is tried again at the next save. */
static void prune(const char *dir, int64_t step, int keep)
{
    struct listing l;
    char path[CKPT_PATH], dead[CKPT_PATH];
    if (list(dir, &l) != OK)
        return;
    for (int i = 0; i < l.n; i++)
        if (l.entries[i].form == FORM_PARTIAL && ckpt_path(path, dir, l.entries[i].name, "") == OK)
            ckpt_remove_dir(path);
    for (int i = 0; i < l.n; i++) {
        const struct entry *e = &l.entries[i];
        if (e->form == FORM_PARTIAL || (e->form == FORM_FINAL && (e->step > step || keep-- > 0)))
            continue;
        if (ckpt_path(path, dir, e->name, "") == OK && ckpt_path(dead, dir, e->name, ".partial") == OK &&
            sys_rename(path, dead) == 0)
            ckpt_remove_dir(dead);
    }
    free(l.entries);
}

enum status checkpoint_save(struct session *s, const char *run, const struct checkpoint_info *info, int keep)
{
    char dir[CKPT_PATH], name[48], partial[CKPT_PATH], final[CKPT_PATH], old[CKPT_PATH];
    snprintf(name, sizeof name, "step-%06lld", (long long)info->step);
    TRY(ckpt_path(dir, run, "checkpoints", ""));
    TRY(ckpt_path(final, dir, name, ""));
    TRY(ckpt_path(old, dir, name, ".old"));
    TRY(ckpt_path(partial, dir, name, ".partial"));
    TRY(ckpt_make_dir(run));
    TRY(ckpt_make_dir(dir));
    TRY(ckpt_sync_dir(run));
    TRY(check_space(s, dir));
    ckpt_remove_dir(partial);
    TRY(ckpt_make_dir(partial));
    enum status st = write_files(s, partial, info);
    if (st == OK)
        st = put_in_place(partial, final, old);
    if (st != OK) {
        ckpt_remove_dir(partial);
        return st;
    }
    TRY(ckpt_sync_dir(dir));
    TRY(write_latest(dir, name));
    prune(dir, info->step, keep);
    return OK;
}

/* ---- finding ---- */

/* The name in `latest` if there is a sensible one, else "". */
static enum status read_latest(const char *dir, char name[48])
{
    char path[CKPT_PATH], *text;
    struct entry e;
    name[0] = 0;
    TRY(ckpt_path(path, dir, "latest", ""));
    enum status st = ckpt_read_text(path, &text);
    if (st != OK)
        return st == ERR_NOMEM ? st : OK;
    text[strcspn(text, "\n")] = 0;
    if (parse_name(text, &e) && e.form == FORM_FINAL)
        strcpy(name, text);
    free(text);
    return OK;
}

static enum status examine(const char *dir, const char *name, char path[CKPT_PATH], struct checkpoint_info *info)
{
    struct manifest m;
    TRY(ckpt_path(path, dir, name, ""));
    TRY(manifest_read(path, &m));
    TRY(manifest_verify(path, &m));
    *info = m.info;
    return OK;
}

/* The first whole one: what `latest` names, then the others from the newest on. why: what was wrong with the first damaged one.
 */
static enum status search(const char *dir, const struct listing *l, const char *latest, char path[CKPT_PATH], char name[48],
                          struct checkpoint_info *info, char why[512])
{
    why[0] = 0;
    for (int i = latest[0] ? -1 : 0; i < l->n; i++) {
        const char *candidate = i < 0 ? latest : l->entries[i].name;
        if (i >= 0 && (l->entries[i].form == FORM_PARTIAL || strcmp(candidate, latest) == 0))
            continue;
        enum status st = examine(dir, candidate, path, info);
        if (st == OK)
            strcpy(name, candidate);
        if (st == OK || st == ERR_NOMEM)
            return st;
        if (!why[0])
            snprintf(why, 512, "%s", status_message());
    }
    if (why[0])
        return status_fail(ERR_INVALID, "%s has no whole checkpoint: %s", dir, why);
    return status_fail(ERR_INVALID, "%s has no checkpoint; was it saved by a run with this --out?", dir);
}

enum status checkpoint_find(const char *run, char *path, int path_size, struct checkpoint_info *info, char *note, int note_size)
{
    char dir[CKPT_PATH], latest[48], name[48] = "", found[CKPT_PATH], why[512];
    struct listing l;
    TRY(ckpt_path(dir, run, "checkpoints", ""));
    TRY(read_latest(dir, latest));
    TRY(list(dir, &l));
    enum status st = search(dir, &l, latest, found, name, info, why);
    free(l.entries);
    TRY(st);
    if (snprintf(path, (size_t)path_size, "%s", found) >= path_size)
        return status_fail(ERR_INVALID, "%.64s...: the path is too long", found);
    note[0] = 0;
    if (why[0])
        snprintf(note, (size_t)note_size, "%s; taking %s instead", why, name);
    else if (!latest[0])
        snprintf(note, (size_t)note_size, "%s/latest is missing or damaged; taking %s, the newest that is whole", dir, name);
    return OK;
}

/* ---- loading ---- */

enum status checkpoint_load(struct session *s, const char *path)
{
    struct manifest m;
    TRY(manifest_read(path, &m));
    TRY(manifest_verify(path, &m));
    return state_read(s, path);
}

/* ---- exporting ---- */

enum status checkpoint_export(struct session *s, const char *dir)
{
    static const char *const names[] = {"model.safetensors", "config.json"};
    char partial[CKPT_PATH], from[CKPT_PATH], to[CKPT_PATH];
    enum status st;
    TRY(ckpt_path(partial, dir, "export.partial", ""));
    TRY(ckpt_make_dir(dir));
    ckpt_remove_dir(partial);
    TRY(ckpt_make_dir(partial));
    TRY_GOTO(ckpt_path(from, partial, names[0], ""), out);
    TRY_GOTO(state_write_model(s, from, NULL), out);
    TRY_GOTO(model_config_write(partial, &s->model->config, s->plan->strategy.dtype), out);
    for (int i = 0; i < 2; i++) {
        TRY_GOTO(ckpt_path(from, partial, names[i], ""), out);
        TRY_GOTO(ckpt_path(to, dir, names[i], ""), out);
        TRY_GOTO(ckpt_rename(from, to), out);
    }
    st = ckpt_sync_dir(dir);
out:
    ckpt_remove_dir(partial);
    return st;
}
