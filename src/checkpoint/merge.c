#include "checkpoint/merge.h"

#include "base/sys.h"
#include "checkpoint/base.h"
#include "checkpoint/files.h"
#include "checkpoint/manifest.h"
#include "checkpoint/place.h"
#include "checkpoint/shards.h"
#include "checkpoint/texts.h"
#include "engine/bitsandbytes.h"
#include "engine/packed.h"
#include "engine/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PART = 1 << 22 }; /* elements of a matrix merged at a time, whole rows */

/* A parameter of the merged model. */
struct part {
    int param;
    struct model_param as;          /* the parameter as the base's files have it */
    int tensor;                     /* number of its first tensor */
    const struct model_linear *map; /* linear map with an adapter whose weight the parameter is; NULL: none */
};

struct merge {
    const struct model *m;
    struct source from;
    const struct model_linear **map; /* maps of the parameters, as in struct part */
    struct st_decl *decls;
    struct part *parts;
    char head[32];                /* name of a head that is no longer tied */
    int n, n_parts;               /* lengths of decls, but for those of `others`, and of parts */
    struct weights_others others; /* layers that predict further tokens, which are copied as they are */
    struct shards *files;
    struct shard_writer *out;
    float *data, *delta; /* [room] */
    int64_t room;
    double squares, lost; /* sums of squares of s B A, and of the rounding errors */
    int64_t elements;
    struct merge_report *report;
};

/* ---- choosing the tensors ---- */

static void note_map(struct merge *x, const struct model_linear *w)
{
    if (w->weight >= 0 && w->rank > 0)
        x->map[w->weight] = w;
}

/* Tells whether head and embedding, which are one matrix, become two: the adapter of either changes only its own side. */
static int unties(const struct model *m)
{
    return m->config.tied && (m->head.rank > 0 || m->embedding.rank > 0);
}

static void find_maps(struct merge *x)
{
    note_map(x, &x->m->embedding);
    if (!x->m->config.tied)
        note_map(x, &x->m->head);
    for (int64_t l = 0; l < x->m->config.layers; l++)
        for (int i = 0; i < x->m->layers[l].n_blocks; i++) {
            const struct model_linear *map;
            for (int k = 0; (map = block_map(&x->m->layers[l].blocks[i], k)); k++)
                note_map(x, map);
        }
}

/* Declares a tensor in the type that the base's file has. */
static enum status declare_tensor(struct merge *x, int param, const struct model_param *as, int64_t tensor)
{
    const char *name;
    struct st_info info;
    struct param_tensor t;
    if (weights_has_mxfp4(x->from.file, as)) {
        name = x->m->params[param].name; /* `as` does not outlive the caller */
        info.dtype = BF16;
    } else if (x->m->config.quantised && as->packed_bytes > 0) {
        name = weights_name(x->from.file, as->name);
        TRY(bitsandbytes_type(&x->from, param, &info.dtype));
    } else {
        TRY(weights_find(x->from.file, as, tensor, &name));
        TRY(st_find(x->from.file, name, &info));
    }
    const int stored = info.dtype == F32 || info.dtype == BF16;
    x->report->fp16 += !stored;
    model_param_tensor(as, tensor, &t);
    x->decls[x->n] = (struct st_decl){.name = name, .dtype = stored ? info.dtype : F32, .n_dims = t.n_dims};
    memcpy(x->decls[x->n].shape, t.shape, sizeof t.shape);
    x->n++;
    return OK;
}

static enum status declare(struct merge *x, int param, const struct model_linear *map)
{
    const struct model_param as = weights_form(x->from.file, &x->m->params[param]);
    x->parts[x->n_parts++] = (struct part){param, as, x->n, map};
    x->report->dequantised += as.packed_bytes > 0;
    for (int64_t i = 0; i < model_param_tensors(&as); i++)
        TRY(declare_tensor(x, param, &as, i));
    return OK;
}

/* Declares tensors beside the model behind its own, in the types of the base's file. */
static enum status declare_others(struct merge *x)
{
    for (int i = 0; i < x->others.n; i++) {
        struct st_raw raw;
        TRY(st_find_raw(x->from.file, x->others.names[i], &raw));
        x->decls[x->n + i] = (struct st_decl){.name = x->others.names[i], .type = raw.type, .n_dims = raw.n_dims};
        memcpy(x->decls[x->n + i].shape, raw.shape, sizeof raw.shape);
    }
    return OK;
}

static enum status declare_all(struct merge *x)
{
    const size_t n = (size_t)x->m->n_params;
    TRY(weights_others(x->from.file, x->m, &x->others));
    size_t tensors = (size_t)x->others.n;
    for (int i = 0; i < x->m->n_params; i++) {
        const struct model_param as = weights_form(x->from.file, &x->m->params[i]);
        tensors += (size_t)model_param_tensors(&as);
    }
    x->map = sys_calloc(n, sizeof *x->map);
    x->decls = sys_calloc(tensors, sizeof *x->decls); /* fewer are used: A and B have none */
    x->parts = sys_calloc(n, sizeof *x->parts);
    if (!x->map || !x->decls || !x->parts)
        return status_no_memory("for merging an adapter");
    find_maps(x);
    x->room = PART;
    for (int i = 0; i < x->m->n_params; i++) {
        x->room = max_i64(x->room, max_i64(x->m->params[i].shape[1], 1));
        if (!x->m->params[i].adapter)
            TRY(declare(x, i, x->map[i]));
    }
    x->report->untied = unties(x->m);
    if (x->report->untied) {
        TRY(declare(x, x->m->embed, x->m->head.rank > 0 ? &x->m->head : NULL));
        model_head_name(&x->m->config, x->head);
        x->decls[x->n - 1].name = x->head;
    }
    x->data = sys_malloc((size_t)x->room * sizeof *x->data);
    x->delta = sys_malloc((size_t)x->room * sizeof *x->delta);
    if (!x->data || !x->delta)
        return status_no_memory("for merging an adapter");
    TRY(declare_others(x));
    return shards_plan(x->decls, x->n + x->others.n, &(struct shard_form){.most = EXPORT_FILE_BYTES}, &x->files);
}

/* ---- s B A ---- */

/* Computes rows [first, first + rows) of the stored matrix's change: of s B A, or of its transpose. w: the map, or a slice of it. A
 * stack of experts has `each` rows of an expert after those of another, and so have A and B. */
static void multiply(const struct model_linear *w, int64_t columns, int64_t each, const float *a, const float *b, int64_t first,
                     int64_t rows, float *out)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        const int64_t expert = (first + i) / each, at = (first + i) % each;
        const float *down = a + expert * w->rank * w->in, *up = b + expert * w->out * w->rank;
        float *row = out + i * columns;
        memset(row, 0, (size_t)columns * sizeof *row);
        for (int64_t k = 0; k < w->rank; k++)
            for (int64_t j = 0; j < columns; j++)
                row[j] +=
                    w->transposed ? up[at * w->rank + k] * down[k * columns + j] : up[j * w->rank + k] * down[k * w->in + at];
        for (int64_t j = 0; j < columns; j++)
            row[j] *= w->adapter_scale;
    }
}

static void add(struct merge *x, int64_t n, enum dtype type)
{
    double squares = 0, lost = 0;
    for (int64_t i = 0; i < n; i++) {
        const float exact = x->data[i] + x->delta[i], stored = type == BF16 ? bf16_to_float(bf16_from_float(exact)) : exact;
        squares += (double)x->delta[i] * x->delta[i];
        lost += ((double)stored - exact) * ((double)stored - exact);
        x->data[i] = exact;
    }
    x->squares += squares;
    x->lost += lost;
    x->elements += n;
}

/* ---- tensor by tensor ---- */

static enum status write(struct merge *x, const struct part *part, int64_t first, int64_t n)
{
    int64_t tensor, there, done = 0;
    for (int64_t some; done < n; done += some) {
        some = model_param_piece(&part->as, first + done, n - done, &tensor, &there);
        TRY(shards_write_f32(x->out, part->tensor + (int)tensor, there, some, x->data + done));
    }
    return OK;
}

/* Refuses sums that are not finite in the file's type: W and s B A may be finite while their sum is not. */
static enum status check_stored(const struct merge *x, const struct part *part, int64_t row, int64_t n)
{
    const struct model_param *p = &part->as;
    const enum dtype type = x->decls[part->tensor].dtype;
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(type == BF16 ? bf16_to_float(bf16_from_float(x->data[i])) : x->data[i]))
            return status_fail(ERR_DIVERGED, "W + s B A of %s is not finite in row %lld: nothing was merged", p->name,
                               (long long)(row + i / max_i64(p->shape[1], 1)));
    return OK;
}

static enum status merge_rows(struct merge *x, const struct part *part, const float *a, const float *b)
{
    const int param = part->param;
    const struct model_param *p = &part->as;
    const struct model_linear *w = part->map;
    const int64_t columns = max_i64(p->shape[1], 1), at_once = max_i64(1, x->room / columns);
    for (int64_t row = 0; row < p->shape[0]; row += at_once) {
        const int64_t rows = min_i64(at_once, p->shape[0] - row), n = rows * columns;
        TRY(p->packed_bytes > 0 ? packed_read_f32(&x->from, param, row * columns, n, x->data)
                                : source_read(&x->from, param, row * columns, n, F32, x->data));
        if (w) {
            multiply(w, columns, p->shape[0] / max_i64(p->experts, 1), a, b, row, rows, x->delta);
            add(x, n, x->decls[part->tensor].dtype);
            if (!isfinite(x->squares))
                return status_fail(ERR_DIVERGED, "the adapter's s B A beside %s is not finite: nothing was merged", p->name);
        }
        TRY(check_stored(x, part, row, n));
        TRY(write(x, part, row * columns, n));
    }
    return OK;
}

static enum status merge_part(struct merge *x, const struct part *part)
{
    const struct model_linear *w = part->map;
    if (!w)
        return merge_rows(x, part, NULL, NULL);
    const struct model_param *a = &x->m->params[w->down], *b = &x->m->params[w->up];
    float *values = sys_malloc((size_t)(a->elements + b->elements) * sizeof *values);
    enum status st =
        values ? source_read(&x->from, w->down, 0, a->elements, F32, values) : status_no_memory("for merging an adapter");
    if (st == OK)
        st = source_read(&x->from, w->up, 0, b->elements, F32, values + a->elements);
    if (st == OK)
        st = merge_rows(x, part, values, values + a->elements);
    free(values);
    x->report->merged += max_i64(part->as.experts, 1);
    return st;
}

/* Copies the bytes of a tensor beside the model. */
static enum status copy_other(struct merge *x, int i)
{
    struct st_raw raw;
    TRY(st_find_raw(x->from.file, x->others.names[i], &raw));
    const int64_t room = x->room * (int64_t)sizeof *x->data;
    for (int64_t at = 0; at < raw.bytes; at += room) {
        const int64_t n = min_i64(room, raw.bytes - at);
        TRY(st_read_bytes(x->from.file, x->others.names[i], at, n, x->data));
        TRY(shards_write_bytes(x->out, x->n + i, at, n, x->data));
    }
    return OK;
}

static enum status merge_all(struct merge *x, const char *partial)
{
    TRY(shards_create(x->files, partial, "model.safetensors"));
    TRY(shards_open(x->files, partial, "model.safetensors", &x->out));
    for (int i = 0; i < x->n_parts; i++)
        TRY(merge_part(x, &x->parts[i]));
    for (int i = 0; i < x->others.n; i++)
        TRY(copy_other(x, i));
    struct shard_writer *out = x->out;
    x->out = NULL;
    return shards_finish(out);
}

static void close_merge(struct merge *x)
{
    shards_abort(x->out);
    shards_free(x->files);
    weights_others_free(&x->others);
    source_close(&x->from);
    free(x->map);
    free(x->decls);
    free(x->parts);
    free(x->data);
    free(x->delta);
}

/* Writes the base's config.json without its quantisation settings. */
static enum status write_config(const struct merge *x, const char *base, const char *dir)
{
    struct model_config plain = x->m->config;
    enum dtype type = BF16;
    plain.base = BASE_STORED;
    plain.tied = plain.tied && !unties(x->m);
    for (int i = 0; i < x->n; i++)
        type = x->decls[i].dtype == F32 && x->decls[i].n_dims == 2 ? F32 : type;
    return model_config_write_like(dir, base, &plain, type);
}

/* Writes the files beside the merged weights. */
static enum status write_beside(const struct merge *x, const char *base, const char *partial, const struct export_texts *texts)
{
    struct model_config was;
    char difference[128], from[CKPT_PATH], to[CKPT_PATH];
    TRY(base_write_texts(texts, partial));
    static const char *const generation[] = {"generation_config.json"}; /* the adapter's file says where its chats end */
    TRY(texts_gather(base, texts ? texts->like : NULL, partial));
    if (texts && texts->like)
        TRY(ckpt_copy_named(texts->like, partial, generation, 1));
    TRY(model_config_read(base, &was));
    if (x->m->config.quantised || x->m->config.mxfp4)
        return write_config(x, base, partial);
    struct model_config now = x->m->config;
    now.tied = now.tied && !unties(x->m);
    if (model_config_differs(&was, &now, difference, sizeof difference))
        return model_config_write_stretched(partial, base, &now);
    TRY(ckpt_path(from, base, ckpt_file_names[CKPT_CONFIG], ""));
    TRY(ckpt_path(to, partial, ckpt_file_names[CKPT_CONFIG], ""));
    return ckpt_copy(from, to);
}

static enum status merge_to(struct merge *x, const char *base, const char *dir, const struct export_texts *texts)
{
    struct place place;
    TRY(source_check_adapter(&x->from));
    TRY(declare_all(x));
    TRY(place_begin(dir, &place));
    enum status st = merge_all(x, place.partial);
    if (st == OK)
        st = write_beside(x, base, place.partial, texts);
    return place_end(&place, st);
}

enum status checkpoint_merge(const struct model *m, const char *base, const char *adapter, const char *dir,
                             const struct export_texts *texts, struct merge_report *out)
{
    struct merge x = {.m = m, .report = out};
    *out = (struct merge_report){0};
    TRY(source_open(m, base, adapter, 0, &x.from));
    enum status st = merge_to(&x, base, dir, texts);
    out->tensors = x.n + x.others.n;
    for (int i = 0; i < x.from.rows.n; i++)
        out->rows += x.from.rows.of[i].tensor.shape[0];
    out->change = sqrt(x.squares / (double)max_i64(x.elements, 1));
    out->lost = sqrt(x.lost / (double)max_i64(x.elements, 1));
    close_merge(&x);
    return st;
}
