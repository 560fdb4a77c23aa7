/* Saving, loading and exporting whole checkpoints, by all ranks of a session together.
 *
 * Names in RUN/checkpoints (N = step):
 *   step-N.partial   being written by checkpoint_save, or being removed by names_prune (step-N.old.partial too): never read
 *   step-N           whole: renamed from step-N.partial after everything in it was synced
 *   step-N.old       whole: the former step-N while a save puts its successor in place; read if step-N is missing, removed by prune
 *   latest           written as latest.partial, synced, renamed
 *
 * Invariants:
 *   1. A file was synced, by every rank that wrote into it, before its directory got a final name.
 *   2. The checkpoint that `latest` names is removed only after `latest` names another one, or is moved aside as .old, which
 *      checkpoint_find reads too.
 *   3. Removal renames to .partial first, so that a half-removed directory is never read.
 *   4. Only rank 0 makes, renames and removes names. The others write into files that rank 0 has made, and hold none open when it
 *      renames.
 *
 * Phases of a save; the ranks agree after each, and a rank that fails or dies in one ends the save on all ranks:
 *   prepare         rank 0 makes the directory and the files
 *   state_write     every rank writes its elements and syncs
 *   manifest_hash   every rank hashes its share of the files
 *   commit          rank 0 writes the manifest and puts the directory in place */
#include "checkpoint/checkpoint.h"

#include "base/directory.h"
#include "base/clock.h"
#include "base/disk.h"
#include "base/sys.h"
#include "base/units.h"
#include "checkpoint/base.h"
#include "checkpoint/digests.h"
#include "checkpoint/files.h"
#include "checkpoint/lineage.h"
#include "checkpoint/manifest.h"
#include "checkpoint/names.h"
#include "checkpoint/state.h"
#include "checkpoint/texts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- saving ---- */

struct paths {
    char name[48], dir[CKPT_PATH], partial[CKPT_PATH], final[CKPT_PATH], old[CKPT_PATH];
};

static enum status make_paths(struct paths *p, const char *run, int64_t step)
{
    snprintf(p->name, sizeof p->name, "step-%06lld", (long long)step);
    TRY(ckpt_path(p->dir, run, "checkpoints", ""));
    TRY(ckpt_path(p->final, p->dir, p->name, ""));
    TRY(ckpt_path(p->old, p->dir, p->name, ".old"));
    return ckpt_path(p->partial, p->dir, p->name, ".partial");
}

static enum status check_space(struct session *s, const char *dir)
{
    struct disk disk;
    int64_t need = state_bytes(s);
    char room[64], want[32];
    if (disk_look(dir, &disk) != 0 || disk_room(&disk) >= need)
        return OK; /* a disk that does not answer will fail the writing */
    return status_fail(ERR_IO, "a checkpoint needs %s in %s, and %s: free some, or keep fewer checkpoints",
                       units_format_bytes(need, want), dir, disk_say_room(&disk, room));
}

static const struct shard_form one_file;

/* Makes an empty directory with this save's mark, the first n_files files without data, and config.json. */
static enum status make_partial(struct session *s, const char *partial, uint64_t mark, int n_files, const struct shard_form *form)
{
    ckpt_remove_dir(partial);
    TRY(ckpt_make_dir(partial));
    TRY(state_create(s, partial, n_files, form));
    TRY(model_config_write(partial, &s->model->whole->config, s->plan->strategy.key.dtype));
    return ckpt_mark(partial, mark); /* the mark is made last, so that a rank that sees it sees the files, too */
}

static enum status write_texts(const char *dir, const struct checkpoint_texts *texts)
{
    const char *text[] = {texts ? texts->settings : NULL, texts ? texts->data : NULL};
    char path[CKPT_PATH];
    for (int i = 0; i < 2; i++) {
        TRY(ckpt_path(path, dir, ckpt_file_names[CKPT_SETTINGS + i], ""));
        TRY(ckpt_write_text(path, text[i] ? text[i] : ""));
    }
    return OK;
}

static enum status prepare(struct session *s, const char *run, const struct paths *p, const struct checkpoint_texts *texts,
                           uint64_t mark)
{
    TRY(ckpt_make_dir(run));
    TRY(directory_check_link(p->dir));
    TRY(ckpt_make_dir(p->dir));
    TRY(directory_sync(run));
    names_remove_dead(p->dir); /* frees room for this save */
    TRY(check_space(s, p->dir));
    TRY(make_partial(s, p->partial, mark, CKPT_CONFIG, &one_file));
    return write_texts(p->partial, texts);
}

/* Draws a number that no other save has, and sends it from rank 0 to all. */
static enum status draw_mark(struct comm *c, uint64_t *mark)
{
    *mark = (uint64_t)clock_ns() * 0x9e3779b97f4a7c15u ^ (uint64_t)getpid();
    return comm_broadcast(c, 0, mark, sizeof *mark);
}

/* Seconds for which NFS may show an outdated directory (acdirmin). */
#define SHARED_PATIENCE 30

enum status checkpoint_compare_place(struct comm *c, const char *run)
{
    uint64_t mark;
    if (comm_size(c) == 1)
        return OK;
    TRY(draw_mark(c, &mark));
    enum status st = comm_agree(c, comm_rank(c) == 0 ? ckpt_mark(run, mark) : OK);
    if (st == OK)
        st = comm_agree(c, ckpt_check_mark(run, mark, comm_hosts(c) > 1 ? SHARED_PATIENCE : 0));
    if (comm_rank(c) == 0)
        ckpt_unmark(run, mark);
    return st;
}

/* Records sizes and hashes of the files that all ranks have written, and digests of the tensors in them. */
static enum status describe_files(struct comm *c, const char *dir, struct manifest *m)
{
    char path[CKPT_PATH];
    enum status st = OK;
    for (int i = 0; i < CKPT_FILES && st == OK && comm_rank(c) == 0; i++) {
        st = ckpt_path(path, dir, ckpt_file_names[i], "");
        if (st == OK)
            st = ckpt_size(path, &m->files[i].bytes);
    }
    TRY(comm_agree(c, st));
    TRY(comm_broadcast(c, 0, m, sizeof *m));
    TRY(digests_write(c, dir, m));
    return manifest_hash(c, dir, DIGEST_FILES, m);
}

/* Gives a whole partial directory its final name. An existing checkpoint of the same step (a save cut off before `latest`, then
 * trained again) is moved aside first. */
static enum status put_in_place(const char *partial, const char *final, const char *old)
{
    struct stat x;
    int replaces = sys_stat(final, &x) == 0;
    if (replaces) {
        ckpt_remove_dir(old); /* `final` is whole, so that an older .old is not needed */
        TRY(ckpt_rename(final, old));
    }
    enum status st = ckpt_rename(partial, final);
    if (st != OK && replaces)
        sys_rename(old, final); /* a failure leaves the checkpoint as .old, which is found, too */
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
    return directory_sync(dir);
}

/* Writes the manifest, gives the directory its final name, then replaces `latest` (rank 0 only). */
static enum status commit(struct session *s, const struct paths *p, const struct manifest *m, uint64_t mark)
{
    struct lineage l;
    ckpt_unmark(p->partial, mark);
    TRY(lineage_of_save(p->dir, s->origin.kind == ORIGIN_CHECKPOINT ? s->origin.path : "", m->info.step, &l));
    TRY(manifest_write(p->partial, m, &l, s->model->whole, s->plan->strategy.key.dtype));
    TRY(directory_sync(p->partial));
    TRY(put_in_place(p->partial, p->final, p->old));
    TRY(directory_sync(p->dir));
    return write_latest(p->dir, p->name);
}

/* Records the checkpoint from which the next save copies unused rows; it is removed only after that save. */
static void came_from(struct session *s, const char *path)
{
    s->origin.kind = ORIGIN_CHECKPOINT;
    snprintf(s->origin.path, sizeof s->origin.path, "%s", path);
}

enum status checkpoint_save(struct session *s, const char *run, const struct checkpoint_info *info,
                            const struct checkpoint_texts *texts, int keep)
{
    struct comm *c = s->comm;
    int first = comm_rank(c) == 0;
    struct manifest m = {.info = *info, .base = s->base_xxh3};
    struct paths p;
    uint64_t mark;
    TRY(draw_mark(c, &mark));
    enum status st = make_paths(&p, run, info->step);
    int may_clean = st == OK && first;
    if (may_clean)
        st = prepare(s, run, &p, texts, mark);
    st = comm_agree(c, st);
    if (st == OK)
        st = state_write(s, p.partial, mark, CKPT_CONFIG, &one_file);
    if (st == OK)
        st = describe_files(c, p.partial, &m);
    if (st == OK)
        st = comm_agree(c, first ? commit(s, &p, &m, mark) : OK);
    if (may_clean && st != OK)
        ckpt_remove_dir(p.partial);
    if (st == OK)
        came_from(s, p.final);
    if (first && st == OK)
        names_prune(p.dir, info->step, keep);
    return st;
}

void checkpoint_remove_dead(const char *run)
{
    char path[CKPT_PATH];
    if (ckpt_path(path, run, "checkpoints", "") == OK)
        names_remove_dead(path);
    if (ckpt_path(path, run, "hf/export.partial", "") == OK)
        ckpt_remove_dir(path);
}

/* ---- loading ---- */

/* Refuses adapters that were trained beside other weights: adapters mean nothing beside those. */
static enum status check_base(const struct session *s, const char *path, uint64_t base)
{
    if (base == s->base_xxh3 || s->model->whole->adapter_params == 0)
        return OK;
    return status_fail(
        ERR_INVALID,
        "checkpoint %s has adapters of other weights than %s has now (the hash is %016llx and was %016llx): give the "
        "directory of the former ones by --model",
        path, s->base[0] ? s->base : "the preset", (unsigned long long)s->base_xxh3, (unsigned long long)base);
}

enum status checkpoint_load(struct session *s, const char *path)
{
    struct manifest m;
    TRY(manifest_open(s->comm, path, &m));
    TRY(check_base(s, path, m.base));
    TRY(state_read(s, path));
    s->origin = (struct origin){.kind = ORIGIN_NONE};
    came_from(s, path);
    return OK;
}

enum status checkpoint_look(struct comm *c, const char *path, struct checkpoint_info *out)
{
    struct manifest m;
    TRY(manifest_look(c, path, &m));
    *out = m.info;
    return OK;
}

enum status checkpoint_read_texts(const char *path, struct checkpoint_texts *out)
{
    char *text[2] = {NULL, NULL}, file[CKPT_PATH];
    enum status st = OK;
    for (int i = 0; i < 2 && st == OK; i++) {
        st = ckpt_path(file, path, ckpt_file_names[CKPT_SETTINGS + i], "");
        if (st == OK)
            st = ckpt_read_text(file, INT64_MAX, &text[i]);
    }
    if (st != OK)
        free(text[0]);
    else
        *out = (struct checkpoint_texts){.settings = text[0], .data = text[1]};
    return st;
}

/* ---- exporting ---- */

static enum status move_file(const char *partial, const char *dir, const char *name)
{
    char from[CKPT_PATH], to[CKPT_PATH];
    TRY(ckpt_path(from, partial, name, ""));
    TRY(ckpt_path(to, dir, name, ""));
    return ckpt_rename(from, to);
}

/* Moves an export from the partial directory to its final names (rank 0 only). */
static enum status move_export(struct session *s, const char *partial, const char *dir, const struct shard_form *form)
{
    int adapter = s->model->whole->adapter_params > 0;
    TRY(texts_move(partial, dir));
    TRY(state_move(s, partial, dir, form));
    TRY(base_move_texts(partial, dir));
    if (adapter)
        TRY(move_file(partial, dir, BASE_FILE));
    TRY(move_file(partial, dir, adapter ? ADAPTER_CONFIG : ckpt_file_names[CKPT_CONFIG]));
    TRY(directory_sync(dir));
    return directory_keep(dir);
}

/* Writes config.json, and the files beside it, as directory `like` has them (rank 0 only). */
static enum status write_like(struct session *s, const char *partial, const char *like)
{
    char config[CKPT_PATH];
    int there;
    TRY(ckpt_path(config, like, "config.json", ""));
    TRY(ckpt_look(config, &there));
    if (there && s->model->whole->adapter_params == 0)
        TRY(model_config_write_like(partial, like, &s->model->whole->config, s->plan->strategy.key.dtype));
    return texts_copy(like, partial);
}

/* Writes the files beside the weights (rank 0 only). */
static enum status write_beside(struct session *s, const char *partial, const struct export_texts *texts)
{
    if (texts && texts->like)
        TRY(write_like(s, partial, texts->like));
    if (s->model->whole->adapter_params > 0)
        TRY(base_write(s->model->whole, s->base[0] ? s->base : s->model->config.name, s->base_xxh3, partial));
    return base_write_texts(texts, partial);
}

/* Finds the file of tensors beside the model, which becomes the export's last one. */
static enum status find_others(const char *like, const struct model *m, char path[CKPT_PATH], struct shard_form *form)
{
    int there;
    if (!like || m->whole->adapter_params > 0 || (!m->config.wrapped && m->config.further_layers == 0))
        return OK;
    TRY(ckpt_path(path, like, CKPT_OTHERS, ""));
    TRY(ckpt_look(path, &there));
    form->others = there ? path : NULL;
    return OK;
}

enum status checkpoint_export(struct session *s, const char *dir, const struct export_texts *texts, int64_t most)
{
    struct comm *c = s->comm;
    int first = comm_rank(c) == 0;
    char partial[CKPT_PATH], others[CKPT_PATH];
    struct shard_form form = {.most = s->model->whole->adapter_params > 0 ? 0 : most}; /* PEFT reads one file */
    uint64_t mark;
    TRY(draw_mark(c, &mark));
    const char *like = texts ? texts->like : NULL;
    TRY(checkpoint_check_others(like, s->model));
    TRY(find_others(like, s->model, others, &form));
    enum status st = ckpt_path(partial, dir, "export.partial", "");
    int may_clean = st == OK && first;
    if (may_clean)
        st = directory_check_link(dir);
    if (may_clean && st == OK)
        st = ckpt_make_dir(dir);
    if (may_clean && st == OK)
        st = make_partial(s, partial, mark, 1, &form);
    if (may_clean && st == OK)
        st = write_beside(s, partial, texts);
    st = comm_agree(c, st);
    if (st == OK)
        st = state_write(s, partial, mark, 1, &form);
    if (st == OK)
        st = comm_agree(c, first ? move_export(s, partial, dir, &form) : OK);
    if (may_clean)
        ckpt_remove_dir(partial);
    if (may_clean && st != OK)
        sys_rmdir(dir); /* succeeds only if the directory was new */
    return st;
}
