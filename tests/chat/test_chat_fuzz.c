/* Tests damaged, recombined and random templates and conversations: each gives a text or an error, within limits of steps and
 * memory. The spans and supervised ranges of every text are consistent. With LTRAIN_LONG=1 there are a hundred times as many. */
#include "chat_test.h"

#include "base/rng.h"

enum { TEMPLATES = 31, MAX_SOURCE = 12000 };

static const char *const names[TEMPLATES - 1] = {"all_constructs", "chatml",      "chatml_generation",
                                                 "command_r",      "deepseek_r1", "deepseek_v3",
                                                 "exaone",         "falcon",      "gemma2",
                                                 "gemma3",         "glm4",        "gpt_oss",
                                                 "granite3",       "hermes",      "internlm2",
                                                 "kimi",           "llama2",      "llama3",
                                                 "mistral_small",  "mistral_v1",  "mistral_v3",
                                                 "nemotron",       "olmo2",       "phi3",
                                                 "phi4",           "qwen25",      "qwen3",
                                                 "smollm3",        "vicuna",      "zephyr"};
static char *sources[TEMPLATES], *rows[400];
static size_t lengths[TEMPLATES], n_rows;
static uint64_t drawn;

static size_t below(size_t n)
{
    return n ? (size_t)rng_below(20260203, 0, drawn++, n) : 0;
}

/* Pieces of templates, which are mixed with bytes of other templates. */
static const char *const pieces[] = {"{{",
                                     "}}",
                                     "{%",
                                     "%}",
                                     "{#",
                                     "#}",
                                     "{%-",
                                     "-%}",
                                     "{{-",
                                     "-}}",
                                     "{% raw %}",
                                     "{% endraw %}",
                                     "'",
                                     "\"",
                                     "\\",
                                     "(",
                                     ")",
                                     "[",
                                     "]",
                                     "{",
                                     "}",
                                     "|",
                                     "~",
                                     "+",
                                     "-",
                                     "*",
                                     "**",
                                     "//",
                                     "%",
                                     "==",
                                     "<",
                                     ".",
                                     ",",
                                     ":",
                                     "=",
                                     " if ",
                                     " else ",
                                     " for ",
                                     " in ",
                                     " not ",
                                     " is ",
                                     " and ",
                                     " or ",
                                     "{% for m in messages %}",
                                     "{% endfor %}",
                                     "{% if m %}",
                                     "{% elif 1 %}",
                                     "{% else %}",
                                     "{% endif %}",
                                     "{% set x = ",
                                     "{% set x %}",
                                     "{% endset %}",
                                     "{% macro f(a, b=1) %}",
                                     "{% endmacro %}",
                                     "{{ f(f) }}",
                                     "{% call f(1) %}",
                                     "{% endcall %}",
                                     "{% generation %}",
                                     "{% endgeneration %}",
                                     "{% break %}",
                                     "{% continue %}",
                                     "messages",
                                     "loop",
                                     "range(99999)",
                                     "namespace(a=1)",
                                     "m.content",
                                     "[::-1]",
                                     "[1:]",
                                     "[-1]",
                                     " | tojson",
                                     " | list",
                                     " | map('upper')",
                                     " | map(attribute='content')",
                                     " | sort",
                                     " | join(',')",
                                     " | indent(9)",
                                     " | replace('', 'x')",
                                     ".split()",
                                     ".strip('x')",
                                     ".format(1)",
                                     "% (1, 2)",
                                     "'%s %d'",
                                     "9223372036854775807",
                                     "1e308",
                                     "0.1",
                                     "none",
                                     "x",
                                     "\n",
                                     "\t",
                                     "\xc3\xa9",
                                     "\xe2\x80\x83",
                                     "\xff",
                                     "recursive",
                                     "loop(messages)",
                                     " * 99999",
                                     "varargs",
                                     "caller()",
                                     "''",
                                     "{}",
                                     "[]",
                                     "()"};

static size_t mutate(char *out)
{
    size_t which = below(TEMPLATES), n = lengths[which] < MAX_SOURCE / 2 ? lengths[which] : MAX_SOURCE / 2;
    memcpy(out, sources[which], n);
    for (size_t k = below(5); k > 0; k--) {
        size_t at = below(n + 1), other = below(TEMPLATES), from, length;
        const char *piece = pieces[below(sizeof pieces / sizeof *pieces)];
        switch (below(4)) {
        case 0: /* inserts a piece */
            length = strlen(piece);
            break;
        case 1: /* inserts some bytes of another template */
            from = below(lengths[other] + 1);
            length = below(lengths[other] - from + 1) % 80;
            piece = sources[other] + from;
            break;
        case 2: /* removes some bytes */
            length = below(n - at + 1) % 40;
            memmove(out + at, out + at + length, n - at - length);
            n -= length;
            continue;
        default: /* changes one byte */
            if (at < n)
                out[at] = (char)below(256);
            continue;
        }
        if (n + length > MAX_SOURCE)
            continue;
        memmove(out + at + length, out + at, n - at);
        memcpy(out + at, piece, length);
        n += length;
    }
    return n;
}

/* Composes a template only of such pieces. */
static size_t compose(char *out)
{
    size_t n = 0;
    for (size_t k = 1 + below(40); k > 0; k--) {
        const char *piece = pieces[below(sizeof pieces / sizeof *pieces)];
        memcpy(out + n, piece, strlen(piece));
        n += strlen(piece);
    }
    return n;
}

static struct chat_conversation *some_row(char *copy, size_t room)
{
    struct chat_conversation *c = NULL;
    size_t which = below(n_rows), n = strlen(rows[which]);
    n = n < room ? n : room;
    memcpy(copy, rows[which], n);
    for (size_t k = below(4) == 0 ? 1 + below(3) : 0; k > 0; k--)
        copy[below(n)] = below(3) ? "[]{}\",:0 \\"[below(10)] : (char)below(256);
    return chat_read(copy, n, "f", 1, &c) == OK ? c : NULL;
}

static void check(const struct chat_text *text)
{
    size_t end = 0;
    for (size_t i = 0; i < text->n_spans; i++) {
        assert_int_equal(text->spans[i].first, end);
        assert_true(text->spans[i].end > end);
        end = text->spans[i].end;
    }
    assert_int_equal(end, text->n);
    end = 0;
    for (size_t i = 0; i < text->n_supervised; i++) {
        assert_true(text->supervised[i].first >= end && text->supervised[i].end > text->supervised[i].first);
        end = text->supervised[i].end;
    }
    assert_true(end <= text->n);
}

static void test_fuzz(void **state)
{
    (void)state;
    static char source[MAX_SOURCE + 400], row[20000];
    long rounds = getenv("LTRAIN_LONG") ? 1000000 : 10000, texts = 0, parsed = 0;
    for (long i = 0; i < rounds; i++) {
        struct chat_template *t = NULL;
        struct chat_options options = {.train = (enum chat_train)below(3),
                                       .add_generation_prompt = (int)below(2),
                                       .max_bytes = 8 << 20,
                                       .max_steps = 100000};
        size_t n = below(4) ? mutate(source) : compose(source);
        if (chat_template_parse(source, n, "fuzz", &t) != OK) {
            assert_non_null(strstr(status_message(), "fuzz"));
            continue;
        }
        parsed++;
        struct chat_conversation *c = some_row(row, sizeof row);
        struct chat_text text;
        if (c && chat_render(t, c, &options, &text) == OK) {
            check(&text);
            texts++;
            chat_text_destroy(&text);
        }
        chat_destroy(c);
        chat_template_destroy(t);
    }
    print_message("%ld templates, %ld parsed, %ld texts\n", rounds, parsed, texts);
    assert_true(parsed > rounds / 10 && texts > rounds / 30);
}

/* Templates and conversations that are nested as deeply as a file can be end without a crash. */
static void test_deep(void **state)
{
    (void)state;
    static const char *const opens[] = {"(",
                                        "[",
                                        "{1:",
                                        "not ",
                                        "-",
                                        "{% if 1 %}",
                                        "{% for x in y %}",
                                        "x|list|",
                                        "x.y.",
                                        "x+",
                                        "1 if 2 else ",
                                        "x(",
                                        "{% set x %}",
                                        "{% macro f() %}",
                                        "x[",
                                        "'a'~",
                                        "x and ",
                                        "{% if 0 %}{% elif 1 %}",
                                        "x is x is "};
    for (size_t k = 0; k < sizeof opens / sizeof *opens; k++) {
        size_t length = strlen(opens[k]), times = 100000, n = 0;
        char *source = malloc(times * length + 16);
        struct chat_template *t = NULL;
        struct chat_text text;
        struct chat_options options = {0};
        if (opens[k][0] != '{' || opens[k][1] != '%')
            n += (size_t)sprintf(source, "{{");
        for (size_t i = 0; i < times; i++, n += length)
            memcpy(source + n, opens[k], length);
        n += (size_t)sprintf(source + n, "1}}");
        struct chat_conversation *c = chat_test_chat("{\"messages\": [{\"role\": \"assistant\", \"content\": \"x\"}]}");
        if (chat_template_parse(source, n, "deep", &t) == OK && chat_render(t, c, &options, &text) == OK)
            chat_text_destroy(&text);
        chat_destroy(c);
        chat_template_destroy(t);
        free(source);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fuzz), cmocka_unit_test(test_deep)};
    size_t n;
    char *conversations = chat_test_read("conversations.jsonl", &n), *at = conversations;
    for (char *line; (line = chat_test_line(&at));)
        rows[n_rows++] = line;
    for (int i = 0; i < TEMPLATES - 1; i++) {
        char path[100];
        snprintf(path, sizeof path, "templates/%s.jinja", names[i]);
        sources[i] = chat_test_read(path, &lengths[i]);
    }
    sources[TEMPLATES - 1] = calloc(1, 1);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (int i = 0; i < TEMPLATES; i++)
        free(sources[i]);
    free(conversations);
    return failed;
}
