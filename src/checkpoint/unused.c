/* Copying the parameters' rows that a run does not use from the state's origin. */
#include "checkpoint/unused.h"

#include "base/sys.h"
#include "checkpoint/files.h"
#include "checkpoint/manifest.h"
#include "engine/weights.h"
#include "model/part.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct unused {
    struct session *s;
    struct st_file *params, *optimizer; /* origin weights: only params; origin checkpoint: both */
};

/* Returns the next parameter from the i-th on with rows that are not in use; n_params: none. With adapters, frozen parameters are
 * in no file and are skipped. */
static int next_cut(const struct model *m, int i)
{
    while (i < m->n_params && (m->params[i].elements == model_param_stored(&m->params[i]) ||
                               (m->whole->adapter_params > 0 && !m->params[i].trained)))
        i++;
    return i;
}

/* Extends the last failure's message by its consequence. */
static enum status explain(const struct session *s, enum status st)
{
    const struct model_param *p = &s->model->params[next_cut(s->model, 0)];
    char cause[768];
    snprintf(cause, sizeof cause, "%s", status_message());
    if (st == ERR_INVALID && s->origin.kind != ORIGIN_NONE) /* the origin was there when the run began, and may come back */
        st = ERR_CORRUPT;
    return status_fail(st, "rows %lld to %lld of %s, which no sequence of this run reaches, cannot be copied from %s: %s",
                       (long long)(p->elements / p->shape[1]), (long long)p->shape[0] - 1, p->name, s->origin.path, cause);
}

static enum status open_weights(struct unused *x)
{
    const struct origin *from = &x->s->origin;
    uint64_t stamp;
    TRY(st_open(from->path, &x->params));
    TRY(st_stamp(x->params, &stamp));
    return stamp == from->stamp ? OK : status_fail(ERR_CORRUPT, "the weights there have changed since they were loaded");
}

static enum status open_checkpoint(struct unused *x)
{
    char path[CKPT_PATH];
    TRY(ckpt_path(path, x->s->origin.path, ckpt_file_names[CKPT_MODEL], ""));
    TRY(st_open(path, &x->params));
    TRY(ckpt_path(path, x->s->origin.path, ckpt_file_names[CKPT_OPTIMIZER], ""));
    return st_open(path, &x->optimizer);
}

/* Tells in *must whether the origin has to be hashed as a whole: some rank has not copied its rows from it before, and so has no
 * hash of them. */
static enum status must_be_hashed(const struct unused *x, const int kinds[STATE_V + 1], int *must)
{
    double unknown = 0;
    for (int k = 0; k <= STATE_V; k++)
        unknown += kinds[k] && !x->s->origin.copied[k].known;
    TRY(comm_sum(x->s->comm, &unknown, 1));
    *must = unknown > 0;
    return OK;
}

static enum status open_origin(struct unused *x, const int kinds[STATE_V + 1])
{
    int must;
    struct manifest m;
    struct comm *c = x->s->comm;
    switch (x->s->origin.kind) {
    case ORIGIN_CHECKPOINT:
        TRY(must_be_hashed(x, kinds, &must));
        TRY(must ? manifest_open(c, x->s->origin.path, &m) : manifest_look(c, x->s->origin.path, &m));
        return comm_agree(c, open_checkpoint(x));
    case ORIGIN_WEIGHTS:
        return comm_agree(c, open_weights(x));
    case ORIGIN_SEED:
        return OK;
    case ORIGIN_NONE:
        break;
    }
    return status_fail(ERR_INVALID, "the session has no state yet");
}

enum status unused_open(struct session *s, const int kinds[STATE_V + 1], struct unused **out)
{
    struct unused *x = sys_calloc(1, sizeof *x);
    *out = NULL;
    enum status st = comm_agree(s->comm, x ? OK : status_fail(ERR_NOMEM, "out of memory for a checkpoint"));
    if (x)
        x->s = s;
    if (st == OK && next_cut(s->model, 0) < s->model->n_params) {
        st = open_origin(x, kinds);
        if (st != OK)
            st = explain(s, st);
    }
    if (st == OK)
        *out = x;
    else
        unused_close(x);
    return st;
}

void unused_close(struct unused *x)
{
    if (!x)
        return;
    st_close(x->optimizer);
    st_close(x->params);
    free(x);
}

/* Reads elements as state_read does: from masters if there are any. */
static enum status read_checkpoint(struct unused *x, enum state_kind kind, const struct model_param *p, int64_t first, int64_t n,
                                   float *data)
{
    char name[STATE_NAME];
    struct st_info info;
    state_tensor_name(name, STATE_MASTER, p->name);
    if (kind <= STATE_MASTER && st_find(x->optimizer, name, &info) == OK)
        return st_read_f32(x->optimizer, name, first, n, data);
    if (kind <= STATE_MASTER)
        return st_read_f32(x->params, p->name, first, n, data);
    state_tensor_name(name, kind, p->name);
    return st_read_f32(x->optimizer, name, first, n, data);
}

static enum status read_origin(struct unused *x, enum state_kind kind, int param, int64_t first, int64_t n, float *data)
{
    const struct model *m = x->s->model;
    const char *name;
    if (x->s->origin.kind == ORIGIN_CHECKPOINT)
        return read_checkpoint(x, kind, &m->params[param], first, n, data);
    if (kind > STATE_MASTER) {
        memset(data, 0, (size_t)n * sizeof *data);
        return OK;
    }
    if (x->s->origin.kind == ORIGIN_WEIGHTS) {
        TRY(weights_find(x->params, &m->params[param], 0, &name));
        return st_read_f32(x->params, name, first, n, data);
    }
    model_init_param(m, param, x->s->origin.seed, first, n, data);
    return OK;
}

/* Makes sure that the bytes this rank has copied are those of the copy before. */
static enum status check_copied(struct unused *x, enum state_kind kind, uint64_t xxh3)
{
    struct origin *from = &x->s->origin;
    if (from->kind != ORIGIN_CHECKPOINT)
        return OK;
    if (from->copied[kind].known && from->copied[kind].xxh3 != xxh3)
        return explain(x->s, status_fail(ERR_CORRUPT, "its file is damaged: the bytes there are not those that were written"));
    from->copied[kind].known = 1;
    from->copied[kind].xxh3 = xxh3;
    return OK;
}

enum status unused_write(struct unused *x, enum state_kind kind, const int *tensor, struct shard_writer *file, int64_t *written)
{
    const struct model *m = x->s->model;
    uint64_t xxh3 = 0;
    float *data = x->s->staging;
    int64_t chunk = x->s->staging_bytes / (int64_t)sizeof *data;
    for (int i = next_cut(m, 0); i < m->n_params; i = next_cut(m, i + 1)) {
        int64_t end = model_param_stored(&m->params[i]);
        if (!model_part_is_first(m, i) && strategy_stages(&x->s->plan->strategy) == 1) /* stages have the ends together */
            continue;
        for (int64_t at = m->params[i].elements; at < end && tensor[m->params[i].whole] >= 0;
             at += chunk * comm_size(x->s->comm)) {
            int64_t first = at + chunk * comm_rank(x->s->comm), n = max_i64(0, min_i64(chunk, end - first));
            enum status st = n > 0 ? read_origin(x, kind, i, first, n, data) : OK;
            if (st == OK && n > 0)
                xxh3 = XXH3_64bits_withSeed(data, (size_t)n * sizeof *data, xxh3);
            if (st == OK)
                st = state_check_finite(kind, &m->params[i], first, n, data);
            if (st != OK)
                st = explain(x->s, st);
            else if (n > 0)
                st = shards_write_f32(file, tensor[m->params[i].whole], first, n, data);
            TRY(comm_agree(x->s->comm, st));
            *written += n;
        }
    }
    return comm_agree(x->s->comm, check_copied(x, kind, xxh3));
}
