#include "model/config/token_rows.h"

#include "base/sys.h"
#include "model/adapters.h"
#include "model/config/adapter_config.h"

#include <stdlib.h>
#include <string.h>

#define KEY "trainable_token_indices"
#define TENSOR ".token_adapter.trainable_tokens_delta"

enum { NAME = 64 };

/* An adapter_config.json whose rows are being listed. */
struct reader {
    const char *path;
    const struct model *m;            /* the whole model */
    char embedding[NAME], head[NAME]; /* names of modules */
};

static int says_nothing(const json_t *x)
{
    return !json_is_integer(x) && json_array_size(x) == 0 && json_object_size(x) == 0 && !json_is_string(x);
}

int token_rows_are_in(const char *dir)
{
    json_t *root;
    if (!adapter_config_is_there(dir) || adapter_config_load(dir, &root) != OK)
        return 0;
    const int there = !says_nothing(json_object_get(root, KEY));
    json_decref(root);
    return there;
}

static enum status unexpected(const struct reader *r)
{
    return status_fail(ERR_INVALID,
                       "%s: " KEY ": a list of tokens' numbers, or an object of %s and %s with such lists, is expected", r->path,
                       r->embedding, r->head);
}

/* Fills in a list's tokens. Of a token that is listed twice chance would say which row counts. */
static enum status fill(const struct reader *r, const json_t *list, struct token_rows *out)
{
    const struct model_param *p = &r->m->params[out->param];
    const size_t rows = (size_t)p->shape[0], n = json_array_size(list);
    uint8_t *seen = sys_calloc(rows, 1);
    out->token = sys_calloc(n, sizeof *out->token);
    enum status st = seen && out->token ? OK : status_no_memory("for an adapter's tokens");
    for (size_t i = 0; i < n && st == OK; i++) {
        const json_t *x = json_array_get(list, i);
        const json_int_t token = json_is_integer(x) ? json_integer_value(x) : -1;
        if (token < 0)
            st = unexpected(r);
        else if (token >= p->shape[0])
            st = status_fail(ERR_INVALID,
                             "%s: " KEY ": token %lld is beyond the %lld rows of %s: give the base with the larger vocabulary "
                             "that the adapter was trained beside",
                             r->path, (long long)token, (long long)p->shape[0], p->name);
        else if (seen[token]++)
            st = status_fail(ERR_INVALID, "%s: " KEY ": token %lld is listed twice", r->path, (long long)token);
        else
            out->token[i] = (int32_t)token;
    }
    free(seen);
    out->tensor.shape[0] = (int64_t)n;
    out->tensor.shape[1] = p->shape[1];
    memcpy(out->tensor.file_shape, out->tensor.shape, sizeof out->tensor.file_shape);
    out->tensor.elements = (int64_t)n * p->shape[1];
    return st;
}

/* Refuses rows of a matrix that has an adapter or is trained whole, as PEFT does. */
static enum status check_alone(const struct reader *r, int param)
{
    const struct model *m = r->m;
    const int adapted = (param == m->embed && m->embedding.rank > 0) || (param == m->head.weight && m->head.rank > 0);
    if (!adapted && !m->params[param].from_adapter)
        return OK;
    return status_fail(ERR_INVALID, "%s: " KEY ": %s %s, beside which single rows are not read", r->path, m->params[param].name,
                       adapted ? "has an adapter" : "is trained whole (modules_to_save)");
}

/* Adds the rows of a module; name "": the embedding. */
static enum status add(const struct reader *r, const char *name, const json_t *list, struct token_rows_list *out)
{
    const int of_embedding = !name[0] || adapter_targeted_by(name, r->embedding);
    if (!json_is_array(list) || json_array_size(list) == 0)
        return unexpected(r);
    if (!of_embedding && !adapter_targeted_by(name, r->head))
        return status_fail(ERR_INVALID, "%s: " KEY ": %.100s is not the embedding (%s) or the head (%s), of which rows are read",
                           r->path, name, r->embedding, r->head);
    if (out->n == TOKEN_ROWS_MATRICES)
        return unexpected(r);
    struct token_rows *x = &out->of[out->n++];
    *x = (struct token_rows){.param = of_embedding ? r->m->embed : r->m->head.weight};
    snprintf(x->tensor.name, sizeof x->tensor.name, "%.*s" TENSOR, (int)(sizeof x->tensor.name - sizeof TENSOR),
             of_embedding ? r->embedding : r->head);
    TRY(check_alone(r, x->param));
    return fill(r, list, x);
}

static int is_of_head(const struct reader *r, const struct token_rows *x)
{
    const size_t n = strlen(r->head);
    return strncmp(x->tensor.name, r->head, n) == 0 && strcmp(x->tensor.name + n, TENSOR) == 0;
}

/* Settles rows of a tied head: PEFT saves them with the embedding's only if both lists are equal. */
static enum status settle_tied(const struct reader *r, struct token_rows_list *x)
{
    const int head = x->n > 0 && is_of_head(r, &x->of[0]) ? 0 : x->n > 1 && is_of_head(r, &x->of[1]) ? 1 : -1;
    if (x->n == 2 && strcmp(x->of[0].tensor.name, x->of[1].tensor.name) == 0)
        return unexpected(r);
    if (!r->m->config.tied || head < 0)
        return OK;
    const int64_t n = x->of[0].tensor.shape[0];
    if (x->n == 1 || x->of[1].tensor.shape[0] != n || memcmp(x->of[0].token, x->of[1].token, (size_t)n * sizeof(int32_t)) != 0)
        return status_fail(ERR_INVALID,
                           "%s: " KEY
                           ": head and embedding are one matrix, and rows of the head are others than the embedding's: "
                           "such an adapter is not read",
                           r->path);
    free(x->of[head].token);
    x->of[0] = x->of[1 - head];
    x->n = 1;
    return OK;
}

static enum status list_all(const struct reader *r, const json_t *value, struct token_rows_list *out)
{
    const char *name;
    json_t *list;
    if (!json_is_object(value))
        return add(r, "", value, out);
    json_object_foreach((json_t *)value, name, list) TRY(name[0] ? add(r, name, list, out) : unexpected(r));
    return settle_tied(r, out);
}

/* Writes a module's name, of which the parameter is the weight. */
static void name_module(const char *param, char module[NAME])
{
    snprintf(module, NAME, "%.*s", (int)(strlen(param) - strlen(".weight")), param);
}

enum status token_rows_read(const char *dir, const struct model *m, struct token_rows_list *out)
{
    char path[4096], head[32];
    struct reader r = {.path = path, .m = m->whole};
    json_t *root;
    *out = (struct token_rows_list){.n = 0};
    if (!adapter_config_is_there(dir))
        return OK;
    TRY(adapter_config_path(dir, path));
    TRY(adapter_config_load(dir, &root));
    model_head_name(&r.m->config, head);
    name_module(head, r.head);
    name_module(r.m->params[r.m->embed].name, r.embedding);
    const json_t *value = json_object_get(root, KEY);
    enum status st = says_nothing(value) ? OK : list_all(&r, value, out);
    json_decref(root);
    if (st != OK)
        token_rows_free(out);
    return st;
}

void token_rows_free(struct token_rows_list *x)
{
    for (int i = 0; i < x->n; i++)
        free(x->of[i].token);
    x->n = 0;
}
