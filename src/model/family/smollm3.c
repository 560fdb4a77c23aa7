/* SmolLM3: Llama with layers without positions. */
#include "model/family/llama.h"

/* Reads SmolLM3's layers. A window that is used belongs to the layers without positions, unless layer_types says otherwise. */
static enum status read_smollm3_layers(struct config_reader *r, struct model_config *c)
{
    TRY(config_read_unrotated(r, c));
    return common_read_used_window(r, c);
}

static const struct config_key smollm3_keys[] = {
    LLAMA_KEYS(1),
    LLAMA_BIASES,
    {"no_rope_layers", KEY_SPECIAL, .read = read_smollm3_layers, .write = config_write_unrotated},
    {"sliding_window", KEY_SPECIAL, .write = common_write_window},
    {"use_sliding_window", KEY_SPECIAL, .write = common_write_use},
    LAYER_TYPES_KEY,
    {NULL},
};
LLAMA_FAMILY(smollm3, "smollm3", "SmolLM3ForCausalLM", 2000000, 32768, llama_layer, llama_derive, .all_heads = 0);
