/* Tests reading and writing PEFT's adapter_config.json: which maps have adapters, and that what is written reads back the same. */
#include "model/config/adapter_config.h"
#include "model/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static char dir[64], path[96];

static int create_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/ltrain-test-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof path, "%s/adapter_config.json", dir);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(dir);
}

static enum status read_members(const char *members, struct lora *out)
{
    char base[64];
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 8, %s}\n", members);
    fclose(f);
    return adapter_config_read(dir, out, base, sizeof base);
}

/* Lists the maps with an adapter by the last part of their name and layer, as "q0 v1 lm_head"; m/6 for a rank other than 4. */
static void list(const struct model *m, char *text, size_t bytes)
{
    text[0] = 0;
    for (int i = 0; i < m->n_params; i++) {
        const struct model_param *p = &m->params[i];
        char map[64], layer[16] = "", rank[16] = "";
        const char *end = strstr(p->name, ".lora_A.weight"), *from = end;
        size_t used = strlen(text);
        if (!p->adapter || !end)
            continue;
        while (from > p->name && from[-1] != '.')
            from--;
        snprintf(map, sizeof map, "%.*s", (int)(end - from), from);
        if (strstr(map, "_proj"))
            *strstr(map, "_proj") = 0;
        if (model_unit_in_layer(m, p->unit))
            snprintf(layer, sizeof layer, "%d", m->units[p->unit].layer);
        if (p->shape[0] != 4)
            snprintf(rank, sizeof rank, "/%d", (int)p->shape[0]);
        snprintf(text + used, bytes - used, "%s%s%s%s", used ? " " : "", map, layer, rank);
    }
}

static struct model *adapted(const struct lora *l, int64_t layers)
{
    struct model_config c;
    struct model *m = NULL;
    assert_int_equal(model_preset("tiny", &c), OK);
    c.layers = layers;
    c.tied = 0;
    c.lora = *l;
    if (model_create(&c, NULL, 0, &m) != OK || model_check_adapters(m) != OK)
        fail_msg("%s", status_message());
    return m;
}

/* Checks which maps get adapters, both for the file and for what is then written for the model. idle: the part without effect;
 * "": there is none. */
static void expect(const char *members, const char *maps, const char *idle)
{
    struct lora l;
    char found[512], part[256];
    if (read_members(members, &l) != OK)
        fail_msg("%s: %s", members, status_message());
    for (int again = 0; again < 2; again++) {
        struct model *m = adapted(&l, 2);
        assert_int_equal(adapter_config_fit(&m->config, &l), OK); /* nothing to leave out of a model without experts */
        list(m, found, sizeof found);
        if (strcmp(found, maps) != 0)
            fail_msg("%s%s: '%s', not '%s'", members, again ? " as written" : "", found, maps);
        assert_int_equal(model_check_patterns(m, part, sizeof part), idle[0] ? ERR_INVALID : OK);
        assert_string_equal(part, idle);
        char base[64], *text = lora_text(&l);
        struct lora read_back;
        assert_int_equal(lora_parse("here", text, &read_back), OK);
        assert_memory_equal(&l, &read_back, sizeof l);
        free(text);
        assert_int_equal(adapter_config_write(dir, m, "base"), OK);
        assert_int_equal(adapter_config_read(dir, &l, base, sizeof base), OK);
        model_destroy(m);
    }
}

static void refuse(const char *members, const char *why)
{
    struct lora l;
    if (read_members(members, &l) != ERR_INVALID || !strstr(status_message(), why))
        fail_msg("%s: '%s' does not say '%s'", members, status_message(), why);
}

#define ALL(n) "q" n " k" n " v" n " o" n " gate" n " up" n " down" n

/* Which maps get adapters follows PEFT 0.21.2 (check_target_module_exists), whose merged adapters gave the expected lists. */
static void test_places(void **state)
{
    (void)state;
    expect("\"target_modules\": [\"q_proj\", \"v_proj\"]", "q0 v0 q1 v1", "");
    expect("\"target_modules\": [\"model.layers.1.mlp.up_proj\"]", "up1", "");
    expect("\"target_modules\": [\"1.mlp.up_proj\", \"layers.0.self_attn.q_proj\", \"lm_head\"]", "q0 up1 lm_head", "");
    expect("\"target_modules\": \".*layers[.]1[.].*_proj\"", ALL("1"), "");
    expect("\"target_modules\": \"All-Linear\"", ALL("0") " " ALL("1"), "");
    expect("\"target_modules\": [\"q_proj\", \"query\"]", "q0 q1", "targets=query");
    expect("\"target_modules\": [\"q_proj\", \"v_proj\"], \"layers_to_transform\": 0", "q0 v0", "");
    expect("\"target_modules\": [\"q_proj\", \"v_proj\"], \"layers_to_transform\": [1]", "q1 v1", "");
    /* lm_head is named in full */
    expect("\"target_modules\": [\"q_proj\", \"lm_head\"], \"layers_to_transform\": [1, 9]", "q1 lm_head",
           "layers-to-transform=9");
    expect("\"target_modules\": [\"q_proj\"], \"layers_to_transform\": []", "q0 q1", "");
    expect("\"target_modules\": [\"q_proj\"], \"layers_to_transform\": [0], \"layers_pattern\": \"layers\"", "q0", "");
    expect("\"target_modules\": [\"q_proj\"], \"layers_to_transform\": [0], \"layers_pattern\": [\"h\", \"(layers|blocks)\"]",
           "q0", "");
    /* parameters are in all layers, whatever is excluded */
    expect(
        "\"target_modules\": [\"q_proj\", \"lm_head\"], \"target_parameters\": [\"mlp.up_proj.weight\"], \"layers_to_transform\": 0",
        "q0 up0 up1 lm_head", "");
    expect(
        "\"target_modules\": [\"q_proj\", \"v_proj\"], \"target_parameters\": [\"up_proj.weight\"], \"layers_to_transform\": [1], "
        "\"layers_pattern\": [\"h\", \"layers\"], \"exclude_modules\": [\"v_proj\", \"up_proj\"]",
        "up0 q1 up1", "");
    expect(
        "\"target_modules\": \".*[qv]_proj\", \"target_parameters\": [\"up_proj.weight\"], \"exclude_modules\": \".*[.]0[.].*\"",
        "up0 q1 v1 up1", "");
    expect("\"target_modules\": [\"q_proj\", \"up_proj\"], \"exclude_modules\": [\"layers.0.self_attn.q_proj\"]", "up0 q1 up1",
           "");
    expect("\"target_modules\": [\"q_proj\", \"up_proj\"], \"exclude_modules\": \".*[.]1[.]mlp[.].*\"", "q0 up0 q1", "");
    expect("\"target_modules\": [\"q_proj\", \"lm_head\"], \"exclude_modules\": \"lm_head\"", "q0 q1", "targets=lm_head");
    expect("\"target_modules\": [\"q_proj\"], \"exclude_modules\": [\"visual\"]", "q0 q1", "exclude-modules=visual");
    expect(
        "\"target_modules\": [\"q_proj\"], \"modules_to_save\": [\"layers.1.mlp.up_proj\"], \"rank_pattern\": {\"0.self_attn.q_proj\": 6}",
        "q0/6 q1", "");
}

/* Lists and patterns of all maps of many layers are joined, since separately they would be longer than a text may be. */
static void test_many(void **state)
{
    (void)state;
    static const char *const maps[] = {"self_attn.q_proj", "self_attn.k_proj", "mlp.up_proj", "mlp.down_proj"};
    enum { LAYERS = 80 };
    static char members[60000];
    struct lora l;
    size_t used = (size_t)snprintf(members, sizeof members, "\"init_lora_weights\": \"eva\", \"target_modules\": [\"lm_head\"");
    for (int i = 0; i < LAYERS * 4; i++)
        if (i % 5)
            used += (size_t)snprintf(members + used, sizeof members - used, ", \"model.layers.%d.%s\"", i / 4, maps[i % 4]);
    used += (size_t)snprintf(members + used, sizeof members - used, "], \"rank_pattern\": {\"lm_head.none.0.x\": 1");
    for (int i = 0; i < LAYERS * 4; i++)
        if (i % 5 && i % 3)
            used += (size_t)snprintf(members + used, sizeof members - used, ", \"model.layers.%d.%s\": %d", i / 4, maps[i % 4],
                                     2 + i % 7);
    snprintf(members + used, sizeof members - used, "}");
    if (read_members(members, &l) != OK)
        fail_msg("%s", status_message());
    struct model *m = adapted(&l, LAYERS);
    int found = 0;
    for (int i = 0; i < m->n_params; i++) {
        char at[32], name[64];
        int layer;
        const struct model_param *p = &m->params[i];
        if (!p->adapter || sscanf(p->name, "model.layers.%d.%[a-z_.]%n", &layer, name, &(int){0}) != 2 ||
            !strstr(p->name, "lora_A"))
            continue;
        int k = 0;
        snprintf(at, sizeof at, "%.*s", (int)(strstr(name, ".lora_") - name), name);
        while (k < 4 && strcmp(maps[k], at) != 0)
            k++;
        const int n = 4 * layer + k;
        assert_true(k < 4 && n % 5);
        assert_int_equal(p->shape[0], n % 3 ? 2 + n % 7 : 4);
        found++;
    }
    assert_int_equal(found, LAYERS * 4 / 5 * 4);
    model_destroy(m);
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const taken[] = {"pissa", "pissa_niter_16", "olora", "OLoRA", "corda", "loftq", "lora_ga"},
                             *const beside[] = {"true",         "false",   "null",           "\"gaussian\"",
                                                "\"Gaussian\"", "\"eva\"", "\"orthogonal\"", "\"mica\""};
    char members[256];
    struct lora l;
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        snprintf(members, sizeof members, "\"target_modules\": [\"q_proj\"], \"init_lora_weights\": \"%s\"", taken[i]);
        refuse(members, "a base that was changed for it");
    }
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
        snprintf(members, sizeof members,
                 "\"target_modules\": [\"q_proj\"], \"eva_config\": {\"rho\": 2.0}, \"init_lora_weights\": %s", beside[i]);
        assert_int_equal(read_members(members, &l), OK);
    }
    refuse("\"target_modules\": [\"q_proj\"], \"init_lora_weights\": \"xavier\"",
           "true, false, gaussian, eva, orthogonal and mica are read");
    refuse("\"target_modules\": [\"q_proj\"], \"init_lora_weights\": 1", "true, false, gaussian");
    refuse("\"target_modules\": []", "names of modules or a regular expression");
    refuse("\"target_modules\": [\"q_proj\"], \"layers_to_transform\": [-1]", "counted from 0");
    refuse("\"target_modules\": [\"q_proj\"], \"layers_to_transform\": \"0\"", "a number of a layer or a list");
    refuse("\"target_modules\": \".*q_proj\", \"layers_to_transform\": [0]", "goes with a list of names");
    refuse("\"target_modules\": [\"q_proj\"], \"layers_pattern\": \"layers\"", "which there are none of");
    refuse("\"target_modules\": [\"q_proj\"], \"modules_to_save\": \"norm\"", "a list of names");
    refuse("\"target_modules\": [\"q_proj\"], \"rank_pattern\": [4]", "an object of names and numbers");
    refuse("\"target_modules\": [\"q_proj\"], \"layer_replication\": [[0, 1]]", "ltrain does not do that");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_places), cmocka_unit_test(test_many),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, create_dir, remove_dir);
}
