/* Names, numbers, strings and operators inside of tags. */
#include "chat/jinja/lexer_tags.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BRACKETS = 250 };

void jinja_lexer_add(struct jinja_lexer *x, struct jinja_token token)
{
    struct jinja_tokens *t = x->tokens;
    jinja_step(x->task, 1);
    t->at = jinja_grow(x->task, t->at, t->n, 1, sizeof token, &t->room);
    t->at[t->n++] = token;
}

size_t jinja_skip_space(const struct jinja_lexer *x, size_t at)
{
    struct jinja_text all = {.bytes = x->s, .n = x->n};
    while (at < x->n) {
        size_t next = at;
        if (!jinja_is_space(jinja_next_char(&all, &next)))
            break;
        at = next;
    }
    return at;
}

int jinja_count_lines(const struct jinja_lexer *x, size_t first, size_t end)
{
    int lines = 0;
    for (size_t i = first; i < end; i++)
        lines += x->s[i] == '\n';
    return lines;
}

static void add(struct jinja_lexer *x, enum jinja_token_kind kind, size_t first, size_t end)
{
    const char *bytes = end > first ? jinja_copy(x->task, x->s + first, end - first) : "";
    jinja_lexer_add(x, (struct jinja_token){.kind = kind, .line = x->task->line, .bytes = bytes, .n = end - first});
}

static int is_name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static size_t skip_digits(const struct jinja_lexer *x, size_t at)
{
    while (is_digit(x->s[at]) || (x->s[at] == '_' && is_digit(x->s[at + 1])))
        at++;
    return at;
}

/* Reads a decimal integer or float, with underscores between digits. */
static size_t lex_number(struct jinja_lexer *x, size_t at)
{
    size_t end = skip_digits(x, at), m = 0;
    int is_float = 0, after_dot = at > 0 && x->s[at - 1] == '.';
    if (!after_dot && x->s[end] == '.' && is_digit(x->s[end + 1])) {
        is_float = 1;
        end = skip_digits(x, end + 1);
    }
    if (!after_dot && (x->s[end] == 'e' || x->s[end] == 'E')) {
        size_t exponent = end + 1 + (x->s[end + 1] == '+' || x->s[end + 1] == '-');
        if (is_digit(x->s[exponent])) {
            is_float = 1;
            end = skip_digits(x, exponent);
        }
    }
    if (is_name_byte(x->s[end]) || (!is_float && end - at > 1 && x->s[at] == '0'))
        jinja_fail(x->task, "'%.*s' is not a number that is supported", (int)(end - at + 1 > 40 ? 40 : end - at + 1), x->s + at);
    char *digits = jinja_take(x->task, end - at + 1);
    for (size_t i = at; i < end; i++)
        if (x->s[i] != '_')
            digits[m++] = x->s[i];
    errno = 0;
    struct jinja_token token = {.kind = is_float ? TOKEN_FLOAT : TOKEN_INT, .line = x->task->line, .bytes = digits};
    if (is_float)
        token.f = strtod(digits, NULL);
    else
        token.i = strtoll(digits, NULL, 10);
    if (errno == ERANGE && !is_float)
        jinja_fail(x->task, "%.40s does not fit in 64 bits", digits);
    jinja_lexer_add(x, token);
    return end;
}

/* Reads a hexadecimal escape of `digits` digits at s[at]. */
static int32_t hex_escape(struct jinja_lexer *x, size_t at, int digits)
{
    int64_t c = 0;
    for (int i = 0; i < digits; i++) {
        char d = x->s[at + (size_t)i];
        int v = is_digit(d) ? d - '0' : d >= 'a' && d <= 'f' ? d - 'a' + 10 : d >= 'A' && d <= 'F' ? d - 'A' + 10 : -1;
        if (v < 0)
            jinja_fail(x->task, "a string's escape needs %d hexadecimal digits", digits);
        c = c * 16 + v;
    }
    if (c > 0x10FFFF || (c >= 0xD800 && c < 0xE000))
        jinja_fail(x->task, "a string's escape U+%llX is no character", (long long)c);
    return (int32_t)c;
}

/* Appends the character that the escape at s[at], behind a backslash, stands for; returns the place behind the escape. */
static size_t lex_escape(struct jinja_lexer *x, struct jinja_builder *b, size_t at)
{
    static const char letters[] = "abfnrtv\\'\"", values[] = "\a\b\f\n\r\t\v\\'\"";
    char bytes[4], c = x->s[at];
    const char *letter = c ? strchr(letters, c) : NULL;
    int32_t code = 0;
    size_t end = at + 1;
    if (c == '\n') /* a backslash at the line's end continues the string */
        return end;
    if (letter) {
        code = values[letter - letters];
    } else if (c == 'x' || c == 'u' || c == 'U') {
        int digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        code = hex_escape(x, end, digits);
        end += (size_t)digits;
    } else if (c >= '0' && c <= '7') {
        for (end = at; end < at + 3 && x->s[end] >= '0' && x->s[end] <= '7'; end++)
            code = code * 8 + (x->s[end] - '0');
    } else if (c == 'N') {
        jinja_fail(x->task, "escapes \\N{...} are not supported");
    } else { /* not an escape: the backslash is kept */
        jinja_put_bytes(b, "\\", 1, MARK_TEMPLATE);
        return at;
    }
    jinja_put_bytes(b, bytes, jinja_encode(code, bytes), MARK_TEMPLATE);
    return end;
}

static size_t lex_string(struct jinja_lexer *x, size_t at)
{
    char quote = x->s[at++];
    struct jinja_builder b = {.task = x->task};
    while (at < x->n && x->s[at] != quote) {
        size_t first = at;
        while (at < x->n && x->s[at] != quote && x->s[at] != '\\')
            at++;
        jinja_put_bytes(&b, x->s + first, at - first, MARK_TEMPLATE);
        if (at < x->n && x->s[at] == '\\')
            at = lex_escape(x, &b, at + 1);
    }
    if (at >= x->n)
        jinja_fail(x->task, "a string is not closed by %c", quote);
    const struct jinja_text *text = jinja_built(&b);
    jinja_lexer_add(x, (struct jinja_token){.kind = TOKEN_STRING, .line = x->task->line, .bytes = text->bytes, .n = text->n});
    return at + 1;
}

/* Reads an operator. brackets [*depth]: the closing brackets that are still to come. */
static size_t lex_operator(struct jinja_lexer *x, size_t at, char *brackets, int *depth)
{
    static const char *const two[] = {"//", "**", "==", "!=", ">=", "<="};
    char c = x->s[at];
    size_t n = 1;
    for (size_t i = 0; i < sizeof two / sizeof *two; i++)
        if (c == two[i][0] && x->s[at + 1] == two[i][1])
            n = 2;
    if (n == 1 && (c == 0 || !strchr("+-/*%~[](){}><=.:|,;", c)))
        jinja_fail(x->task, (unsigned char)c < 0x80 && c > ' ' ? "unexpected '%c'" : "unexpected byte %#x",
                   (unsigned char)c < 0x80 && c > ' ' ? c : (unsigned char)c);
    if (c == '(' || c == '[' || c == '{') {
        if (*depth == MAX_BRACKETS)
            jinja_fail(x->task, "brackets nest deeper than %d levels", MAX_BRACKETS);
        brackets[(*depth)++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
        if (*depth == 0)
            jinja_fail(x->task, "unexpected '%c'", c);
        if (brackets[--*depth] != c)
            jinja_fail(x->task, "unexpected '%c', expected '%c'", c, brackets[*depth]);
    }
    add(x, TOKEN_OPERATOR, at, at + n);
    return at + n;
}

/* Tells whether the tag closes at `at`; *next: where the text goes on. */
static int closes(const struct jinja_lexer *x, size_t at, int block, size_t *next)
{
    size_t i = at + (x->s[at] == '-' || (block && x->s[at] == '+'));
    if (x->s[i] != (block ? '%' : '}') || x->s[i + 1] != '}')
        return 0;
    char sign = i > at ? x->s[at] : 0;
    *next = i + 2;
    if (sign == '-')
        *next = jinja_skip_space(x, *next);
    else if (block && sign != '+' && x->s[*next] == '\n')
        ++*next;
    return 1;
}

size_t jinja_lex_inside(struct jinja_lexer *x, size_t at, int block)
{
    char brackets[MAX_BRACKETS];
    int depth = 0;
    size_t next;
    add(x, block ? TOKEN_BLOCK : TOKEN_PRINT, at, at);
    for (;;) {
        size_t first = at;
        at = jinja_skip_space(x, at);
        int lines = jinja_count_lines(x, first, at);
        x->task->line += lines;
        x->lines_inside += lines;
        if (at >= x->n)
            jinja_fail(x->task, "a tag is not closed by %s", block ? "%}" : "}}");
        if (depth == 0 && closes(x, at, block, &next))
            break;
        first = at;
        if (is_digit(x->s[at])) {
            at = lex_number(x, at);
        } else if (is_name_byte(x->s[at])) {
            while (is_name_byte(x->s[at]))
                at++;
            add(x, TOKEN_NAME, first, at);
        } else if (x->s[at] == '"' || x->s[at] == '\'') {
            at = lex_string(x, at);
        } else {
            at = lex_operator(x, at, brackets, &depth);
        }
        lines = jinja_count_lines(x, first, at);
        x->task->line += lines;
        x->lines_inside += lines;
    }
    add(x, block ? TOKEN_BLOCK_END : TOKEN_PRINT_END, at, at);
    return next;
}
