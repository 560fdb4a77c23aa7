/* Translating Ruby's regular expressions to PCRE2's. Private to regex.h. */
#include "text/regex.h"

#include "base/sys.h"
#include "text/text_buffer.h"
#include "text/unicode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEEPEST 60 /* most levels of nested groups and classes */
#define MOST_REPEATS 1000
#define LONGEST 65536
#define ANY "[\\x{0}-\\x{10ffff}]"

struct parser {
    const uint8_t *p, *start, *end;
    struct text_buffer *out;
    int depth;
    int any_case, dot_all; /* options (?i) and (?m) in force */
};

static enum status unknown(const struct parser *p, const char *what)
{
    return status_fail(ERR_INVALID, "the regular expression has %s at byte %zu, which is not known here", what,
                       (size_t)(p->p - p->start));
}

static int at(const struct parser *p, const char *text)
{
    size_t n = strlen(text);
    return (size_t)(p->end - p->p) >= n && memcmp(p->p, text, n) == 0;
}

static int take(struct parser *p, const char *text)
{
    if (!at(p, text))
        return 0;
    p->p += strlen(text);
    return 1;
}

static enum status put(struct parser *p, const char *text)
{
    return text_buffer_add(p->out, text, strlen(text));
}

static enum status put_char(struct text_buffer *out, uint32_t c)
{
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
        return text_buffer_add_char(out, c);
    return text_buffer_print(out, "\\x{%x}", c);
}

/* ---- classes ---- */

/* A class [...] as a union of ranges, of properties that PCRE2 knows, and of other classes, which are written as alternatives. */
struct class
{
    struct code_set set;
    struct text_buffer properties, others;
};

static void class_free(struct class *c)
{
    code_set_free(&c->set);
    text_buffer_free(&c->properties);
    text_buffer_free(&c->others);
}

static enum status add_other(struct class *c, const struct text_buffer *text)
{
    TRY(text_buffer_add(&c->others, "|", 1));
    return text_buffer_add(&c->others, text->data, text->n);
}

/* Writes the class as a PCRE2 expression that matches one character. */
static enum status class_write(struct class *c, int negated, struct text_buffer *out)
{
    int others = c->others.n > 0, some = c->set.n > 0 || c->properties.n > 0;
    code_set_sort(&c->set);
    if (others)
        TRY(text_buffer_print(out, negated ? "(?:(?!" : "(?:"));
    if (some) {
        TRY(text_buffer_print(out, negated && !others ? "[^" : "["));
        TRY(text_buffer_add(out, c->properties.data, c->properties.n));
        for (size_t i = 0; i < c->set.n; i++) {
            const struct code_range *r = &c->set.ranges[i];
            TRY(put_char(out, r->first));
            if (r->last > r->first)
                TRY(text_buffer_add(out, "-", 1));
            if (r->last > r->first)
                TRY(put_char(out, r->last));
        }
        TRY(text_buffer_add(out, "]", 1));
    } else if (!others) {
        TRY(text_buffer_print(out, negated ? ANY : "(?!)"));
    }
    if (!others)
        return OK;
    TRY(text_buffer_add(out, c->others.data + !some, c->others.n - !some)); /* without the first bar if nothing stands before */
    return text_buffer_print(out, negated ? ")" ANY ")" : ")");
}

/* Adds the characters that have the property, or (negated) all that lack it. */
static enum status add_property(struct class *c, const struct property *p, int negated)
{
    if (negated) {
        struct class inner = {0};
        struct text_buffer text = {0};
        enum status st = add_property(&inner, p, 0);
        if (st == OK)
            st = class_write(&inner, 1, &text);
        if (st == OK)
            st = add_other(c, &text);
        text_buffer_free(&text);
        class_free(&inner);
        return st;
    }
    if (p->pcre)
        TRY(text_buffer_add(&c->properties, p->pcre, strlen(p->pcre)));
    return property_add(p, 1, &c->set);
}

/* Reads the rest of \p{Name}, \P{Name} or \p{^Name} behind the letter. */
static enum status read_property(struct parser *p, const struct property **out, int *negated)
{
    const uint8_t *end = p->p < p->end && *p->p == '{' ? memchr(p->p, '}', (size_t)(p->end - p->p)) : NULL;
    if (!end)
        return unknown(p, "a property without braces");
    const char *name = (const char *)p->p + 1;
    size_t n = (size_t)(end - p->p) - 1;
    if (n > 0 && *name == '^') {
        *negated = !*negated;
        name++;
        n--;
    }
    *out = property_find(name, n);
    if (!*out)
        return status_fail(ERR_INVALID, "the regular expression has the property \\p{%.*s}, which is not known here",
                           (int)(n > 40 ? 40 : n), name);
    p->p = end + 1;
    return OK;
}

static enum status read_hex(struct parser *p, size_t most, uint32_t *out)
{
    size_t digits = 0;
    *out = 0;
    for (; digits < most && p->p < p->end; digits++, p->p++) {
        int c = *p->p, digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
        if (digit < 0)
            break;
        *out = *out * 16 + (uint32_t)digit;
    }
    return digits == 0 || *out >= UNICODE_END || (*out >= 0xd800 && *out < 0xe000) ? unknown(p, "a broken code point") : OK;
}

/* Kinds of escapes. */
enum escape { ESCAPE_OTHER, ESCAPE_CHAR, ESCAPE_PROPERTY };

static enum status read_escape(struct parser *p, enum escape *what, uint32_t *c, const struct property **property, int *negated)
{
    static const char letters[] = "nrtfvae", values[] = "\n\r\t\f\v\a\x1b";
    uint8_t e = *p->p;
    const char *letter = e ? strchr(letters, e) : NULL;
    *what = ESCAPE_CHAR;
    *negated = e == 'P' || e == 'S' || e == 'D' || e == 'W';
    if (letter) {
        *c = (uint8_t)values[letter - letters];
        p->p++;
        return OK;
    }
    if (e == 'p' || e == 'P') {
        p->p++;
        *what = ESCAPE_PROPERTY;
        return read_property(p, property, negated);
    }
    if (strchr("sSdDwW", e) && e) {
        const char name[] = {'\\', (char)(e | 32)};
        *what = ESCAPE_PROPERTY;
        *property = property_find(name, 2);
        p->p++;
        return OK;
    }
    if (e == 'x' && p->p + 1 < p->end) {
        p->p++;
        if (!take(p, "{"))
            return read_hex(p, 2, c);
        TRY(read_hex(p, 8, c));
        return take(p, "}") ? OK : unknown(p, "a broken code point");
    }
    if (e == 'u' && p->p + 1 < p->end) {
        p->p++;
        return read_hex(p, 4, c);
    }
    if ((e >= '0' && e <= '9') || ((e | 32) >= 'a' && (e | 32) <= 'z') || e >= 0x80) {
        *what = ESCAPE_OTHER;
        return OK;
    }
    *c = e;
    p->p++;
    return OK;
}

static enum status read_class(struct parser *p, struct class *out, int *simple);

/* Adds a character of a class, or the range that it begins. */
static enum status read_range(struct parser *p, struct class *c, uint32_t first)
{
    uint32_t last = first;
    size_t n;
    if (p->p + 1 < p->end && *p->p == '-' && p->p[1] != ']' && p->p[1] != '[') {
        p->p++;
        if (*p->p == '\\') {
            enum escape what;
            const struct property *property;
            int negated;
            p->p++;
            if (p->p == p->end)
                return unknown(p, "a backslash at its end");
            TRY(read_escape(p, &what, &last, &property, &negated));
            if (what != ESCAPE_CHAR)
                return unknown(p, "a range that ends in no character");
        } else {
            last = utf8_read(p->p, &n);
            p->p += n;
        }
        if (last < first)
            return unknown(p, "a range that runs backwards");
    }
    if (p->any_case && last >= 0x80)
        return unknown(p, "(?i:) over characters beyond ASCII");
    return code_set_add(&c->set, first, last);
}

static enum status read_class_escape(struct parser *p, struct class *c)
{
    enum escape what;
    const struct property *property;
    uint32_t first;
    int negated;
    p->p++;
    if (p->p == p->end)
        return unknown(p, "a backslash at its end");
    if (*p->p == 'h') {
        p->p++;
        TRY(code_set_add(&c->set, '0', '9'));
        TRY(code_set_add(&c->set, 'a', 'f'));
        return code_set_add(&c->set, 'A', 'F');
    }
    TRY(read_escape(p, &what, &first, &property, &negated));
    if (what == ESCAPE_OTHER)
        return unknown(p, "an escape");
    if (what == ESCAPE_CHAR)
        return read_range(p, c, first);
    if (p->any_case)
        return unknown(p, "(?i:) over a property");
    if (property == property_find("\\w", 2)) /* in a class Oniguruma's \w lacks the numbers of Latin-1 that \w elsewhere has */
        property = property_find("[\\w]", 4);
    return add_property(c, property, negated);
}

/* Adds a class inside another class: by its members if it is a plain union, else as an alternative. */
static enum status read_nested(struct parser *p, struct class *c)
{
    struct class inner = {0};
    int simple;
    enum status st = at(p, "[:") ? unknown(p, "a POSIX class") : read_class(p, &inner, &simple);
    if (st == OK && simple) {
        for (size_t i = 0; i < inner.set.n && st == OK; i++)
            st = code_set_add(&c->set, inner.set.ranges[i].first, inner.set.ranges[i].last);
        if (st == OK)
            st = text_buffer_add(&c->properties, inner.properties.data, inner.properties.n);
        if (st == OK)
            st = text_buffer_add(&c->others, inner.others.data, inner.others.n);
    } else if (st == OK) {
        st = text_buffer_add(&c->others, inner.others.data, inner.others.n);
    }
    class_free(&inner);
    return st;
}

/* Reads members up to && or the end. */
static enum status read_union(struct parser *p, struct class *c)
{
    size_t n;
    while (p->p < p->end && *p->p != ']' && !at(p, "&&")) {
        if (*p->p == '[')
            TRY(read_nested(p, c));
        else if (*p->p == '\\')
            TRY(read_class_escape(p, c));
        else {
            uint32_t first = utf8_read(p->p, &n);
            p->p += n;
            TRY(read_range(p, c, first));
        }
    }
    return p->p < p->end ? OK : unknown(p, "a class without end");
}

/* Reads [...]. *simple 1: *out is the union of the class's members; 0: `others` of *out has the whole class as an expression. */
static enum status read_class(struct parser *p, struct class *out, int *simple)
{
    enum status st = OK;
    struct text_buffer text = {0}; /* an intersection first && second && third, written as (?=first)(?=second)third */
    struct class part = {0};
    int parts = 0;
    if (++p->depth > DEEPEST)
        return unknown(p, "too many levels");
    p->p++;
    int negated = take(p, "^");
    if (at(p, "]"))
        return unknown(p, "a class that begins with ]");
    for (;;) {
        TRY_GOTO(read_union(p, &part), done);
        int last = *p->p == ']';
        if (last && !negated && parts == 0) {
            *out = part;
            *simple = 1;
            p->p++;
            p->depth--;
            return OK;
        }
        if (!last)
            TRY_GOTO(text_buffer_print(&text, "(?="), done);
        TRY_GOTO(class_write(&part, negated && last && parts == 0, &text), done);
        if (!last)
            TRY_GOTO(text_buffer_print(&text, ")"), done);
        class_free(&part);
        part = (struct class){0};
        parts++;
        p->p += last ? 1 : 2;
        if (last)
            break;
    }
    *simple = 0;
    TRY_GOTO(text_buffer_print(&out->others, parts == 1 ? "|" : negated ? "|(?:(?!" : "|(?:"), done);
    TRY_GOTO(text_buffer_add(&out->others, text.data, text.n), done);
    TRY_GOTO(text_buffer_print(&out->others, parts == 1 ? "" : negated ? ")" ANY ")" : ")"), done);
    p->depth--;
done:
    text_buffer_free(&text);
    class_free(&part);
    return st;
}

static enum status write_class(struct parser *p)
{
    struct class c = {0};
    int simple;
    enum status st = read_class(p, &c, &simple);
    if (st == OK && !simple)
        st = text_buffer_add(p->out, c.others.data + 1, c.others.n - 1);
    else if (st == OK)
        st = class_write(&c, 0, p->out);
    class_free(&c);
    return st;
}

static enum status write_property(struct parser *p, const struct property *property, int negated)
{
    struct class c = {0};
    enum status st = add_property(&c, property, 0);
    if (st == OK)
        st = class_write(&c, negated, p->out);
    class_free(&c);
    return st;
}

/* ---- atoms ---- */

static enum status write_expression(struct parser *p);

static enum status write_boundary(struct parser *p, int negated)
{
    static const char *const pieces[2][5] = {{"(?:(?<=", ")(?!", ")|(?<!", ")(?=", "))"},
                                             {"(?:(?<=", ")(?=", ")|(?<!", ")(?!", "))"}};
    const struct property *word = property_find("\\w", 2);
    for (int i = 0; i < 5; i++) {
        TRY(put(p, pieces[negated][i]));
        if (i < 4)
            TRY(write_property(p, word, 0));
    }
    return OK;
}

/* Writes an escape. *repeats: 1 if the escape matches characters, so that a quantifier may follow. */
static enum status write_escape(struct parser *p, int *repeats)
{
    enum escape what;
    const struct property *property;
    uint32_t c;
    int negated;
    p->p++;
    if (p->p == p->end)
        return unknown(p, "a backslash at its end");
    uint8_t e = *p->p;
    if (e == 'b' || e == 'B' || e == 'A' || e == 'z' || e == 'Z') {
        *repeats = 0;
        p->p++;
        return e == 'b' || e == 'B' ? write_boundary(p, e == 'B') : text_buffer_print(p->out, "\\%c", e);
    }
    if (e == 'h') {
        p->p++;
        return put(p, "[0-9a-fA-F]");
    }
    TRY(read_escape(p, &what, &c, &property, &negated));
    if (what == ESCAPE_OTHER)
        return unknown(p, "an escape");
    if (p->any_case && (what == ESCAPE_PROPERTY || c >= 0x80))
        return unknown(p, what == ESCAPE_PROPERTY ? "(?i:) over a property" : "(?i:) over characters beyond ASCII");
    return what == ESCAPE_CHAR ? put_char(p->out, c) : write_property(p, property, negated);
}

/* Writes (?flags:...), or (?flags) at the very beginning. */
static enum status write_options(struct parser *p)
{
    int any_case = p->any_case, dot_all = p->dot_all, on = 1, first = p->p - p->start == 2;
    for (; p->p < p->end && *p->p != ':' && *p->p != ')'; p->p++) {
        if (*p->p == '-')
            on = 0;
        else if (*p->p == 'i')
            p->any_case = on;
        else if (*p->p == 'm')
            p->dot_all = on;
        else
            return unknown(p, "a group");
    }
    if (p->p == p->end || (*p->p == ')' && !first))
        return unknown(p, "options that are no group's");
    int whole = *p->p++ == ')';
    TRY(put(p, p->any_case ? "(?i:" : "(?-i:"));
    TRY(write_expression(p));
    if (!whole && !take(p, ")"))
        return unknown(p, "a group without end");
    p->any_case = any_case;
    p->dot_all = dot_all;
    return put(p, ")");
}

static enum status write_group(struct parser *p, int *repeats)
{
    static const char *const kinds[] = {"(?:", "(?>", "(?=", "(?!", "(?<=", "(?<!"};
    if (++p->depth > DEEPEST)
        return unknown(p, "too many levels");
    size_t k = 0;
    while (k < 6 && !take(p, kinds[k]))
        k++;
    *repeats = k < 2 || k == 6;
    if (k < 6) {
        TRY(put(p, kinds[k]));
    } else if (take(p, "(?")) {
        TRY(write_options(p));
        p->depth--;
        return OK;
    } else {
        p->p++;
        TRY(put(p, "(?:"));
    }
    TRY(write_expression(p));
    if (!take(p, ")"))
        return unknown(p, "a group without end");
    p->depth--;
    return put(p, ")");
}

/* Tells whether the next two letters are such that, without regard to case, a single character equals both (sharp s, ligatures). */
static int folds_to_one(const struct parser *p)
{
    static const char *const pairs[] = {"ss", "st", "ff", "fi", "fl", "ij", "dz", "lj", "nj"};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (p->end - p->p >= 2 && (p->p[0] | 32) == pairs[i][0] && (p->p[1] | 32) == pairs[i][1])
            return 1;
    return 0;
}

static enum status write_atom(struct parser *p, int *repeats)
{
    size_t n;
    *repeats = 1;
    switch (*p->p) {
    case '(':
        return write_group(p, repeats);
    case '[':
        return write_class(p);
    case '\\':
        return write_escape(p, repeats);
    case '.':
        p->p++;
        return put(p, p->dot_all ? ANY : "[^\\n]");
    case '^':
    case '$':
        *repeats = 0;
        return put(p, *p->p++ == '^' ? "(?m:^)" : "(?m:$)");
    case '*':
    case '+':
    case '?':
        return unknown(p, "a quantifier behind nothing");
    default:
        if (p->any_case && (*p->p >= 0x80 || folds_to_one(p)))
            return unknown(p, "(?i:) over letters that fold with others");
        uint32_t c = utf8_read(p->p, &n);
        p->p += n;
        return put_char(p->out, c);
    }
}

/* ---- quantifiers ---- */

/* Reads {n}, {n,}, {,m} or {n,m}; returns 0 for a literal brace. */
static int read_bounds(struct parser *p, int *least, int *most)
{
    const uint8_t *q = p->p + 1;
    int value[2] = {-1, -1}, comma = 0;
    for (; q < p->end && *q != '}'; q++) {
        int *v = &value[comma];
        if (*q == ',' && !comma)
            comma = 1;
        else if (*q >= '0' && *q <= '9')
            *v = *v < 0 ? *q - '0' : *v < 100000 ? *v * 10 + *q - '0' : *v;
        else
            return 0;
    }
    if (q == p->end || (value[0] < 0 && value[1] < 0))
        return 0;
    *least = value[0] < 0 ? 0 : value[0];
    *most = comma ? value[1] : value[0];
    p->p = q + 1;
    return 1;
}

/* Writes one quantifier for the atom that begins at `from` of the output; *found: 1 if there was one. */
static enum status write_quantifier(struct parser *p, size_t from, int nested, int *found)
{
    int least, most, bounds = 0;
    char text[48];
    *found = 0;
    if (p->p == p->end)
        return OK;
    if (*p->p == '*' || *p->p == '+' || *p->p == '?') {
        snprintf(text, sizeof text, "%c", *p->p++);
    } else if (*p->p == '{' && read_bounds(p, &least, &most)) {
        bounds = 1;
        if (least > MOST_REPEATS || most > MOST_REPEATS || (most >= 0 && most < least))
            return unknown(p, "a number of repetitions");
        most < 0 ? snprintf(text, sizeof text, "{%d,}", least) : snprintf(text, sizeof text, "{%d,%d}", least, most);
        if (at(p, "?") && most == least)
            return unknown(p, "{n}?");
    } else {
        return OK;
    }
    *found = 1;
    if (nested) {
        TRY(text_buffer_insert(p->out, from, "(?:", 3));
        TRY(put(p, ")"));
    }
    TRY(put(p, text));
    if (at(p, "?") || (at(p, "+") && !bounds)) { /* a plus behind {n,m} is not possessive in Ruby, but repeats the repetition */
        TRY(text_buffer_add_char(p->out, *p->p));
        p->p++;
    }
    return OK;
}

static enum status write_sequence(struct parser *p)
{
    while (p->p < p->end && *p->p != '|' && *p->p != ')') {
        size_t from = p->out->n;
        int repeats, found = 1;
        TRY(write_atom(p, &repeats));
        for (int nested = 0; found; nested = 1) {
            if (p->out->n > LONGEST)
                return unknown(p, "too much");
            TRY(write_quantifier(p, from, nested, &found));
            if (found && !repeats)
                return unknown(p, "a quantifier behind what takes no characters");
        }
    }
    return OK;
}

static enum status write_expression(struct parser *p)
{
    for (;;) {
        TRY(write_sequence(p));
        if (!take(p, "|"))
            return OK;
        TRY(put(p, "|"));
    }
}

enum status regex_translate(const char *pattern, size_t n, char **out)
{
    struct text_buffer text = {0};
    struct parser p = {
        .p = (const uint8_t *)pattern, .start = (const uint8_t *)pattern, .end = (const uint8_t *)pattern + n, .out = &text};
    enum status st;
    if (n > LONGEST)
        return status_fail(ERR_INVALID, "the regular expression has %zu bytes, more than %d", n, LONGEST);
    TRY_GOTO(write_expression(&p), fail);
    if (p.p < p.end) {
        st = unknown(&p, "a ) that closes nothing");
        goto fail;
    }
    TRY_GOTO(text_buffer_add(&text, "", 1), fail);
    *out = (char *)text.data;
    return OK;
fail:
    text_buffer_free(&text);
    return st;
}
