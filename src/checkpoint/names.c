/* Removing unneeded directories of RUN/checkpoints. */
#include "checkpoint/names.h"

#include "base/steps.h"
#include "base/sys.h"
#include "base/tell.h"
#include "checkpoint/files.h"
#include "checkpoint/lineage.h"

#include <stdio.h>
#include <stdlib.h>

void names_remove_dead(const char *dir)
{
    struct steps l;
    char path[CKPT_PATH];
    if (steps_list(dir, &l) != OK)
        return;
    for (int i = 0; i < l.n; i++)
        if (l.dirs[i].form == STEP_PARTIAL && ckpt_path(path, dir, l.dirs[i].name, "") == OK)
            ckpt_remove_dir(path);
    steps_free(&l);
}

/* Marks the checkpoints that stay: the last save, later steps, and then others in the list's order, which has the run's branch
 * first, until there are `keep`. */
static void choose_kept(const struct steps *l, int64_t step, int keep, char *kept)
{
    keep--;
    for (int i = 0; i < l->n; i++) {
        const struct step_dir *e = &l->dirs[i];
        kept[i] = e->form == STEP_PARTIAL || (e->form == STEP_FINAL && (e->step >= step || keep-- > 0));
    }
}

static void remove_rest(const char *dir, const struct steps *l, const char *kept)
{
    char path[CKPT_PATH], dead[CKPT_PATH];
    for (int i = 0; i < l->n; i++) {
        const char *name = l->dirs[i].name;
        if (kept[i] || ckpt_path(path, dir, name, "") != OK || ckpt_path(dead, dir, name, ".partial") != OK)
            continue;
        if (ckpt_rename(path, dead) == OK)
            ckpt_remove_dir(dead);
        else
            tell("an older checkpoint was not removed: %s; the next save tries again\n", status_message());
    }
}

void names_prune(const char *dir, int64_t step, int keep)
{
    struct steps l;
    int branches;
    names_remove_dead(dir);
    enum status st = steps_list(dir, &l);
    if (st == OK)
        st = lineage_sort(dir, DAMAGED_LAST, &l, &branches);
    char *kept = st == OK ? sys_calloc((size_t)l.n + 1, 1) : NULL;
    if (kept) {
        choose_kept(&l, step, keep, kept);
        remove_rest(dir, &l, kept);
    } else {
        tell("older checkpoints were not removed: %s; the next save tries again\n",
             st == OK ? "out of memory" : status_message());
    }
    free(kept);
    steps_free(&l);
}
