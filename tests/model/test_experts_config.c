/* Configurations of models with experts: published ones have the parameters that their makers tell; limits, nonsense and mutated
 * files are refused with a sentence. */
#include "model/model.h"

#include "base/rng.h"
#include "ops/route.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include <jansson.h>

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

/* Published models: billions of parameters, all and those of a token, as their makers tell. */
static const struct published {
    const char *name;
    double total, active;
} published[] = {{"Qwen3-30B-A3B", 30.5, 3.3},
                 {"Qwen3-30B-A3B-Instruct-2507", 30.5, 3.3},
                 {"Qwen3-Coder-30B-A3B-Instruct", 30.5, 3.3},
                 {"Qwen3-235B-A22B", 235, 22},
                 {"Qwen3-Coder-480B-A35B-Instruct", 480, 35},
                 {"Qwen1.5-MoE-A2.7B", 14.3, 2.7},
                 {"Qwen2-57B-A14B", 57.4, 14},
                 {"Mixtral-8x7B-v0.1", 46.7, 12.9},
                 {"Mixtral-8x22B-v0.1", 141, 39},
                 {"OLMoE-1B-7B-0924", 6.9, 1.3},
                 {"gpt-oss-20b", 20.9, 3.6},
                 {"gpt-oss-120b", 116.8, 5.1},
                 {"granite-3.1-1b-a400m-base", 1.33, 0.4},
                 {"granite-3.1-3b-a800m-base", 3.3, 0.8},
                 {"GLM-4.5-Air", 106, 12},
                 {"GLM-4.5", 355, 32},
                 {"GLM-4.6", 355, 32},
                 {"dots.llm1.inst", 142, 14},
                 {"ERNIE-4.5-21B-A3B-PT", 21, 3},
                 {"ERNIE-4.5-300B-A47B-PT", 300, 47},
                 {"Hunyuan-A13B-Instruct", 80, 13},
                 {"MiniMax-M2", 230, 10},
                 {"Trinity-Mini", 26, 3},
                 {"Trinity-Nano-Preview", 6, 1},
                 {"Solar-Open-100B", 102.6, 12},
                 {"K-EXAONE-236B-A23B", 236, 23},
                 {"Hy3-preview", 295, 21},
                 {"gemma-4-26B-A4B-it", 25.2, 3.8},
                 {"Mellum2-12B-A2.5B-Base", 12, 2.5}};

/* Compares with published numbers. Makers count as active all that a token gets, or leave out the embedding, the head or both; and
 * they round, or count layers that predict further tokens: 4% in all, 5% of active parameters. */
static void published_models_have_their_parameters(void **state)
{
    (void)state;
    int failed = 0;
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        const struct published *p = &published[i];
        char from[512];
        struct model_config c;
        struct model *m;
        snprintf(from, sizeof from, "%s/tests/model/experts/%s", getenv("LTRAIN_SOURCE_ROOT"), p->name);
        if (model_config_read(from, &c) != OK || model_create(&c, NULL, 0, &m) != OK)
            fail_msg("%s", status_message());
        const double total = (double)m->total_params * 1e-9, active = (double)m->active_params * 1e-9,
                     ends = (double)(c.vocab * c.dim * (c.tied ? 1 : 2)) * 1e-9;
        if (c.unknown[0] || fabs(total - p->total) > 0.04 * p->total || p->active > 1.05 * active ||
            p->active < 0.95 * (active - ends)) {
            print_message("%s: %.4g of %.4g, active %.4g (%.4g without ends) of %.4g; unknown: %s\n", p->name, total, p->total,
                          active, active - ends, p->active, c.unknown);
            failed++;
        }
        model_destroy(m);
    }
    assert_int_equal(failed, 0);
}

static json_t *load(const char *name)
{
    char from[512];
    json_error_t error;
    snprintf(from, sizeof from, "%s/tests/golden/experts/%s/config.json", getenv("LTRAIN_SOURCE_ROOT"), name);
    json_t *root = json_load_file(from, 0, &error);
    assert_non_null(root);
    return root;
}

/* Reads the object as config.json and makes its model. */
static enum status make(const json_t *root, struct model_config *c, struct model **m)
{
    assert_int_equal(json_dump_file(root, path, 0), 0);
    TRY(model_config_read(dir, c));
    return model_create(c, NULL, 0, m);
}

/* Refuses one value of a key of a small model. text: the value as JSON; part: what the sentence says. */
static void refuse(const char *name, const char *key, const char *text, const char *part)
{
    json_t *root = load(name);
    struct model_config c;
    struct model *m;
    if (strcmp(key, "num_experts") == 0)
        json_object_del(root, "num_local_experts");
    json_object_set_new(root, key, json_loads(text, JSON_DECODE_ANY, NULL));
    const enum status st = make(root, &c, &m);
    if (st != ERR_INVALID || !strstr(status_message(), part))
        fail_msg("%s %s: '%s' does not say '%s'", key, text, st == OK ? "" : status_message(), part);
    json_decref(root);
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    refuse("qwen3_moe", "num_experts_per_tok", "5", "5 experts of a token, must be 1 to the 4 experts");
    refuse("qwen3_moe", "num_experts_per_tok", "0", "num_experts_per_tok is 0");
    refuse("qwen3_moe", "num_experts_per_tok", "-1", "num_experts_per_tok is -1");
    refuse("qwen3_moe", "num_experts", "0", "num_experts is 0");
    refuse("qwen3_moe", "num_experts", "1.5", "num_experts is 1.5");
    refuse("qwen3_moe", "moe_intermediate_size", "0", "moe_intermediate_size is 0");
    refuse("qwen3_moe", "moe_intermediate_size", "16777216", "are 67108864 columns, must be at most 16777216");
    refuse("qwen3_moe", "router_aux_loss_coef", "-0.5", "router_aux_loss_coef is -0.5");
    refuse("gpt_oss", "num_experts_per_tok", "0", "0 experts of a token");
    refuse("glm4_moe", "n_group", "4", "6 experts cannot be chosen from 2 of 4 groups");
    refuse("glm4_moe", "n_group", "6", "groups are equal, of two experts or more");
    refuse("glm4_moe", "n_group", "-3", "n_group is -3");
    refuse("glm4_moe", "topk_group", "4", "cannot be chosen from 4 of 3 groups");
    refuse("glm4_moe", "topk_group", "0", "topk_group is 0");
    refuse("glm4_moe", "num_experts_per_tok", "5", "5 experts of a token are more than the 4 in 2 groups of 2");
    refuse("glm4_moe", "routed_scaling_factor", "0", "routed_scaling_factor is 0");
    refuse("glm4_moe", "routed_scaling_factor", "-1.0", "routed_scaling_factor is -1.0");
    refuse("glm4_moe", "routed_scaling_factor", "1e39", "must be a positive number, and one that fp32 holds");
    refuse("glm4_moe", "routed_scaling_factor", "\"NaN\"", "routed_scaling_factor is \"NaN\"");
    refuse("glm4_moe", "n_shared_experts", "1e9", "n_shared_experts is");
    refuse("glm4_moe", "n_shared_experts", "1000000000", "shared experts are too wide");
    refuse("exaone_moe", "is_moe_layer", "[true, true, true, true]", "is_moe_layer is");
    refuse("minimax_m2", "attn_type_list", "[1, 0]", "attn_type_list is");
    refuse("hunyuan_v1_moe", "moe_topk", "[2, 1]", "only layers with equal numbers");
    refuse("afmoe", "n_group", "2", "n_group is 2");
}

/* A NaN is no JSON, though Python writes it. */
static void nan_is_refused(void **state)
{
    (void)state;
    struct model_config c;
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("{\"model_type\": \"glm4_moe\", \"routed_scaling_factor\": NaN}", f);
    fclose(f);
    assert_int_equal(model_config_read(dir, &c), ERR_INVALID);
    assert_non_null(strstr(status_message(), "NaN"));
}

/* The limits are those of routing: at them a model is made, beyond it is refused. */
static void limits_are_those_of_routing(void **state)
{
    (void)state;
    char beyond[32];
    json_t *root = load("qwen3_moe");
    struct model_config c;
    struct model *m;
    json_object_del(root, "num_local_experts");
    json_object_set_new(root, "num_experts", json_integer(ROUTE_EXPERTS));
    json_object_set_new(root, "num_experts_per_tok", json_integer(ROUTE_K));
    if (make(root, &c, &m) != OK)
        fail_msg("%s", status_message());
    model_destroy(m);
    json_decref(root);
    snprintf(beyond, sizeof beyond, "%d", ROUTE_EXPERTS + 1);
    refuse("qwen3_moe", "num_experts", beyond, "number of experts is 1025, must be 1 to 1024");
    snprintf(beyond, sizeof beyond, "%d", ROUTE_K + 1);
    refuse("qwen3_moe", "num_experts_per_tok", beyond, "number of experts of a token is 65, must be 1 to 64");
}

static const char *const families_here[] = {"qwen3_moe",  "mixtral",          "olmoe",          "qwen2_moe",  "gpt_oss",
                                            "granitemoe", "granitemoeshared", "glm4_moe",       "dots1",      "solar_open",
                                            "exaone_moe", "ernie4_5_moe",     "hunyuan_v1_moe", "minimax_m2", "hy_v3",
                                            "afmoe",      "gemma4_text",      "flex_olmo",      "mellum",     "granitemoe_swa"};

static uint64_t turn;

static uint64_t draw(uint64_t n)
{
    return rng_below(47, 0, turn++, n);
}

/* Returns a value that a file may have by mistake. */
static json_t *odd_value(const json_t *old)
{
    static const char *const values[] = {"0",
                                         "-1",
                                         "1",
                                         "2",
                                         "3",
                                         "7",
                                         "1024",
                                         "1025",
                                         "65",
                                         "4096",
                                         "4097",
                                         "2147483647",
                                         "2147483648",
                                         "9223372036854775807",
                                         "0.5",
                                         "-1.5",
                                         "1e30",
                                         "1e39",
                                         "1e308",
                                         "null",
                                         "true",
                                         "false",
                                         "\"\"",
                                         "\"sigmoid\"",
                                         "[]",
                                         "{}",
                                         "[1]",
                                         "[0, 1]",
                                         "[true, false]",
                                         "{\"a\": 1}"};
    const uint64_t at = draw(sizeof values / sizeof *values + 3);
    if (at < sizeof values / sizeof *values)
        return json_loads(values[at], JSON_DECODE_ANY, NULL);
    return json_is_integer(old) ? json_integer((json_int_t)((uint64_t)json_integer_value(old) * (1 + at % 2) + at % 3 - 1))
                                : json_deep_copy(old);
}

/* Changes some keys at random, or removes them. */
static void mutate(json_t *root)
{
    for (uint64_t n = 1 + draw(3); n > 0; n--) {
        uint64_t at = draw(json_object_size(root));
        void *it = json_object_iter(root);
        while (at-- > 0)
            it = json_object_iter_next(root, it);
        const char *key = json_object_iter_key(it);
        if (draw(8) == 0)
            json_object_del(root, key);
        else
            json_object_set_new(root, key, odd_value(json_object_iter_value(it)));
    }
}

/* Checks properties that every created model has. */
static void check_model(const struct model_config *c, const struct model *m)
{
    assert_true(c->experts >= 0 && c->experts <= ROUTE_EXPERTS);
    assert_true(m->active_params > 0 && m->active_params <= m->total_params);
    if (c->experts == 0)
        return;
    assert_true(c->experts_used >= 1 && c->experts_used <= ROUTE_K && c->experts_used <= c->experts);
    for (int64_t l = 0; l < c->layers; l++) {
        const struct model_block *b = model_find_block(&m->layers[l], BLOCK_EXPERTS);
        if (!b)
            continue;
        const struct experts_block *e = &b->experts;
        assert_true(e->experts % e->groups == 0 && e->groups_used <= e->groups &&
                    e->used <= e->groups_used * (e->experts / e->groups));
        assert_true(isfinite(e->scale) && e->scale > 0 && isfinite(e->floor));
    }
}

static void mutated_files_are_read_or_refused(void **state)
{
    (void)state;
    int made = 0, refused = 0;
    turn = 0;
    for (int i = 0; i < 3000; i++) {
        json_t *root = load(families_here[(size_t)i % (sizeof families_here / sizeof *families_here)]);
        struct model_config c, again;
        struct model *m;
        char difference[128];
        mutate(root);
        const enum status st = make(root, &c, &m);
        if (st == OK) {
            check_model(&c, m);
            model_destroy(m);
            if (model_config_write(dir, &c, F32) != OK || model_config_read(dir, &again) != OK)
                fail_msg("%s, of %s", status_message(), json_dumps(root, 0));
            if (model_config_differs(&again, &c, difference, sizeof difference))
                fail_msg("%s, of %s", difference, json_dumps(root, 0));
        } else {
            assert_int_equal(st, ERR_INVALID);
            assert_true(strlen(status_message()) > 10);
        }
        made += st == OK;
        refused += st != OK;
        json_decref(root);
    }
    assert_true(made > 300 && refused > 300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(published_models_have_their_parameters),
                                       cmocka_unit_test(nonsense_is_refused), cmocka_unit_test(nan_is_refused),
                                       cmocka_unit_test(limits_are_those_of_routing),
                                       cmocka_unit_test(mutated_files_are_read_or_refused)};
    return cmocka_run_group_tests(tests, create_dir, remove_dir);
}
