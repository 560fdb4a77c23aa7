/* Mamba-2 mixers: their parameters and keys of config.json. Private to model. */
#ifndef LTRAIN_MODEL_FAMILY_MAMBA_H
#define LTRAIN_MODEL_FAMILY_MAMBA_H

#include "model/family/recurrent.h"

/* Declares a mixer of layer l, below MODULE. One map has gates, values, keys, queries and steps; a norm in groups reads what gates
 * leave, or comes before them. */
struct model_block *mamba_mixer(struct builder *b, int l, const char *module, enum scan_norm norm);

/* Words of layer_types, now and in older files. */
extern const struct recurrent_words mamba_words;

/* Reads the size of a head, which must fit heads and mamba_expand. */
enum status mamba_read_head(struct config_reader *r, struct model_config *c);
json_t *mamba_write_head(const struct model_config *c);
json_t *mamba_write_expand(const struct model_config *c);
/* Reads the least step. There must be no largest one. */
enum status mamba_read_limit(struct config_reader *r, struct model_config *c);
json_t *mamba_write_limit(const struct model_config *c);

/* Keys of Granite and Bamba; chunks are no part of the model. */
#define MAMBA_KEYS                                                                                                 \
    {"mamba_n_heads", KEY_FIELD, AT_scan_heads, 128}, {"mamba_n_groups", KEY_FIELD, AT_scan_groups, 1},            \
        {"mamba_d_state", KEY_FIELD, AT_scan_key, 256},                                                            \
        {"mamba_d_head", KEY_SPECIAL, .read = mamba_read_head, .write = mamba_write_head},                         \
        {"mamba_d_conv", KEY_FIELD, AT_conv_width, 4}, {"mamba_expand", KEY_SPECIAL, .write = mamba_write_expand}, \
        {"mamba_chunk_size", KEY_SPECIAL}, {"mamba_conv_bias", KEY_FIELD, AT_conv_bias, 1},                        \
        {"mamba_proj_bias", KEY_FIELD, AT_scan_bias, 0},                                                           \
    {                                                                                                              \
        "time_step_limit", KEY_SPECIAL, .read = mamba_read_limit, .write = mamba_write_limit                       \
    }

#endif
