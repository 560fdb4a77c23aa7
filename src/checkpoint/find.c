/* Finding a run's newest whole checkpoint, by all ranks together: rank 0 looks at names, all of them hash. */
#include "checkpoint/checkpoint.h"

#include "checkpoint/files.h"
#include "checkpoint/manifest.h"
#include "checkpoint/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What rank 0 knows of the directory; the others' stay empty. */
struct candidates {
    char latest[48];
    struct ckpt_listing list;
    int next; /* -1: what `latest` names */
};

static enum status look(const char *dir, struct candidates *k)
{
    TRY(names_read_latest(dir, k->latest));
    k->next = k->latest[0] ? -1 : 0;
    return names_list(dir, &k->list);
}

/* From rank 0 to all. */
struct choice {
    char name[48];     /* "" if there is none */
    int32_t by_latest; /* there is a sensible `latest` */
};

/* What `latest` names, then the others from the newest on. */
static enum status choose(struct comm *c, struct candidates *k, struct choice *out)
{
    memset(out, 0, sizeof *out);
    if (comm_rank(c) == 0) {
        const struct ckpt_entry *e = k->list.entries;
        while (k->next >= 0 && k->next < k->list.n &&
               (e[k->next].form == FORM_PARTIAL || strcmp(e[k->next].name, k->latest) == 0))
            k->next++;
        if (k->next < k->list.n)
            strcpy(out->name, k->next < 0 ? k->latest : e[k->next].name);
        out->by_latest = k->latest[0] != 0;
        k->next++;
    }
    return comm_broadcast(c, 0, out, sizeof *out);
}

/* The first whole one. why: what was wrong with the first damaged one. */
static enum status search(struct comm *c, const char *dir, struct candidates *k, struct choice *choice, char path[CKPT_PATH],
                          struct checkpoint_info *info, char why[512])
{
    struct manifest m;
    why[0] = 0;
    for (;;) {
        TRY(choose(c, k, choice));
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
    return status_fail(ERR_INVALID, "%s has no checkpoint: a run saves every --save-every steps, and when ^C or SIGTERM ends it; the same "
                       "options with --out instead of --resume start it anew",
                       dir);
}

/* Room for every name below it, so that no rank fails alone later. */
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
    struct candidates k = {.next = 0};
    struct choice choice;
    enum status st = make_dir_path(dir, run, path_size);
    if (st == OK && comm_rank(c) == 0)
        st = look(dir, &k);
    st = comm_agree(c, st);
    if (st == OK)
        st = search(c, dir, &k, &choice, found, info, why);
    free(k.list.entries);
    TRY(st);
    snprintf(path, (size_t)path_size, "%s", found);
    note[0] = 0;
    if (why[0])
        snprintf(note, (size_t)note_size, "%s; taking %s instead", why, choice.name);
    else if (!choice.by_latest)
        snprintf(note, (size_t)note_size, "%s/latest is missing or damaged; taking %s, the newest that is whole", dir,
                 choice.name);
    return OK;
}

enum status checkpoint_newest(const char *run, char *path, int path_size)
{
    char dir[CKPT_PATH], found[CKPT_PATH], config[CKPT_PATH];
    struct candidates k = {.next = 0};
    int64_t bytes;
    TRY(make_dir_path(dir, run, path_size));
    char why[512] = ""; /* a checkpoint could not be looked at */
    enum status st = look(dir, &k);
    for (int i = k.latest[0] ? -1 : 0; st == OK && i < k.list.n; i++) {
        const char *name = i < 0 ? k.latest : k.list.entries[i].name;
        if ((i >= 0 && k.list.entries[i].form == FORM_PARTIAL) || ckpt_path(found, dir, name, "") != OK ||
            ckpt_path(config, found, ckpt_file_names[CKPT_CONFIG], "") != OK)
            continue;
        enum status looked = ckpt_size(config, &bytes);
        if (looked == ERR_IO)
            snprintf(why, sizeof why, "%s", status_message());
        if (looked != OK)
            continue;
        free(k.list.entries);
        snprintf(path, (size_t)path_size, "%s", found);
        return OK;
    }
    free(k.list.entries);
    if (st != OK)
        return st;
    return why[0] ? status_fail(ERR_IO, "%s", why) : status_fail(ERR_INVALID, "%s has no checkpoint", dir);
}

int checkpoint_count(const char *run, int64_t *step)
{
    char dir[CKPT_PATH];
    struct ckpt_listing l;
    int n = 0;
    *step = 0;
    if (ckpt_path(dir, run, "checkpoints", "") != OK || names_list(dir, &l) != OK)
        return 0;
    for (int i = 0; i < l.n; i++)
        if (l.entries[i].form == FORM_FINAL && n++ == 0)
            *step = l.entries[i].step;
    free(l.entries);
    return n;
}
