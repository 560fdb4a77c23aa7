/* Values that config.json gives layer by layer: windows, positions, and settings of single layers. */
#include "model/config/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void set_bit(uint8_t *bits, int64_t l, int value)
{
    bits[l / 8] = (uint8_t)((bits[l / 8] & ~(1 << l % 8)) | value << l % 8);
}

/* Checks that a list has an entry for each layer, and that there are at most LAYERS_MOST layers: the number of layers itself is
 * checked only later. */
static enum status check_list(const struct config_reader *r, const char *key, const json_t *list, int64_t layers)
{
    if (!json_is_array(list) || json_array_size(list) != (size_t)layers || layers > LAYERS_MOST)
        return config_refuse(r, key, "must be a list with an entry for each of num_hidden_layers");
    return OK;
}

enum status config_read_layer_types(struct config_reader *r, struct model_config *c, int64_t period)
{
    const json_t *types = config_get(r, "layer_types"), *type;
    size_t i;
    for (int64_t l = 0; l < min_i64(c->layers, LAYERS_MOST); l++)
        set_bit(c->windowed, l, period == 0 || (period > 0 ? (l + 1) % period : l % -period) != 0);
    if (!types)
        return OK;
    TRY(check_list(r, "layer_types", types, c->layers));
    json_array_foreach((json_t *)types, i, type)
    {
        const char *text = json_is_string(type) ? json_string_value(type) : "";
        int sliding = strcmp(text, "sliding_attention") == 0;
        if (!sliding && strcmp(text, "full_attention") != 0)
            return config_refuse(r, "layer_types", "supported: full_attention, sliding_attention");
        set_bit(c->windowed, (int64_t)i, sliding);
    }
    return OK;
}

json_t *config_write_layer_types(const struct model_config *c)
{
    return c->window == 0 ? json_null() : config_list_layer_types(c);
}

json_t *config_list_layer_types(const struct model_config *c)
{
    json_t *list = json_array();
    for (int64_t l = 0; l < c->layers; l++)
        json_array_append_new(list, json_string(model_bit(c->windowed, l) ? "sliding_attention" : "full_attention"));
    return list;
}

json_t *config_list_thetas(const struct model_config *c)
{
    json_t *list = json_array();
    for (int64_t l = 0; l < c->layers; l++) {
        const int local = c->rope_local_theta > 0.0 && c->window > 0 && model_bit(c->windowed, l);
        json_array_append_new(list, json_real(model_bit(c->unrotated, l) ? 0.0 : local ? c->rope_local_theta : c->rope_theta));
    }
    return list;
}

enum status config_read_unrotated(struct config_reader *r, struct model_config *c)
{
    int64_t interval = 4;
    const json_t *list = config_get(r, "no_rope_layers"), *entry;
    size_t i;
    TRY(config_read_count(r, "no_rope_layer_interval", OPTIONAL, 1, &interval));
    for (int64_t l = 0; l < min_i64(c->layers, LAYERS_MOST); l++)
        set_bit(c->unrotated, l, (l + 1) % interval == 0);
    if (!list)
        return OK;
    TRY(check_list(r, "no_rope_layers", list, c->layers));
    json_array_foreach((json_t *)list, i, entry)
    {
        if (!json_is_integer(entry) || json_integer_value(entry) < 0 || json_integer_value(entry) > 1)
            return config_refuse(r, "no_rope_layers", "its entries must be 0 or 1");
        set_bit(c->unrotated, (int64_t)i, json_integer_value(entry) == 0);
    }
    return OK;
}

json_t *config_write_unrotated(const struct model_config *c)
{
    json_t *list = json_array();
    for (int64_t l = 0; l < c->layers; l++)
        json_array_append_new(list, json_integer(!model_bit(c->unrotated, l)));
    return list;
}

/* Returns a layer's number, which may have leading zeros; -1 if the key is none. */
static int64_t layer_number(const char *key, int64_t layers)
{
    char *end;
    const int64_t l = key[0] >= '0' && key[0] <= '9' ? (int64_t)strtoll(key, &end, 10) : -1;
    return l >= 0 && *end == 0 && l < layers ? l : -1;
}

static enum status read_layer(struct config_reader *parent, const char *key, const json_t *object, struct layer_config *own)
{
    char section[64];
    struct config_reader r = {.path = parent->path, .family = parent->family, .section = section, .object = object};
    snprintf(section, sizeof section, "per_layer_config.%.40s.", key);
    if (!json_is_object(object))
        return status_fail(ERR_INVALID, "%s: per_layer_config.%s must be an object", r.path, key);
    const json_t *window = json_object_get(object, "sliding_window");
    own->window = json_is_null(window) ? -1 : 0;
    TRY(config_read_count(&r, "num_attention_heads", OPTIONAL, 1, &own->heads));
    TRY(config_read_count(&r, "num_key_value_heads", OPTIONAL, 1, &own->kv_heads));
    TRY(config_read_count(&r, "head_dim", OPTIONAL, 1, &own->head_dim));
    TRY(config_read_count(&r, "sliding_window", OPTIONAL, 1, &own->window));
    return config_check_understood(&r);
}

enum status config_add_own(struct config_reader *r, struct model_config *c, int64_t l, const struct layer_config *own)
{
    char instead[96];
    static const struct layer_config nothing;
    int i = 0;
    while (i <= MODEL_KINDS && memcmp(&c->own[i], own, sizeof *own) != 0 &&
           (i == 0 || memcmp(&c->own[i], &nothing, sizeof nothing) != 0))
        i++;
    snprintf(instead, sizeof instead, "at most %d kinds of layers that differ from the others are supported", MODEL_KINDS);
    if (i > MODEL_KINDS)
        return config_refuse(r, "per_layer_config", instead);
    c->own[i] = *own;
    c->own_of[l] = (uint8_t)i;
    return OK;
}

enum status config_read_own(struct config_reader *r, struct model_config *c)
{
    const json_t *all = config_get(r, "per_layer_config");
    const char *key;
    json_t *object;
    if (all && !json_is_object(all))
        return config_refuse(r, "per_layer_config", "must be an object with an entry for some of the layers");
    json_object_foreach((json_t *)all, key, object)
    {
        struct layer_config own = {0};
        const int64_t l = layer_number(key, min_i64(c->layers, LAYERS_MOST));
        if (l < 0)
            return config_refuse(r, "per_layer_config", "its keys must be numbers of layers, from 0 on");
        TRY(read_layer(r, key, object, &own));
        TRY(config_add_own(r, c, l, &own));
    }
    return OK;
}

/* Refuses a layer's own window without sliding attention, and the reverse: transformers reads the window only where a layer
 * slides. */
enum status config_check_own(const struct config_reader *r, const struct model_config *c)
{
    char instead[160];
    for (int64_t l = 0; l < c->layers; l++) {
        const int64_t window = c->own[c->own_of[l]].window;
        const int slides = c->window > 0 && model_bit(c->windowed, l);
        if (window == 0 || slides == (window > 0))
            continue;
        snprintf(instead, sizeof instead,
                 slides ? "layer %lld is one of sliding_attention and needs a sliding_window"
                        : "layer %lld is not one of layer_types' sliding_attention and has no sliding_window",
                 (long long)l);
        return config_refuse(r, "per_layer_config", instead);
    }
    return OK;
}

static void set_count(json_t *o, const char *key, int64_t value)
{
    if (value > 0)
        json_object_set_new(o, key, json_integer(value));
}

json_t *config_write_own(const struct model_config *c)
{
    json_t *all = json_object();
    for (int64_t l = 0; l < c->layers; l++) {
        const struct layer_config *own = &c->own[c->own_of[l]];
        char key[24];
        if (c->own_of[l] == 0)
            continue;
        json_t *o = json_object();
        set_count(o, "num_attention_heads", own->heads);
        set_count(o, "num_key_value_heads", own->kv_heads);
        set_count(o, "head_dim", own->head_dim);
        set_count(o, "sliding_window", own->window);
        if (own->window < 0)
            json_object_set_new(o, "sliding_window", json_null());
        snprintf(key, sizeof key, "%lld", (long long)l);
        json_object_set_new(all, key, o);
    }
    return all;
}

int config_has_own(const struct model_config *c)
{
    for (int64_t l = 0; l < c->layers; l++)
        if (c->own_of[l] > 0)
            return 1;
    return 0;
}
