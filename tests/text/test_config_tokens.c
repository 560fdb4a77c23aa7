/* Tests files next to a tokenizer.json that add, change or name tokens. The expected ids are those of AutoTokenizer of
 * transformers 5.24. */
#include "tests/text/tokenizer_test.h"

#define ALPHABET "abeimnrtwxz <|>_pds" /* ids in this order, then ab, <|s|>, <|e|> */

static void put(const char *name, const char *text)
{
    if (text)
        scratch_write(name, text, strlen(text));
    else
        unlink(scratch_path(name));
}

static void put_tokenizer(void)
{
    char text[2048];
    const int n = sizeof ALPHABET - 1;
    int used =
        snprintf(text, sizeof text, "{\"model\": {\"type\": \"BPE\", \"merges\": [[\"a\", \"b\"]], \"vocab\": {\"ab\": %d", n);
    for (int i = 0; i < n; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, ", \"%c\": %d", ALPHABET[i], i);
    snprintf(text + used, sizeof text - (size_t)used,
             "}}, \"added_tokens\": [{\"id\": %d, \"content\": \"<|s|>\", \"special\": true, \"normalized\": false}, "
             "{\"id\": %d, \"content\": \"<|e|>\", \"special\": true, \"normalized\": false}]}",
             n + 1, n + 2);
    put("tokenizer.json", text);
}

static struct tokenizer *open_with(const char *config, const char *added, const char *map)
{
    struct tokenizer *t = NULL;
    put("tokenizer_config.json", config);
    put("added_tokens.json", added);
    put("special_tokens_map.json", map);
    if (tokenizer_open(scratch_path("tokenizer.json"), &t) != OK)
        fail_msg("%s: %s", config ? config : "", status_message());
    return t;
}

static enum status encode(const struct tokenizer *t, const char *text, char *out, size_t bytes)
{
    struct encoder *e;
    struct ids ids = {0};
    size_t used = 0;
    assert_int_equal(encoder_create(t, &e), OK);
    enum status st = tokenizer_encode(e, (const uint8_t *)text, strlen(text), 0, &ids);
    out[0] = 0;
    for (size_t i = 0; i < ids.n; i++)
        used += (size_t)snprintf(out + used, bytes - used, "%s%d", i ? " " : "", ids.id[i]);
    free(ids.id);
    encoder_free(e);
    return st;
}

static void test_table(void **state)
{
    (void)state;
    static const char text[] = "a <|n|> b<|z|>ab z <|s|> <|e|> x<|p|><|x|><|a|><|s|>xz<|s";
    static const struct {
        const char *config, *added, *map, *ids;
    } cases[] = {
        {"{\"added_tokens_decoder\":{\"20\":{\"content\":\"<|s|>\",\"special\":true},\"21\":{\"content\":\"<|e|>\",\"special\":true},\"22\":{\"content\":\"<|n|>\",\"special\":true}}}",
         NULL, NULL,
         "0 11 22 11 1 12 13 10 13 14 19 11 10 11 20 11 21 11 9 12 13 16 13 14 12 13 9 13 14 12 13 0 13 14 20 9 10 12 13 18"},
        {"{\"added_tokens_decoder\":{\"90\":{\"content\":\"<|n|>\",\"special\":true},\"20\":{\"content\":\"<|s|>\",\"special\":true},\"21\":{\"content\":\"<|e|>\",\"special\":true},\"80\":{\"content\":\"<|z|>\",\"special\":true}}}",
         NULL, NULL, "0 11 23 11 1 22 19 11 10 11 20 11 21 11 9 12 13 16 13 14 12 13 9 13 14 12 13 0 13 14 20 9 10 12 13 18"},
        {"{\"added_tokens_decoder\":{\"20\":{\"content\":\"<|s|>\",\"special\":true},\"21\":{\"content\":\"<|e|>\",\"special\":true},\"22\":{\"content\":\"<|n|>\",\"lstrip\":true,\"rstrip\":true,\"special\":false}}}",
         NULL, NULL,
         "0 22 1 12 13 10 13 14 19 11 10 11 20 11 21 11 9 12 13 16 13 14 12 13 9 13 14 12 13 0 13 14 20 9 10 12 13 18"},
        {"{\"added_tokens_decoder\":{\"20\":{\"content\":\"<|s|>\",\"special\":true},\"21\":{\"content\":\"<|e|>\",\"special\":true},\"22\":{\"content\":\"z\",\"single_word\":true,\"special\":true}}}",
         NULL, NULL,
         "0 11 12 13 5 13 14 11 1 12 13 10 13 14 19 11 10 11 20 11 21 11 9 12 13 16 13 14 12 13 9 13 14 12 13 0 13 14 20 9 10 12 13 18"},
        {"{\"added_tokens_decoder\":{\"20\":{\"content\":\"<|s|>\",\"lstrip\":true,\"special\":true},\"21\":{\"content\":\"<|e|>\",\"rstrip\":true,\"special\":false}}}",
         NULL, NULL,
         "0 11 12 13 5 13 14 11 1 12 13 10 13 14 19 11 10 20 11 21 9 12 13 16 13 14 12 13 9 13 14 12 13 0 13 14 20 9 10 12 13 18"},
        {"{\"added_tokens_decoder\":{\"20\":{\"content\":\"<|s|>\",\"special\":true},\"21\":{\"content\":\"<|e|>\",\"special\":true},\"19\":{\"content\":\"ab\",\"special\":true}}}",
         NULL, NULL,
         "0 11 12 13 5 13 14 11 1 12 13 10 13 14 19 11 10 11 20 11 21 11 9 12 13 16 13 14 12 13 9 13 14 12 13 0 13 14 20 9 10 12 13 18"},
        {"{\"added_tokens_decoder\":{\"20\":{\"content\":\"<|s|>\",\"special\":true},\"21\":{\"content\":\"<|e|>\",\"special\":true}}}",
         "{\"<|n|>\":22}", "{\"pad_token\":\"<|z|>\"}",
         "0 11 12 13 5 13 14 11 1 12 13 10 13 14 19 11 10 11 20 11 21 11 9 12 13 16 13 14 12 13 9 13 14 12 13 0 13 14 20 9 10 12 13 18"},
        {"{}", "{\"<|n|>\":23,\"<|z|>\":22}", NULL,
         "0 11 23 11 1 22 19 11 10 11 20 11 21 11 9 12 13 16 13 14 12 13 9 13 14 12 13 0 13 14 20 9 10 12 13 18"},
        {"{}", "{\"<|n|>\":20,\"<|s|>\":70}", NULL,
         "0 11 12 13 5 13 14 11 1 12 13 10 13 14 19 11 10 11 20 11 21 11 9 12 13 16 13 14 12 13 9 13 14 12 13 0 13 14 20 9 10 12 13 18"},
        {"{\"pad_token\":\"<|n|>\"}", "{\"<|n|>\":22}", NULL,
         "0 11 22 11 1 12 13 10 13 14 19 11 10 11 20 11 21 11 9 12 13 16 13 14 12 13 9 13 14 12 13 0 13 14 20 9 10 12 13 18"},
        {"{\"extra_special_tokens\":[\"<|n|>\",\"<|z|>\",\"ab\"]}", NULL, NULL,
         "0 11 22 11 1 23 19 11 10 11 20 11 21 11 9 12 13 16 13 14 12 13 9 13 14 12 13 0 13 14 20 9 10 12 13 18"},
        {"{\"extra_special_tokens\":{\"image_token\":\"<|n|>\",\"b\":\"<|z|>\"}}", NULL, NULL,
         "0 11 22 11 1 23 19 11 10 11 20 11 21 11 9 12 13 16 13 14 12 13 9 13 14 12 13 0 13 14 20 9 10 12 13 18"},
        {"{\"additional_special_tokens\":[\"<|z|>\",{\"content\":\"<|n|>\",\"lstrip\":true,\"special\":true,\"__type\":\"AddedToken\"}]}",
         NULL, NULL, "0 23 11 1 22 19 11 10 11 20 11 21 11 9 12 13 16 13 14 12 13 9 13 14 12 13 0 13 14 20 9 10 12 13 18"},
        {"{\"additional_special_tokens\":[\"<|n|>\"],\"extra_special_tokens\":[\"<|z|>\"]}", NULL, NULL,
         "0 11 12 13 5 13 14 11 1 22 19 11 10 11 20 11 21 11 9 12 13 16 13 14 12 13 9 13 14 12 13 0 13 14 20 9 10 12 13 18"},
        {"{\"additional_special_tokens\":[\"<|n|>\"],\"extra_special_tokens\":[]}", NULL, NULL,
         "0 11 22 11 1 12 13 10 13 14 19 11 10 11 20 11 21 11 9 12 13 16 13 14 12 13 9 13 14 12 13 0 13 14 20 9 10 12 13 18"},
        {"{\"pad_token\":{\"content\":\"<|n|>\",\"rstrip\":true,\"special\":true,\"__type\":\"AddedToken\"}}", NULL, NULL,
         "0 11 22 1 12 13 10 13 14 19 11 10 11 20 11 21 11 9 12 13 16 13 14 12 13 9 13 14 12 13 0 13 14 20 9 10 12 13 18"},
        {"{\"image_token\":\"<|n|>\",\"pad_token\":null,\"add_bos_token\":true}", NULL, NULL,
         "0 11 22 11 1 12 13 10 13 14 19 11 10 11 20 11 21 11 9 12 13 16 13 14 12 13 9 13 14 12 13 0 13 14 20 9 10 12 13 18"},
        {"{}", NULL,
         "{\"additional_special_tokens\":[\"<|n|>\"],\"pad_token\":{\"content\":\"<|z|>\",\"rstrip\":true,\"special\":true}}",
         "0 11 23 11 1 22 19 11 10 11 20 11 21 11 9 12 13 16 13 14 12 13 9 13 14 12 13 0 13 14 20 9 10 12 13 18"},
        {"{\"extra_special_tokens\":[\"<|z|>\"]}", NULL, "{\"additional_special_tokens\":[\"<|n|>\"]}",
         "0 11 12 13 5 13 14 11 1 22 19 11 10 11 20 11 21 11 9 12 13 16 13 14 12 13 9 13 14 12 13 0 13 14 20 9 10 12 13 18"},
        {"{\"additional_special_tokens\":[\"<|z|>\"]}", NULL, "{\"extra_special_tokens\":[\"<|n|>\"]}",
         "0 11 23 11 1 22 19 11 10 11 20 11 21 11 9 12 13 16 13 14 12 13 9 13 14 12 13 0 13 14 20 9 10 12 13 18"},
        {"{\"image_token\":\"<|z|>\"}", NULL, "{\"image_token\":\"<|n|>\"}",
         "0 11 12 13 5 13 14 11 1 22 19 11 10 11 20 11 21 11 9 12 13 16 13 14 12 13 9 13 14 12 13 0 13 14 20 9 10 12 13 18"},
        {"{\"extra_special_tokens\":[\"<|z|>\"],\"unk_token\":\"<|p|>\",\"bos_token\":\"<|x|>\",\"audio_token\":\"<|n|>\"}",
         "{\"<|a|>\":22}", NULL, "0 11 25 11 1 26 19 11 10 11 20 11 21 11 9 24 23 22 20 9 10 12 13 18"},
        {"{\"split_special_tokens\":true,\"added_tokens_decoder\":{\"20\":{\"content\":\"<|s|>\",\"special\":true},\"21\":{\"content\":\"<|e|>\",\"special\":true},\"22\":{\"content\":\"<|n|>\",\"special\":false}}}",
         NULL, NULL,
         "0 11 22 11 1 12 13 10 13 14 19 11 10 11 12 13 18 13 14 11 12 13 2 13 14 11 9 12 13 16 13 14 12 13 9 13 14 12 13 0 13 14 12 13 18 13 14 9 10 12 13 18"},
        {"{\"pad_token\":\"ab\"}", NULL, NULL,
         "0 11 12 13 5 13 14 11 1 12 13 10 13 14 19 11 10 11 20 11 21 11 9 12 13 16 13 14 12 13 9 13 14 12 13 0 13 14 20 9 10 12 13 18"},
        {"{\"extra_special_tokens\":[\"<|s\",\"<|s|>x\"]}", NULL, NULL,
         "0 11 12 13 5 13 14 11 1 12 13 10 13 14 19 11 10 11 20 11 21 11 9 12 13 16 13 14 12 13 9 13 14 12 13 0 13 14 23 10 22"},
    };
    struct tokenizer *plain = open_with(NULL, NULL, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char ids[512];
        struct tokenizer *t = open_with(cases[i].config, cases[i].added, cases[i].map);
        assert_int_equal(encode(t, text, ids, sizeof ids), OK);
        if (strcmp(ids, cases[i].ids) != 0)
            fail_msg("%s %s %s: %s, not %s", cases[i].config, cases[i].added, cases[i].map, ids, cases[i].ids);
        assert_true(tokenizer_hash(t) != tokenizer_hash(plain) || strstr(cases[i].map ? cases[i].map : "", "<|z|>"));
        tokenizer_close(t);
    }
    tokenizer_close(plain);
}

/* Such files that add nothing new change neither ids nor hash, so that cached tokens stay valid. */
static void test_same(void **state)
{
    (void)state;
    struct tokenizer *plain = open_with(NULL, NULL, NULL),
                     *same = open_with("{\"eos_token\": \"<|e|>\", \"add_bos_token\": true, \"extra_special_tokens\": []}",
                                       "{\"<|s|>\": 20}", "{\"bos_token\": {\"content\": \"<|s|>\"}}");
    assert_true(tokenizer_hash(same) == tokenizer_hash(plain) && tokenizer_ids(same) == tokenizer_ids(plain));
    assert_string_equal(tokenizer_remark(same), "");
    tokenizer_close(plain);
    tokenizer_close(same);
}

/* A padding token whose id is beyond the embedding's rows does no harm until a text contains it. If a token's id differs from the
 * one in the file, there is a remark. */
static void test_rows(void **state)
{
    (void)state;
    char ids[64];
    struct tokenizer *t = open_with("{\"pad_token\": \"<|n|>\"}", NULL, NULL);
    const int64_t own = sizeof ALPHABET - 1 + 3;
    assert_int_equal(tokenizer_ids(t), own + 1);
    tokenizer_fit(t, own);
    assert_int_equal(tokenizer_ids(t), own);
    assert_int_equal(encode(t, "ab<|s|>", ids, sizeof ids), OK);
    assert_int_equal(encode(t, "ab<|n|>", ids, sizeof ids), ERR_INVALID);
    assert_non_null(strstr(status_message(), "<|n|> stands in the text, which a file beside"));
    tokenizer_fit(t, own + 1);
    assert_int_equal(encode(t, "ab<|n|>", ids, sizeof ids), OK);
    tokenizer_fit(t, 4); /* fewer rows than tokenizer.json's own ids, so that the tokenizer is another model's */
    assert_int_equal(tokenizer_ids(t), own + 1);
    tokenizer_close(t);
    t = open_with(NULL, "{\"<|n|>\": 90}", NULL);
    assert_non_null(
        strstr(tokenizer_remark(t), "give <|n|> the id 90, and transformers, which counts on from the vocabulary, 22"));
    tokenizer_close(t);
}

/* The token that ends a document is found in each of the files that may name it. */
static void test_eos(void **state)
{
    (void)state;
    static const struct {
        const char *config, *map, *model;
        int eos;
    } cases[] = {
        {"{\"eos_token\": \"<|e|>\"}", NULL, NULL, 21},
        {"{\"eos_token\": {\"content\": \"ab\"}}", NULL, NULL, 19},
        {"{\"eos_token\": \"<|new|>\"}", NULL, NULL, 22},
        {NULL, "{\"eos_token\": \"<|s|>\"}", NULL, 20},
        {NULL, NULL, "{\"eos_token_id\": 3}", 3},
        {"{\"eos_token\": \"<|e|>\"}", NULL, "{\"eos_token_id\": 3}", 21},
        {"{\"eos_token\": null}", NULL, "{\"eos_token_id\": 90}", -1},
        {NULL, NULL, "{\"eos_token_id\": [3, 4]}", -1},
        {"{\"bos_token\": \"<|s|>\"}", NULL, NULL, -1},
        {NULL, NULL, NULL, -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put("config.json", cases[i].model);
        struct tokenizer *t = open_with(cases[i].config, NULL, cases[i].map);
        if (tokenizer_eos(t) != cases[i].eos)
            fail_msg("case %zu: %d", i, tokenizer_eos(t));
        tokenizer_close(t);
    }
    put("config.json", NULL);
}

/* A remark depends on the regular expression of a large tokenizer of Mistral's and on the files beside it. */
static void test_mistral(void **state)
{
    (void)state;
    static const char theirs[] =
        "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]*[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]+|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}"
        "\\\\p{Lm}\\\\p{Lo}\\\\p{M}]+[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]*|\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n/]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+";
    static const struct {
        const char *pattern, *model, *config, *remark;
        int tokens;
    } cases[] = {
        {"\\\\p{L}+", "{\"model_type\": \"mistral\"}", NULL, "that transformers warns of", 100001},
        {"\\\\p{L}+", "{\"model_type\": \"mistral3\", \"transformers_version\": \"4.57.1\"}", NULL, "that transformers warns of",
         100001},
        {"\\\\p{L}+", "{\"model_type\": \"mistral\"}", "{\"fix_mistral_regex\": true}",
         "transformers cuts text by another regular expression", 100001},
        {theirs, "{\"model_type\": \"mistral\"}", NULL, "", 100001},
        {"\\\\p{L}+", "{\"model_type\": \"mistral\", \"transformers_version\": \"5.0.0\"}", NULL, "", 100001},
        {"\\\\p{L}+", "{\"model_type\": \"llama\"}", NULL, "", 100001},
        {"\\\\p{L}+", NULL, NULL, "", 100001},
        {"\\\\p{L}+", "{\"model_type\": \"mistral\"}", NULL, "", 100},
    };
    static char text[2 << 20];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t used = (size_t)snprintf(
            text, sizeof text,
            "{\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Regex\": \"%s\"}, "
            "\"behavior\": \"Isolated\"}]}, \"model\": {\"type\": \"BPE\", \"merges\": [], \"vocab\": {\"a\": 0",
            cases[i].pattern);
        for (int k = 1; k < cases[i].tokens; k++)
            used += (size_t)snprintf(text + used, sizeof text - used, ",\"t%d\":%d", k, k);
        snprintf(text + used, sizeof text - used, "}}}");
        put("tokenizer.json", text);
        put("config.json", cases[i].model);
        struct tokenizer *t = open_with(cases[i].config, NULL, NULL);
        if (cases[i].remark[0] ? !strstr(tokenizer_remark(t), cases[i].remark) : tokenizer_remark(t)[0] != 0)
            fail_msg("case %zu: '%s'", i, tokenizer_remark(t));
        tokenizer_close(t);
    }
    put("config.json", NULL);
    put_tokenizer();
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const configs[] = {"{\"added_tokens_decoder\": {\"x\": {\"content\": \"a\"}}}",
                                          "{\"added_tokens_decoder\": {\"-1\": {\"content\": \"a\"}}}",
                                          "{\"added_tokens_decoder\": {\"5\": 7}}",
                                          "{\"pad_token\": 7}",
                                          "{\"extra_special_tokens\": [7]}",
                                          "[]",
                                          "{"};
    struct tokenizer *t;
    put("added_tokens.json", NULL);
    put("special_tokens_map.json", NULL);
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        put("tokenizer_config.json", configs[i]);
        assert_int_equal(tokenizer_open(scratch_path("tokenizer.json"), &t), ERR_INVALID);
    }
    put("tokenizer_config.json", NULL);
    put("added_tokens.json", "{\"x\": \"5\"}");
    assert_int_equal(tokenizer_open(scratch_path("tokenizer.json"), &t), ERR_INVALID);
    assert_non_null(strstr(status_message(), "added_tokens.json: x has no id"));
}

static int begin(void **state)
{
    if (scratch_create(state) != 0)
        return -1;
    put_tokenizer();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_table),   cmocka_unit_test(test_same),
                                       cmocka_unit_test(test_rows),    cmocka_unit_test(test_eos),
                                       cmocka_unit_test(test_mistral), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, begin, scratch_destroy);
}
