/* Mistral, Ministral and Ministral 3: Llama with a sliding window. Ministral 3 scales queries by position. */
#include "model/family/llama.h"

/* Reads Mistral's window: 4096 without the key, as in transformers; none if null. */
static enum status read_window(struct config_reader *r, struct model_config *c)
{
    return common_read_pattern(r, c, 4096, 0);
}

static enum status derive_ministral3(struct config_reader *r, struct model_config *c)
{
    if (!json_object_get(r->object, "rope_parameters") && !json_object_get(r->object, "rope_scaling"))
        return config_missing(r, "rope_parameters");
    return llama_derive(r, c);
}

static const struct config_key mistral_keys[] = {
    LLAMA_KEYS(0),
    WINDOW_KEY(read_window),
    LAYER_TYPES_KEY,
    {NULL},
};
static const struct config_key ministral_keys[] = {
    LLAMA_KEYS(0),
    WINDOW_KEY(read_window),
    LAYER_TYPES_KEY,
    {NULL},
};
static const struct config_key ministral3_keys[] = {
    LLAMA_KEYS(0),
    WINDOW_KEY(common_read_window),
    LAYER_TYPES_KEY,
    {NULL},
};
LLAMA_FAMILY(mistral, "mistral", "MistralForCausalLM", 10000, 131072, llama_layer, llama_derive, .all_heads = 0);
LLAMA_FAMILY(ministral, "ministral", "MinistralForCausalLM", 10000, 131072, llama_layer, llama_derive, .all_heads = 0);
LLAMA_FAMILY(ministral3, "ministral3", "Ministral3ForCausalLM", 10000, 262144, llama_layer, derive_ministral3, .all_heads = 0);
