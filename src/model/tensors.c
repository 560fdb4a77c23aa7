#include "model/tensors.h"

#include "base/sys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct named {
    char name[PARAM_NAME];
    int param;
};

struct tensor_list {
    size_t n;
    struct named of[];
};

static int compare(const void *a, const void *b)
{
    return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

enum status tensor_list_create(const struct model *m, struct tensor_list **out)
{
    size_t n = 0;
    for (int i = 0; i < m->n_params; i++)
        n += (size_t)model_param_tensors(&m->params[i]);
    struct tensor_list *list = sys_calloc(1, sizeof *list + n * sizeof *list->of);
    if (!list)
        return status_no_memory("for a list of a model's tensors");
    for (int i = 0; i < m->n_params; i++)
        for (int64_t t = 0; t < model_param_tensors(&m->params[i]); t++) {
            struct param_tensor tensor;
            model_param_tensor(&m->params[i], t, &tensor);
            memcpy(list->of[list->n].name, tensor.name, sizeof tensor.name);
            list->of[list->n++].param = i;
        }
    qsort(list->of, n, sizeof *list->of, compare);
    *out = list;
    return OK;
}

void tensor_list_destroy(struct tensor_list *list)
{
    free(list);
}

int tensor_list_find(const struct tensor_list *list, const char *name)
{
    struct named key;
    if (strlen(name) >= sizeof key.name)
        return -1;
    strcpy(key.name, name);
    const struct named *found = bsearch(&key, list->of, list->n, sizeof *list->of, compare);
    return found ? found->param : -1;
}

int tensor_is_further(const struct model_config *c, const char *name)
{
    long long l;
    if (c->further_layers == 0)
        return 0;
    if (strncmp(name, "mtp.", 4) == 0 || strncmp(name, "model.mtp", 9) == 0)
        return 1;
    return sscanf(name, "model.layers.%9lld.", &l) == 1 && l >= c->layers && l < c->layers + c->further_layers;
}
