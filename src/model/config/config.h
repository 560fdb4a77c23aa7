/* The configuration as a table of fields, and the families' spelling of them in config.json. Private to model. */
#ifndef LTRAIN_MODEL_CONFIG_CONFIG_H
#define LTRAIN_MODEL_CONFIG_CONFIG_H

#include "model/model.h"

#include <jansson.h>
#include <stddef.h>

/* ---- fields ---- */

enum field_type {
    FIELD_FAMILY, /* enum model_family; the words are the families' names */
    FIELD_COUNT,  /* int64_t */
    FIELD_SWITCH, /* int, 0 or 1 */
    FIELD_CHOICE, /* an enum */
    FIELD_FLOAT,
    FIELD_DOUBLE,
};

enum { NOT_COMPARED, COMPARED };

/* A row per field of struct model_config: member; type; name in messages; largest count (0: no limit of its own); whether a
 * checkpoint's value must equal the run's; words for values from 0 on (NULL: numbers are printed).
 *
 * A COUNT with a word may be 0. Fields are compared, and their limits checked, in this order. */
/* clang-format off */
#define CONFIG_FIELDS(X)                                                                                    \
    X(family, FAMILY, "model family", 0, COMPARED, NULL)                                                    \
    X(window, COUNT, "sliding window", INT32_MAX, COMPARED, WORDS("none"))                                  \
    X(dim, COUNT, "hidden size", 1 << 20, COMPARED, NULL)                                                   \
    X(layers, COUNT, "number of layers", 1 << 12, COMPARED, NULL)                                           \
    X(vocab, COUNT, "vocabulary size", 1 << 24, COMPARED, NULL)                                             \
    X(heads, COUNT, "number of heads", 1 << 14, COMPARED, NULL)                                             \
    X(kv_heads, COUNT, "number of key-value heads", 1 << 14 /* at most heads */, COMPARED, NULL)            \
    X(head_dim, COUNT, "head size", 1 << 12, COMPARED, NULL)                                                \
    X(ffn, COUNT, "feed-forward size", 1 << 24, COMPARED, NULL)                                             \
    X(experts, COUNT, "number of experts", 1 << 10, COMPARED, WORDS("none"))                                \
    X(experts_used, COUNT, "number of experts of a token", 1 << 6, COMPARED, WORDS("none"))                 \
    X(expert_ffn, COUNT, "size of an expert", 1 << 24, COMPARED, WORDS("none"))                             \
    X(expert_dim, COUNT, "width of what experts read and give", 1 << 20, COMPARED, WORDS("that of the stream")) \
    X(shared_ffn, COUNT, "size of the shared experts", 1 << 24, COMPARED, WORDS("none"))                    \
    X(expert_groups, COUNT, "number of groups of experts", 1 << 12, COMPARED, WORDS("none"))                \
    X(groups_used, COUNT, "number of groups of experts to choose from", 1 << 12, COMPARED, WORDS("none"))   \
    X(router_normalises, SWITCH, "normalised weights of experts", 0, COMPARED, WORDS("no", "yes"))          \
    X(router_scale, DOUBLE, "factor of weights of experts", 0, COMPARED, WORDS("none"))                     \
    X(router_floor, DOUBLE, "least divisor of weights of experts", 0, COMPARED, WORDS("none"))              \
    X(router_aux, DOUBLE, "coefficient of the auxiliary loss", 0, NOT_COMPARED, WORDS("none"))              \
    X(router_aux_used, SWITCH, "auxiliary loss", 0, NOT_COMPARED, WORDS("no", "yes"))                       \
    X(scan_heads, COUNT, "number of recurrent heads", 1 << 10, COMPARED, WORDS("none"))                     \
    X(scan_groups, COUNT, "number of recurrent key heads", 1 << 10, COMPARED, WORDS("none"))                \
    X(scan_key, COUNT, "size of a recurrent key", 256, COMPARED, WORDS("none"))                             \
    X(scan_value, COUNT, "size of a recurrent value", 256, COMPARED, WORDS("none"))                         \
    X(conv_width, COUNT, "width of the convolution", 8, COMPARED, WORDS("none"))                            \
    X(kv_latent, COUNT, "latent of keys and values", 1 << 16, COMPARED, WORDS("none"))                      \
    X(q_latent, COUNT, "latent of queries", 1 << 16, COMPARED, WORDS("none"))                               \
    X(head_rotated, COUNT, "rotated part of a head", 1 << 12, COMPARED, WORDS("as usual"))                  \
    X(head_value, COUNT, "size of a value", 1 << 12, COMPARED, WORDS("that of a head"))                     \
    X(conv_bias, SWITCH, "bias of the convolution", 0, COMPARED, WORDS("no", "yes"))                        \
    X(scan_bias, SWITCH, "biases of recurrent maps", 0, COMPARED, WORDS("no", "yes"))                       \
    X(scan_least, DOUBLE, "least step of a recurrence", 0, COMPARED, WORDS("none"))                         \
    X(scan_strength, DOUBLE, "factor of recurrent strengths", 0, COMPARED, WORDS("none"))                   \
    X(scan_norm, SWITCH, "norm of what recurrences give", 0, COMPARED, WORDS("none", "after gates", "before gates")) \
    X(attention_in, DOUBLE, "factor of attention's input", 0, COMPARED, WORDS("none"))                      \
    X(attention_out, DOUBLE, "factor of attention's output", 0, COMPARED, WORDS("none"))                    \
    X(ssm_in, DOUBLE, "factor of recurrences' input", 0, COMPARED, WORDS("none"))                           \
    X(ssm_out, DOUBLE, "factor of recurrences' output", 0, COMPARED, WORDS("none"))                         \
    X(key_factor, DOUBLE, "factor of keys", 0, COMPARED, WORDS("none"))                                     \
    X(gate_factor, DOUBLE, "factor of the MLP's gate", 0, COMPARED, WORDS("none"))                          \
    X(down_factor, DOUBLE, "factor of the MLP's output", 0, COMPARED, WORDS("none"))                        \
    X(ssm_gates, DOUBLE, "factor of recurrent gates", 0, COMPARED, WORDS("none"))                           \
    X(ssm_values, DOUBLE, "factor of recurrent values", 0, COMPARED, WORDS("none"))                         \
    X(ssm_keys, DOUBLE, "factor of recurrent keys", 0, COMPARED, WORDS("none"))                             \
    X(ssm_queries, DOUBLE, "factor of recurrent queries", 0, COMPARED, WORDS("none"))                       \
    X(ssm_steps, DOUBLE, "factor of recurrent steps", 0, COMPARED, WORDS("none"))                           \
    X(attention_alpha, DOUBLE, "factor of norms beside attention", 0, COMPARED, WORDS("none"))              \
    X(attention_beta, DOUBLE, "factor of attention beside norms", 0, COMPARED, WORDS("none"))               \
    X(lightning_alpha, DOUBLE, "factor of norms beside lightning attention", 0, COMPARED, WORDS("none"))    \
    X(lightning_beta, DOUBLE, "factor of lightning attention beside norms", 0, COMPARED, WORDS("none"))     \
    X(mlp_alpha, DOUBLE, "factor of norms beside experts", 0, COMPARED, WORDS("none"))                      \
    X(mlp_beta, DOUBLE, "factor of experts beside norms", 0, COMPARED, WORDS("none"))                       \
    X(further_layers, COUNT, "number of layers that predict further tokens", 1 << 10, NOT_COMPARED, WORDS("none")) \
    X(max_positions, COUNT, "number of positions", INT32_MAX, NOT_COMPARED, NULL)                           \
    X(tied, SWITCH, "tied head", 0, COMPARED, WORDS("no", "yes"))                                           \
    X(norm_eps, FLOAT, "norm epsilon", 0, COMPARED, NULL)                                                   \
    X(parallel, SWITCH, "parallel attention and MLP", 0, COMPARED, WORDS("no", "yes"))                      \
    X(activation, CHOICE, "GELU kind", 0, COMPARED, WORDS("tanh", "erf", "squared relu", "relu"))           \
    X(init_std, FLOAT, "standard deviation of initial values", 0, NOT_COMPARED, NULL)                       \
    X(qk_norm, SWITCH, "norm of queries and keys", 0, COMPARED, WORDS("no", "yes"))                         \
    X(post_norm, SWITCH, "norms of what blocks give", 0, COMPARED, WORDS("no", "yes"))                      \
    X(norms, CHOICE, "norms of parallel blocks", 0, COMPARED, WORDS("none", "shared", "two"))               \
    X(k_is_v, SWITCH, "values from the map of keys", 0, COMPARED, WORDS("no", "yes"))                       \
    X(attention_bias, SWITCH, "bias of attention", 0, COMPARED, WORDS("no", "yes"))                         \
    X(mlp_bias, SWITCH, "bias of the MLP", 0, COMPARED, WORDS("no", "yes"))                                 \
    X(gate, CHOICE, "gate function", 0, COMPARED, WORDS("silu", "tanh gelu", "gelu", "clamped silu", "sigmoid", "none", "squared relu"))       \
    X(gate_limit, DOUBLE, "limit of the clamped gate", 0, COMPARED, WORDS("none"))                          \
    X(gate_alpha, DOUBLE, "factor in the clamped gate", 0, COMPARED, WORDS("none"))                         \
    X(attention_scale, DOUBLE, "scale of attention scores", 0, COMPARED, WORDS("default"))                  \
    X(attention_cap, DOUBLE, "soft cap of attention scores", 0, COMPARED, WORDS("none"))                    \
    X(logit_cap, DOUBLE, "soft cap of logits", 0, COMPARED, WORDS("none"))                                  \
    X(embedding_scale, DOUBLE, "factor of embeddings", 0, COMPARED, WORDS("none"))                          \
    X(residual_scale, DOUBLE, "factor of residuals", 0, COMPARED, WORDS("none"))                            \
    X(logit_scale, DOUBLE, "factor of logits", 0, COMPARED, WORDS("none"))                                  \
    X(rope_theta, DOUBLE, "rope_theta", 0, COMPARED, NULL)                                                  \
    X(rope, CHOICE, "RoPE scaling", 0, COMPARED, WORDS("none", "linear", "llama3", "dynamic", "yarn", "longrope", "proportional")) \
    X(rope_factor, DOUBLE, "RoPE scaling's factor", 0, COMPARED, NULL)                                      \
    X(rope_low_freq, DOUBLE, "RoPE scaling's low_freq_factor", 0, COMPARED, NULL)                           \
    X(rope_high_freq, DOUBLE, "RoPE scaling's high_freq_factor", 0, COMPARED, NULL)                         \
    X(rope_original_positions, DOUBLE, "RoPE scaling's original_max_position_embeddings", 0, COMPARED, NULL) \
    X(rope_fast, DOUBLE, "RoPE scaling's beta_fast", 0, COMPARED, NULL)                                     \
    X(rope_slow, DOUBLE, "RoPE scaling's beta_slow", 0, COMPARED, NULL)                                     \
    X(rope_alpha, DOUBLE, "RoPE scaling's alpha", 0, COMPARED, WORDS("none"))                               \
    X(rope_exact, SWITCH, "RoPE scaling's exact ramp", 0, COMPARED, WORDS("no", "yes"))                     \
    X(rope_attention, DOUBLE, "RoPE scaling's attention_factor", 0, COMPARED, WORDS("derived"))             \
    X(rope_mscale, DOUBLE, "RoPE scaling's mscale", 0, COMPARED, NULL)                                      \
    X(rope_mscale_all, DOUBLE, "RoPE scaling's mscale_all_dim", 0, COMPARED, NULL)                          \
    X(rope_share, DOUBLE, "share of a head that is rotated", 0, COMPARED, WORDS("all"))                     \
    X(rope_slope, DOUBLE, "scale of queries by position", 0, COMPARED, WORDS("none"))                       \
    X(rope_interleaved, SWITCH, "interleaved RoPE", 0, COMPARED, WORDS("no", "yes"))                        \
    X(rope_local_theta, DOUBLE, "rope_theta of windowed layers", 0, COMPARED, WORDS("the same"))
/* clang-format on */

#define X(member, type, what, limit, compared, words) AT_##member,
enum config_field_id { NO_FIELD, CONFIG_FIELDS(X) CONFIG_FIELDS_END };
#undef X

struct config_field {
    size_t offset;
    enum field_type type;
    const char *what;
    int64_t limit;
    int compared;
    const char *const *words; /* NULL-terminated; NULL: numbers are printed */
};

extern const struct config_field config_fields[CONFIG_FIELDS_END]; /* [NO_FIELD] is unused */

/* Returns the value as a number; counts within their limits are below 2^53. A float becomes the double with its shortest decimal
 * form. */
double config_get_number(const struct model_config *c, enum config_field_id field);
void *config_field_at(struct model_config *c, enum config_field_id field);
/* Refuses counts that are not between 1 and their limits. */
enum status config_check_limits(const struct model_config *c);

/* ---- keys of config.json ---- */

struct config_reader;

/* A word of config.json and the value it stands for. */
struct config_word {
    const char *word; /* NULL ends a list */
    int value;
};

enum key_kind {
    KEY_FIELD,    /* the field's value; if the key is absent, `fallback` */
    KEY_REQUIRED, /* the field's value; the key must be there */
    KEY_WORD,     /* the field's value as a word; if the key is absent, `fallback`; with NO_FIELD any of the words is accepted */
    KEY_ONLY_FALSE, /* read and checked, not written: only the value in the name is supported */
    KEY_ONLY_TRUE,
    KEY_ONLY_ONE,
    KEY_DROPOUT, /* read only to warn about it; written as 0 */
    KEY_FALSE,
    KEY_OWN,     /* a count that transformers has no key for in this family: read if it is there, written unless it is 0 */
    KEY_SPECIAL, /* read and written by the functions below; NULL: not read, or not written */
};

struct config_implied {
    enum config_field_id field;
    int64_t value;
};

struct config_key {
    const char *name; /* NULL ends a list */
    enum key_kind kind;
    enum config_field_id field;
    double fallback;
    const struct config_word *words; /* words and their values; if several words have one value, the first is written */
    enum status (*read)(struct config_reader *r, struct model_config *c);
    json_t *(*write)(const struct model_config *c);
};

/* ---- reading (reader.c, rope.c, layers.c) ---- */

enum { MAX_KEYS = 128, CONFIG_PATH = 4096 };

struct family;

/* A JSON object and the keys asked for so far. */
struct config_reader {
    const char *path;            /* name of the file in messages */
    const struct family *family; /* known once model_type has been read */
    const char *section;         /* "", "text_config." or "rope_scaling." */
    const json_t *object;
    const char *asked[MAX_KEYS];
    int n_asked;
};

enum need { REQUIRED, OPTIONAL };

/* Returns the value of a key; NULL if the key is absent or null. */
const json_t *config_get(struct config_reader *r, const char *key);
enum status config_refuse(const struct config_reader *r, const char *key, const char *instead);
enum status config_missing(const struct config_reader *r, const char *key);
/* Reads one value; *out stays as it is when an optional key is absent. */
enum status config_read_count(struct config_reader *r, const char *key, enum need need, int64_t least, int64_t *out);
enum status config_read_real(struct config_reader *r, const char *key, enum need need, double *out);
enum status config_read_bool(struct config_reader *r, const char *key, int *out);
enum status config_read_word(struct config_reader *r, const char *key, const struct config_word *words, int *out);
/* Refuses a key whose value is not the one allowed; an absent key is fine. */
enum status config_only_bool(struct config_reader *r, const char *key, int allowed);
enum status config_only_number(struct config_reader *r, const char *key, double allowed);
enum status config_only_null(struct config_reader *r, const char *key);
/* Tells whether a key has no effect on training: bookkeeping, marks left by trainers, hubs and generation, and values that mean
 * none. */
int config_is_idle(const char *key, const json_t *value);
int config_was_asked(const struct config_reader *r, const char *key);
/* Refuses a key of a section that nothing has asked for, unless it is idle. */
enum status config_check_understood(const struct config_reader *r);
/* Reads quantization_config into base and quantised; refuses everything but bitsandbytes' NF4 and int8, and MXFP4 (quantised.c). */
enum status config_read_quantised(struct config_reader *r, struct model_config *c);
/* Returns the text model's part of config.json: text_config of a multimodal model, else all of it. */
json_t *config_text_of(json_t *root);
/* Loads the object in DIR/config.json and sets `path`. */
enum status config_load(const char *dir, char path[CONFIG_PATH], json_t **root);

/* Reads rotary positions from rope_scaling or rope_parameters. Call it after rope_theta, max_position_embeddings and all keys
 * from which head_dim follows have been read. */
enum status config_read_rope(struct config_reader *r, struct model_config *c);
json_t *config_write_rope(const struct model_config *c);
/* Returns rope_parameters as transformers 5 reads them: the keys of rope_scaling, the base and the rotated part. */
json_t *config_write_rope_parameters(const struct model_config *c);

/* Reads, checks or writes per_layer_config: values that override those of the model for some layers; a family may add values.
 * Layers without overrides are not written. */
enum status config_read_own(struct config_reader *r, struct model_config *c);
enum status config_check_own(const struct config_reader *r, const struct model_config *c);
enum status config_add_own(struct config_reader *r, struct model_config *c, int64_t l, const struct layer_config *own);
json_t *config_write_own(const struct model_config *c);
int config_has_own(const struct model_config *c);

/* Reads layer_types, which says for each layer if it has the window. Without the key, every period-th layer has no window; a
 * negative period: the first of each -period layers has none; 0: all layers have the window. */
enum status config_read_layer_types(struct config_reader *r, struct model_config *c, int64_t period);
/* Returns layer_types as an array of strings; null if all layers are alike. */
json_t *config_write_layer_types(const struct model_config *c);
/* Returns layer_types as an array even if all layers are alike, for families that read a missing key differently. */
json_t *config_list_layer_types(const struct model_config *c);
/* Returns layer_rope_theta: the rotary base of each layer; 0 for a layer without positions. */
json_t *config_list_thetas(const struct model_config *c);
/* Reads no_rope_layers, with a 0 for each layer without positions. If the key is missing, every no_rope_layer_interval-th layer
 * has no positions. */
enum status config_read_unrotated(struct config_reader *r, struct model_config *c);
json_t *config_write_unrotated(const struct model_config *c);

#endif
