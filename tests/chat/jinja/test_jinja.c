/* Compares constructs of templates, one by one, with Jinja's results (snippets.jsonl, by make_snippets.py). */
#include "chat/chat_test.h"

#include <jansson.h>

static struct chat_conversation *conversation;

/* Renders a template to a text that the caller frees; NULL: it failed. */
static char *render(const char *source, size_t n, const json_t *variables, size_t *length)
{
    struct chat_template *t = NULL;
    struct chat_text text;
    struct chat_options options = {.train = CHAT_TRAIN_ALL, .variables = variables, .add_generation_prompt = 0};
    if (chat_template_parse(source, n, "t", &t) != OK)
        return NULL;
    enum status st = chat_render(t, conversation, &options, &text);
    chat_template_destroy(t);
    if (st != OK && strstr(status_message(), "nothing in this conversation is trained")) {
        *length = 0; /* an empty text */
        return strdup("");
    }
    *length = text.n;
    char *out = st == OK ? malloc(text.n + 1) : NULL;
    if (out)
        memcpy(out, text.bytes, text.n + 1);
    chat_text_destroy(&text);
    return out;
}

static void test_snippets(void **state)
{
    (void)state;
    size_t n;
    int failures = 0, count = 0;
    char *all = chat_test_read("jinja/snippets.jsonl", &n), *last = all + n - 1;
    while (last > all && last[-1] != '\n')
        last--;
    json_t *variables = json_loads(last, JSON_ALLOW_NUL, NULL);
    assert_non_null(variables);
    *last = 0;
    for (char *at = all, *line; (line = chat_test_line(&at));) {
        json_t *pair = json_loads(line, JSON_ALLOW_NUL, NULL), *source = json_array_get(pair, 0), *want = json_array_get(pair, 1);
        size_t length = 0;
        char *got = render(json_string_value(source), json_string_length(source), variables, &length);
        int same = json_is_null(want)
                       ? !got
                       : got && length == json_string_length(want) && memcmp(got, json_string_value(want), length) == 0;
        if (!same) {
            print_error("%s\n  gives    %s\n  expected %s\n", json_string_value(source), got ? got : status_message(),
                        json_is_null(want) ? "an error" : json_string_value(want));
            failures++;
        }
        count++;
        free(got);
        json_decref(pair);
    }
    json_decref(variables);
    free(all);
    assert_true(count > 300);
    if (failures > 0)
        fail_msg("%d of %d constructs differ", failures, count);
}

/* Constructs that Jinja has and ltrain lacks are errors, wherever they occur. */
static void test_refused(void **state)
{
    (void)state;
    static const char *const sources[] = {"{{ self is defined }}",
                                          "{{ self }}",
                                          "{% if self %}a{% endif %}",
                                          "{{ n.bit_length }}",
                                          "{{ range(3).stop }}",
                                          "{{ dict.fromkeys }}",
                                          "{% macro m() %}{% endmacro %}{{ m.catch_kwargs }}",
                                          "{{ '\u0663'|int }}",
                                          "{{ ('a' | safe).replace('a', '<') }}",
                                          "{{ ('-' | safe).join(['a', '&']) }}",
                                          "{{ ('%s' | safe) % '<' }}",
                                          "{{ ('{}' | safe).format('<') }}",
                                          "{{ (-9223372036854775807 - 1) // -1 }}",
                                          "{{ {}.items().mapping }}"};
    json_t *variables = json_pack("{s:i}", "n", 7);
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        size_t length;
        char *got = render(sources[i], strlen(sources[i]), variables, &length);
        if (got)
            fail_msg("%s gives %s", sources[i], got);
    }
    json_decref(variables);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_snippets), cmocka_unit_test(test_refused)};
    conversation = chat_test_chat("{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}");
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    chat_destroy(conversation);
    return failed;
}
