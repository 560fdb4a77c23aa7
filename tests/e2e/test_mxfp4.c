/* Runs of models whose experts are in MXFP4, as gpt-oss is published (tests/golden/make_mxfp4.py). */
#include "harness.h"

#include "data/safetensors.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IDS \
    " --data ids.bin --token-type u16 --seq-len 128 --tiles rows=64,loss=64,group=4096 --threads 1 --effort quick --lr 1e-2 "

enum { IDS_MOST = 32, IDS_COUNT = 4096 };

static const char *const stacks[] = {"model.layers.0.mlp.experts.gate_up_proj", "model.layers.0.mlp.experts.down_proj"};

/* Copies the model, and writes tokens that it knows. */
static void begin(void)
{
    uint16_t ids[IDS_COUNT];
    char from[4096];
    if (!getenv("LTRAIN_SOURCE_ROOT"))
        skip();
    snprintf(from, sizeof from, "%s/tests/golden/moe/gpt-oss-mxfp4", getenv("LTRAIN_SOURCE_ROOT"));
    e2e_copy(from, "model");
    e2e_remove("model/dequantised.safetensors");
    snprintf(from, sizeof from, "%s/tests/golden/moe/gpt-oss-mxfp4/dequantised.safetensors", getenv("LTRAIN_SOURCE_ROOT"));
    e2e_copy(from, "numbers.safetensors");
    for (int i = 0; i < IDS_COUNT; i++)
        ids[i] = (uint16_t)((i * 7 + i / 5 % 3) % IDS_MOST);
    FILE *f = fopen("ids.bin", "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(ids, sizeof *ids, IDS_COUNT, f), IDS_COUNT);
    fclose(f);
}

static void *bytes_of(struct st_file *f, const char *name, struct st_raw *t)
{
    assert_int_equal(st_find_raw(f, name, t), OK);
    void *bytes = malloc((size_t)t->bytes);
    assert_non_null(bytes);
    assert_int_equal(st_read_bytes(f, name, 0, t->bytes, bytes), OK);
    return bytes;
}

/* Makes sure that a model's file has the stacks as transformers' numbers, in bf16, and that config.json says nothing of MXFP4. */
static void check_numbers(const char *dir)
{
    char path[256];
    struct st_file *f, *numbers;
    snprintf(path, sizeof path, "%s/config.json", dir);
    json_t *config = json_load_file(path, 0, NULL);
    assert_non_null(config);
    assert_null(json_object_get(config, "quantization_config"));
    assert_string_equal(json_string_value(json_object_get(config, "dtype")), "bfloat16");
    json_decref(config);
    assert_int_equal(st_open(dir, &f), OK);
    assert_int_equal(st_open("numbers.safetensors", &numbers), OK);
    for (int i = 0; i < 2; i++) {
        struct st_raw x, y;
        void *have = bytes_of(f, stacks[i], &x), *want = bytes_of(numbers, stacks[i], &y);
        assert_string_equal(x.type, "BF16");
        assert_int_equal(x.n_dims, 3);
        assert_memory_equal(x.shape, y.shape, 3 * sizeof *x.shape);
        assert_memory_equal(have, want, (size_t)y.bytes);
        free(have);
        free(want);
    }
    st_close(f);
    st_close(numbers);
}

/* A run of the whole model trains the numbers that transformers makes of its experts, and writes such a model. */
static void numbers_are_trained(void **state)
{
    (void)state;
    begin();
    e2e_succeeds(NULL, IDS "--model model --dtype bf16 --freeze *experts* --steps 2 --out frozen");
    check_numbers("frozen/hf");
    e2e_succeeds(NULL, IDS "--model model --dtype bf16 --steps 4 --out whole");
    e2e_succeeds(NULL, IDS DISCRETE "--model model --dtype bf16 --steps 2 --save-every 2 --out part");
    e2e_succeeds(NULL, IDS "--resume part --steps 4");
    struct curve a = e2e_curve("whole"), b = e2e_curve("part");
    assert_true(a.loss[3] < a.loss[0]);
    e2e_same_curve(&a, &b, 4);
    e2e_same_file("whole/hf/model.safetensors", "part/hf/model.safetensors");
    e2e_succeeds(NULL, IDS "--model frozen/hf --dtype bf16 --steps 1 --out more");
}

/* Adapters beside experts as they are published have the bits of adapters beside transformers' numbers, wherever the experts are. */
static void kept_as_published(void **state)
{
    (void)state;
    static const char *const places[] = {"--offload none", "--offload cpu", "--device cpu:discrete --offload experts=nvme",
                                         DISCRETE "--offload nvme"},
                             *const types[] = {"bf16", "bf16", "fp32", "bf16"};
    begin();
    e2e_succeeds(NULL, IDS "--model model --dtype bf16 --lora r=4 --base none --offload none --steps 3 --out bf16");
    e2e_succeeds(NULL, IDS "--model model --dtype fp32 --lora r=4 --base none --offload none --steps 3 --out fp32");
    for (int i = 0; i < 4; i++) {
        struct curve want = e2e_curve(types[i]);
        char adapter[64];
        const char *said =
            e2e_succeeds(NULL, IDS "--model model --dtype %s --lora r=4 %s --steps 3 --out run", types[i], places[i]).out;
        assert_non_null(strstr(said, "experts in MXFP4, which are kept so; --base none"));
        struct curve have = e2e_curve("run");
        assert_int_equal(have.n, 3);
        e2e_same_curve(&want, &have, 3);
        snprintf(adapter, sizeof adapter, "%s/hf/adapter_model.safetensors", types[i]);
        e2e_same_file(adapter, "run/hf/adapter_model.safetensors");
        if (i < 3)
            e2e_remove("run");
    }
    e2e_succeeds(NULL, "export --model run --to whole");
    e2e_succeeds(NULL, IDS "--model model --dtype bf16 --lora r=4,targets=q_proj --steps 1 --out apart");
    e2e_succeeds(NULL, "export --model apart --to merged");
    check_numbers("merged");
    e2e_succeeds(NULL, IDS "--model run/hf --dtype bf16 --base mxfp4 --steps 1 --out on");
}

/* Experts in NF4 and int8 are quantised while they are loaded: losses are near those beside the weights, and the same wherever the
 * experts are. */
static void other_forms(void **state)
{
    (void)state;
    static const char *const forms[] = {"nf4", "int8"}, *const places[] = {"--offload cpu",
                                                                           "--device cpu:discrete --offload experts=nvme"};
    char from[4096];
    begin();
    snprintf(from, sizeof from, "%s/tests/golden/moe/qwen3-moe", getenv("LTRAIN_SOURCE_ROOT"));
    e2e_copy(from, "model");
    e2e_succeeds(NULL, IDS "--model model --dtype fp32 --lora r=4 --steps 2 --out stored");
    const struct curve stored = e2e_curve("stored");
    for (int i = 0; i < 2; i++) {
        e2e_succeeds(NULL, IDS "--model model --dtype fp32 --lora r=4 --base %s --offload none --steps 2 --out near", forms[i]);
        const struct curve want = e2e_curve("near");
        assert_true(want.loss[0] != stored.loss[0] && fabs(want.loss[0] - stored.loss[0]) < 0.05 * stored.loss[0]);
        for (int k = 0; k < 2; k++) {
            e2e_succeeds(NULL, IDS "--model model --dtype fp32 --lora r=4 --base %s %s --steps 2 --out far", forms[i], places[k]);
            const struct curve have = e2e_curve("far");
            e2e_same_curve(&want, &have, 2);
            e2e_same_file("near/hf/adapter_model.safetensors", "far/hf/adapter_model.safetensors");
            e2e_remove("far");
        }
        e2e_succeeds(NULL, "export --model near --to merged");
        e2e_remove("merged");
        e2e_remove("near");
    }
    e2e_refuses(2, "has experts, whose stacks transformers reads in no format", NULL,
                "export --model model --to a --quantize nf4");
}

/* Refuses in a sentence what such files cannot do. */
static void refusals(void **state)
{
    (void)state;
    begin();
    e2e_refuses(2, "--base nf4: the files of model have experts in MXFP4", NULL,
                IDS "--model model --lora r=4 --base nf4 --steps 1 --out a");
    e2e_refuses(2, "--base mxfp4 is what adapters are trained beside", NULL, IDS "--model model --base mxfp4 --steps 1 --out a");
    e2e_refuses(2, "--base mxfp4: tiny has no experts in MXFP4", NULL,
                IDS "--model tiny --lora r=4 --base mxfp4 --steps 1 --out a");
    e2e_refuses(2, "hold MXFP4 already", NULL, "export --model model --to a --quantize nf4");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, e2e_setup, e2e_teardown)
    const struct CMUnitTest tests[] = {TEST(numbers_are_trained), TEST(kept_as_published), TEST(other_forms), TEST(refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
