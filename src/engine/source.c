#include "engine/source.h"

#include "engine/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum status open_adapter(const char *dir, struct st_file **out)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/" ADAPTER_FILE, dir) >= (int)sizeof path)
        return status_fail(ERR_INVALID, "%.64s...: the path is too long", dir);
    return st_open(path, out);
}

enum status source_open(const struct model *m, const char *path, const char *adapter, uint64_t seed, struct source *out)
{
    *out = (struct source){.model = m, .seed = seed};
    enum status st = path ? st_open(path, &out->file) : OK;
    if (st == OK && adapter)
        st = open_adapter(adapter, &out->adapter);
    if (st != OK)
        source_close(out);
    return st;
}

void source_close(struct source *s)
{
    st_close(s->file);
    st_close(s->adapter);
    free(s->packed.bytes);
    s->file = s->adapter = NULL;
    s->packed.bytes = NULL;
}

/* The parameter as the adapter's file has it. */
static struct model_param renamed(const struct model_param *p)
{
    struct model_param named = *p;
    snprintf(named.name, sizeof named.name, ADAPTER_PREFIX "%.*s", (int)(sizeof named.name - sizeof ADAPTER_PREFIX), p->name);
    return named;
}

enum status source_read(struct source *s, int param, int64_t first, int64_t n, float *data)
{
    const struct model_param *p = &s->model->params[param];
    if (s->adapter && p->from_adapter) {
        struct model_param named = renamed(p);
        return weights_read(s->adapter, &named, first, n, data);
    }
    if (s->file && !p->adapter)
        return weights_read(s->file, p, first, n, data);
    model_init_param(s->model, param, s->seed, first, n, data);
    return OK;
}

static int is_from_adapter(const struct model *m, const char *name)
{
    for (int i = 0; i < m->n_params; i++)
        if (m->params[i].from_adapter && strcmp(m->params[i].name, name) == 0)
            return 1;
    return 0;
}

/* It has not the tensor, or of another shape. */
static enum status refuse_tensor(const struct source *s, const char *name)
{
    char cause[512];
    snprintf(cause, sizeof cause, "%s", status_message());
    if (!st_has(s->adapter, name))
        return status_fail(ERR_INVALID, "the adapter is of another model: %s has no %s", st_path(s->adapter, NULL), name);
    return status_fail(ERR_INVALID, "the adapter is of another model: %s", cause);
}

enum status source_check_adapter(const struct source *s)
{
    const size_t prefix = strlen(ADAPTER_PREFIX);
    for (int i = 0; i < s->model->n_params; i++) {
        struct model_param named = renamed(&s->model->params[i]);
        const char *found;
        if (s->model->params[i].from_adapter && weights_find(s->adapter, &named, &found) != OK)
            return refuse_tensor(s, named.name);
    }
    for (int i = 0; i < st_count(s->adapter); i++) {
        const char *name = st_name(s->adapter, i);
        if (strncmp(name, ADAPTER_PREFIX, prefix) != 0 || !is_from_adapter(s->model, name + prefix))
            return status_fail(ERR_INVALID, "%s: the model has no place for the tensor %s: is the adapter of another model?",
                               st_path(s->adapter, name), name);
    }
    return OK;
}
