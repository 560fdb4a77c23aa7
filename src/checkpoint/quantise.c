#include "checkpoint/quantise.h"

#include "base/sys.h"
#include "checkpoint/files.h"
#include "checkpoint/manifest.h"
#include "checkpoint/place.h"
#include "checkpoint/shards.h"
#include "checkpoint/texts.h"
#include "engine/bitsandbytes.h"
#include "engine/packed.h"
#include "engine/weights.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 22 }; /* bytes copied at a time */

/* A tensor that is written. */
struct item {
    char name[BITSANDBYTES_NAME];
    struct st_decl decl;
    int param;                     /* parameter of which this is a part; -1: copied */
    struct bitsandbytes_part part; /* the part itself, if any */
};

struct quantising {
    const struct model *m;
    struct source from;
    struct item *items; /* [n] */
    struct st_decl *decls;
    int n;
    struct shards *files;
    struct shard_writer *out;
    uint8_t *bytes; /* [largest packed matrix or PIECE] */
    struct quantise_report *report;
};

/* ---- choosing the tensors ---- */

/* Returns the quantised parameter that the file's tensor holds; -1: the tensor stays as it is. */
static int find_quantised(const struct quantising *x, const char *name)
{
    for (int i = 0; i < x->m->n_params; i++)
        if (x->m->params[i].packed_bytes > 0 && strcmp(weights_name(x->from.file, x->m->params[i].name), name) == 0)
            return i;
    return -1;
}

static void add_item(struct quantising *x, const char *name, const struct st_decl *d)
{
    struct item *item = &x->items[x->n++];
    snprintf(item->name, sizeof item->name, "%s", name);
    item->decl = *d;
    item->param = -1;
    x->report->is += st_decl_bytes(d);
}

static enum status add_parts(struct quantising *x, const char *name, int param)
{
    const struct quantised q = model_quantised(&x->m->config, &x->m->params[param]);
    struct bitsandbytes_part part[BITSANDBYTES_PARTS];
    const int n = bitsandbytes_parts(&q, part);
    x->report->matrices++;
    for (int i = 0; i < n; i++) {
        char full[BITSANDBYTES_NAME];
        TRY(bitsandbytes_name(name, &part[i], full));
        add_item(
            x, full,
            &(struct st_decl){.type = part[i].type, .n_dims = part[i].n_dims, .shape = {part[i].shape[0], part[i].shape[1]}});
        x->items[x->n - 1].param = param;
        x->items[x->n - 1].part = part[i];
    }
    return OK;
}

static enum status add_tensor(struct quantising *x, const char *name)
{
    struct st_raw t;
    const int param = find_quantised(x, name);
    TRY(st_find_raw(x->from.file, name, &t));
    x->report->was += t.bytes;
    if (param >= 0)
        return add_parts(x, name, param);
    if (strlen(name) >= BITSANDBYTES_NAME)
        return status_fail(ERR_INVALID, "%s: tensor %.64s...: names have at most %d characters", t.path, name,
                           BITSANDBYTES_NAME - 1);
    struct st_decl d = {.type = t.type, .n_dims = t.n_dims};
    memcpy(d.shape, t.shape, sizeof d.shape);
    add_item(x, name, &d);
    x->report->others++;
    return OK;
}

/* Orders items: larger types first, so that none is misaligned; then by name. */
static int compare(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    const int64_t apart = st_type_bits(y->decl.type) - st_type_bits(x->decl.type);
    return apart ? (apart > 0) - (apart < 0) : strcmp(x->name, y->name);
}

static enum status list_items(struct quantising *x)
{
    const size_t most = (size_t)st_count(x->from.file) + (size_t)x->m->n_params * BITSANDBYTES_PARTS;
    int64_t largest = PIECE;
    x->items = sys_calloc(most, sizeof *x->items);
    x->decls = sys_calloc(most, sizeof *x->decls);
    for (int i = 0; i < x->m->n_params; i++)
        largest = max_i64(largest, x->m->params[i].packed_bytes);
    x->bytes = sys_malloc((size_t)largest);
    if (!x->items || !x->decls || !x->bytes)
        return status_no_memory("for quantising a model");
    for (int i = 0; i < st_count(x->from.file); i++)
        TRY(add_tensor(x, st_name(x->from.file, i)));
    qsort(x->items, (size_t)x->n, sizeof *x->items, compare);
    for (int i = 0; i < x->n; i++) {
        x->items[i].decl.name = x->items[i].name;
        x->decls[i] = x->items[i].decl;
    }
    return shards_plan(x->decls, x->n, &(struct shard_form){.most = EXPORT_FILE_BYTES}, &x->files);
}

/* ---- tensor by tensor ---- */

/* Makes sure that a matrix that is not quantised is finite, as packed_read does for quantised ones. */
static enum status check_finite(struct quantising *x, int param)
{
    const struct model_param *p = &x->m->params[param];
    const int64_t most = PIECE / 4;
    for (int64_t at = 0; at < p->elements; at += most)
        TRY(source_read(&x->from, param, at, min_i64(most, p->elements - at), F32, x->bytes));
    return OK;
}

static enum status copy(struct quantising *x, int item)
{
    struct st_raw t;
    TRY(st_find_raw(x->from.file, x->items[item].name, &t));
    for (int64_t at = 0; at < t.bytes; at += PIECE) {
        const int64_t n = min_i64(PIECE, t.bytes - at);
        TRY(st_read_bytes(x->from.file, x->items[item].name, at, n, x->bytes));
        TRY(shards_write_bytes(x->out, item, at, n, x->bytes));
    }
    return OK;
}

/* Returns the type before quantisation that NF4's quant_state records: the file's type, but F32 for F64, which is read as F32. */
static enum status type_of(struct quantising *x, int param, enum dtype *out)
{
    const char *name;
    struct st_info info;
    TRY(weights_find(x->from.file, &x->m->params[param], 0, &name));
    TRY(st_find(x->from.file, name, &info));
    *out = info.dtype == F64 ? F32 : info.dtype;
    return OK;
}

static enum status quantise(struct quantising *x, int param)
{
    const struct model_param *p = &x->m->params[param];
    const struct quantised q = model_quantised(&x->m->config, p);
    char words[BITSANDBYTES_WORDS];
    enum dtype type;
    TRY(type_of(x, param, &type));
    TRY(packed_read(&x->from, param, 0, p->packed_bytes, x->bytes));
    bitsandbytes_words(&q, x->bytes, type, words);
    for (int i = 0; i < x->n; i++)
        if (x->items[i].param == param)
            TRY(shards_write_bytes(x->out, i, 0, x->items[i].part.bytes,
                                   x->items[i].part.at < 0 ? (void *)words : x->bytes + x->items[i].part.at));
    return OK;
}

static enum status write_all(struct quantising *x, const char *partial)
{
    TRY(shards_create(x->files, partial, "model.safetensors"));
    TRY(shards_open(x->files, partial, "model.safetensors", &x->out));
    for (int i = 0; i < x->m->n_params; i++)
        TRY(x->m->params[i].packed_bytes > 0 ? quantise(x, i) : check_finite(x, i));
    for (int i = 0; i < x->n; i++)
        if (x->items[i].param < 0)
            TRY(copy(x, i));
    struct shard_writer *out = x->out;
    x->out = NULL;
    return shards_finish(out);
}

/* Writes config.json with the keys of the original; a checkpoint's own has only the keys that ltrain reads. */
static enum status write_config(struct quantising *x, const char *model, const char *like, const char *partial)
{
    struct model_config plain = x->m->config;
    char path[CKPT_PATH];
    enum dtype type;
    int there = 0;
    if (like) {
        TRY(ckpt_path(path, like, ckpt_file_names[CKPT_CONFIG], ""));
        TRY(ckpt_look(path, &there));
    }
    if (!there)
        return model_config_write_quantised(partial, model, x->m->config.base);
    plain.base = BASE_STORED;
    TRY(type_of(x, 0, &type));
    TRY(model_config_write_like(partial, like, &plain, type == F32 ? F32 : BF16));
    return model_config_write_quantised(partial, partial, x->m->config.base);
}

static void close_quantising(struct quantising *x)
{
    shards_abort(x->out);
    shards_free(x->files);
    source_close(&x->from);
    free(x->items);
    free(x->decls);
    free(x->bytes);
}

static enum status quantise_to(struct quantising *x, const char *model, const char *like, const char *dir)
{
    struct place place;
    TRY(weights_check(x->from.file, x->m, NULL, 0));
    TRY(list_items(x));
    TRY(place_begin(dir, &place));
    enum status st = write_all(x, place.partial);
    if (st == OK)
        st = texts_copy(like ? like : model, place.partial);
    if (st == OK)
        st = write_config(x, model, like, place.partial);
    return place_end(&place, st);
}

enum status checkpoint_quantise(const struct model *m, const char *model, const char *like, const char *dir,
                                struct quantise_report *out)
{
    struct quantising x = {.m = m, .report = out};
    *out = (struct quantise_report){0};
    TRY(source_open(m, model, NULL, 0, &x.from));
    enum status st = quantise_to(&x, model, like, dir);
    close_quantising(&x);
    return st;
}
