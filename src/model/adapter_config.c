#include "model/adapter_config.h"

#include "base/sys.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_NAME "adapter_config.json"

static enum status path_of(const char *dir, char path[4096])
{
    if (snprintf(path, 4096, "%s/" FILE_NAME, dir) < 4096)
        return OK;
    return status_fail(ERR_INVALID, "%.64s...: the path is too long", dir);
}

int adapter_config_is_there(const char *dir)
{
    char path[4096];
    return path_of(dir, path) == OK && sys_access(path, F_OK) == 0;
}

/* ---- reading ---- */

/* A file being read. */
struct reader {
    const char *path;
    const json_t *root;
};

static enum status refuse(const struct reader *r, const char *key, const char *why)
{
    char *value = json_dumps(json_object_get(r->root, key), JSON_ENCODE_ANY | JSON_COMPACT);
    enum status st = status_fail(ERR_INVALID, "%s: %s is %.100s: %s", r->path, key, value ? value : "?", why);
    free(value);
    return st;
}

static int says_nothing(const json_t *x)
{
    return !x || json_is_null(x) || json_is_false(x) || (json_is_object(x) && json_object_size(x) == 0) ||
           (json_is_array(x) && json_array_size(x) == 0) || (json_is_number(x) && json_number_value(x) == 0.0) ||
           (json_is_string(x) && json_string_value(x)[0] == 0);
}

/* Keys that are read, or that change nothing here. What others say is refused unless it is nothing. */
static const char *const known[] = {"peft_type", "r", "lora_alpha", "target_modules", "use_rslora", "modules_to_save", "rank_pattern",
                                    "alpha_pattern", "bias", "base_model_name_or_path", "lora_dropout", "fan_in_fan_out", "task_type",
                                    "inference_mode", "auto_mapping", "revision", "peft_version", "init_lora_weights", "megatron_core",
                                    "loftq_config", "corda_config", "eva_config", "qalora_group_size", NULL};

static enum status check_keys(const struct reader *r)
{
    const char *key, *kind = json_string_value(json_object_get(r->root, "peft_type")),
                    *bias = json_string_value(json_object_get(r->root, "bias"));
    const json_t *init = json_object_get(r->root, "init_lora_weights");
    json_t *value;
    if (!kind || strcmp(kind, "LORA") != 0)
        return refuse(r, "peft_type", "only LORA is read");
    if (bias && strcmp(bias, "none") != 0)
        return refuse(r, "bias", "biases are not trained with adapters here");
    if (json_is_string(init) && strcmp(json_string_value(init), "gaussian") != 0)
        return refuse(r, "init_lora_weights", "such an adapter goes with a base that was changed for it; let PEFT convert it to a plain one");
    if (json_is_true(json_object_get(r->root, "ensure_weight_tying")))
        return refuse(r, "ensure_weight_tying", "adapters of head and embedding are not tied here; where it has neither, set it to false");
    json_object_foreach((json_t *)r->root, key, value)
    {
        int i = 0;
        while (known[i] && strcmp(known[i], key) != 0)
            i++;
        if (!known[i] && !says_nothing(value))
            return refuse(r, key, "ltrain does not do that");
    }
    return OK;
}

static int is_listed(const char *list, const char *name)
{
    char one[LORA_TEXT];
    for (const char *at = list; lora_next_name(&at, one, sizeof one);)
        if (strcmp(one, name) == 0)
            return 1;
    return 0;
}

/* Behind the number of a layer: PEFT may list all maps of all layers. The tensors show whether every layer was meant. */
static const char *in_layer(const char *name)
{
    const char *from = name;
    for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.')) {
        size_t digits = strspn(dot + 1, "0123456789");
        if (digits > 0 && dot[1 + digits] == '.')
            from = dot + 2 + digits;
    }
    return from;
}

/* Names, joined by commas. */
static enum status read_names(const struct reader *r, const char *key, char out[LORA_TEXT])
{
    const json_t *list = json_object_get(r->root, key);
    size_t used = 0;
    out[0] = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (!name || !name[0] || strpbrk(name, ", \\^$*+?()[]{}|"))
            return refuse(r, key, "names of modules are expected");
        name = in_layer(name);
        if (is_listed(out, name))
            continue;
        used += (size_t)snprintf(out + used, LORA_TEXT - used, "%s%s", used ? "," : "", name);
        if (used >= LORA_TEXT)
            return refuse(r, key, "that is too long");
    }
    return OK;
}

/* A text stands for a regular expression of whole names, unless it is all-linear. */
static enum status read_targets(const struct reader *r, struct lora *out)
{
    const json_t *targets = json_object_get(r->root, "target_modules");
    const char *text = json_string_value(targets);
    if (!text && json_array_size(targets) == 0)
        return refuse(r, "target_modules", "names of modules or a regular expression are expected");
    if (!text)
        return read_names(r, "target_modules", out->targets);
    const char *form = strcmp(text, "all-linear") == 0 || strpbrk(text, "\\^$*+?()[]{}|") ? "%s" : "(%s)";
    if (snprintf(out->targets, LORA_TEXT, strcmp(form, "%s") == 0 ? "%s" : "(%s)", text) >= LORA_TEXT)
        return refuse(r, "target_modules", "that is too long");
    return OK;
}

static int is_rank(const json_t *x)
{
    return json_is_integer(x) && json_integer_value(x) >= 1 && json_integer_value(x) <= LORA_MOST_RANK;
}

static int is_alpha(const json_t *x)
{
    return json_is_number(x) && json_number_value(x) > 0.0 && json_number_value(x) <= LORA_MOST_ALPHA;
}

static const char rank_expected[] = "a rank is a whole number from 1 to 4096", alpha_expected[] = "alpha is a number above 0 and at most 1e6";
_Static_assert(LORA_MOST_RANK == 4096 && LORA_MOST_ALPHA == 1000000, "as the sentences say");

/* {"q_proj": 8} as q_proj:8 */
static enum status read_pattern(const struct reader *r, const char *key, int (*in_range)(const json_t *), const char *expected,
                                char out[LORA_TEXT])
{
    const char *name;
    json_t *value;
    size_t used = 0;
    out[0] = 0;
    json_object_foreach(json_object_get(r->root, key), name, value)
    {
        if (!name[0] || strpbrk(name, ":;,"))
            return refuse(r, key, "names of modules are expected");
        if (!in_range(value))
            return refuse(r, key, expected);
        used += (size_t)snprintf(out + used, LORA_TEXT - used, "%s%s:%.17g", used ? ";" : "", name, json_number_value(value));
        if (used >= LORA_TEXT)
            return refuse(r, key, "that is too long");
    }
    return OK;
}

static enum status read_all(const struct reader *r, struct lora *out, char *base, size_t bytes)
{
    const json_t *rank = json_object_get(r->root, "r"), *alpha = json_object_get(r->root, "lora_alpha"),
                 *dropout = json_object_get(r->root, "lora_dropout");
    const char *name = json_string_value(json_object_get(r->root, "base_model_name_or_path"));
    *out = (struct lora){0};
    TRY(check_keys(r));
    if (!is_rank(rank))
        return refuse(r, "r", rank_expected);
    if (!is_alpha(alpha))
        return refuse(r, "lora_alpha", alpha_expected);
    if (dropout && !(json_is_number(dropout) && json_number_value(dropout) >= 0.0 && json_number_value(dropout) < 1.0))
        return refuse(r, "lora_dropout", "dropout is at least 0 and below 1");
    out->rank = (int)json_integer_value(rank);
    out->alpha = json_number_value(alpha);
    out->dropout = json_number_value(dropout);
    out->rank_stabilised = json_is_true(json_object_get(r->root, "use_rslora"));
    TRY(read_targets(r, out));
    TRY(read_names(r, "modules_to_save", out->saved));
    TRY(read_pattern(r, "rank_pattern", is_rank, rank_expected, out->ranks));
    TRY(read_pattern(r, "alpha_pattern", is_alpha, alpha_expected, out->alphas));
    snprintf(base, bytes, "%s", name ? name : "");
    return OK;
}

enum status adapter_config_read(const char *dir, struct lora *out, char *base, size_t bytes)
{
    char path[4096];
    json_error_t error;
    TRY(path_of(dir, path));
    FILE *f = sys_read_text(path);
    if (!f)
        return status_fail(ERR_INVALID, "cannot read %s: %s", path, sys_strerror(errno));
    json_t *root = json_loadf(f, JSON_REJECT_DUPLICATES, &error);
    fclose(f);
    struct reader r = {path, root};
    enum status st = json_is_object(root) ? read_all(&r, out, base, bytes)
                                          : status_fail(ERR_INVALID, "%s: line %d: %s", path, error.line, error.text);
    json_decref(root);
    return st;
}

/* ---- writing ---- */

static json_t *names_of(const char *list)
{
    char name[LORA_TEXT];
    json_t *all = json_array();
    for (const char *at = list; lora_next_name(&at, name, sizeof name);)
        json_array_append_new(all, json_string(name));
    return all;
}

/* The last parts of the names of all maps with adapters, as PEFT expands all-linear. */
static json_t *expanded(const struct model *m)
{
    json_t *all = json_array();
    for (int i = 0; i < m->n_params; i++) {
        const char *end = m->params[i].adapter ? strstr(m->params[i].name, ".lora_A.weight") : NULL, *from = end;
        while (from && from > m->params[i].name && from[-1] != '.')
            from--;
        json_t *name = end ? json_stringn(from, (size_t)(end - from)) : NULL;
        size_t k = 0;
        while (name && k < json_array_size(all) && !json_equal(json_array_get(all, k), name))
            k++;
        if (name && k == json_array_size(all))
            json_array_append_new(all, name);
        else
            json_decref(name);
    }
    return all;
}

static json_t *pattern_of(const char *text)
{
    char copy[LORA_TEXT], *rest = copy;
    json_t *all = json_object();
    snprintf(copy, sizeof copy, "%s", text);
    for (char *item; copy[0] && (item = strsep(&rest, ";"));) {
        char *colon = strrchr(item, ':');
        if (!colon)
            continue;
        *colon = 0;
        double x = strtod(colon + 1, NULL);
        json_object_set_new(all, item, x == (double)(json_int_t)x ? json_integer((json_int_t)x) : json_real(x));
    }
    return all;
}

/* Whether its maps are stored [in, out], as PEFT wants to know. */
static int is_conv1d(const struct model *m)
{
    const struct model_block *b = model_find_block(&m->layers[0], BLOCK_ATTENTION);
    return b && !b->attention.o.transposed;
}

static json_t *describe(const struct model *m, const char *base)
{
    const struct lora *l = &m->config.lora;
    int all = strcmp(l->targets, "all-linear") == 0, whole = (double)(json_int_t)l->alpha == l->alpha;
    json_t *targets = all ? expanded(m) : lora_targets_regex(l) ? json_string(l->targets) : names_of(l->targets);
    return json_pack("{s:n, s:s, s:s, s:b, s:b, s:b, s:o, s:f, s:o, s:s, s:i, s:o, s:n, s:o, s:o, s:s, s:b, s:b}", "auto_mapping",
                     "base_model_name_or_path", base, "bias", "none", "fan_in_fan_out", is_conv1d(m), "inference_mode", 1, "init_lora_weights", 1,
                     "lora_alpha", whole ? json_integer((json_int_t)l->alpha) : json_real(l->alpha), "lora_dropout", l->dropout, "modules_to_save",
                     l->saved[0] ? names_of(l->saved) : json_null(), "peft_type", "LORA", "r", l->rank, "rank_pattern", pattern_of(l->ranks),
                     "revision", "alpha_pattern", pattern_of(l->alphas), "target_modules", targets, "task_type", "CAUSAL_LM", "use_dora", 0,
                     "use_rslora", l->rank_stabilised);
}

enum status adapter_config_write(const char *dir, const struct model *m, const char *base)
{
    char path[4096];
    TRY(path_of(dir, path));
    json_t *root = describe(m, base);
    FILE *f = root ? sys_write_text(path) : NULL;
    int failed = f ? json_dumpf(root, f, JSON_INDENT(2)) != 0 || fputc('\n', f) == EOF || fflush(f) != 0 || sys_fsync(fileno(f)) != 0 : 1;
    int reason = errno;
    json_decref(root);
    if (f && fclose(f) != 0)
        failed = 1;
    if (failed)
        return status_fail(ERR_IO, "cannot write %s: %s", path, sys_strerror(reason));
    return OK;
}
