/* Finding rows of convolutions in files that cut them into thirds. */
#include "engine/thirds.h"

#include "base/num.h"
#include "engine/weights_name.h"

#include <string.h>

static const char letters[] = "qkv";

/* Finds the three tensors of which a name has one; *which: the one named. Returns 0 if the file has not all of them, with one width. */
static int find_tensors(const struct st_file *f, const char *name, struct thirds *out, int *which)
{
    char other[PARAM_NAME];
    struct st_info info;
    const char *end = strstr(name, "_conv1d."), *at = end ? strchr(letters, end[-1]) : NULL;
    if (!at || strlen(name) >= sizeof other)
        return 0;
    *which = (int)(at - letters);
    for (int i = 0; i < 3; i++) {
        strcpy(other, name);
        other[end - 1 - name] = letters[i];
        out->name[i] = weights_name(f, other);
        if (!st_has(f, out->name[i]) || st_find(f, out->name[i], &info) != OK || info.n_dims != 3 || info.shape[1] != 1 ||
            (i > 0 && info.shape[2] != out->columns))
            return 0;
        out->rows[i] = info.shape[0];
        out->columns = info.shape[2];
    }
    return 1;
}

int thirds_find(const struct st_file *f, const struct model_param *p, struct thirds *out)
{
    struct param_tensor t;
    int which;
    if (!p->conv)
        return 0;
    model_param_tensor(p, 0, &t);
    if (!find_tensors(f, t.name, out, &which) || out->columns != p->file_shape[1])
        return 0;
    const int64_t own = p->file_shape[0], all = out->rows[0] + out->rows[1] + out->rows[2], third = ceil_div(all, 3),
                  keys = which < 2 ? own : (all - own) / 2;
    out->before = which * keys;
    return out->rows[which] != own && out->rows[0] == third && out->rows[1] == third && out->before + own <= all &&
           (which < 2 ? all > 2 * own : all == 2 * keys + own);
}

const char *thirds_place(const struct thirds *x, int64_t *element, int64_t *left)
{
    int i = 0;
    *element += x->before * x->columns;
    for (; i < 2 && *element >= x->rows[i] * x->columns; i++)
        *element -= x->rows[i] * x->columns;
    *left = x->rows[i] * x->columns - *element;
    return x->name[i];
}
