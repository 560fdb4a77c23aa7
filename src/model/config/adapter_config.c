/* Reading PEFT's adapter_config.json. */
#include "model/config/adapter_config.h"

#include "base/sys.h"

#include "model/adapter_names.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum {
    LISTED_BYTES = 512 /* most bytes of names that stay a comma-separated list; longer lists become one pattern */,
    MOST_LAYER = 999999
};

enum status adapter_config_path(const char *dir, char path[4096])
{
    if (snprintf(path, 4096, "%s/adapter_config.json", dir) < 4096)
        return OK;
    return status_fail(ERR_INVALID, "%.64s...: the path is too long", dir);
}

int adapter_config_is_there(const char *dir)
{
    char path[4096];
    return adapter_config_path(dir, path) == OK && sys_access(path, F_OK) == 0;
}

/* An adapter_config.json that is being read. */
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

/* Refuses initial values for which PEFT 0.21.2 subtracts the adapter's product from the base, so that the named base is not the
 * one trained. Accepted ones leave the base unchanged. */
static enum status check_init(const struct reader *r)
{
    static const char *const beside[] = {"gaussian", "eva", "orthogonal", "mica", NULL}, *const taken[] = {"pissa",   "olora",
                                                                                                           "corda",   "loftq",
                                                                                                           "lora_ga", NULL};
    const json_t *init = json_object_get(r->root, "init_lora_weights");
    const char *word = json_string_value(init);
    if (!init || json_is_null(init) || json_is_boolean(init))
        return OK;
    for (int i = 0; word && beside[i]; i++)
        if (strcasecmp(word, beside[i]) == 0)
            return OK;
    for (int i = 0; word && taken[i]; i++)
        if (strncasecmp(word, taken[i], strlen(taken[i])) == 0)
            return refuse(r, "init_lora_weights",
                          "such an adapter goes with a base that was changed for it; let PEFT convert it to a plain one");
    return refuse(r, "init_lora_weights",
                  "true, false, gaussian, eva, orthogonal and mica are read, which leave the base as it is");
}

/* Keys that are read, or that change nothing here. Any other key is refused unless its value is empty, false or zero. */
/* clang-format off */
static const char *const known[] = {"peft_type", "r", "lora_alpha", "target_modules", "use_rslora", "modules_to_save", "rank_pattern",
                                    "alpha_pattern", "bias", "base_model_name_or_path", "lora_dropout", "fan_in_fan_out", "task_type",
                                    "inference_mode", "auto_mapping", "revision", "peft_version", "init_lora_weights", "megatron_core",
                                    "loftq_config", "corda_config", "eva_config", "lora_ga_config", "qalora_group_size", "exclude_modules",
                                    "layers_to_transform", "layers_pattern", "target_parameters", "trainable_token_indices", NULL};
/* clang-format on */

static enum status check_keys(const struct reader *r)
{
    const char *key, *kind = json_string_value(json_object_get(r->root, "peft_type")),
                     *bias = json_string_value(json_object_get(r->root, "bias"));
    json_t *value;
    if (!kind || strcmp(kind, "LORA") != 0)
        return refuse(r, "peft_type", "only LORA is read");
    if (bias && strcmp(bias, "none") != 0)
        return refuse(r, "bias", "biases are not trained with adapters here");
    TRY(check_init(r));
    if (json_is_true(json_object_get(r->root, "ensure_weight_tying")))
        return refuse(r, "ensure_weight_tying",
                      "adapters of head and embedding are not tied here; where it has neither, set it to false");
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

/* Joins names of modules by commas. If `may_join`, many names of several layers become one regular expression of whole names. */
static enum status join_names(const struct reader *r, const char *key, const json_t *list, int may_join, char out[LORA_TEXT])
{
    size_t used = 0;
    out[0] = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (!name || !name[0] || strpbrk(name, ", \\^$*+?()[]{}|"))
            return refuse(r, key, "names of modules are expected");
        used += strlen(name) + (i > 0);
    }
    if (may_join && used > LISTED_BYTES)
        return adapter_names_join(list, "(.*[.])?(", ")", out) ? OK : refuse(r, key, "that is too long");
    if (used >= LORA_TEXT)
        return refuse(r, key, "that is too long");
    for (size_t i = 0; i < json_array_size(list); i++)
        snprintf(out + strlen(out), LORA_TEXT - strlen(out), "%s%s", i ? "," : "", json_string_value(json_array_get(list, i)));
    return OK;
}

/* Reads a list of names of modules as join_names joins them. */
static enum status read_names(const struct reader *r, const char *key, int may_join, char out[LORA_TEXT])
{
    const json_t *list = json_object_get(r->root, key);
    if (!says_nothing(list) && !json_is_array(list))
        return refuse(r, key, "a list of names of modules is expected");
    return join_names(r, key, list, may_join, out);
}

/* Reads a list of names, or a text that is a regular expression of whole names. */
static enum status read_modules(const struct reader *r, const char *key, char out[LORA_TEXT])
{
    const char *text = json_string_value(json_object_get(r->root, key));
    if (!text || !text[0])
        return read_names(r, key, 1, out);
    return snprintf(out, LORA_TEXT, lora_is_regex(text) ? "%s" : "(%s)", text) < LORA_TEXT ? OK
                                                                                           : refuse(r, key, "that is too long");
}

/* Appends the module whose parameter PEFT adapts: a map's without its .weight, or a stack of experts, which bears the parameter's
 * name. */
static enum status add_parameter(const struct reader *r, const char *name, json_t *modules)
{
    static const char weight[] = ".weight";
    const size_t n = name ? strlen(name) : 0, end = n > strlen(weight) ? n - strlen(weight) : n;
    if (n == 0)
        return refuse(r, "target_parameters", "names of parameters are expected");
    json_t *module = strcmp(name + end, weight) == 0 ? json_stringn(name, end)
                     : strchr(name, '.')             ? json_string(name)
                                                     : json_sprintf("experts.%s", name);
    if (!module || json_array_append_new(modules, module) != 0)
        return status_no_memory("for an adapter's targets");
    return OK;
}

/* Reads the names of target_parameters into modules. */
static enum status read_parameters(const struct reader *r, json_t *modules)
{
    const json_t *list = json_object_get(r->root, "target_parameters");
    if (!says_nothing(list) && !json_is_array(list))
        return refuse(r, "target_parameters", "a list of names of parameters is expected");
    for (size_t i = 0; i < json_array_size(list); i++)
        TRY(add_parameter(r, json_string_value(json_array_get(list, i)), modules));
    return OK;
}

/* Reads targets, of which some are parameters: PEFT restricts these neither to layers nor by excluded modules. */
static enum status read_with_parameters(const struct reader *r, json_t *parameters, json_t *all, struct lora *out)
{
    const json_t *targets = json_object_get(r->root, "target_modules");
    const char *text = json_string_value(targets), *expression = text && text[0] ? text : NULL;
    TRY(read_parameters(r, parameters));
    if (json_array_extend(all, parameters) != 0 || (json_is_array(targets) && json_array_extend(all, (json_t *)targets) != 0))
        return status_no_memory("for an adapter's targets");
    if (!expression)
        TRY(join_names(r, "target_modules", all, 1, out->targets));
    if (!expression && !out->layers[0] && !out->excluded[0])
        return OK;
    return adapter_names_guard(targets, expression, parameters, out) ? OK : refuse(r, "target_modules", "that is too long");
}

static enum status read_targets(const struct reader *r, struct lora *out)
{
    const json_t *targets = json_object_get(r->root, "target_modules");
    const char *text = json_string_value(targets);
    if (!says_nothing(json_object_get(r->root, "target_parameters"))) {
        json_t *parameters = json_array(), *all = json_array();
        enum status st =
            parameters && all ? read_with_parameters(r, parameters, all, out) : status_no_memory("for an adapter's targets");
        json_decref(parameters);
        json_decref(all);
        return st;
    }
    if (!text && json_array_size(targets) == 0)
        return refuse(r, "target_modules", "names of modules or a regular expression are expected");
    out->modules_only = 1;
    if (text && strcasecmp(text, "all-linear") == 0)
        return snprintf(out->targets, LORA_TEXT, "all-linear"), OK;
    return read_modules(r, "target_modules", out->targets);
}

/* Reads `layers_to_transform`: a layer's number or a list of numbers. */
static enum status read_layers(const struct reader *r, char out[LORA_TEXT])
{
    const json_t *list = json_object_get(r->root, "layers_to_transform");
    const size_t n = json_is_integer(list) ? 1 : json_array_size(list);
    size_t used = 0;
    out[0] = 0;
    if (list && !json_is_null(list) && !json_is_integer(list) && !json_is_array(list))
        return refuse(r, "layers_to_transform", "a number of a layer or a list of such is expected");
    for (size_t i = 0; i < n; i++) {
        const json_t *x = json_is_integer(list) ? list : json_array_get(list, i);
        if (!json_is_integer(x) || json_integer_value(x) < 0 || json_integer_value(x) > MOST_LAYER)
            return refuse(r, "layers_to_transform", "numbers of layers are counted from 0");
        used += (size_t)snprintf(out + used, LORA_TEXT - used, "%s%d", used ? "," : "", (int)json_integer_value(x));
        if (used >= LORA_TEXT)
            return refuse(r, "layers_to_transform", "that is too long");
    }
    return OK;
}

/* Reads `layers_pattern`: a regular expression of a name in front of a layer's number, or a list of them. */
static enum status read_layer_names(const struct reader *r, char out[LORA_TEXT])
{
    const json_t *list = json_object_get(r->root, "layers_pattern");
    const size_t n = json_is_string(list) ? json_string_length(list) > 0 : json_array_size(list);
    size_t used = 0;
    out[0] = 0;
    if (!says_nothing(list) && !json_is_string(list) && !json_is_array(list))
        return refuse(r, "layers_pattern", "a name or a list of names is expected");
    for (size_t i = 0; i < n; i++) {
        const char *name = json_string_value(json_is_string(list) ? list : json_array_get(list, i));
        if (!name || !name[0] || strchr(name, ','))
            return refuse(r, "layers_pattern", "names are expected");
        used += (size_t)snprintf(out + used, LORA_TEXT - used, "%s%s", used ? "," : "", name);
        if (used >= LORA_TEXT)
            return refuse(r, "layers_pattern", "that is too long");
    }
    return OK;
}

static enum status read_places(const struct reader *r, struct lora *out)
{
    TRY(read_modules(r, "exclude_modules", out->excluded));
    TRY(read_layers(r, out->layers));
    TRY(read_layer_names(r, out->layer_names));
    if (json_is_string(json_object_get(r->root, "target_modules")) && out->layers[0])
        return refuse(r, "layers_to_transform", "it goes with a list of names in target_modules, not with a text");
    if (out->layer_names[0] && !out->layers[0])
        return refuse(r, "layers_pattern", "it says where the numbers of layers_to_transform stand, which there are none of");
    return read_targets(r, out);
}

static int is_rank(const json_t *x)
{
    return json_is_integer(x) && json_integer_value(x) >= 1 && json_integer_value(x) <= LORA_MOST_RANK;
}

static int is_alpha(const json_t *x)
{
    return json_is_number(x) && json_number_value(x) > 0.0 && json_number_value(x) <= LORA_MOST_ALPHA;
}

static const char rank_expected[] = "a rank is a whole number from 1 to 4096",
                  alpha_expected[] = "alpha is a number above 0 and at most 1e6";
_Static_assert(LORA_MOST_RANK == 4096 && LORA_MOST_ALPHA == 1000000, "as the sentences say");

/* Appends NAME:VALUE to the list in `out`, without a .weight behind a parameter's name; returns 0 if it does not fit. */
static int add_pattern(char out[LORA_TEXT], const char *name, double value)
{
    static const char weight[] = ".weight";
    size_t used = strlen(out), n = strlen(name);
    if (n > strlen(weight) && strcmp(name + n - strlen(weight), weight) == 0)
        n -= strlen(weight);
    return used + (size_t)snprintf(out + used, LORA_TEXT - used, "%s%.*s:%.17g", used ? ";" : "", (int)n, name, value) <
           LORA_TEXT;
}

/* Joins a pattern of many modules, each in a layer, into one regular expression per number, as EVA's patterns need. Returns 0 if
 * a name has no layer or the text is too long. */
static int join_pattern(const json_t *pattern, char out[LORA_TEXT])
{
    const char *name;
    json_t *value, *other;
    char joined[LORA_TEXT];
    double done = 0;
    int fits = 1;
    out[0] = 0;
    json_object_foreach((json_t *)pattern, name, value) fits = fits && adapter_names_layer(name) != NULL;
    for (;;) { /* from the smallest number on */
        double next = INFINITY;
        json_object_foreach((json_t *)pattern, name, value) next =
            json_number_value(value) > done && json_number_value(value) < next ? json_number_value(value) : next;
        if (!fits || isinf(next))
            return fits;
        json_t *names = json_array();
        json_object_foreach((json_t *)pattern, name, other) if (json_number_value(other) == next)
            json_array_append_new(names, json_string(name));
        fits = adapter_names_join(names, "", "", joined) && add_pattern(out, joined, next);
        json_decref(names);
        done = next;
    }
}

/* Reads an object such as {"q_proj": 8} and writes it as q_proj:8. */
static enum status read_pattern(const struct reader *r, const char *key, int (*in_range)(const json_t *), const char *expected,
                                char out[LORA_TEXT])
{
    const json_t *pattern = json_object_get(r->root, key);
    const char *name;
    json_t *value;
    int fits = 1;
    out[0] = 0;
    if (!says_nothing(pattern) && !json_is_object(pattern))
        return refuse(r, key, "an object of names and numbers is expected");
    json_object_foreach((json_t *)pattern, name, value)
    {
        if (!name[0] || strpbrk(name, ":;,"))
            return refuse(r, key, "names of modules are expected");
        if (!in_range(value))
            return refuse(r, key, expected);
        fits = fits && strlen(out) < LISTED_BYTES && add_pattern(out, name, json_number_value(value));
    }
    if (fits || join_pattern(pattern, out))
        return OK;
    return refuse(r, key, "that is too long");
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
    TRY(read_places(r, out));
    TRY(read_names(r, "modules_to_save", 0, out->saved));
    TRY(read_pattern(r, "rank_pattern", is_rank, rank_expected, out->ranks));
    TRY(read_pattern(r, "alpha_pattern", is_alpha, alpha_expected, out->alphas));
    snprintf(base, bytes, "%s", name ? name : "");
    return OK;
}

enum status adapter_config_load(const char *dir, json_t **out)
{
    char path[4096];
    json_error_t error;
    TRY(adapter_config_path(dir, path));
    FILE *f = sys_read_text(path);
    if (!f)
        return status_fail(ERR_INVALID, "cannot read %s: %s", path, sys_strerror(errno));
    *out = json_loadf(f, JSON_REJECT_DUPLICATES, &error);
    fclose(f);
    if (json_is_object(*out))
        return OK;
    json_decref(*out);
    return status_fail(ERR_INVALID, "%s: line %d: %s", path, error.line, error.text);
}

enum status adapter_config_read(const char *dir, struct lora *out, char *base, size_t bytes)
{
    char path[4096];
    json_t *root;
    TRY(adapter_config_path(dir, path));
    TRY(adapter_config_load(dir, &root));
    struct reader r = {path, root};
    enum status st = read_all(&r, out, base, bytes);
    json_decref(root);
    return st;
}

enum status adapter_config_fit(const struct model_config *base, struct lora *l)
{
    static const char list[] = "experts.gate_up_proj,experts.down_proj", expression[] = "(.*[.])?experts[.].*";
    char had[LORA_TEXT];
    const int applies = l->modules_only && base->experts > 0;
    l->modules_only = 0;
    if (!applies)
        return OK;
    memcpy(had, l->excluded, sizeof had);
    const int n = lora_is_regex(had) ? snprintf(l->excluded, LORA_TEXT, "%s|%s", had, expression)
                                     : snprintf(l->excluded, LORA_TEXT, "%s%s%s", had, had[0] ? "," : "", list);
    return n < LORA_TEXT
               ? OK
               : status_fail(ERR_INVALID, "the adapter's exclude_modules are too long: give fewer than %d bytes", LORA_TEXT);
}

int adapter_config_froze_b(const char *dir)
{
    json_t *root;
    if (adapter_config_load(dir, &root) != OK)
        return 0;
    const char *init = json_string_value(json_object_get(root, "init_lora_weights"));
    int froze = init && strcasecmp(init, "mica") == 0;
    json_decref(root);
    return froze;
}
