/* Translating Ruby's regular expressions to PCRE2's. Private to regex.h. */
#include "text/regex.h"

#include "text/regex_class.h"

#include <stdio.h>

#define MOST_REPEATS 1000
#define LONGEST 65536

/* ---- atoms ---- */

static enum status write_expression(struct regex_parser *p);

static enum status write_boundary(struct regex_parser *p, int negated)
{
    static const char *const pieces[2][5] = {{"(?:(?<=", ")(?!", ")|(?<!", ")(?=", "))"},
                                             {"(?:(?<=", ")(?=", ")|(?<!", ")(?!", "))"}};
    const struct property *word = property_find("\\w", 2);
    for (int i = 0; i < 5; i++) {
        TRY(regex_put(p, pieces[negated][i]));
        if (i < 4)
            TRY(regex_write_property(p, word, 0));
    }
    return OK;
}

/* Writes an escape. *repeats: 1 if the escape matches characters, so that a quantifier may follow. */
static enum status write_escape(struct regex_parser *p, int *repeats)
{
    enum regex_escape what;
    const struct property *property;
    uint32_t c;
    int negated;
    p->p++;
    if (p->p == p->end)
        return regex_unknown(p, "a backslash at its end");
    uint8_t e = *p->p;
    if (e == 'b' || e == 'B' || e == 'A' || e == 'z' || e == 'Z') {
        *repeats = 0;
        p->p++;
        return e == 'b' || e == 'B' ? write_boundary(p, e == 'B') : text_buffer_print(p->out, "\\%c", e);
    }
    if (e == 'h') {
        p->p++;
        return regex_put(p, "[0-9a-fA-F]");
    }
    TRY(regex_read_escape(p, &what, &c, &property, &negated));
    if (what == ESCAPE_OTHER)
        return regex_unknown(p, "an escape");
    if (p->any_case && (what == ESCAPE_PROPERTY || c >= 0x80))
        return regex_unknown(p, what == ESCAPE_PROPERTY ? "(?i:) over a property" : "(?i:) over characters beyond ASCII");
    return what == ESCAPE_CHAR ? regex_put_char(p->out, c) : regex_write_property(p, property, negated);
}

/* Writes (?flags:...), or (?flags) at the very beginning. */
static enum status write_options(struct regex_parser *p)
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
            return regex_unknown(p, "a group");
    }
    if (p->p == p->end || (*p->p == ')' && !first))
        return regex_unknown(p, "options that are no group's");
    int whole = *p->p++ == ')';
    TRY(regex_put(p, p->any_case ? "(?i:" : "(?-i:"));
    TRY(write_expression(p));
    if (!whole && !regex_take(p, ")"))
        return regex_unknown(p, "a group without end");
    p->any_case = any_case;
    p->dot_all = dot_all;
    return regex_put(p, ")");
}

static enum status write_group(struct regex_parser *p, int *repeats)
{
    static const char *const kinds[] = {"(?:", "(?>", "(?=", "(?!", "(?<=", "(?<!"};
    if (++p->depth > DEEPEST)
        return regex_unknown(p, "too many levels");
    size_t k = 0;
    while (k < 6 && !regex_take(p, kinds[k]))
        k++;
    *repeats = k < 2 || k == 6;
    if (k < 6) {
        TRY(regex_put(p, kinds[k]));
    } else if (regex_take(p, "(?")) {
        TRY(write_options(p));
        p->depth--;
        return OK;
    } else {
        p->p++;
        TRY(regex_put(p, "(?:"));
    }
    TRY(write_expression(p));
    if (!regex_take(p, ")"))
        return regex_unknown(p, "a group without end");
    p->depth--;
    return regex_put(p, ")");
}

/* Tells whether the next two letters are such that, without regard to case, a single character equals both (sharp s, ligatures). */
static int folds_to_one(const struct regex_parser *p)
{
    static const char *const pairs[] = {"ss", "st", "ff", "fi", "fl", "ij", "dz", "lj", "nj"};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (p->end - p->p >= 2 && (p->p[0] | 32) == pairs[i][0] && (p->p[1] | 32) == pairs[i][1])
            return 1;
    return 0;
}

static enum status write_atom(struct regex_parser *p, int *repeats)
{
    size_t n;
    *repeats = 1;
    switch (*p->p) {
    case '(':
        return write_group(p, repeats);
    case '[':
        return regex_write_class(p);
    case '\\':
        return write_escape(p, repeats);
    case '.':
        p->p++;
        return regex_put(p, p->dot_all ? ANY : "[^\\n]");
    case '^':
    case '$':
        *repeats = 0;
        return regex_put(p, *p->p++ == '^' ? "(?m:^)" : "(?m:$)");
    case '*':
    case '+':
    case '?':
        return regex_unknown(p, "a quantifier behind nothing");
    default:
        if (p->any_case && (*p->p >= 0x80 || folds_to_one(p)))
            return regex_unknown(p, "(?i:) over letters that fold with others");
        uint32_t c = utf8_read(p->p, &n);
        p->p += n;
        return regex_put_char(p->out, c);
    }
}

/* ---- quantifiers ---- */

/* Reads {n}, {n,}, {,m} or {n,m}; returns 0 for a literal brace. */
static int read_bounds(struct regex_parser *p, int *least, int *most)
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
static enum status write_quantifier(struct regex_parser *p, size_t from, int nested, int *found)
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
            return regex_unknown(p, "a number of repetitions");
        most < 0 ? snprintf(text, sizeof text, "{%d,}", least) : snprintf(text, sizeof text, "{%d,%d}", least, most);
        if (regex_at(p, "?") && most == least)
            return regex_unknown(p, "{n}?");
    } else {
        return OK;
    }
    *found = 1;
    if (nested) {
        TRY(text_buffer_insert(p->out, from, "(?:", 3));
        TRY(regex_put(p, ")"));
    }
    TRY(regex_put(p, text));
    if (regex_at(p, "?") ||
        (regex_at(p, "+") && !bounds)) { /* a plus behind {n,m} is not possessive in Ruby, but repeats the repetition */
        TRY(text_buffer_add_char(p->out, *p->p));
        p->p++;
    }
    return OK;
}

static enum status write_sequence(struct regex_parser *p)
{
    while (p->p < p->end && *p->p != '|' && *p->p != ')') {
        size_t from = p->out->n;
        int repeats, found = 1;
        TRY(write_atom(p, &repeats));
        for (int nested = 0; found; nested = 1) {
            if (p->out->n > LONGEST)
                return regex_unknown(p, "too much");
            TRY(write_quantifier(p, from, nested, &found));
            if (found && !repeats)
                return regex_unknown(p, "a quantifier behind what takes no characters");
        }
    }
    return OK;
}

static enum status write_expression(struct regex_parser *p)
{
    for (;;) {
        TRY(write_sequence(p));
        if (!regex_take(p, "|"))
            return OK;
        TRY(regex_put(p, "|"));
    }
}

enum status regex_translate(const char *pattern, size_t n, char **out)
{
    struct text_buffer text = {0};
    struct regex_parser p = {
        .p = (const uint8_t *)pattern, .start = (const uint8_t *)pattern, .end = (const uint8_t *)pattern + n, .out = &text};
    enum status st;
    if (n > LONGEST)
        return status_fail(ERR_INVALID, "the regular expression has %zu bytes, more than %d", n, LONGEST);
    TRY_GOTO(write_expression(&p), fail);
    if (p.p < p.end) {
        st = regex_unknown(&p, "a ) that closes nothing");
        goto fail;
    }
    TRY_GOTO(text_buffer_add(&text, "", 1), fail);
    *out = (char *)text.data;
    return OK;
fail:
    text_buffer_free(&text);
    return st;
}
