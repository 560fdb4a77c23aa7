/* Splitting a template outside of tags: text between tags, whitespace control, comments, raw blocks. */
#include "chat/jinja/lexer.h"

#include "chat/jinja/lexer_tags.h"

#include <string.h>

/* Copies the source with every line end as \n, and without the last one. */
static void normalize(struct jinja_lexer *x, const char *source, size_t n)
{
    char *out = jinja_take(x->task, n + 1);
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        if (source[i] == '\r' && i + 1 < n && source[i + 1] == '\n')
            continue;
        out[m++] = source[i] == '\r' ? '\n' : source[i];
    }
    x->s = out;
    x->n = m - (m > 0 && out[m - 1] == '\n');
    out[x->n] = 0;
}

static void add_data(struct jinja_lexer *x, size_t first, size_t end)
{
    if (end > first)
        jinja_lexer_add(x,
                        (struct jinja_token){.kind = TOKEN_DATA, .line = x->task->line, .bytes = x->s + first, .n = end - first});
}

/* Returns the end of the text [first, end) before a tag, after dropping the whitespace that the tag removes. sign: the character
 * behind the tag's "{%", "{{" or "{#", perhaps '-' or '+'. block: 0 for "{{". */
static size_t strip_end(const struct jinja_lexer *x, size_t first, size_t end, char sign, int block)
{
    struct jinja_text all = {.bytes = x->s, .n = end};
    size_t at = end;
    if (sign == '-') {
        while (at > first) {
            size_t before = jinja_char_before(&all, at), next = before;
            if (before < first || !jinja_is_space(jinja_next_char(&all, &next)))
                break;
            at = before;
        }
        return at;
    }
    if (sign == '+' || !block)
        return end;
    while (at > first) { /* drops whitespace back to the line's start, if nothing else is in between */
        size_t before = jinja_char_before(&all, at), next = before;
        int32_t c = jinja_next_char(&all, &next);
        if (c == '\n')
            return at;
        if (!jinja_is_space(c))
            return end;
        at = before;
    }
    return x->line_starting ? first : end;
}

static size_t find_string(const struct jinja_lexer *x, size_t from, const char *string)
{
    const char *at = from <= x->n ? memmem(x->s + from, x->n - from, string, strlen(string)) : NULL;
    return at ? (size_t)(at - x->s) : x->n;
}

/* Returns the place from which text goes on behind the tag's end at `at` ("#}", "%}"). A "-" as sign drops all whitespace there,
 * any other sign but "+" a single newline. */
static size_t after_close(struct jinja_lexer *x, size_t at, char sign)
{
    at += 2;
    if (sign == '-')
        return jinja_skip_space(x, at);
    return sign != '+' && at < x->n && x->s[at] == '\n' ? at + 1 : at;
}

static size_t skip_comment(struct jinja_lexer *x, size_t at)
{
    size_t close = find_string(x, at, "#}");
    if (close == x->n)
        jinja_fail(x->task, "a comment {# is not closed by #}");
    char sign = close > at ? x->s[close - 1] : 0;
    return after_close(x, close, sign);
}

/* Tells whether the tag at `at` ("{%") consists of `name` only. *sign, *end_sign: whitespace signs before the name and before
 * "%}"; *close: place of "%}". */
static int is_tag(const struct jinja_lexer *x, size_t at, const char *name, char *sign, size_t *close, char *end_sign)
{
    size_t i = at + 2, length = strlen(name);
    *sign = i < x->n && (x->s[i] == '-' || x->s[i] == '+') ? x->s[i++] : 0;
    i = jinja_skip_space(x, i);
    if (i + length > x->n || memcmp(x->s + i, name, length) != 0)
        return 0;
    i = jinja_skip_space(x, i + length);
    *end_sign = i < x->n && (x->s[i] == '-' || x->s[i] == '+') ? x->s[i++] : 0;
    *close = i;
    return i + 1 < x->n && x->s[i] == '%' && x->s[i + 1] == '}';
}

/* Adds the text between {% raw %} and {% endraw %}. at: place behind the opening tag. Returns the place from which text goes on. */
static size_t lex_raw(struct jinja_lexer *x, size_t at)
{
    char sign, end_sign;
    size_t close;
    x->line_starting = x->s[at - 1] == '\n';
    for (size_t tag = at; (tag = find_string(x, tag, "{%")) < x->n; tag += 2)
        if (is_tag(x, tag, "endraw", &sign, &close, &end_sign)) {
            add_data(x, at, strip_end(x, at, tag, sign, 1));
            return after_close(x, close, end_sign);
        }
    jinja_fail(x->task, "{%% raw %%} is not closed by {%% endraw %%}");
}

static size_t next_tag(const struct jinja_lexer *x, size_t from)
{
    for (size_t i = from; i + 1 < x->n; i++)
        if (x->s[i] == '{' && (x->s[i + 1] == '{' || x->s[i + 1] == '%' || x->s[i + 1] == '#'))
            return i;
    return x->n;
}

/* Reads the tag at `at`, and returns where the text goes on. */
static size_t lex_tag(struct jinja_lexer *x, size_t at)
{
    char kind = x->s[at + 1], raw_sign, end_sign;
    size_t close, inside = at + 2;
    if (kind == '%' && is_tag(x, at, "raw", &raw_sign, &close, &end_sign) && end_sign != '+')
        return lex_raw(x, end_sign == '-' ? jinja_skip_space(x, close + 2) : close + 2);
    if (inside < x->n && (x->s[inside] == '-' || x->s[inside] == '+'))
        inside++;
    if (kind == '#')
        return skip_comment(x, inside);
    return jinja_lex_inside(x, inside, kind == '%');
}

struct jinja_tokens *jinja_lex(struct jinja_task *task, const char *source, size_t n)
{
    struct jinja_lexer x = {.task = task, .tokens = jinja_take(task, sizeof *x.tokens), .line_starting = 1};
    normalize(&x, source, n);
    task->line = 1;
    for (size_t at = 0, counted = 0; at < x.n;) {
        size_t tag = next_tag(&x, at);
        char sign = tag + 2 < x.n ? x.s[tag + 2] : 0;
        add_data(&x, at, tag < x.n ? strip_end(&x, at, tag, sign, x.s[tag + 1] != '{') : tag);
        task->line += jinja_count_lines(&x, at, tag);
        at = counted = tag;
        if (tag == x.n)
            break;
        at = lex_tag(&x, tag);
        x.line_starting = x.s[at - 1] == '\n';
        task->line = task->line - x.lines_inside + jinja_count_lines(&x, counted, at);
        x.lines_inside = 0;
    }
    jinja_lexer_add(&x, (struct jinja_token){.kind = TOKEN_END, .line = task->line});
    return x.tokens;
}
