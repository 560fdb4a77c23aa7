/* Compares tokens and masks of conversations with those of the tokenizers library and transformers (tests/chat/tokens.txt, by
 * make_tokens.py). */
#include "../chat/chat_test.h"
#include "corpora.h"
#include "scratch.h"

#include <jansson.h>

enum { NOW = 1770091506, CONVERSATIONS = 40 };

static char *rows[CONVERSATIONS];

static void hash(const uint8_t *bytes, size_t n, char out[16])
{
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ bytes[i]) * 0x100000001B3u;
    snprintf(out, 16, "%010llx", (unsigned long long)((h >> 40) ^ (h & 0xFFFFFFFFFFu)));
}

struct pair {
    struct tokenizer *tokenizer;
    struct chat_template *chat_template;
    struct chat_encoder *encoder;
};

static enum status open_pair(const char *family, const char *name, const char *tokens, enum chat_train train, struct pair *out)
{
    char path[1024];
    size_t n;
    struct chat_options options = {.train = train, .now = NOW};
    *out = (struct pair){NULL, NULL, NULL};
    snprintf(path, sizeof path, "%s/tests/text/families/%s.json", getenv("LTRAIN_SOURCE_ROOT"), family);
    TRY(tokenizer_open(path, &out->tokenizer));
    snprintf(path, sizeof path, "templates/%s.jinja", name);
    char *source = chat_test_read(path, &n);
    enum status st = chat_template_parse(source, n, name, &out->chat_template);
    free(source);
    TRY(st);
    const char *variable;
    json_t *all = json_loads(tokens, 0, NULL), *token;
    json_object_foreach(all, variable, token)
    {
        assert_int_equal(chat_template_set_token(out->chat_template, variable, json_string_value(token)), OK);
    }
    json_decref(all);
    return chat_encoder_create(out->tokenizer, out->chat_template, &options, &out->encoder);
}

static void close_pair(struct pair *p)
{
    chat_encoder_destroy(p->encoder);
    chat_template_destroy(p->chat_template);
    tokenizer_close(p->tokenizer);
}

static struct chat_conversation *read_chat(const char *json)
{
    struct chat_conversation *c = NULL;
    if (chat_read(json, strlen(json), "f", 1, &c) != OK)
        fail_msg("%s", status_message());
    return c;
}

/* Writes the tokens of a conversation as ids:mask, or "x" if it is refused. */
static void describe(struct pair *p, const char *row, int masked, char out[40])
{
    struct chat_conversation *c = read_chat(row);
    struct chat_sample s;
    char ids[16], mask[16];
    strcpy(out, "x");
    if (chat_encode(p->encoder, c, &s) == OK) {
        hash((const uint8_t *)s.tokens.id, s.tokens.n * sizeof *s.tokens.id, ids);
        hash(s.trained, s.tokens.n, mask);
        snprintf(out, 40, "%s:%s", ids, masked ? mask : "-");
        /* not compared: transformers trains the empty turns of left-out tool calls */
        if (masked && s.text.from_generation && s.text.calls_dropped > 0)
            strcpy(out, "untrained");
        chat_sample_destroy(&s);
    } else if (strstr(status_message(), "is trained")) {
        strcpy(out, "untrained");
    }
    chat_destroy(c);
}

static void test_tokens(void **state)
{
    (void)state;
    size_t n;
    int failures = 0, compared = 0;
    char *all = chat_test_read("tokens.txt", &n);
    for (char *at = all, *line; (line = chat_test_line(&at));) {
        char *next = NULL, *family = strtok_r(line, " ", &next), *name = strtok_r(NULL, " ", &next),
             *tokens = strtok_r(NULL, " ", &next), *cell;
        struct pair p, whole;
        if (open_pair(family, name, tokens, CHAT_TRAIN_ASSISTANT, &p) != OK ||
            open_pair(family, name, tokens, CHAT_TRAIN_ALL, &whole) != OK)
            fail_msg("%s, %s: %s", family, name, status_message());
        for (int i = 0; (cell = strtok_r(NULL, " ", &next)); i++) {
            char got[40];
            size_t shown = strlen(cell);
            int masked = shown > 0 && cell[shown - 1] != '-';
            if (strcmp(cell, "-") == 0)
                continue;
            describe(masked ? &p : &whole, rows[i], masked, got);
            if (strcmp(got, "untrained") == 0)
                continue;
            compared++;
            if (strcmp(got, cell) != 0) {
                print_error("%s, %s, conversation %d: %s, expected %s (%s)\n", family, name, i, got, cell, status_message());
                failures++;
            }
        }
        close_pair(&p);
        close_pair(&whole);
    }
    free(all);
    assert_true(compared > 400);
    if (failures > 0)
        fail_msg("%d of %d conversations differ", failures, compared);
}

static int64_t count_id(const struct chat_sample *s, int32_t id)
{
    int64_t n = 0;
    for (size_t i = 0; i < s->tokens.n; i++)
        n += s->tokens.id[i] == id;
    return n;
}

/* Special tokens typed in any message are read as plain text, but <think> in an assistant's message is read as a token. */
static void test_typed_tokens(void **state)
{
    (void)state;
    struct pair p;
    struct chat_sample s;
    assert_int_equal(open_pair("qwen2", "qwen3", "{\"eos_token\": \"<|im_end|>\"}", CHAT_TRAIN_ASSISTANT, &p), OK);
    struct chat_conversation *c = read_chat("{\"messages\": [{\"role\": \"user\", \"content\": \"<|im_end|> <think> "
                                            "<|im_start|>assistant\"}, {\"role\": \"assistant\", \"content\": "
                                            "\"<|im_end|> or <think>\"}]}");
    assert_int_equal(chat_encode(p.encoder, c, &s), OK);
    assert_int_equal(count_id(&s, tokenizer_find(p.tokenizer, "<|im_start|>")), 2);
    assert_int_equal(count_id(&s, tokenizer_find(p.tokenizer, "<|im_end|>")), 2);
    /* one from the template and one from the answer */
    assert_int_equal(count_id(&s, tokenizer_find(p.tokenizer, "<think>")), 2);
    assert_int_equal(s.tokens.id[s.tokens.n - 1], tokenizer_find(p.tokenizer, "\xC4\x8A")); /* a newline */
    assert_false(s.trained[s.tokens.n - 1]);
    assert_true(s.trained[s.tokens.n - 2]);
    assert_int_equal(s.tokens.id[s.tokens.n - 2], tokenizer_find(p.tokenizer, "<|im_end|>"));
    chat_sample_destroy(&s);
    chat_destroy(c);
    close_pair(&p);
}

/* Checks that each token of an answer is trained. before: number of tokens of the question and of the text before the answer. */
static void check_answer(const char *family, const char *source, const char *answer, size_t before)
{
    struct pair p = {NULL, NULL, NULL};
    struct chat_sample s;
    char path[1024], row[300];
    struct chat_options options = {.train = CHAT_TRAIN_ASSISTANT, .now = NOW};
    snprintf(path, sizeof path, "%s/tests/text/families/%s.json", getenv("LTRAIN_SOURCE_ROOT"), family);
    snprintf(row, sizeof row,
             "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"%s\"}]}",
             answer);
    assert_int_equal(tokenizer_open(path, &p.tokenizer), OK);
    assert_int_equal(chat_template_parse(source, strlen(source), "t", &p.chat_template), OK);
    assert_int_equal(chat_encoder_create(p.tokenizer, p.chat_template, &options, &p.encoder), OK);
    struct chat_conversation *c = read_chat(row);
    assert_int_equal(chat_encode(p.encoder, c, &s), OK);
    assert_true(s.tokens.n > before);
    for (size_t i = 0; i < s.tokens.n; i++)
        if (s.trained[i] != (i >= before))
            fail_msg("%s: token %zu of %zu, %d", family, i, s.tokens.n, s.tokens.id[i]);
    chat_sample_destroy(&s);
    chat_destroy(c);
    close_pair(&p);
}

static void test_places(void **state)
{
    (void)state;
    static const char turns[] = "{% for m in messages %}{{ m.content }}<|end|>{% endfor %}",
                      ended[] = "{% for m in messages %}{{ m.content }}<|endoftext|>{% endfor %}";
    check_answer("phi3", turns, "\xc3\x9f", 2); /* the space before the answer is a separate token, which the model writes */
    check_answer("falcon", ended, "\xc2\xbd, \xc3\xa9t\xc3\xa9",
                 2); /* whose bytes are characters before the last pre-tokenizer */
}

static void test_refusals(void **state)
{
    (void)state;
    struct pair p;
    struct chat_sample s;
    assert_int_equal(open_pair("llama3", "llama2", "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}", CHAT_TRAIN_ASSISTANT, &p),
                     ERR_INVALID);
    assert_non_null(strstr(status_message(), "it is another model's template"));
    close_pair(&p);
    assert_int_equal(open_pair("qwen2", "chatml", "{}", CHAT_TRAIN_ASSISTANT, &p), OK);
    struct chat_conversation *c = read_chat("{\"messages\": [{\"role\": \"user\", \"content\": \"alone\"}]}");
    assert_int_equal(chat_encode(p.encoder, c, &s), ERR_INVALID);
    assert_non_null(strstr(status_message(), "f:1: nothing in this conversation is trained"));
    assert_null(s.tokens.id);
    chat_destroy(c);
    close_pair(&p);
}

/* Returns all conversations' tokens one after another, as -1 - id if not trained; ends: the end of each conversation. */
static struct ids whole_stream(struct pair *p, int n, int64_t *ends)
{
    struct ids all = {.n = 0};
    for (int i = 0; i < n; i++) {
        struct chat_conversation *c = read_chat(rows[i]);
        struct chat_sample s;
        assert_int_equal(chat_encode(p->encoder, c, &s), OK);
        for (size_t k = 0; k < s.tokens.n; k++)
            assert_int_equal(ids_add(&all, s.trained[k] ? s.tokens.id[k] : -1 - s.tokens.id[k]), OK);
        ends[i] = (int64_t)all.n;
        chat_sample_destroy(&s);
        chat_destroy(c);
    }
    return all;
}

static struct corpus_config config_of(struct pair *p, const struct chat_setup *setup, const char *const *path)
{
    return (struct corpus_config){.paths = path,
                                  .n_paths = 1,
                                  .eval_paths = path,
                                  .n_eval_paths = 1,
                                  .seq_len = 32,
                                  .vocab = 1000,
                                  .tokenizer = p->tokenizer,
                                  .chats = setup,
                                  .cache = scratch_path("cache"),
                                  .threads = 2};
}

/* ---- turns ---- */

enum { OPEN = 1, CLOSE = 2 }; /* bytes that mark the beginning and end of trained parts */

struct seen_sample {
    char text[2000]; /* text with trained parts between OPEN and CLOSE */
    int n;
};

struct seen {
    struct seen_sample at[8];
    int n;
};

static enum status see(void *user, const struct chat_sample *s)
{
    struct seen *x = user;
    struct seen_sample *to = &x->at[x->n++];
    int64_t trained = 0;
    to->n = 0;
    for (size_t i = 0, k = 0; i <= s->text.n; i++) {
        if (k < s->text.n_supervised && s->text.supervised[k].first == i)
            to->text[to->n++] = OPEN;
        if (k < s->text.n_supervised && s->text.supervised[k].end == i) {
            to->text[to->n++] = CLOSE;
            k++;
        }
        if (i < s->text.n)
            to->text[to->n++] = s->text.bytes[i];
    }
    to->text[to->n] = 0;
    for (size_t i = 0; i < s->tokens.n; i++)
        trained += s->trained[i];
    assert_int_equal(trained, s->n_trained);
    assert_true(trained > 0);
    return OK;
}

static struct chat_counts see_turns(const char *name, const char *row, enum chat_train train, enum chat_turns turns,
                                    struct seen *out)
{
    struct pair p;
    struct chat_counts counts = {.samples = 0};
    struct chat_conversation *c = read_chat(row);
    if (open_pair("qwen2", name, "{\"bos_token\": \"<|endoftext|>\", \"eos_token\": \"<|im_end|>\"}", train, &p) != OK)
        fail_msg("%s: %s", name, status_message());
    out->n = 0;
    if (chat_encode_turns(p.encoder, c, turns, see, out, &counts) != OK)
        fail_msg("%s: %s", name, status_message());
    assert_true(counts.samples == out->n && counts.conversations == 1);
    chat_destroy(c);
    close_pair(&p);
    return counts;
}

#define SAYS(r, a) "{\"role\": \"assistant\", \"reasoning_content\": \"" r "\", \"content\": \"" a "\"}"
#define ASKS(q) "{\"role\": \"user\", \"content\": \"" q "\"}"
#define CALLS(r)                                            \
    "{\"role\": \"assistant\", \"reasoning_content\": \"" r \
    "\", \"content\": \"\", \"tool_calls\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": {}}}]}"
#define ANSWERS(x) "{\"role\": \"tool\", \"content\": \"" x "\"}"
#define CHAT(m) "{\"messages\": [" m "]}"

/* Each turn is trained with its reasoning: in a sample that ends with the turn, or in a later sample that begins with the same
 * bytes. */
static void test_turns(void **state)
{
    (void)state;
    static const char *const dropping[] = {"qwen3", "deepseek_r1", "glm4"};
    struct seen s;
    struct chat_counts n;
    for (int i = 0; i < 3; i++) {
        n = see_turns(dropping[i], CHAT(ASKS("Q1") "," SAYS("R1", "A1") "," ASKS("Q2") "," SAYS("R2", "A2")),
                      CHAT_TRAIN_ASSISTANT, CHAT_TURNS_SPLIT, &s);
        if (i == 2 && n.split == 0) /* this template of GLM never writes reasoning, so it leaves out none */
            continue;
        assert_true(n.samples == 2 && n.split == 1 && n.reasoning_dropped == 0);
        assert_non_null(strstr(s.at[0].text, "R1"));
        assert_null(strstr(s.at[0].text, "Q2"));
        assert_true(strstr(s.at[0].text, "R1") > strchr(s.at[0].text, OPEN));
        assert_null(strstr(s.at[1].text, "R1"));
        /* the first answer stands before the trained part of the second sample */
        assert_true(strstr(s.at[1].text, "A1") < strchr(s.at[1].text, OPEN));
        assert_true(strstr(s.at[1].text, "R2") > strchr(s.at[1].text, OPEN));
        n = see_turns(dropping[i], CHAT(ASKS("Q1") "," SAYS("R1", "A1") "," ASKS("Q2") "," SAYS("R2", "A2")),
                      CHAT_TRAIN_ASSISTANT, CHAT_TURNS_WHOLE, &s);
        assert_true(n.samples == 1 && n.split == 0 && n.reasoning_dropped == 1);
    }
    n = see_turns("qwen3",
                  CHAT(ASKS("Q1") "," CALLS("R1") "," ANSWERS("T1") "," SAYS("R2", "A2") "," ASKS("Q2") "," SAYS("R3", "A3")),
                  CHAT_TRAIN_ASSISTANT, CHAT_TURNS_SPLIT, &s);
    assert_true(n.samples ==
                2); /* a call and the turn after it are in one sample, since the template leaves out nothing between them */
    assert_true(strstr(s.at[0].text, "R1") && strstr(s.at[0].text, "R2") && !strstr(s.at[0].text, "Q2"));
    assert_ptr_not_equal(strchr(s.at[0].text, OPEN), strrchr(s.at[0].text, OPEN));
    assert_ptr_equal(strchr(s.at[1].text, OPEN), strrchr(s.at[1].text, OPEN));
    n = see_turns("qwen3", CHAT(ASKS("Q1") "," SAYS("R1", "A1") "," ASKS("Q2")), CHAT_TRAIN_LAST, CHAT_TURNS_SPLIT, &s);
    assert_true(n.samples == 1 && n.split == 1 && strstr(s.at[0].text, "R1") && !strstr(s.at[0].text, "Q2"));
    n = see_turns("qwen3", CHAT(ASKS("Q1") "," SAYS("", "A1") "," ASKS("Q2") "," SAYS("", "A2")), CHAT_TRAIN_ASSISTANT,
                  CHAT_TURNS_SPLIT, &s); /* one sample, as there is no reasoning to leave out */
    assert_true(n.samples == 1 && n.split == 0);
    n = see_turns(
        "qwen3",
        CHAT(
            "{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"Q\"}, {\"type\": \"text\", \"text\": \"1\"}]}," SAYS(
                "", "A1")),
        CHAT_TRAIN_ASSISTANT, CHAT_TURNS_SPLIT, &s); /* the template leaves out contents that are lists */
    assert_non_null(strstr(s.at[0].text, "user\nQ1<"));
    n = see_turns("llama3", CHAT(ASKS("Q1") "," SAYS("R1", "A1") "," ASKS("Q2") "," SAYS("R2", "A2")), CHAT_TRAIN_ASSISTANT,
                  CHAT_TURNS_SPLIT, &s); /* the template writes no reasoning at all */
    assert_true(n.samples == 1 && n.split == 0 && n.reasoning_dropped == 2);
    n = see_turns("llama3", CHAT(ASKS("Q1") "," SAYS("", "A1") "," ASKS("Q2") "," SAYS("", "A2")), CHAT_TRAIN_ASSISTANT,
                  CHAT_TURNS_SPLIT, &s);
    assert_true(n.samples == 1 && n.split == 0);
}

/* A file of conversations becomes sequences in which each conversation is a document, and exactly its trained tokens are targets. */
static void test_corpus(void **state)
{
    (void)state;
    enum { ROWS = 3, LEN = 32 };
    struct pair p;
    char text[4000] = "";
    int64_t ends[ROWS];
    int32_t tokens[LEN], targets[LEN], positions[LEN], lo[LEN], hi[LEN];
    struct sequence s = {.tokens = tokens, .targets = targets, .positions = positions, .lo = lo, .hi = hi};
    assert_int_equal(open_pair("qwen2", "qwen3", "{\"eos_token\": \"<|im_end|>\"}", CHAT_TRAIN_ASSISTANT, &p), OK);
    for (int i = 0; i < ROWS; i++)
        strcat(strcat(text, rows[i]), i == 1 ? "\r\n\n" : "\n"); /* adds an empty line, which is no conversation */
    const char *path = scratch_text("chats.jsonl", text);
    struct ids all = whole_stream(&p, ROWS, ends);
    for (int again = 0; again < 2; again++) { /* the second time from the cache */
        struct chat_setup setup = {.chat_template = p.chat_template, .options = {.now = NOW}};
        struct corpus_config config = config_of(&p, &setup, &path);
        struct corpus *c = open_corpus(&config);
        const struct corpus_report *r = corpus_get_report(c);
        assert_int_equal(r->documents, 2 * ROWS);
        assert_int_equal(r->cached, again);
        assert_true(r->unigram_entropy > 0.0);
        for (int64_t q = 0; q < r->eval_sequences; q++) {
            int64_t n_targets = 0;
            assert_int_equal(corpus_eval_sequence(c, q, &s), OK);
            for (int64_t i = 0; i < LEN; i++) {
                int64_t at = q * LEN + i, document = at < ends[0] ? 0 : at < ends[1] ? 1 : 2;
                int32_t id = all.id[at], next = at + 1 < ends[document] ? all.id[at + 1] : -1;
                assert_int_equal(tokens[i], id < 0 ? -1 - id : id);
                assert_int_equal(targets[i], next < 0 ? -1 : next);
                n_targets += next >= 0;
            }
            assert_int_equal(s.n_targets, n_targets);
        }
        corpus_close(c);
    }
    free(all.id);
    close_pair(&p);
}

/* If --text-column names a member of a conversation's row, that member is read as the text; without the option the conversation
 * is read. */
static void test_text_column(void **state)
{
    (void)state;
    static const char *const columns[] = {NULL, "text", "other"};
    struct pair p;
    int64_t tokens[3];
    assert_int_equal(open_pair("qwen2", "qwen3", "{}", CHAT_TRAIN_ASSISTANT, &p), OK);
    struct chat_setup setup = {.chat_template = p.chat_template, .options = {.now = NOW}};
    const char *path = scratch_text(
        "both.jsonl",
        "{\"text\": \"one two three four five six seven eight nine ten eleven twelve thirteen fourteen\", "
        "\"messages\": [{\"role\": \"assistant\", \"content\": \"a word, then another word, and then several other ones\"}]}\n");
    for (int i = 0; i < 3; i++) {
        struct corpus_config config = config_of(&p, &setup, &path);
        struct corpus *c = NULL;
        config.column = columns[i];
        config.seq_len = 8;
        if (corpus_open(&config, &c) != OK)
            fail_msg("%s", status_message());
        assert_false(corpus_get_report(c)->cached && i == 1);
        tokens[i] = corpus_get_report(c)->packed.tokens_kept + corpus_get_report(c)->packed.tokens_dropped;
        corpus_close(c);
    }
    assert_int_not_equal(tokens[0], tokens[1]);
    assert_int_equal(tokens[0], tokens[2]);
    close_pair(&p);
}

static void test_corpus_refusals(void **state)
{
    (void)state;
    struct pair p;
    assert_int_equal(open_pair("qwen2", "qwen3", "{}", CHAT_TRAIN_ASSISTANT, &p), OK);
    struct chat_setup setup = {.chat_template = p.chat_template, .options = {.now = NOW}}, none = {.missing = "because"};
    const char *path = scratch_text(
        "bad.jsonl",
        "{\"messages\": [{\"role\": \"assistant\", \"content\": \"x\"}]}\n\n{\"messages\": [{\"content\": \"y\"}]}\n");
    struct corpus_config config = config_of(&p, &setup, &path);
    refuse_corpus(&config, "bad.jsonl:3: message 1 has no role");
    path = scratch_text("bad.jsonl", "\n{\"messages\": [{\"role\": \"assistant\", \"content\": \"x\"}]}\n{\"text\": \"y\"}\n");
    refuse_corpus(&config, "bad.jsonl:3: ");
    config.chats = &none;
    refuse_corpus(&config, "bad.jsonl holds conversations, and there is no chat template: because");
    close_pair(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens),          cmocka_unit_test(test_typed_tokens), cmocka_unit_test(test_places),
        cmocka_unit_test(test_refusals),        cmocka_unit_test(test_turns),        cmocka_unit_test(test_corpus),
        cmocka_unit_test(test_corpus_refusals), cmocka_unit_test(test_text_column),
    };
    size_t n;
    char *conversations = chat_test_read("conversations.jsonl", &n), *at = conversations;
    for (int i = 0; i < CONVERSATIONS; i++)
        rows[i] = chat_test_line(&at);
    int failed = cmocka_run_group_tests(tests, scratch_create, scratch_destroy);
    free(conversations);
    return failed;
}
