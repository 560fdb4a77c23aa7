/* Tests weights as users find them: no part of a file is ignored without a message, and no NaN is trained. */
#include "harness.h"

#include "data/safetensors.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- files of weights ---- */

enum { VOCAB = 256, DIM = 32, FFN = 64, MOST = 32 };

struct tensor {
    char name[96];
    const char *type;  /* F32, F64, or another type, for which the bytes are zeros */
    int rows, columns; /* columns 0 for a vector */
    float *x;
    int shard; /* in which of the two files the tensor is */
};

static struct tensor tensors[MOST];
static int n_tensors;

static int elements(const struct tensor *t)
{
    return t->rows * (t->columns ? t->columns : 1);
}

/* Adds a tensor whose values depend only on its name; vectors are all ones. */
static struct tensor *add(const char *name, int rows, int columns)
{
    struct tensor *t = &tensors[n_tensors++];
    uint32_t x = 1;
    *t = (struct tensor){.type = "F32", .rows = rows, .columns = columns};
    snprintf(t->name, sizeof t->name, "%s", name);
    for (const char *c = name; *c; c++)
        x = x * 31 + (uint32_t)*c;
    t->x = malloc((size_t)elements(t) * sizeof *t->x);
    assert_non_null(t->x);
    for (int i = 0; i < elements(t); i++) {
        x = x * 1664525u + 1013904223u;
        t->x[i] = columns ? 0.2f * ((float)(x >> 8) * 0x1p-24f - 0.5f) : 1;
    }
    return t;
}

static struct tensor *get(const char *name)
{
    for (int i = 0; i < n_tensors; i++)
        if (strcmp(tensors[i].name, name) == 0)
            return &tensors[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

static void clear(void)
{
    while (n_tensors > 0)
        free(tensors[--n_tensors].x);
}

static int type_bytes(const struct tensor *t)
{
    return strcmp(t->type, "F32") == 0 ? 4 : strcmp(t->type, "F64") == 0 ? 8 : 1;
}

static void write_tensors(const char *path, int shard)
{
    static char head[16384];
    int n = snprintf(head, sizeof head, "{"), at = 0;
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    for (int i = 0; i < n_tensors; i++) {
        const struct tensor *t = &tensors[i];
        int bytes = elements(t) * type_bytes(t);
        char columns[16] = "";
        if (t->shard != shard)
            continue;
        if (t->columns)
            snprintf(columns, sizeof columns, ",%d", t->columns);
        n += snprintf(head + n, sizeof head - (size_t)n, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%d%s],\"data_offsets\":[%d,%d]}",
                      at ? "," : "", t->name, t->type, t->rows, columns, at, at + bytes);
        at += bytes;
    }
    n += snprintf(head + n, sizeof head - (size_t)n, "}");
    uint64_t length = (uint64_t)n;
    assert_true(fwrite(&length, 8, 1, f) == 1 && fwrite(head, 1, (size_t)n, f) == (size_t)n);
    for (int i = 0; i < n_tensors; i++)
        for (int k = 0; tensors[i].shard == shard && k < elements(&tensors[i]); k++) {
            double wide = (double)tensors[i].x[k];
            int bytes = type_bytes(&tensors[i]);
            assert_true(fwrite(bytes == 4   ? (void *)&tensors[i].x[k]
                               : bytes == 8 ? (void *)&wide
                                            : "",
                               (size_t)bytes, 1, f) == 1);
        }
    assert_int_equal(fclose(f), 0);
}

/* Writes DIR/config.json of a Llama with one layer, with `keys` added at its end, and lists its tensors. */
static void begin(const char *dir, int tied, const char *keys)
{
    char path[256];
    static const struct {
        const char *name;
        int rows, columns;
    } parts[] = {{"input_layernorm", DIM, 0},    {"post_attention_layernorm", DIM, 0},
                 {"self_attn.q_proj", DIM, DIM}, {"self_attn.k_proj", 16, DIM},
                 {"self_attn.v_proj", 16, DIM},  {"self_attn.o_proj", DIM, DIM},
                 {"mlp.gate_proj", FFN, DIM},    {"mlp.up_proj", FFN, DIM},
                 {"mlp.down_proj", DIM, FFN}};
    clear();
    assert_int_equal(mkdir(dir, 0777), 0);
    snprintf(path, sizeof path, "%s/config.json", dir);
    e2e_write(path,
              "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"vocab_size\": %d, \"hidden_size\": %d, "
              "\"intermediate_size\": %d, \"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, "
              "\"max_position_embeddings\": 512, \"rms_norm_eps\": 1e-05, \"torch_dtype\": \"float32\", "
              "\"tie_word_embeddings\": %s%s}\n",
              VOCAB, DIM, FFN, tied ? "true" : "false", keys);
    add("model.embed_tokens.weight", VOCAB, DIM);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char name[96];
        snprintf(name, sizeof name, "model.layers.0.%s.weight", parts[i].name);
        add(name, parts[i].rows, parts[i].columns);
    }
    add("model.norm.weight", DIM, 0);
    if (!tied)
        add("lm_head.weight", VOCAB, DIM);
}

static void finish(const char *dir)
{
    char path[256];
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    write_tensors(path, 0);
}

#define RUN_ON(data) "--data " data " --seq-len 128 --steps 2 --offload none" TILES
#define RUN RUN_ON("corpus.txt")

static struct curve train(const char *dir, const char *options)
{
    char out[128];
    snprintf(out, sizeof out, "%s-run", dir);
    struct result r = e2e_succeeds(NULL, RUN "--model %s --out %s %s", dir, out, options);
    e2e_contains(r.out, "remark: --lr 3.0e-04 suits training from scratch");
    struct curve c = e2e_curve(out);
    assert_int_equal(c.n, 2);
    e2e_remove(out);
    return c;
}

/* Checks that a refused run does not begin. */
static void refuses(const char *words, const char *dir, const char *options)
{
    e2e_refuses(2, words, NULL, RUN "--model %s --out refused %s", dir, options);
    assert_false(e2e_exists("refused/metrics.jsonl"));
}

static int same(const struct curve *a, const struct curve *b)
{
    return memcmp(a->loss, b->loss, sizeof *a->loss * 2) == 0;
}

/* ---- tests ---- */

/* Tensors that the model does not use, such as biases, more layers or an adapter, are named in a refusal; they are ignored only
 * on demand. */
static void what_nothing_uses_is_named(void **state)
{
    (void)state;
    begin("plain", 0, "");
    finish("plain");
    struct curve plain = train("plain", "");
    begin("biases", 0, "");
    add("model.layers.0.self_attn.q_proj.bias", DIM, 0);
    add("model.layers.0.self_attn.k_proj.bias", 16, 0);
    add("model.layers.0.self_attn.v_proj.bias", 16, 0);
    finish("biases");
    refuses("biases/model.safetensors|does not use model.layers.0.self_attn.k_proj.bias, |q_proj.bias|--ignore-tensors", "biases",
            "");
    refuses("q_proj.bias", "biases", "--ignore-tensors *.k_proj.bias,*.v_proj.bias");
    refuses("--ignore-tensors: |called *.kproj.bias", "biases", "--ignore-tensors *.bias,*.kproj.bias");
    refuses("--ignore-tensors: |called *.up_proj.weight", "plain", "--ignore-tensors *.up_proj.weight");
    struct curve ignoring = train("biases", "--ignore-tensors *.bias");
    assert_true(same(&ignoring, &plain));
    begin("deeper", 0, "");
    for (int i = 0; i < 5; i++) {
        char name[64];
        snprintf(name, sizeof name, "model.layers.%d.mlp.up_proj.weight", 1 + i);
        add(name, FFN, DIM);
    }
    finish("deeper");
    refuses("model.layers.1.mlp.up_proj.weight|layers.4.mlp.up_proj.weight and 1 other", "deeper", "");
    refuses("--ignore-tensors: --model tiny is a preset", "tiny", "--ignore-tensors *");
    /* buffers that old releases saved can be ignored without loss */
    begin("buffers", 0, "");
    add("model.layers.0.self_attn.rotary_emb.inv_freq", 8, 0);
    finish("buffers");
    struct curve buffers = train("buffers", "");
    assert_true(same(&buffers, &plain));
    clear();
}

static void a_head_beside_a_tie(void **state)
{
    (void)state;
    begin("tied", 1, "");
    finish("tied");
    struct curve tied = train("tied", "");
    begin("copied", 1, "");
    struct tensor *head = add("lm_head.weight", VOCAB, DIM);
    memcpy(head->x, get("model.embed_tokens.weight")->x, sizeof(float) * VOCAB * DIM);
    finish("copied");
    struct curve copied = train("copied", "");
    assert_true(same(&copied, &tied));
    get("lm_head.weight")->x[VOCAB * DIM - 1] += 0.01f;
    finish("copied");
    refuses("lm_head.weight is not model.embed_tokens.weight|tie_word_embeddings|--ignore-tensors lm_head.weight", "copied", "");
    struct curve without = train("copied", "--ignore-tensors lm_head.weight");
    assert_true(same(&without, &tied));
    clear();
}

static void stored_types(void **state)
{
    (void)state;
    begin("plain", 0, "");
    finish("plain");
    struct curve plain = train("plain", "");
    begin("f64", 0, "");
    for (int i = 0; i < n_tensors; i++)
        tensors[i].type = "F64";
    finish("f64");
    struct curve wide = train("f64", "");
    assert_true(same(&wide, &plain));
    begin("fp8", 0, "");
    get("model.layers.0.mlp.up_proj.weight")->type = "F8_E4M3";
    finish("fp8");
    refuses("fp8/model.safetensors: tensor model.layers.0.mlp.up_proj.weight is stored as F8_E4M3; F32, F16, BF16 and F64", "fp8",
            "");
    begin("adapter", 0, "");
    for (int i = 0; i < n_tensors; i++) {
        char name[96];
        snprintf(name, sizeof name, "base_model.model.%.70s", tensors[i].name);
        memcpy(tensors[i].name, name, sizeof name);
    }
    finish("adapter");
    refuses("lack the tensor model.embed_tokens.weight|adapters|--adapter DIR", "adapter", "");
    clear();
}

/* The second shard has an old copy of a tensor that the index places in the first; the index also names a tensor that no shard
 * has. */
static void the_index_decides(void **state)
{
    (void)state;
    begin("plain", 0, "");
    finish("plain");
    struct curve plain = train("plain", "");
    begin("shards", 0, "");
    e2e_write("shards/model.safetensors.index.json",
              "{\"metadata\": {}, \"weight_map\": {\"model.embed_tokens.weight\": \"a.safetensors\", "
              "\"model.norm.weight\": \"b.safetensors\", \"mtp.fc.weight\": \"b.safetensors\"}}");
    for (int i = 1; i < n_tensors; i++)
        tensors[i].shard = 1;
    struct tensor *old = add("model.embed_tokens.weight", VOCAB, DIM);
    memset(old->x, 0, sizeof(float) * VOCAB * DIM);
    old->shard = 1;
    write_tensors("shards/a.safetensors", 0);
    write_tensors("shards/b.safetensors", 1);
    struct result r = e2e_succeeds(NULL, RUN "--model shards --out noted --steps 1");
    e2e_contains(r.out, "note: model.embed_tokens.weight in more than one file: the copy in ");
    e2e_contains(r.out, "shards/a.safetensors counts, as the index says");
    struct curve listed = train("shards", "");
    assert_true(same(&listed, &plain));
    e2e_write("shards/model.safetensors.index.json",
              "{\"metadata\": {}, \"weight_map\": {\"model.embed_tokens.weight\": \"a.safetensors\", "
              "\"model.norm.weight\": \"b.safetensors\", \"spare\": \"a.safetensors\"}}");
    old->shard = 2;
    add("spare", 4, 0)->shard = 1;
    write_tensors("shards/b.safetensors", 1);
    r = e2e_succeeds(NULL, RUN "--model shards --out spare --steps 1");
    e2e_contains(r.out, "note: spare in another file than the index says: left out");
    e2e_write("shards/model.safetensors.index.json",
              "{\"metadata\": {}, \"weight_map\": {\"model.embed_tokens.weight\": \"b.safetensors\", "
              "\"model.norm.weight\": \"a.safetensors\"}}");
    e2e_refuses(1, "model.embed_tokens.weight is not in b.safetensors, where the index has it", NULL,
                RUN "--model shards --out refused");
    clear();
}

/* NaN and infinities are found at any place of a file and with any placement of the model. */
static void weights_that_are_not_finite(void **state)
{
    static const char *const places[] = {"--offload none", DISCRETE "--dtype bf16"};
    static const struct {
        const char *tensor;
        int element;
        float x;
        const char *word;
    } cases[] = {{"lm_head.weight", VOCAB * DIM - 1, NAN, "NaN (element 8191)"},
                 {"model.layers.0.input_layernorm.weight", 0, INFINITY, "Inf (element 0)"},
                 {"model.embed_tokens.weight", 77, -INFINITY, "-Inf (element 77)"}};
    (void)state;
    for (int i = 0; i < 3; i++) {
        char words[256];
        begin("bad", 0, "");
        get(cases[i].tensor)->x[cases[i].element] = cases[i].x;
        finish("bad");
        snprintf(words, sizeof words, "bad/model.safetensors: tensor %s has %s|", cases[i].tensor, cases[i].word);
        for (int k = 0; k < 2; k++)
            refuses(words, "bad", places[k]);
        e2e_remove("bad");
    }
    clear();
}

/* Rows of a position table that no sequence reaches are not loaded, but they are checked, since every checkpoint copies them. */
static void rows_that_are_not_used(void **state)
{
    char from[4096];
    size_t bytes;
    uint64_t header;
    (void)state;
    if (!getenv("LTRAIN_SOURCE_ROOT"))
        skip();
    snprintf(from, sizeof from, "%s/tests/golden/gpt2-positions", getenv("LTRAIN_SOURCE_ROOT"));
    e2e_copy(from, "gpt2");
    char *file = e2e_read("gpt2/model.safetensors", &bytes);
    memcpy(&header, file, sizeof header);
    json_t *root = json_loadb(file + 8, header, 0, NULL);
    const json_t *table = json_object_get(root, "transformer.wpe.weight"), *shape = json_object_get(table, "shape");
    assert_string_equal(json_string_value(json_object_get(table, "dtype")), "F32");
    size_t end = 8 + header + (size_t)json_integer_value(json_array_get(json_object_get(table, "data_offsets"), 1));
    assert_true(json_integer_value(json_array_get(shape, 0)) > 64);
    memset(file + end - 4, 0xff, 4);
    FILE *f = fopen("gpt2/model.safetensors", "we");
    assert_true(f && fwrite(file, 1, bytes, f) == bytes && fclose(f) == 0);
    refuses("tensor transformer.wpe.weight has NaN (element ", "gpt2", "--seq-len 64");
    json_decref(root);
    free(file);
}

/* Writes token ids for the model's tokenizer, which is not opened when ids are read. */
static void write_ids(void)
{
    FILE *f = fopen("ids.bin", "wb");
    assert_non_null(f);
    for (int i = 0; i < 2000; i++)
        assert_int_equal(fwrite(&(uint16_t){(uint16_t)(i * 37 % 101)}, 2, 1, f), 1);
    assert_int_equal(fclose(f), 0);
}

/* The export keeps token ids, other keys and the tokenizer's files byte for byte, even if the originals are gone by then. */
static void exports_keep_what_the_model_came_with(void **state)
{
    static const char *const files[] = {
        "generation_config.json",  "tokenizer.json",     "tokenizer.model", "tokenizer_config.json",
        "special_tokens_map.json", "added_tokens.json",  "vocab.json",      "merges.txt",
        "chat_template.jinja",     "chat_template.json", "tekken.json"};
    enum { FILES = sizeof files / sizeof *files };
    char path[256], copy[256];
    (void)state;
    begin("model", 0,
          ", \"bos_token_id\": 128000, \"eos_token_id\": [128001, 128008, 128009], \"pad_token_id\": 0, \"unsloth_fixed\": true, "
          "\"attention_dropout\": 0.1");
    finish("model");
    for (int i = 0; i < FILES; i++) {
        snprintf(path, sizeof path, "model/%s", files[i]);
        e2e_write(path, "%s \xff %d", files[i], i);
    }
    e2e_write("model/notes.txt", "not a part of the model");
    write_ids();
    struct result r = e2e_succeeds(
        NULL, RUN_ON("ids.bin --token-type u16") "--model model --tokenizer bytes --save-every 1 --dtype bf16 --out run");
    e2e_contains(r.out, "note: config.json asks for dropout (0.1); ltrain trains without");
    assert_null(strstr(r.out, "max_position_embeddings"));
    e2e_copy("model", "before");
    for (int again = 0; again < 2; again++) {
        json_t *c = json_load_file("run/hf/config.json", 0, NULL);
        assert_int_equal(json_integer_value(json_object_get(c, "bos_token_id")), 128000);
        assert_int_equal(json_array_size(json_object_get(c, "eos_token_id")), 3);
        assert_true(json_is_true(json_object_get(c, "unsloth_fixed")));
        assert_true(json_real_value(json_object_get(c, "attention_dropout")) == 0.1);
        assert_string_equal(json_string_value(json_object_get(c, "torch_dtype")), "bfloat16");
        json_decref(c);
        for (int i = 0; i < FILES; i++) {
            snprintf(path, sizeof path, "before/%s", files[i]);
            snprintf(copy, sizeof copy, "run/hf/%s", files[i]);
            e2e_same_file(path, copy);
            snprintf(copy, sizeof copy, "model/%s", files[i]);
            if (!again)
                e2e_remove(copy);
        }
        assert_false(e2e_exists("run/hf/notes.txt"));
        if (again)
            break;
        e2e_remove("run/hf");
        e2e_succeeds(NULL, "--resume run --steps 3");
    }
    /* an export can be trained like any other model */
    e2e_succeeds(NULL, RUN_ON("ids.bin --token-type u16") "--model run/hf --tokenizer bytes --out more");
    e2e_same_file("before/tokenizer.json", "more/hf/tokenizer.json");
    clear();
}

/* Returns the bytes of a tensor of an open directory; the caller frees them. */
static char *bytes_of(const struct st_file *f, const char *name, struct st_raw *t)
{
    assert_int_equal(st_find_raw(f, name, t), OK);
    FILE *file = fopen(t->path, "re");
    char *bytes = malloc((size_t)t->bytes + 1);
    assert_true(file && bytes && fseek(file, (long)t->at, SEEK_SET) == 0 &&
                fread(bytes, 1, (size_t)t->bytes, file) == (size_t)t->bytes);
    fclose(file);
    return bytes;
}

/* Only the text model of a multimodal model is trained. The export contains everything else unchanged, even if the original is
 * gone by then. */
static void other_parts_are_exported_as_they_are(void **state)
{
    char from[4096];
    struct st_file *before, *after;
    (void)state;
    if (!getenv("LTRAIN_SOURCE_ROOT"))
        skip();
    snprintf(from, sizeof from, "%s/tests/golden/gemma3-wrapped", getenv("LTRAIN_SOURCE_ROOT"));
    e2e_copy(from, "whole");
    struct result r = e2e_succeeds(NULL, RUN "--model whole --tokenizer bytes --save-every 1 --out many");
    e2e_contains(r.out, "note: only the text model is trained: 23 other tensors (");
    r = e2e_succeeds(NULL, "eval --model whole --tokenizer bytes --eval-data corpus.txt --lengths 64,128 --effort quick --json");
    assert_int_equal(r.out[0], '{'); /* the output is JSON only */
    e2e_remove("many/hf");
    e2e_remove("whole/model.safetensors");
    e2e_succeeds(NULL, "--resume many --steps 3");
    assert_int_equal(st_open(from, &before), OK);
    assert_int_equal(st_open("many/hf", &after), OK);
    assert_int_equal(st_count(before), st_count(after));
    int same = 0, changed = 0;
    for (int i = 0; i < st_count(before); i++) {
        struct st_raw a, b;
        const char *name = st_name(before, i);
        char *x = bytes_of(before, name, &a), *y = bytes_of(after, name, &b);
        int equal = a.bytes == b.bytes && strcmp(a.type, b.type) == 0 && memcmp(a.shape, b.shape, sizeof a.shape) == 0 &&
                    memcmp(x, y, (size_t)a.bytes) == 0;
        int text = strncmp(name, "language_model.", strlen("language_model.")) == 0;
        if (!text && !equal)
            fail_msg("%s is not what it was", name);
        same += !text;
        changed += text && !equal;
        free(x);
        free(y);
    }
    assert_true(same == 23 && changed > 20);
    st_close(before);
    st_close(after);
    json_t *c = json_load_file("many/hf/config.json", 0, NULL);
    assert_string_equal(json_string_value(json_object_get(c, "model_type")), "gemma3");
    assert_non_null(json_object_get(c, "vision_config"));
    json_decref(c);
    e2e_remove("many/original/others.safetensors");
    e2e_refuses(2, "original/others.safetensors is missing", NULL, "--resume many --steps 4");
}

/* If a file cannot be copied, that is reported before the first step, not after the last one. */
static void files_that_cannot_be_copied(void **state)
{
    (void)state;
    begin("model", 0, "");
    finish("model");
    assert_int_equal(symlink("nowhere", "model/tokenizer.json"), 0);
    refuses("cannot open |/model/tokenizer.json: No such file", "model", "");
    e2e_remove("model/tokenizer.json");
    assert_int_equal(mkfifo("model/tokenizer.json", 0666), 0);
    refuses("cannot open |model/tokenizer.json: it is a FIFO", "model", "");
    clear();
}

/* Rotary positions are unlimited, but config.json says for how many the model was trained. */
static void lengths_beyond_the_models(void **state)
{
    (void)state;
    begin("model", 0, "");
    finish("model");
    struct result r = e2e_succeeds(NULL, "--model model --data corpus.txt --seq-len 1k --steps 1 --offload none --out run" TILES);
    e2e_contains(r.out, "warning: --seq-len 1,024 is beyond the 512 positions (max_position_embeddings of config.json)");
    r = e2e_succeeds(NULL, "plan --model model --seq-len 1k" TILES);
    e2e_contains(r.out, "warning: --seq-len 1,024 is beyond the 512 positions (max_position_embeddings of config.json)");
    r = e2e_succeeds(NULL, "plan --model model --seq-len 512 --effort quick");
    assert_null(strstr(r.out, "note: "));
    r = e2e_succeeds(NULL, "plan --model tiny --seq-len 1m --effort quick --machine h200");
    assert_null(strstr(r.out, "note: "));
    assert_int_equal(mkdir("qwen", 0777), 0);
    e2e_write("qwen/config.json",
              "{\"model_type\": \"qwen2\", \"vocab_size\": 256, \"hidden_size\": 32, \"intermediate_size\": 64, "
              "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"max_position_embeddings\": "
              "65536, \"dual_chunk_attention_config\": {\"chunk_size\": 1024, \"original_max_position_embeddings\": 2048}}");
    r = e2e_succeeds(NULL, "plan --model qwen --seq-len 2k --effort quick");
    assert_null(strstr(r.out, "note: "));
    r = e2e_succeeds(NULL, "plan --model qwen --seq-len 4k --effort quick");
    e2e_contains(r.out, "note: --seq-len 4,096 is beyond the 2,048 tokens from which on dual_chunk_attention_config");
    clear();
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, e2e_setup, e2e_teardown)
    const struct CMUnitTest tests[] = {
        TEST(what_nothing_uses_is_named),
        TEST(a_head_beside_a_tie),
        TEST(stored_types),
        TEST(the_index_decides),
        TEST(weights_that_are_not_finite),
        TEST(rows_that_are_not_used),
        TEST(exports_keep_what_the_model_came_with),
        TEST(other_parts_are_exported_as_they_are),
        TEST(files_that_cannot_be_copied),
        TEST(lengths_beyond_the_models),
    };
    return cmocka_run_group_tests_name("weights", tests, NULL, NULL);
}
