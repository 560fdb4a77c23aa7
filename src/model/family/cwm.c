/* CWM: Llama with a sliding window in three of four layers. */
#include "model/family/llama.h"

/* Reads CWM's window: the first of every four layers has none. Without keys, positions are scaled as in the published model. */
static enum status read_cwm_window(struct config_reader *r, struct model_config *c)
{
    if (json_object_size(config_get(r, "rope_scaling")) == 0 && !config_get(r, "rope_parameters")) {
        c->rope = ROPE_LLAMA3;
        c->rope_factor = 16.0;
        c->rope_low_freq = 1.0;
        c->rope_high_freq = 4.0;
        c->rope_original_positions = 8192.0;
    }
    return common_read_pattern(r, c, 8192, -4);
}

static const struct config_key cwm_keys[] = {
    LLAMA_KEYS_BUT(0, 1e-5),
    {"mlp_bias", KEY_FIELD, AT_mlp_bias, 0},
    {"attention_bias", KEY_ONLY_FALSE},
    WINDOW_KEY(read_cwm_window),
    LISTED_TYPES_KEY,
    {NULL},
};
LLAMA_FAMILY(cwm, "cwm", "CwmForCausalLM", 1000000, 131072, llama_layer, llama_derive, .head_dim = 128);
