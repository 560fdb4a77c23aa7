/* Configurations of models with recurrent layers, and of those with latent attention: published ones have the parameters that transformers counts; files have the
 * tensors that the model names; nonsense is refused with a sentence. */
#include "data/safetensors.h"
#include "model/model.h"
#include "model/tensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include <jansson.h>
#include <math.h>

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

static void source(const char *under, const char *name, char out[512])
{
    snprintf(out, 512, "%s/tests/%s/%s", getenv("LTRAIN_SOURCE_ROOT"), under, name);
}

static struct model *create(const struct model_config *c)
{
    struct model *m;
    if (model_create(c, NULL, 0, &m) != OK)
        fail_msg("%s", status_message());
    return m;
}

static struct model_config read_config(const char *from)
{
    struct model_config c;
    if (model_config_read(from, &c) != OK)
        fail_msg("%s", status_message());
    return c;
}

/* Published models: parameters of the text model as transformers 5.24 counts them, and layers with a recurrence. */
static const struct published {
    const char *name;
    int64_t total;
    int recurrent;
} published[] = {
    {"hybrid/Qwen3.5-0.8B", 752393024, 18},
    {"hybrid/Qwen3.5-2B", 1881825088, 18},
    {"hybrid/Qwen3.5-4B", 4205751296, 24},
    {"hybrid/Qwen3.5-9B", 8953803264, 24},
    {"hybrid/Qwen3.5-27B", 26895998464, 48},
    {"hybrid/Qwen3.6-27B", 26895998464, 48},
    {"hybrid/Qwen3.5-35B-A3B", 34660610688, 30},
    {"hybrid/Qwen3.6-35B-A3B", 34660610688, 30},
    {"hybrid/Qwen3.5-122B-A10B", 122111526912, 36},
    {"hybrid/Qwen3.5-397B-A17B", 396346350336, 45},
    {"hybrid/Qwen3-Next-80B-A3B-Instruct", 79674391296, 36},
    {"hybrid/granite-4.0-h-micro", 3191396096, 36},
    {"hybrid/granite-4.0-h-tiny", 6939037248, 36},
    {"hybrid/granite-4.0-h-small", 32207337984, 36},
    {"hybrid/granite-4.0-micro", 3402836480, 0},
    {"hybrid/LFM2-350M", 354483968, 10},
    {"hybrid/LFM2-700M", 742489344, 10},
    {"hybrid/LFM2-1.2B", 1170340608, 10},
    {"hybrid/LFM2-8B-A1B", 8339930560, 18},
    {"hybrid/Bamba-9B-v2", 9780235392, 29},
    {"hybrid/Nemotron-H-8B-Base-8K", 8100852736, 24},
    {"hybrid/Nemotron-H-4B-Base-8K", 4489223040, 24},
    {"hybrid/NVIDIA-Nemotron-Nano-9B-v2", 8888227328, 27},
    {"hybrid/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 31577940288, 23},
    {"hybrid/Olmo-Hybrid-7B", 7430870688, 24},
    {"hybrid/Falcon-H1-0.5B-Base", 521411104, 36},
    {"hybrid/Falcon-H1-7B-Base", 7585513568, 44},
    {"hybrid/Kimi-Linear-48B-A3B-Instruct", 49122681728, 20},
    {"hybrid/MiniMax-Text-01-hf", 456089655296, 70},
    {"hybrid/MiniMax-M1-80k", 456089655296, 70},
    {"latent/Youtu-LLM-2B", 1961560064, 0},
    {"latent/MiniCPM3-4B", 4073875968, 0},
    {"latent/DeepSeek-V2-Lite", 15706484224, 0},
    {"latent/DeepSeek-V2", 235741434880, 0},
    {"latent/Moonlight-16B-A3B", 15960110208, 0},
    {"latent/GLM-4.7-Flash", 29943393920, 0},
    {"latent/DeepSeek-V3", 671026419200, 0},
    {"latent/Kimi-K2-Instruct", 1026408232448, 0},
};

static int recurrent_layers(const struct model *m)
{
    int n = 0;
    for (int64_t l = 0; l < m->config.layers; l++)
        n += model_find_block(&m->layers[l], BLOCK_RECURRENT) || model_find_block(&m->layers[l], BLOCK_CONV);
    return n;
}

/* Returns how many kinds of layers a published model has. */
static int kinds_of(const struct model_config *c, int recurrent)
{
    if (c->family == FAMILY_FALCON_H1)
        return 1;
    return 1 + (recurrent > 0) + (c->family == FAMILY_NEMOTRON_H || c->family == FAMILY_LFM2_MOE);
}

static void published_models_have_their_parameters(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        char from[512];
        source("model", published[i].name, from);
        const struct model_config c = read_config(from);
        struct model *m = create(&c);
        if (m->total_params != published[i].total || recurrent_layers(m) != published[i].recurrent || c.unknown[0])
            fail_msg("%s: %lld of %lld parameters, %d of %d layers, unknown: %s", published[i].name, (long long)m->total_params,
                     (long long)published[i].total, recurrent_layers(m), published[i].recurrent, c.unknown);
        const int dense = c.kv_latent > 0 && c.experts > 0; /* some layers behind the same attention */
        assert_int_equal(m->n_kinds, kinds_of(&c, published[i].recurrent) + dense);
        model_destroy(m);
    }
}

/* Golden models, as transformers saved them. */
static const char *const golden[] = {"hybrid/qwen3_5",         "hybrid/qwen3_5_moe",     "hybrid/qwen3_next",
                                     "hybrid/granite",         "hybrid/granite-moe",     "hybrid/bamba",
                                     "hybrid/nemotron-h",      "hybrid/nemotron-moe",    "hybrid/lfm2",
                                     "hybrid/lfm2-moe",        "hybrid/olmo-hybrid",     "hybrid/falcon-h1",
                                     "hybrid/falcon-h1-after", "hybrid/falcon-h1-plain", "latent/youtu",
                                     "latent/minicpm3",        "latent/deepseek-v2",     "latent/deepseek-v3",
                                     "latent/glm4-moe-lite",   "hybrid/kimi-linear",     "latent/deepseek-v2-groups",
                                     "hybrid/nemotron-latent"};

/* Makes sure that the file has the parameter's tensors in their shapes; returns their number. */
static int check_tensors(struct st_file *f, const struct model_param *p)
{
    const int n = (int)model_param_tensors(p);
    for (int i = 0; i < n; i++) {
        struct param_tensor t;
        struct st_info info;
        model_param_tensor(p, i, &t);
        if (st_find(f, t.name, &info) != OK)
            fail_msg("%s", status_message());
        if (info.n_dims != t.n_dims || memcmp(info.shape, t.shape, (size_t)t.n_dims * sizeof *t.shape) != 0)
            fail_msg("%s has another shape", t.name);
    }
    return n;
}

static void files_have_the_tensors_that_the_model_names(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++) {
        char from[512];
        struct st_file *f;
        int tensors = 0;
        source("golden", golden[i], from);
        const struct model_config c = read_config(from);
        struct model *m = create(&c);
        if (st_open(from, &f) != OK)
            fail_msg("%s", status_message());
        for (int k = 0; k < m->n_params; k++)
            tensors += check_tensors(f, &m->params[k]);
        assert_int_equal(tensors, st_count(f));
        st_close(f);
        model_destroy(m);
    }
}

static void configurations_are_written_and_read_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        char from[512], difference[128];
        source("model", published[i].name, from);
        const struct model_config c = read_config(from);
        assert_int_equal(model_config_write(dir, &c, BF16), OK);
        const struct model_config back = read_config(dir);
        if (model_config_differs(&back, &c, difference, sizeof difference))
            fail_msg("%s: %s", published[i].name, difference);
        struct model *m = create(&back);
        assert_int_equal(m->total_params, published[i].total);
        model_destroy(m);
    }
}

static struct model_config tiny_of(const char *name)
{
    char from[512];
    source("golden/hybrid", name, from);
    return read_config(from);
}

/* Layers of MiniMax have the decays of their places, the published part of a head is rotated, and sums are divided by alpha. */
static void lightning_attention_is_as_published(void **state)
{
    static const char *const names[] = {"model/hybrid/MiniMax-Text-01-hf", "model/hybrid/MiniMax-M1-80k"};
    const double alpha = 3.5565588200778455;
    (void)state;
    for (int i = 0; i < 2; i++) {
        char from[512];
        snprintf(from, sizeof from, "%s/tests/%s", getenv("LTRAIN_SOURCE_ROOT"), names[i]);
        const struct model_config c = read_config(from);
        struct model *m = create(&c);
        const struct model_block *first = m->layers[0].blocks, *last = m->layers[78].blocks, *full = m->layers[7].blocks;
        assert_true(c.rope_share == 0.5 && full->kind == BLOCK_ATTENTION && last->kind == BLOCK_RECURRENT);
        assert_true(fabs((double)first->recurrent.rate - 1.00001) < 1e-6 && fabs((double)last->recurrent.rate - 1.0 / 79) < 1e-4);
        assert_true(first->norm.eps == 1e-5f && fabs((double)last->norm.eps * alpha * alpha - 1e-5) < 1e-11);
        assert_true(fabs((double)full->attention.o.factor * alpha - 1) < 1e-6 && first[0].on_norm && first[1].on_norm);
        model_destroy(m);
    }
}

static struct model_config tiny(void)
{
    return tiny_of("qwen3_5");
}

static const struct model_param *find(const struct model *m, const char *name)
{
    for (int i = 0; i < m->n_params; i++)
        if (strcmp(m->params[i].name, name) == 0)
            return &m->params[i];
    fail_msg("no parameter %s", name);
    return NULL;
}

static const char *const small[] = {"model.layers.0.linear_attn.conv1d.weight", "model.layers.0.linear_attn.A_log",
                                    "model.layers.0.linear_attn.dt_bias", "model.layers.0.linear_attn.norm.weight"};

/* Convolutions, decays and norms get no weight decay, no adapter and no quantisation; the maps around them get all three. */
static void convolutions_and_decays_are_no_maps(void **state)
{
    (void)state;
    struct model_config c = tiny();
    struct model *m = create(&c);
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        const struct model_param *p = find(m, small[i]);
        assert_true(p->offset >= m->units[p->unit].decay_elements && !model_multiplies_tokens(m, (int)(p - m->params)));
    }
    assert_true(find(m, "model.layers.0.linear_attn.in_proj_a.weight")->offset < m->units[1].decay_elements);
    model_destroy(m);
    c.lora = (struct lora){.rank = 2, .alpha = 4, .targets = "all-linear"};
    c.base = BASE_NF4;
    m = create(&c);
    for (size_t i = 0; i < sizeof small / sizeof *small; i++)
        assert_true(find(m, small[i])->packed_bytes == 0 && !find(m, small[i])->trained);
    static const char *const maps[] = {"in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj"};
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
        char name[96];
        snprintf(name, sizeof name, "model.layers.0.linear_attn.%s.lora_A.weight", maps[i]);
        assert_true(find(m, name)->trained);
        snprintf(name, sizeof name, "model.layers.0.linear_attn.%s.weight", maps[i]);
        assert_true(find(m, name)->packed_bytes > 0);
    }
    model_destroy(m);
}

/* The same of Mamba-2 mixers. PEFT's all-linear takes their last map in some families only, and refuses it by name in the others. */
static void mixers_have_adapters_as_in_peft(void **state)
{
    (void)state;
    static const struct {
        const char *name, *mixer;
        int last;
    } all[] = {{"granite", "mamba", 1},
               {"bamba", "mamba", 1},
               {"nemotron-h", "mixer", 0},
               {"nemotron-moe", "mixer", 0},
               {"falcon-h1", "mamba", 0}};
    static const char *const vectors[] = {"conv1d.weight", "conv1d.bias", "A_log", "dt_bias", "D", "norm.weight"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char name[96];
        struct model_config c = tiny_of(all[i].name);
        c.lora = (struct lora){.rank = 2, .alpha = 4, .targets = "all-linear"};
        struct model *whole, *m = create(&c);
        c.lora = (struct lora){.rank = 0};
        whole = create(&c);
        for (size_t k = 0; k < sizeof vectors / sizeof *vectors; k++) {
            snprintf(name, sizeof name, "model.layers.0.%s.%s", all[i].mixer, vectors[k]);
            assert_true(find(whole, name)->offset >= whole->units[1].decay_elements && !find(m, name)->trained);
        }
        snprintf(name, sizeof name, "model.layers.0.%s.in_proj.lora_A.weight", all[i].mixer);
        assert_true(find(m, name)->trained);
        assert_int_equal(model_find_block(&m->layers[0], BLOCK_RECURRENT)->recurrent.out.rank, all[i].last ? 2 : 0);
        assert_int_equal(model_check_adapters(m), OK);
        model_destroy(m);
        model_destroy(whole);
        c.lora = (struct lora){.rank = 2, .alpha = 4, .targets = "in_proj,out_proj"};
        m = create(&c);
        assert_int_equal(model_check_adapters(m), all[i].last ? OK : ERR_INVALID);
        if (!all[i].last)
            assert_non_null(strstr(status_message(), " PEFT gives out_proj no adapter"));
        model_destroy(m);
    }
}

/* A recurrence costs 18 K V H FLOPs a token beside its matrices, whatever the length. */
static void recurrences_are_counted(void **state)
{
    (void)state;
    struct model_config c = tiny();
    struct model *m = create(&c);
    double pairs[MODEL_MASKS] = {0};
    const double matrices = 6.0 * (double)m->matrix_params * 100, scans = 2 * 18.0 * 8 * 16 * 4 * 100;
    assert_true(model_flops(m, 100, pairs) == matrices + scans);
    model_destroy(m);
    c = tiny_of("bamba"); /* without the strengths of the delta rule: 12 */
    m = create(&c);
    assert_true(model_flops(m, 100, pairs) == 6.0 * (double)m->matrix_params * 100 + 12.0 * 8 * 8 * 4 * 100);
    model_destroy(m);
}

/* Tensors of images and of layers that predict further tokens lie outside the model, wrapped or not. */
static void other_tensors_lie_outside(void **state)
{
    (void)state;
    struct model_config c = tiny();
    assert_true(tensor_is_further(&c, "mtp.fc.weight") && !tensor_is_further(&c, "model.layers.0.mlp.up_proj.weight"));
    assert_false(model_is_wrapped_name("model.visual.blocks.0.norm1.weight") || model_is_wrapped_name("mtp.fc.weight"));
    assert_true(model_is_wrapped_name("model.language_model.layers.0.linear_attn.conv1d.weight"));
}

/* Refuses one value of a key of a golden model. text: the value as JSON; part: what the sentence says. */
static void refuse_of(const char *model, const char *key, const char *text, const char *part)
{
    char name[80];
    char from[512];
    json_error_t error;
    struct model_config c;
    struct model *m;
    snprintf(name, sizeof name, "%s%s/config.json", strchr(model, '/') ? "" : "hybrid/", model);
    source("golden", name, from);
    json_t *root = json_load_file(from, 0, &error);
    assert_non_null(root);
    json_object_set_new(root, key, json_loads(text, JSON_DECODE_ANY, NULL));
    assert_int_equal(json_dump_file(root, path, 0), 0);
    json_decref(root);
    enum status st = model_config_read(dir, &c);
    if (st == OK && (st = model_create(&c, NULL, 0, &m)) == OK)
        model_destroy(m);
    if (st != ERR_INVALID || !strstr(status_message(), part))
        fail_msg("%s %s: '%s' does not say '%s'", key, text, st == OK ? "" : status_message(), part);
}

static void refuse(const char *key, const char *text, const char *part)
{
    refuse_of("qwen3_5", key, text, part);
}

/* Weights of a convolution that files have as several tensors are frozen together. */
static void parts_of_a_convolution_are_frozen_together(void **state)
{
    (void)state;
    const struct model_config c = tiny_of("olmo-hybrid");
    const char *const one[] = {"*k_conv1d*"}, *const all[] = {"*_conv1d*"};
    struct model *m;
    assert_int_equal(model_create(&c, one, 1, &m), ERR_INVALID);
    assert_non_null(strstr(status_message(), "is a part of a convolution with others of its layer: freeze all or none"));
    assert_int_equal(model_create(&c, all, 1, &m), OK);
    model_destroy(m);
}

static void nonsense_of_mixers_is_refused(void **state)
{
    (void)state;
    refuse_of("granite", "mamba_d_head", "16", "must be \"auto\", or mamba_expand times hidden_size by mamba_n_heads");
    refuse_of("granite", "mamba_n_heads", "3", "must be a multiple of mamba_n_heads");
    refuse_of("granite", "mamba_n_groups", "3", "4 recurrent heads cannot share 3 key heads, must be a multiple");
    refuse_of("granite", "time_step_limit", "[0.0, 1.0]", "supported: a least step, and infinity as the largest one");
    refuse_of("granite", "normalization_function", "\"layernorm\"", "supported: rmsnorm");
    refuse_of("granite", "position_embedding_type", "\"alibi\"", "supported: rope, nope");
    refuse_of("granite", "layer_types", "[\"conv\", \"mamba\", \"attention\"]", "supported: full_attention, linear_attention");
    refuse_of("bamba", "attn_layer_indices", "[2]", "its entries must be numbers of layers, from 0 on");
    refuse_of("bamba", "z_loss_coefficient", "0.1", "z_loss_coefficient is 0.1");
    refuse_of("lfm2", "layer_types", "[\"conv\", \"conv\", \"mamba\"]", "supported: full_attention, conv");
    refuse_of("lfm2", "block_use_swiglu", "false", "block_use_swiglu is false");
    refuse_of("lfm2", "conv_L_cache", "9", "width of the convolution is 9, must be 1 to 8");
    refuse_of("nemotron-h", "layers_block_type", "[\"mlp\", \"conv\"]", "supported: linear_attention, full_attention, mlp, moe");
    refuse_of("nemotron-moe", "n_routed_experts", "0", "some layers have experts");
    refuse_of("nemotron-moe", "moe_latent_size", "0", "must be a positive whole number");
    refuse_of("nemotron-moe", "mlp_bias", "true", "in models with experts only false is supported");
    refuse_of("lfm2-moe", "use_expert_bias", "false", "use_expert_bias is false");
    refuse_of("olmo-hybrid", "rope_parameters", "null", "releases of transformers read it differently");
    refuse_of("olmo-hybrid", "linear_num_value_heads", "3", "3 recurrent heads cannot share 2 key heads, must be a multiple");
    refuse_of("falcon-h1", "mamba_d_ssm", "30", "must be a multiple of mamba_n_heads");
    refuse_of("falcon-h1", "mamba_d_head", "16", "must be \"auto\", or mamba_d_ssm by mamba_n_heads");
    refuse_of("falcon-h1", "ssm_multipliers", "[1.0, 2.0]", "must be a list of positive numbers, one for each part");
    refuse_of("falcon-h1", "mlp_multipliers", "[1.0, -2.0]", "must be a list of positive numbers, one for each part");
    refuse_of("falcon-h1", "ssm_out_multiplier", "0.0", "must be a positive number");
    refuse_of("falcon-h1", "mamba_proj_bias", "true", "mamba_proj_bias is true");
    refuse_of("nemotron-h", "tie_word_embeddings", "true", "tie_word_embeddings is true");
    refuse_of("nemotron-h", "attention_head_dim", "16", "attention_head_dim is 16");
    refuse_of("nemotron-h", "mlp_hidden_act", "\"silu\"", "supported: relu2");
}

/* Reads a golden model with latent attention. */
static struct model_config latent(const char *name)
{
    char from[512];
    source("golden/latent", name, from);
    return read_config(from);
}

/* Heads have a part of their own and one that is rotated; yarn's factor belongs to scores; norms of latents have an epsilon of
 * their own; adapters go to all maps. */
static void latents_are_described(void **state)
{
    (void)state;
    struct model_config c = latent("deepseek-v2");
    struct model *m = create(&c);
    const struct attention_block *a = model_attention(m, 1);
    const struct attention_shape *s = &m->shapes[a->shape];
    assert_true(s->head_dim == 20 && s->value_dim == 10 && s->rotated == 8 && s->kv_latent == 14 && s->q_latent == 0);
    assert_true(a->q_a.weight < 0 && a->k.weight == a->v.weight && a->k.out == 24 && a->v.first_out == 24 && a->v.out == 20);
    assert_true(a->kv_a_norm.eps == 1e-6f && m->ropes[a->rope].head_dim == 8);
    const double yarn = 1 + 0.1 * 0.5 * log(4.0);
    assert_true(fabs((double)a->scale - yarn * yarn / sqrt(20.0)) < 1e-7);
    assert_true(fabs(model_rope_attention(m, a->rope) - (1 + 0.1 * 0.707 * log(4.0)) / yarn) < 1e-12);
    double pairs[MODEL_MASKS] = {1000};
    assert_true(model_flops(m, 10, pairs) == 6.0 * (double)m->matrix_params * 10 + 6.0 * 2 * 2 * (20 + 10) * 1000);
    const struct model_block *b = model_find_block(&m->layers[1], BLOCK_ATTENTION);
    assert_int_equal(block_kept_bytes(m, b, 2), 2 * (10 * 2 + 4) + (14 + 8) * 2);
    assert_int_equal(block_saved(m, b), 0);
    model_destroy(m);
    c = latent("youtu");
    c.lora = (struct lora){.rank = 2, .alpha = 4, .targets = "all-linear"};
    m = create(&c);
    static const char *const maps[] = {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"};
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
        char name[96];
        snprintf(name, sizeof name, "model.layers.0.self_attn.%s.lora_A.weight", maps[i]);
        assert_true(find(m, name)->trained);
    }
    model_destroy(m);
    c = latent("minicpm3");
    assert_true(fabs(c.residual_scale - 1.4 / sqrt(2.0)) < 1e-15 && c.embedding_scale == 3.0 && c.logit_scale == 0.5);
}

static void nonsense_of_latents_is_refused(void **state)
{
    (void)state;
    refuse_of("latent/youtu", "kv_lora_rank", "0", "kv_lora_rank is 0");
    refuse_of("latent/youtu", "qk_rope_head_dim", "7", "qk_head_dim is 20");
    refuse_of("latent/youtu", "qk_nope_head_dim", "null", "qk_nope_head_dim is missing");
    refuse_of("latent/youtu", "num_key_value_heads", "1",
              "latent attention with 2 heads has 1 key-value heads, must have as many");
    refuse_of("latent/youtu", "head_dim", "9", "in this family it is qk_rope_head_dim");
    refuse_of("latent/youtu", "v_head_dim", "513", "head size is 513, and attention takes at most 512");
    refuse_of("latent/deepseek-v2", "topk_method", "\"noaux_tc\"", "supported: greedy, group_limited_greedy");
    refuse_of("latent/deepseek-v2", "topk_method", "\"group_limited_greedy\"", "n_group is missing");
    refuse_of("latent/deepseek-v2-groups", "topk_group", "4", "9 experts cannot be chosen from 4 of 3 groups");
    refuse_of("latent/deepseek-v2-groups", "n_group", "9", "groups are equal, of two experts or more");
    refuse_of("latent/deepseek-v2", "norm_topk_prob", "true", "norm_topk_prob is true");
    refuse_of("latent/deepseek-v3", "n_group", "4", "groups are equal");
    refuse_of("latent/minicpm3", "mlp_bias", "true", "mlp_bias is true");
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    refuse("linear_num_value_heads", "5", "5 recurrent heads cannot share 2 key heads, must be a multiple");
    refuse("linear_num_value_heads", "0", "linear_num_value_heads is 0");
    refuse("linear_num_value_heads", "1025", "number of recurrent heads is 1025, must be 1 to 1024");
    refuse("linear_key_head_dim", "257", "size of a recurrent key is 257, must be 1 to 256");
    refuse("linear_value_head_dim", "-1", "linear_value_head_dim is -1");
    refuse("linear_conv_kernel_dim", "9", "width of the convolution is 9, must be 1 to 8");
    refuse("layer_types", "[\"full_attention\", \"mamba\", \"linear_attention\"]", "supported: full_attention, linear_attention");
    refuse("layer_types", "[\"linear_attention\"]", "must be a list with an entry for each of num_hidden_layers");
    refuse("mamba_ssm_dtype", "\"bfloat16\"", "mamba_ssm_dtype is \"bfloat16\"; supported: float32");
    refuse("output_gate_type", "\"sigmoid\"", "output_gate_type is \"sigmoid\"; supported: swish");
    refuse("full_attention_interval", "0", "full_attention_interval is 0");
}

/* Models without positions take no rotary options, and their files keep the keys that they have. */
static void models_without_positions_take_none(void **state)
{
    static const char *const names[] = {"nemotron-h", "granite", "kimi-linear"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char from[512], under[64];
        snprintf(under, sizeof under, "hybrid/%s", names[i]);
        source("golden", under, from);
        struct model_config c = read_config(from);
        assert_false(model_rotates(&c));
        assert_int_equal(model_config_set_rope(&c, NULL, 5e5), ERR_INVALID);
        assert_non_null(strstr(status_message(), "--rope-base: model "));
        assert_int_equal(model_config_set_rope(&c, "yarn:2", 0), ERR_INVALID);
        assert_int_equal(model_config_write_like(dir, from, &c, BF16), OK);
        json_t *written = json_load_file(path, 0, NULL);
        assert_non_null(written);
        assert_null(json_object_get(written, "rope_scaling"));
        json_decref(written);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(models_without_positions_take_none),
                                       cmocka_unit_test(published_models_have_their_parameters),
                                       cmocka_unit_test(files_have_the_tensors_that_the_model_names),
                                       cmocka_unit_test(lightning_attention_is_as_published),
                                       cmocka_unit_test(configurations_are_written_and_read_back),
                                       cmocka_unit_test(convolutions_and_decays_are_no_maps),
                                       cmocka_unit_test(mixers_have_adapters_as_in_peft),
                                       cmocka_unit_test(parts_of_a_convolution_are_frozen_together),
                                       cmocka_unit_test(nonsense_of_mixers_is_refused),
                                       cmocka_unit_test(latents_are_described),
                                       cmocka_unit_test(nonsense_of_latents_is_refused),
                                       cmocka_unit_test(recurrences_are_counted),
                                       cmocka_unit_test(other_tensors_lie_outside),
                                       cmocka_unit_test(nonsense_is_refused)};
    return cmocka_run_group_tests(tests, create_dir, remove_dir);
}
