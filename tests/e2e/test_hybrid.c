/* Runs of models with recurrent layers, or with latent attention: files in and out, stopped and resumed runs, adapters, and what is refused. */
#include "harness.h"

#include "data/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SMALL " --data ids.bin --token-type u16 --seq-len 128 --tiles rows=32,loss=32,group=4096 --threads 1 --effort quick "

/* Copies a model of tests/golden/hybrid to "model", and writes ids.bin. */
static void copy_model(const char *name)
{
    char from[64];
    snprintf(from, sizeof from, "../hybrid/%s", name);
    e2e_experts_model(from, "model");
}

/* A run that is resumed, with everything elsewhere, gives the losses and the files of one that was not stopped. */
static void resumed_bit_for_bit(void **state)
{
    (void)state;
    static const char *const types[] = {"fp32", "bf16"}, *const models[] = {"qwen3_5", "qwen3_5_moe"};
    for (int i = 0; i < 2; i++) {
        copy_model(models[i]);
        e2e_succeeds(NULL, SMALL "--model model --lr 1e-2 --dtype %s --steps 4 --out whole", types[i]);
        e2e_succeeds(NULL, SMALL DISCRETE "--model model --lr 1e-2 --alpha 0 --dtype %s --steps 2 --save-every 2 --out part",
                     types[i]);
        e2e_succeeds(NULL, "--resume part --steps 4");
        struct curve a = e2e_curve("whole"), b = e2e_curve("part");
        assert_int_equal(a.n, 4);
        assert_true(a.loss[3] < a.loss[0]);
        e2e_same_curve(&a, &b, 4);
        e2e_same_file("whole/hf/model.safetensors", "part/hf/model.safetensors");
        e2e_remove("model");
        e2e_remove("whole");
        e2e_remove("part");
    }
}

static char *bytes_of(struct st_file *f, const char *name, struct st_raw *t)
{
    if (st_find_raw(f, name, t) != OK)
        fail_msg("%s", status_message());
    char *bytes = malloc((size_t)t->bytes + 1);
    assert_non_null(bytes);
    assert_int_equal(st_read_bytes(f, name, 0, t->bytes, bytes), OK);
    return bytes;
}

/* Returns the tensors of a model that another one has with other bytes; both have the same names, shapes and, but for routers, which
 * are written in fp32, types. */
static int changed(const char *before, const char *after)
{
    struct st_file *a, *b;
    int n = 0;
    assert_int_equal(st_open(before, &a), OK);
    assert_int_equal(st_open(after, &b), OK);
    assert_int_equal(st_count(a), st_count(b));
    for (int i = 0; i < st_count(a); i++) {
        struct st_raw s, t;
        char *x = bytes_of(a, st_name(a, i), &s), *y = bytes_of(b, st_name(a, i), &t);
        const int is_router = strstr(st_name(a, i), ".mlp.gate.weight") != NULL;
        assert_true(s.n_dims == t.n_dims && memcmp(s.shape, t.shape, sizeof s.shape) == 0);
        assert_string_equal(is_router ? "F32" : s.type, t.type);
        n += s.bytes != t.bytes || memcmp(x, y, (size_t)s.bytes) != 0;
        free(x);
        free(y);
    }
    st_close(a);
    st_close(b);
    return n;
}

/* Files come back byte for byte from a step that changes nothing; a step that trains changes the text model alone, whose tensors
 * stand beside those of images and of a layer that predicts a further token. Stacks of experts stay whole or split. */
static void files_there_and_back(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int tensors, routers, others; /* tensors that are trained, routers, and those of images and further tokens */
    } models[] = {{"qwen3_5", 41, 0, 0},      {"wrapped", 41, 0, 24},        {"qwen3_5_moe", 61, 2, 0},
                  {"wrapped-moe", 35, 2, 24}, {"granite", 34, 0, 0},         {"nemotron-h", 29, 0, 0},
                  {"lfm2", 29, 0, 0},         {"../latent/youtu", 26, 0, 0}, {"../latent/deepseek-v3", 51, 0, 0}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        copy_model(models[i].name);
        e2e_succeeds(NULL, SMALL "--model model --lr 0 --dtype bf16 --steps 1 --out same");
        assert_int_equal(changed("model", "same/hf"), models[i].routers);
        struct result r = e2e_succeeds(NULL, SMALL "--model model --lr 0.1 --dtype bf16 --steps 2 --out other");
        if (models[i].others > 0)
            e2e_contains(r.out, "note: only the text model is trained: 24 other tensors (");
        assert_int_equal(changed("model", "other/hf"), models[i].tensors);
        e2e_remove("model");
        e2e_remove("same");
        e2e_remove("other");
    }
}

/* A multimodal model whose files have a tensor for each expert, as transformers saves it, gives the losses of one with whole stacks. */
static void split_stacks_are_read(void **state)
{
    (void)state;
    copy_model("wrapped-moe");
    e2e_succeeds(NULL, SMALL "--model model --lr 1e-2 --dtype fp32 --steps 2 --out whole");
    e2e_experts_model("../hybrid/qwen3_5_moe", "other");
    assert_int_equal(rename("other/model.safetensors", "model/model.safetensors"), 0);
    e2e_succeeds(NULL, SMALL "--model model --lr 1e-2 --dtype fp32 --steps 2 --out split");
    struct curve a = e2e_curve("whole"), b = e2e_curve("split");
    e2e_same_curve(&a, &b, 2);
}

static float *floats_of(struct st_file *f, const char *name, struct st_info *info)
{
    if (st_find(f, name, info) != OK)
        fail_msg("%s", status_message());
    float *x = malloc((size_t)info->elements * sizeof *x);
    assert_non_null(x);
    assert_int_equal(st_read_f32(f, name, 0, info->elements, x), OK);
    return x;
}

/* Makes sure that a merged map is W + 2 B A, rounded to bf16. name: of A in the adapter's file. */
static void check_merged_map(struct st_file *adapter, struct st_file *base, struct st_file *merged, const char *name,
                             const char *root)
{
    const char *module = name + strlen("base_model.model.model");
    const int n = (int)(strstr(module, ".lora_A") - module);
    char other[160], weight[160];
    struct st_info as, bs, ws, ms;
    snprintf(other, sizeof other, "base_model.model.model%.*s.lora_B.weight", n, module);
    snprintf(weight, sizeof weight, "%s%.*s.weight", root, n, module);
    float *a = floats_of(adapter, name, &as), *b = floats_of(adapter, other, &bs);
    float *w = floats_of(base, weight, &ws), *m = floats_of(merged, weight, &ms);
    for (int64_t i = 0; i < ws.shape[0]; i++)
        for (int64_t j = 0; j < ws.shape[1]; j++) {
            double sum = 0;
            for (int64_t k = 0; k < as.shape[0]; k++)
                sum += 2.0 * b[i * as.shape[0] + k] * a[k * ws.shape[1] + j];
            sum += w[i * ws.shape[1] + j];
            if (!(fabs(m[i * ws.shape[1] + j] - sum) <= 4e-3 * fabs(sum) + 1e-6))
                fail_msg("%s [%lld, %lld] is %g, and W + s B A %g", weight, (long long)i, (long long)j, m[i * ws.shape[1] + j],
                         sum);
        }
    free(a);
    free(b);
    free(w);
    free(m);
}

/* Makes sure that every map with an adapter is merged, fused ones from end to end. */
static void check_merged(const char *root)
{
    struct st_file *adapter, *base, *merged;
    assert_int_equal(st_open("run/hf/adapter_model.safetensors", &adapter), OK);
    assert_int_equal(st_open("model", &base), OK);
    assert_int_equal(st_open("merged", &merged), OK);
    for (int i = 0; i < st_count(adapter); i++)
        if (strstr(st_name(adapter, i), ".lora_A."))
            check_merged_map(adapter, base, merged, st_name(adapter, i), root);
    st_close(adapter);
    st_close(base);
    st_close(merged);
}

/* Adapters go to the maps of recurrences as to others, merge, and leave convolutions and decays as they are. */
static void adapters_are_merged(void **state)
{
    (void)state;
    /* five maps of two recurrences, four of attention, three of three MLPs; maps in and out of two mixers, four of attention, two of
     * three MLPs; of an MLP, and of mixers in only; of convolutions as of granite's mixers, three of MLPs; five of latent
     * attention, keys and values together, and three of MLPs */
    static const struct {
        const char *name, *root;
        int maps;
    } models[] = {{"qwen3_5", "model", 2 * 5 + 4 + 3 * 3},
                  {"granite", "model", 2 * 2 + 4 + 3 * 2},
                  {"nemotron-h", "backbone", 2 * 1 + 4 + 2},
                  {"lfm2", "model", 2 * 2 + 4 + 3 * 3},
                  {"../latent/youtu", "model", 2 * (5 + 3)}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        copy_model(models[i].name);
        e2e_succeeds(NULL, SMALL "--model model --lora r=4 --lr 0.1 --dtype fp32 --steps 3 --out run");
        e2e_succeeds(NULL, "export --model run --to merged");
        assert_int_equal(changed("model", "merged"), models[i].maps);
        check_merged(models[i].root);
        struct result r =
            e2e_succeeds(NULL, "eval --model run --eval-data ids.bin --token-type u16 --lengths 64 --effort quick --json");
        assert_int_equal(r.out[0], '{');
        e2e_remove("model");
        e2e_remove("run");
        e2e_remove("merged");
    }
}

/* Adapters beside a base in NF4 or int8 have the bits of ones beside a directory that is quantised. Convolutions, decays and norms
 * are not quantised. */
static void quantised_bases_are_read(void **state)
{
    static const char *const forms[] = {"nf4", "int8"};
    (void)state;
    copy_model("qwen3_5");
    for (int i = 0; i < 2; i++) {
        e2e_succeeds(NULL, "export --model model --to quantised --quantize %s", forms[i]);
        e2e_succeeds(NULL, SMALL "--model model --lora r=2 --base %s --dtype fp32 --lr 1e-2 --steps 3 --out here", forms[i]);
        e2e_succeeds(NULL, SMALL DISCRETE "--model quantised --lora r=2 --dtype fp32 --lr 1e-2 --alpha 0 --steps 3 --out there");
        struct curve a = e2e_curve("here"), b = e2e_curve("there");
        e2e_same_curve(&a, &b, 3);
        assert_true(a.loss[2] < a.loss[0]);
        e2e_succeeds(NULL, "export --model here --to merged");
        assert_int_equal(changed("model", "merged"), 2 * 5 + 4 + 3 * 3);
        e2e_remove("quantised");
        e2e_remove("here");
        e2e_remove("there");
        e2e_remove("merged");
    }
}

/* Chaos orders, and the comparison with a resident run, find nothing. */
static void checks_pass(void **state)
{
    (void)state;
    copy_model("qwen3_5");
    e2e_succeeds(NULL, SMALL DISCRETE "--model model --lr 1e-2 --dtype bf16 --mode chaos --steps 2 --out chaos");
    struct result r = e2e_succeeds(NULL, "check " SMALL DISCRETE "--model model --lr 1e-2 --alpha 0 --keep-inputs 3");
    e2e_contains(r.out, "check: pass");
}

/* A text is read on with the same tokens wherever its states and keys are. */
static void texts_are_sampled(void **state)
{
    static const char *const places[] = {"", DISCRETE "--nvme-path ."};
    char *first = NULL;
    (void)state;
    copy_model("qwen3_5_moe");
    FILE *f = fopen("prompt", "we");
    assert_non_null(f);
    for (int i = 0; i < 150; i++) /* beyond a block of the cache */
        putc(1 + i * i % 31, f);
    fclose(f);
    for (int i = 0; i < 2; i++) {
        struct result r = e2e_succeeds(
            NULL, "sample --model model --tokenizer bytes --prompt-file prompt --tiles rows=32 --max-new-tokens 16 %s",
            places[i]);
        assert_true(strlen(r.out) >= 16);
        if (first)
            assert_string_equal(first, r.out);
        else
            first = strdup(r.out);
    }
    free(first);
}

static void planned_for_a_gpu(void **state)
{
    (void)state;
    copy_model("qwen3_5");
    e2e_succeeds(NULL, "plan --model model --seq-len 4k --effort quick --machine h200");
    struct result r = e2e_succeeds(NULL, "plan --model model --seq-len 4k --effort quick --machine 2xh200 --mesh ring=2");
    e2e_contains(r.out, "2 ranks: dp=1,ulysses=1,ring=2");
}

/* Two ranks that share sequences have one rank's losses, and pass the comparison with it. */
static void ranks_share_sequences(void **state)
{
    (void)state;
    static const struct launch ranks = {.prepare = e2e_let_root_start_ranks};
    if (!strstr(e2e_succeeds(NULL, "--version").out, "MPI"))
        skip();
    copy_model("qwen3_5");
    struct result r = e2e_succeeds(&ranks, "check " SMALL DISCRETE "--model model --alpha 0.5 --ranks 2 --mesh ring=2");
    e2e_contains(r.out, "check: pass");
    r = e2e_succeeds(NULL, "plan --model model --seq-len 128 --ranks 8 --mesh dp=2,ulysses=2,ring=2");
    e2e_contains(r.out, "dp=2,ulysses=2,ring=2");
    r = e2e_succeeds(&ranks,
                     "check " SMALL DISCRETE "--model model --alpha 0.5 --ranks 2 --mesh pp=2,slices=2 --batch 2 --steps 2");
    e2e_contains(r.out, "check: pass");
    e2e_refuses(2, "states pass from slice to slice on one rank only: take ulysses=1", &ranks,
                "plan --model model --seq-len 128 --ranks 4 --mesh pp=2,slices=2,ulysses=2");
    e2e_remove("model");
    copy_model("olmo-hybrid"); /* stages of two layers and of one, of which the first alone has the embedding */
    e2e_succeeds(&ranks, SMALL "--model model --batch 2 --lr 1e-2 --steps 3 --out alone");
    e2e_succeeds(&ranks, SMALL
                 "--model model --batch 2 --lr 1e-2 --steps 2 --save-every 2 --ranks 4 --mesh dp=2,pp=2 --zero 1 --out staged");
    e2e_succeeds(&ranks, "--resume staged --steps 3");
    const struct curve alone = e2e_curve("alone"), staged = e2e_curve("staged");
    assert_int_equal(staged.n, 3);
    for (int i = 0; i < 3; i++) /* sums in another order */
        assert_true(fabs(staged.loss[i] - alone.loss[i]) < 1e-5 * alone.loss[i]);
    e2e_remove("model");
    copy_model("lfm2"); /* rows before convolutions pass from slice to slice, of which the last one is shorter */
    r = e2e_succeeds(&ranks,
                     "check " SMALL "--model model --seq-len 100 --ranks 2 --mesh pp=2,slices=3 --stage-ahead 1 --batch 2");
    e2e_contains(r.out, "check: pass");
    e2e_remove("model");
    copy_model("../latent/youtu"); /* latents in stages, whose slices keep expanded keys and values */
    r = e2e_succeeds(&ranks,
                     "check " SMALL DISCRETE "--model model --alpha 0.5 --ranks 2 --mesh pp=2,slices=2 --batch 2 --steps 2");
    e2e_contains(r.out, "check: pass");
    r = e2e_succeeds(&ranks, "check " SMALL "--model model --alpha 0.5 --ranks 2 --mesh tp=2 --steps 2"); /* latents in slices */
    e2e_contains(r.out, "check: pass");
}

enum { TENSORS = 128 };

/* Returns the bytes of the file's three convolutions of queries, keys and values, one after another. any: the name of one. */
static char *joined_convs(struct st_file *f, const char *any, int64_t *rows)
{
    char name[160], *all = calloc(1, 1 << 16);
    int64_t bytes = 0;
    struct st_raw t;
    assert_non_null(all);
    snprintf(name, sizeof name, "%s", any);
    *rows = 0;
    for (int i = 0; i < 3; i++) {
        strstr(name, "_conv1d")[-1] = "qkv"[i];
        char *part = bytes_of(f, name, &t);
        assert_true(bytes + t.bytes <= 1 << 16);
        memcpy(all + bytes, part, (size_t)t.bytes);
        bytes += t.bytes;
        *rows += t.shape[0];
        free(part);
    }
    return all;
}

/* Writes a tensor of the file, of three convolutions the i-th third of their rows. */
static void write_tensor(struct st_file *f, const char *name, struct st_writer *w, int i, const struct st_decl *d)
{
    struct st_raw t;
    const char *conv = strstr(name, "_conv1d");
    char *data;
    const int64_t bytes = st_decl_bytes(d);
    int64_t rows;
    if (conv) {
        data = joined_convs(f, name, &rows);
        assert_int_equal(st_write_bytes(w, i, 0, bytes, data + bytes * (conv[-1] == 'k' ? 1 : conv[-1] == 'v' ? 2 : 0)), OK);
    } else {
        data = bytes_of(f, name, &t);
        assert_int_equal(st_write_bytes(w, i, 0, bytes, data), OK);
    }
    free(data);
}

/* Declares a tensor of the file as transformers 5.24 saves it: `new` for `old` in its name, convolutions' rows in equal thirds. */
static void declare_otherwise(struct st_file *f, const char *name, const char *old, const char *new, char as[160],
                              struct st_decl *d)
{
    struct st_raw t;
    const char *at = strstr(name, old);
    int64_t rows;
    assert_int_equal(st_find_raw(f, name, &t), OK);
    snprintf(as, 160, "%.*s%s%s", at ? (int)(at - name) : (int)strlen(name), name, at ? new : "", at ? at + strlen(old) : "");
    *d = (struct st_decl){.name = as, .type = t.type, .n_dims = t.n_dims};
    memcpy(d->shape, t.shape, sizeof t.shape);
    if (strstr(name, "_conv1d")) {
        free(joined_convs(f, name, &rows));
        assert_int_equal(rows % 3, 0);
        d->shape[0] = rows / 3;
    }
}

/* Writes model's file as transformers 5.24 saves it. */
static void save_otherwise(const char *old, const char *new)
{
    static char names[TENSORS][160];
    const char *from[TENSORS];
    struct st_decl decls[TENSORS];
    struct st_file *f;
    struct st_writer *w;
    int n = 0;
    assert_int_equal(st_open("model", &f), OK);
    assert_true(st_count(f) <= TENSORS);
    for (int wide = 1; wide >= 0; wide--) /* larger types come first in files */
        for (int i = 0; i < st_count(f); i++) {
            struct st_raw t;
            assert_int_equal(st_find_raw(f, st_name(f, i), &t), OK);
            if ((st_type_bits(t.type) == 32) != wide)
                continue;
            from[n] = st_name(f, i);
            declare_otherwise(f, from[n], old, new, names[n], &decls[n]);
            n++;
        }
    assert_int_equal(st_create("other.safetensors", decls, n), OK);
    assert_int_equal(st_write_open("other.safetensors", decls, n, &w), OK);
    for (int i = 0; i < n; i++)
        write_tensor(f, from[i], w, i, &decls[i]);
    assert_int_equal(st_write_finish(w), OK);
    st_close(f);
    assert_int_equal(rename("other.safetensors", "model/model.safetensors"), 0);
}

/* Models are read as published files and as transformers 5.24 saves them, and written as published: dense MLPs of Kimi Linear, a norm
 * and convolutions of OLMo Hybrid. */
static void files_of_transformers(void **state)
{
    static const struct {
        const char *model, *old, *new, *published;
        int64_t rows;
    } cases[] = {{"kimi-linear", ".mlp.", ".block_sparse_moe.", "model.layers.0.mlp.gate_proj.weight", 24},
                 {"olmo-hybrid", ".post_attention_layernorm.", ".feedforward_layer_norm.",
                  "model.layers.0.linear_attn.v_conv1d.weight", 64}};
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct st_file *written;
        struct st_info info;
        for (int i = 0; i < 2; i++) {
            copy_model(cases[c].model);
            if (i == 1)
                save_otherwise(cases[c].old, cases[c].new);
            e2e_succeeds(NULL, SMALL "--model model --lr 1e-2 --dtype fp32 --steps 2 --out %s", i ? "other" : "published");
            e2e_remove("model");
        }
        struct curve a = e2e_curve("published"), b = e2e_curve("other");
        e2e_same_curve(&a, &b, 2);
        e2e_same_file("published/hf/model.safetensors", "other/hf/model.safetensors");
        assert_int_equal(st_open("other/hf", &written), OK);
        assert_int_equal(st_find(written, cases[c].published, &info), OK);
        assert_int_equal(info.shape[0], cases[c].rows);
        st_close(written);
        e2e_remove("published");
        e2e_remove("other");
    }
}

static void refused_in_a_sentence(void **state)
{
    (void)state;
    copy_model("qwen3_5");
    e2e_refuses(2, "rows=12 do not divide the 16 consecutive tokens that ranks of this mesh hold", NULL,
                "plan --model model --seq-len 128 --ranks 4 --mesh ring=4 --tiles rows=12,loss=12");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, e2e_setup, e2e_teardown)
    const struct CMUnitTest tests[] = {TEST(resumed_bit_for_bit),   TEST(files_there_and_back),     TEST(split_stacks_are_read),
                                       TEST(adapters_are_merged),   TEST(quantised_bases_are_read), TEST(checks_pass),
                                       TEST(texts_are_sampled),     TEST(ranks_share_sequences),    TEST(planned_for_a_gpu),
                                       TEST(files_of_transformers), TEST(refused_in_a_sentence)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
