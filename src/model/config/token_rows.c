#include "model/config/token_rows.h"

#include "base/sys.h"
#include "model/adapters.h"
#include "model/config/adapter_config.h"

#include <stdlib.h>
#include <string.h>

#define KEY "trainable_token_indices"

enum { NAME = 64 };

/* A list of rows, of an adapter_config.json or of --lora, that is being read. */
struct reader {
    const char *where;                /* begins messages */
    const struct model *m;            /* the whole model */
    char embedding[NAME], head[NAME]; /* names of modules */
};

static int says_nothing(const json_t *x)
{
    return !json_is_integer(x) && json_array_size(x) == 0 && json_object_size(x) == 0 && !json_is_string(x);
}

static enum status unexpected(const struct reader *r)
{
    return status_fail(ERR_INVALID, "%s: a list of tokens' numbers, or an object of %s and %s with such lists, is expected",
                       r->where, r->embedding, r->head);
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
                             "%s: token %lld is beyond the %lld rows of %s: give the base with the larger vocabulary "
                             "that the adapter was trained beside",
                             r->where, (long long)token, (long long)p->shape[0], p->name);
        else if (seen[token]++)
            st = status_fail(ERR_INVALID, "%s: token %lld is listed twice", r->where, (long long)token);
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

int token_rows_matrix(const struct model *m, const struct token_rows *x)
{
    return x->param == m->params[m->embed].whole ? m->embed : m->head.weight;
}

/* Refuses rows of a matrix that has an adapter or is trained whole, as PEFT does. */
static enum status check_alone(const struct reader *r, int param)
{
    const struct model *m = r->m;
    const int adapted = (param == m->embed && m->embedding.rank > 0) || (param == m->head.weight && m->head.rank > 0);
    if (!adapted && !m->params[param].from_adapter)
        return OK;
    return status_fail(ERR_INVALID, "%s: %s %s, beside which single rows are not taken", r->where, m->params[param].name,
                       adapted ? "has an adapter" : "is trained whole (modules_to_save)");
}

/* Adds the rows of a module; name "": the embedding. */
static enum status add(const struct reader *r, const char *name, const json_t *list, struct token_rows_list *out)
{
    const int of_embedding = !name[0] || adapter_targeted_by(name, r->embedding);
    if (!json_is_array(list) || json_array_size(list) == 0)
        return unexpected(r);
    if (!of_embedding && !adapter_targeted_by(name, r->head))
        return status_fail(ERR_INVALID, "%s: %.100s is not the embedding (%s) or the head (%s), of which rows are read", r->where,
                           name, r->embedding, r->head);
    if (out->n == TOKEN_ROWS_MATRICES)
        return unexpected(r);
    struct token_rows *x = &out->of[out->n++];
    *x = (struct token_rows){.param = of_embedding ? r->m->embed : r->m->head.weight};
    snprintf(x->tensor.name, sizeof x->tensor.name, "%.*s" TOKEN_ROWS_TENSOR,
             (int)(sizeof x->tensor.name - sizeof TOKEN_ROWS_TENSOR), of_embedding ? r->embedding : r->head);
    TRY(check_alone(r, x->param));
    return fill(r, list, x);
}

static int is_of_head(const struct reader *r, const struct token_rows *x)
{
    const size_t n = strlen(r->head);
    return strncmp(x->tensor.name, r->head, n) == 0 && strcmp(x->tensor.name + n, TOKEN_ROWS_TENSOR) == 0;
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
                           "%s: head and embedding are one matrix, and rows of the head are others than the embedding's: "
                           "give those of the embedding alone",
                           r->where);
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

/* Makes the JSON value of a text of `tokens`: a list or, with names of modules, an object of lists. */
json_t *token_rows_json(const char *text)
{
    struct lora_tokens x = {.first = 0};
    json_t *plain = json_array(), *named = json_object();
    for (const char *at = text; lora_next_tokens(&at, &x);) {
        json_t *list = x.module[0] ? json_object_get(named, x.module) : plain;
        if (!list && json_object_set_new(named, x.module, json_array()) == 0)
            list = json_object_get(named, x.module);
        for (int64_t t = x.first; t < x.end; t++)
            json_array_append_new(list, json_integer((json_int_t)t));
    }
    json_t *all = json_object_size(named) > 0 ? named : plain;
    json_decref(all == named ? plain : named);
    return all;
}

/* Appends a list's tokens to a text of `tokens`, neighbours as "40-79". Returns 0 if there is no room. */
static int append_tokens(const char *module, const json_t *list, char out[LORA_TEXT])
{
    const size_t n = json_array_size(list);
    size_t used = strlen(out);
    for (size_t i = 0, next; i < n && used < LORA_TEXT; i = next) {
        const json_int_t first = json_integer_value(json_array_get(list, i));
        for (next = i + 1; next < n && json_integer_value(json_array_get(list, next)) == first + (json_int_t)(next - i);)
            next++;
        used += (size_t)snprintf(out + used, LORA_TEXT - used, "%s%s%s%lld", used > 0 ? "," : "", i == 0 ? module : "",
                                 i == 0 && module[0] ? ":" : "", (long long)first);
        if (next > i + 1 && used < LORA_TEXT)
            used += (size_t)snprintf(out + used, LORA_TEXT - used, "-%lld", (long long)(first + (json_int_t)(next - i) - 1));
    }
    return used < LORA_TEXT;
}

/* Tells whether the value is a list of tokens' numbers that a text of `tokens` may have. */
static int is_list(const json_t *list)
{
    enum { MOST = 999999999 };
    size_t i;
    json_t *x;
    json_array_foreach(list, i, x)
    {
        if (!json_is_integer(x) || json_integer_value(x) < 0 || json_integer_value(x) > MOST)
            return 0;
    }
    return json_array_size(list) > 0;
}

static enum status write_text(const char *dir, const json_t *value, struct lora *out)
{
    const char *name;
    json_t *list;
    size_t n = json_array_size(value);
    int fits = 1, form = json_is_object(value) || is_list(value);
    if (json_is_array(value))
        fits = append_tokens("", value, out->tokens);
    json_object_foreach((json_t *)value, name, list)
    {
        form =
            form && name[0] && strlen(name) < sizeof((struct lora_tokens *)0)->module && !strpbrk(name, ",=: ") && is_list(list);
        fits = fits && append_tokens(name, list, out->tokens);
        n += json_array_size(list);
    }
    if (!form)
        return status_fail(ERR_INVALID,
                           "%s/adapter_config.json: " KEY
                           ": a list of tokens' numbers, or an object of modules' names with such lists, is expected",
                           dir);
    if (!fits || n > LORA_MOST_TOKENS) {
        out->tokens[0] = 0;
        out->tokens_put = 1;
    }
    return OK;
}

enum status token_rows_text(const char *dir, struct lora *out)
{
    json_t *root;
    out->tokens[0] = 0;
    TRY(adapter_config_load(dir, &root));
    const json_t *value = json_object_get(root, KEY);
    enum status st = says_nothing(value) ? OK : write_text(dir, value, out);
    json_decref(root);
    return st;
}

/* Writes a module's name, of which the parameter is the weight. */
static void name_module(const char *param, char module[NAME])
{
    snprintf(module, NAME, "%.*s", (int)(strlen(param) - strlen(".weight")), param);
}

/* Lists the rows of a value; where: begins messages. */
static enum status list_rows(const char *where, const json_t *value, const struct model *m, struct token_rows_list *out)
{
    char head[32];
    struct reader r = {.where = where, .m = m->whole};
    model_head_name(&r.m->config, head);
    name_module(head, r.head);
    name_module(r.m->params[r.m->embed].name, r.embedding);
    enum status st = says_nothing(value) ? OK : list_all(&r, value, out);
    if (st != OK)
        token_rows_free(out);
    return st;
}

enum status token_rows_of(const struct model *m, struct token_rows_list *out)
{
    *out = (struct token_rows_list){.n = 0};
    json_t *value = token_rows_json(m->config.lora.tokens);
    enum status st = value ? list_rows("--lora: tokens", value, m, out) : status_no_memory("for an adapter's tokens");
    json_decref(value);
    return st;
}

enum status token_rows_read(const char *dir, const struct model *m, struct token_rows_list *out)
{
    char path[4096], where[4096 + 32];
    json_t *root;
    *out = (struct token_rows_list){.n = 0};
    if (!adapter_config_is_there(dir))
        return token_rows_of(m, out);
    TRY(adapter_config_path(dir, path));
    TRY(adapter_config_load(dir, &root));
    snprintf(where, sizeof where, "%s: " KEY, path);
    enum status st = list_rows(where, json_object_get(root, KEY), m, out);
    json_decref(root);
    return st;
}

void token_rows_free(struct token_rows_list *x)
{
    for (int i = 0; i < x->n; i++)
        free(x->of[i].token);
    x->n = 0;
}
