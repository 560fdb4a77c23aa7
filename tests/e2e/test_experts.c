/* Runs of models with experts: files in and out, stopped and resumed runs, tensors that are not trained. */
#include "harness.h"

#include "data/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A run that is resumed, with everything elsewhere, gives the losses and the files of one that was not stopped. */
static void resumed_bit_for_bit(void **state)
{
    (void)state;
    static const char *const models[] = {"qwen3-moe", "gpt-oss", "glm4-moe"}, *const types[] = {"fp32", "bf16", "bf16"};
    for (int i = 0; i < 3; i++) {
        e2e_experts_model(models[i], "model");
        e2e_succeeds(NULL, IDS "--model model --dtype %s --steps 4 --out whole", types[i]);
        e2e_succeeds(NULL, IDS DISCRETE "--model model --dtype %s --steps 2 --save-every 2 --out part", types[i]);
        e2e_succeeds(NULL, IDS "--resume part --steps 4");
        struct curve a = e2e_curve("whole"), b = e2e_curve("part");
        assert_int_equal(a.n, 4);
        assert_true(a.loss[3] < a.loss[0]);
        e2e_same_curve(&a, &b, 4);
        e2e_same_file("whole/hf/model.safetensors", "part/hf/model.safetensors");
        e2e_remove("whole");
        e2e_remove("part");
        e2e_remove("model");
    }
}

static char *bytes_of(const struct st_file *f, const char *name, struct st_raw *t)
{
    assert_int_equal(st_find_raw(f, name, t), OK);
    char *bytes = malloc((size_t)t->bytes + 1);
    assert_non_null(bytes);
    assert_int_equal(st_read_bytes((struct st_file *)f, name, 0, t->bytes, bytes), OK);
    return bytes;
}

/* Reads the biases that choose in a model's file; returns their number. */
static int read_biases(const char *path, float out[64])
{
    struct st_file *f;
    int n = 0;
    assert_int_equal(st_open(path, &f), OK);
    for (int i = 0; i < st_count(f); i++) {
        struct st_raw t;
        if (!strstr(st_name(f, i), "correction_bias"))
            continue;
        char *bytes = bytes_of(f, st_name(f, i), &t);
        assert_string_equal(t.type, "F32");
        memcpy(out + n, bytes, (size_t)t.bytes);
        n += (int)t.bytes / 4;
        free(bytes);
    }
    st_close(f);
    return n;
}

/* A step moves each bias by the rate, up or down; a resumed run on drives and one of two ranks have the same biases as a whole one. */
static void biases_move(void **state)
{
    (void)state;
    float before[64], one[64], four[64];
    e2e_experts_model("glm4-moe", "model");
    const int n = read_biases("model/model.safetensors", before);
    e2e_succeeds(NULL, IDS "--model model --dtype bf16 --router-bias-rate 0.125 --steps 1 --out one");
    assert_int_equal(read_biases("one/hf/model.safetensors", one), n);
    int up = 0, down = 0;
    for (int i = 0; i < n; i++) {
        up += one[i] == before[i] + 0.125f;
        down += one[i] == before[i] - 0.125f;
    }
    assert_true(n > 0 && up > 0 && down > 0 && up + down + 2 > n); /* an expert that has the mean stays */
    e2e_succeeds(NULL, IDS "--model model --dtype bf16 --router-bias-rate 0.125 --steps 4 --out whole");
    e2e_succeeds(NULL, IDS DISCRETE "--model model --dtype bf16 --router-bias-rate 0.125 --steps 2 --save-every 2 --out part");
    e2e_succeeds(NULL, IDS "--resume part --steps 4");
    e2e_same_file("whole/hf/model.safetensors", "part/hf/model.safetensors");
    assert_int_equal(read_biases("whole/hf/model.safetensors", four), n);
    static const struct launch ranks = {.prepare = e2e_let_root_start_ranks};
    if (strstr(e2e_succeeds(NULL, "--version").out, "MPI")) { /* stages move the biases of their layers */
        e2e_succeeds(&ranks,
                     IDS "--model model --dtype bf16 --router-bias-rate 0.125 --steps 1 --ranks 2 --mesh pp=2 --out staged");
        assert_int_equal(read_biases("staged/hf/model.safetensors", four), n);
        assert_memory_equal(four, one, (size_t)n * sizeof *one);
        e2e_contains(e2e_succeeds(&ranks, "check " IDS DISCRETE "--model model --router-aux 0.5 --ranks 2 --mesh pp=2,slices=3 "
                                          "--stage-ahead 1 --batch 2 --steps 2")
                         .out,
                     "check: pass");
    }
    e2e_refuses(2, "no bias that chooses experts", NULL, IDS "--model tiny --router-bias-rate 0.1 --steps 1 --out none");
}

/* Biases move by the load of all ranks: two ranks leave the bits of one. */
static void biases_of_ranks_move(void **state)
{
    (void)state;
    static const char *const more[] = {"--zero 1", "--zero 3 --offload nvme"};
    static const struct launch ranks = {.prepare = e2e_let_root_start_ranks};
    float one[64], two[64];
    if (!strstr(e2e_succeeds(NULL, "--version").out, "MPI"))
        skip();
    e2e_experts_model("glm4-moe", "model");
    e2e_succeeds(NULL, IDS "--model model --dtype fp32 --router-bias-rate 0.125 --steps 1 --out one");
    const int n = read_biases("one/hf/model.safetensors", one);
    for (int i = 0; i < 2; i++) {
        e2e_succeeds(&ranks, IDS "--model model --dtype fp32 --router-bias-rate 0.125 --steps 1 --ranks 2 --out two %s", more[i]);
        assert_int_equal(read_biases("two/hf/model.safetensors", two), n);
        assert_memory_equal(one, two, (size_t)n * sizeof *one);
        e2e_remove("two");
    }
}

/* Stages whose ranks share experts out train as one rank does, with the loss that balances experts over all layers; their files have all
 * experts. */
static void stages_share_experts(void **state)
{
    (void)state;
    static const struct launch ranks = {.prepare = e2e_let_root_start_ranks};
    if (!strstr(e2e_succeeds(NULL, "--version").out, "MPI"))
        skip();
    e2e_experts_model("mixtral-aux", "model");
    e2e_refuses(2, "ep=2 does not divide the 1 rank of each of the 2 stages", NULL,
                "plan " IDS "--model model --ranks 2 --mesh pp=2,ep=2");
    e2e_contains(
        e2e_succeeds(&ranks, "check " IDS DISCRETE "--model model --ranks 4 --mesh pp=2,ep=2 --zero 3 --batch 3 --steps 2").out,
        "check: pass");
    e2e_succeeds(NULL, IDS "--model model --dtype fp32 --batch 2 --steps 2 --out alone");
    e2e_succeeds(&ranks, IDS
                 "--model model --dtype fp32 --ranks 4 --mesh pp=2,ep=2 --zero 2 --batch 2 --steps 1 --save-every 1 --out run");
    e2e_succeeds(NULL, IDS "--resume run --ranks 1 --mesh pp=1,ep=1 --batch 2 --steps 2");
    struct curve a = e2e_curve("alone"), b = e2e_curve("run");
    assert_true(a.n == 2 && b.n == 2 && a.loss[1] < a.loss[0]);
    for (int i = 0; i < 2; i++) /* sums in another order: 3e-7 of the loss were seen */
        assert_true(fabs(a.loss[i] - b.loss[i]) < 1e-5 * a.loss[i]);
}

/* An export is a model like the one that was read: a run goes on with it as with the state of the run that wrote it. */
static void exports_are_models(void **state)
{
    (void)state;
    static const char *const models[] = {"mixtral", "granitemoeshared", "afmoe"};
    for (int i = 0; i < 3; i++) {
        e2e_experts_model(models[i], "model");
        e2e_succeeds(NULL, IDS "--model model --dtype fp32 --steps 2 --out run");
        e2e_succeeds(
            NULL, "eval --model run/hf --eval-data ids.bin --token-type u16 --lengths 64,128 --effort quick --dtype fp32 --json");
        e2e_succeeds(NULL, IDS "--model run/hf --dtype fp32 --steps 1 --out more");
        struct curve a = e2e_curve("run"), b = e2e_curve("more");
        assert_true(b.loss[0] < a.loss[0]);
        e2e_remove("run");
        e2e_remove("more");
        e2e_remove("model");
    }
}

/* Compares files: tensors whose name holds `frozen` are the same, all others were trained; routers are fp32 now. Returns the number
 * of those that are the same. */
static int compare(const char *before, const char *after, const char *frozen)
{
    struct st_file *a, *b;
    int same = 0;
    assert_int_equal(st_open(before, &a), OK);
    assert_int_equal(st_open(after, &b), OK);
    assert_int_equal(st_count(a), st_count(b));
    for (int i = 0; i < st_count(a); i++) {
        struct st_raw s, t;
        const char *name = st_name(a, i);
        char *x = bytes_of(a, name, &s), *y = bytes_of(b, name, &t);
        const int kept = strstr(name, frozen) != NULL || strstr(name, "correction_bias") != NULL;
        const int router = strstr(name, ".router.") != NULL;
        if (strcmp(router ? "F32" : s.type, t.type) != 0 || s.n_dims != t.n_dims || memcmp(s.shape, t.shape, sizeof s.shape) != 0)
            fail_msg("%s has another type or shape", name);
        if (!router && (memcmp(x, y, (size_t)s.bytes) == 0) != kept)
            fail_msg("%s is %s", name, kept ? "not what it was" : "still what it was");
        same += kept;
        free(x);
        free(y);
    }
    st_close(a);
    st_close(b);
    return same;
}

/* Tensors that are not trained are exported byte for byte, and files have the tensors that were read. */
static void untrained_tensors_are_the_same(void **state)
{
    (void)state;
    static const struct {
        const char *model, *freeze, *part;
        int tensors; /* number of frozen tensors and of biases that only choose */
    } cases[] = {{"glm4-moe", "*.experts.*", ".experts.", 19},
                 {"granitemoe", "*_linear.weight", "_linear.weight", 2},
                 {"gpt-oss", "*.experts.*", ".experts.", 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        e2e_experts_model(cases[i].model, "model");
        e2e_succeeds(NULL, IDS "--model model --dtype bf16 --freeze %s --steps 2 --out run", cases[i].freeze);
        assert_int_equal(compare("model", "run/hf", cases[i].part), cases[i].tensors);
        e2e_remove("run");
        e2e_remove("model");
    }
}

/* Adds tensors to a model's file, as published models have of layers that predict further tokens. */
static void add_further(const char *model, const char *const *names, int n)
{
    char path[256];
    struct st_file *f;
    struct st_writer *w;
    struct st_decl decls[96];
    struct st_raw raw[96];
    char *bytes[96];
    int count = 0;
    const float numbers[4] = {1, 2, 3, 4};
    snprintf(path, sizeof path, "%s/model.safetensors", model);
    assert_int_equal(st_open(path, &f), OK);
    for (; count < st_count(f); count++) {
        bytes[count] = bytes_of(f, st_name(f, count), &raw[count]);
        decls[count] = (struct st_decl){.name = strdup(st_name(f, count)),
                                        .n_dims = raw[count].n_dims,
                                        .type = strcmp(raw[count].type, "F32") ? "BF16" : "F32"};
        memcpy(decls[count].shape, raw[count].shape, sizeof decls[count].shape);
    }
    for (int i = 0; i < n; i++)
        decls[count + i] = (struct st_decl){.name = names[i], .dtype = F32, .n_dims = 1, .shape = {4}};
    st_close(f);
    assert_int_equal(st_create(path, decls, count + n), OK);
    assert_int_equal(st_write_open(path, decls, count + n, &w), OK);
    for (int i = 0; i < count; i++) {
        assert_int_equal(st_write_bytes(w, i, 0, raw[i].bytes, bytes[i]), OK);
        free(bytes[i]);
        free((char *)decls[i].name);
    }
    for (int i = 0; i < n; i++)
        assert_int_equal(st_write_f32(w, count + i, 0, 4, numbers), OK);
    assert_int_equal(st_write_finish(w), OK);
}

/* Layers that predict further tokens are kept by a run and its resumed successor; others behind the last are refused. */
static void further_layers_are_kept(void **state)
{
    (void)state;
    static const char *const further[] = {"model.layers.2.eh_proj.weight", "model.layers.2.mlp.experts.0.gate_proj.weight",
                                          "mtp.norm.weight"},
                             *const beyond[] = {"model.layers.3.eh_proj.weight"};
    e2e_experts_model("glm4-moe", "model");
    add_further("model", further, 3);
    struct result r = e2e_succeeds(NULL, IDS "--model model --dtype bf16 --steps 1 --save-every 1 --out run");
    e2e_contains(r.out, "note: layers that predict further tokens are not trained: 3 other tensors (");
    e2e_copy("model", "before");
    e2e_remove("model");
    e2e_succeeds(NULL, "--resume run --steps 2");
    struct st_file *a, *b;
    assert_int_equal(st_open("before", &a), OK);
    assert_int_equal(st_open("run/hf", &b), OK);
    assert_int_equal(st_count(a), st_count(b));
    for (int i = 0; i < 3; i++) {
        struct st_raw s, t;
        char *x = bytes_of(a, further[i], &s), *y = bytes_of(b, further[i], &t);
        assert_true(s.bytes == 16 && t.bytes == 16 && memcmp(x, y, 16) == 0);
        free(x);
        free(y);
    }
    st_close(a);
    st_close(b);
    e2e_succeeds(NULL, IDS "--model run/hf --dtype bf16 --steps 1 --out more");
    e2e_experts_model("glm4-moe", "model");
    add_further("model", beyond, 1);
    e2e_refuses(2, "model.layers.3.eh_proj.weight", NULL, IDS "--model model --steps 1 --out other");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, e2e_setup, e2e_teardown)
    const struct CMUnitTest tests[] = {TEST(resumed_bit_for_bit),    TEST(biases_move),
                                       TEST(biases_of_ranks_move),   TEST(stages_share_experts),
                                       TEST(exports_are_models),     TEST(untrained_tensors_are_the_same),
                                       TEST(further_layers_are_kept)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
