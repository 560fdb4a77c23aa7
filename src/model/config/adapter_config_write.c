/* Writing PEFT's adapter_config.json. */
#include "model/config/adapter_config.h"

#include "base/sys.h"

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

/* Returns the last parts of the names of all maps with adapters, as PEFT expands all-linear. */
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

static json_t *describe(const struct model *m, const char *base)
{
    const struct lora *l = &m->config.lora;
    int all = strcmp(l->targets, "all-linear") == 0, whole = (double)(json_int_t)l->alpha == l->alpha;
    json_t *targets = all ? expanded(m) : lora_is_regex(l->targets) ? json_string(l->targets) : names_of(l->targets);
    json_t *excluded = !l->excluded[0]              ? json_null()
                       : lora_is_regex(l->excluded) ? json_string(l->excluded)
                                                    : names_of(l->excluded);
    return json_pack("{s:n, s:s, s:s, s:o, s:b, s:b, s:b, s:o, s:o, s:o, s:f, s:o, s:s, s:i, s:o, s:n, s:o, s:o, s:s, s:b, s:b}",
                     "auto_mapping", "base_model_name_or_path", base, "bias", "none", "exclude_modules", excluded,
                     "fan_in_fan_out", is_conv1d(m), "inference_mode", 1, "init_lora_weights", 1, "layers_pattern",
                     l->layer_names[0] ? names_of(l->layer_names) : json_null(), "layers_to_transform",
                     l->layers[0] ? numbers_of(l->layers) : json_null(), "lora_alpha",
                     whole ? json_integer((json_int_t)l->alpha) : json_real(l->alpha), "lora_dropout", l->dropout,
                     "modules_to_save", l->saved[0] ? names_of(l->saved) : json_null(), "peft_type", "LORA", "r", l->rank,
                     "rank_pattern", pattern_of(l->ranks), "revision", "alpha_pattern", pattern_of(l->alphas), "target_modules",
                     targets, "task_type", "CAUSAL_LM", "use_dora", 0, "use_rslora", l->rank_stabilised);
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
