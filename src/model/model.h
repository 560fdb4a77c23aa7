/* Model families as logical layer graphs: the parameters, the place of each in its unit, and their use in layers.
 *
 * A unit moves as one piece: unit 0 is the embedding, units 1..L the layers, unit L+1 the final norm and (untied) head; behind it
 * are two units for each layer with experts, its router's and its experts'. A unit's
 * parameters form one flat range of elements without padding: trained matrices, then trained vectors, then frozen ones. Frozen
 * quantised matrices are not elements but bytes, in a range of their own. */
#ifndef LTRAIN_MODEL_MODEL_H
#define LTRAIN_MODEL_MODEL_H

#include "base/quantised.h"
#include "base/num.h"
#include "base/status.h"
#include "program/op.h"
#include "settings/lora.h"

#include <stddef.h>
#include <stdint.h>

/* A row per family: FAMILY_<first> is described by family_<second> in src/model. docs/models.md lists the differences. */
#ifdef LTRAIN_TOY_BLOCK /* tests only (tests/toy) */
#define TEST_FAMILIES(X) X(TOY, toy)
#else
#define TEST_FAMILIES(X)
#endif
/* clang-format off */
#define MODEL_FAMILIES(X) \
    X(LLAMA, llama) X(MISTRAL, mistral) X(QWEN2, qwen2) X(QWEN3, qwen3) X(SMOLLM3, smollm3) X(GRANITE, granite) X(PHI3, phi3) \
    X(GEMMA2, gemma2) X(GEMMA3, gemma3) X(OLMO2, olmo2) X(OLMO3, olmo3) X(GLM4, glm4) X(STARCODER2, starcoder2) X(GPT2, gpt2) \
    X(GPT_NEOX, gpt_neox) X(COHERE, cohere) X(COHERE2, cohere2) X(GPT_OSS, gpt_oss) X(MINISTRAL3, ministral3) \
    X(QWEN3_5, qwen3_5) X(QWEN3_5_MOE, qwen3_5_moe) X(QWEN3_NEXT, qwen3_next) X(SEED_OSS, seed_oss) X(ERNIE4_5, ernie4_5) X(ARCEE, arcee) X(MINISTRAL, ministral) X(CWM, cwm) X(HELIUM, helium) \
    X(GLM, glm) X(GEMMA, gemma) X(VAULTGEMMA, vaultgemma) X(EXAONE4, exaone4) X(HUNYUAN, hunyuan) X(NEMOTRON, nemotron) X(OLMO, olmo) \
    X(GEMMA4, gemma4) X(STABLELM, stablelm) X(FALCON, falcon) X(GPT_BIGCODE, gpt_bigcode) X(GPT_NEO, gpt_neo) X(JAIS2, jais2) \
    X(QWEN2_MOE, qwen2_moe) X(QWEN3_MOE, qwen3_moe) X(MIXTRAL, mixtral) X(OLMOE, olmoe) X(GRANITEMOE, granitemoe) \
    X(GRANITEMOESHARED, granitemoeshared) X(GRANITEMOE_SWA, granitemoe_swa) X(FLEX_OLMO, flex_olmo) X(MELLUM, mellum) \
    X(GLM4_MOE, glm4_moe) X(DOTS1, dots1) X(SOLAR_OPEN, solar_open) X(EXAONE_MOE, exaone_moe) \
    X(ERNIE4_5_MOE, ernie4_5_moe) X(HUNYUAN_MOE, hunyuan_moe) X(MINIMAX_M2, minimax_m2) X(HY_V3, hy_v3) X(AFMOE, afmoe) \
    X(HYPERCLOVAX, hyperclovax) X(GRANITE_SWA, granite_swa) X(PHI, phi) X(GPTJ, gptj) X(CODEGEN, codegen) X(OPT, opt) \
    X(GRANITEMOEHYBRID, granitemoehybrid) X(BAMBA, bamba) X(NEMOTRON_H, nemotron_h) X(LFM2, lfm2) X(LFM2_MOE, lfm2_moe) \
    X(OLMO_HYBRID, olmo_hybrid) X(FALCON_H1, falcon_h1) X(MINIMAX, minimax) X(MINIMAX_M1, minimax_m1) \
    X(YOUTU, youtu) X(MINICPM3, minicpm3) X(DEEPSEEK_V2, deepseek_v2) X(DEEPSEEK_V3, deepseek_v3) X(KIMI_K2, kimi_k2) \
    X(GLM4_MOE_LITE, glm4_moe_lite) X(KIMI_LINEAR, kimi_linear) TEST_FAMILIES(X)
/* clang-format on */
#define X(upper, lower) FAMILY_##upper,
enum model_family { MODEL_FAMILIES(X) N_FAMILIES };
#undef X
/* Format of the layers' frozen matrices: the storage type, NF4 with nested or plain scales, int8, or (stacks of experts alone) MXFP4
 * (base/quantised.h). */
enum model_base { BASE_STORED, BASE_NF4, BASE_NF4_PLAIN, BASE_INT8, BASE_MXFP4 };
enum rope_kind { ROPE_DEFAULT, ROPE_LINEAR, ROPE_LLAMA3, ROPE_DYNAMIC, ROPE_YARN, ROPE_LONGROPE, ROPE_PROPORTIONAL };

enum {
    LAYERS_MOST = 1 << 12,
    LONGROPE_MOST = 256,           /* frequencies: head sizes up to 512 */
    MODEL_KINDS = 8,               /* kinds of layers in one model: different blocks, masks or heads */
    MODEL_MASKS = MODEL_KINDS,     /* different windows; no window counts as a window, too */
    MODEL_SHAPES = MODEL_KINDS,    /* different shapes of attention's heads */
    MODEL_ROPES = 2 * MODEL_KINDS, /* different sets of rotary frequencies */
};

/* Attention settings of some layers that override those of all. 0: not overridden; window -1: none. */
struct layer_config {
    int64_t heads, kv_heads, head_dim, window;
};

/* Values of config.json, and the number of learned positions that a run can use. */
struct model_config {
    enum model_family family;
    int64_t vocab, dim, ffn, layers, heads, kv_heads, head_dim, max_positions;
    int64_t first_number; /* number that the first layer has in names; above 0 only in models whose layers stand for another's */
    int stands_in;        /* 1: such a model, in which patterns of names may match nothing */
    int64_t experts, experts_used, expert_ffn; /* experts of a layer, those that a token gets, their width; 0: no layer has any */
    int64_t expert_dim;                        /* width of what experts read and give; 0: that of the stream */
    int64_t shared_ffn;                        /* width of the shared experts together, which every token gets; 0: none */
    int64_t expert_groups, groups_used;        /* groups of experts, and those that a token may choose from; 1: no groups */
    int router_normalises;                     /* 1: the weights of a token's experts are divided by their sum */
    double router_scale, router_floor;         /* factor of these weights; least divisor of them (0: none) */
    double router_aux;                         /* coefficient of the auxiliary loss */
    int router_aux_used;                       /* 1: config.json asks for the auxiliary loss (output_router_logits) */
    /* recurrent layers: heads, groups of heads that share queries and keys, widths of a key and of a value, tokens that the
     * convolution reads; 0: the family has no such layers */
    int64_t scan_heads, scan_groups, scan_key, scan_value, conv_width;
    int conv_bias, scan_bias; /* biases of the convolution, and of the maps around a recurrence */
    /* latent attention: widths of the latents of keys with values, and of queries (0: queries come from the layer's input); elements
     * of a head that are rotated, the last ones; width of a head's values. 0: attention is the usual one */
    int64_t kv_latent, q_latent, head_rotated, head_value;
    double scan_least;    /* least step of a recurrence; 0: none */
    double scan_strength; /* factor of a delta rule's strengths; 0: 1 */
    int scan_norm;        /* Falcon-H1: norm of what a recurrence gives: enum scan_norm */
    /* Falcon-H1's factors; 0: 1: inputs of attention and recurrence, and what they give; keys; gates and outputs of MLPs; parts of
     * what a recurrence's first map gives: gates, values, keys, queries and steps */
    double attention_in, attention_out, ssm_in, ssm_out, key_factor, gate_factor, down_factor;
    double ssm_gates, ssm_values, ssm_keys, ssm_queries, ssm_steps;
    /* MiniMax's factors of norms, and of what is added to them; 0: 1: of attention, lightning attention, experts */
    double attention_alpha, attention_beta, lightning_alpha, lightning_beta, mlp_alpha, mlp_beta;
    int64_t further_layers; /* layers behind the last one in files, which predict further tokens and are not part of the model */
    int64_t positions; /* learned positions in use: the table's first rows, as many as the run's sequences are long; 0: all */
    int64_t window;    /* window of the layers in `windowed`: keys that a query attends, its own included; 0: all before it */
    uint8_t windowed[LAYERS_MOST / 8], unrotated[LAYERS_MOST / 8]; /* a bit per layer: has the window; has no rotary positions */
    struct layer_config own[1 + MODEL_KINDS];                      /* settings of single layers; [0] overrides nothing */
    uint8_t own_of[LAYERS_MOST];                                   /* index in `own` of each layer */
    uint8_t blocks_of
        [LAYERS_MOST]; /* number of each layer's list of blocks, as its family numbers them; 0 in families with one list */
    int tied;          /* 1: head = embedding */
    int parallel;      /* 1: attention and MLP of a layer read the same input (only in families that know both forms) */
    int qk_norm;       /* 1: queries and keys are normalised (only in families that know both forms) */
    int post_norm;     /* 1: the blocks' outputs are normalised (only in families that know both forms) */
    int norms;         /* norms of a layer's parallel blocks (only in families that know both forms): 1, shared, or 2 */
    int k_is_v;        /* 1: layers not in `windowed` take values from the map of keys */
    int attention_bias, mlp_bias; /* biases of the maps around attention, and of the MLP's; the family says which maps */
    float norm_eps;
    enum activation_kind activation;
    enum gate_kind gate;
    double gate_limit, gate_alpha;   /* parameters of a clamped gate */
    double attention_scale;          /* factor of scores; 0: 1 / sqrt(head size) */
    double attention_cap, logit_cap; /* soft caps, cap * tanh(x / cap); 0: none */
    /* factors of embeddings, of the blocks' additions to the stream, of logits; 0: 1 */
    double embedding_scale, residual_scale, logit_scale;
    float init_std;
    double rope_theta;
    enum rope_kind rope;
    /* rope_factor: for all kinds of scaling but default; rope_low_freq, rope_high_freq: for llama3; rope_original_positions: for
     * all but default, linear and proportional */
    double rope_factor, rope_low_freq, rope_high_freq, rope_original_positions;
    double rope_fast, rope_slow; /* yarn's beta_fast and beta_slow */
    double rope_alpha;           /* dynamic: growth of the base at any length; 0: growth by the length */
    int rope_exact;              /* yarn: 1: the ramp's ends are not rounded to whole frequencies ("truncate": false) */
    double rope_attention;       /* factor of rotated queries and keys; 0: yarn and longrope derive it */
    /* yarn: mscale and mscale_all_dim, from which rope_attention is derived; 0: it is derived from rope_factor alone */
    double rope_mscale, rope_mscale_all;
    /* queries are scaled by 1 + slope log(1 + position / rope_original_positions), quotient rounded down; 0: not scaled */
    double rope_slope;
    /* share of a head's elements that is rotated, from the first on (ROPE_PROPORTIONAL: share of its pairs); 0: all */
    double rope_share;
    int rope_interleaved; /* 1: a pair is two neighbours; 0: two elements half the rotated part apart */
    double
        rope_local_theta; /* rotary base of the layers in `windowed`, which then have no scaling; 0: the same base as all layers */
    double rope_short[LONGROPE_MOST], rope_long[LONGROPE_MOST]; /* longrope: divisors of frequencies */
    struct lora lora;                                           /* adapters beside the linear maps; not in config.json */
    enum model_base base; /* format of frozen linear maps; from config.json only if files are quantised */
    int quantised;        /* 1: the files' maps are in that format */
    int mxfp4;            /* 1: the files have stacks of experts in MXFP4, which a run may take as numbers */
    int lists_skipped;    /* 1: config.json lists what bitsandbytes left unquantised, in `skipped` */
    char skipped[8192];   /* patterns, one a line (model/skipped.h) */
    double dropout;       /* largest dropout in config.json, for a message; ltrain trains without */
    int64_t unchunked;    /* length beyond which other engines attend in chunks (Qwen2.5-1M); 0: none */
    int wrapped;          /* 1: config.json is a multimodal model's, and this is its text model */
    char name[64];        /* preset or directory name, for messages */
    char unknown[256];    /* unknown keys of config.json, separated by commas */
};

/* Names of the parts of an expert's matrix that files may hold as tensors of their own: an expert's rows in equal shares. */
enum { EXPERT_PARTS = 2 };

/* Rows or columns of a whole model's parameter. */
struct param_range {
    int64_t first, n;
};

/* Layers [first_layer, first_layer + layers) of a whole model, and the slice-th of `slices` slices of each (model/part.h). */
struct model_part {
    int64_t first_layer, layers;
    int slice, slices;
};

enum { PARAM_RANGES = 3 }; /* queries, keys and values in one matrix */
enum { PARAM_PARTS = 4 };  /* these and gates, interleaved */
/* Files' form of a stack that they do not split: [experts, rows, columns]; a matrix whose rows are those of one expert after
 * another; or, for B of adapters, a matrix [rows, columns * experts] whose column j * experts + e is column j of expert e. */
enum stack_form { STACK_DEEP, STACK_BELOW, STACK_BESIDE };
enum param_init {
    INIT_NORMAL,
    INIT_ONES,
    INIT_ZEROS,
    INIT_UNIFORM, /* uniform in (-init_std, init_std) */
    INIT_DECAY,   /* logarithms of numbers that are uniform in (0.01, 16) */
    INIT_STEP,    /* numbers whose softplus is between 0.001 and 0.1, its logarithm uniform */
};

/* Words of a name of modules, and the words that files have for them. */
struct param_renaming {
    const char *here, *there; /* here NULL ends a list */
};

/* A parameter as Hugging Face names and shapes it. A run fetches, gathers and updates only the elements in use; files have all. */
struct model_param {
    char name[96];
    const char *root;                     /* word of files in place of the name's "model"; NULL: files have the name */
    const struct param_renaming *renamed; /* other words of files; NULL: none */
    int64_t shape[2];                     /* vectors: shape[1] = 0 */
    int64_t elements;                     /* elements in use: the first ones */
    /* Place in the whole model, of which this model is a part (model/part.h): the parameter's index there, its shape there and in
     * files, and the ranges of rows (by_columns: of columns) that are in this model, ascending; n_ranges 0: all. */
    int whole;
    int64_t file_shape[2];
    /* Stacks of experts' matrices (or vectors), one below the other in `shape`; 0: no stack. split: the number of tensors that files
     * have for each expert, with equal shares of its rows, and the ends of their names; 0: files have the stack as one tensor.
     * may_split: such a number in other files, which are read, too. */
    int64_t experts;
    int split, may_split;
    const char *part[EXPERT_PARTS];
    enum stack_form form; /* stacks that are not split */
    int n_ranges, by_columns;
    struct param_range range[PARAM_RANGES];
    int unit;
    int64_t offset; /* first element in the unit's flat range */
    int linear;     /* 1: a linear map of a layer */
    int64_t packed_bytes,
        packed_offset; /* place of a quantised frozen map, which has no elements, in the unit's packed range; else 0 */
    /* Interleaved matrices: the number of maps that lie one below the other here, and the rows of a head of each. Files have the
     * first head's rows of every map, then the second head's, and so on. parts 0: files have the matrix as it is here. */
    int parts;
    int64_t part_rows[PARAM_PARTS];
    int as_vector; /* 1: like a vector without weight decay, and multiplying no token: norm weights of shape [heads, head size] */
    int conv;      /* 1 (also as_vector): weights of a convolution of each channel, which files have as [channels, 1, width] */
    int of_heads;  /* 1: a vector that files have as [1, 1, heads, 1] */
    int constant;  /* 1: never trained in any model */
    int trained;
    int adapter;         /* 1: part of an adapter: not in the files of the model's weights */
    const char *adapted; /* end of the name of the stack of experts whose adapter this is part of; NULL: another map's, or none */
    int from_adapter; /* 1: in an adapter's files, as part of an adapter or saved beside one; in training these parameters are trained */
    enum param_init init;
    float init_std;
};

struct model_unit {
    int layer;                /* layer whose parameters it has; -1: embedding; number of layers: final norm and head */
    int fp32;                 /* 1: its parameters are fp32 in bf16 runs, too */
    int64_t elements;         /* all elements */
    int64_t trained_elements; /* trained ones, which come first */
    int64_t decay_elements;   /* elements of trained matrices, which come first of all and get weight decay */
    int64_t sliced[3]; /* in slices (model/part.h): elements that slices divide, first of each: decayed, other trained, frozen */
    int64_t packed_bytes;      /* size of the range of quantised matrices */
    int first_param, n_params; /* in order of offset */
};

/* A linear map's weight. Llama stores [out, in]; GPT-2's Conv1D stores [in, out] with q, k, v as column ranges of one matrix. */
struct model_linear {
    int weight;              /* param index */
    int bias;                /* param index, or -1 */
    int transposed;          /* 1: stored [out, in] (y = x W^T); 0: stored [in, out] (y = x W) */
    int64_t in, out;         /* sizes of this map */
    int64_t first_out;       /* outputs [first_out, first_out + out) of the stored matrix are this map's */
    int64_t ld;              /* row length of the stored matrix */
    int64_t rank;            /* rank of the stored matrix's adapter (always [out, in]); 0: no adapter */
    int down, up;            /* the adapter's params A [rank, in] and B [outputs of the stored matrix, rank] */
    float adapter_scale;     /* y += adapter_scale B A x */
    float factor;            /* y is multiplied by it, the adapter's share included; 0: 1. Such a map has no bias */
    uint32_t dropout_module; /* number of the adapter in dropout's random numbers; it follows from the adapter's name alone */
};

enum scan_norm { SCAN_NORM_NONE, SCAN_NORM_LAST, SCAN_NORM_FIRST }; /* after gates; before them */

struct model_norm {
    enum norm_kind kind;
    /* param indices; -1: none (an RMS norm of heads may have no weight). Norms of heads: weights shared by all heads, or [heads,
     * head size] */
    int weight, bias;
    float eps; /* added to the mean of squares; 0: the model's */
    int parts; /* parts of a row that are normalised by themselves, each with weights of its own; 0: the row is whole, or has heads */
};

/* A row per kind of block: blocks.h. */
enum block_kind {
#define BLOCK(KIND, ...) BLOCK_##KIND,
#include "model/blocks.h"
    BLOCK_KINDS
};

struct attention_block {
    struct model_linear q, k, v, o;
    /* map to gates: o maps the heads' outputs times sigmoid(gate(block input)); gate.weight = -1: no gate */
    struct model_linear gate;
    struct model_norm q_norm, k_norm; /* per head, or (whole) over all heads; NORM_NONE: none */
    struct model_norm v_norm;         /* per head */
    /* Latent attention (kv_a.weight -1: the usual one): kv_a maps the block's input to the latent of keys and values, then to the
     * rotated part of the keys, which all heads share; k and v map the normalised latent to the rest of the keys and to values. q
     * maps the normalised latent of queries, which q_a makes; q_a.weight -1: q maps the block's input. */
    struct model_linear q_a, kv_a;
    struct model_norm q_a_norm, kv_a_norm;
    /* whole: 1: all heads are normalised together; norm_last: 1: norms come after the rotation, 0: before it */
    int whole, norm_last;
    int shape;        /* index in the model's shapes of heads */
    int mask;         /* index in the model's masks */
    int rope;         /* index in the model's sets of frequencies; -1: not rotated */
    int sinks;        /* param index of a logit per head, in the softmax's denominator only; -1: none */
    float scale, cap; /* factor and soft cap of scores; cap 0: none */
};
struct mlp_block {
    struct model_linear gate, up, down; /* gate.weight = -1: GELU of up */
    struct model_linear scalar; /* map to one number a token, by whose sigmoid the output is multiplied; weight -1: none */
    enum gate_kind kind;
};

/* Weights of a token's experts: softmax over all, then the k largest; the k largest, then softmax over them; sigmoids. A bias is
 * added to choose experts, and their weights have none of it. */
enum router_kind { ROUTER_SOFTMAX, ROUTER_TOP, ROUTER_SIGMOID };

/* Experts: MLPs of which each token gets `used`, weighed by a router. Sizes of the stacks' maps are those of an expert. */
struct experts_block {
    struct model_linear router; /* map to a logit for each expert */
    /* maps from the stream to what experts read, and from the sum of what they give back to the stream; weight -1: none */
    struct model_linear descend, ascend;
    int router_bias;               /* param index of the bias that chooses; -1: none */
    struct model_norm router_norm; /* norm of the block's input that the router reads; NORM_NONE: it reads what experts read */
    float router_factor;           /* factor of logits; 0: none */
    int factors;                   /* param index of factors of the weights, a number for each expert; -1: none */
    enum router_kind kind;
    int normalises;              /* 1: weights are divided by their sum, at least `floor` */
    float scale, floor;          /* factor of weights; least divisor, 0: none */
    float added;                 /* number that is added to the divisor */
    int64_t groups, groups_used; /* only experts in the best groups are chosen from; 1, 1: no groups */
    int ranked;                  /* greatest scores whose sum ranks a group: 1 or 2 */
    int64_t experts, used, ffn;  /* experts, those that a token gets, columns of each */
    /* stack of maps to 2 ffn columns: gate's, then up's; or (alternate) one of each in turn; of GATE_ALONE to ffn columns */
    struct model_linear gate_up;
    struct model_linear down; /* stack of maps from ffn columns */
    int alternate;
    enum gate_kind gate;
};

/* Recurrences over a document's tokens: gated delta rule with a decay a head, the same with a decay a channel, state spaces
 * (Mamba-2), lightning attention, whose decays are constants of heads, and a short convolution between gates without a state. */
enum recurrent_kind { RECURRENT_DELTA, RECURRENT_CHANNELS, RECURRENT_SSD, RECURRENT_LIGHTNING, RECURRENT_CONV };
/* Tells whether the state's answer to a key is taken off the value that is written there. */
static inline int recurrent_has_delta(enum recurrent_kind kind)
{
    return kind == RECURRENT_DELTA || kind == RECURRENT_CHANNELS;
}

/* A recurrence: a state [key_dim, value_dim] for each head. Head h reads queries and keys of group h * groups / heads. */
struct recurrent_block {
    enum recurrent_kind kind;
    int64_t heads, groups, key_dim, value_dim;
    int64_t channels, width; /* outputs of qkv, which the convolution reads; tokens that it reads, the token's own included */
    struct model_linear qkv; /* map to queries, keys and values; to the first columns of these if there are further maps */
    /* maps to the columns behind them; weight -1: there are none. A product of its own makes each map's columns */
    struct model_linear second, third;
    struct model_linear z; /* map to the gates of the heads' outputs */
    struct model_linear
        a; /* map to decays, before softplus: one of each head, of RECURRENT_CHANNELS one of each channel of a key; weight -1: none */
    struct model_linear z_low, a_low; /* narrow maps whose outputs z and a read in place of the block's input; weight -1: none */
    struct model_linear b;            /* map to the strengths of writing, before the sigmoid; weight -1: the step itself */
    struct model_linear out;
    int conv, conv_bias; /* param indices; -1: none */
    int convs;           /* parameters, one behind another from `conv` on, that the convolution's weights are cut into */
    int a_log, dt_bias;  /* param indices; -1: none */
    int skip;            /* param index of the factor, for each head, of the values that are added to its output; -1: none */
    float rate;          /* RECURRENT_LIGHTNING: head h's state decays by e^(-rate 2^(-8 (h + 1) / heads)) a token */
    float least;         /* least step */
    float strength;      /* factor of the sigmoid of b */
    struct model_norm heads_norm; /* norm of each head, or of groups of heads; NORM_NONE: none */
    int gates_first;              /* 1: heads are multiplied by their gates before the norm, 0: after it */
    enum gate_kind gate;          /* function of z */
};

/* A short convolution between two gates, without a state: out(after * conv(before * x)). */
struct conv_block {
    struct model_linear before, after, x, out;
    int64_t width;  /* tokens that the convolution reads, the token's own included */
    int conv, bias; /* param indices; bias -1: none */
};

#ifdef LTRAIN_TOY_BLOCK
struct toy_block { /* tests only (tests/toy) */
    struct model_linear in, gate, out;
};
#endif

/* A block's addition to the residual stream: x + scale after(f(norm(x))); f depends on the kind, scale on the whole model. A
 * block that is parallel to the block before it, whose input is x', gives x + scale after(f(norm(x'))). */
struct model_block {
    enum block_kind kind;
    int parallel;            /* 1: f reads the input of the block before this one, not that block's sum */
    int joined;              /* 1 (parallel blocks): f is added to that block's f */
    int on_norm;             /* 1: f is added to the norm that it reads, in place of the stream; such a block has no `after` */
    struct model_norm norm;  /* NORM_NONE: f reads its input unchanged. Joined blocks share it, unless they have inner norms */
    struct model_norm inner; /* norm of f of joined blocks before they are added; NORM_NONE: none */
    struct model_norm after; /* norm of f's output before it is added; NORM_NONE: none */
    union {
#define BLOCK(KIND, name, ...) struct name##_block name;
#include "model/blocks.h"
    };
};

enum { LAYER_BLOCKS = 3 }; /* most blocks in a layer of any family, at most one of each kind */

struct model_layer {
    int scalar; /* param index of the layer's last factor, which is never trained; -1: none */
    int kind;   /* index in the model's kinds of layers */
    int n_blocks;
    struct model_block blocks[LAYER_BLOCKS]; /* blocks in the order in which they add to the stream */
};

/* Heads of attention: each KV head serves equally many query heads. value_dim: width of a value. rotated: elements of a query or key
 * to which rotary positions belong, the last ones; kv_latent, q_latent: as in struct model_config. */
struct attention_shape {
    int64_t heads, kv_heads, head_dim, value_dim, rotated, kv_latent, q_latent;
};
/* Returns the numbers of a row that latent attention keeps; 0 for the usual attention. */
static inline int64_t attention_latents(const struct attention_shape *s)
{
    return s->kv_latent > 0 ? s->kv_latent + s->rotated + s->q_latent : 0;
}

/* A kind of layer: layers whose blocks are of equal kinds, masks and signatures (blocks.h). */
struct model_kind {
    int first, layers; /* the kind's first layer; number of its layers */
};

/* Rotary frequencies of heads, or parts of heads, of one size. local: 1: for the layers in `windowed`, if these have a base of their own; 0: for all
 * other layers. */
struct rope_set {
    int local;
    int64_t head_dim, first, n; /* range in the table of all frequencies */
};

struct model {
    struct model_config config;
    const struct model *whole; /* model of which this one is a part; borrowed; a model that is no part has itself here */
    struct model *kept;        /* the whole model, if this part owns that model; else NULL */
    struct model_part part;    /* place of this part in the whole model */
    int experts_shared;        /* number of ranks whose share of the experts the units have (model/share.h); 0: all experts */
    int n_units, n_params;
    struct model_unit *units;
    struct model_param *params;
    struct model_layer *layers;
    int embed, pos_embed; /* param indices; pos_embed -1: rotary positions */
    /* param indices of rows that are trained by themselves (config.lora.tokens), in place of those of the embedding and of the head,
     * which are one where these are tied; -1: none */
    int embed_rows, head_rows;
    int rounds_embedding_scale; /* 1: rounded to the storage type before use, as in Gemma */
    struct model_norm final_norm;
    struct model_linear embedding; /* the table as a map of tokens, for its adapter: `down` [rank, vocab], `up` [dim, rank] */
    struct model_linear head;      /* tied: the embedding's matrix */
    int n_masks, n_shapes, n_kinds;
    int64_t mask_window[MODEL_MASKS];            /* windows of the masks, widest first; 0: none */
    struct attention_shape shapes[MODEL_SHAPES]; /* shapes in the order of the first layers that have them */
    struct model_kind kinds[MODEL_KINDS];        /* kinds by kind of block, then by mask, then by signature, block by block */
    int n_ropes;                                 /* 0 if positions are learned */
    struct rope_set ropes[MODEL_ROPES];
    int64_t n_frequencies;  /* number of frequencies in all sets; at least 1 */
    int64_t total_params;   /* parameters as in files */
    int64_t adapter_params; /* parameters in adapters */
    int64_t trained_params;
    int64_t packed_params;         /* quantised parameters */
    int64_t most_rank;             /* largest rank of an adapter; 0: no adapters */
    const char *refused_target;    /* module that adapters' targets name although PEFT gives it none; NULL: there is none */
    int adapts_routers;            /* 1: some router has an adapter */
    int64_t most_stack_rank;       /* largest rank of an adapter of a stack of experts; 0: there are none */
    int64_t trained_matrix_params; /* trained parameters among matrix_params */
    int64_t active_params;         /* parameters that a token gets: of stacks of experts, those of the experts that it uses */
    int64_t
        matrix_params; /* P of the FLOP formula: matrices multiplied per token (of experts, those used), head included even if tied, embedding not */
};

/* Tells whether rows of single tokens are parameters of their own. */
static inline int model_has_rows(const struct model *m)
{
    return m->embed_rows >= 0 || m->head_rows >= 0;
}
/* Units: only these functions and graph.c's number_units know their numbers; `layer` says whose each one is. */
enum { MODEL_EMBEDDING_UNIT = 0 };
/* Returns the unit that a layer begins with. */
static inline int model_unit_of_layer(int64_t layer)
{
    return 1 + (int)layer;
}
/* Returns the unit of the final norm and head. */
static inline int model_head_unit(const struct model *m)
{
    return 1 + (int)m->config.layers;
}
/* Lists the units of a layer's experts: the router's, in fp32, and that of the stacks. Returns their number, 0 without experts. */
enum { EXPERT_UNITS = 2 };
int model_expert_units(const struct model *m, int64_t layer, int units[EXPERT_UNITS]);
/* Tells whether a unit is that of a layer's experts, without their router. */
static inline int model_unit_has_experts(const struct model *m, int unit)
{
    return unit > model_head_unit(m) && !m->units[unit].fp32;
}
/* Returns the number of layers with experts. */
int model_expert_layers(const struct model *m);
/* Returns the coefficient of the auxiliary loss that is trained; 0: there is none. */
static inline double model_aux(const struct model_config *c)
{
    return c->router_aux_used ? c->router_aux : 0;
}
/* Returns the width of what experts read and give. */
static inline int64_t model_expert_dim(const struct model_config *c)
{
    return c->expert_dim > 0 ? c->expert_dim : c->dim;
}
/* Returns the columns that the first map of each expert gives, whose second map reads expert_ffn. */
static inline int64_t model_expert_columns(const struct model_config *c)
{
    return c->gate == GATE_ALONE ? c->expert_ffn : 2 * c->expert_ffn;
}
/* Tells whether a unit belongs to a layer: to neither the embedding nor the head. */
static inline int model_unit_in_layer(const struct model *m, int unit)
{
    return m->units[unit].layer >= 0 && m->units[unit].layer < m->config.layers;
}

/* Returns a preset: tiny, 25m, 125m, 1b, 8b (Llama), gpt2-tiny, gpt2-125m, gpt-25b or moe-20m. ERR_INVALID lists them (with "did you
 * mean").
 *
 * tiny: vocab 256, dim 64, 2 layers, 2 heads of 32, 2 kv heads, ffn 256, tied. 25m: vocab 8192, 8 x 512, 8/2 heads of 64, ffn
 * 1408, tied. gpt2-tiny: vocab 256, dim 64, 2 layers, 2 heads, 4096 positions. */
enum status model_preset(const char *name, struct model_config *out);
int model_is_preset(const char *name);

/* Reads DIR/config.json strictly: an unsupported setting is an error that names its key and value. Keys without effect on
 * training (torch_dtype, transformers_version, use_cache, token ids, ...) are ignored. Rotary positions are read as
 * rope_theta/rope_scaling and as rope_parameters. */
enum status model_config_read(const char *dir, struct model_config *out);
/* Writes DIR/config.json that transformers loads. dtype: F32 or BF16. */
enum status model_config_write(const char *dir, const struct model_config *config, enum dtype dtype);
/* Writes DIR/config.json for a configuration read from directory `like`: a copy of that file, with token ids and every other key.
 * The dtype is new; rope_theta and rope_scaling are added beside rope_parameters for older readers. */
enum status model_config_write_like(const char *dir, const char *like, const struct model_config *config, enum dtype dtype);
/* Writes DIR/config.json for a model that becomes quantised: a copy of that in `like`, dtype included, with quantization_config
 * as transformers writes it. */
enum status model_config_write_quantised(const char *dir, const char *like, enum model_base base);
/* Writes DIR/config.json as a copy of that in `like`, dtype included, with the rotary positions of `config`. */
enum status model_config_write_stretched(const char *dir, const char *like, const struct model_config *config);
/* Replaces config.json's rotary positions. rope: KIND:FACTOR (yarn, linear, dynamic, llama3), or none; NULL: unchanged. base 0:
 * unchanged. max_positions grows accordingly. Errors name --rope and --rope-base. */
enum status model_config_set_rope(struct model_config *config, const char *rope, double base);
/* Returns the positions that the model was trained for before any scaling; --rope's factors refer to them. */
double model_trained_positions(const struct model_config *config);
/* Writes "base 500000, llama3 with factor 8 from 8,192 positions", for sequences of `tokens`. */
void model_describe_rope(const struct model *m, int64_t tokens, char *text, size_t bytes);
/* Tells whether checkpoints of one configuration cannot be used for the other, and writes the first difference: "hidden size is
 * 24 there and 32 in this run". */
int model_config_differs(const struct model_config *there, const struct model_config *here, char *text, size_t bytes);

/* Glob that freezes everything, for a model that is only evaluated. */
#define MODEL_FREEZE_ALL "*"

/* Builds the graph. freeze: globs (fnmatch) over parameter names; n_freeze may be 0. ERR_INVALID: a glob matches nothing, or the
 * globs freeze everything (allowed by MODEL_FREEZE_ALL only). */
enum status model_create(const struct model_config *config, const char *const *freeze, int n_freeze, struct model **out);
void model_destroy(struct model *m);
/* Checks --lora. ERR_INVALID: the targets match no module, or a module to be saved does not exist or cannot be saved. */
enum status model_check_adapters(const struct model *m);
/* Looks for a target, excluded module, layer or pattern without effect, as adapters of PEFT may have. Writes it to `text` and
 * returns ERR_INVALID with the reason; "" if all have an effect. */
enum status model_check_patterns(const struct model *m, char *text, size_t bytes);
/* Writes which maps have adapters and what is trained beside them, in a line or two, each ended; "" without adapters. */
void model_describe_adapters(const struct model *m, char *text, size_t bytes);
/* Builds the same model for sequences of `tokens`: in a table of learned positions, only the rows that such sequences reach are
 * in use. */
enum status model_create_for(const struct model *m, int64_t tokens, const char *const *freeze, int n_freeze, struct model **out);
/* Place in files of rows of an interleaved matrix that are whole heads of one map: the first row, rows of a head, and rows from head
 * to head. */
struct param_heads {
    int64_t first, rows, apart;
};
/* Finds that place of rows [first, first + n). Returns 0 if these are not whole heads of one map. */
int model_param_heads(const struct model_param *p, int64_t first, int64_t n, struct param_heads *out);
/* Returns how many of the elements [first, first + n) of a file's tensor are neighbours in the interleaved parameter, and their start
 * there: the other way round of model_param_piece. */
int64_t model_param_from_file(const struct model_param *p, int64_t first, int64_t n, int64_t *here);
/* Tells whether a parameter is a stack of experts' matrices. */
static inline int model_param_is_stack(const struct model_param *p)
{
    return p->experts > 0 && p->shape[1] > 0;
}
/* Returns the number of matrices that are quantised by themselves: of a stack, those that files have. */
static inline int64_t model_param_matrices(const struct model_param *p)
{
    return model_param_is_stack(p) ? p->experts * (p->split > 0 ? p->split : 1) : 1;
}
/* Returns the format and size of a quantised matrix. In MXFP4 files have the matrices of experts the other way round. */
static inline struct quantised model_quantised(const struct model_config *config, const struct model_param *p)
{
    const int64_t rows = p->shape[0] / model_param_matrices(p);
    if (config->base == BASE_MXFP4)
        return (struct quantised){QUANTISED_MXFP4, p->shape[1], rows};
    return (struct quantised){config->base == BASE_INT8  ? QUANTISED_INT8
                              : config->base == BASE_NF4 ? QUANTISED_NF4
                                                         : QUANTISED_NF4_PLAIN,
                              rows, p->shape[1]};
}
/* Returns "NF4", "int8" or "MXFP4" for people, or the word in small letters for keys and files; "" if the base is stored. */
const char *model_base_name(enum model_base base);
const char *model_base_word(enum model_base base);
/* A parameter's tensor in files. */
enum { PARAM_DIMS = 4, PARAM_NAME = 128 };
struct param_tensor {
    char name[PARAM_NAME];
    int n_dims;
    int64_t shape[PARAM_DIMS];
};
/* Returns the number of tensors that files have of the parameter, and describes one of them. */
int64_t model_param_tensors(const struct model_param *p);
void model_param_tensor(const struct model_param *p, int64_t i, struct param_tensor *out);
/* Returns the parameter as files have it that hold stacks of experts whole. */
struct model_param model_param_joined(const struct model_param *p);
/* Returns the parameter as files have it that hold a tensor for each expert, if there are such files. */
struct model_param model_param_parted(const struct model_param *p);
/* Returns the parameter as checkpoints have it: as in memory, where PEFT's files have the matrices of a stack side by side. */
struct model_param model_param_kept(const struct model_param *p);
/* Returns the parameter's elements: those in use, then those that no sequence of the run reaches. */
int64_t model_param_stored(const struct model_param *p);
/* Returns how many of the elements [first, first + n) are neighbours in the whole model's parameter, and their start there. */
int64_t model_param_span(const struct model_param *p, int64_t first, int64_t n, int64_t *there);
/* Writes and returns the number of parameters: "8.03B parameters", "30.5B parameters, 3.35B active". */
enum { SIZE_TEXT = 64 };
const char *model_size_text(const struct model *m, char text[SIZE_TEXT]);
/* Returns the elements that a token gets of the model's parameter: of a stack those of the experts used, else all. */
int64_t model_param_active(const struct model *m, const struct model_param *p);
/* Tells whether a parameter is a matrix that multiplies tokens: one of a layer, the head's (the embedding's where tied), or an
 * adapter's, except A of the embedding's adapter, whose rows are looked up. */
int model_multiplies_tokens(const struct model *m, int param);
/* Returns how many of the elements [first, first + n) lie one after another in a tensor of the files: its number, and their start
 * there. */
int64_t model_param_piece(const struct model_param *p, int64_t first, int64_t n, int64_t *tensor, int64_t *there);
/* Returns the layer's block of a kind, or NULL. */
const struct model_block *model_find_block(const struct model_layer *layer, enum block_kind kind);
/* Tells whether some layer has a block of the kind. */
int model_has_block(const struct model *m, enum block_kind kind);
/* Tells whether some layer has a block that reads links of rows. */
static inline int model_has_links(const struct model *m)
{
    return model_has_block(m, BLOCK_RECURRENT) || model_has_block(m, BLOCK_CONV);
}
/* A kind of block in slices of layers (--mesh tp): in none, cut, or whole for a slice's rows of the stream (blocks.h). */
enum block_slicing { BLOCK_UNCUT, BLOCK_CUT, BLOCK_BY_ROWS };
enum block_slicing block_slicing(enum block_kind kind);
/* Returns a kind of block's name for messages: "attention". */
const char *block_name(enum block_kind kind);
/* Returns the block's i-th linear map; NULL: there is no i-th map. A map whose weight is -1 is absent. */
const struct model_linear *block_map(const struct model_block *b, int i);
/* Returns the index of the mask under which the block attends; -1: it attends nothing. */
int block_mask(const struct model_block *b);
/* Returns the bytes a token that training always keeps beside the layer's input, with `size` bytes in the storage type, and the
 * elements a token that are saved or computed again. */
int64_t block_kept_bytes(const struct model *m, const struct model_block *b, int64_t size);
int64_t block_saved(const struct model *m, const struct model_block *b);
/* Returns the elements that sampling caches of each earlier token, and the fp32 numbers that it keeps of a whole text. */
int64_t block_cached_per_token(const struct model *m, const struct model_block *b);
int64_t block_cached_per_text(const struct model *m, const struct model_block *b);
/* Tells whether ranks may share a sequence in blocks of that kind. */
int block_is_shared(enum block_kind kind);
/* Tells whether positions are learned: max_positions then limits a sequence. Rotary positions have no limit. */
int model_learns_positions(const struct model_config *config);
/* Tells whether any layer has rotary positions. */
int model_rotates(const struct model_config *config);
/* Returns the row of a document's first token in the table of learned positions. */
int model_first_position(const struct model_config *config);
/* Tells whether positions are rotary and config.json says only how many elements are rotated. */
int model_fixes_rope(const struct model_config *config);
/* Writes the name of an untied head's tensor in files. */
void model_head_name(const struct model_config *config, char name[32]);
/* Names under which multimodal models hold the text model's tensors: the newer spelling ("model.language_model.layers...",
 * transformers since 4.52) or the older one of most published files ("language_model.model.layers..."). */
enum wrapping { WRAPPING_NEW, WRAPPING_OLD, WRAPPINGS };
enum { WRAPPED_NAME = 128 };
void model_wrapped_name(const char *name, enum wrapping wrapping, char out[WRAPPED_NAME]);
/* Writes the i-th other name that files may have for a parameter's tensor: without its first word (checkpoints of the bare model),
 * with Nemotron-H's "backbone", as transformers 5.24 saves Kimi Linear's dense MLPs ("block_sparse_moe") and a norm of OLMo Hybrid
 * ("feedforward_layer_norm"), or wrapped. Returns 0 if the name has no such form, -1 behind the last one. A loader tries the full name
 * first. */
int model_other_name(const char *name, int i, char out[WRAPPED_NAME]);
/* Tells whether the tensor belongs to the text model, by either spelling of its name. */
int model_is_wrapped_name(const char *name);
/* Tells whether a file of weights may hold the tensor though it is no parameter: masks and tables that follow from the
 * configuration. */
int model_is_buffer(const struct model_config *config, const char *name);

/* Draws initial values of elements [first, first + n) of a parameter; they depend on seed, name and element only. */
void model_init_param(const struct model *m, int param, uint64_t seed, int64_t first, int64_t n, float *out);
/* Returns how many elements of a head of that size are rotated, an even number. */
int64_t model_rotated(const struct model_config *config, int64_t head_dim);
/* Computes inv_freq[n_frequencies] with the configured scaling for sequences of `tokens`, in fp64 and rounded to fp32 (ops/rope.h
 * says why). */
void model_inv_freq(const struct model *m, int64_t tokens, float *out);
/* Returns the base of rotary positions; dynamic NTK raises it with the length of the sequence. */
double model_rope_base(const struct model_config *config, int64_t tokens);
/* Returns yarn's factor for contexts that are `factor` times as long: 1 + 0.1 mscale log(factor). */
double model_yarn_scale(double factor, double mscale);
/* Returns the factor of queries and keys rotated with the rope-th set of frequencies. */
double model_rope_attention(const struct model *m, int rope);
/* Returns the causal model FLOPs of one forward + backward over S tokens, without recomputation: 6 P S (4 P S for frozen
 * matrices) plus the FLOPs of blocks.h, which for attention are 12 x pairs x heads x head size. pairs[i]: attended query-key
 * pairs of all S queries under mask i.
 *
 * With pairs = S^2/2 and equal layers, this is 6*P + 6*L*h*S per token, h = heads x head size. */
double model_flops(const struct model *m, int64_t tokens, const double pairs[MODEL_MASKS]);
/* Counts the pairs of one document of that many tokens, under each mask. */
void model_causal_pairs(const struct model *m, int64_t tokens, double pairs[MODEL_MASKS]);
static inline int model_bit(const uint8_t *bits, int64_t layer)
{
    return bits[layer / 8] >> layer % 8 & 1;
}
/* Returns the layer's attention; NULL if it has none. */
static inline const struct attention_block *model_attention(const struct model *m, int64_t layer)
{
    const struct model_block *b = model_find_block(&m->layers[layer], BLOCK_ATTENTION);
    return b ? &b->attention : NULL;
}
/* Tells whether the layer has little compute: none of its blocks attends under the model's widest mask. */
int model_is_light(const struct model *m, int64_t layer);
/* Returns the number of light layers. */
int model_light_layers(const struct model *m);
/* Returns why layers are light: "with a window", or "without full attention" if some of them attend nothing. */
const char *model_light_name(const struct model *m);
/* Tells whether some layers are light and others are not. */
int model_has_light(const struct model *m);
/* Tells whether two layers are of one kind if windows are ignored. */
int model_same_but_windows(const struct model *m, int64_t layer, int64_t other);
/* Returns the first kind of block that lets no ranks share a sequence; BLOCK_KINDS: the model has none. */
enum block_kind model_whole_block(const struct model *m);
/* Returns the least tokens that ranks with a part of a sequence must have in a row, for convolutions to read; 0: no layer passes
 * states from token to token. */
int64_t model_least_piece(const struct model *m);
/* Copies the configuration's settings for a single layer; config_copy_blocks copies the layer's list of blocks only. */
void config_copy_layer(struct model_config *c, int64_t layer, const struct model_config *from, int64_t like);
void config_copy_blocks(struct model_config *c, int64_t layer, const struct model_config *from, int64_t like);
/* Returns the largest number of query heads in a layer. */
int64_t model_most_heads(const struct model *m);
/* Writes and returns a kind's name: "full", "window 1024", "no attention"; with heads ("full, 32/4 heads of 512") or blocks
 * ("full (attention, MLP)") if these differ among layers. */
enum { KIND_NAME = 128 };
const char *model_kind_name(const struct model *m, const struct model_kind *k, char name[KIND_NAME]);
/* Writes and returns the names of the kind's blocks: "attention, MLP"; "" if all layers of the model have the same blocks. */
const char *model_kind_blocks(const struct model *m, const struct model_kind *k, char text[KIND_NAME]);

#endif
