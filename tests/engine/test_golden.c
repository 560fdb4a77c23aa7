/* Compares loss, gradients and five AdamW steps with PyTorch + transformers in fp64 (tests/golden/make_golden.py). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "engine/families.h"
#include "engine/golden_check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CASE(test, folder)               \
    static void test(void **state)       \
    {                                    \
        (void)state;                     \
        golden_check_everywhere(folder); \
    }

CASE(gqa, "llama-gqa")
CASE(tied_documents, "llama-tied-docs")
CASE(head_dim_80, "llama-h80")
CASE(seven_heads_on_one, "llama-mqa7")
CASE(llama3_rope, "llama3-rope")
CASE(frozen, "llama-frozen")
CASE(gpt2, "gpt2")
CASE(gpt2_positions, "gpt2-positions")
CASE(mistral_window, "mistral-window")
CASE(qwen2_window, "qwen2-window")
CASE(qwen3, "qwen3")
CASE(qwen3_windows, "qwen3-windows")
CASE(smollm3, "smollm3")
CASE(granite, "granite")
CASE(phi3_long, "phi3-long")
CASE(phi3_short, "phi3-short")
CASE(gemma2, "gemma2")
CASE(gemma3, "gemma3")
CASE(olmo2, "olmo2")
CASE(olmo3, "olmo3")
CASE(glm4, "glm4")
CASE(starcoder2, "starcoder2")
CASE(gpt_oss, "gpt-oss")
CASE(gpt_oss_one, "gpt-oss-one")
CASE(llama_yarn, "llama-yarn")
CASE(llama_dynamic, "llama-dynamic")
CASE(neox, "neox")
CASE(neox_sequential, "neox-sequential")
CASE(cohere, "cohere")
CASE(cohere2, "cohere2")
CASE(cohere_norms, "cohere-norms")
CASE(qwen3_5, "qwen3_5")
CASE(seed_oss, "seed-oss")
CASE(ernie4_5, "ernie4_5")
CASE(arcee, "arcee")
CASE(ministral, "ministral")
CASE(cwm, "cwm")
CASE(helium, "helium")
CASE(glm, "glm")
CASE(gemma, "gemma")
CASE(vaultgemma, "vaultgemma")
CASE(exaone4, "exaone4")
CASE(hunyuan, "hunyuan")
CASE(nemotron, "nemotron")
CASE(olmo, "olmo")
CASE(gemma3_wrapped, "gemma3-wrapped")
CASE(mistral3_wrapped, "mistral3-wrapped")
CASE(gemma4, "gemma4")
CASE(qwen3_layers, "qwen3-layers")
CASE(gemma4_wrapped, "gemma4-wrapped")
CASE(stablelm, "stablelm")
CASE(stablelm_parallel, "stablelm-parallel")
CASE(falcon, "falcon")
CASE(falcon_groups, "falcon-groups")
CASE(falcon_sequential, "falcon-sequential")
CASE(gpt_bigcode, "gpt-bigcode")
CASE(gpt_bigcode_heads, "gpt-bigcode-heads")
CASE(gpt_neo, "gpt-neo")
CASE(jais2, "jais2")
CASE(hyperclovax, "hyperclovax")
CASE(granite_swa, "granite-swa")
CASE(phi, "phi")
CASE(gptj, "gptj")
CASE(codegen, "codegen")
CASE(opt, "opt")

/* If only the sinks are trained, the gradient's norm is the norm of their gradient. */
static void sinks_in_the_norm(void **state)
{
    (void)state;
    static const char *const others[] = {"model.embed_tokens.weight", "lm_head.weight", "*norm.weight", "*_proj.*"};
    struct model_config config;
    struct model *model;
    struct golden g;
    struct rig r;
    double loss, norm, squares = 0;
    assert_int_equal(golden_open("gpt-oss", &g), OK);
    rig_defaults(&r, g.seq_len);
    if (model_config_read(g.path, &config) != OK || model_create(&config, others, 4, &model) != OK)
        fail_msg("%s", status_message());
    for (int i = 0; i < model->n_params; i++) {
        char name[160];
        float grad[8];
        if (!model->params[i].trained)
            continue;
        snprintf(name, sizeof name, "grad.%s", model->params[i].name);
        assert_int_equal(st_read_f32(g.file, name, 0, model->params[i].elements, grad), OK);
        for (int64_t k = 0; k < model->params[i].elements; k++)
            squares += (double)grad[k] * grad[k];
    }
    assert_int_equal(rig_start(&r, model), OK);
    if (session_load(r.session, g.path) != OK || rig_step(&r, &g.sequence, 1, &loss, &norm) != OK)
        fail_msg("%s", status_message());
    if (!(squares > 0) || !(fabs(norm - sqrt(squares)) < 1e-5 * norm))
        fail_msg("the norm is %.9g, of the sinks' golden gradients it is %.9g", norm, sqrt(squares));
    rig_stop(&r);
    golden_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gqa),
                                       cmocka_unit_test(tied_documents),
                                       cmocka_unit_test(head_dim_80),
                                       cmocka_unit_test(seven_heads_on_one),
                                       cmocka_unit_test(llama3_rope),
                                       cmocka_unit_test(frozen),
                                       cmocka_unit_test(gpt2),
                                       cmocka_unit_test(gpt2_positions),
                                       cmocka_unit_test(mistral_window),
                                       cmocka_unit_test(qwen2_window),
                                       cmocka_unit_test(qwen3),
                                       cmocka_unit_test(qwen3_windows),
                                       cmocka_unit_test(smollm3),
                                       cmocka_unit_test(granite),
                                       cmocka_unit_test(phi3_long),
                                       cmocka_unit_test(phi3_short),
                                       cmocka_unit_test(gemma2),
                                       cmocka_unit_test(gemma3),
                                       cmocka_unit_test(olmo2),
                                       cmocka_unit_test(olmo3),
                                       cmocka_unit_test(glm4),
                                       cmocka_unit_test(starcoder2),
                                       cmocka_unit_test(gpt_oss),
                                       cmocka_unit_test(gpt_oss_one),
                                       cmocka_unit_test(sinks_in_the_norm),
                                       cmocka_unit_test(llama_yarn),
                                       cmocka_unit_test(llama_dynamic),
                                       cmocka_unit_test(neox),
                                       cmocka_unit_test(neox_sequential),
                                       cmocka_unit_test(cohere),
                                       cmocka_unit_test(cohere2),
                                       cmocka_unit_test(cohere_norms),
                                       cmocka_unit_test(qwen3_5),
                                       cmocka_unit_test(seed_oss),
                                       cmocka_unit_test(ernie4_5),
                                       cmocka_unit_test(arcee),
                                       cmocka_unit_test(ministral),
                                       cmocka_unit_test(cwm),
                                       cmocka_unit_test(helium),
                                       cmocka_unit_test(glm),
                                       cmocka_unit_test(gemma),
                                       cmocka_unit_test(vaultgemma),
                                       cmocka_unit_test(exaone4),
                                       cmocka_unit_test(hunyuan),
                                       cmocka_unit_test(nemotron),
                                       cmocka_unit_test(olmo),
                                       cmocka_unit_test(gemma3_wrapped),
                                       cmocka_unit_test(mistral3_wrapped),
                                       cmocka_unit_test(gemma4),
                                       cmocka_unit_test(qwen3_layers),
                                       cmocka_unit_test(gemma4_wrapped),
                                       cmocka_unit_test(stablelm),
                                       cmocka_unit_test(stablelm_parallel),
                                       cmocka_unit_test(falcon),
                                       cmocka_unit_test(falcon_groups),
                                       cmocka_unit_test(falcon_sequential),
                                       cmocka_unit_test(gpt_bigcode),
                                       cmocka_unit_test(gpt_bigcode_heads),
                                       cmocka_unit_test(gpt_neo),
                                       cmocka_unit_test(jais2),
                                       cmocka_unit_test(hyperclovax),
                                       cmocka_unit_test(granite_swa),
                                       cmocka_unit_test(phi),
                                       cmocka_unit_test(gptj),
                                       cmocka_unit_test(codegen),
                                       cmocka_unit_test(opt)};
    return families_run("golden", tests, (int)(sizeof tests / sizeof *tests), 5);
}
