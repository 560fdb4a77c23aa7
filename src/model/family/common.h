/* Parameters and keys that families with rotary positions have in common. Private to model. */
#ifndef LTRAIN_MODEL_FAMILY_COMMON_H
#define LTRAIN_MODEL_FAMILY_COMMON_H

#include "model/family/family.h"

/* Declares parameters by their usual names: model.embed_tokens; self_attn.{q,k,v,o}_proj; an MLP of mlp.{gate,up,down}_proj, of
 * up and down only, or with mlp.gate_up_proj; the head, and model.norm as an RMS norm. form: LINEAR_BIAS or 0. */
void common_embedding(struct builder *b);
void common_attention(struct builder *b, struct attention_block *a, unsigned qkv_form, unsigned o_form);
/* Declares attention whose values come from the map of keys. */
void common_attention_of_keys(struct builder *b, struct attention_block *a, unsigned form);
void common_mlp(struct builder *b, struct mlp_block *m, unsigned form);
/* Declares attention and an MLP, with norms of what each gives and of all heads of q and of k together. */
void common_normed_after(struct builder *b, int l);
void common_ungated_mlp(struct builder *b, struct mlp_block *m, unsigned form);
void common_fused_mlp(struct builder *b, struct mlp_block *m);
void common_head(struct builder *b);

/* Globs of the tables of sines that old releases of transformers saved. */
extern const char *const common_buffers[];

/* Keys from vocab_size to attention_dropout, with rotary positions; without activation, norm, tie and window. */
extern const struct config_key common_keys[];
/* Reads use_bidirectional_attention. */
enum status common_read_bidirectional(struct config_reader *r, struct model_config *c);
extern const struct config_word common_silu[], common_gelu[], common_ungated[];
/* Derives what config.json leaves out: as many KV heads as heads, and a head size of hidden_size / heads. */
enum status common_derive(struct config_reader *r, struct model_config *c);
enum status common_check(const struct model_config *c);

/* Reads sliding_window and layer_types. absent: the window if the key is missing (null means none); period: as in
 * config_read_layer_types. */
enum status common_read_pattern(struct config_reader *r, struct model_config *c, int64_t absent, int64_t period);
/* Reads a window that every layer has, or none. */
enum status common_read_window(struct config_reader *r, struct model_config *c);
/* Reads a window that use_sliding_window and max_window_layers control. */
enum status common_read_used_window(struct config_reader *r, struct model_config *c);
json_t *common_write_window(const struct model_config *c);
json_t *common_write_use(const struct model_config *c);
json_t *common_write_first(const struct model_config *c);

/* Reads rope_theta, or the family's name for it. */
enum status common_read_theta(struct config_reader *r, struct model_config *c);
json_t *common_write_theta(const struct model_config *c);
/* Writes partial_rotary_factor, for families that have it. */
json_t *common_write_share(const struct model_config *c);

#define COMMON .buffers = common_buffers, .check = common_check, .embedding = common_embedding
#define WINDOW_KEY(reader)                                                          \
    {                                                                               \
        "sliding_window", KEY_SPECIAL, .read = reader, .write = common_write_window \
    }
#define SHARE_KEY                                                         \
    {                                                                     \
        "partial_rotary_factor", KEY_SPECIAL, .write = common_write_share \
    }
/* Key that is only written here, as rope_scaling's reader reads it. */
#define ROPE_BY_KIND_KEY                                                      \
    {                                                                         \
        "rope_parameters", KEY_SPECIAL, .write = config_write_rope_parameters \
    }
/* layer_types for families that have windows even without this key: always written as a list. */
#define LISTED_TYPES_KEY                                             \
    {                                                                \
        "layer_types", KEY_SPECIAL, .write = config_list_layer_types \
    }
#define LAYER_TYPES_KEY                                               \
    {                                                                 \
        "layer_types", KEY_SPECIAL, .write = config_write_layer_types \
    }
/* Keys of families that say whether their window is used. */
#define USED_WINDOW_KEYS                                                                                 \
    WINDOW_KEY(common_read_used_window), {"use_sliding_window", KEY_SPECIAL, .write = common_write_use}, \
        {"max_window_layers", KEY_SPECIAL, .write = common_write_first}, LAYER_TYPES_KEY

#endif
