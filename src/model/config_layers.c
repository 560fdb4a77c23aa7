/* What config.json says layer by layer: windows, and positions. */
#include "model/config.h"

#include <string.h>

static void set_bit(uint8_t *bits, int64_t l, int value)
{
    bits[l / 8] = (uint8_t)((bits[l / 8] & ~(1 << l % 8)) | value << l % 8);
}

/* An entry for each layer, from 0 to the layers' limit, which is checked later. */
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
    /* a window of all layers is listed, too: without a list Gemma 3, OLMo 3 and Cohere 2 have a pattern of their own */
    return c->window == 0 ? json_null() : config_list_layer_types(c);
}

json_t *config_list_layer_types(const struct model_config *c)
{
    json_t *list = json_array();
    for (int64_t l = 0; l < c->layers; l++)
        json_array_append_new(list, json_string(model_bit(c->windowed, l) ? "sliding_attention" : "full_attention"));
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
