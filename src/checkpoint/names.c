/* Removing what is not needed of RUN/checkpoints. */
#include "checkpoint/names.h"

#include "base/steps.h"
#include "base/sys.h"
#include "checkpoint/files.h"

#include <stdio.h>

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

void names_prune(const char *dir, int64_t step, int keep)
{
    struct steps l;
    char path[CKPT_PATH], dead[CKPT_PATH];
    names_remove_dead(dir);
    if (steps_list(dir, &l) != OK) {
        printf("older checkpoints were not removed: %s; the next save tries again\n", status_message());
        return;
    }
    for (int i = 0; i < l.n; i++) {
        const struct step_dir *e = &l.dirs[i];
        if (e->form == STEP_PARTIAL || (e->form == STEP_FINAL && (e->step > step || keep-- > 0)))
            continue;
        if (ckpt_path(path, dir, e->name, "") != OK || ckpt_path(dead, dir, e->name, ".partial") != OK)
            continue;
        if (ckpt_rename(path, dead) == OK)
            ckpt_remove_dir(dead);
        else
            printf("an older checkpoint was not removed: %s; the next save tries again\n", status_message());
    }
    steps_free(&l);
}
