/* A model that is an adapter on top of another one. */
#include "train/train.h"

#include "base/sys.h"
#include "model/adapter_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is_model(const char *dir)
{
    char path[4096];
    return snprintf(path, sizeof path, "%s/config.json", dir) < (int)sizeof path && sys_access(path, F_OK) == 0;
}

/* The base as the adapter's configuration calls it: from here, or from the adapter's directory. */
static enum status find_base(const char *adapter, const char *name, char **out)
{
    char beside[4096];
    if (!name[0])
        return status_fail(ERR_INVALID, "--model: %s holds an adapter, and does not say of which model: give that by --model, and the adapter "
                                        "by --adapter",
                           adapter);
    int fits = snprintf(beside, sizeof beside, "%s/%s", adapter, name) < (int)sizeof beside;
    const char *base = is_model(name) ? name : name[0] != '/' && fits && is_model(beside) ? beside : NULL;
    if (!base)
        return status_fail(ERR_INVALID,
                           "--model: %s holds an adapter of %s, which is not there: give the model's directory by --model, and the adapter by "
                           "--adapter",
                           adapter, name);
    *out = strdup(base);
    return *out ? OK : status_fail(ERR_NOMEM, "out of memory");
}

static char *text_of(const struct lora *x)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    if (f)
        lora_print(x, f);
    return f && fclose(f) == 0 ? text : NULL;
}

/* What --lora says must be what the adapter is. */
static enum status take_lora(struct settings *s, const struct lora *is)
{
    char *said = text_of(&s->plan.lora), *found = text_of(is);
    enum status st = said && found ? OK : status_fail(ERR_NOMEM, "out of memory");
    if (st == OK && s->plan.lora.rank > 0 && strcmp(said, found) != 0)
        st = status_fail(ERR_INVALID, "--lora: %s: the adapter in %s is %s: leave out --lora", said, s->adapter, found);
    if (st == OK)
        s->plan.lora = *is;
    free(said);
    free(found);
    return st;
}

static int has_hf(const char *run, char path[4096])
{
    return snprintf(path, 4096, "%s/hf", run) < 4096 && (is_model(path) || adapter_config_is_there(path));
}

enum status train_resolve_run(struct settings *s)
{
    char path[4096];
    if (is_model(s->model) || adapter_config_is_there(s->model) || !has_hf(s->model, path))
        return OK;
    char *result = strdup(path);
    if (!result)
        return status_fail(ERR_NOMEM, "out of memory");
    free(s->model);
    s->model = result;
    return OK;
}

enum status train_resolve_model(struct settings *s)
{
    struct lora lora;
    char base[4096];
    if (!s->model)
        return OK;
    TRY(train_resolve_run(s));
    if (!s->adapter && !adapter_config_is_there(s->model))
        return OK;
    if (!s->adapter) {
        TRY(adapter_config_read(s->model, &lora, base, sizeof base));
        s->adapter = s->model;
        s->model = NULL;
        TRY(find_base(s->adapter, base, &s->model));
        return take_lora(s, &lora);
    }
    if (adapter_config_is_there(s->model))
        return status_fail(ERR_INVALID, "--adapter: %s holds an adapter, too: one at a time; --model is to be its base", s->model);
    if (s->resume && !adapter_config_is_there(s->adapter)) /* what was trained is in the checkpoint */
        return OK;
    TRY(adapter_config_read(s->adapter, &lora, base, sizeof base));
    return take_lora(s, &lora);
}
