/* Runs of models whose experts are in MXFP4, as gpt-oss is published (tests/golden/make_mxfp4.py). */
#include "harness.h"

#include "data/safetensors.h"

#include <jansson.h>
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

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, e2e_setup, e2e_teardown)
    const struct CMUnitTest tests[] = {TEST(numbers_are_trained)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
