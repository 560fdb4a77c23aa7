/* Reading a checkpoint's tensors into a session's state: checking that they fit the model, then every rank its own pieces. */
#include "checkpoint/state.h"

#include "checkpoint/files.h"
#include "checkpoint/manifest.h"
#include "data/safetensors.h"
#include "engine/source.h"
#include "engine/weights.h"
#include "model/tensors.h"

#include <stdio.h>
#include <string.h>

/* ---- checking that the checkpoint is of this model ---- */

static enum status check_config(const struct model *m, const char *dir)
{
    struct model_config c;
    char difference[128];
    TRY(model_config_read(dir, &c));
    if (model_config_differs(&c, &m->config, difference, sizeof difference))
        return status_fail(ERR_INVALID, "checkpoint %s is of another model: %s", dir, difference);
    return OK;
}

static enum status check_shape(const char *dir, const struct st_info *info, const char *name, const struct param_tensor *t)
{
    char there[WEIGHTS_SHAPE], here[WEIGHTS_SHAPE];
    if (info->n_dims == t->n_dims && memcmp(info->shape, t->shape, (size_t)t->n_dims * sizeof *t->shape) == 0)
        return OK;
    return status_fail(ERR_INVALID, "checkpoint %s is of another model: tensor %s is %s there and %s in this run", dir, name,
                       weights_shape(info->n_dims, info->shape, there), weights_shape(t->n_dims, t->shape, here));
}

/* A checkpoint opened for reading. */
struct reader {
    const char *dir;
    const struct model *model;
    struct st_file *params, *optimizer;
    struct source base; /* source of the frozen parameters, if there are adapters */
    int masters;        /* 1: the optimizer file has masters */
};

static int has(struct st_file *f, enum state_kind kind, const char *tensor, struct st_info *info)
{
    char name[STATE_NAME];
    state_tensor_name(name, kind, tensor);
    return st_find(f, name, info) == OK;
}

static enum status check_tensor(struct reader *r, const struct model_param *p, const struct param_tensor *t)
{
    struct st_info info;
    if (!has(r->params, STATE_PARAM, t->name, &info) && r->model->whole->adapter_params > 0)
        return status_fail(ERR_INVALID, "checkpoint %s has no %s, which this run trains; give it the same --lora", r->dir,
                           t->name);
    if (!has(r->params, STATE_PARAM, t->name, &info))
        return status_fail(ERR_INVALID, "checkpoint %s is of another model: it has no tensor %s", r->dir, t->name);
    TRY(check_shape(r->dir, &info, t->name, t));
    int trained = has(r->optimizer, STATE_M, t->name, &info);
    if (trained && !p->trained)
        return status_fail(ERR_INVALID, "checkpoint %s trained %s, which this run freezes; give it the same --freeze", r->dir,
                           t->name);
    if (!trained && p->trained)
        return status_fail(ERR_INVALID, "checkpoint %s had %s frozen, which this run trains; give it the same --freeze", r->dir,
                           t->name);
    for (int kind = r->masters ? STATE_MASTER : STATE_M; kind <= STATE_V && trained; kind++) {
        char name[STATE_NAME];
        state_tensor_name(name, (enum state_kind)kind, t->name);
        if (!has(r->optimizer, (enum state_kind)kind, t->name, &info))
            return status_fail(ERR_CORRUPT, "checkpoint %s: optimizer.safetensors lacks %s", r->dir, name);
        TRY(check_shape(r->dir, &info, name, t));
    }
    return OK;
}

static enum status check_parameter(struct reader *r, const struct model_param *p)
{
    const struct model_param kept = model_param_kept(p);
    struct param_tensor t;
    if (r->model->whole->adapter_params > 0 && !p->trained)
        return OK;
    for (int64_t i = 0; i < model_param_tensors(p); i++) {
        model_param_tensor(&kept, i, &t);
        TRY(check_tensor(r, p, &t));
    }
    return OK;
}

/* Refuses tensors that the model does not have: the model would be only a part of the checkpoint's. */
static enum status check_listed(const struct reader *r, const struct tensor_list *list)
{
    const struct model *m = r->model->whole;
    for (int k = 0; k < st_count(r->params); k++) {
        const char *name = st_name(r->params, k);
        const int i = tensor_list_find(list, name);
        if (i >= 0 && m->adapter_params > 0 && !m->params[i].trained)
            return status_fail(ERR_INVALID, "checkpoint %s has %s, which this run does not train; give it the same --lora",
                               r->dir, name);
        if (i < 0)
            return status_fail(ERR_INVALID, "checkpoint %s is of another model: this run's has no tensor %s", r->dir, name);
    }
    return OK;
}

static enum status check_surplus(const struct reader *r)
{
    struct tensor_list *list;
    TRY(tensor_list_create(r->model->whole, &list));
    enum status st = check_listed(r, list);
    tensor_list_destroy(list);
    return st;
}

/* ---- loading ---- */

/* Refuses an element that is not finite, which no save leaves, or too large for the type. */
static enum status refuse_value(struct st_file *f, const struct reader *r, enum state_kind kind, const struct model_param *p,
                                int64_t element, enum dtype type)
{
    float value;
    int64_t finite;
    char cause[256];
    TRY(weights_read_tensors(f, state_prefix(kind), p, element, 1, F32, &value, &finite));
    if (state_check_finite(kind, p, element, 1, &value) == OK)
        return status_fail(ERR_INVALID,
                           "checkpoint %s: %s%s has %g (element %lld), which %s does not hold: continue with --dtype fp32",
                           r->dir, state_prefix(kind), p->name, (double)value, (long long)element, dtype_name(type));
    snprintf(cause, sizeof cause, "%s", status_message());
    return status_fail(ERR_INVALID, "checkpoint %s cannot be continued: %s; move it away to take an earlier one", r->dir, cause);
}

/* Reads elements [first, first + n) of a parameter's state. A trained parameter is read from its fp32 master, if there is one. */
static enum status read_param(struct reader *r, int index, enum state_kind kind, int64_t first, int64_t n, enum dtype type,
                              void *data)
{
    const struct model_param *p = &r->model->params[index];
    int64_t finite;
    if (r->model->whole->adapter_params > 0 && !p->trained)
        return source_read(&r->base, index, first, n, type, data);
    if (kind <= STATE_MASTER)
        kind = r->masters && p->trained ? STATE_MASTER : STATE_PARAM;
    struct st_file *f = kind == STATE_PARAM ? r->params : r->optimizer;
    TRY(weights_read_tensors(f, state_prefix(kind), p, first, n, type, data, &finite));
    return finite == n ? OK : refuse_value(f, r, kind, p, first + finite, type);
}

static enum status read_part(void *user, const struct state_part *part)
{
    struct reader *r = user;
    const struct model_unit *u = &r->model->units[part->unit];
    for (int i = u->first_param; i < u->first_param + u->n_params; i++) {
        const struct model_param *p = &r->model->params[i];
        int64_t a = max_i64(part->first, p->offset), b = min_i64(part->first + part->n, p->offset + p->elements);
        if (a < b)
            TRY(read_param(r, i, part->kind, a - p->offset, b - a, part->type,
                           (char *)part->data + (a - part->first) * dtype_size(part->type)));
    }
    return OK;
}

static enum status check_tensors(struct reader *r)
{
    struct st_info info;
    const struct model *m = r->model->whole;
    struct param_tensor t;
    for (int i = 0; i < m->n_params && !r->masters; i++) {
        model_param_tensor(&m->params[i], 0, &t);
        r->masters = has(r->optimizer, STATE_MASTER, t.name, &info);
    }
    for (int i = 0; i < m->n_params; i++)
        TRY(check_parameter(r, &m->params[i]));
    return check_surplus(r);
}

/* Loads every rank's own pieces. The ranks agree after every unit, so that none waits long for a slow or failed one; those with fewer
 * units than the whole model agree as often. */
static enum status load(struct session *s, struct reader *r)
{
    const int all = s->model->whole->n_units, own = s->model->n_units;
    for (int u = 0; u < all; u++)
        TRY(comm_agree(s->comm, u < own ? session_fill(s, (struct state_range){u, 1, STATE_PARAM, STATE_V}, read_part, r) : OK));
    for (int u = 0; u < all; u++)
        TRY(comm_agree(s->comm, u < own ? session_load_packed(s, &r->base, u) : OK));
    return OK;
}

static enum status open_files(const struct session *s, struct reader *r)
{
    char path[CKPT_PATH];
    if (r->model->whole->adapter_params > 0)
        TRY(source_open(r->model, s->base[0] ? s->base : NULL, NULL, s->base_seed, &r->base));
    TRY(ckpt_path(path, r->dir, ckpt_file_names[CKPT_MODEL], ""));
    TRY(st_open(path, &r->params));
    TRY(ckpt_path(path, r->dir, ckpt_file_names[CKPT_OPTIMIZER], ""));
    TRY(st_open(path, &r->optimizer));
    return check_tensors(r);
}

enum status state_read(struct session *s, const char *dir)
{
    struct reader r = {.dir = dir, .model = s->model};
    enum status st = check_config(s->model->whole, dir);
    if (st == OK)
        st = open_files(s, &r);
    st = comm_agree(s->comm, st);
    if (st == OK)
        st = load(s, &r);
    source_close(&r.base);
    st_close(r.optimizer);
    st_close(r.params);
    return st;
}
