/* Recurrent layers: their parameters, their keys of config.json, and which layers they are. Private to model. */
#ifndef LTRAIN_MODEL_FAMILY_RECURRENT_H
#define LTRAIN_MODEL_FAMILY_RECURRENT_H

#include "model/family/common.h"

/* Numbers of layers' lists of blocks (blocks_of): attention or a recurrence, each before an MLP or, where a layer has one block,
 * alone; LIST_MLP: an MLP alone. The first bit says whether a family
 * with experts has an MLP in their place (experts_set). */
enum recurrent_list { LIST_ATTENTION = 0, LIST_RECURRENT = 2, LIST_MLP = 4, LIST_MIXER = ~1 };

/* Returns the mixer of layer l: attention or a recurrence. */
static inline enum recurrent_list recurrent_mixer(const struct model_config *c, int64_t l)
{
    return (enum recurrent_list)(c->blocks_of[l] & LIST_MIXER);
}

/* Words of layer_types for both lists, and the words of older files; NULL: the same. */
struct recurrent_words {
    const char *attention, *recurrent, *old_attention, *old_recurrent;
};

/* Reads layer_types into blocks_of. Without the key every interval-th layer has attention, the others a recurrence. */
enum status recurrent_read_types(struct config_reader *r, struct model_config *c, const struct recurrent_words *words,
                                 int64_t interval);
/* Returns layer_types as an array of these words. */
json_t *recurrent_list_types(const struct model_config *c, const struct recurrent_words *words);
/* Refuses heads that groups do not divide, if any layer is recurrent. */
enum status recurrent_check(const struct model_config *c);
/* Begins a gated delta rule in layer l, without parameters; its sizes are the configuration's. */
struct model_block *recurrent_delta(struct builder *b, int l);

/* Reads mamba_ssm_dtype, the type of states: float32 only. */
extern const struct config_word recurrent_float32[];
#define RECURRENT_KEYS(conv, key, value, groups, heads)                                                                          \
    {"linear_conv_kernel_dim", KEY_FIELD, AT_conv_width, conv}, {"linear_key_head_dim", KEY_FIELD, AT_scan_key, key},            \
        {"linear_value_head_dim", KEY_FIELD, AT_scan_value, value}, {"linear_num_key_heads", KEY_FIELD, AT_scan_groups, groups}, \
    {                                                                                                                            \
        "linear_num_value_heads", KEY_FIELD, AT_scan_heads, heads                                                                \
    }

#endif
