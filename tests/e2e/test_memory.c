/* Tests that a process uses the memory that its plan says, and not more. */
#include "harness.h"

#include "data/safetensors.h"
#include "model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns the number of bytes in a phrase like "458 MiB" that follows `words`. */
static double bytes_after(const char *text, const char *words)
{
    double x;
    char unit;
    const char *at = strstr(text, words);
    if (!at || sscanf(at + strlen(words), "%lf %c", &x, &unit) != 2)
        fail_msg("no bytes after \"%s\" in: %s", words, text);
    return x * (unit == 'G' ? 1024.0 * 1024 * 1024 : unit == 'M' ? 1024.0 * 1024 : unit == 'K' ? 1024.0 : 1);
}

static void resident_memory_is_what_was_planned(void **state)
{
    static const char *const settings[] = {"--offload none", "--offload cpu --device cpu:discrete",
                                           "--offload optim=nvme,params=cpu --dtype bf16"};
    (void)state;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        struct result r = e2e_succeeds(NULL, "--model 25m --data corpus.txt --seq-len 64 --steps 2 --threads 2 --out run%zu %s",
                                       i, settings[i]);
        double planned = bytes_after(r.out, "memory: planned "), outside = bytes_after(r.out, ") + "),
               peak = (double)r.peak_bytes;
        print_message("%s: planned %.0f MiB + %.0f MiB, resident %.0f MiB (%.1f%%)\n", settings[i], planned / 0x1p20,
                      outside / 0x1p20, peak / 0x1p20, 100 * peak / (planned + outside));
        assert_true(i == 2 || planned >= 200 * 0x1p20);
        assert_true(outside < 64 * 0x1p20); /* the memory outside the plan is small, so that it cannot hide a fault */
        assert_true(peak <= 1.03 * (planned + outside));
        assert_true(peak >= 0.9 * (planned + outside)); /* most of the planned memory is really used */
    }
}

/* Writes a model's directory whose weights are zeros, in bf16. */
static void write_zeros(const char *dir, const char *config)
{
    char path[256];
    struct model_config c;
    struct model *m;
    int64_t n = 0;
    snprintf(path, sizeof path, "mkdir -p %s", dir);
    assert_int_equal(system(path), 0);
    snprintf(path, sizeof path, "%s/config.json", dir);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs(config, f);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(model_config_read(dir, &c), OK);
    assert_int_equal(model_create(&c, NULL, 0, &m), OK);
    for (int i = 0; i < m->n_params; i++)
        n += model_param_tensors(&m->params[i]);
    struct st_decl *decls = calloc((size_t)n, sizeof *decls);
    struct param_tensor *tensors = calloc((size_t)n, sizeof *tensors);
    int64_t at = 0;
    for (int i = 0; i < m->n_params; i++)
        for (int64_t t = 0; t < model_param_tensors(&m->params[i]); t++, at++) {
            model_param_tensor(&m->params[i], t, &tensors[at]);
            decls[at] = (struct st_decl){.name = tensors[at].name, .dtype = BF16, .n_dims = tensors[at].n_dims};
            memcpy(decls[at].shape, tensors[at].shape, sizeof decls[at].shape);
        }
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    assert_int_equal(st_create(path, decls, (int)n), OK);
    free(decls);
    free(tensors);
    model_destroy(m);
}

/* A step of adapters beside Qwen3-30B-A3B in NF4, cut to a few layers and few tokens of vocabulary, and but in long tests to few experts,
 * takes the memory that is planned. */
static void experts_take_what_was_planned(void **state)
{
    const int whole = getenv("LTRAIN_LONG") != NULL;
    char config[1024];
    (void)state;
    snprintf(config, sizeof config,
             "{\"model_type\": \"qwen3_moe\", \"hidden_size\": 2048, \"num_attention_heads\": 32, \"num_key_value_heads\": 4, "
             "\"head_dim\": 128, \"intermediate_size\": 6144, \"moe_intermediate_size\": 768, \"num_experts\": %d, "
             "\"num_experts_per_tok\": 8, \"norm_topk_prob\": true, \"num_hidden_layers\": %d, \"vocab_size\": 256, "
             "\"max_position_embeddings\": 40960, \"rms_norm_eps\": 1e-6, \"tie_word_embeddings\": false}",
             whole ? 128 : 16, 4);
    write_zeros("model", config);
    struct result r = e2e_succeeds(
        NULL, "--model model --tokenizer bytes --data corpus.txt --seq-len 128 --steps 1 --threads 2 --lora r=16 --base nf4 "
              "--dtype bf16 --offload none --out run");
    double planned = bytes_after(r.out, "memory: planned "), outside = bytes_after(r.out, ") + "), peak = (double)r.peak_bytes;
    print_message("planned %.0f MiB + %.0f MiB, resident %.0f MiB (%.1f%%)\n", planned / 0x1p20, outside / 0x1p20, peak / 0x1p20,
                  100 * peak / (planned + outside));
    assert_true(outside < 64 * 0x1p20);
    assert_true(peak <= 1.03 * (planned + outside));
    assert_true(peak >=
                0.95 * (planned + outside)); /* routers of zeros leave most experts without rows, and their room untouched */
}

/* Makes sure that a row of that many messages is refused before it takes a gigabyte of memory. */
static void refuse_row(int messages, const char *words)
{
    FILE *f = fopen("row.jsonl", "wb");
    assert_non_null(f);
    fputs("{\"messages\": [", f);
    for (int i = 0; i < messages; i++)
        fputs(i % 2 ? "{\"role\": \"assistant\", \"content\": \"a\"}, " : "{\"role\": \"user\", \"content\": \"q\"}, ", f);
    fputs("{\"role\": \"user\", \"content\": \"q\"}]}\n", f);
    assert_int_equal(fclose(f), 0);
    struct result r = e2e_refuses(2, words, NULL, "data --model model --data row.jsonl --chat-template chatml");
    print_message("%d messages: resident %.0f MiB\n", messages, (double)r.peak_bytes / 0x1p20);
    assert_true(r.peak_bytes < (int64_t)1 << 30);
}

/* The first row is too large to be read, the second one to be rendered. */
static void rows_of_many_messages(void **state)
{
    (void)state;
    assert_int_equal(system("mkdir model && cp $LTRAIN_SOURCE_ROOT/tests/text/families/qwen2.json model/tokenizer.json"), 0);
    e2e_write("model/config.json",
              "{\"model_type\": \"llama\", \"vocab_size\": 1000, \"hidden_size\": 64, \"intermediate_size\": 128, "
              "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"rms_norm_eps\": 1e-5}");
    refuse_row(2000000, "row.jsonl:1: reading the values of this row would take|cut it into several");
    refuse_row(400000, "row.jsonl:1: |the template takes more than 256 MiB of memory");
}

int main(void)
{
    if (E2E_SANITIZED)
        return 77; /* plans do not include the sanitizer's shadow memory */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(resident_memory_is_what_was_planned, e2e_setup, e2e_teardown),
        cmocka_unit_test_setup_teardown(experts_take_what_was_planned, e2e_setup, e2e_teardown),
        cmocka_unit_test_setup_teardown(rows_of_many_messages, e2e_setup, e2e_teardown),
    };
    return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
