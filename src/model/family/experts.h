/* Layers, names and keys that families with experts have in common. Private to model.
 *
 * A layer with experts has a block of experts and, if there are shared experts, an MLP joined to it. Other layers have an MLP. The
 * router and the stacks of a layer's experts are units of their own. */
#ifndef LTRAIN_MODEL_FAMILY_EXPERTS_H
#define LTRAIN_MODEL_FAMILY_EXPERTS_H

#include "model/family/llama.h"

/* A family's router, tensors (named below the layer) and keys of config.json. */
struct experts_form {
    enum router_kind router;
    enum norm_kind norm; /* norm before experts and MLPs */
    const char *gate;    /* router's map; with `biased` it has a bias */
    int biased;
    const char
        *router_module;  /* module of transformers that is this map, which adapters bear; NULL: its name is that of `gate` */
    float added;         /* number that is added to the sum of sigmoids by which they are divided; 0: 1e-20 */
    const char *bias;    /* vector that is added to choose experts; NULL: none */
    int bias_rows;       /* 1: files have that vector as a matrix with one row */
    const char *factors; /* vector of factors of the weights; NULL: none */
    int ranked;          /* greatest scores whose sum ranks a group of experts; 0: two */
    const char *gate_up, *down; /* stacks */
    const char *const *gate_up_parts,
        *const *down_parts;       /* ends of names of files' tensors for each expert; NULL: stacks are whole */
    const char *module;           /* module of transformers that holds the experts; NULL: mlp.experts */
    const char *first;            /* name there of the first stack; NULL: gate_up_proj */
    unsigned form;                /* form of the stacks' maps (enum linear_form) */
    int alternate;                /* 1: columns of gate and up alternate */
    const char *descend, *ascend; /* maps to what experts read, and from what they give, where that is narrower than the stream */
    const char *shared;           /* shared experts' MLP; NULL: none */
    const char *shared_map;       /* map to a number a token, by whose sigmoid the shared experts are multiplied; NULL: none */
    int shared_fused;             /* 1: that MLP has its gate and up in one map, input_linear */
    const char *count[2];         /* keys of the number of experts */
    const char *shared_key;       /* key of the number of shared experts, each as wide as an expert; NULL: none */
    const char *first_key;        /* key of the number of first layers without experts; NULL: none */
    int64_t shared_count, first_count; /* values of these keys if they are absent */
    int listed;                        /* 1: mlp_layer_types says which layers have experts */
    double aux;                        /* coefficient of the auxiliary loss if config.json gives none */
};

/* Names of tensors for each expert: gate_proj, up_proj, down_proj; w1, w3, w2. */
extern const char *const experts_gate_up[], *const experts_down[], *const experts_w13[], *const experts_w2[];
/* Usual names of stacks, in transformers and in files. */
#define EXPERTS_STACKS                                                                                        \
    .gate_up = "mlp.experts.gate_up_proj", .down = "mlp.experts.down_proj", .gate_up_parts = experts_gate_up, \
    .down_parts = experts_down

extern const struct config_word experts_sigmoid[], experts_noaux[];

/* Tells whether layer l has experts. */
int experts_has(const struct model_config *c, int64_t l);
/* Sets whether layer l has experts. */
void experts_set(struct model_config *c, int64_t l, int has);
/* Returns the module of transformers that holds a layer's experts, whose stacks are experts_first and down_proj. */
const char *experts_module(const struct experts_form *f);
const char *experts_first(const struct experts_form *f);
/* Returns the module of transformers that is the router. */
const char *experts_router_module(const struct experts_form *f);
/* Declares a layer's MLP, or its block of experts without router and stacks, and the norm before it; NULL: there is none. */
void experts_mlp(struct builder *b, int l, const char *norm);
/* Sets the numbers of a block of experts, for families that do not declare the block by experts_mlp. */
void experts_describe(struct builder *b, struct experts_block *e);
/* Declares the router of a layer that has experts, in a unit of its own. */
void experts_router(struct builder *b, int l);
/* Declares the stacks of a layer that has experts, in another unit of its own. */
void experts_stacks(struct builder *b, int l);
/* Refuses numbers of experts and groups that do not go together. */
enum status experts_check(const struct model_config *c);
/* Sets the size of experts to intermediate_size, for families with no other key of it, or the other way round; then as llama_derive. */
enum status experts_derive(struct config_reader *r, struct model_config *c);

enum status experts_read_count(struct config_reader *r, struct model_config *c);
json_t *experts_write_count(const struct model_config *c);
/* Reads the number of shared experts, after the size of an expert. */
enum status experts_read_shared(struct config_reader *r, struct model_config *c);
json_t *experts_write_shared(const struct model_config *c);
/* Reads which layers have experts: all but the first ones, or by mlp_layer_types. */
enum status experts_read_layers(struct config_reader *r, struct model_config *c);
json_t *experts_write_first(const struct model_config *c);
json_t *experts_list_layers(const struct model_config *c);
/* Reads which layers have experts: every decoder_sparse_step-th, without those of mlp_only_layers. */
enum status experts_read_step(struct config_reader *r, struct model_config *c);
json_t *experts_write_one(const struct model_config *c);
/* Writes the width of the shared experts together. */
json_t *experts_write_width(const struct model_config *c);
json_t *experts_list_dense(const struct model_config *c);
enum status experts_read_aux(struct config_reader *r, struct model_config *c);
json_t *experts_write_aux(const struct model_config *c);
enum status experts_read_further(struct config_reader *r, struct model_config *c);
json_t *experts_write_further(const struct model_config *c);
/* Refuses windows, for families whose published models have none. */
enum status experts_read_no_window(struct config_reader *r, struct model_config *c);

/* Reads the number of rotated elements of a head, which published files have instead of a share. */
enum status experts_read_rotated(struct config_reader *r, struct model_config *c);
/* Refuses a window. */
enum status experts_read_null_window(struct config_reader *r, struct model_config *c);
/* Refuses noise of the router's input, which transformers adds while it trains. */
enum status experts_read_jitter(struct config_reader *r, struct model_config *c);

#define EXPERTS_NO_JITTER                                               \
    {                                                                   \
        "router_jitter_noise", KEY_SPECIAL, .read = experts_read_jitter \
    }
#define EXPERTS_ROTATED {"rotary_dim", KEY_SPECIAL, .read = experts_read_rotated}, SHARE_KEY
#define EXPERTS_NULL_WINDOW                                             \
    {                                                                   \
        "sliding_window", KEY_SPECIAL, .read = experts_read_null_window \
    }
/* Stacks of Mixtral and its relatives, in struct experts_form. */
#define EXPERTS_SPARSE_STACKS                                                                                           \
    .gate = "block_sparse_moe.gate", .router_module = "mlp.gate", .gate_up = "block_sparse_moe.experts.gate_up_proj",   \
    .down = "block_sparse_moe.experts.down_proj", .gate_up_parts = experts_w13, .down_parts = experts_w2, .aux = 0.001, \
    .count = {"num_local_experts", "num_experts"}
#define EXPERTS_KEY(key)                                                           \
    {                                                                              \
        key, KEY_SPECIAL, .read = experts_read_count, .write = experts_write_count \
    }
#define EXPERTS_AUX                                                                              \
    {"router_aux_loss_coef", KEY_SPECIAL, .read = experts_read_aux, .write = experts_write_aux}, \
    {                                                                                            \
        "output_router_logits", KEY_FIELD, AT_router_aux_used, 0                                 \
    }
#define EXPERTS_GROUPS                                                                         \
    {"n_group", KEY_FIELD, AT_expert_groups, 1}, {"topk_group", KEY_FIELD, AT_groups_used, 1}, \
    {                                                                                          \
        "routed_scaling_factor", KEY_FIELD, AT_router_scale, 1.0                               \
    }
#define EXPERTS_SHARED(key)                                                          \
    {                                                                                \
        key, KEY_SPECIAL, .read = experts_read_shared, .write = experts_write_shared \
    }
#define EXPERTS_FIRST(key)                                                          \
    {                                                                               \
        key, KEY_SPECIAL, .read = experts_read_layers, .write = experts_write_first \
    }
/* Keys that say what the family computes anyway. */
#define EXPERTS_CHOICE                                              \
    {"scoring_func", KEY_WORD, NO_FIELD, .words = experts_sigmoid}, \
    {                                                               \
        "topk_method", KEY_WORD, NO_FIELD, .words = experts_noaux   \
    }
/* Number of layers behind the last one, which predict further tokens: no part of the model, as in transformers. */
#define EXPERTS_FURTHER(key)                                                           \
    {                                                                                  \
        key, KEY_SPECIAL, .read = experts_read_further, .write = experts_write_further \
    }
/* Keys of windows that are off. */
#define EXPERTS_NO_WINDOW                                                                                 \
    {"use_sliding_window", KEY_SPECIAL, .read = experts_read_no_window}, {"sliding_window", KEY_SPECIAL}, \
        {"max_window_layers", KEY_SPECIAL},                                                               \
    {                                                                                                     \
        "layer_types", KEY_SPECIAL                                                                        \
    }

#endif
