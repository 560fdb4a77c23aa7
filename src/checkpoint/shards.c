/* Writing tensors to one file or several. */
#include "checkpoint/shards.h"

#include "base/sys.h"
#include "checkpoint/files.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INDEX "model.safetensors.index.json"

struct shards {
    const struct st_decl *decls;
    /* n: tensors; count: files that they make; total: the same with the file of other tensors, if there is one */
    int n, count, total;
    int64_t bytes;          /* bytes of all tensors */
    char others[CKPT_PATH]; /* path of the file of other tensors; "": none */
    struct st_file *other;
    int *first; /* [count + 1]: tensors [first[i], first[i + 1]) are in file i */
};

struct shard_writer {
    const struct shards *shards;
    struct st_writer *file[]; /* [count] */
};

static enum status add_others(struct shards *x, const char *path)
{
    struct st_raw t;
    snprintf(x->others, sizeof x->others, "%s", path);
    TRY(st_open(path, &x->other));
    for (int i = 0; i < st_count(x->other); i++) {
        TRY(st_find_raw(x->other, st_name(x->other, i), &t));
        x->bytes += t.bytes;
    }
    x->total++;
    return OK;
}

enum status shards_plan(const struct st_decl *decls, int n, const struct shard_form *form, struct shards **out)
{
    int64_t filled = 0;
    struct shards *x = sys_calloc(1, sizeof *x + ((size_t)n + 2) * sizeof(int));
    if (!x)
        return status_fail(ERR_NOMEM, "out of memory: a list of %d tensors", n);
    *x = (struct shards){.decls = decls, .n = n, .count = 1, .first = (int *)(x + 1)};
    for (int i = 0; i < n; i++) {
        int64_t bytes = st_decl_bytes(&decls[i]);
        if (form->most > 0 && filled > 0 && filled + bytes > form->most) {
            x->first[x->count++] = i;
            filled = 0;
        }
        filled += bytes;
        x->bytes += bytes;
    }
    x->first[x->count] = n;
    x->total = x->count;
    enum status st = form->others ? add_others(x, form->others) : OK;
    if (st != OK) {
        shards_free(x);
        return st;
    }
    *out = x;
    return OK;
}

void shards_free(struct shards *x)
{
    if (x)
        st_close(x->other);
    free(x);
}

void shards_name(const struct shards *x, int i, const char *single, char name[64])
{
    if (x->total == 1)
        snprintf(name, 64, "%.63s", single);
    else
        snprintf(name, 64, "model-%05d-of-%05d.safetensors", i + 1, x->total);
}

static enum status shard_path(const struct shards *x, int i, const char *dir, const char *single, char path[CKPT_PATH])
{
    char name[64];
    shards_name(x, i, single, name);
    return ckpt_path(path, dir, name, "");
}

/* ---- making ---- */

static char *index_text(const struct shards *x, const char *single)
{
    json_t *map = json_object();
    char last[64];
    shards_name(x, x->count, single, last);
    for (int i = 0; x->other && i < st_count(x->other); i++)
        json_object_set_new(map, st_name(x->other, i), json_string(last));
    for (int i = 0; i < x->count; i++)
        for (int t = x->first[i]; t < x->first[i + 1]; t++) {
            char name[64];
            shards_name(x, i, single, name);
            json_object_set_new(map, x->decls[t].name, json_string(name));
        }
    json_t *root = json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)x->bytes, "weight_map", map);
    char *text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    return text;
}

static enum status write_index(const struct shards *x, const char *dir, const char *single)
{
    char path[CKPT_PATH], *text = index_text(x, single);
    if (!text)
        return status_fail(ERR_NOMEM, "out of memory: the index of %d files", x->total);
    enum status st = ckpt_path(path, dir, INDEX, "");
    if (st == OK)
        st = ckpt_write_text(path, text);
    free(text);
    return st;
}

enum status shards_create(const struct shards *x, const char *dir, const char *single)
{
    char path[CKPT_PATH];
    for (int i = 0; i < x->count; i++) {
        TRY(shard_path(x, i, dir, single, path));
        TRY(st_create(path, x->decls + x->first[i], x->first[i + 1] - x->first[i]));
    }
    if (x->other) {
        TRY(shard_path(x, x->count, dir, single, path));
        TRY(ckpt_copy(x->others, path));
    }
    return x->total > 1 ? write_index(x, dir, single) : OK;
}

/* ---- moving ---- */

/* Tells whether the name is that of a model's file that a former export left and this one does not write. */
static int is_stale(const struct shards *x, const char *name, const char *single)
{
    char mine[64];
    int part = strcmp(name, single) == 0 || fnmatch("model-[0-9]*-of-[0-9]*.safetensors", name, 0) == 0;
    if (strcmp(name, INDEX) == 0)
        return x->total == 1;
    for (int i = 0; i < x->total && part; i++) {
        shards_name(x, i, single, mine);
        part = strcmp(name, mine) != 0;
    }
    return part;
}

static enum status remove_stale(const struct shards *x, const char *dir, const char *single)
{
    char path[CKPT_PATH];
    struct dirent *e;
    DIR *d = sys_opendir(dir);
    if (!d)
        return status_fail(ERR_IO, "cannot read %s: %s", dir, strerror(errno));
    enum status st = OK;
    while (st == OK && (e = sys_readdir(d)) != NULL) {
        if (!is_stale(x, e->d_name, single))
            continue;
        st = ckpt_path(path, dir, e->d_name, "");
        if (st == OK && sys_unlink(path) != 0)
            st = status_fail(ERR_IO, "cannot remove %s, which an older export left: %s", path, strerror(errno));
    }
    closedir(d);
    return st;
}

static enum status move(const char *from, const char *to, const char *name)
{
    char source[CKPT_PATH], target[CKPT_PATH];
    TRY(ckpt_path(source, from, name, ""));
    TRY(ckpt_path(target, to, name, ""));
    return ckpt_rename(source, target);
}

enum status shards_move(const struct shards *x, const char *from, const char *to, const char *single)
{
    char name[64];
    TRY(remove_stale(x, to, single)); /* stale files go first, since readers would prefer them to the new ones */
    for (int i = 0; i < x->total; i++) {
        shards_name(x, i, single, name);
        TRY(move(from, to, name));
    }
    return x->total > 1 ? move(from, to, INDEX) : OK;
}

/* ---- writing ---- */

enum status shards_open(const struct shards *x, const char *dir, const char *single, struct shard_writer **out)
{
    enum status st = OK;
    char path[CKPT_PATH];
    struct shard_writer *w = sys_calloc(1, sizeof *w + (size_t)x->count * sizeof(struct st_writer *));
    if (!w)
        return status_fail(ERR_NOMEM, "out of memory: a list of %d files", x->count);
    w->shards = x;
    for (int i = 0; i < x->count && st == OK; i++) {
        st = shard_path(x, i, dir, single, path);
        if (st == OK)
            st = st_write_open(path, x->decls + x->first[i], x->first[i + 1] - x->first[i], &w->file[i]);
    }
    if (st != OK) {
        shards_abort(w);
        return st;
    }
    *out = w;
    return OK;
}

static int file_of(const struct shards *x, int tensor)
{
    int i = 0;
    while (i + 1 < x->count && tensor >= x->first[i + 1])
        i++;
    return i;
}

enum status shards_write_f32(struct shard_writer *w, int tensor, int64_t first, int64_t n, const float *data)
{
    const int i = file_of(w->shards, tensor);
    return st_write_f32(w->file[i], tensor - w->shards->first[i], first, n, data);
}

enum status shards_write_bytes(struct shard_writer *w, int tensor, int64_t first, int64_t n, const void *data)
{
    const int i = file_of(w->shards, tensor);
    return st_write_bytes(w->file[i], tensor - w->shards->first[i], first, n, data);
}

enum status shards_finish(struct shard_writer *w)
{
    enum status st = OK;
    for (int i = 0; w && i < w->shards->count; i++) {
        enum status one = st_write_finish(w->file[i]);
        w->file[i] = NULL;
        st = st == OK ? one : st;
    }
    free(w);
    return st;
}

void shards_abort(struct shard_writer *w)
{
    for (int i = 0; w && i < w->shards->count; i++)
        st_write_abort(w->file[i]);
    free(w);
}
