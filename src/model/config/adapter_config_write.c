/* Writing PEFT's adapter_config.json. */
#include "model/config/adapter_config.h"

#include "base/sys.h"
#include "model/adapters.h"
#include "model/config/token_rows.h"
#include "model/family/experts.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static json_t *names_of(const char *list)
{
    char name[LORA_TEXT];
    json_t *all = json_array();
    for (const char *at = list; lora_next_name(&at, name, sizeof name);)
        json_array_append_new(all, json_string(name));
    return all;
}

static const char *leaf_of(const char *module)
{
    const char *dot = strrchr(module, '.');
    return dot ? dot + 1 : module;
}

/* Appends a text that the list does not have yet; takes the reference. */
static void add_new(json_t *list, json_t *text)
{
    size_t k = 0;
    while (k < json_array_size(list) && !json_equal(json_array_get(list, k), text))
        k++;
    if (k == json_array_size(list))
        json_array_append_new(list, text);
    else
        json_decref(text);
}

/* Returns the last parts of the names of all maps with adapters, as PEFT expands all-linear. */
static json_t *expanded(const struct model *m)
{
    char module[ADAPTED_NAME];
    json_t *all = json_array();
    for (int i = 0; i < m->n_params; i++)
        if (adapter_module_of(&m->params[i], module))
            add_new(all, json_string(leaf_of(module)));
    return all;
}

/* ---- models with experts ---- */

/* For these PEFT turns modules' names that it takes for experts' into parameters, and it reads no expressions with parameters. So
 * targets are lists that name just the maps with adapters, and MLPs' maps and routers are named as parameters. */

/* Returns the part of a module's name behind its layer's number; the whole name if the module is in no layer. */
static const char *behind_layer(const char *module)
{
    static const char layers[] = "model.layers.";
    if (strncmp(module, layers, strlen(layers)) != 0)
        return module;
    const char *dot = strchr(module + strlen(layers), '.');
    return dot ? dot + 1 : module;
}

static int is_router(const struct model *m, const struct model_param *p)
{
    return m->units[p->unit].fp32;
}

static int is_parameter(const struct model *m, const struct model_param *p, const char *module)
{
    const char *leaf = leaf_of(module);
    return p->adapted || is_router(m, p) || strcmp(leaf, "gate_proj") == 0 || strcmp(leaf, "up_proj") == 0 ||
           strcmp(leaf, "down_proj") == 0;
}

/* Counts modules of that name behind their layers' numbers (whole: 0: that last name): maps with adapters, or all. */
static int count_adapted(const struct model *m, const char *module, int whole)
{
    char other[ADAPTED_NAME];
    int n = 0;
    for (int i = 0; i < m->n_params; i++)
        n += adapter_module_of(&m->params[i], other) &&
             strcmp(whole ? behind_layer(other) : leaf_of(other), whole ? behind_layer(module) : leaf_of(module)) == 0;
    return n;
}

static int count_all(const struct model *m, const char *module, int whole)
{
    char other[ADAPTED_NAME];
    int n = 0;
    for (int i = 0; i < m->n_params; i++) {
        const struct model_param *p = &m->params[i];
        if (!p->linear || p->adapter || p->shape[1] == 0)
            continue;
        snprintf(other, sizeof other, "%.*s", (int)(strrchr(p->name, '.') - p->name), p->name);
        n += strcmp(whole ? behind_layer(other) : leaf_of(other), whole ? behind_layer(module) : leaf_of(module)) == 0;
    }
    return n;
}

/* Returns a target of a map with an adapter: a name that all alike have, if all have adapters, else the map's own. */
static json_t *target_of(const struct model *m, const struct model_param *p, const char *module)
{
    const int parameter = is_parameter(m, p, module);
    if (behind_layer(module) == module)
        return json_string(module);
    const int all = p->adapted || is_router(m, p) ? model_expert_layers(m) : count_all(m, module, parameter);
    const char *name = count_adapted(m, module, parameter) < all ? module : parameter ? behind_layer(module) : leaf_of(module);
    return json_sprintf("%s%s", name, parameter && !p->adapted ? ".weight" : "");
}

/* Lists modules or parameters with adapters. */
static json_t *list_targets(const struct model *m, int parameters)
{
    char module[ADAPTED_NAME];
    json_t *all = json_array();
    for (int i = 0; i < m->n_params; i++)
        if (adapter_module_of(&m->params[i], module) && is_parameter(m, &m->params[i], module) == parameters)
            add_new(all, target_of(m, &m->params[i], module));
    return all;
}

/* Adds the ranks (or alphas) that differ from the usual one, of maps that are named as parameters, to those that settings give. */
static void add_weights(const struct model *m, json_t *pattern, int alphas)
{
    const struct lora *l = &m->config.lora;
    struct adapter_rules *rules;
    char module[ADAPTED_NAME];
    if (json_object_size(pattern) == 0 || adapter_rules_create(l, &rules) != OK)
        return;
    for (int i = 0; i < m->n_params; i++) {
        const struct model_param *p = &m->params[i];
        if (!adapter_module_of(p, module) || p->adapted || !is_parameter(m, p, module))
            continue;
        const double rank = adapter_rank(rules, module), alpha = adapter_alpha(rules, module);
        json_t *name = json_sprintf("%s.weight", module);
        if (alphas ? alpha != l->alpha : rank != l->rank)
            json_object_set_new(pattern, json_string_value(name), alphas ? json_real(alpha) : json_integer((json_int_t)rank));
        json_decref(name);
    }
    adapter_rules_destroy(rules);
}

/* ---- all ---- */

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

/* Tells whether the model's maps are stored [in, out], for PEFT's fan_in_fan_out. */
static int is_conv1d(const struct model *m)
{
    const struct model_linear *map;
    for (int i = 0; i < m->layers[0].n_blocks; i++)
        for (int k = 0; (map = block_map(&m->layers[0].blocks[i], k)); k++)
            if (map->weight >= 0 && !map->transposed)
                return 1;
    return 0;
}

static json_t *numbers_of(const char *list)
{
    char item[LORA_TEXT];
    json_t *all = json_array();
    for (const char *at = list; lora_next_name(&at, item, sizeof item);)
        json_array_append_new(all, json_integer(strtol(item, NULL, 10)));
    return all;
}

static json_t *targets_of(const struct model *m)
{
    const struct lora *l = &m->config.lora;
    if (m->config.experts > 0)
        return list_targets(m, 0);
    if (lora_takes_all(l))
        return expanded(m);
    return lora_is_regex(l->targets) ? json_string(l->targets) : names_of(l->targets);
}

static json_t *excluded_of(const struct lora *l)
{
    if (!l->excluded[0])
        return json_null();
    return lora_is_regex(l->excluded) ? json_string(l->excluded) : names_of(l->excluded);
}

static json_t *describe(const struct model *m, const char *base)
{
    const struct lora *l = &m->config.lora;
    const int experts = m->config.experts > 0, whole = (double)(json_int_t)l->alpha == l->alpha;
    json_t *root = json_pack(
        "{s:n, s:s, s:s, s:o, s:b, s:b, s:b, s:o, s:o, s:o, s:f, s:o, s:s, s:i, s:o, s:n, s:o, s:o, s:s, s:b, s:b}",
        "auto_mapping", "base_model_name_or_path", base, "bias", "none", "exclude_modules",
        experts ? json_null() : excluded_of(l), "fan_in_fan_out", is_conv1d(m) && !experts, "inference_mode", 1,
        "init_lora_weights", 1, "layers_pattern", l->layer_names[0] && !experts ? names_of(l->layer_names) : json_null(),
        "layers_to_transform", l->layers[0] && !experts ? numbers_of(l->layers) : json_null(), "lora_alpha",
        whole ? json_integer((json_int_t)l->alpha) : json_real(l->alpha), "lora_dropout", l->dropout, "modules_to_save",
        l->saved[0] ? names_of(l->saved) : json_null(), "peft_type", "LORA", "r", l->rank, "rank_pattern", pattern_of(l->ranks),
        "revision", "alpha_pattern", pattern_of(l->alphas), "target_modules", targets_of(m), "task_type", "CAUSAL_LM", "use_dora",
        0, "use_rslora", l->rank_stabilised);
    if (root && l->tokens[0])
        json_object_set_new(root, "trainable_token_indices", token_rows_json(l->tokens));
    if (root && experts) {
        json_object_set_new(root, "target_parameters", list_targets(m, 1));
        add_weights(m, json_object_get(root, "rank_pattern"), 0);
        add_weights(m, json_object_get(root, "alpha_pattern"), 1);
    }
    return root;
}

enum status adapter_config_write(const char *dir, const struct model *m, const char *base)
{
    char path[4096];
    TRY(adapter_config_path(dir, path));
    json_t *root = describe(m, base);
    FILE *f = root ? sys_write_text(path) : NULL;
    int failed =
        f ? json_dumpf(root, f, JSON_INDENT(2)) != 0 || fputc('\n', f) == EOF || fflush(f) != 0 || sys_fsync(fileno(f)) != 0 : 1;
    int reason = errno;
    json_decref(root);
    if (f && fclose(f) != 0)
        failed = 1;
    if (failed)
        return status_fail(ERR_IO, "cannot write %s: %s", path, sys_strerror(reason));
    return OK;
}
