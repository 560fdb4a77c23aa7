#include "engine/source.h"

#include "base/convert.h"
#include "base/sys.h"
#include "engine/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECKPOINT_FILE "model.safetensors" /* a checkpoint's file, with the names of the model's parameters */
#define MASTERS_FILE "optimizer.safetensors"
#define MASTERS_PREFIX "master."

static enum status path_of(const char *dir, const char *name, char path[4096])
{
    if (snprintf(path, 4096, "%s/%s", dir, name) < 4096)
        return OK;
    return status_fail(ERR_INVALID, "%.64s...: the path is too long", dir);
}

static int is_there(const char *path)
{
    return sys_access(path, F_OK) == 0;
}

enum status source_adapter_path(const char *adapter, char path[4096])
{
    char peft[4096];
    TRY(path_of(adapter, ADAPTER_FILE, peft));
    TRY(path_of(adapter, CHECKPOINT_FILE, path));
    if (is_there(peft) || !is_there(path))
        strcpy(path, peft);
    return OK;
}

/* Returns the parameter under its name in a file whose names have the prefix. */
static struct model_param renamed(const struct model_param *p, const char *prefix)
{
    struct model_param named = *p;
    snprintf(named.name, sizeof named.name, "%s%.*s", prefix, (int)(sizeof named.name - strlen(prefix) - 1), p->name);
    return named;
}

/* Opens a checkpoint's masters if it has any; checkpoints of fp32 runs have none. */
static enum status open_masters(const char *dir, struct source *s)
{
    char path[4096];
    TRY(path_of(dir, MASTERS_FILE, path));
    TRY(st_open(path, &s->masters));
    for (int i = 0; i < s->model->n_params; i++) {
        struct model_param named = renamed(&s->model->params[i], MASTERS_PREFIX);
        if (s->model->params[i].from_adapter && st_has(s->masters, named.name))
            return OK;
    }
    st_close(s->masters);
    s->masters = NULL;
    return OK;
}

static enum status open_adapter(const char *dir, struct source *s)
{
    char path[4096];
    TRY(source_adapter_path(dir, path));
    const int checkpoint = strcmp(strrchr(path, '/') + 1, CHECKPOINT_FILE) == 0;
    s->prefix = checkpoint ? "" : ADAPTER_PREFIX;
    TRY(st_open(path, &s->adapter));
    if (!model_has_rows(s->model))
        TRY(token_rows_read(dir, s->model, &s->rows));
    return checkpoint ? open_masters(dir, s) : OK;
}

enum status source_open(const struct model *m, const char *path, const char *adapter, uint64_t seed, struct source *out)
{
    *out = (struct source){.model = m, .seed = seed};
    enum status st = path ? st_open(path, &out->file) : OK;
    if (st == OK && adapter)
        st = open_adapter(adapter, out);
    if (st != OK)
        source_close(out);
    return st;
}

void source_close(struct source *s)
{
    st_close(s->file);
    st_close(s->adapter);
    st_close(s->masters);
    token_rows_free(&s->rows);
    free(s->packed.bytes);
    s->file = s->adapter = s->masters = NULL;
    s->packed.bytes = NULL;
}

static void draw(const struct source *s, int param, int64_t first, int64_t n, enum dtype type, void *data)
{
    enum { PIECE = 4096 };
    float value[PIECE];
    for (int64_t at = 0; at < n; at += PIECE) {
        const int64_t count = min_i64(PIECE, n - at);
        model_init_param(s->model, param, s->seed, first + at, count, value);
        convert_values(F32, value, type, (char *)data + at * dtype_size(type), count);
    }
}

/* Copies rows of tokens from the matrix that they begin as. */
static enum status copy_rows(struct source *s, int param, int64_t first, int64_t n, enum dtype type, void *data)
{
    struct token_rows_list all;
    const int64_t columns = s->model->params[param].shape[1];
    TRY(token_rows_of(s->model, &all));
    const struct token_rows *x = all.of;
    while (strcmp(x->tensor.name, s->model->params[param].name) != 0)
        x++;
    enum status st = OK;
    for (int64_t at = first, some; at < first + n && st == OK; at += some) {
        some = min_i64(first + n - at, columns - at % columns);
        st = source_read(s, token_rows_matrix(s->model, x), x->token[at / columns] * columns + at % columns, some, type,
                         (char *)data + (at - first) * dtype_size(type));
    }
    token_rows_free(&all);
    return st;
}

/* Puts the adapter's rows over those of the base among elements [first, first + n) of the parameter. */
static enum status put_rows(const struct source *s, const struct token_rows *x, const struct model_param *p, int64_t first,
                            int64_t n, enum dtype type, void *data)
{
    const int64_t columns = x->tensor.shape[1];
    const struct model_param named = renamed(&x->tensor, s->masters ? MASTERS_PREFIX : s->prefix);
    struct st_file *const from_file = s->masters ? s->masters : s->adapter;
    int64_t there;
    for (int64_t done = 0, some; done < n; done += some) {
        some = model_param_span(p, first + done, n - done, &there);
        for (int64_t i = 0; i < x->tensor.shape[0]; i++) {
            const int64_t row = x->token[i] * columns, from = max_i64(there, row), to = min_i64(there + some, row + columns);
            if (from < to)
                TRY(weights_read(from_file, &named, i * columns + from - row, to - from, type,
                                 (char *)data + (done + from - there) * dtype_size(type)));
        }
    }
    return OK;
}

/* Reads the base's weights and the rows that the adapter replaces. */
static enum status read_base(const struct source *s, const struct model_param *p, int64_t first, int64_t n, enum dtype type,
                             void *data)
{
    TRY(weights_read(s->file, p, first, n, type, data));
    for (int i = 0; i < s->rows.n; i++)
        if (strcmp(s->model->whole->params[s->rows.of[i].param].name, p->name) == 0)
            TRY(put_rows(s, &s->rows.of[i], p, first, n, type, data));
    return OK;
}

enum status source_read(struct source *s, int param, int64_t first, int64_t n, enum dtype type, void *data)
{
    const struct model_param *p = &s->model->params[param];
    if (s->adapter && p->from_adapter) {
        struct model_param named = renamed(p, s->masters ? MASTERS_PREFIX : s->prefix);
        return weights_read(s->masters ? s->masters : s->adapter, &named, first, n, type, data);
    }
    if (s->file && !p->adapter)
        return read_base(s, p, first, n, type, data);
    if (param == s->model->embed_rows || param == s->model->head_rows)
        return copy_rows(s, param, first, n, type, data);
    draw(s, param, first, n, type, data);
    return OK;
}

static int is_from_adapter(const struct model *m, const char *name)
{
    const struct model *all = m->whole;
    for (int i = 0; i < all->n_params; i++)
        if (all->params[i].from_adapter && strcmp(all->params[i].name, name) == 0)
            return 1;
    return 0;
}

static int is_rows(const struct source *s, const char *name)
{
    for (int i = 0; i < s->rows.n; i++)
        if (strcmp(s->rows.of[i].tensor.name, name) == 0)
            return 1;
    return 0;
}

/* Refuses an adapter that lacks the tensor or has it in another shape. */
static enum status refuse_tensor(const struct source *s, const char *name)
{
    char cause[512];
    snprintf(cause, sizeof cause, "%s", status_message());
    if (!st_has(s->adapter, name))
        return status_fail(ERR_INVALID, "the adapter is of another model: %s has no %s", st_path(s->adapter, NULL), name);
    return status_fail(ERR_INVALID, "the adapter is of another model: %s", cause);
}

/* Makes sure that the adapter's file has the rows of tokens. */
static enum status check_rows(const struct source *s)
{
    for (int i = 0; i < s->rows.n; i++) {
        const struct model_param named = renamed(&s->rows.of[i].tensor, s->prefix);
        const char *found;
        if (weights_find(s->adapter, &named, 0, &found) != OK)
            return refuse_tensor(s, named.name);
    }
    return OK;
}

/* Finds the base's parameter behind a name like "model.embed_tokens.base_layer.weight". PEFT saves it beside an adapter of head
 * or embedding, with the head's bias. Returns -1 if there is none. */
static int base_of(const struct model *m, const char *name)
{
    static const char *const middle = ".base_layer";
    const char *end = strstr(name, middle);
    char param[sizeof m->params->name], head[32];
    if (!end || snprintf(param, sizeof param, "%.*s%s", (int)(end - name), name, end + strlen(middle)) >= (int)sizeof param)
        return -1;
    model_head_name(&m->config, head);
    if (strcmp(param, head) == 0)
        return m->head.weight;
    if (m->head.bias >= 0 && strcmp(param, m->params[m->head.bias].name) == 0)
        return m->head.bias;
    return strcmp(param, m->params[m->embed].name) == 0 ? m->embed : -1;
}

/* Refuses a tensor that differs from the base's parameter (ERR_INVALID). */
static enum status compare_base(const struct source *s, int param, const char *name)
{
    enum { PIECE = 1 << 14 };
    const struct model_param *p = &s->model->params[param];
    struct model_param named = *p;
    const char *found;
    snprintf(named.name, sizeof named.name, "%s", name);
    TRY(weights_find(s->adapter, &named, 0, &found));
    float *values = s->file ? sys_malloc(2 * PIECE * sizeof *values) : NULL;
    enum status st = s->file && !values ? status_fail(ERR_NOMEM, "out of memory for an adapter's tensors") : OK;
    int equal = 1;
    for (int64_t at = 0; s->file && st == OK && equal && at < p->elements; at += PIECE) {
        const int64_t n = min_i64(PIECE, p->elements - at);
        st = weights_read(s->file, p, at, n, F32, values);
        if (st == OK)
            st = weights_read(s->adapter, &named, at, n, F32, values + PIECE);
        equal = memcmp(values, values + PIECE, (size_t)n * sizeof *values) == 0;
    }
    free(values);
    if (st != OK || equal)
        return st;
    return status_fail(
        ERR_INVALID,
        "%s: %s is not the base's %s: this adapter goes with other weights, such as a vocabulary that has grown; make a model of "
        "these and the base, and train beside that",
        st_path(s->adapter, name), name, p->name);
}

enum status source_check_adapter(const struct source *s)
{
    const size_t prefix = strlen(s->prefix);
    for (int i = 0; i < s->model->n_params; i++) {
        struct model_param named = renamed(&s->model->params[i], s->prefix);
        const struct model_param as = weights_form(s->adapter, &named);
        const char *found;
        if (s->model->params[i].from_adapter && weights_find(s->adapter, &as, 0, &found) != OK)
            return refuse_tensor(s, named.name);
    }
    TRY(check_rows(s));
    for (int i = 0; i < st_count(s->adapter); i++) {
        const char *name = st_name(s->adapter, i);
        const int base = strncmp(name, s->prefix, prefix) == 0 ? base_of(s->model, name + prefix) : -1;
        if (base >= 0) {
            TRY(compare_base(s, base, name));
            continue;
        }
        if (strncmp(name, s->prefix, prefix) != 0 || (!is_from_adapter(s->model, name + prefix) && !is_rows(s, name + prefix)))
            return status_fail(ERR_INVALID, "%s: the model has no place for the tensor %s: is the adapter of another model?",
                               st_path(s->adapter, name), name);
    }
    return OK;
}
