/* Compares ids with those of the `tokenizers` library: small tokenizers in the style of published families on 500 hostile
 * strings, against checksums of ids and decoded texts by make_families.py. Also tests cuts, broken text, refusals, and damaged
 * files. */
#include "tests/text/tokenizer_test.h"

static struct tokenizer *open_family(const char *name, struct encoder **e)
{
    char file[300];
    struct tokenizer *t = NULL;
    snprintf(file, sizeof file, "families/%s.json", name);
    if (tokenizer_open(source(file), &t) != OK || encoder_create(t, e) != OK)
        fail_msg("%s", status_message());
    return t;
}

/* Checks ids and texts against checksums of four hexadecimal digits, one for each string. */
static void check_family(const char *name, const char *of_ids, const char *of_texts)
{
    struct encoder *e;
    struct tokenizer *t = open_family(name, &e);
    const struct ids *before, *behind;
    struct ids ids = {0};
    struct text_buffer text = {0};
    tokenizer_template(t, &before, &behind);
    for (int i = 0; i < STRINGS; i++) {
        unsigned want_ids, want_text;
        assert_int_equal(sscanf(of_ids + 4 * i, "%4x", &want_ids) + sscanf(of_texts + 4 * i, "%4x", &want_text), 2);
        ids.n = 0;
        text.n = 0;
        add_all(&ids, before);
        assert_int_equal(tokenizer_encode(e, strings[i].data, strings[i].n, 0, &ids), OK);
        add_all(&ids, behind);
        if (checksum_of_ids(&ids) != want_ids)
            fail_msg("%s: other ids for string %d: %.*s", name, i, (int)strings[i].n, (char *)strings[i].data);
        assert_int_equal(tokenizer_decode(t, ids.id, ids.n, ids.n % 2 == 1, &text), OK);
        if (checksum(text.data, text.n) != want_text)
            fail_msg("%s: string %d is decoded to something else: %.*s", name, i, (int)text.n, (char *)text.data);
    }
    free(ids.id);
    text_buffer_free(&text);
    encoder_free(e);
    tokenizer_close(t);
}

static void test_families(void **state)
{
    (void)state;
    FILE *f = fopen(source("golden.txt"), "r");
    char *line[2] = {NULL, NULL}, name[2][64], kind[2][16];
    size_t room[2] = {0, 0};
    int families = 0;
    assert_non_null(f);
    while (getline(&line[0], &room[0], f) > 0 && getline(&line[1], &room[1], f) > 0) {
        int at[2];
        for (int k = 0; k < 2; k++)
            assert_int_equal(sscanf(line[k], "%63s %15s %n", name[k], kind[k], &at[k]), 2);
        assert_string_equal(name[0], name[1]);
        check_family(name[0], line[0] + at[0], line[1] + at[1]);
        families++;
    }
    assert_true(families >= 30);
    free(line[0]);
    free(line[1]);
    fclose(f);
}

static void check_cuts(const char *name, const uint8_t *text, size_t n)
{
    struct encoder *e;
    struct tokenizer *t = open_family(name, &e);
    check_cuts_of(name, t, e, text, n);
    encoder_free(e);
    tokenizer_close(t);
}

static void each_family(void (*check)(const char *name, const uint8_t *text, size_t n), const uint8_t *text, size_t n)
{
    DIR *d = opendir(source("families"));
    assert_non_null(d);
    for (struct dirent *f; (f = readdir(d));) {
        char name[256];
        size_t length = strlen(f->d_name);
        if (length < 6 || strcmp(f->d_name + length - 5, ".json") != 0)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)length - 5, f->d_name);
        check(name, text, n);
    }
    closedir(d);
}

static void test_cuts(void **state)
{
    (void)state;
    struct text_buffer text = {0};
    mix_strings(&text);
    each_family(check_cuts, text.data, text.n);
    text_buffer_free(&text);
}

/* A large text that is a single piece takes time proportional to its length; quadratic time would be hours. */
static void test_long_piece(void **state)
{
    (void)state;
    static const char *const names[] = {"llama2", "gpt2", "t5", "qwen2"};
    enum { N = 1 << 20 };
    uint8_t *text = malloc(N);
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        struct encoder *e;
        struct tokenizer *t = open_family(names[k], &e);
        struct ids ids = {0};
        for (size_t i = 0; i < N; i++)
            text[i] = (uint8_t)("ab xyz "[(i * i + i / 7) % (k == 1 ? 2 : 7)]);
        assert_int_equal(tokenizer_encode(e, text, N, 0, &ids), OK);
        assert_true(ids.n > 0);
        free(ids.id);
        encoder_free(e);
        tokenizer_close(t);
    }
    free(text);
}

static void test_repair(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t n;
        const char *want;
    } cases[] = {
        {"abc", 0, ""},
        {"a\x80z", 1, "a\xef\xbf\xbdz"},
        {"\xf0\x9f\x98", 1, "\xef\xbf\xbd"},
        {"\xe4\xb8\xe4\xb8\xad", 1, "\xef\xbf\xbd\xe4\xb8\xad"},
        {"\xc0\xaf", 2, "\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xed\xa0\x80", 3, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xf4\x90\x80\x80", 4, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct text_buffer out = {0};
        int64_t n;
        assert_int_equal(text_repair((const uint8_t *)cases[i].text, strlen(cases[i].text), &out, &n), OK);
        assert_int_equal(n, cases[i].n);
        assert_int_equal(out.n, strlen(cases[i].want));
        assert_memory_equal(out.data ? out.data : (uint8_t *)"", cases[i].want, out.n);
        text_buffer_free(&out);
    }
}

/* Metaspace's "first" refers to a piece's place before normalisation: every piece that comes from the text's first character
 * counts as first. Ids are those of tokenizers 0.23.3. */
static void test_first(void **state)
{
    (void)state;
    static const char *const texts[] = {"½", "1⁄2", "½ 2", "2½", "ﬁ1", "a1", "ab1 1", " 1a"};
    enum { TEXTS = sizeof texts / sizeof *texts };
    static const struct {
        const char *normalizer, *ids[TEXTS];
    } cases[] = {
        {"{\"type\": \"NFKC\"}",
         {"1 2 1 5 1 3", "1 2 5 3", "1 2 1 5 1 3 1 3", "1 3 2 5 3", "1 9 10 2", "1 4 2", "1 4 8 2 1 2", "1 2 4"}},
        {"{\"type\": \"Prepend\", \"prepend\": \"1a\"}",
         {"1 2 1 4 1 0", "1 2 1 4 1 2 5 3", "1 2 1 4 1 0 1 3", "1 2 1 4 1 3 0", "1 2 1 4 0 2", "1 2 1 4 4 2", "1 2 1 4 4 8 2 1 2",
          "1 2 1 4 1 2 4"}},
        {"{\"type\": \"Replace\", \"pattern\": {\"String\": \"½\"}, \"content\": \"1a2\"}",
         {"1 2 1 4 1 3", "1 2 5 3", "1 2 1 4 1 3 1 3", "1 3 2 4 3", "1 0 2", "1 4 2", "1 4 8 2 1 2", "1 2 4"}},
        {"{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"[ab]+\"}, \"content\": \"12\"}",
         {"1 0", "1 2 5 3", "1 0 1 3", "1 3 0", "1 0 2", "1 2 1 3 2", "2 3 2 1 2", "1 2 2 3"}},
        {"{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Prepend\", \"prepend\": \" \"}, {\"type\": \"Strip\", \"strip_left\": true, \"strip_right\": true}]}",
         {"1 0", "1 2 5 3", "1 0 1 3", "1 3 0", "1 0 2", "1 4 2", "1 4 8 2 1 2", "2 4"}},
        {"{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFKC\"}, {\"type\": \"Replace\", \"pattern\": {\"String\": \"1\"}, \"content\": \"\"}]}",
         {"1 5 1 3", "5 3", "1 5 1 3 1 3", "1 3 5 3", "1 9 10", "1 4", "1 4 8 1", "1 4"}},
        {"{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, \"content\": \"½\"}, {\"type\": \"NFKD\"}, {\"type\": \"Prepend\", \"prepend\": \"x\"}]}",
         {"1 7 1 2 1 5 1 3", "1 7 1 2 5 3", "1 7 1 2 1 5 1 3 1 3", "1 7 1 3 2 5 3", "1 7 9 10 2", "1 7 1 2 1 5 1 3 2",
          "1 7 1 2 1 5 1 3 8 2 1 2", "1 7 1 2 2 5 3"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char json[2048];
        struct tokenizer *t;
        struct encoder *e;
        snprintf(
            json, sizeof json,
            "{\"normalizer\": %s, \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\", \"individual_digits\": true}, "
            "{\"type\": \"Metaspace\", \"replacement\": \"▁\", \"prepend_scheme\": \"first\", \"split\": true}]}, \"model\": {\"type\": \"BPE\", "
            "\"unk_token\": \"?\", \"vocab\": {\"?\": 0, \"▁\": 1, \"1\": 2, \"2\": 3, \"a\": 4, \"⁄\": 5, \" \": 6, \"x\": 7, \"b\": 8, \"f\": 9, "
            "\"i\": 10}, \"merges\": []}}",
            cases[i].normalizer);
        if (tokenizer_open(scratch_text("first.json", json), &t) != OK || encoder_create(t, &e) != OK)
            fail_msg("%s", status_message());
        for (int k = 0; k < TEXTS; k++) {
            struct ids ids = {0};
            char found[256] = "";
            assert_int_equal(tokenizer_encode(e, (const uint8_t *)texts[k], strlen(texts[k]), 0, &ids), OK);
            for (size_t j = 0; j < ids.n; j++)
                snprintf(found + strlen(found), sizeof found - strlen(found), "%s%d", j ? " " : "", ids.id[j]);
            if (strcmp(found, cases[i].ids[k]) != 0)
                fail_msg("%s, %s: %s, not %s", cases[i].normalizer, texts[k], found, cases[i].ids[k]);
            free(ids.id);
        }
        encoder_free(e);
        tokenizer_close(t);
    }
}

/* ---- refusals ---- */

static void refuse(const char *json, const char *part)
{
    struct tokenizer *t = NULL;
    assert_int_equal(tokenizer_open(scratch_text("tokenizer.json", json), &t), ERR_INVALID);
    assert_null(t);
    if (!strstr(status_message(), part))
        fail_msg("'%s' does not say '%s'", status_message(), part);
}

#define BPE "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [\"a b\"]}"
#define PRE(x) "{\"pre_tokenizer\": " x ", " BPE "}"
#define SPLIT(x) PRE("{\"type\": \"Split\", \"pattern\": {\"Regex\": \"" x "\"}, \"behavior\": \"Isolated\"}")

static void test_refusals(void **state)
{
    (void)state;
    struct tokenizer *t;
    refuse("{", "line 1");
    refuse("[]", "no JSON object");
    refuse("{}", "no model");
    refuse("{\"model\": {\"type\": \"WordPiece\"}}", "the model WordPiece is not known here (BPE and Unigram are)");
    refuse("{\"model\": {\"type\": \"BPE\", \"vocab\": {}, \"merges\": []}}", "vocab is empty");
    refuse("{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": -1}, \"merges\": []}}", "the token a has the id -1");
    refuse("{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 1}, \"merges\": [\"a b\"]}}", "the merge of a and b");
    refuse("{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 1}, \"merges\": [], \"end_of_word_suffix\": \"</w>\"}}",
           "end_of_word_suffix");
    refuse("{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 1}, \"merges\": [], \"dropout\": 0.1}}", "dropout");
    refuse("{\"model\": {\"type\": \"Unigram\", \"unk_id\": 7, \"vocab\": [[\"a\", -1]]}}", "unk_id is 7");
    refuse("{\"normalizer\": {\"type\": \"Lowercase\"}, " BPE "}", "the normalizer Lowercase is not known here");
    refuse("{\"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"AAAA\"}, " BPE "}", "cut short");
    refuse("{\"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"BAAAAAAAAAD//wA=\"}, " BPE "}",
           "no valid UTF-8");
    refuse("{\"decoder\": {\"type\": \"WordPiece\"}, " BPE "}", "the decoder WordPiece is not known here");
    refuse("{\"post_processor\": {\"type\": \"Xyz\"}, " BPE "}", "the post-processor Xyz is not known here");
    refuse(
        "{\"post_processor\": {\"type\": \"Sequence\", \"processors\": [{\"type\": \"BertProcessing\", \"cls\": [\"a\", 0], \"sep\": [\"b\", 1]}, "
        "{\"type\": \"BertProcessing\", \"cls\": [\"a\", 0], \"sep\": [\"b\", 1]}]}, " BPE "}",
        "BertProcessing follows a post-processor that adds tokens");
    refuse("{\"post_processor\": {\"type\": \"BertProcessing\", \"cls\": [\"a\", 1099511627776], \"sep\": [\"b\", 1]}, " BPE "}",
           "a special token of the template has no number as its id");
    refuse(PRE("{\"type\": \"BertPreTokenizer\"}"), "the pre-tokenizer BertPreTokenizer is not known here");
    refuse(SPLIT("[[:alpha:]]"), "a POSIX class at byte 1");
    refuse(SPLIT("\\\\p{Runic}"), "the property \\p{Runic}");
    refuse(SPLIT("(a)\\\\1"), "an escape at byte 4");
    refuse(SPLIT("a{2}?"), "{n}?");
    refuse(SPLIT("(?i:\\\\p{L})"), "(?i:) over a property");
    refuse(SPLIT("(a"), "a group without end");
    refuse(SPLIT("[a"), "a class without end");
    refuse(SPLIT("a)"), "closes nothing");
    refuse(SPLIT("(?x:a)"), "a group at byte");
    refuse(SPLIT("(?<=a+)b"), "cannot be compiled");
    refuse(
        "{\"added_tokens\": [{\"id\": 3, \"content\": \"<x>\"}], \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 2}, \"merges\": []}}",
        "the added token <x> would get the id 2, which is that of b: the vocab has holes");
    refuse("{\"added_tokens\": [{\"id\": 5, \"content\": \"x\"}, {\"id\": 6, \"content\": \"x\"}], " BPE "}",
           "the added token x is there twice");
    assert_int_equal(tokenizer_open(scratch_path("nowhere"), &t), ERR_INVALID);
    assert_non_null(strstr(status_message(), "cannot open"));
}

/* ---- ids of small tokenizers, as measured with tokenizers 0.23.3 ---- */

#define MODEL(vocab, merges, rest) "\"model\": {\"type\": \"BPE\", \"vocab\": {" vocab "}, \"merges\": [" merges "]" rest "}}"
#define FIRST(normalizer)                                                                                                     \
    "{\"normalizer\": {" normalizer "}, \"pre_tokenizer\": {\"type\": \"Metaspace\", \"prepend_scheme\": \"first\"}, " MODEL( \
        "\"a\": 0, \"\u2581\": 1, \"\u2581a\": 2, \"b\": 3, \"x\": 4", "\"\u2581 a\"", "")
#define WORDS(x)                                                              \
    "{\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"" x \
    "\"}, \"behavior\": \"Removed\"}, " MODEL("\"a\": 0, \"\u00bd\": 1, \".\": 2", "", "")
#define STRIPPING                                                                                                                        \
    "{\"added_tokens\": [{\"id\": 3, \"content\": \"<x>\", \"rstrip\": true, \"normalized\": false}, {\"id\": 4, \"content\": \"\\n\", " \
    "\"lstrip\": true, \"normalized\": false}], " MODEL("\"a\": 0, \"b\": 1, \" \": 2", "", "")

static void check_small(const char *json, const char *text, const char *want)
{
    struct tokenizer *t;
    struct encoder *e;
    struct ids ids = {0};
    char got[400] = "";
    if (tokenizer_open(scratch_text("tokenizer.json", json), &t) != OK || encoder_create(t, &e) != OK)
        fail_msg("%s", status_message());
    assert_int_equal(tokenizer_encode(e, (const uint8_t *)text, strlen(text), 0, &ids), OK);
    for (size_t i = 0; i < ids.n; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), i ? " %d" : "%d", ids.id[i]);
    if (strcmp(got, want) != 0)
        fail_msg("%s: '%s' gives %s and should give %s", json, text, got, want);
    free(ids.id);
    encoder_free(e);
    tokenizer_close(t);
}

static void test_small(void **state)
{
    (void)state;
    /* white space that <x> strips is not a separate token */
    check_small(STRIPPING, "a \n\nb", "0 4 4 1");
    check_small(STRIPPING, "<x>\n", "3");
    check_small(STRIPPING, "<x>\nb\n", "3 1 4");
    /* in Oniguruma \w matches the number characters of Latin-1, but a class [\w] does not */
    check_small(WORDS("\\\\w+"),
                "a\xc2\xbd.\xc2\xbd"
                "a",
                "2");
    check_small(WORDS("[\\\\w.]+"),
                "a\xc2\xbd.\xc2\xbd"
                "a",
                "1 1");
    check_small(WORDS("[^\\\\W]+"),
                "a\xc2\xbd.\xc2\xbd"
                "a",
                "1 2 1");
    /* if only some bytes have tokens, an unknown character's token comes after the tokens of all bytes that follow it */
    check_small("{" MODEL("\"a\": 0, \"<unk>\": 1, \"<0x62>\": 2, \"<0x63>\": 3", "",
                          ", \"unk_token\": \"<unk>\", \"byte_fallback\": true"),
                "a!bcbcbcbcbcbcbcbcbcbcbcbca", "0 2 3 2 3 2 3 2 3 2 3 2 3 2 3 2 3 2 3 2 3 2 3 2 3 1 0");
    check_small("{" MODEL("\"a\": 0", "", ""), "b", ""); /* b vanishes */
    /* "first" means the beginning of the text before normalisation */
    check_small(FIRST("\"type\": \"Strip\", \"strip_left\": true"), "a", "2");
    check_small(FIRST("\"type\": \"Strip\", \"strip_left\": true"), "  a", "0");
    check_small(FIRST("\"type\": \"Replace\", \"pattern\": {\"String\": \"x\"}, \"content\": \"\""), "xa", "0");
    check_small(FIRST("\"type\": \"Replace\", \"pattern\": {\"Regex\": \"x+\"}, \"content\": \"a\""), "x", "2");
    check_small(FIRST("\"type\": \"Replace\", \"pattern\": {\"Regex\": \"x+\"}, \"content\": \"a\""), "xx", "0");
    check_small(FIRST("\"type\": \"Replace\", \"pattern\": {\"String\": \"xb\"}, \"content\": \"a\""), "xb", "0");
}

/* Rendered chats are cut at the right places: newlines after added tokens belong to these tokens, and a space is put before the
 * text that follows. */
static void test_cuts_behind_tokens(void **state)
{
    (void)state;
    struct tokenizer *t;
    struct text_buffer text = {0};
    assert_int_equal(
        tokenizer_open(
            scratch_text(
                "tokenizer.json",
                "{\"added_tokens\": [{\"id\": 9, \"content\": \"A\"}], \"pre_tokenizer\": {\"type\": \"ByteLevel\"}, " MODEL(
                    "\"a\": 0", "", "")),
            &t),
        OK);
    /* cut behind the first newline only: a space is put before the second one, which begins a piece */
    assert_int_equal(tokenizer_cut(t, (const uint8_t *)"b\nbA\nb", 6), 2);
    tokenizer_close(t);
    for (int i = 0; i < 200; i++)
        assert_int_equal(text_buffer_print(&text, "<|user|>\nabc %d.\nxy<|end|>\nword,\n", i), OK);
    check_cuts("phi3", text.data, text.n);
    text_buffer_free(&text);
}

static void check_uncut(const char *json)
{
    struct tokenizer *t;
    if (tokenizer_open(scratch_text("tokenizer.json", json), &t) != OK)
        fail_msg("%s", status_message());
    assert_false(t->can_cut);
    tokenizer_close(t);
}

/* Text is not cut if ids behind a newline depend on the text before it. */
static void test_uncut(void **state)
{
    (void)state;
    check_uncut(
        "{\"added_tokens\": [{\"id\": 4, \"content\": \"\\n\", \"single_word\": true}], \"pre_tokenizer\": {\"type\": \"WhitespaceSplit\"}, " MODEL(
            "\"a\": 0, \"b\": 1", "", ""));
    check_uncut(
        "{\"added_tokens\": [{\"id\": 4, \"content\": \"\\n\"}], \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": "
        "\"WhitespaceSplit\"}, {\"type\": \"Metaspace\"}]}, " MODEL("\"a\": 0, \"b\": 1", "", ""));
    check_uncut(
        "{\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\"}, {\"type\": \"ByteLevel\"}]}, " MODEL(
            "\"a\": 0, \"b\": 1", "", ""));
    /* b is left out, so that a merge joins the newline with the text behind b */
    check_uncut("{" MODEL("\"a\": 0, \"\\n\": 1, \"|\": 2, \"\\n|\": 3", "[\"\\n\", \"|\"]", ""));
    /* a map that turns newlines into spaces, and an added token with a space */
    json_t *t5 = json_load_file(source("families/t5.json"), 0, NULL);
    assert_int_equal(json_object_set_new(t5, "added_tokens", json_pack("[{s:s, s:b}]", "content", "a b", "normalized", 1)), 0);
    char *text = json_dumps(t5, 0);
    check_uncut(text);
    free(text);
    json_decref(t5);
}

/* Matching a pattern that backtracks without end is stopped with an error. */
static void test_backtracking(void **state)
{
    (void)state;
    struct tokenizer *t;
    struct encoder *e;
    struct ids ids = {0};
    assert_int_equal(tokenizer_open(scratch_text("tokenizer.json", SPLIT("(?:a|aa|a?)+[bc]")), &t), OK);
    assert_int_equal(encoder_create(t, &e), OK);
    enum status st = tokenizer_encode(
        e, (const uint8_t *)"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 72, 0, &ids);
    assert_int_equal(st, ERR_INVALID);
    assert_non_null(strstr(status_message(), "gives up"));
    free(ids.id);
    encoder_free(e);
    tokenizer_close(t);
}

/* ---- damaged files ---- */

/* Changes bytes near the text's beginning and end, where the structure is. */
static size_t damage(char *text, size_t n, uint64_t *turn)
{
    static const char some[] = "0123456789{}[]\",:aTtruefalsn\\-.p";
    for (uint32_t k = 1 + draw(turn, 3); k > 0; k--) {
        uint32_t reach = n < 2500 ? (uint32_t)n : 2500, back = draw(turn, 3) == 0;
        size_t at = back ? n - 1 - draw(turn, reach) : draw(turn, reach), length = 1 + draw(turn, 6);
        if (at + length >= n)
            continue;
        if (draw(turn, 4) == 0) {
            memmove(text + at, text + at + length, n - at - length);
            n -= length;
        } else {
            text[at] = some[draw(turn, sizeof some - 1)];
        }
    }
    return n;
}

static void check_damaged(const char *name, const uint8_t *unused, size_t none)
{
    (void)unused, (void)none;
    char file[300];
    static char whole[1 << 18], text[1 << 18];
    snprintf(file, sizeof file, "families/%s.json", name);
    FILE *f = fopen(source(file), "r");
    size_t n = fread(whole, 1, sizeof whole, f);
    fclose(f);
    uint64_t turn = checksum((const uint8_t *)name, strlen(name)) * 1000ull;
    int turns = getenv("LTRAIN_LONG") ? 2000 : 25;
    for (int i = 0; i < turns; i++) {
        memcpy(text, whole, n);
        try_tokenizer("damaged.json", text, damage(text, n, &turn), 7);
    }
}

static void test_damaged(void **state)
{
    (void)state;
    each_family(check_damaged, NULL, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_families), cmocka_unit_test(test_cuts),         cmocka_unit_test(test_long_piece),
        cmocka_unit_test(test_repair),   cmocka_unit_test(test_first),        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_small),    cmocka_unit_test(test_uncut),        cmocka_unit_test(test_cuts_behind_tokens),
        cmocka_unit_test(test_damaged),  cmocka_unit_test(test_backtracking),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
