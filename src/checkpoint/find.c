/* Finding a run's newest whole checkpoint, by all ranks together: rank 0 looks at names, all ranks hash. */
#include "checkpoint/checkpoint.h"

#include "base/steps.h"
#include "base/sys.h"
#include "checkpoint/files.h"
#include "checkpoint/lineage.h"
#include "checkpoint/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Rank 0's choice, sent to all ranks. */
struct choice {
    char name[48];     /* "" if there is none */
    int32_t by_latest; /* 1: a valid `latest` exists */
    int32_t strays;    /* enum stray */
};

/* Tells whether a checkpoint is that of `latest` or one of its ancestors. */
enum stray { IS_NO_STRAY, IS_STRAY, MAY_BE_STRAY /* the manifest of `latest` is unreadable, and the run has several branches */ };

/* A run's checkpoints in the order in which they are tried. */
struct candidates {
    struct steps steps;
    int branches;
};

/* Chooses the next checkpoint by rank 0's list of the directory; the other ranks' lists are empty. */
static enum status choose(struct comm *c, const char *dir, struct candidates *all, struct choice *out)
{
    memset(out, 0, sizeof *out);
    if (comm_rank(c) == 0) {
        const char *latest = all->steps.latest, *name = steps_next(&all->steps);
        strcpy(out->name, name ? name : "");
        out->by_latest = latest[0] != 0;
        if (name && out->by_latest)
            out->strays = !lineage_leads_to(dir, latest, name)                  ? IS_STRAY
                          : all->branches > 1 && !lineage_is_known(dir, latest) ? MAY_BE_STRAY
                                                                                : IS_NO_STRAY;
    }
    return comm_broadcast(c, 0, out, sizeof *out);
}

/* Fails with the reason why a run has no checkpoint; never OK. dir: checkpoints/ of a run, which may have ended without one. */
static enum status say_none(const char *dir)
{
    const int run = (int)(strlen(dir) - strlen("/checkpoints"));
    char model[CKPT_PATH];
    if (snprintf(model, sizeof model, "%.*s/hf", run, dir) < (int)sizeof model && sys_access(model, F_OK) == 0)
        return status_fail(
            ERR_INVALID,
            "%s has no checkpoint: the run ended without --save-every; --model %.*s begins a new run (--out) with the "
            "model that it has made, without its moments",
            dir, run, dir);
    return status_fail(ERR_INVALID,
                       "%s has no checkpoint: a run saves every --save-every steps, and when ^C or SIGTERM ends it; the same "
                       "options with --out instead of --resume start it anew",
                       dir);
}

/* Searches for the first whole checkpoint. why: the fault of the first damaged one, or "". */
static enum status search(struct comm *c, const char *dir, struct candidates *all, struct choice *choice, char path[CKPT_PATH],
                          struct checkpoint_info *info, char why[512])
{
    struct manifest m;
    why[0] = 0;
    for (;;) {
        TRY(choose(c, dir, all, choice));
        if (!choice->name[0])
            break;
        enum status st = ckpt_path(path, dir, choice->name, "");
        if (st == OK)
            st = manifest_open(c, path, &m);
        if (st == OK)
            *info = m.info;
        if (st == OK || st == ERR_NOMEM || comm_broken(c))
            return st;
        if (!why[0])
            snprintf(why, 512, "%s", status_message());
    }
    if (why[0])
        return status_fail(ERR_INVALID, "%s has no whole checkpoint: %s", dir, why);
    return say_none(dir);
}

static enum status list_in_order(const char *dir, struct candidates *out)
{
    TRY(steps_list(dir, &out->steps));
    enum status st = lineage_sort(dir, DAMAGED_FIRST, &out->steps, &out->branches);
    if (st != OK)
        steps_free(&out->steps);
    return st;
}

/* Writes RUN/checkpoints, and makes sure that every name below it fits, so that no rank fails alone later. */
static enum status make_dir_path(char dir[CKPT_PATH], const char *run, int path_size)
{
    TRY(ckpt_path(dir, run, "checkpoints", ""));
    if (strlen(dir) + 128 > CKPT_PATH || (int)(strlen(dir) + sizeof(struct choice)) > path_size)
        return status_fail(ERR_INVALID, "%.64s...: the path is too long", dir);
    return OK;
}

enum status checkpoint_find(struct comm *c, const char *run, char *path, int path_size, struct checkpoint_info *info, char *note,
                            int note_size)
{
    char dir[CKPT_PATH], found[CKPT_PATH], why[512];
    static const char *const remarks[] = {
        [IS_NO_STRAY] = "",
        [IS_STRAY] = ", of another branch of the run: none is left of the steps that led to the damaged one",
        [MAY_BE_STRAY] = ", perhaps of another branch of the run: what led to the damaged one is not known"};
    struct candidates all = {.branches = 0};
    struct choice choice;
    enum status st = make_dir_path(dir, run, path_size);
    if (st == OK && comm_rank(c) == 0)
        st = list_in_order(dir, &all);
    st = comm_agree(c, st);
    if (st == OK)
        st = search(c, dir, &all, &choice, found, info, why);
    steps_free(&all.steps);
    TRY(st);
    snprintf(path, (size_t)path_size, "%s", found);
    note[0] = 0;
    if (why[0])
        snprintf(note, (size_t)note_size, "%s; taking %s instead%s", why, choice.name, remarks[choice.strays]);
    else if (!choice.by_latest)
        snprintf(note, (size_t)note_size, "%s/latest is missing or damaged; taking %s, the newest that is whole", dir,
                 choice.name);
    return OK;
}

static int same_steps(const struct steps *a, const struct steps *b)
{
    int same = a->n == b->n && strcmp(a->latest, b->latest) == 0;
    for (int i = 0; i < a->n && same; i++)
        same = strcmp(a->dirs[i].name, b->dirs[i].name) == 0;
    return same;
}

/* Finds the first listed checkpoint that has a config.json. ERR_INVALID: none has. ERR_IO: one may have it. */
static enum status first_of(const char *dir, struct steps *steps, char found[CKPT_PATH])
{
    char config[CKPT_PATH], why[512] = "";
    int64_t bytes;
    enum status st = ERR_INVALID;
    for (const char *name; st != OK && (name = steps_next(steps));) {
        st = ckpt_path(found, dir, name, "");
        if (st == OK)
            st = ckpt_path(config, found, ckpt_file_names[CKPT_CONFIG], "");
        if (st == OK)
            st = ckpt_size(config, &bytes);
        if (st == ERR_IO) /* the file may be there */
            snprintf(why, sizeof why, "%s", status_message());
    }
    return st == OK ? OK : why[0] ? status_fail(ERR_IO, "%s", why) : status_fail(ERR_INVALID, "%s has no checkpoint", dir);
}

/* Looks again until two lists agree that there is no checkpoint: a running run may have replaced all listed ones before they are
 * looked at. */
enum status checkpoint_newest(const char *run, char *path, int path_size)
{
    char dir[CKPT_PATH], found[CKPT_PATH];
    struct steps before = {.n = 0};
    struct candidates all = {.branches = 0};
    enum status st;
    TRY(make_dir_path(dir, run, path_size));
    do {
        steps_free(&before);
        before = all.steps;
        st = list_in_order(dir, &all);
        if (st == OK)
            st = first_of(dir, &all.steps, found);
    } while (st == ERR_INVALID && !same_steps(&before, &all.steps));
    steps_free(&before);
    steps_free(&all.steps);
    TRY(st);
    snprintf(path, (size_t)path_size, "%s", found);
    return OK;
}

enum status checkpoint_before(const char *run, int64_t step, char *path, int path_size)
{
    char dir[CKPT_PATH];
    struct steps steps = {.n = 0};
    int branches;
    TRY(make_dir_path(dir, run, path_size));
    TRY(steps_list(dir, &steps));
    enum status st = lineage_sort(dir, DAMAGED_LAST, &steps, &branches);
    path[0] = 0;
    for (int i = 0; i < steps.n && st == OK && !path[0]; i++)
        if (steps.dirs[i].form != STEP_PARTIAL && steps.dirs[i].step < step &&
            lineage_leads_to(dir, steps.dirs[0].name, steps.dirs[i].name))
            snprintf(path, (size_t)path_size, "%s/%s", dir, steps.dirs[i].name);
    steps_free(&steps);
    return st;
}

int checkpoint_count(const char *run, int64_t *step)
{
    char dir[CKPT_PATH];
    struct steps l;
    int n = 0;
    *step = 0;
    if (ckpt_path(dir, run, "checkpoints", "") != OK || steps_list(dir, &l) != OK)
        return 0;
    for (int i = 0; i < l.n; i++)
        if (l.dirs[i].form == STEP_FINAL && n++ == 0)
            *step = l.dirs[i].step;
    steps_free(&l);
    return n;
}
