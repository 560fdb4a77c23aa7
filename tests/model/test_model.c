/* Tests presets, graph, freezing, initial values and rotary frequencies. */
#include "model/block_rows.h"
#include "model/model.h"

#include "base/sys.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static struct model *create(const char *preset)
{
    struct model_config c;
    struct model *m = NULL;
    assert_int_equal(model_preset(preset, &c), OK);
    assert_int_equal(model_create(&c, NULL, 0, &m), OK);
    return m;
}

static int param(const struct model *m, const char *name)
{
    for (int i = 0; i < m->n_params; i++)
        if (strcmp(m->params[i].name, name) == 0)
            return i;
    fail_msg("no parameter %s", name);
    return -1;
}

static const struct model_block *attention_of(const struct model *m, int layer)
{
    return model_find_block(&m->layers[layer], BLOCK_ATTENTION);
}

static const struct model_block *mlp_of(const struct model *m, int layer)
{
    return model_find_block(&m->layers[layer], BLOCK_MLP);
}

/* Checks that offsets tile each unit, groups come in order, and totals agree. */
static void check_tiling(const struct model *m)
{
    int64_t total = 0;
    int next = 0;
    for (int u = 0; u < m->n_units; u++) {
        const struct model_unit *unit = &m->units[u];
        int64_t at = 0, trained = 0, decay = 0;
        int last_group = 0;
        assert_int_equal(unit->first_param, next);
        for (int i = next; i < next + unit->n_params; i++) {
            const struct model_param *p = &m->params[i];
            int group = p->packed_bytes > 0 ? 4 : (p->trained ? 0 : 2) + (p->shape[1] == 0);
            assert_int_equal(p->unit, u);
            assert_true(p->offset == at);
            assert_true(p->elements <= model_param_stored(p));
            assert_true(p->elements == model_param_stored(p) || i == m->pos_embed || p->packed_bytes > 0);
            assert_true(group >= last_group);
            last_group = group;
            at += p->elements;
            trained += p->trained ? p->elements : 0;
            decay += group == 0 ? p->elements : 0;
        }
        assert_true(at == unit->elements && trained == unit->trained_elements && decay == unit->decay_elements);
        next += unit->n_params;
    }
    for (int i = 0; i < m->n_params; i++)
        total += m->params[i].shape[0] * max_i64(1, m->params[i].shape[1]);
    assert_int_equal(next, m->n_params);
    assert_true(total == m->total_params);
}

static void test_presets(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t total;
    } known[] = {{"gpt2-125m", 124439808},
                 {"8b", 8030261248},
                 {"1b", 1235814400},
                 {"tiny", 256 * 64 + 2 * (4 * 64 * 64 + 3 * 64 * 256 + 2 * 64) + 64},
                 {"25m", 8192 * 512 + 8 * (2 * 512 * 512 + 2 * 128 * 512 + 3 * 512 * 1408 + 2 * 512) + 512},
                 {"125m", 0},
                 {"gpt2-tiny", 0},
                 {"gpt-25b", 0},
                 {"moe-20m", 8192 * 256 + 4 * (4 * 256 * 256 + 32 * 3 * 256 * 192 + 32 * 256 + 4 * 256) + 256}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        struct model *m = create(known[i].name);
        check_tiling(m);
        if (known[i].total)
            assert_true(m->total_params == known[i].total);
        assert_true(m->config.vocab >= 256);
        assert_string_equal(m->config.name, known[i].name);
        assert_true(model_is_preset(known[i].name));
        model_destroy(m);
    }
    struct model_config c;
    assert_false(model_is_preset("1B "));
    assert_int_equal(model_preset("gpt2-125", &c), ERR_INVALID);
    assert_non_null(strstr(status_message(), "did you mean gpt2-125m?"));
    assert_int_equal(model_preset("a name that is much longer than any preset's name, to see that nothing overflows", &c),
                     ERR_INVALID);
    assert_non_null(strstr(status_message(), "tiny, 25m, 125m, 1b, 8b, gpt2-tiny, gpt2-125m, gpt-25b, moe-20m"));
    assert_null(strstr(status_message(), "did you mean"));
}

static void check_linear(const struct model *m, struct model_linear y, const char *weight, const char *bias, int64_t in,
                         int64_t out, int64_t first)
{
    assert_string_equal(m->params[y.weight].name, weight);
    if (bias)
        assert_string_equal(m->params[y.bias].name, bias);
    else
        assert_int_equal(y.bias, -1);
    assert_true(y.in == in && y.out == out && y.first_out == first);
    assert_true(y.ld == m->params[y.weight].shape[1]);
    assert_true(m->params[y.weight].shape[y.transposed ? 1 : 0] == in);
}

static void test_llama_names(void **state)
{
    (void)state;
    struct model *m = create("25m");
    const struct model_block *attention = attention_of(m, 3);
    const struct model_block *mlp = mlp_of(m, 3);
    check_linear(m, attention->attention.q, "model.layers.3.self_attn.q_proj.weight", NULL, 512, 512, 0);
    check_linear(m, attention->attention.k, "model.layers.3.self_attn.k_proj.weight", NULL, 512, 128, 0);
    check_linear(m, attention->attention.v, "model.layers.3.self_attn.v_proj.weight", NULL, 512, 128, 0);
    check_linear(m, attention->attention.o, "model.layers.3.self_attn.o_proj.weight", NULL, 512, 512, 0);
    check_linear(m, mlp->mlp.gate, "model.layers.3.mlp.gate_proj.weight", NULL, 512, 1408, 0);
    check_linear(m, mlp->mlp.up, "model.layers.3.mlp.up_proj.weight", NULL, 512, 1408, 0);
    check_linear(m, mlp->mlp.down, "model.layers.3.mlp.down_proj.weight", NULL, 1408, 512, 0);
    check_linear(m, m->head, "model.embed_tokens.weight", NULL, 512, 8192, 0);
    assert_int_equal(m->layers[3].n_blocks, 2);
    assert_ptr_equal(attention, &m->layers[3].blocks[0]);
    assert_true(attention->norm.kind == NORM_RMS && mlp->norm.kind == NORM_RMS && m->final_norm.kind == NORM_RMS);
    assert_int_equal(attention->norm.weight, param(m, "model.layers.3.input_layernorm.weight"));
    assert_int_equal(mlp->norm.weight, param(m, "model.layers.3.post_attention_layernorm.weight"));
    assert_int_equal(m->final_norm.weight, param(m, "model.norm.weight"));
    assert_int_equal(m->params[m->final_norm.weight].unit, 9);
    assert_int_equal(m->pos_embed, -1);
    int64_t matrices = 8 * (2 * 512 * 512 + 2 * 128 * 512 + 3 * 512 * 1408) + 8192 * 512;
    assert_true(m->matrix_params == matrices);
    assert_true(model_flops(m, 1000, (double[MODEL_MASKS]){500000.0}) ==
                6.0 * (double)matrices * 1000.0 + 12.0 * 8 * 512 * 500000.0);
    model_destroy(m);
    m = create("8b");
    check_linear(m, m->head, "lm_head.weight", NULL, 4096, 128256, 0);
    assert_int_equal(m->params[m->head.weight].unit, 33);
    assert_true(m->matrix_params == m->total_params - 128256LL * 4096 - 65 * 4096);
    model_destroy(m);
}

static void test_qwen2_biases(void **state)
{
    (void)state;
    struct model_config c;
    struct model *m = NULL;
    assert_int_equal(model_preset("25m", &c), OK);
    c.family = FAMILY_QWEN2;
    assert_int_equal(model_create(&c, NULL, 0, &m), OK);
    check_tiling(m);
    const struct model_block *attention = attention_of(m, 3);
    const struct model_block *mlp = mlp_of(m, 3);
    check_linear(m, attention->attention.q, "model.layers.3.self_attn.q_proj.weight", "model.layers.3.self_attn.q_proj.bias", 512,
                 512, 0);
    check_linear(m, attention->attention.k, "model.layers.3.self_attn.k_proj.weight", "model.layers.3.self_attn.k_proj.bias", 512,
                 128, 0);
    check_linear(m, attention->attention.v, "model.layers.3.self_attn.v_proj.weight", "model.layers.3.self_attn.v_proj.bias", 512,
                 128, 0);
    check_linear(m, attention->attention.o, "model.layers.3.self_attn.o_proj.weight", NULL, 512, 512, 0);
    check_linear(m, mlp->mlp.down, "model.layers.3.mlp.down_proj.weight", NULL, 1408, 512, 0);
    const struct model_param *k = &m->params[attention->attention.k.bias];
    assert_true(k->shape[0] == 128 && k->shape[1] == 0 && k->init == INIT_ZEROS && k->trained);
    model_destroy(m);
    c.window = -1;
    assert_int_equal(model_create(&c, NULL, 0, &m), ERR_INVALID);
    assert_non_null(strstr(status_message(), "sliding window is -1"));
}

static void test_gpt2_names(void **state)
{
    (void)state;
    struct model *m = create("gpt2-tiny");
    const struct model_block *attention = attention_of(m, 1);
    const struct model_block *mlp = mlp_of(m, 1);
    check_linear(m, attention->attention.q, "transformer.h.1.attn.c_attn.weight", "transformer.h.1.attn.c_attn.bias", 64, 64, 0);
    check_linear(m, attention->attention.k, "transformer.h.1.attn.c_attn.weight", "transformer.h.1.attn.c_attn.bias", 64, 64, 64);
    check_linear(m, attention->attention.v, "transformer.h.1.attn.c_attn.weight", "transformer.h.1.attn.c_attn.bias", 64, 64,
                 128);
    check_linear(m, attention->attention.o, "transformer.h.1.attn.c_proj.weight", "transformer.h.1.attn.c_proj.bias", 64, 64, 0);
    check_linear(m, mlp->mlp.up, "transformer.h.1.mlp.c_fc.weight", "transformer.h.1.mlp.c_fc.bias", 64, 256, 0);
    check_linear(m, mlp->mlp.down, "transformer.h.1.mlp.c_proj.weight", "transformer.h.1.mlp.c_proj.bias", 256, 64, 0);
    assert_int_equal(mlp->mlp.gate.weight, -1);
    assert_true(attention->attention.q.ld == 192);
    assert_true(attention->norm.kind == NORM_LAYER && mlp->norm.kind == NORM_LAYER && m->final_norm.kind == NORM_LAYER);
    assert_int_equal(attention->norm.weight, param(m, "transformer.h.1.ln_1.weight"));
    assert_int_equal(attention->norm.bias, param(m, "transformer.h.1.ln_1.bias"));
    assert_int_equal(mlp->norm.bias, param(m, "transformer.h.1.ln_2.bias"));
    assert_int_equal(m->final_norm.bias, param(m, "transformer.ln_f.bias"));
    assert_int_equal(m->embed, param(m, "transformer.wte.weight"));
    assert_int_equal(m->pos_embed, param(m, "transformer.wpe.weight"));
    check_linear(m, m->head, "transformer.wte.weight", NULL, 64, 256, 0);
    assert_true(m->matrix_params == 2 * (64 * 192 + 64 * 64 + 2 * 64 * 256) + 256 * 64);
    assert_true(model_is_buffer(&m->config, "transformer.h.11.attn.bias") && model_is_buffer(&m->config, "h.0.attn.masked_bias"));
    assert_false(model_is_buffer(&m->config, "transformer.h.1.attn.c_attn.bias") || model_is_buffer(&m->config, "score.weight"));
    model_destroy(m);
    m = create("tiny");
    assert_true(model_is_buffer(&m->config, "model.layers.0.self_attn.rotary_emb.inv_freq"));
    assert_false(model_is_buffer(&m->config, "model.layers.0.attn.bias"));
    model_destroy(m);
}

/* Writes the name's other forms, one after another. */
static void other_names(const char *name, char out[512])
{
    char other[WRAPPED_NAME];
    out[0] = '\0';
    for (int i = 0, has; (has = model_other_name(name, i, other)) >= 0; i++)
        if (has)
            snprintf(out + strlen(out), 512 - strlen(out), "%s ", other);
}

static void test_other_names(void **state)
{
    char names[512];
    (void)state;
    other_names("transformer.h.0.ln_1.weight", names);
    assert_string_equal(names, "h.0.ln_1.weight transformer.h.0.ln_1.weight language_model.transformer.h.0.ln_1.weight ");
    other_names("model.norm.weight", names);
    assert_string_equal(names,
                        "norm.weight backbone.norm.weight model.language_model.norm.weight language_model.model.norm.weight ");
    other_names("model.layers.0.mlp.up_proj.weight", names);
    assert_non_null(strstr(names, " model.layers.0.block_sparse_moe.up_proj.weight "));
    other_names("lm_head.weight", names);
    assert_string_equal(names, "lm_head.weight language_model.lm_head.weight ");
}

/* GPT-NeoX's q, k and v are separate consecutive maps in ltrain, and interleaved head by head in files. */
static void test_interleaved(void **state)
{
    (void)state;
    const struct model_param p = {.shape = {12, 5}, .file_shape = {12, 5}, .elements = 60, .parts = 3, .part_rows = {2, 2, 2}},
                             bias = {.shape = {12}, .file_shape = {12}, .elements = 12, .parts = 3, .part_rows = {2, 2, 2}},
                             plain = {.shape = {12, 5}};
    int64_t tensor, there;
    for (int64_t row = 0; row < 12; row++) {
        int64_t part = row / 4, head = row % 4 / 2, in_file = (head * 3 + part) * 2 + row % 2;
        assert_int_equal(model_param_piece(&p, row * 5 + 1, 100, &tensor, &there), row % 2 ? 4 : 9);
        assert_int_equal(there, in_file * 5 + 1);
        assert_int_equal(model_param_piece(&p, row * 5, 3, &tensor, &there), 3);
        assert_int_equal(model_param_piece(&bias, row, 1, &tensor, &there), 1);
        assert_int_equal(there, in_file);
    }
    assert_int_equal(model_param_piece(&plain, 7, 50, &tensor, &there), 50);
    assert_int_equal(there, 7);
}

/* Falcon's files have for each of 3 KV heads its 2 queries, its key and its value; in ltrain these are 6 queries, 3 keys and 3
 * values. */
static void test_interleaved_groups(void **state)
{
    (void)state;
    const struct model_param p = {.shape = {24}, .file_shape = {24}, .elements = 24, .parts = 3, .part_rows = {4, 2, 2}};
    int seen[24] = {0};
    int64_t tensor, there;
    for (int64_t row = 0; row < 24; row++) {
        const int64_t head = row / 2,
                      group = head < 6   ? head / 2
                              : head < 9 ? head - 6
                                         : head - 9,
                      part = head < 6   ? head % 2
                             : head < 9 ? 2
                                        : 3;
        assert_int_equal(model_param_piece(&p, row, 5, &tensor, &there), row < 12 ? 4 - row % 4 : 2 - row % 2);
        assert_int_equal(there, (group * 4 + part) * 2 + row % 2);
        seen[there]++;
    }
    for (int i = 0; i < 24; i++)
        assert_int_equal(seen[i], 1);
}

/* A run uses as many of the first rows of a table of learned positions as its length needs. Files, and figures about the model,
 * have the whole table. */
static void test_positions_in_use(void **state)
{
    (void)state;
    static const struct {
        int64_t tokens, rows;
    } cases[] = {{0, 4096}, {1, 1}, {100, 100}, {4095, 4095}, {4096, 4096}, {5000, 4096}};
    const char *freeze = "*wpe*";
    struct model *whole = create("gpt2-tiny"), *llama = create("tiny"), *m;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int frozen = 0; frozen < 2; frozen++) {
            assert_int_equal(model_create_for(whole, cases[i].tokens, &freeze, frozen, &m), OK);
            check_tiling(m);
            const struct model_param *p = &m->params[m->pos_embed], *w = &m->params[m->embed];
            assert_true(p->elements == cases[i].rows * 64 && p->shape[0] == 4096 && p->shape[1] == 64);
            assert_true(model_param_stored(p) == 4096 * 64 && model_param_stored(w) == w->elements);
            assert_true(m->units[0].elements == 256 * 64 + cases[i].rows * 64);
            assert_true(m->units[0].trained_elements == 256 * 64 + (frozen ? 0 : cases[i].rows * 64));
            assert_true(m->total_params == whole->total_params && m->matrix_params == whole->matrix_params);
            model_destroy(m);
        }
    assert_int_equal(model_create_for(llama, 100, NULL, 0, &m), OK);
    check_tiling(m);
    assert_memory_equal(m->units, llama->units, (size_t)m->n_units * sizeof *m->units);
    model_destroy(m);
    model_destroy(llama);
    model_destroy(whole);
}

static void test_freeze(void **state)
{
    (void)state;
    struct model_config c;
    struct model *m = NULL;
    const char *freeze[] = {"*.layers.0.*", "*q_proj*", "*norm*"};
    assert_int_equal(model_preset("tiny", &c), OK);
    assert_int_equal(model_create(&c, freeze, 3, &m), OK);
    check_tiling(m);
    assert_true(m->units[0].trained_elements == 256 * 64);
    assert_true(m->units[1].trained_elements == 0 && m->units[1].decay_elements == 0);
    assert_true(m->units[2].trained_elements == 3 * 64 * 64 + 3 * 64 * 256);
    assert_true(m->units[3].trained_elements == 0);
    assert_string_equal(m->params[attention_of(m, 1)->attention.q.weight].name, "model.layers.1.self_attn.q_proj.weight");
    assert_true(m->params[attention_of(m, 1)->attention.q.weight].offset == m->units[2].trained_elements);
    model_destroy(m);
    const char *none[] = {"*q_proj*", "*.attn.*"};
    assert_int_equal(model_create(&c, none, 2, &m), ERR_INVALID);
    assert_non_null(strstr(status_message(), "'*.attn.*' matches no parameter"));
    const char *each[] = {"*.*"}, *all[] = {MODEL_FREEZE_ALL};
    assert_int_equal(model_create(&c, each, 1, &m), ERR_INVALID);
    assert_non_null(strstr(status_message(), "every parameter is frozen"));
    assert_int_equal(model_create(&c, all, 1, &m), OK); /* for evaluation */
    for (int u = 0; u < m->n_units; u++)
        assert_true(m->units[u].trained_elements == 0);
    model_destroy(m);
}

/* Every frozen map of the layers is quantised, and nothing else; parameters that are trained fully beside adapters are not. */
static void test_quantised(void **state)
{
    (void)state;
    struct model_config c;
    struct model *m = NULL, *stored = NULL;
    const int64_t n[] = {64 * 64, 64 * 64, 64 * 64, 64 * 64, 64 * 256, 64 * 256, 64 * 256};
    int64_t bytes = 0;
    assert_int_equal(model_preset("tiny", &c), OK);
    assert_int_equal(lora_parse("--lora", "r=4", &c.lora), OK);
    assert_int_equal(model_create(&c, NULL, 0, &stored), OK);
    for (int i = 0; i < 7; i++)
        bytes += nf4_bytes(n[i], NF4_NESTED);
    c.base = BASE_NF4;
    assert_int_equal(model_create(&c, NULL, 0, &m), OK);
    check_tiling(m);
    for (int u = 0; u < m->n_units; u++) {
        const int layer = u == 1 || u == 2;
        assert_true(m->units[u].packed_bytes == (layer ? bytes : 0));
        assert_true(m->units[u].trained_elements == stored->units[u].trained_elements);
        assert_true(m->units[u].elements == stored->units[u].elements - (layer ? 4 * 64 * 64 + 3 * 64 * 256 : 0));
    }
    assert_true(m->packed_params == 2 * (4 * 64 * 64 + 3 * 64 * 256) && m->matrix_params == stored->matrix_params &&
                m->total_params == stored->total_params && m->trained_params == stored->trained_params);
    model_destroy(m);
    strcpy(c.lora.saved, "o_proj");
    assert_int_equal(model_create(&c, NULL, 0, &m), OK);
    assert_true(m->units[1].packed_bytes == bytes - nf4_bytes(64 * 64, NF4_NESTED));
    model_destroy(m);
    model_destroy(stored);
    c.lora.saved[0] = 0;
    c.base = BASE_INT8;
    assert_int_equal(model_create(&c, NULL, 0, &m), OK);
    assert_true(m->units[1].packed_bytes == 4 * (64 * 64 + 64 * 4) + 2 * (256 * 64 + 256 * 4) + 64 * 256 + 64 * 4);
    model_destroy(m);
    assert_int_equal(model_preset("gpt2-tiny", &c), OK);
    assert_int_equal(lora_parse("--lora", "r=4", &c.lora), OK);
    c.base = BASE_INT8;
    assert_int_equal(model_create(&c, NULL, 0, &m), ERR_INVALID);
    assert_non_null(strstr(status_message(), "--base int8: "));
    c.base = BASE_NF4;
    assert_int_equal(model_create(&c, NULL, 0, &m), ERR_INVALID);
    assert_non_null(strstr(status_message(), "--base nf4: "));
    assert_non_null(strstr(status_message(), "h.0.attn.c_attn.weight lies in files in another order"));
}

/* Matrices that multiply tokens are those of layers, the head's, and adapters; not the embedding, and not A of its adapter, whose
 * rows are looked up. */
static void test_multiplies_tokens(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int multiplies;
    } params[] = {{"model.embed_tokens.weight", 1}, /* the head's, too */
                  {"model.embed_tokens.lora_embedding_A", 0},
                  {"model.embed_tokens.lora_embedding_B", 1},
                  {"lm_head.lora_A.weight", 1},
                  {"model.layers.1.self_attn.q_proj.weight", 1},
                  {"model.layers.1.self_attn.q_proj.lora_A.weight", 1},
                  {"model.layers.1.input_layernorm.weight", 0}};
    struct model_config c;
    struct model *m = NULL;
    assert_int_equal(model_preset("tiny", &c), OK);
    c.tied = 1;
    assert_int_equal(lora_parse("--lora", "r=4,targets=q_proj,embed_tokens,lm_head", &c.lora), OK);
    assert_int_equal(model_create(&c, NULL, 0, &m), OK);
    for (size_t i = 0; i < sizeof params / sizeof *params; i++)
        if (model_multiplies_tokens(m, param(m, params[i].name)) != params[i].multiplies)
            fail_msg("%s", params[i].name);
    assert_true(m->trained_matrix_params == 4 * (64 + c.vocab) + 4 * 64 + 2 * 4 * (64 + 64));
    model_destroy(m);
    c.tied = 0;
    assert_int_equal(model_create(&c, NULL, 0, &m), OK);
    assert_false(model_multiplies_tokens(m, param(m, "model.embed_tokens.weight")));
    assert_true(model_multiplies_tokens(m, param(m, "lm_head.weight")));
    model_destroy(m);
}

/* Lists the layers whose matrix of this name is quantised, as "0 1". */
static void packed_layers(const struct model *m, const char *name, char *text, size_t bytes)
{
    text[0] = 0;
    for (int i = 0; i < m->n_params; i++)
        if (m->params[i].packed_bytes > 0 && strstr(m->params[i].name, name))
            snprintf(text + strlen(text), bytes - strlen(text), "%s%d", text[0] ? " " : "", m->units[m->params[i].unit].layer);
}

/* Lists of unquantised modules follow transformers 5.24 (should_convert_module). */
static void test_skipped(void **state)
{
    (void)state;
#define MOST "0 1 2 3 4 5 6 7 8 9 10 11"
    static const struct {
        const char *list, *gate, *down;
    } cases[] = {
        {"lm_head", MOST, MOST},
        {"lm_head\nmulti_modal_projector\nmerger\nmodality_projection\nvisual.blocks.1", MOST, MOST},
        {"lm_head\nmodel.layers.1", "0 2 3 4 5 6 7 8 9 10 11", "0 2 3 4 5 6 7 8 9 10 11"},
        {"lm_head\nmodel.layers.1.mlp.down_proj", MOST, "0 2 3 4 5 6 7 8 9 10 11"},
        {"lm_head\ndown_proj", MOST, ""},
        {"lm_head\n1.mlp.down_proj", MOST, "0 2 3 4 5 6 7 8 9 10"},
        {"lm_head\nmodel.layers.*.mlp.gate", MOST, MOST},
        {"lm_head\nmodel.layers.*.mlp.gate_proj", "", MOST},
        {"lm_head\nmodel[.]layers[.](1|2)[.].*", "0 3 4 5 6 7 8 9 10 11", "0 3 4 5 6 7 8 9 10 11"},
        {"lm_head\nlayers.1.mlp", MOST, MOST},
        {"model", "", ""},
    };
    struct model_config c;
    struct model *m = NULL;
    char found[64];
    assert_int_equal(model_preset("tiny", &c), OK);
    assert_int_equal(lora_parse("--lora", "r=4", &c.lora), OK);
    c.layers = 12;
    c.base = BASE_NF4;
    c.tied = 0;
    c.quantised = c.lists_skipped = 1;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(c.skipped, sizeof c.skipped, "%s%s", cases[i].list, strstr(cases[i].list, "lm_head") ? "" : "\nlm_head");
        if (model_create(&c, NULL, 0, &m) != OK)
            fail_msg("%s: %s", cases[i].list, status_message());
        check_tiling(m);
        packed_layers(m, "gate_proj", found, sizeof found);
        assert_string_equal(found, cases[i].gate);
        packed_layers(m, "down_proj", found, sizeof found);
        assert_string_equal(found, cases[i].down);
        model_destroy(m);
    }
    strcpy(c.skipped, "down_proj");
    assert_int_equal(model_create(&c, NULL, 0, &m), ERR_INVALID);
    assert_non_null(strstr(status_message(), "and not lm_head, so transformers quantises the head"));
    strcpy(c.skipped, "lm_head\n(");
    assert_int_equal(model_create(&c, NULL, 0, &m), ERR_INVALID);
    assert_non_null(strstr(status_message(), "( is no regular expression"));
    c.lists_skipped = 0;
    c.skipped[0] = 0;
    assert_int_equal(model_create(&c, NULL, 0, &m), OK);
    model_destroy(m);
}

static void test_refused_shapes(void **state)
{
    (void)state;
    struct model_config c;
    struct model *m = NULL;
    model_preset("tiny", &c);
    c.kv_heads = 3;
    assert_int_equal(model_create(&c, NULL, 0, &m), ERR_INVALID);
    c.heads = 4;
    assert_int_equal(model_create(&c, NULL, 0, &m), ERR_INVALID);
    model_preset("tiny", &c);
    c.head_dim = 31;
    assert_int_equal(model_create(&c, NULL, 0, &m), ERR_INVALID);
    c.head_dim = 514; /* attention supports at most 512 */
    assert_int_equal(model_create(&c, NULL, 0, &m), ERR_INVALID);
    model_preset("tiny", &c);
    c.vocab = INT64_MAX;
    assert_int_equal(model_create(&c, NULL, 0, &m), ERR_INVALID);
    model_preset("gpt2-tiny", &c);
    c.head_dim = 16;
    assert_int_equal(model_create(&c, NULL, 0, &m), ERR_INVALID);
    model_preset("tiny", &c);
    for (int call = 1; call <= 2; call++) {
        sys_inject(SYS_MALLOC, call, 12);
        assert_int_equal(model_create(&c, NULL, 0, &m), ERR_NOMEM);
    }
    sys_inject_clear();
    model_destroy(NULL);
}

/* Layers may have different settings: masks are sorted with the widest window first, shapes and frequencies by the order of
 * layers. */
static void test_kinds(void **state)
{
    (void)state;
    struct model_config c;
    struct model *m = NULL;
    char name[KIND_NAME];
    model_preset("25m", &c); /* 8 layers with 8 query heads on 2 KV heads, of dimension 64 */
    c.own[1] = (struct layer_config){.window = 100};
    c.own[2] = (struct layer_config){.heads = 4, .head_dim = 32, .window = 700};
    c.own_of[1] = c.own_of[4] = 1;
    c.own_of[3] = 2;
    assert_int_equal(model_create(&c, NULL, 0, &m), OK);
    assert_true(m->n_masks == 3 && m->mask_window[0] == 0 && m->mask_window[1] == 700 && m->mask_window[2] == 100);
    assert_true(m->n_shapes == 2 && m->shapes[0].heads == 8 && m->shapes[1].heads == 4 && m->shapes[1].kv_heads == 2);
    assert_true(m->n_kinds == 3 && m->kinds[0].layers == 5 && m->kinds[1].layers == 1 &&
                model_attention(m, m->kinds[1].first)->shape == 1 && m->kinds[2].layers == 2);
    assert_true(m->n_ropes == 2 && m->ropes[1].head_dim == 32 && m->ropes[1].first == 32 && m->n_frequencies == 48);
    assert_string_equal(model_kind_name(m, &m->kinds[1], name), "window 700, 4/2 heads of 32");
    assert_true(model_light_layers(m) == 3 && model_most_heads(m) == 8 && !model_is_light(m, 0) && model_is_light(m, 4));
    const struct attention_block *a = model_attention(m, 3);
    assert_true(a->q.out == 128 && a->k.out == 64 && a->o.in == 128 && a->mask == 1 && a->shape == 1 && a->rope == 1);
    assert_true(a->scale == 1.0f / sqrtf(32.0f));
    const double pairs[MODEL_MASKS] = {1000, 100, 10},
                 params = 4.0 * (double)m->matrix_params + 2.0 * (double)m->trained_matrix_params;
    assert_true(model_flops(m, 100, pairs) == params * 100 + 12.0 * (5 * 512 * 1000 + 128 * 100 + 2 * 512 * 10));
    model_destroy(m);
    c.own[2].kv_heads = 3;
    assert_int_equal(model_create(&c, NULL, 0, &m), ERR_INVALID);
    assert_non_null(strstr(status_message(), "4 heads cannot be shared by 3 key-value heads"));
    c.layers = 9;
    for (int i = 1; i <= MODEL_KINDS; i++) {
        c.own[i] = (struct layer_config){.window = 10 * i};
        c.own_of[i] = (uint8_t)i;
    }
    assert_int_equal(model_create(&c, NULL, 0, &m), ERR_INVALID);
    assert_non_null(strstr(status_message(), "more than 8 different windows"));
}

/* Numbers of the rows of blocks.h, by hand from the shapes of Llama 3.1 8B: 32 heads on 8 of 128, 14,336 columns. */
static void test_rows(void **state)
{
    (void)state;
    struct model *m = create("8b");
    const struct model_block *a = model_find_block(&m->layers[0], BLOCK_ATTENTION),
                             *mlp = model_find_block(&m->layers[0], BLOCK_MLP);
    assert_true(block_kept_bytes(m, a, 2) == 32 * (128 * 2 + 4) && block_kept_bytes(m, a, 4) == 32 * (128 * 4 + 4));
    assert_true(block_saved(m, a) == (32 + 8 + 8) * 128 && block_saved(m, mlp) == 2 * 14336);
    assert_true(block_cached_per_token(m, a) == 2 * 8 * 128 && block_cached_per_text(m, a) == 0);
    assert_true(block_kept_bytes(m, mlp, 2) == 0 && block_cached_per_token(m, mlp) == 0 && block_cached_per_text(m, mlp) == 0);
    assert_true(block_mask(a) == 0 && block_mask(mlp) == -1 && block_is_shared(BLOCK_ATTENTION) && block_is_shared(BLOCK_MLP));
    struct model_block bare = *mlp, wide = *mlp;
    int64_t of[3][BLOCK_SIGNATURE];
    bare.mlp.gate.weight = -1;
    wide.mlp.up.out++;
    block_signature(mlp, of[0]);
    block_signature(&bare, of[1]);
    block_signature(&wide, of[2]);
    for (int i = 0; i < 3; i++) /* other work makes another kind of layer */
        assert_memory_not_equal(of[i], of[(i + 1) % 3], sizeof of[0]);
    model_destroy(m);
}

static double deviation(const struct model *m, int p, float *values)
{
    int64_t n = m->params[p].elements;
    double s = 0, s2 = 0;
    model_init_param(m, p, 7, 0, n, values);
    for (int64_t i = 0; i < n; i++) {
        s += (double)values[i];
        s2 += (double)values[i] * (double)values[i];
    }
    assert_true(fabs(s / (double)n) < 4 * 0.02 / sqrt((double)n));
    return sqrt(s2 / (double)n);
}

static void test_init(void **state)
{
    (void)state;
    struct model *m = create("gpt2-tiny");
    float *a = malloc(sizeof *a * 4096 * 64), b[100];
    /* the relative standard error of a standard deviation over n values is 1/sqrt(2n), at most 0.8% here */
    assert_true(fabs(deviation(m, m->pos_embed, a) - 0.02) < 0.02 * 0.01);
    assert_true(fabs(deviation(m, mlp_of(m, 0)->mlp.up.weight, a) - 0.02) < 0.02 * 0.03);
    assert_true(fabs(deviation(m, mlp_of(m, 0)->mlp.down.weight, a) - 0.01) < 0.01 * 0.03);
    assert_true(fabs(deviation(m, attention_of(m, 1)->attention.o.weight, a) - 0.01) < 0.01 * 0.05);
    model_init_param(m, attention_of(m, 0)->norm.weight, 7, 0, 64, a);
    assert_true(a[0] == 1.0f && a[63] == 1.0f);
    model_init_param(m, attention_of(m, 0)->norm.bias, 7, 0, 64, a);
    assert_true(a[0] == 0.0f && a[63] == 0.0f);
    /* a piece has the same values as the whole; another layer or seed has others */
    model_init_param(m, attention_of(m, 0)->attention.q.weight, 7, 0, 1000, a);
    model_init_param(m, attention_of(m, 0)->attention.q.weight, 7, 333, 100, b);
    assert_memory_equal(a + 333, b, sizeof b);
    model_init_param(m, attention_of(m, 1)->attention.q.weight, 7, 333, 100, b);
    assert_memory_not_equal(a + 333, b, sizeof b);
    model_init_param(m, attention_of(m, 0)->attention.q.weight, 8, 333, 100, b);
    assert_memory_not_equal(a + 333, b, sizeof b);
    free(a);
    model_destroy(m);
}

/* Llama 3.1's scaling has the published values: frequencies of dimension pairs for head size 128 (from the formula, in fp64,
 * separately for each wavelength). */
static void test_inv_freq(void **state)
{
    (void)state;
    float f[64], g[64];
    struct model *m = create("8b");
    model_inv_freq(m, 4096, f);
    for (int i = 0; i < 64; i++) {
        double freq = exp(-log(500000.0) * i / 64.0), wavelength = 2 * M_PI / freq, expected;
        if (wavelength < 8192.0 / 4.0)
            expected = freq;
        else if (wavelength > 8192.0)
            expected = freq / 8.0;
        else {
            double s = (8192.0 / wavelength - 1.0) / 3.0;
            expected = (1 - s) * freq / 8.0 + s * freq;
        }
        assert_true(fabs((double)f[i] - expected) <= 1e-7 * expected);
    }
    assert_true(f[0] == 1.0f);
    m->config.rope = ROPE_DEFAULT;
    model_inv_freq(m, 4096, f);
    m->config.rope = ROPE_LINEAR;
    m->config.rope_factor = 4.0;
    model_inv_freq(m, 4096, g);
    for (int i = 0; i < 64; i++)
        assert_true(g[i] * 4.0f == f[i]);
    model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_presets),
        cmocka_unit_test(test_llama_names),
        cmocka_unit_test(test_qwen2_biases),
        cmocka_unit_test(test_interleaved),
        cmocka_unit_test(test_interleaved_groups),
        cmocka_unit_test(test_gpt2_names),
        cmocka_unit_test(test_other_names),
        cmocka_unit_test(test_positions_in_use),
        cmocka_unit_test(test_freeze),
        cmocka_unit_test(test_quantised),
        cmocka_unit_test(test_multiplies_tokens),
        cmocka_unit_test(test_skipped),
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_refused_shapes),
        cmocka_unit_test(test_init),
        cmocka_unit_test(test_inv_freq),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
