/* Compares ids of sentencepiece's tokenizer.model with checksums by make_sentencepiece.py: small models, alone and with
 * accompanying files as published models have, on 500 hostile strings. Also tests cuts, refusals, damaged and truncated files. */
#include "tests/text/tokenizer_test.h"

#include <unistd.h>

static void read_file(const char *path, char **data, size_t *n)
{
    FILE *f = fopen(path, "rb");
    struct text_buffer all = {0};
    char some[4096];
    size_t got;
    if (!f)
        fail_msg("cannot open %s", path);
    while ((got = fread(some, 1, sizeof some, f)) > 0)
        assert_int_equal(text_buffer_add(&all, some, got), OK);
    fclose(f);
    *data = (char *)all.data;
    *n = all.n;
}

/* Reads the bytes of a model. Models with nfkc in their names have their map of characters in a separate file, which is appended:
 * a protocol buffer may be split into parts. */
static void read_model(const char *name, char **data, size_t *n)
{
    char file[300], *map;
    size_t map_n;
    snprintf(file, sizeof file, "sentencepiece/%s/tokenizer.model", name);
    read_file(source(file), data, n);
    if (!strstr(name, "nfkc"))
        return;
    read_file(source("nmt_nfkc.part"), &map, &map_n);
    *data = realloc(*data, *n + map_n);
    assert_non_null(*data);
    memcpy(*data + *n, map, map_n);
    *n += map_n;
    free(map);
}

static struct tokenizer *open_model(const char *name, struct encoder **e)
{
    char file[300], *data;
    size_t n;
    struct tokenizer *t = NULL;
    snprintf(file, sizeof file, "sentencepiece/%s", name);
    const char *path = source(file);
    if (strstr(name, "nfkc")) {
        read_model(name, &data, &n);
        path = scratch_write("whole.model", data, n);
        free(data);
    }
    if (tokenizer_open(path, &t) != OK || encoder_create(t, e) != OK)
        fail_msg("%s: %s", name, status_message());
    return t;
}

/* ---- ids and texts ---- */

static unsigned want(const char *sums, int i)
{
    unsigned sum;
    assert_int_equal(sscanf(sums + 4 * i, "%4x", &sum), 1);
    return sum;
}

enum { PLAIN, IDS, LONG, TEXTS, KINDS };

/* Checks a long text: unigram sums are rounded, and restart at 0 once they have become large. */
static void check_long(const char *name, struct encoder *e, const char *sum)
{
    struct text_buffer text = {0};
    struct ids ids = {0};
    for (int i = 0; i < 2 * STRINGS; i++)
        assert_int_equal(text_buffer_add(&text, strings[i % STRINGS].data, strings[i % STRINGS].n), OK);
    for (int i = 0; i < 1500; i++)
        assert_int_equal(text_buffer_add(&text, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxabc", 40), OK);
    assert_int_equal(tokenizer_encode(e, text.data, text.n, ENCODE_PLAIN, &ids), OK);
    if (checksum_of_ids(&ids) != want(sum, 0))
        fail_msg("%s: other ids for the long text", name);
    free(ids.id);
    text_buffer_free(&text);
}

static void check_model(const char *name, const char *const sums[KINDS])
{
    struct encoder *e;
    struct tokenizer *t = open_model(name, &e);
    const struct ids *before, *behind;
    struct ids ids = {0};
    struct text_buffer text = {0};
    int only_special = strcmp(name, "chatml") != 0 && strcmp(name, "phi3") != 0 && strcmp(name, "gemma") != 0;
    tokenizer_template(t, &before, &behind);
    if (only_special)
        check_long(name, e, sums[LONG]);
    for (int i = 0; i < STRINGS; i++) {
        const struct text *s = &strings[i];
        ids.n = text.n = 0;
        assert_int_equal(tokenizer_encode(e, s->data, s->n, ENCODE_PLAIN, &ids), OK);
        if (only_special && checksum_of_ids(&ids) != want(sums[PLAIN], i))
            fail_msg("%s: other ids than sentencepiece's for string %d: %.*s", name, i, (int)s->n, (char *)s->data);
        ids.n = 0;
        add_all(&ids, before);
        assert_int_equal(tokenizer_encode(e, s->data, s->n, 0, &ids), OK);
        add_all(&ids, behind);
        if (checksum_of_ids(&ids) != want(sums[IDS], i))
            fail_msg("%s: other ids for string %d: %.*s", name, i, (int)s->n, (char *)s->data);
        assert_int_equal(tokenizer_decode(t, ids.id, ids.n, ids.n % 2 == 1, &text), OK);
        if (checksum(text.data, text.n) != want(sums[TEXTS], i))
            fail_msg("%s: string %d is decoded to something else: %.*s", name, i, (int)text.n, (char *)text.data);
    }
    free(ids.id);
    text_buffer_free(&text);
    encoder_free(e);
    tokenizer_close(t);
}

static void test_models(void **state)
{
    (void)state;
    static const char *const kinds[] = {"plain", "ids", "long", "text"};
    FILE *f = fopen(source("sentencepiece.txt"), "r");
    char *line[KINDS] = {NULL, NULL, NULL, NULL}, name[64], kind[16];
    size_t room[KINDS] = {0, 0, 0, 0};
    int models = 0;
    assert_non_null(f);
    while (getline(&line[0], &room[0], f) > 0) {
        const char *sums[KINDS];
        for (int k = 0; k < KINDS; k++) {
            int at;
            assert_true(k == 0 || getline(&line[k], &room[k], f) > 0);
            assert_int_equal(sscanf(line[k], "%63s %15s %n", name, kind, &at), 2);
            assert_string_equal(kind, kinds[k]);
            sums[k] = line[k] + at;
        }
        check_model(name, sums);
        models++;
    }
    assert_true(models >= 20);
    for (int k = 0; k < KINDS; k++)
        free(line[k]);
    fclose(f);
}

/* ---- checks of every model ---- */

static void each_model(void (*check)(const char *name, void *user), void *user)
{
    DIR *d = opendir(source("sentencepiece"));
    assert_non_null(d);
    for (struct dirent *f; (f = readdir(d));)
        if (f->d_name[0] != '.')
            check(f->d_name, user);
    closedir(d);
}

static void check_cuts(const char *name, void *text)
{
    struct encoder *e;
    struct tokenizer *t = open_model(name, &e);
    const struct text_buffer *b = text;
    /* these models never join text across a newline; others have maps of characters that may, or round unigram's sums over the
     * whole text */
    if (strncmp(name, "llama", 5) == 0 || strcmp(name, "gemma") == 0 || strcmp(name, "phi3") == 0)
        assert_true(t->can_cut);
    check_cuts_of(name, t, e, b->data, b->n);
    encoder_free(e);
    tokenizer_close(t);
}

static void test_cuts(void **state)
{
    (void)state;
    struct text_buffer text = {0};
    mix_strings(&text);
    each_model(check_cuts, &text);
    text_buffer_free(&text);
}

/* ---- files beside the model ---- */

static struct tokenizer *open_beside(const char *config)
{
    char *data;
    size_t n;
    struct tokenizer *t = NULL;
    read_model("llama", &data, &n);
    scratch_write("tokenizer.model", data, n);
    free(data);
    scratch_text("tokenizer_config.json", config);
    return tokenizer_open(scratch_path("tokenizer.model"), &t) == OK ? t : NULL;
}

static void test_beside(void **state)
{
    (void)state;
    const struct ids *before, *behind;
    struct tokenizer *plain = open_beside("{}"), *same = open_beside("{\"chat_template\": \"x\"}");
    struct tokenizer *more = open_beside("{\"add_eos_token\": true, \"pad_token\": \"<pad>\"}");
    assert_non_null(plain);
    assert_non_null(same);
    assert_non_null(more);
    tokenizer_template(plain, &before, &behind);
    assert_true(before->n == 1 && before->id[0] == 1 && behind->n == 0);
    assert_int_equal(tokenizer_eos(plain), 2);
    tokenizer_template(more, &before, &behind);
    assert_true(before->n == 1 && behind->n == 1 && behind->id[0] == 2);
    assert_int_equal(tokenizer_ids(more), tokenizer_ids(plain) + 1);
    assert_true(tokenizer_hash(plain) == tokenizer_hash(same)); /* ids are the same */
    assert_true(tokenizer_hash(plain) != tokenizer_hash(more));
    tokenizer_close(plain);
    tokenizer_close(same);
    tokenizer_close(more);
}

static void refuse_beside(const char *config, const char *part)
{
    assert_null(open_beside(config));
    if (!strstr(status_message(), part))
        fail_msg("'%s' does not say '%s'", status_message(), part);
}

static void refuse(const char *bytes, size_t n, const char *part)
{
    struct tokenizer *t = NULL;
    assert_int_equal(tokenizer_open(scratch_write("bad.model", bytes, n), &t), ERR_INVALID);
    if (!strstr(status_message(), part))
        fail_msg("'%s' does not say '%s'", status_message(), part);
}

#define REFUSE(bytes, part) refuse(bytes, sizeof(bytes) - 1, part)
#define UNK "\x0a\x09\x0a\x05<unk>\x18\x02"

static void test_refusals(void **state)
{
    (void)state;
    refuse_beside("{", "tokenizer_config.json: line 1");
    refuse_beside("[]", "tokenizer_config.json is no JSON object");
    refuse_beside("{\"legacy\": 7}", "legacy is neither true nor false");
    refuse_beside("{\"added_tokens_decoder\": {\"x\": \"y\"}}", "added_tokens_decoder has x, which is no id");
    refuse_beside("{\"added_tokens_decoder\": {\"9000\": 7}}", "a token is neither a string nor an object");
    refuse_beside("{\"added_tokens_decoder\": {\"9000\": \"<s>\"}}",
                  "the token <s> has the id 9000 beside tokenizer.model and 1 in it");
    refuse_beside("{\"add_bos_token\": true, \"bos_token\": \"\"}", "no token is named bos_token");
    unlink(scratch_path("tokenizer_config.json"));
    REFUSE("", "no unknown piece");
    REFUSE("IQ== 0\nIg== 1\n", "it is no model of sentencepiece, or damaged"); /* tiktoken's */
    REFUSE("{\"model\": {}}", "it is no model of sentencepiece, or damaged");
    REFUSE("\x0a\x7f", "a field is longer than what it is in");
    REFUSE("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "longer than what it is in");
    REFUSE("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "a number does not end");
    REFUSE("\x0a\x03\x0a\x01\xff", "no valid UTF-8");
    REFUSE("\x0a\x00", "has no text");
    REFUSE("\x0a\x08\x0a\x01x\x15\x00\x00\xc0\x7f", "no finite number");
    REFUSE("\x0a\x05\x0a\x01x\x18\x09", "of a type that is not known");
    REFUSE("\x0a\x05\x0a\x01x\x18\x06", "the model has no byte_fallback");
    char large[6 + 4097] = "\x0a\x84\x20\x0a\x81\x20"; /* 4,100 bytes: a text of 4,097 */
    memset(large + 6, 'x', 4097);
    refuse(large, sizeof large, "piece 0 has 4097 bytes, and 4096 are the most");
    enum { LONG_PIECES = 130, ITS_BYTES = 6 + 4096 };
    static char many[sizeof UNK - 1 + 4 + LONG_PIECES * ITS_BYTES] = "\x12\x02\x18\x02" UNK; /* byte pairs */
    for (int i = 0; i < LONG_PIECES; i++) {
        char *at = many + sizeof UNK - 1 + 4 + i * ITS_BYTES;
        memcpy(at, "\x0a\x83\x20\x0a\x80\x20", 6);
        memset(at + 6, 'x', 4096);
        at[6 + i] = 'y';
    }
    refuse(many, sizeof many, "130 of its 131 pieces have more than 64 bytes: there are too many ways to merge them");
    REFUSE(UNK UNK, "both are the unknown one");
    REFUSE(UNK "\x0a\x03\x0a\x01x\x0a\x03\x0a\x01x", "pieces 1 and 2 both are x");
    REFUSE(UNK "\x12\x03\x98\x02\x01", "not all 256 bytes are pieces");
    REFUSE(UNK "\x12\x02\x18\x03", "the model type word is not known here (unigram and bpe are)");
    REFUSE(UNK "\x12\x02\x18\x04", "the model type char is not known");
    REFUSE(UNK "\x12\x02\x18\x07", "the model type 7 is not known");
    REFUSE(UNK "\x2a\x03\x12\x01x", "denormalizer");
    REFUSE(UNK "\x1a\x06\x12\x04\x00\x00\x00\x00", "cut short");
}

/* ---- damaged files ---- */

/* Changes bytes anywhere in the file, some of them near the end, where the specifications and maps are. */
static void check_damaged(const char *name, void *unused)
{
    (void)unused;
    char *whole, *data;
    size_t n;
    uint64_t turn = checksum((const uint8_t *)name, strlen(name)) * 1000ull;
    int turns = getenv("LTRAIN_LONG") ? 2000 : strstr(name, "nfkc") ? 8 : 30;
    read_model(name, &whole, &n);
    data = malloc(n);
    assert_non_null(data);
    for (int i = 0; i < turns; i++) {
        memcpy(data, whole, n);
        size_t length = n;
        for (uint32_t k = 1 + draw(&turn, 4); k > 0; k--) {
            size_t reach = draw(&turn, 2) && length > 400 ? 400 : length, at = length - 1 - draw(&turn, (uint32_t)reach);
            if (draw(&turn, 4) == 0 && length > 16) {
                memmove(data + at, data + at + 1, length - at - 1);
                length--;
            } else {
                data[at] = (char)draw(&turn, 256);
            }
        }
        try_tokenizer("damaged.model", data, draw(&turn, 3) ? length : draw(&turn, (uint32_t)length), 11);
    }
    free(data);
    free(whole);
}

static void test_damaged(void **state)
{
    (void)state;
    each_model(check_damaged, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models),   cmocka_unit_test(test_cuts),    cmocka_unit_test(test_beside),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_damaged),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
