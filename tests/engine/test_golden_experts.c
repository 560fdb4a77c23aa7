/* Models with experts beside PyTorch and transformers in fp64 (tests/golden/make_moe.py). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "engine/families.h"
#include "engine/golden_check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const cases[] = {
    "moe/qwen3-moe",        "moe/mixtral",          "moe/olmoe",          "moe/qwen2-moe",     "moe/gpt-oss",
    "moe/granitemoe",       "moe/granitemoeshared", "moe/glm4-moe",       "moe/dots1",         "moe/ernie4_5-moe",
    "moe/hunyuan-moe",      "moe/minimax-m2",       "moe/afmoe",          "moe/hy-v3",         "moe/exaone-moe",
    "moe/solar-open",       "moe/mixtral-aux",      "moe/minimax-m2-aux", "moe/gpt-oss-mxfp4", "moe/gemma4-moe",
    "moe/qwen3-moe-latent", "moe/flex-olmo",        "moe/mellum",         "moe/granitemoe-swa"};
enum { CASES = sizeof cases / sizeof *cases };

/* Makes sure that the results have the parameter's gradient, and its value after the steps. */
static void check_results(const struct golden *g, const struct model_param *p)
{
    static const char *const kinds[] = {"grad", "step5"};
    for (int i = 0; i < 2; i++) {
        char name[160];
        struct st_info info;
        snprintf(name, sizeof name, "%s.%s", kinds[i], p->name);
        if (st_find(g->file, name, &info) != OK)
            fail_msg("%s: %s", g->path, status_message());
        assert_int_equal(info.elements, model_param_stored(p));
    }
}

/* The reference has results for every trained parameter, and for no other. */
static void results_are_the_models(void **state)
{
    (void)state;
    for (int k = 0; k < CASES; k++) {
        struct golden g;
        struct model *m;
        struct st_file *weights;
        int trained = 0, here = 0;
        assert_int_equal(golden_open(cases[k], &g), OK);
        if (golden_model(&g, &m) != OK || st_open(g.path, &weights) != OK || weights_check(weights, m, NULL, 0) != OK)
            fail_msg("%s", status_message());
        for (int i = 0; i < m->n_params; i++) {
            if (!m->params[i].trained)
                continue;
            check_results(&g, &m->params[i]);
            trained++;
        }
        for (int i = 0; i < st_count(g.file); i++)
            here += strncmp(st_name(g.file, i), "grad.", 5) == 0;
        assert_int_equal(here, trained);
        st_close(weights);
        model_destroy(m);
        golden_close(&g);
    }
}

/* Reads the rows of expert e at first. */
static json_int_t rows_of(const json_t *layer, size_t e)
{
    return json_integer_value(json_array_get(layer, e));
}

/* Experts have unequal loads, in most cases one has none; several are chosen by a margin that rounding does not bridge. */
static void loads_are_unequal(void **state)
{
    (void)state;
    int unhit = 0;
    for (int k = 0; k < CASES; k++) {
        struct golden g;
        assert_int_equal(golden_open(cases[k], &g), OK);
        const json_t *rows = json_object_get(g.info, "rows"), *layer;
        size_t l;
        assert_true(json_number_value(json_object_get(g.info, "margin")) >= 2e-4);
        assert_true(json_array_size(rows) > 0);
        json_array_foreach((json_t *)rows, l, layer)
        {
            json_int_t most = 0, sum = 0;
            for (size_t e = 0; e < json_array_size(layer); e++) {
                most = rows_of(layer, e) > most ? rows_of(layer, e) : most;
                sum += rows_of(layer, e);
                unhit += rows_of(layer, e) == 0;
            }
            assert_true(sum % g.seq_len == 0 && sum > g.seq_len);
            assert_true(2 * most * (json_int_t)json_array_size(layer) >= 3 * sum);
        }
        golden_close(&g);
    }
    assert_true(unhit >= CASES / 2);
}

#define CASE(test, index)                      \
    static void test(void **state)             \
    {                                          \
        (void)state;                           \
        golden_check_everywhere(cases[index]); \
    }

CASE(qwen3_moe, 0)
CASE(mixtral, 1)
CASE(olmoe, 2)
CASE(qwen2_moe, 3)
CASE(gpt_oss, 4)
CASE(granitemoe, 5)
CASE(granitemoeshared, 6)
CASE(glm4_moe, 7)
CASE(dots1, 8)
CASE(ernie4_5_moe, 9)
CASE(hunyuan_moe, 10)
CASE(minimax_m2, 11)
CASE(afmoe, 12)
CASE(hy_v3, 13)
CASE(exaone_moe, 14)
CASE(solar_open, 15)
CASE(mixtral_aux, 16)
CASE(minimax_m2_aux, 17)
CASE(gpt_oss_mxfp4, 18)
CASE(gemma4_moe, 19)
CASE(qwen3_moe_latent, 20)
CASE(flex_olmo, 21)
CASE(mellum, 22)
CASE(granitemoe_swa, 23)

static void experts_nvme(struct settings *s)
{
    golden_small_tiles(s);
    s->plan.params = s->plan.grads = s->plan.optim = OFFLOAD_NONE;
    s->plan.experts = OFFLOAD_NVME;
}

static void experts_near(struct settings *s)
{
    golden_everything_nvme(s);
    s->plan.update = UPDATE_HOST;
    s->plan.experts = OFFLOAD_NONE;
}

/* Experts that lie elsewhere than other layers give the bits of the resident run. */
static void experts_apart(void **state)
{
    double near[2 * GOLDEN_STEPS], apart[2 * GOLDEN_STEPS];
    (void)state;
    golden_check("moe/glm4-moe", golden_small_tiles, near);
    golden_check("moe/glm4-moe", experts_nvme, apart);
    assert_memory_equal(near, apart, sizeof near);
    golden_check("moe/glm4-moe", experts_near, apart);
    assert_memory_equal(near, apart, sizeof near);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(results_are_the_models),
                                       cmocka_unit_test(loads_are_unequal),
                                       cmocka_unit_test(qwen3_moe),
                                       cmocka_unit_test(mixtral),
                                       cmocka_unit_test(olmoe),
                                       cmocka_unit_test(qwen2_moe),
                                       cmocka_unit_test(gemma4_moe),
                                       cmocka_unit_test(gpt_oss),
                                       cmocka_unit_test(granitemoe),
                                       cmocka_unit_test(granitemoeshared),
                                       cmocka_unit_test(glm4_moe),
                                       cmocka_unit_test(dots1),
                                       cmocka_unit_test(ernie4_5_moe),
                                       cmocka_unit_test(hunyuan_moe),
                                       cmocka_unit_test(minimax_m2),
                                       cmocka_unit_test(afmoe),
                                       cmocka_unit_test(hy_v3),
                                       cmocka_unit_test(exaone_moe),
                                       cmocka_unit_test(solar_open),
                                       cmocka_unit_test(mixtral_aux),
                                       cmocka_unit_test(minimax_m2_aux),
                                       cmocka_unit_test(gpt_oss_mxfp4),
                                       cmocka_unit_test(qwen3_moe_latent),
                                       cmocka_unit_test(flex_olmo),
                                       cmocka_unit_test(mellum),
                                       cmocka_unit_test(granitemoe_swa),
                                       cmocka_unit_test(experts_apart)};
    return families_run("golden_experts", tests, (int)(sizeof tests / sizeof *tests), 3);
}
