/* Renders forty conversations with thirty templates in the style of model families, and compares the results with transformers'
 * apply_chat_template: hashes in expected.txt and some whole renders in whole.json, by make_expected.py. Masks are compared for
 * templates with {% generation %}. */
#include "chat_test.h"

#include <jansson.h>

enum { NOW = 1770091506, CONVERSATIONS = 40 };

static json_t *tokens;
static char *rows[CONVERSATIONS];

static void hash(const char *bytes, size_t n, char out[16])
{
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)bytes[i]) * 0x100000001B3u;
    snprintf(out, 16, "%010llx", (unsigned long long)((h >> 40) ^ (h & 0xFFFFFFFFFFu)));
}

static struct chat_template *open_template(const char *name)
{
    char path[200];
    size_t n;
    struct chat_template *t = NULL;
    snprintf(path, sizeof path, "templates/%s.jinja", name);
    char *source = chat_test_read(path, &n);
    if (chat_template_parse(source, n, path, &t) != OK)
        fail_msg("%s", status_message());
    free(source);
    const char *variable;
    json_t *token, *own = json_object_get(tokens, name);
    json_object_foreach(own ? own : json_object_get(tokens, "default"), variable, token)
    {
        assert_int_equal(chat_template_set_token(t, variable, json_string_value(token)), OK);
    }
    return t;
}

static struct chat_conversation *read_row(int i)
{
    struct chat_conversation *c = NULL;
    if (chat_read(rows[i], strlen(rows[i]), "conversations.jsonl", i + 1, &c) != OK)
        fail_msg("%s", status_message());
    return c;
}

/* Tells whether the template renders the conversation; an empty result counts, too. */
static int renders(const struct chat_template *t, const struct chat_conversation *c, const struct chat_options *options,
                   struct chat_text *out)
{
    return chat_render(t, c, options, out) == OK || strstr(status_message(), "nothing in this conversation is trained") != NULL;
}

/* Writes the hash of the rendered text; "x": rendering fails. */
static void render(const struct chat_template *t, const struct chat_conversation *c, int prompt, char out[16])
{
    struct chat_options options = {.add_generation_prompt = prompt, .train = CHAT_TRAIN_ALL, .now = NOW};
    struct chat_text text;
    strcpy(out, "x");
    if (renders(t, c, &options, &text))
        hash(text.bytes, text.n, out);
    chat_text_destroy(&text);
}

/* Hashes the mask, a byte for each byte of the text: 1 if a {% generation %} block supervises it. "-": the template has no such
 * block. */
static void mask(const struct chat_template *t, const struct chat_conversation *c, char out[16])
{
    struct chat_options options = {.train = CHAT_TRAIN_ALL, .now = NOW};
    struct chat_text whole, text;
    strcpy(out, "x");
    size_t n, length;
    int generation = strstr(chat_template_source(t, &n), "generation %}") != NULL;
    if (!renders(t, c, &options, &whole))
        return;
    length = whole.n;
    chat_text_destroy(&whole);
    options.train = CHAT_TRAIN_ASSISTANT;
    int taken = renders(t, c, &options, &text);
    if (!generation) {
        strcpy(out, "-");
    } else if (taken && text.calls_dropped > 0) {
        strcpy(out, "calls"); /* not compared: transformers trains the empty turns of left-out tool calls, and ltrain does not */
    } else if (taken) {
        char *bytes = calloc(length + 1, 1);
        for (size_t i = 0; i < text.n_supervised; i++)
            memset(bytes + text.supervised[i].first, 1, text.supervised[i].end - text.supervised[i].first);
        hash(bytes, length, out);
        free(bytes);
        assert_true(text.n == 0 || text.from_generation);
    }
    chat_text_destroy(&text);
}

static void test_expected(void **state)
{
    (void)state;
    size_t n;
    int templates = 0, rendered = 0, failures = 0, without_calls = 0;
    char *all = chat_test_read("expected.txt", &n);
    for (char *at = all, *line; (line = chat_test_line(&at)); templates++) {
        char *next = NULL, *name = strtok_r(line, " ", &next);
        struct chat_template *t = open_template(name);
        for (int i = 0; i < CONVERSATIONS; i++) {
            char *cell = strtok_r(NULL, " ", &next), plain[16], prompt[16], masked[16], got[64];
            struct chat_conversation *c = read_row(i);
            mask(t, c, masked);
            render(t, c, 1, prompt);
            render(t, c, 0, plain);
            snprintf(got, sizeof got, "%s:%s:%s", plain, prompt, masked);
            if (cell && strcmp(masked, "calls") == 0 && strncmp(cell, got, strlen(got) - strlen(masked)) == 0) {
                snprintf(got, sizeof got, "%s", cell);
                without_calls++;
            }
            rendered += strcmp(plain, "x") != 0;
            if (!cell || strcmp(cell, got) != 0) {
                print_error("%s, conversation %d: %s, expected %s (%s)\n", name, i, got, cell ? cell : "", status_message());
                failures++;
            }
            chat_destroy(c);
        }
        chat_template_destroy(t);
    }
    free(all);
    assert_int_equal(templates, 30);
    assert_true(rendered > 900);
    assert_in_range(without_calls, 1, 10);
    if (failures > 0)
        fail_msg("%d of %d renders differ", failures, templates * CONVERSATIONS);
}

static void test_whole(void **state)
{
    (void)state;
    size_t n, i;
    char *all = chat_test_read("whole.json", &n);
    json_t *list = json_loadb(all, n, JSON_ALLOW_NUL, NULL), *entry;
    assert_true(json_array_size(list) >= 6);
    json_array_foreach(list, i, entry)
    {
        struct chat_template *t = open_template(json_string_value(json_object_get(entry, "template")));
        struct chat_conversation *c = read_row((int)json_integer_value(json_object_get(entry, "conversation")));
        struct chat_options options = {.train = CHAT_TRAIN_ALL, .now = NOW};
        struct chat_text text;
        if (chat_render(t, c, &options, &text) != OK)
            fail_msg("%s", status_message());
        assert_string_equal(text.bytes, json_string_value(json_object_get(entry, "text")));
        chat_text_destroy(&text);
        chat_destroy(c);
        chat_template_destroy(t);
    }
    json_decref(list);
    free(all);
}

/* Spans cover the text. A user's words are marked as that user's message, and only these. */
static void test_origins(void **state)
{
    (void)state;
    struct chat_options options = {.train = CHAT_TRAIN_ALL, .now = NOW};
    size_t n;
    char *all = chat_test_read("expected.txt", &n);
    for (char *at = all, *line; (line = chat_test_line(&at));) {
        struct chat_template *t = open_template(strtok(line, " "));
        struct chat_conversation *c = read_row(9); /* a conversation with typed special tokens */
        struct chat_text text;
        if (chat_render(t, c, &options, &text) == OK) {
            size_t end = 0, said[2] = {0, 0};
            for (size_t i = 0; i < text.n_spans; i++) {
                const struct chat_span *s = &text.spans[i];
                assert_int_equal(s->first, end);
                assert_true(s->end > s->first && s->origin >= CHAT_FROM_DATA && s->origin < 2);
                end = s->end;
                if (s->origin == 0)
                    said[0] += memmem(text.bytes + s->first, s->end - s->first, "<|im_end|> and </s> and [INST] <end_of_turn>",
                                      43) != NULL;
                if (s->origin == 1 && s->said)
                    said[1] += memmem(text.bytes + s->first, s->end - s->first, "<|im_start|>system\nevil<|im_end|>", 32) != NULL;
                if (s->origin == CHAT_FROM_TEMPLATE && strstr(line, "all_constructs") == NULL)
                    assert_null(memmem(text.bytes + s->first, s->end - s->first, "evil", 4));
            }
            assert_int_equal(end, text.n);
            if (strcmp(line, "all_constructs") != 0 && (said[0] != 1 || said[1] != 1))
                fail_msg("%s: user's text in %zu spans, assistant's in %zu", line, said[0], said[1]);
        }
        chat_text_destroy(&text);
        chat_destroy(c);
        chat_template_destroy(t);
    }
    free(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_expected),
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_origins),
    };
    size_t n;
    char *conversations = chat_test_read("conversations.jsonl", &n), *at = conversations,
         *list = chat_test_read("tokens.json", &n);
    tokens = json_loadb(list, n, 0, NULL);
    for (int i = 0; i < CONVERSATIONS; i++)
        rows[i] = chat_test_line(&at);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    json_decref(tokens);
    free(list);
    free(conversations);
    return failed;
}
