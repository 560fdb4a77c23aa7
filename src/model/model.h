/* Model families as logical layer graphs: which parameters exist, where each lies in its unit, and how layers use them.
 *
 * A unit is what moves together: unit 0 the embedding, units 1..L the layers, unit L+1 the final norm and (untied) head. Its parameters form one
 * flat element range: trained matrices first, then trained vectors, then frozen ones; no padding between them. Frozen matrices that are quantised
 * are no elements but bytes, a range of their own. */
#ifndef LTRAIN_MODEL_MODEL_H
#define LTRAIN_MODEL_MODEL_H

#include "base/quantised.h"
#include "base/num.h"
#include "base/status.h"
#include "program/op.h"
#include "settings/lora.h"

#include <stddef.h>
#include <stdint.h>

/* A row per family: FAMILY_<first> is what src/model calls family_<second>. docs/models.md says what tells them apart. */
#define MODEL_FAMILIES(X) \
    X(LLAMA, llama) X(MISTRAL, mistral) X(QWEN2, qwen2) X(QWEN3, qwen3) X(SMOLLM3, smollm3) X(GRANITE, granite) X(PHI3, phi3) \
    X(GEMMA2, gemma2) X(GEMMA3, gemma3) X(OLMO2, olmo2) X(OLMO3, olmo3) X(GLM4, glm4) X(STARCODER2, starcoder2) X(GPT2, gpt2) \
    X(GPT_NEOX, gpt_neox) X(COHERE, cohere) X(COHERE2, cohere2) X(GPT_OSS, gpt_oss) X(MINISTRAL3, ministral3) \
    X(QWEN3_5, qwen3_5) X(SEED_OSS, seed_oss) X(ERNIE4_5, ernie4_5) X(ARCEE, arcee) X(MINISTRAL, ministral) X(CWM, cwm) X(HELIUM, helium) \
    X(GLM, glm) X(GEMMA, gemma) X(VAULTGEMMA, vaultgemma) X(EXAONE4, exaone4) X(HUNYUAN, hunyuan) X(NEMOTRON, nemotron) X(OLMO, olmo) \
    X(GEMMA4, gemma4) X(STABLELM, stablelm) X(FALCON, falcon) X(GPT_BIGCODE, gpt_bigcode) X(GPT_NEO, gpt_neo) X(JAIS2, jais2) \
    X(HYPERCLOVAX, hyperclovax) X(GRANITE_SWA, granite_swa) X(PHI, phi) X(GPTJ, gptj) X(CODEGEN, codegen) X(OPT, opt)
#define X(upper, lower) FAMILY_##upper,
enum model_family { MODEL_FAMILIES(X) N_FAMILIES };
#undef X
/* What frozen matrices of layers are kept as: in the storage type, in NF4 with nested or with plain scales, or in int8 (base/quantised.h). */
enum model_base { BASE_STORED, BASE_NF4, BASE_NF4_PLAIN, BASE_INT8 };
enum rope_kind { ROPE_DEFAULT, ROPE_LINEAR, ROPE_LLAMA3, ROPE_DYNAMIC, ROPE_YARN, ROPE_LONGROPE, ROPE_PROPORTIONAL };

enum {
    LAYERS_MOST = 1 << 12,
    LONGROPE_MOST = 256,           /* frequencies: head sizes up to 512 */
    MODEL_KINDS = 8,               /* kinds of attention in one model: under different masks, or with different heads */
    MODEL_MASKS = MODEL_KINDS,     /* different windows, none counting as one */
    MODEL_SHAPES = MODEL_KINDS,    /* different heads */
    MODEL_ROPES = 2 * MODEL_KINDS, /* different sets of rotary frequencies */
};

/* What config.json says of some layers' attention in place of what it says of all. 0: the same; window -1: none. */
struct layer_config {
    int64_t heads, kv_heads, head_dim, window;
};

/* What config.json says, and how much of a table of learned positions a run can meet. */
struct model_config {
    enum model_family family;
    int64_t vocab, dim, ffn, layers, heads, kv_heads, head_dim, max_positions;
    int64_t positions;     /* in use, of a table of learned ones: the first rows, as many as the run's sequences are long; 0: all */
    int64_t window; /* of the layers in `windowed`: a query attends that many keys at most, its own included; 0: all before it */
    uint8_t windowed[LAYERS_MOST / 8], unrotated[LAYERS_MOST / 8]; /* a bit a layer: it has the window; it has no rotary positions */
    struct layer_config own[1 + MODEL_KINDS]; /* the first one says nothing */
    uint8_t own_of[LAYERS_MOST];              /* which of them a layer has */
    int tied;              /* head = embedding */
    int parallel;          /* attention and MLP of a layer read the same input, where the family has both kinds of layers */
    int qk_norm;           /* norms of queries and keys, where the family has models with and without */
    int post_norm;         /* norms of what blocks give, likewise */
    int norms;             /* of a layer's parallel blocks, where the family has both: 1, which they share, or 2 */
    int k_is_v;            /* the layers that are not in `windowed` take values from the map of keys */
    int attention_bias, mlp_bias; /* biases of the maps around attention, of the MLP's; which ones, the family says */
    float norm_eps;
    enum gelu_kind gelu;
    enum gate_kind gate;
    double gate_limit, gate_alpha; /* of a clamped gate */
    double attention_scale;  /* of scores; 0: 1 / sqrt(head size) */
    double attention_cap, logit_cap; /* soft caps, cap * tanh(x / cap); 0: none */
    double embedding_scale, residual_scale, logit_scale; /* factors: of embeddings, of what blocks add to the stream, of logits; 0: 1 */
    float init_std;
    double rope_theta;
    enum rope_kind rope;
    double rope_factor, rope_low_freq, rope_high_freq, rope_original_positions; /* of all kinds but default; of llama3; of all but linear */
    double rope_fast, rope_slow; /* yarn's beta_fast and beta_slow */
    double rope_alpha;           /* of dynamic: the base grows by it, whatever the sequence's length; 0: by the length */
    int rope_exact;              /* yarn: the ends of its ramp are not rounded to whole frequencies ("truncate": false) */
    double rope_attention;       /* factor of rotated queries and keys; 0: what yarn and longrope derive */
    double rope_mscale, rope_mscale_all; /* yarn: what it is derived from; 0: from the factor alone */
    double rope_slope;           /* queries are scaled by 1 + slope log(1 + position / rope_original_positions), rounded down; 0: no */
    double rope_share;           /* of a head's elements that are rotated, the first ones; 0: all; of ROPE_PROPORTIONAL: of its pairs */
    int rope_interleaved;        /* pairs are neighbours, not half the rotated elements apart */
    double rope_local_theta;     /* base of the layers in `windowed`, which then have no scaling; 0: that of all layers */
    double rope_short[LONGROPE_MOST], rope_long[LONGROPE_MOST]; /* longrope: divisors of frequencies */
    struct lora lora;      /* adapters beside its linear maps: not of config.json */
    enum model_base base;  /* of linear maps that are frozen; of config.json only where files are quantised */
    int quantised;         /* the files have them so */
    int lists_skipped;     /* and config.json lists modules that they leave alone: */
    char skipped[8192];    /* lines of patterns (model/skipped.h) */
    double dropout;        /* the largest that config.json asks for; ltrain trains without */
    int64_t unchunked;     /* tokens from which on a Qwen2.5-1M was made to attend in chunks; 0: none */
    int wrapped;           /* config.json is a multimodal model's, and this is the text model in it */
    char name[64];         /* preset or directory name, for people */
    char unknown[256];     /* keys of config.json that nobody knows, separated by commas */
};

enum param_init { INIT_NORMAL, INIT_ONES, INIT_ZEROS, INIT_UNIFORM /* of (-init_std, init_std) */ };

/* A parameter as Hugging Face names and shapes it. A run fetches, gathers and updates the elements in use; files have all. */
struct model_param {
    char name[96];
    int64_t shape[2];    /* vectors: shape[1] = 0 */
    int64_t elements;    /* in use: the first ones */
    int unit;
    int64_t offset;      /* first element in the unit's flat range */
    int linear;          /* a linear map of a layer */
    int64_t packed_bytes, packed_offset; /* of a frozen map that is quantised, which has no elements in use: bytes of the unit's packed range; else 0 */
    int64_t head_rows;   /* 0: files have it as it is. Else it is `parts` maps of heads of that many rows each, which in files are
                          * interleaved: the first head's rows of every part, then the second head's; the first `joined` parts are
                          * one map here, which has a first head's rows of all of them, then a second head's */
    int parts, joined;
    int of_norm;         /* of shape [heads, head size], but as a vector: not decayed, multiplies no token */
    int constant;        /* never trained, of whatever model */
    int trained;
    int adapter;         /* it is an adapter's: not in the files of the model's weights */
    int from_adapter;    /* in an adapter's files: an adapter's, or saved beside one. Of models that train, what is trained */
    enum param_init init;
    float init_std;
};

struct model_unit {
    int64_t elements;         /* all */
    int64_t trained_elements; /* trained ones, which come first */
    int64_t decay_elements;   /* trained matrices, which come first of all: they get weight decay */
    int64_t packed_bytes;     /* of its quantised matrices, a range of bytes beside the elements */
    int first_param, n_params; /* in order of offset */
};

/* A linear map's weight. Llama stores [out, in]; GPT-2's Conv1D stores [in, out] with q, k, v as column ranges of one matrix. */
struct model_linear {
    int weight;            /* param index */
    int bias;              /* param index, or -1 */
    int transposed;        /* 1: stored [out, in] (y = x W^T); 0: stored [in, out] (y = x W) */
    int64_t in, out;       /* of this map */
    int64_t first_out;     /* its outputs are outputs [first_out, first_out + out) of the stored matrix */
    int64_t ld;            /* row length of the stored matrix */
    int64_t rank;          /* of its adapter, which is the stored matrix's, stored [out, in] whatever that is; 0: it has none */
    int down, up;          /* its params A [rank, in] and B [outputs of the stored matrix, rank] */
    float adapter_scale;   /* y += adapter_scale B A x */
    uint32_t dropout_module; /* the adapter's number where masks of its inputs are made: of its name alone */
};

struct model_norm {
    enum norm_kind kind;
    int weight, bias; /* -1: none, of an RMS norm of heads too. Of norms of heads: weights that all heads share, or [heads, head size] */
};

enum block_kind { BLOCK_ATTENTION, BLOCK_MLP, BLOCK_KINDS };

struct attention_block {
    struct model_linear q, k, v, o;
    struct model_linear gate;         /* o maps what heads give times sigmoid(gate of the block's input); gate.weight = -1: there is none */
    struct model_norm q_norm, k_norm; /* of each head, or (whole) of all; NORM_NONE: none */
    struct model_norm v_norm;         /* of each head */
    int whole, norm_last;             /* norm_last: after heads are rotated, else before */
    int shape;                        /* of the model's shapes of heads */
    int mask;                         /* of the model's masks */
    int rope;                         /* of the model's sets of frequencies; -1: not rotated */
    int sinks;                        /* param index of a logit per head, in the softmax's denominator only; -1: none */
    float scale, cap;                 /* of scores; cap 0: none */
};
struct mlp_block {
    struct model_linear gate, up, down; /* gate.weight = -1: GELU of up */
    enum gate_kind kind;
};

/* What a layer adds to the residual stream: x + scale after(f(norm(x))), f by kind, scale of the whole model. Of a parallel block
 * that follows x' it is x + scale after(f(norm(x'))), x' being the input of the block before it. */
struct model_block {
    enum block_kind kind;
    int parallel;            /* f reads what the block before it reads, not what that one adds to */
    struct model_norm norm;  /* NORM_NONE: f has its input as it is */
    struct model_norm after; /* of what f gives, before it is added; NORM_NONE: none */
    union {
        struct attention_block attention;
        struct mlp_block mlp;
    };
};

enum { LAYER_BLOCKS = 2 }; /* at most, of any family */

struct model_layer {
    int scalar; /* param index of what the layer's output is multiplied by, last of all, which is never trained; -1: nothing */
    int n_blocks;
    struct model_block blocks[LAYER_BLOCKS]; /* in the order in which they add to the stream */
};

/* Heads of attention: each KV head serves as many query heads. */
struct attention_shape {
    int64_t heads, kv_heads, head_dim;
};

/* Layers that attend alike. */
struct attention_kind {
    int mask, shape, layers;
};

/* Rotary frequencies of heads of one size: of the layers in `windowed` where these have a base of their own (local), or of others. */
struct rope_set {
    int local;
    int64_t head_dim, first, n; /* in the table of all */
};

struct model {
    struct model_config config;
    int n_units, n_params;
    struct model_unit *units;
    struct model_param *params;
    struct model_layer *layers;
    int embed, pos_embed;        /* param index; pos_embed -1 for rope */
    int rounds_embedding_scale;  /* to the storage type before it is applied, as Gemma does */
    struct model_norm final_norm;
    struct model_linear embedding; /* the table as a map of tokens, for its adapter: `down` [rank, vocab], `up` [dim, rank] */
    struct model_linear head;    /* tied: the embedding's matrix */
    int n_masks, n_shapes, n_kinds;
    int64_t mask_window[MODEL_MASKS]; /* the widest first; 0: none */
    struct attention_shape shapes[MODEL_SHAPES]; /* in the order of the first layers that have them */
    struct attention_kind kinds[MODEL_KINDS];    /* by mask, then by shape */
    int n_ropes;                 /* 0 where positions are learned */
    struct rope_set ropes[MODEL_ROPES];
    int64_t n_frequencies;       /* of all sets; at least 1 */
    int64_t total_params;        /* as in files */
    int64_t adapter_params;      /* of these, in adapters */
    int64_t trained_params;
    int64_t packed_params;       /* quantised */
    int64_t most_rank;           /* of adapters; 0: there are none */
    int64_t trained_matrix_params; /* of the next, those that are trained */
    int64_t matrix_params;       /* P of the FLOP formula: matrices multiplied per token, head included even if tied, embedding not */
};

/* One of: tiny, 25m, 125m, 1b, 8b (Llama), gpt2-tiny, gpt2-125m, gpt-25b. ERR_INVALID lists them (with "did you mean").
 * tiny: vocab 256, dim 64, 2 layers, 2 heads of 32, 2 kv heads, ffn 256, tied. 25m: vocab 8192, 8 x 512, 8/2 heads of 64, ffn 1408, tied.
 * gpt2-tiny: vocab 256, dim 64, 2 layers, 2 heads, 4096 positions. */
enum status model_preset(const char *name, struct model_config *out);
int model_is_preset(const char *name);

/* Reads DIR/config.json strictly: an unsupported setting is an error naming its key and value. Ignorable keys (torch_dtype,
 * transformers_version, use_cache, token ids, ...) are ignored. Both rope_theta/rope_scaling and rope_parameters spellings. A sliding
 * window must be the same in every layer. */
enum status model_config_read(const char *dir, struct model_config *out);
/* Writes DIR/config.json that transformers loads. dtype: F32 or BF16. */
enum status model_config_write(const char *dir, const struct model_config *config, enum dtype dtype);
/* Writes DIR/config.json as it is in the directory `like`, whose configuration this is: with token ids and every other key. What is said
 * anew is the dtype; older readers find rope_theta and rope_scaling beside rope_parameters. */
enum status model_config_write_like(const char *dir, const char *like, const struct model_config *config, enum dtype dtype);
/* The same of weights that become quantised: with quantization_config as transformers writes it, and the dtype as it is there. */
enum status model_config_write_quantised(const char *dir, const char *like, enum model_base base);
/* The same with the dtype as it is there, too. */
enum status model_config_write_stretched(const char *dir, const char *like, const struct model_config *config);
/* Other rotary positions than config.json's. rope: KIND:FACTOR (yarn, linear, dynamic, llama3), or none; NULL: as they are. base 0: as it
 * is. max_positions grows to what the model is then made for. Errors name --rope and --rope-base. */
enum status model_config_set_rope(struct model_config *config, const char *rope, double base);
/* The positions that the model was trained for before any scaling, which --rope's factors are of. */
double model_trained_positions(const struct model_config *config);
/* "base 500000, llama3 with factor 8 from 8,192 positions", for sequences of `tokens`. */
void model_describe_rope(const struct model *m, int64_t tokens, char *text, size_t bytes);
/* Whether checkpoints of one cannot be those of the other: the first difference, as "hidden size is 24 there and 32 in this run". */
int model_config_differs(const struct model_config *there, const struct model_config *here, char *text, size_t bytes);

/* The one glob of a model that is evaluated only. */
#define MODEL_FREEZE_ALL "*"

/* Builds the graph. freeze: globs (fnmatch) over parameter names, n_freeze may be 0; a glob that matches nothing is an error, as is
 * freezing everything in another way than MODEL_FREEZE_ALL. */
enum status model_create(const struct model_config *config, const char *const *freeze, int n_freeze, struct model **out);
void model_destroy(struct model *m);
/* ERR_INVALID: the targets match no module, or a name of modules to be saved is none's, or one that cannot be saved. */
enum status model_check_adapters(const struct model *m);
/* ERR_INVALID: a part of the targets, excluded modules, layers or patterns, which goes to text, changes nothing: adapters of PEFT's may have such.
 * "": each does. */
enum status model_check_patterns(const struct model *m, char *text, size_t bytes);
/* What has adapters and what is trained beside them, in a line or two, each ended; "" without adapters. */
void model_describe_adapters(const struct model *m, char *text, size_t bytes);
/* The same model, for sequences of `tokens`: its table of learned positions, if it has one, is in use as far as they reach. */
enum status model_create_for(const struct model *m, int64_t tokens, const char *const *freeze, int n_freeze, struct model **out);
/* A quantised matrix's bytes. */
static inline struct quantised model_quantised(const struct model_config *config, const struct model_param *p)
{
    return (struct quantised){config->base == BASE_INT8 ? QUANTISED_INT8 : config->base == BASE_NF4 ? QUANTISED_NF4 : QUANTISED_NF4_PLAIN,
                              p->shape[0], p->shape[1]};
}
/* "NF4", "int8", for people, and "nf4", "int8", as keys and files have it; "" where the base is stored. */
const char *model_base_name(enum model_base base);
const char *model_base_word(enum model_base base);
/* Elements of the parameter in files: the ones in use, and after them the ones that no sequence of the run reaches. */
int64_t model_param_stored(const struct model_param *p);
/* Elements [first, first + n) of the parameter in files: how many of them lie there one after another, from *there on. */
int64_t model_param_piece(const struct model_param *p, int64_t first, int64_t n, int64_t *there);
/* The layer's first block of a kind, or NULL. */
const struct model_block *model_find_block(const struct model_layer *layer, enum block_kind kind);
/* Whether positions are learned: then max_positions limits a sequence. Rotary ones do not end. */
int model_learns_positions(const struct model_config *config);
/* The row of their table that a document's first token has. */
int model_first_position(const struct model_config *config);
/* Whether they are rotary, and config.json says nothing of them but how many elements are rotated. */
int model_fixes_rope(const struct model_config *config);
/* Checkpoints of the bare model leave the first component out ("h.0.ln_1.weight", "layers.0..."): the name without its leading
 * "transformer.", "model." or "gpt_neox.", NULL if it has neither. A loader asks the file for the name first, then for this. */
const char *model_param_alias(const char *name);

/* What an untied head's tensor is called in files. */
void model_head_name(const struct model_config *config, char name[32]);
/* Names under which multimodal models hold the text model's tensors: the newer spelling ("model.language_model.layers...", as
 * transformers has had it since 4.52) or the older one ("language_model.model.layers..."), which most published files have. */
enum wrapping { WRAPPING_NEW, WRAPPING_OLD, WRAPPINGS };
enum { WRAPPED_NAME = 128 };
void model_wrapped_name(const char *name, enum wrapping wrapping, char out[WRAPPED_NAME]);
/* Whether the tensor is the text model's: by its name, which is one of these. */
int model_is_wrapped_name(const char *name);
/* Whether a file of weights may hold the tensor without any parameter's being it: masks and tables that follow from the configuration. */
int model_is_buffer(const struct model_config *config, const char *name);

/* Initial values of elements [first, first + n) of a parameter: depends on seed, name and element only. */
void model_init_param(const struct model *m, int param, uint64_t seed, int64_t first, int64_t n, float *out);
/* Elements of a head of that size that are rotated, an even number. */
int64_t model_rotated(const struct model_config *config, int64_t head_dim);
/* inv_freq[n_frequencies] with the configured scaling for sequences of `tokens`, computed in fp64 and rounded (ops/rope.h says why to fp32). */
void model_inv_freq(const struct model *m, int64_t tokens, float *out);
/* The base of rotary positions; dynamic NTK raises it with the length of the sequence. */
double model_rope_base(const struct model_config *config, int64_t tokens);
/* Factor of what is rotated with the rope-th set of frequencies. */
double model_rope_attention(const struct model *m, int rope);
/* Causal model FLOPs of one forward + backward over S tokens whose queries attend pairs[i] keys in all under mask i: 6 P S + 12 (sum over layers
 * of their pairs times h, heads x head size), and 4 for matrices that are frozen in place of 6, without recompute (pairs = S^2/2 and layers that
 * are alike give 6*P + 6*L*h*S per token). */
double model_flops(const struct model *m, int64_t tokens, const double pairs[MODEL_MASKS]);
/* Pairs of one document of that many tokens, under each mask. */
void model_causal_pairs(const struct model *m, int64_t tokens, double pairs[MODEL_MASKS]);
static inline int model_bit(const uint8_t *bits, int64_t layer)
{
    return bits[layer / 8] >> layer % 8 & 1;
}
/* The layer's attention; NULL: it has none. */
static inline const struct attention_block *model_attention(const struct model *m, int64_t layer)
{
    const struct model_block *b = model_find_block(&m->layers[layer], BLOCK_ATTENTION);
    return b ? &b->attention : NULL;
}
/* Whether the layer attends through a window of a model that has layers that attend farther. */
static inline int model_is_windowed(const struct model *m, int64_t layer)
{
    const struct attention_block *a = model_attention(m, layer);
    return a && a->mask > 0;
}
/* How many do. */
int model_windowed_layers(const struct model *m);
/* The number in m->kinds of the layer's kind; 0 where it has no attention. */
int model_layer_kind(const struct model *m, int64_t layer);
/* The most query heads that a layer has. */
int64_t model_most_heads(const struct model *m);
/* "full", "window 1024"; where layers have different heads also which: "full, 32/4 heads of 512". */
enum { KIND_NAME = 64 };
const char *model_kind_name(const struct model *m, const struct attention_kind *k, char name[KIND_NAME]);

#endif
