/* Tests reading config.json: writing and reading back, defaults, both spellings of rope; a message names key and value of
 * everything that is not supported. */
#include "model/model.h"

#include "base/sys.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static char dir[64], path[96];

static int create_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/ltrain-test-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof path, "%s/config.json", dir);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(dir);
}

static void put(const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* A small Llama with more members before its end: LLAMA(", \"key\": value"). */
#define LLAMA(more)                                                                                                     \
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"vocab_size\": 300, \"hidden_size\": 64, " \
    "\"intermediate_size\": 96, "                                                                                       \
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4" more "}"
/* A model of another Llama-like class in the same shape. */
#define LIKE(type, more)                                                                                   \
    "{\"model_type\": \"" type "\", \"vocab_size\": 300, \"hidden_size\": 64, \"intermediate_size\": 96, " \
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2" more "}"
#define NEOX(more)                                                                                         \
    "{\"model_type\": \"gpt_neox\", \"vocab_size\": 100, \"hidden_size\": 64, \"intermediate_size\": 96, " \
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4" more "}"
#define GPT2(more) "{\"model_type\": \"gpt2\", \"vocab_size\": 300, \"n_embd\": 64, \"n_layer\": 2, \"n_head\": 4" more "}"

static struct model_config read_text(const char *text)
{
    struct model_config c;
    put(text);
    if (model_config_read(dir, &c) != OK)
        fail_msg("%s", status_message());
    return c;
}

static struct model_config read_text_again(void)
{
    struct model_config c;
    if (model_config_read(dir, &c) != OK)
        fail_msg("%s", status_message());
    return c;
}

static void refuse(const char *text, const char *part)
{
    struct model_config c;
    put(text);
    assert_int_equal(model_config_read(dir, &c), ERR_INVALID);
    if (!strstr(status_message(), part) || !strstr(status_message(), path))
        fail_msg("'%s' does not say '%s'", status_message(), part);
}

static void assert_same(struct model_config a, struct model_config b)
{
    memset(a.name, 0, sizeof a.name);
    memset(b.name, 0, sizeof b.name);
    assert_true(a.family == b.family && a.vocab == b.vocab && a.dim == b.dim && a.ffn == b.ffn && a.layers == b.layers &&
                a.heads == b.heads);
    assert_true(a.kv_heads == b.kv_heads && a.head_dim == b.head_dim && a.max_positions == b.max_positions && a.tied == b.tied);
    assert_true(a.norm_eps == b.norm_eps && a.activation == b.activation && a.init_std == b.init_std &&
                a.rope_theta == b.rope_theta && a.rope == b.rope);
    assert_true(a.rope_factor == b.rope_factor && a.rope_low_freq == b.rope_low_freq && a.rope_high_freq == b.rope_high_freq);
    assert_true(a.rope_original_positions == b.rope_original_positions);
    assert_true(a.window == b.window);
    char text[128];
    if (model_config_differs(&a, &b, text, sizeof text))
        fail_msg("%s", text);
}

static void test_round_trip(void **state)
{
    (void)state;
    static const char *const names[] = {"tiny", "25m", "125m", "1b", "8b", "gpt2-tiny", "gpt2-125m", "gpt-25b", "moe-20m"};
    struct model_config c, back;
    for (int i = 0; i < 9; i++) {
        assert_int_equal(model_preset(names[i], &c), OK);
        assert_int_equal(model_config_write(dir, &c, i % 2 ? BF16 : F32), OK);
        assert_int_equal(model_config_read(dir, &back), OK);
        assert_same(c, back);
        assert_string_equal(back.name, strrchr(dir, '/') + 1);
    }
    model_preset("tiny", &c);
    c.rope = ROPE_LINEAR;
    c.rope_factor = 1.0 / 3.0; /* can be written exactly only with 17 digits */
    c.rope_theta = 1234567.8901234567;
    c.norm_eps = 1.0f / 3.0f;
    c.tied = 0;
    assert_int_equal(model_config_write(dir, &c, F32), OK);
    assert_int_equal(model_config_read(dir, &back), OK);
    assert_same(c, back);
    model_preset("gpt2-tiny", &c);
    c.activation = GELU_ERF;
    c.ffn = 100;
    assert_int_equal(model_config_write(dir, &c, F32), OK);
    assert_int_equal(model_config_read(dir, &back), OK);
    assert_same(c, back);
    FILE *f = fopen(path, "r");
    char text[2048] = "";
    assert_true(fread(text, 1, sizeof text - 1, f) > 0);
    fclose(f);
    assert_non_null(strstr(text, "\"layer_norm_epsilon\": 1e-5"));
    assert_non_null(strstr(text, "\"torch_dtype\": \"float32\""));
    assert_int_equal(text[strlen(text) - 1], '\n');
}

static void test_defaults(void **state)
{
    (void)state;
    struct model_config c = read_text(LLAMA(""));
    assert_true(c.kv_heads == 4 && c.head_dim == 16 && c.max_positions == 2048 && c.tied == 0 && c.norm_eps == 1e-6f &&
                c.init_std == 0.02f);
    assert_true(c.rope == ROPE_DEFAULT && c.rope_theta == 10000.0);
    c = read_text(LLAMA(", \"num_key_value_heads\": 2, \"head_dim\": 32, \"rope_theta\": 500000, \"tie_word_embeddings\": true"));
    assert_true(c.kv_heads == 2 && c.head_dim == 32 && c.tied == 1 && c.rope_theta == 500000.0);
    c = read_text(
        LLAMA(", \"head_dim\": null, \"num_key_value_heads\": null, \"rope_scaling\": null, \"sliding_window\": null, "
              "\"pretraining_tp\": 1, "
              "\"attention_bias\": false, \"mlp_bias\": false, \"hidden_act\": \"silu\", \"torch_dtype\": \"bfloat16\", "
              "\"use_cache\": true, "
              "\"bos_token_id\": 1, \"eos_token_id\": [1, 2], \"transformers_version\": \"4.43.0\", \"attention_dropout\": 0.0"));
    assert_true(c.head_dim == 16);
    c = read_text(GPT2(""));
    assert_true(c.kv_heads == 4 && c.head_dim == 16 && c.ffn == 256 && c.max_positions == 1024 && c.tied == 1 &&
                c.norm_eps == 1e-5f && c.activation == GELU_TANH);
    c = read_text(GPT2(", \"activation_function\": \"gelu\", \"tie_word_embeddings\": false, \"n_inner\": 100"));
    assert_true(c.activation == GELU_ERF && c.tied == 0 && c.ffn == 100);
    /* the published gpt2 */
    c = read_text(
        "{\"activation_function\": \"gelu_new\", \"architectures\": [\"GPT2LMHeadModel\"], \"attn_pdrop\": 0.1, "
        "\"bos_token_id\": 50256, "
        "\"embd_pdrop\": 0.1, \"eos_token_id\": 50256, \"initializer_range\": 0.02, \"layer_norm_epsilon\": 1e-05, "
        "\"model_type\": \"gpt2\", "
        "\"n_ctx\": 1024, \"n_embd\": 768, \"n_head\": 12, \"n_layer\": 12, \"n_positions\": 1024, \"resid_pdrop\": 0.1, "
        "\"summary_activation\": null, \"summary_first_dropout\": 0.1, \"summary_proj_to_labels\": true, \"summary_type\": "
        "\"cls_index\", "
        "\"summary_use_proj\": true, \"task_specific_params\": {\"text-generation\": {\"do_sample\": true, \"max_length\": 50}}, "
        "\"vocab_size\": 50257}");
    struct model_config preset;
    model_preset("gpt2-125m", &preset);
    assert_same(c, preset);
}

static void test_rope_spellings(void **state)
{
    (void)state;
#define SCALE "\"factor\": 8.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 8192"
    static const char *const same[] = {
        LLAMA(", \"rope_theta\": 5e5, \"rope_scaling\": {\"rope_type\": \"llama3\", " SCALE "}"),
        LLAMA(", \"rope_theta\": 5e5, \"rope_scaling\": {\"type\": \"llama3\", " SCALE "}"),
        LLAMA(", \"rope_theta\": 5e5, \"rope_scaling\": {\"type\": \"llama3\", \"rope_type\": \"llama3\", " SCALE "}"),
        LLAMA(", \"rope_parameters\": {\"rope_type\": \"llama3\", \"rope_theta\": 500000, " SCALE "}"),
        LLAMA(", \"rope_theta\": 5e5, \"rope_parameters\": {\"rope_type\": \"llama3\", \"rope_theta\": 500000, " SCALE "}"),
        LLAMA(", \"rope_theta\": 5e5, \"rope_scaling\": {\"rope_type\": \"llama3\", " SCALE
              "}, \"rope_parameters\": {\"rope_type\": \"llama3\", " SCALE "}"),
    };
    struct model_config first = read_text(same[0]);
    assert_true(first.rope == ROPE_LLAMA3 && first.rope_theta == 5e5 && first.rope_factor == 8.0 &&
                first.rope_original_positions == 8192.0);
    for (int i = 1; i < 6; i++)
        assert_same(first, read_text(same[i]));
    assert_same(read_text(LLAMA("")),
                read_text(LLAMA(", \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 10000.0}")));
    assert_true(read_text(LLAMA(", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}")).rope_factor == 2.0);
    refuse(LLAMA(", \"rope_scaling\": {\"type\": \"mrope\", \"factor\": 2}"),
           "rope_scaling.type is \"mrope\"; supported: default, linear, llama3, dynamic, yarn, longrope");
    refuse(LLAMA(", \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2}"), "original_max_position_embeddings is missing");
    assert_true(
        read_text(LLAMA(", \"original_max_position_embeddings\": 64, \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 2, "
                        "\"original_max_position_embeddings\": 128}")) /* transformers reads the key next to the section */
            .rope_original_positions == 64);
    refuse(LLAMA(", \"max_position_embeddings\": 64, \"rope_scaling\": {\"rope_type\": \"longrope\", \"factor\": 2}"),
           "short_factor is missing");
    refuse(LLAMA(", \"max_position_embeddings\": 64, \"rope_scaling\": {\"rope_type\": \"longrope\", \"factor\": 2, "
                 "\"short_factor\": [1, 2]}"),
           "must be a list with a number for each pair");
    refuse(LLAMA(", \"rope_parameters\": {\"rope_theta\": 1.0}"), "rope_parameters.rope_type is missing");
    refuse(LLAMA(", \"rope_scaling\": {\"type\": \"linear\", \"rope_type\": \"llama3\", " SCALE "}"),
           "rope_scaling.type is \"linear\"");
    refuse(LLAMA(", \"rope_scaling\": {\"type\": \"linear\"}"), "rope_scaling.factor is missing");
    refuse(LLAMA(", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2, \"beta_fast\": 32}"), "rope_scaling.beta_fast is 32");
    refuse(
        "{\"model_type\": \"llama\", \"vocab_size\": 300, \"hidden_size\": 64, \"intermediate_size\": 96, \"num_attention_heads\": 4, "
        "\"num_hidden_layers\": 2147483648}",
        "number of layers is 2147483648, must be at most 4096");
    refuse(LLAMA(", \"rms_norm_eps\": 1e300"), "rms_norm_eps is 1");
    refuse(LLAMA(", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 0}"),
           "rope_scaling.factor is 0; must be a positive number");
    refuse(LLAMA(", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}, \"rope_parameters\": {\"rope_type\": \"default\"}"),
           "rope_parameters says something else");
    refuse(LLAMA(", \"rope_theta\": 1, \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 2}"), "rope_theta is 1");
    refuse(LLAMA(", \"rope_scaling\": 2"), "rope_scaling must be an object");
    refuse(LLAMA(", \"rope_parameters\": {\"rope_type\": \"default\", \"partial_rotary_factor\": 0.5}"),
           "partial_rotary_factor is 0.5");
    refuse(
        LLAMA(", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, \"high_freq_factor\": 4, "
              "\"original_max_position_embeddings\": 8192}"),
        "must be above low_freq_factor");
}

static void test_windows(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum model_family family;
        int64_t window;
    } cases[] = {
        {LLAMA(""), FAMILY_LLAMA, 0},
        {LIKE("mistral", ""), FAMILY_MISTRAL, 4096}, /* transformers' default */
        {LIKE("mistral", ", \"sliding_window\": null"), FAMILY_MISTRAL, 0},
        {LIKE("mistral", ", \"sliding_window\": 100"), FAMILY_MISTRAL, 100},
        {LIKE("qwen2", ""), FAMILY_QWEN2, 0},
        {LIKE("qwen2", ", \"sliding_window\": 100"), FAMILY_QWEN2, 0},
        {LIKE("qwen2", ", \"sliding_window\": 100, \"max_window_layers\": 0"), FAMILY_QWEN2, 0},
        {LIKE("qwen2",
              ", \"use_sliding_window\": false, \"sliding_window\": 131072, \"max_window_layers\": 1, \"use_mrope\": false"),
         FAMILY_QWEN2, 0},
        {LIKE("qwen2", ", \"use_sliding_window\": true, \"sliding_window\": 100"), FAMILY_QWEN2, 0}, /* only from layer 28 on */
        {LIKE("qwen2", ", \"use_sliding_window\": true, \"sliding_window\": 100, \"max_window_layers\": 2"), FAMILY_QWEN2, 0},
        {LIKE("qwen2", ", \"use_sliding_window\": true, \"sliding_window\": 100, \"max_window_layers\": 0"), FAMILY_QWEN2, 100},
        {LIKE("qwen2", ", \"use_sliding_window\": true, \"sliding_window\": null, \"max_window_layers\": 0"), FAMILY_QWEN2, 0},
        {LIKE("qwen2", ", \"use_sliding_window\": true, \"sliding_window\": 100, \"layer_types\": [\"sliding_attention\", "
                       "\"sliding_attention\"]"),
         FAMILY_QWEN2, 100},
        {LIKE("qwen2", ", \"layer_types\": [\"full_attention\", \"full_attention\"]"), FAMILY_QWEN2, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model_config back, c = read_text(cases[i].text);
        assert_int_equal(c.family, cases[i].family);
        assert_int_equal(c.window, cases[i].window);
        assert_int_equal(model_config_write(dir, &c, F32), OK);
        assert_int_equal(model_config_read(dir, &back), OK);
        assert_same(c, back);
    }
#define SLIDES ", \"use_sliding_window\": true, \"sliding_window\": 100"
    refuse(LIKE("qwen2", SLIDES ", \"max_window_layers\": -1"), "max_window_layers is -1; must be a whole number, 0 or more");
    static const char *const mixed[] = {
        LIKE("qwen2", SLIDES ", \"max_window_layers\": 1"),
        LIKE("qwen2", SLIDES ", \"layer_types\": [\"full_attention\", \"sliding_attention\"]"),
        LIKE("qwen3", SLIDES ", \"max_window_layers\": 1"),
        LIKE("olmo3", ", \"layer_types\": [\"full_attention\", \"sliding_attention\"]"),
    };
    for (size_t i = 0; i < sizeof mixed / sizeof *mixed; i++) {
        struct model_config back, c = read_text(mixed[i]);
        assert_true(c.window > 0 && !model_bit(c.windowed, 0) && model_bit(c.windowed, 1));
        assert_int_equal(model_config_write(dir, &c, F32), OK);
        assert_int_equal(model_config_read(dir, &back), OK);
        assert_same(c, back);
    }
    refuse(LIKE("qwen2", SLIDES ", \"layer_types\": [\"sliding_attention\"]"), "an entry for each of num_hidden_layers");
    refuse(LIKE("qwen2", SLIDES ", \"layer_types\": [\"chunked_attention\", 1]"), "supported: full_attention, sliding_attention");
    refuse(LIKE("qwen2", ", \"layer_types\": [\"sliding_attention\", \"sliding_attention\"]"),
           "use_sliding_window says otherwise");
    refuse(LIKE("qwen2", ", \"use_mrope\": true"), "use_mrope is true");
    refuse(LIKE("mistral", ", \"sliding_window\": 0"), "sliding_window is 0; must be a positive whole number");
    refuse(LIKE("mistral", ", \"use_sliding_window\": true"), "use_sliding_window is true; ltrain does not know this key");
    refuse(LIKE("mistral", ", \"architectures\": [\"LlamaForCausalLM\"]"), "supported: [\"MistralForCausalLM\"]");
    refuse("{\"model_type\": \"mistral\", \"vocab_size\": 300, \"hidden_size\": 64, \"intermediate_size\": 96, "
           "\"num_hidden_layers\": 2, \"num_attention_heads\": 4}",
           "num_key_value_heads is missing");
}

/* gpt-oss without experts: absent keys mean the values of its published configuration. */
static void test_gpt_oss(void **state)
{
    (void)state;
#define DENSE \
    ", \"num_local_experts\": 0, \"num_experts_per_tok\": 4, \"router_aux_loss_coef\": 0.9, \"output_router_logits\": false"
#define YARN                                                                                                     \
    "{\"rope_type\": \"yarn\", \"factor\": 32.0, \"beta_fast\": 32.0, \"beta_slow\": 1.0, \"truncate\": false, " \
    "\"original_max_position_embeddings\": 4096}"
    static const char *const cases[] = {
        LIKE("gpt_oss", DENSE),
        LIKE("gpt_oss", DENSE ", \"rope_scaling\": {}"),
        LIKE("gpt_oss", DENSE ", \"rope_scaling\": " YARN ", \"rope_theta\": 150000, \"initial_context_length\": 4096, "
                              "\"swiglu_limit\": 7.0, \"sliding_window\": 128, \"head_dim\": 64, \"hidden_act\": \"silu\", "
                              "\"layer_types\": [\"sliding_attention\", \"full_attention\"], \"attention_bias\": true"),
    };
    struct model_config c = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model_config back;
        c = read_text(cases[i]);
        assert_true(c.window == 128 && model_bit(c.windowed, 0) && !model_bit(c.windowed, 1));
        assert_true(c.rope == ROPE_YARN && c.rope_exact && c.rope_factor == 32 && c.rope_original_positions == 4096);
        assert_true(c.rope_theta == 150000 && c.head_dim == 64 && c.attention_bias && !c.tied && c.max_positions == 131072);
        assert_true(c.gate == GATE_CLAMPED && c.gate_limit == 7 && c.gate_alpha == 1.702);
        assert_int_equal(model_config_write(dir, &c, F32), OK);
        assert_int_equal(model_config_read(dir, &back), OK);
        assert_same(c, back);
    }
    struct model_config plain =
        read_text(LIKE("gpt_oss", DENSE ", \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 150000}"));
    assert_true(plain.rope == ROPE_DEFAULT);
    assert_int_equal(model_config_write(dir, &plain, F32), OK);
    assert_int_equal(model_config_read(dir, &c), OK); /* other scalings than the one that an absent key means */
    assert_same(plain, c);
    c = read_text(
        LIKE("gpt_oss", ", \"quantization_config\": {\"quant_method\": \"mxfp4\", \"modules_to_not_convert\": [\"lm_head\"]}"));
    assert_true(c.mxfp4 && !c.lists_skipped);
    assert_string_equal(c.skipped, "lm_head");
    refuse(
        "{\"model_type\": \"gpt_oss\", \"vocab_size\": 300, \"hidden_size\": 64, \"intermediate_size\": 48, \"num_hidden_layers\": 2, "
        "\"num_attention_heads\": 4, \"quantization_config\": {\"quant_method\": \"mxfp4\"}}",
        "in MXFP4, whose blocks of 32 do not divide");
    refuse(LIKE("gpt_oss", DENSE ", \"quantization_config\": {\"quant_method\": \"mxfp4\"}"),
           "in MXFP4, which experts of gpt-oss alone have");
    refuse(LIKE("gpt_oss", ", \"quantization_config\": {\"quant_method\": \"mxfp4\", \"modules_to_not_convert\": 1}"),
           "no list of modules (modules_to_not_convert)");
    c = read_text(LIKE("gpt_oss", ""));
    assert_true(c.experts == 128 && c.experts_used == 4 && c.expert_ffn == 96);
}

/* A model with experts in the shape of LIKE. */
#define EXPERTS(type, more) LIKE(type, ", \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 12" more)

/* Families with experts: which layers have some, how many, and how they are chosen. */
static void test_experts_read(void **state)
{
    (void)state;
    struct model_config c =
        read_text(EXPERTS("qwen3_moe", ", \"num_experts\": 8, \"mlp_only_layers\": [1], \"norm_topk_prob\": true"));
    assert_true(c.experts == 8 && c.experts_used == 2 && c.expert_ffn == 12 && c.ffn == 96 && c.router_normalises);
    assert_true(c.blocks_of[0] == 0 && c.blocks_of[1] == 1 && c.router_aux == 0.001 && !c.router_aux_used);
    c = read_text(EXPERTS("qwen2_moe", ", \"num_experts\": 8, \"decoder_sparse_step\": 2, \"router_aux_loss_coef\": 0.0"));
    assert_true(c.blocks_of[0] == 1 && c.blocks_of[1] == 0 && c.shared_ffn == 5632 && c.attention_bias && c.router_aux == 0);
    c = read_text(EXPERTS("glm4_moe", ", \"n_routed_experts\": 8, \"n_group\": 4, \"topk_group\": 2, \"n_shared_experts\": 3"));
    assert_true(c.expert_groups == 4 && c.groups_used == 2 && c.shared_ffn == 36 && c.blocks_of[0] == 1 && c.rope_share == 0.5);
    c = read_text(EXPERTS("exaone_moe", ", \"num_experts\": 8, \"mlp_layer_types\": [\"sparse\", \"dense\"]"));
    assert_true(c.blocks_of[0] == 0 && c.blocks_of[1] == 1 && c.router_scale == 2.5);
    c = read_text(LIKE("ernie4_5_moe",
                       ", \"moe_num_experts\": 8, \"moe_k\": 6, \"moe_intermediate_size\": 12, \"moe_layer_end_index\": -1"));
    assert_true(c.experts_used == 6 && c.router_floor == 1e-12 && c.blocks_of[0] == 1 && c.blocks_of[1] == 0 &&
                c.shared_ffn == 24);
    c = read_text(LIKE("hunyuan_v1_moe", ", \"num_experts\": 8, \"moe_topk\": [2, 2], \"moe_intermediate_size\": [96, 96]"));
    assert_true(c.experts_used == 2 && c.expert_ffn == 96 && c.shared_ffn == 96);
    c = read_text(
        LIKE("minimax_m2", ", \"num_local_experts\": 8, \"num_experts_per_tok\": 2, \"head_dim\": 16, \"rotary_dim\": 8"));
    assert_true(c.rope_share == 0.5 && c.experts == 8);
}

static void test_experts_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {EXPERTS("qwen3_moe", ""), "num_experts is missing"},
        {LIKE("mixtral", ", \"num_local_experts\": 8"), "num_experts_per_tok is missing"},
        {EXPERTS("qwen3_moe", ", \"num_experts\": 8, \"num_local_experts\": 4"),
         "num_local_experts is 4; it says something else"},
        {EXPERTS("qwen3_moe", ", \"num_experts\": 8, \"use_sliding_window\": true"), "use_sliding_window is true"},
        {EXPERTS("qwen3_moe", ", \"num_experts\": 8, \"mlp_only_layers\": [2]"), "mlp_only_layers is [2]"},
        {EXPERTS("qwen3_moe", ", \"num_experts\": 8, \"n_shared_experts\": 1"), "n_shared_experts is 1; ltrain does not know"},
        {EXPERTS("mixtral", ", \"num_local_experts\": 8, \"router_jitter_noise\": 0.1"), "router_jitter_noise is 0.1"},
        {EXPERTS("exaone_moe", ", \"num_experts\": 8, \"mlp_layer_types\": [\"sparse\", \"moe\"]"), "supported: dense, sparse"},
        {EXPERTS("dots1", ", \"n_routed_experts\": 8, \"max_window_layers\": 1"), "max_window_layers is 1"},
        {LIKE("hunyuan_v1_moe", ", \"num_experts\": 8, \"moe_topk\": [2, 1]"), "only layers with equal numbers"},
        {LIKE("hunyuan_v1_moe", ", \"num_experts\": 8, \"moe_topk\": 2, \"moe_intermediate_size\": 48"),
         "only intermediate_size, 96"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuse(cases[i].text, cases[i].part);
}

static void assert_written(struct model_config c)
{
    struct model_config back;
    assert_int_equal(model_config_write(dir, &c, F32), OK);
    assert_int_equal(model_config_read(dir, &back), OK);
    assert_same(c, back);
}

/* Qwen3.5: defaults of absent keys; keys of absent features and of images' positions are ignored. */
static void test_qwen3_5(void **state)
{
    (void)state;
#define ALL_FULL ", \"layer_types\": [\"full_attention\", \"full_attention\"]"
    struct model_config c = read_text(LIKE(
        "qwen3_5_text", ALL_FULL
        ", \"linear_num_value_heads\": 32, \"attn_output_gate\": true, "
        "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 1e7, \"mrope_interleaved\": true, \"mrope_section\": [11, 11, 10]}"));
    assert_true(c.rope_share == 0.25 && c.rope_theta == 1e7 && c.head_dim == 256 && c.max_positions == 32768 && !c.tied);
    assert_written(c);
    c = read_text(LIKE("qwen3_5_text", ", \"full_attention_interval\": 1, \"partial_rotary_factor\": 1.0"));
    assert_true(c.rope_share == 0);
    assert_written(c);
    c = read_text(LIKE("qwen3_5_text", ""));
    assert_true(c.blocks_of[0] != c.blocks_of[3] && c.scan_heads == 32 && c.scan_groups == 16 && c.scan_key == 128 &&
                c.scan_value == 128 && c.conv_width == 4);
    assert_written(c);
    refuse(LIKE("qwen3_5_text", ", \"layer_types\": [\"mamba\", \"full_attention\"]"),
           "supported: full_attention, linear_attention");
    refuse(LIKE("qwen3_5_text", ALL_FULL ", \"attn_output_gate\": false"), "only true is supported");
    c = read_text(LIKE("qwen3_5_moe_text", ", \"num_experts\": 16, \"norm_topk_prob\": true"));
    assert_true(c.blocks_of[0] != c.blocks_of[3] && c.experts == 16 && c.experts_used == 8 && c.expert_ffn == 512 &&
                c.shared_ffn == 512 && c.router_aux == 0.001 && !c.router_aux_used);
    assert_written(c);
    refuse(LIKE("qwen3_5_moe_text", ", \"num_experts\": 16, \"norm_topk_prob\": false"), "only true is supported");
    c = read_text(LIKE("qwen3_next", ", \"num_experts\": 16, \"norm_topk_prob\": false, \"mlp_only_layers\": [0]"));
    assert_true(c.blocks_of[0] != c.blocks_of[1] && c.experts_used == 10 && !c.router_normalises && c.further_layers == 1);
    assert_written(c);
    refuse("{\"model_type\": \"qwen3_5\", \"architectures\": [\"Qwen3_5ForConditionalGeneration\"], \"image_token_id\": 248056, "
           "\"video_token_id\": 248057, \"vision_start_token_id\": 248053, \"text_config\": " LIKE(
               "qwen3_5_text", ", \"layer_types\": [\"mamba\", \"full_attention\"]") "}",
           "text_config.layer_types is [\"mamba\",\"full_attention\"]; supported: full_attention, linear_attention");
}

/* Defaults of absent keys in later relatives of Llama; each configuration is written and read back. */
static void test_later_families(void **state)
{
    (void)state;
    struct model_config c = read_text(LIKE("seed_oss", ", \"attention_out_bias\": false, \"residual_dropout\": 0.1, "
                                                       "\"rope_scaling\": {\"rope_type\": \"default\"}"));
    assert_true(c.attention_bias && !c.mlp_bias && c.head_dim == 128 && c.max_positions == 524288 && c.rope_theta == 10000);
    assert_written(c);
    refuse(LIKE("seed_oss", ", \"attention_out_bias\": true"), "attention_out_bias is true; only false is supported");
    c = read_text(LIKE("seed_oss", ", \"head_dim\": null"));
    assert_int_equal(c.head_dim, 16);
    c = read_text(LIKE("ernie4_5", ", \"use_bias\": false, \"architectures\": [\"Ernie4_5_ForCausalLM\"]"));
    assert_true(c.rope_interleaved && c.tied && c.rope_theta == 500000 && c.head_dim == 128 && c.norm_eps == 1e-5f);
    assert_written(c);
    c = read_text(LIKE("arcee", ""));
    assert_true(c.activation == RELU_SQUARED && c.head_dim == 16 && c.max_positions == 4096);
    assert_written(c);
    refuse(LIKE("arcee", ", \"hidden_act\": \"silu\""), "supported: relu2");
    c = read_text(LIKE("ministral", ""));
    assert_true(c.window == 4096 && model_bit(c.windowed, 0) && model_bit(c.windowed, 1));
    assert_written(c);
    c = read_text(LIKE("cwm", ""));
    assert_true(c.window == 8192 && !model_bit(c.windowed, 0) && model_bit(c.windowed, 1) && c.rope == ROPE_LLAMA3 &&
                c.rope_factor == 16);
    assert_true(c.rope_theta == 1e6 && c.head_dim == 128);
    assert_written(c);
    assert_true(read_text(LIKE("cwm", ", \"rope_scaling\": {}")).rope == ROPE_LLAMA3); /* an empty section gives no scaling */
    c = read_text(LIKE("cwm", ", \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 1e6}"));
    assert_true(c.rope == ROPE_DEFAULT);
    assert_written(c); /* another scaling than the one that an absent key means */
    c = read_text(LIKE("helium", ", \"head_dim\": 16"));
    assert_true(c.rope_interleaved && c.rope_theta == 100000 && c.norm_eps == 1e-8f);
    assert_written(c);
    c = read_text(LIKE(
        "hunyuan_v1_dense",
        ", \"use_qk_norm\": true, \"max_position_embeddings\": 32768, \"rope_scaling\": {\"type\": \"dynamic\", \"alpha\": 1000.0, "
        "\"factor\": 1.0, \"beta_fast\": 32, \"mscale\": 1.0}"));
    assert_true(c.rope == ROPE_DYNAMIC && c.rope_alpha == 1000 && model_rope_base(&c, 100) > 1.5e7 &&
                model_rope_base(&c, 100) == model_rope_base(&c, 100000));
    assert_written(c);
    refuse(LIKE("hunyuan_v1_dense", ", \"use_qk_norm\": false"), "use_qk_norm is false; only true is supported");
    refuse(
        LIKE(
            "llama",
            ", \"max_position_embeddings\": 32768, \"rope_scaling\": {\"type\": \"dynamic\", \"alpha\": 1000.0, \"factor\": 1.0}"),
        "alpha is 1000.0; ltrain does not know this key");
    c = read_text(LIKE("nemotron", ", \"norm_eps\": 1e-6"));
    assert_true(c.activation == RELU_SQUARED && c.rope_share == 0.5 && c.norm_eps == 1e-6f && c.max_positions == 4096);
    assert_written(c);
    c = read_text(LIKE("olmo", ", \"clip_qkv\": null"));
    assert_true(c.norm_eps == 1e-5f && c.max_positions == 2048);
    assert_written(c);
    refuse(LIKE("olmo", ", \"clip_qkv\": 8.0"), "clip_qkv is 8.0; only null is supported");
    refuse(LIKE("helium", ""), "head_dim is null; must be hidden_size / num_attention_heads");
}

/* Gemma 1's gelu is tanh's by any name; a cap is the released models' unless it is null; EXAONE's layers without a window have no
 * positions. */
static void test_other_families(void **state)
{
    (void)state;
    struct model_config c = read_text(LIKE("gemma", ", \"hidden_act\": \"gelu\", \"hidden_activation\": \"gelu_pytorch_tanh\""));
    assert_true(c.gate == GATE_GELU_TANH && c.embedding_scale == 8 && c.head_dim == 256 && c.tied && c.max_positions == 8192);
    assert_written(c);
    c = read_text(LIKE("vaultgemma", ", \"attn_logit_softcapping\": null"));
    assert_true(c.attention_cap == 0 && c.logit_cap == 30 && c.window == 4096 && model_bit(c.windowed, 0) &&
                !model_bit(c.windowed, 1));
    assert_written(c);
    c = read_text(LIKE("glm", ""));
    assert_true(c.rope_share == 0.5 && c.rope_interleaved && c.attention_bias && c.head_dim == 128);
    assert_written(c);
    c = read_text(LIKE("exaone4", ", \"sliding_window\": null, \"sliding_window_pattern\": null, \"layer_types\": "
                                  "[\"full_attention\", \"full_attention\"]"));
    assert_true(c.window == 0 && !model_bit(c.unrotated, 0));
    assert_written(c);
    c = read_text(LIKE("exaone4", ", \"sliding_window\": 100, \"sliding_window_pattern\": 2"));
    assert_true(c.window == 100 && model_bit(c.windowed, 0) && !model_bit(c.windowed, 1) && !model_bit(c.unrotated, 0) &&
                model_bit(c.unrotated, 1));
    assert_written(c);
    refuse(LIKE("exaone4", ", \"sliding_window_pattern\": \"LLLG\""), "without layer_types only a number is supported");
    refuse(LIKE("exaone4", ", \"sliding_window\": 100, \"layer_types\": [\"full_attention\", \"full_attention\"]"),
           "no layer has the sliding_window");
}

#define FALCON(more)                                                                                    \
    "{\"model_type\": \"falcon\", \"vocab_size\": 300, \"hidden_size\": 64, \"num_hidden_layers\": 2, " \
    "\"num_attention_heads\": 4" more "}"

/* Falcon's architectures: the number of KV heads, norms and parallel blocks; all are written and read back. */
static void test_falcon(void **state)
{
    (void)state;
    struct model_config c =
        read_text(FALCON(", \"alibi\": false, \"bias\": false, \"multi_query\": true, \"parallel_attn\": true, "
                         "\"new_decoder_architecture\": false, \"apply_residual_connection_post_layernorm\": false"));
    assert_true(c.kv_heads == 1 && c.norms == 1 && c.parallel && c.ffn == 256 && c.tied && c.activation == GELU_ERF &&
                c.max_positions == 2048);
    assert_written(c);
    c = read_text(FALCON(", \"new_decoder_architecture\": true, \"num_kv_heads\": 2, \"rope_theta\": 500042.0"));
    assert_true(c.kv_heads == 2 && c.norms == 2 && c.parallel && c.rope_theta == 500042.0);
    assert_written(c);
    c = read_text(
        FALCON(", \"new_decoder_architecture\": true, \"num_kv_heads\": 2, \"num_ln_in_parallel_attn\": 1, \"ff_factor\": 4"));
    assert_true(c.kv_heads == 2 && c.norms == 1 && c.parallel);
    assert_written(c);
    c = read_text(FALCON(", \"new_decoder_architecture\": true, \"num_kv_heads\": 1"));
    assert_true(c.kv_heads == 1 && c.norms == 2);
    assert_written(c);
    c = read_text(FALCON(", \"multi_query\": false, \"parallel_attn\": false, \"bias\": true"));
    assert_true(c.kv_heads == 4 && c.norms == 1 && !c.parallel && c.attention_bias);
    assert_written(c);
    refuse(FALCON(", \"alibi\": true"), "alibi is true; only false is supported");
    refuse(FALCON(", \"num_ln_in_parallel_attn\": 2"),
           "num_ln_in_parallel_attn is 2; supported: 1, or 2 with new_decoder_architecture");
    refuse(FALCON(", \"new_decoder_architecture\": true, \"parallel_attn\": false"), "parallel_attn is false");
    refuse(FALCON(", \"multi_query\": false, \"num_kv_heads\": 2"), "num_kv_heads is 2; without multi_query");
}

#define NEO(more) \
    "{\"model_type\": \"gpt_neo\", \"vocab_size\": 300, \"hidden_size\": 64, \"num_layers\": 5, \"num_heads\": 4" more "}"

/* GPTBigCode's heads and GPT-Neo's windows. */
static void test_near_gpt2(void **state)
{
    (void)state;
#define BIGCODE(more) \
    "{\"model_type\": \"gpt_bigcode\", \"vocab_size\": 300, \"n_embd\": 64, \"n_layer\": 2, \"n_head\": 4" more "}"
    struct model_config c =
        read_text(BIGCODE(", \"inference_runner\": 0, \"attention_softmax_in_fp32\": true, \"num_key_value_heads\": 1"));
    assert_true(c.kv_heads == 1 && c.ffn == 256 && c.max_positions == 1024 && c.tied);
    assert_written(c);
    c = read_text(BIGCODE(", \"multi_query\": false"));
    assert_int_equal(c.kv_heads, 4);
    assert_written(c);
    refuse(BIGCODE(", \"num_key_value_heads\": 2"), "num_key_value_heads is 2; only 1 is supported");
    refuse(BIGCODE(", \"scale_attn_weights\": false"), "only true is supported");
    c = read_text(NEO(", \"attention_types\": [[[\"global\", \"local\"], 2], [[\"global\"], 1]], \"attention_layers\": "
                      "[\"global\", \"local\", \"global\", \"local\", \"global\"]"));
    assert_true(c.window == 256 && c.attention_scale == 1.0 && c.windowed[0] == 10 && c.ffn == 256 && c.tied);
    assert_written(c);
    c = read_text(NEO(", \"attention_types\": [[[\"global\"], 5]], \"window_size\": 16"));
    assert_true(c.window == 0 && c.windowed[0] == 0);
    assert_written(c);
    refuse(NEO(""), "attention_types is null; must be entries like [[\"global\", \"local\"], 12] for num_layers in all");
    refuse(NEO(", \"attention_types\": [[[\"global\", \"local\"], 2]]"), "for num_layers in all");
    refuse(NEO(", \"attention_types\": [[[\"global\", \"local\"], 3]]"), "for num_layers in all");
    refuse(NEO(", \"attention_types\": [[[\"global\", \"near\"], 2], [[\"global\"], 1]]"), "for num_layers in all");
    refuse(NEO(", \"attention_types\": [[[\"global\", \"local\"], 4611686018427387905]]"), "for num_layers in all");
    refuse(
        NEO(", \"attention_types\": [[[\"global\"], 5]], \"attention_layers\": [\"global\", \"local\", \"global\", \"local\", \"global\"]"),
        "attention_types says something else");
}

/* StableLM, Jais 2, HyperCLOVA X and Granite with windows. */
static void test_factors_and_norms(void **state)
{
    (void)state;
    struct model_config c =
        read_text(LIKE("stablelm", ", \"use_qkv_bias\": true, \"use_parallel_residual\": true, \"hidden_dropout\": 0.1"));
    assert_true(c.rope_share == 0.25 && c.parallel && c.attention_bias && c.max_positions == 4096 && c.norm_eps == 1e-5f &&
                !c.tied);
    assert_written(c);
    refuse(LIKE("stablelm", ", \"qk_layernorm\": true"), "qk_layernorm is true; only false is supported");
    refuse(LIKE("stablelm", ", \"head_dim\": 32"), "head_dim is 32; must be hidden_size / num_attention_heads");
    c = read_text(LIKE("jais2", ""));
    assert_true(c.activation == RELU_SQUARED && c.attention_bias && c.mlp_bias && c.rope_share == 0 && c.max_positions == 8192);
    assert_written(c);
    refuse(LIKE("jais2", ", \"partial_rotary_factor\": 0.5"), "partial_rotary_factor is 0.5");
    c = read_text(LIKE("hyperclovax", ", \"logits_scaling\": 0.125, \"residual_multiplier\": 0.25"));
    assert_true(c.post_norm && c.logit_scale == 0.125 && c.residual_scale == 0.25 && c.attention_scale == 0);
    assert_written(c);
    c = read_text(LIKE("hyperclovax", ", \"use_post_norm\": false, \"attention_multiplier\": 0.5"));
    assert_true(!c.post_norm && c.attention_scale == 0.5);
    assert_written(c);
    c = read_text(LIKE("granite_swa", ", \"logits_scaling\": 4.0"));
    assert_true(c.window == 128 && !model_bit(c.windowed, 0) && model_bit(c.windowed, 1) && c.logit_scale == 0.25 &&
                c.attention_scale == 1);
    assert_true(c.rope_local_theta == 0 && !model_bit(c.unrotated, 0) && c.tied);
    assert_written(c);
    c = read_text(LIKE("granite_swa", ", \"layer_rope_theta\": [0, 10000.0]"));
    assert_true(model_bit(c.unrotated, 0) && !model_bit(c.unrotated, 1) && c.rope_local_theta == 0 && c.rope_theta == 10000);
    assert_written(c);
    c = read_text(
        LIKE("granite_swa",
             ", \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 7.0}, \"layer_rope_theta\": [5e5, 1e4]"));
    assert_true(c.rope_theta == 5e5 && c.rope_local_theta == 1e4);
    assert_written(c);
    put(LIKE("granite_swa",
             ", \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 7.0}, \"layer_rope_theta\": [5e5, 1e4]"));
    assert_int_equal(model_config_write_like(dir, dir, &c, F32), OK);
    assert_same(read_text_again(), c);
    struct model_config stretched = c;
    assert_int_equal(model_config_set_rope(&stretched, NULL, 9e5), OK);
    assert_int_equal(model_config_write_like(dir, dir, &stretched, F32), OK);
    assert_same(read_text_again(), stretched);
    assert_int_equal(model_config_set_rope(&stretched, "linear:2", 0), ERR_INVALID);
    c = read_text(LIKE("granite_swa", ""));
    put(LIKE("granite_swa", ""));
    assert_int_equal(model_config_set_rope(&c, "yarn:4", 0), OK);
    assert_int_equal(model_config_write_like(dir, dir, &c, F32), OK);
    assert_int_equal(read_text_again().max_positions, 32768);
    refuse(LIKE("granite_swa", ", \"layer_rope_theta\": [5e5]"), "must be a list with a base, or 0");
    refuse(LIKE("granite_swa", ", \"layer_rope_theta\": [5e5, -1]"), "must be a list with a base, or 0");
    refuse(LIKE("granite_swa", ", \"layer_types\": [\"full_attention\", \"full_attention\"], \"layer_rope_theta\": [5e5, 1e4]"),
           "supported: one base");
    refuse(
        LIKE("granite_swa", ", \"layer_rope_theta\": [5e5, 1e4], \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 2.0}"),
        "several bases are not supported with a scaling");
}

static void test_unsupported(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {LLAMA(", \"hidden_act\": \"gelu\""), "hidden_act is \"gelu\"; supported: silu, swish"},
        {LLAMA(", \"sliding_window\": 4096"), "sliding_window is 4096; only null is supported"},
        {LLAMA(", \"pretraining_tp\": 2"), "pretraining_tp is 2; only 1 is supported"},
        {LLAMA(", \"partial_rotary_factor\": 0.5"), "partial_rotary_factor is 0.5"},
        {LLAMA(", \"quantization_config\": {\"bits\": 4}"),
         "quantization_config: the weights are quantised by a method that is not said"},
        {LLAMA(", \"quantization_config\": {\"quant_method\": \"awq\", \"bits\": 4}"),
         "quantization_config: the weights are quantised by awq, which is not read"},
        {LLAMA(", \"quantization_config\": {\"load_in_4bit\": true}"), "quantization_config: the weights are bitsandbytes' fp4"},
        {LLAMA(", \"quantization_config\": {\"load_in_8bit\": true, \"llm_int8_has_fp16_weight\": true}"),
         "(llm_int8_has_fp16_weight)"},
        {LLAMA(", \"quantization_config\": {\"load_in_8bit\": true, \"llm_int8_skip_modules\": \"q_proj\"}"),
         "quantised but for something that is no list"},
        {LLAMA(", \"quantization_config\": {\"load_in_8bit\": true, \"llm_int8_skip_modules\": [1]}"),
         "quantised but for something without a name"},
        {LLAMA(", \"quantization_config\": {\"load_in_8bit\": true, \"load_in_4bit\": true, \"quant_method\": \"bitsandbytes\"}"),
         "in a way that is not said"},
        {LLAMA(
             ", \"quantization_config\": {\"load_in_4bit\": true, \"bnb_4bit_quant_type\": \"nf4\", \"bnb_4bit_quant_storage\": \"bfloat16\"}"),
         "bnb_4bit_quant_storage"},
        {LLAMA(", \"quantization_config\": 4"), "quantization_config is 4; an object is expected"},
        {LLAMA(", \"attn_logit_softcapping\": 30.0"),
         "attn_logit_softcapping is 30.0; ltrain does not know this key in a model of type llama"},
        {"{\"model_type\": \"newllama\", \"vocab_size\": 1, \"hidden_size\": 1, \"num_hidden_layers\": 1, \"rms_norm_eps\": 1, "
         "\"num_attention_heads\": 1, \"mlp_bias\": false}",
         "nearest is llama, which has 6 of its 7 keys"},
        {LLAMA(", \"tie_word_embeddings\": 1"), "tie_word_embeddings is 1; must be true or false"},
        {LLAMA(", \"head_dim\": 0"), "head_dim is 0; must be a positive whole number"},
        {LLAMA(", \"head_dim\": 16.0"), "head_dim is 16.0"},
        {LLAMA(", \"num_key_value_heads\": \"2\""), "num_key_value_heads is \"2\""},
        {LLAMA(", \"rms_norm_eps\": -1e-6"), "rms_norm_eps is -"},
        {GPT2(", \"activation_function\": \"relu\""),
         "activation_function is \"relu\"; supported: gelu_new, gelu_pytorch_tanh, gelu"},
        {GPT2(", \"scale_attn_by_inverse_layer_idx\": true"), "scale_attn_by_inverse_layer_idx is true"},
        {GPT2(", \"scale_attn_weights\": false"), "scale_attn_weights is false; only true is supported"},
        {GPT2(", \"reorder_and_upcast_attn\": true"), "reorder_and_upcast_attn is true"},
        {GPT2(", \"add_cross_attention\": true"), "add_cross_attention is true"},
        {GPT2(", \"is_causal\": false"), "is_causal is false; only true is supported"},
        {LLAMA(", \"is_causal\": false"), "is_causal is false; only true is supported"},
        {LLAMA(
             ", \"rope_parameters\": {\"full_attention\": {\"rope_type\": \"default\"}, \"sliding_attention\": {\"rope_type\": \"default\"}}"),
         "layers of this family are of one kind"},
        {LIKE("gemma3_text",
              ", \"rope_local_base_freq\": 77.0, \"rope_parameters\": {\"full_attention\": {\"rope_type\": \"default\", "
              "\"rope_theta\": 5e5}, \"sliding_attention\": {\"rope_type\": \"default\", \"rope_theta\": 1e4}}"),
         "rope_parameters.sliding_attention.rope_theta says something else"},
        {GPT2(", \"rope_theta\": 10000.0"), "rope_theta is 10000.0; ltrain does not know this key"},
        {GPT2(", \"architectures\": [\"GPT2ForSequenceClassification\"]"),
         "architectures is [\"GPT2ForSequenceClassification\"]"},
        {GPT2(", \"architectures\": []"), "architectures is []"},
        {"{\"model_type\": \"blossom\"}", "model_type is \"blossom\"; supported: llama, mistral, qwen2, "},
        {"{\"model_type\": \"jamba\"}",
         "model_type is \"jamba\"; layers without attention are not supported yet; supported: llama"},
        {"{\"model_type\": \"mamba\"}", "layers without attention are not supported yet"},
        {"{\"model_type\": \"modernbert-decoder\"}", "a norm of embeddings is not supported yet"},
        {"{\"model_type\": \" \"}", "model_type is \" \"; supported: llama"},
        {"{\"vocab_size\": 1}", "model_type is missing"},
        {"{\"model_type\": \"llama\"}", "vocab_size is missing"},
        {"{\"model_type\": \"gpt2\", \"vocab_size\": 300, \"n_embd\": 64, \"n_layer\": 2, \"n_head\": 5}",
         "n_head is 5; n_embd is not a multiple"},
        {"[1]", "must hold an object"},
        {"{\"model_type\": \"llama\", }", "line 1"},
        {"{\"model_type\": \"llama\", \"model_type\": \"gpt2\"}", "duplicate"},
        {"{\"model_type\": \"llama\"", "line 1"},
        {"", "is empty"},
        {"{\"model_type\": \"llama\", \"vocab_size\": 99999999999999999999}", "too big"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        refuse(cases[i][0], cases[i][1]);
    struct model_config c;
    assert_int_equal(model_config_read("/nonexistent", &c), ERR_INVALID);
    assert_non_null(strstr(status_message(), "/nonexistent/config.json"));
}

/* Differences between models are named, in words where values are kinds. */
static void test_differences(void **state)
{
    (void)state;
    struct model_config c, other[9];
    static const char *const says[] = {
        "model family is mistral there and llama in this run", "sliding window is 16 there and none in this run",
        "hidden size is 2048 there and 64 in this run",        "tied head is no there and yes in this run",
        "norm epsilon is 0.001 there and 1e-05 in this run",   "GELU kind is erf there and tanh in this run",
        "rope_theta is 10000 there and 500000 in this run",    "RoPE scaling is llama3 there and none in this run",
        "RoPE scaling's factor is 2 there and 0 in this run"};
    char text[128] = "";
    assert_int_equal(model_preset("tiny", &c), OK);
    for (int i = 0; i < 9; i++)
        other[i] = c;
    assert_false(model_config_differs(&other[0], &c, text, sizeof text));
    other[0].family = FAMILY_MISTRAL;
    other[1].window = 16;
    other[2].dim = 2048;
    other[3].tied = 0;
    other[4].norm_eps = 1e-3f;
    other[5].activation = GELU_ERF;
    other[6].rope_theta = 10000;
    other[7].rope = ROPE_LLAMA3;
    other[8].rope_factor = 2;
    for (int i = 0; i < 9; i++) {
        assert_true(model_config_differs(&other[i], &c, text, sizeof text));
        assert_string_equal(text, says[i]);
    }
    other[0] = c; /* these values affect neither shapes nor results */
    other[0].max_positions = 7;
    other[0].init_std = 1;
    strcpy(other[0].name, "other");
    assert_false(model_config_differs(&other[0], &c, text, sizeof text));
}

/* Keys without effect on training are ignored; dropout is not applied, but kept for a message. */
static void test_ignored_keys(void **state)
{
    (void)state;
    struct model_config c = read_text(LLAMA(", \"is_llama_config\": true, \"rope_interleaved\": false, \"unsloth_fixed\": true, "
                                            "\"unsloth_version\": \"2025.1\", \"transformers.js_config\": {\"dtype\": \"q4\"}, "
                                            "\"max_sequence_length\": 2048, \"attention_dropout\": 0.0"));
    assert_true(c.dropout == 0 && c.unchunked == 0);
    refuse(LLAMA(", \"rope_interleaved\": true"), "rope_interleaved is true");
    assert_string_equal(read_text(LLAMA(", \"rope_teta\": 1e6, \"my_note\": \"x\"")).unknown, "rope_teta, my_note");
    /* keys of another family */
    assert_string_equal(read_text(LLAMA(", \"dropout\": 0.0, \"layerdrop\": 0.1")).unknown, "dropout, layerdrop");
    assert_string_equal(
        read_text(LLAMA(", \"_anything\": 1, \"unsloth_x\": 1, \"a\": null, \"b\": {}, \"quantization_config\": {}, \"c\": [], "
                        "\"d_factor\": 1.0, \"attn_logit_softcapping\": null, \"use_mrope\": false"))
            .unknown,
        "");
    c = read_text(GPT2(", \"attn_pdrop\": 0.1, \"embd_pdrop\": 0.25, \"resid_pdrop\": 0"));
    assert_true(c.dropout == 0.25);
    refuse(GPT2(", \"attn_pdrop\": \"some\""), "attn_pdrop is \"some\"");
    refuse(GPT2(", \"attn_pdrop\": 1.5"), "attn_pdrop is 1.5");
#define CHUNKS(inner) LIKE("qwen2", ", \"dual_chunk_attention_config\": {\"chunk_size\": 262144" inner "}")
    c = read_text(CHUNKS(", \"original_max_position_embeddings\": 262144"));
    assert_int_equal(c.unchunked, 262144);
    refuse(CHUNKS(""), "original_max_position_embeddings");
    refuse(LIKE("mistral", ", \"dual_chunk_attention_config\": {\"x\": 1}"), "does not know this key");
}

static char *config_text(void)
{
    static char text[4096];
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    return text;
}

static void must_have(const char *part)
{
    if (!strstr(config_text(), part))
        fail_msg("no %s in\n%s", part, config_text());
}

/* An export's config.json is the model's own, except for the dtype and keys that older readers need. */
static void test_written_like(void **state)
{
    (void)state;
    struct model_config c = read_text(LLAMA(
        ", \"bos_token_id\": 128000, \"eos_token_id\": [128001, 128008], \"pad_token_id\": null, \"attention_dropout\": 0.1, "
        "\"unsloth_fixed\": true, \"torch_dtype\": \"float16\", \"rms_norm_eps\": 1e-05, \"use_cache\": false"));
    assert_int_equal(model_config_write_like(dir, dir, &c, BF16), OK);
    must_have("\"bos_token_id\": 128000");
    must_have("128008");
    must_have("\"pad_token_id\": null");
    must_have("\"attention_dropout\": 0.1,");
    must_have("\"unsloth_fixed\": true");
    must_have("\"torch_dtype\": \"bfloat16\"");
    must_have("\"rms_norm_eps\": 1e-5,");
    must_have("\"use_cache\": false");
    must_have("\"dtype\": \"bfloat16\"");
    must_have("\"rope_theta\": 10000.0");
    must_have("\"rope_scaling\": null");
    must_have("\"rope_parameters\": {");
    struct model_config back;
    assert_int_equal(model_config_read(dir, &back), OK);
    assert_same(c, back);
    assert_true(back.dropout == 0.1);
    c = read_text(LLAMA(", \"dtype\": \"bfloat16\", \"rope_parameters\": {\"rope_type\": \"llama3\", \"rope_theta\": 500000.0, "
                        "\"factor\": 8.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "
                        "\"original_max_position_embeddings\": 8192}"));
    assert_int_equal(model_config_write_like(dir, dir, &c, F32), OK);
    must_have("\"dtype\": \"float32\"");
    must_have("\"torch_dtype\": \"float32\"");
    must_have("\"rope_theta\": 500000.0");
    must_have("\"rope_scaling\": {");
    must_have("\"rope_parameters\": {");
    assert_int_equal(model_config_read(dir, &back), OK);
    assert_same(c, back);
    refuse(
        LLAMA(", \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 2}, \"rope_parameters\": {\"rope_type\": \"linear\", "
              "\"factor\": 4}"),
        "rope_parameters says something else");
    refuse(LLAMA(", \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 2, \"rope_theta\": 5}, \"rope_parameters\": "
                 "{\"rope_type\": "
                 "\"linear\", \"factor\": 2, \"rope_theta\": 7}"),
           "rope_parameters says something else");
    unlink(path);
    assert_int_equal(model_config_write_like(dir, dir, &c, F32), ERR_INVALID);
}

#define GPTJ(type, more) \
    "{\"model_type\": \"" type "\", \"vocab_size\": 300, \"n_embd\": 160, \"n_layer\": 2, \"n_head\": 2" more "}"

/* Phi rotates a share of each head, GPT-J a fixed number of elements, with a base for which there is no key. */
static void test_phi(void **state)
{
    (void)state;
    struct model_config c =
        read_text(LIKE("phi", ", \"qk_layernorm\": false, \"partial_rotary_factor\": 0.4, \"embd_pdrop\": 0.1"));
    assert_true(c.rope_share == 0.4 && !c.rope_interleaved && c.activation == GELU_TANH && c.max_positions == 2048 && !c.tied);
    assert_written(c);
    refuse(LIKE("phi", ", \"qk_layernorm\": true"), "qk_layernorm is true; only false is supported");
    c = read_text(GPTJ("gptj", ", \"rotary\": true, \"rotary_dim\": 24, \"scale_attn_weights\": true"));
    assert_true(model_rotated(&c, c.head_dim) == 24 && c.rope_interleaved && c.rope_theta == 10000 && c.ffn == 640 &&
                c.kv_heads == 2);
    assert_written(c);
    for (int64_t n = 2; n <= 80; n += 2) { /* the share may round either way */
        char text[256];
        snprintf(text, sizeof text, GPTJ("codegen", ", \"rotary_dim\": %lld"), (long long)n);
        c = read_text(text);
        assert_int_equal(model_rotated(&c, c.head_dim), n);
        assert_written(c);
    }
    c = read_text(GPTJ("codegen", ", \"n_ctx\": 2048"));
    assert_int_equal(model_rotated(&c, c.head_dim), 64);
    put(GPTJ("codegen", ""));
    assert_int_equal(model_config_write_like(dir, dir, &c, F32), OK);
    assert_null(strstr(config_text(), "rope"));
    assert_same(read_text_again(), c);
    assert_int_equal(model_config_set_rope(&c, "linear:2", 0), ERR_INVALID);
    assert_int_equal(model_config_set_rope(&c, NULL, 5e5), ERR_INVALID);
    refuse(GPTJ("gptj", ", \"rotary_dim\": null"), "rotary_dim is null; must be a number");
    refuse(GPTJ("gptj", ", \"rotary_dim\": 82"), "rotary_dim is 82; is more than a head has");
    refuse(GPTJ("gptj", ", \"rope_theta\": 10000.0"), "rope_theta is 10000.0; ltrain does not know this key");
    refuse("{\"model_type\": \"codegen\", \"vocab_size\": 300, \"n_embd\": 66, \"n_layer\": 2, \"n_head\": 1}",
           "n_embd is 66; must be a multiple of 4");
}

#define OPT(more)                                                                                                     \
    "{\"model_type\": \"opt\", \"vocab_size\": 300, \"hidden_size\": 64, \"ffn_dim\": 96, \"num_hidden_layers\": 2, " \
    "\"num_attention_heads\": 4" more "}"

/* OPT's first two rows of the table of positions are never used. */
static void test_opt(void **state)
{
    (void)state;
    struct model *m;
    struct model_config c =
        read_text(OPT(", \"word_embed_proj_dim\": 64, \"do_layer_norm_before\": true, \"_remove_final_layer_norm\": false, "
                      "\"activation_dropout\": 0.0, \"dropout\": 0.1, \"layerdrop\": 0.0, \"prefix\": \"</s>\""));
    assert_true(c.activation == RELU && c.attention_bias && c.tied && c.max_positions == 2048 && c.norm_eps == 1e-5f &&
                c.dropout == 0.1);
    assert_written(c);
    c.positions = 30;
    assert_int_equal(model_create(&c, NULL, 0, &m), OK);
    assert_int_equal(m->params[m->pos_embed].shape[0], 2050);
    assert_int_equal(m->params[m->pos_embed].elements, 32 * 64);
    model_destroy(m);
    refuse(OPT(", \"word_embed_proj_dim\": 32"), "word_embed_proj_dim is 32; must be hidden_size");
    refuse(OPT(", \"do_layer_norm_before\": false"), "do_layer_norm_before is false; only true is supported");
    refuse(OPT(", \"_remove_final_layer_norm\": true"), "_remove_final_layer_norm is true");
    refuse(OPT(", \"layer_norm_elementwise_affine\": false"), "layer_norm_elementwise_affine is false");
}

/* Old and new spellings of the rotated share and of the base are written and read back. */
static void test_parallel_families(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double share, theta;
        int parallel;
    } cases[] = {
        {NEOX(""), 0.25, 10000, 1},
        {NEOX(", \"rotary_pct\": 1.0, \"rotary_emb_base\": 5000, \"use_parallel_residual\": false"), 0, 5000, 0},
        {NEOX(", \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 700.0, \"partial_rotary_factor\": 0.5}"), 0.5,
         700, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model_config back, c = read_text(cases[i].text);
        assert_true(c.rope_share == cases[i].share && c.rope_theta == cases[i].theta && c.parallel == cases[i].parallel);
        assert_int_equal(model_config_write_like(dir, dir, &c, F32), OK);
        must_have("\"rotary_emb_base\"");
        assert_int_equal(model_config_read(dir, &back), OK);
        assert_same(c, back);
        assert_int_equal(model_config_write(dir, &c, F32), OK);
        assert_int_equal(model_config_read(dir, &back), OK);
        assert_same(c, back);
    }
    refuse(NEOX(", \"rotary_pct\": 0.5, \"rope_theta\": 7.0"), "rope_theta is 7.0; ltrain does not know this key");
    refuse(LIKE("cohere2", ", \"use_qk_norm\": true"), "use_qk_norm is true; only false is supported");
    struct model_config back, c = read_text(LIKE("cohere", ", \"use_qk_norm\": true"));
    assert_true(c.qk_norm);
    assert_int_equal(model_config_write(dir, &c, F32), OK);
    assert_int_equal(model_config_read(dir, &back), OK);
    assert_same(c, back);
    c = read_text(LIKE("cohere2", ", \"sliding_window_pattern\": 2"));
    assert_true(c.window == 4096 && model_bit(c.windowed, 0) && !model_bit(c.windowed, 1));
    assert_true(!model_bit(c.unrotated, 0) && model_bit(c.unrotated, 1) && c.logit_scale == 0.0625 && c.rope_interleaved);
    assert_int_equal(model_config_write(dir, &c, F32), OK);
    assert_int_equal(model_config_read(dir, &back), OK);
    assert_same(c, back);
}

/* The number of positions includes the scaling that has extended them. */
static void test_positions_of_other_scalings(void **state)
{
    (void)state;
#define STRETCHED \
    ", \"max_position_embeddings\": 512, \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0, \"original_max_position_embeddings\": 128}"
    static const struct {
        const char *rope;
        int64_t positions;
    } cases[] = {{NULL, 512}, {"none", 128}, {"yarn:2", 256}, {"yarn:4", 512}, {"linear:8", 1024}, {"dynamic:4", 512}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model_config c = read_text(LLAMA(STRETCHED));
        assert_int_equal(model_config_set_rope(&c, cases[i].rope, 0), OK);
        assert_int_equal(c.max_positions, cases[i].positions);
    }
    static const char *const refused[] = {"yarn:1e300", "linear:1000001", "dynamic:inf", "llama3:nan",
                                          "yarn:1",     "yarn:",          "none:2"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct model_config c = read_text(LLAMA(STRETCHED)), was = c;
        assert_int_equal(model_config_set_rope(&c, refused[i], 0), ERR_INVALID);
        assert_non_null(strstr(status_message(), "a factor above 1 and at most 1000000"));
        assert_memory_equal(&c, &was, sizeof c);
    }
    /* in an export the length beside the sections, which readers prefer, is adapted */
    struct model_config back,
        c = read_text(LLAMA(", \"max_position_embeddings\": 512, \"original_max_position_embeddings\": 64"));
    assert_int_equal(model_config_set_rope(&c, "yarn:2", 0), OK);
    assert_int_equal(model_config_write_like(dir, dir, &c, F32), OK);
    assert_int_equal(model_config_read(dir, &back), OK);
    assert_true(c.rope_original_positions == 512 && back.rope_original_positions == 512 && back.max_positions == 1024);
}

/* A multimodal model's text_config is read as the text model's config.json. */
static void test_wrapped(void **state)
{
    (void)state;
#define GEMMA "{\"model_type\": \"gemma3\", \"architectures\": [\"Gemma3ForConditionalGeneration\"], \"image_token_index\": 9, "
#define VISION ", \"vision_config\": {\"hidden_size\": 8, \"model_type\": \"siglip_vision_model\"}}"
#define TEXT \
    "\"text_config\": {\"model_type\": \"gemma3_text\", \"hidden_size\": 64, \"num_hidden_layers\": 2, \"sliding_window\": 16"
    struct model_config back,
        c = read_text(GEMMA TEXT ", \"rope_scaling\": {\"factor\": 8.0, \"rope_type\": \"linear\"}}" VISION);
    assert_true(c.wrapped && c.family == FAMILY_GEMMA3 && c.dim == 64 && c.layers == 2 && c.window == 16 && c.tied);
    assert_true(c.vocab == 262208 && c.heads == 8 && c.kv_heads == 4 && c.head_dim == 256 && c.ffn == 9216); /* implied */
    assert_int_equal(model_config_set_rope(&c, NULL, 7e6), OK);
    assert_int_equal(model_config_write_like(dir, dir, &c, BF16), OK);
    must_have("\"vision_config\": {");
    must_have("Gemma3ForConditionalGeneration");
    assert_int_equal(model_config_read(dir, &back), OK);
    assert_true(back.wrapped && back.rope_theta == 7e6);
    assert_same(c, back);
    assert_int_equal(model_config_write(dir, &c, F32), OK); /* a checkpoint has the text model's config.json */
    assert_int_equal(model_config_read(dir, &back), OK);
    assert_true(!back.wrapped);
    assert_same(c, back);
    refuse(GEMMA "\"quantization_config\": {\"bits\": 4}, " TEXT "}" VISION,
           "ltrain does not know this key in a multimodal model");
    refuse(GEMMA "\"hidden_size\": 64" VISION, "text_config is missing");
    refuse(GEMMA TEXT ", \"num_experts\": 4}" VISION, "text_config.num_experts is 4");
#define MINISTRAL(more) \
    "{\"model_type\": \"mistral3\", \"tie_word_embeddings\": true, \"text_config\": " LIKE("ministral3", more) VISION
    c = read_text(
        MINISTRAL(", \"max_position_embeddings\": 262144, \"rope_parameters\": {\"rope_type\": \"yarn\", \"type\": \"yarn\", "
                  "\"factor\": 16.0, \"rope_theta\": 1e6, \"llama_4_scaling_beta\": 0.1, \"mscale\": 1.0, "
                  "\"mscale_all_dim\": 1.0, \"original_max_position_embeddings\": 16384, \"beta_fast\": 32.0, "
                  "\"beta_slow\": 1.0}"));
    assert_true(c.wrapped && c.family == FAMILY_MINISTRAL3 && c.rope_slope == 0.1 && c.rope_original_positions == 16384 &&
                c.tied);
    struct model *m;
    assert_int_equal(model_create(&c, NULL, 0, &m), OK);
    assert_true(model_rope_attention(m, 0) == 1.0);
    model_destroy(m);
    assert_int_equal(model_config_write(dir, &c, F32), OK);
    assert_int_equal(model_config_read(dir, &back), OK);
    assert_same(c, back);
    refuse(MINISTRAL(""), "text_config.rope_parameters is missing");
}

#define GEMMA4(more)                                                                                                            \
    "{\"model_type\": \"gemma4_text\", \"vocab_size\": 300, \"hidden_size\": 64, \"intermediate_size\": 96, "                   \
    "\"num_hidden_layers\": 7, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"hidden_size_per_layer_input\": 0" more \
    "}"

/* layer_types with which the first layer attends all keys and the second has a sliding window. */
#define FULL_SLIDES \
    ", \"use_sliding_window\": true, \"sliding_window\": 5, \"layer_types\": [\"full_attention\", \"sliding_attention\"]"

/* A model that rotates whole heads says so in its export if it was extended: in these families an absent key means that a part is
 * rotated. */
static void test_rotated_whole(void **state)
{
    (void)state;
    static const char *const cases[] = {
        NEOX(", \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 1e4, \"partial_rotary_factor\": 1.0}"),
        NEOX(", \"rotary_pct\": 1.0"), LIKE("nemotron", ", \"partial_rotary_factor\": 1.0"),
        LIKE("glm4", ", \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 1e4, \"partial_rotary_factor\": 1.0}")};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model_config c = read_text(cases[i]);
        assert_true(c.rope_share == 0);
        assert_int_equal(model_config_set_rope(&c, "yarn:4", 5e3), OK);
        put(cases[i]);
        assert_int_equal(model_config_write_like(dir, dir, &c, F32), OK);
        assert_same(read_text_again(), c);
    }
    char text[128];
    struct model_config whole = read_text(NEOX(", \"rotary_pct\": 1.0")), quarter = read_text(NEOX(""));
    assert_true(model_config_differs(&whole, &quarter, text, sizeof text));
    assert_string_equal(text, "share of a head that is rotated is all there and 0.25 in this run");
}

/* Differences from what the keys seem to say follow transformers, as do its errors. */
static void test_as_transformers(void **state)
{
    (void)state;
    static const char *const windowless[] = {
        LIKE("cohere2", ", \"sliding_window\": null"),
        LIKE("olmo3", ", \"sliding_window\": null"),
        LIKE("gemma3_text", ", \"sliding_window\": null"),
        LIKE("gemma2", ", \"sliding_window\": null"),
        LIKE("exaone4", ", \"sliding_window\": null, \"layer_types\": [\"sliding_attention\", \"full_attention\"]"),
        LIKE("mistral", ", \"sliding_window\": null, \"layer_types\": [\"sliding_attention\", \"full_attention\"]"),
        LIKE(
            "qwen3",
            ", \"use_sliding_window\": true, \"sliding_window\": null, \"layer_types\": [\"sliding_attention\", \"full_attention\"]")};
    for (size_t i = 0; i < sizeof windowless / sizeof *windowless; i++)
        refuse(windowless[i], "sliding_window is null; layers of layer_types' sliding_attention need one");
    static const char *const full[] = {
        LIKE("cohere2", ", \"sliding_window\": null" ALL_FULL), LIKE("olmo3", ", \"sliding_window\": null" ALL_FULL),
        LIKE("gemma3_text", ", \"sliding_window\": null" ALL_FULL), LIKE("exaone4", ", \"sliding_window\": null")};
    for (size_t i = 0; i < sizeof full / sizeof *full; i++) {
        struct model_config back, c = read_text(full[i]);
        assert_int_equal(c.window, 0);
        assert_int_equal(model_config_write(dir, &c, F32), OK);
        assert_int_equal(model_config_read(dir, &back), OK);
        assert_same(c, back);
    }
    refuse(LIKE("phi3", ", \"sliding_window\": 9, \"layer_types\": [\"full_attention\", \"sliding_attention\"]"),
           "in this family all layers have the sliding_window");

    refuse(LIKE("gemma3_text", ", \"attn_logit_softcapping\": 50.0"), "attn_logit_softcapping is 50.0; only null is supported");
    assert_true(read_text(LIKE("gemma3_text", ", \"final_logit_softcapping\": 30.0")).logit_cap == 30.0);

#define FLAT ", \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 77.0}"
    refuse(LIKE("gemma3_text", FLAT), "they are said of full_attention and sliding_attention apart");
    refuse(LIKE("olmo3", FLAT), "they are said of full_attention and sliding_attention apart");
    refuse(LIKE("olmo3", ", \"rope_parameters\": {\"full_attention\": {\"rope_type\": \"default\", \"rope_theta\": 77.0}, "
                         "\"sliding_attention\": {\"rope_type\": \"default\"}}"),
           "rope_parameters.sliding_attention.rope_theta is missing");
    refuse(LIKE("gemma2", ", \"rope_parameters\": {\"full_attention\": {\"rope_type\": \"default\"}, \"sliding_attention\": "
                          "{\"rope_type\": \"default\", \"rope_theta\": 77.0}}"),
           "layers of this family are of one kind");

#define SCALED(word) ", \"rope_scaling\": {\"" word "\": \"linear\", \"factor\": 2.0}"
    refuse(LIKE("gemma3_text", SCALED("type")), "looks for rope_type and not for type");
    refuse(LIKE("olmo3", SCALED("type")), "looks for rope_type and not for type");
    assert_true(read_text(LIKE("gemma3_text", SCALED("rope_type"))).rope_factor == 2.0);
    assert_true(read_text(LIKE("olmo3", ", \"rope_scaling\": {\"type\": \"default\"}")).rope == ROPE_DEFAULT);

#define PHI3_YARN(original) ", \"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 2.0" original "}"
#define LENGTH ", \"original_max_position_embeddings\": 64"
    refuse(LIKE("phi3", PHI3_YARN(LENGTH)), "must stand beside the section, too: transformers takes 4096 else");
    assert_true(read_text(LIKE("phi3", PHI3_YARN(LENGTH) LENGTH)).rope_original_positions == 64.0);
    assert_true(read_text(LIKE("phi3", ", \"max_position_embeddings\": 16384" PHI3_YARN(""))).rope_original_positions == 4096.0);

#define BY_KIND(full)                                                                \
    ", \"rope_parameters\": {\"full_attention\": {\"rope_theta\": 77.0, " full "}, " \
    "\"sliding_attention\": {\"rope_type\": \"default\", \"rope_theta\": 88.0}}"
#define UNTRUNCATED "\"rope_type\": \"yarn\", \"factor\": 2.0, \"original_max_position_embeddings\": 64, \"truncate\": false"
    refuse(LIKE("olmo3", BY_KIND(UNTRUNCATED)), "transformers truncates in this family, whatever that says");
    refuse(LIKE("gemma3_text", ", \"rope_scaling\": {" UNTRUNCATED "}"),
           "transformers truncates in this family, whatever that says");
    refuse(GEMMA4(BY_KIND("\"rope_type\": \"default\", \"partial_rotary_factor\": 0.5")),
           "looks at it where rope_type is proportional");
    assert_true(read_text(GEMMA4(BY_KIND("\"rope_type\": \"proportional\", \"partial_rotary_factor\": 0.5"))).rope_share == 0.5);

#define NOPE ", \"no_rope_layers\": [1, 0], \"use_sliding_window\": true, \"max_window_layers\": 28"
    struct model_config smollm3 = read_text(LIKE("smollm3", NOPE ", \"sliding_window\": 7"));
    assert_true(smollm3.window == 7 && !model_bit(smollm3.windowed, 0) && model_bit(smollm3.windowed, 1));
    assert_true(read_text(LIKE("smollm3", NOPE)).window == 0);
    struct model_config back, c = read_text(LIKE("olmo3", ", \"rope_theta\": 77.0")); /* windowed layers have another base */
    assert_true(c.rope_theta == 77.0 && c.rope_local_theta == 500000.0);
    assert_int_equal(model_config_write(dir, &c, F32), OK);
    assert_int_equal(model_config_read(dir, &back), OK);
    assert_same(c, back);
}

/* Keys of experts are refused in dense families unless they mean none. */
static void test_experts(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {LIKE("qwen3", ", \"num_experts\": 8, \"decoder_sparse_step\": 1"), "num_experts is 8"},
        {LIKE("qwen3", ", \"decoder_sparse_step\": 1"), "decoder_sparse_step is 1"},
        {LIKE("qwen3", ", \"moe_layers\": [0]"), "moe_layers is [0]; ltrain does not know this key in a model of type qwen3"},
        {LIKE("qwen3", ", \"shared_expert_intermediate_size\": 64"), "shared_expert_intermediate_size is 64"},
        {LIKE("qwen3", ", \"n_routed_experts\": 8"), "n_routed_experts is 8"},
        {LIKE("qwen3", ", \"mlp_only_layers\": [1]"), "mlp_only_layers is [1]"},
        {LLAMA(", \"num_local_experts\": 8"), "num_local_experts is 8"},
        {LLAMA(", \"moe_num_experts\": 8"), "moe_num_experts is 8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuse(cases[i][0], cases[i][1]);
    assert_same(
        read_text(LIKE("qwen3", "")),
        read_text(LIKE("qwen3", ", \"num_experts\": 0, \"decoder_sparse_step\": null, \"moe_layers\": [], "
                                "\"mlp_only_layers\": [], \"shared_expert_intermediate_size\": 0, \"num_local_experts\": 0, "
                                "\"n_routed_experts\": null")));
}

static void test_own(void **state)
{
    (void)state;
    struct model_config c = read_text(GEMMA4(", \"num_global_key_value_heads\": 1, \"attention_k_eq_v\": true, \"head_dim\": 8")),
                        back;
    assert_true(c.window == 512 && c.k_is_v && c.rope == ROPE_PROPORTIONAL && c.rope_local_theta == 10000 && c.rope_theta == 1e6);
    for (int l = 0; l < 7; l++) { /* every sixth layer, and the last */
        const struct layer_config *own = &c.own[c.own_of[l]];
        const int full = l == 5 || l == 6;
        assert_true(model_bit(c.windowed, l) == !full && own->head_dim == (full ? 512 : 0) && own->kv_heads == (full ? 1 : 0));
    }
    assert_int_equal(model_config_write(dir, &c, F32), OK);
    assert_int_equal(model_config_read(dir, &back), OK);
    assert_same(c, back);
    c = read_text(GEMMA4(", \"num_global_key_value_heads\": 1")); /* this key counts only if keys are used as values */
    assert_true(c.own[c.own_of[6]].kv_heads == 0 && c.own[c.own_of[6]].head_dim == 512);
    c = read_text(GEMMA4(", \"per_layer_config\": {\"05\": {\"head_dim\": 128}}, \"global_head_dim\": 64"));
    assert_true(c.own[c.own_of[5]].head_dim == 128 && c.own_of[6] == 0);
    refuse(LIKE("gemma4_text", ""), "hidden_size_per_layer_input is null; embeddings for each layer");
    refuse(GEMMA4(", \"num_kv_shared_layers\": 2"), "num_kv_shared_layers is 2; layers that attend other layers' keys");
    refuse(GEMMA4(", \"enable_moe_block\": true"), "num_experts");
    refuse(GEMMA4(", \"enable_moe_block\": true, \"num_experts\": 4"), "top_k_experts");
    refuse(GEMMA4(", \"rope_parameters\": {}"), "rope_parameters is {}");
    c = read_text(LIKE("qwen3",
                       FULL_SLIDES ", \"per_layer_config\": {\"1\": {\"num_attention_heads\": 2, \"num_key_value_heads\": 1, "
                                   "\"head_dim\": 64, \"sliding_window\": 9}, \"0\": {\"sliding_window\": null}}"));
    assert_true(c.own_of[0] == 2 && c.own_of[1] == 1 && c.own[2].window == -1);
    assert_memory_equal(&c.own[1], (&(struct layer_config){2, 1, 64, 9}), sizeof c.own[1]);
    assert_int_equal(model_config_write(dir, &c, F32), OK);
    assert_int_equal(model_config_read(dir, &back), OK);
    back.own_of[0] = 2, back.own_of[1] = 1; /* numbers follow the order in the file, which is now the order of layers */
    back.own[1] = c.own[1], back.own[2] = c.own[2];
    assert_same(c, back);
    refuse(LIKE("qwen3", FULL_SLIDES ", \"per_layer_config\": {\"0\": {\"sliding_window\": 9}}"),
           "layer 0 is not one of layer_types' sliding_attention and has no sliding_window");
    refuse(LIKE("qwen3", FULL_SLIDES ", \"per_layer_config\": {\"1\": {\"sliding_window\": null}}"),
           "layer 1 is one of sliding_attention and needs a sliding_window");
    refuse(LLAMA(", \"per_layer_config\": {\"1\": {\"sliding_window\": 9}}"),
           "layer 1 is not one of layer_types' sliding_attention");
    refuse(LLAMA(", \"per_layer_config\": {\"2\": {}}"), "its keys must be numbers of layers");
    refuse(LLAMA(", \"per_layer_config\": {\"1\": {\"intermediate_size\": 8}}"), "per_layer_config.1.intermediate_size is 8");
    refuse(LLAMA(", \"per_layer_config\": [1]"), "per_layer_config is [1]");
}

static void test_faults(void **state)
{
    (void)state;
    struct model_config c, back;
    model_preset("1b", &c);
    static const enum sys_call calls[] = {SYS_OPEN, SYS_PWRITE, SYS_FSYNC, SYS_CLOSE};
    for (int i = 0; i < 4; i++) {
        sys_inject(calls[i], 1, EIO);
        assert_int_equal(model_config_write(dir, &c, F32), ERR_IO);
    }
    sys_inject(SYS_PWRITE, 1, SYS_SHORT);
    assert_int_equal(model_config_write(dir, &c, F32), OK);
    sys_inject(SYS_PREAD, 1, SYS_SHORT);
    assert_int_equal(model_config_read(dir, &back), OK);
    assert_same(c, back);
    sys_inject(SYS_PREAD, 1, EIO);
    assert_int_equal(model_config_read(dir, &back), ERR_IO);
    sys_inject(SYS_MALLOC, 1, ENOMEM);
    assert_int_equal(model_config_read(dir, &back), ERR_NOMEM);
    sys_inject_clear();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_rope_spellings),
        cmocka_unit_test(test_gpt_oss),
        cmocka_unit_test(test_rotated_whole),
        cmocka_unit_test(test_qwen3_5),
        cmocka_unit_test(test_later_families),
        cmocka_unit_test(test_other_families),
        cmocka_unit_test(test_falcon),
        cmocka_unit_test(test_near_gpt2),
        cmocka_unit_test(test_opt),
        cmocka_unit_test(test_phi),
        cmocka_unit_test(test_factors_and_norms),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_unsupported),
        cmocka_unit_test(test_differences),
        cmocka_unit_test(test_ignored_keys),
        cmocka_unit_test(test_written_like),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_parallel_families),
        cmocka_unit_test(test_positions_of_other_scalings),
        cmocka_unit_test(test_wrapped),
        cmocka_unit_test(test_own),
        cmocka_unit_test(test_as_transformers),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_experts_read),
        cmocka_unit_test(test_experts_refused),
    };
    return cmocka_run_group_tests(tests, create_dir, remove_dir);
}
