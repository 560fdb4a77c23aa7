/* Recurrent layers: sizes and places of a gated delta rule, and layer_types of models that have it in some layers. */
#include "model/family/recurrent.h"

#include <stdio.h>
#include <string.h>

/* ---- parameters ---- */

struct model_block *recurrent_delta(struct builder *b, int l)
{
    const struct model_config *c = &b->m->config;
    struct model_block *block = build_block(b, l, BLOCK_RECURRENT);
    struct recurrent_block *r = &block->recurrent;
    r->kind = RECURRENT_DELTA;
    r->heads = c->scan_heads;
    r->groups = c->scan_groups;
    r->key_dim = c->scan_key;
    r->value_dim = c->scan_value;
    r->channels = 2 * r->groups * r->key_dim + r->heads * r->value_dim;
    r->width = c->conv_width;
    return block;
}

/* ---- config.json ---- */

const struct config_word recurrent_float32[] = {{"float32", 1}, {NULL, 0}};

static int is_word(const char *word, const char *now, const char *old)
{
    return strcmp(word, now) == 0 || (old && strcmp(word, old) == 0);
}

enum status recurrent_read_types(struct config_reader *r, struct model_config *c, const struct recurrent_words *words,
                                 int64_t interval)
{
    const json_t *types = config_get(r, "layer_types"), *type;
    char instead[96];
    size_t l;
    for (int64_t i = 0; i < min_i64(c->layers, LAYERS_MOST); i++)
        c->blocks_of[i] = (i + 1) % interval ? LIST_RECURRENT : LIST_ATTENTION;
    if (!types)
        return OK;
    if (!json_is_array(types) || json_array_size(types) != (size_t)c->layers || c->layers > LAYERS_MOST)
        return config_refuse(r, "layer_types", "must be a list with an entry for each of num_hidden_layers");
    snprintf(instead, sizeof instead, "supported: %s, %s", words->attention, words->recurrent);
    json_array_foreach((json_t *)types, l, type)
    {
        const char *word = json_is_string(type) ? json_string_value(type) : "";
        const int recurrent = is_word(word, words->recurrent, words->old_recurrent);
        c->blocks_of[l] = recurrent ? LIST_RECURRENT : LIST_ATTENTION;
        if (!recurrent && !is_word(word, words->attention, words->old_attention))
            return config_refuse(r, "layer_types", instead);
    }
    return OK;
}

json_t *recurrent_list_types(const struct model_config *c, const struct recurrent_words *words)
{
    json_t *list = json_array();
    for (int64_t l = 0; l < c->layers; l++)
        json_array_append_new(list, json_string(recurrent_mixer(c, l) == LIST_RECURRENT ? words->recurrent : words->attention));
    return list;
}

enum status recurrent_check(const struct model_config *c)
{
    int recurrent = 0;
    for (int64_t l = 0; l < c->layers; l++)
        recurrent |= recurrent_mixer(c, l) == LIST_RECURRENT;
    if (!recurrent || c->scan_heads % c->scan_groups == 0)
        return OK;
    return status_fail(ERR_INVALID, "model: %lld recurrent heads cannot share %lld key heads, must be a multiple",
                       (long long)c->scan_heads, (long long)c->scan_groups);
}
