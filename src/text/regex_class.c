/* Translating classes of characters, and escapes, of Ruby's regular expressions. */
#include "text/regex_class.h"

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
            TRY(regex_put_char(out, r->first));
            if (r->last > r->first)
                TRY(text_buffer_add(out, "-", 1));
            if (r->last > r->first)
                TRY(regex_put_char(out, r->last));
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
static enum status read_property(struct regex_parser *p, const struct property **out, int *negated)
{
    const uint8_t *end = p->p < p->end && *p->p == '{' ? memchr(p->p, '}', (size_t)(p->end - p->p)) : NULL;
    if (!end)
        return regex_unknown(p, "a property without braces");
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

static enum status read_hex(struct regex_parser *p, size_t most, uint32_t *out)
{
    size_t digits = 0;
    *out = 0;
    for (; digits < most && p->p < p->end; digits++, p->p++) {
        int c = *p->p, digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
        if (digit < 0)
            break;
        *out = *out * 16 + (uint32_t)digit;
    }
    return digits == 0 || *out >= UNICODE_END || (*out >= 0xd800 && *out < 0xe000) ? regex_unknown(p, "a broken code point") : OK;
}

enum status regex_read_escape(struct regex_parser *p, enum regex_escape *what, uint32_t *c, const struct property **property,
                              int *negated)
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
        if (!regex_take(p, "{"))
            return read_hex(p, 2, c);
        TRY(read_hex(p, 8, c));
        return regex_take(p, "}") ? OK : regex_unknown(p, "a broken code point");
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

static enum status read_class(struct regex_parser *p, struct class *out, int *simple);

/* Adds a character of a class, or the range that it begins. */
static enum status read_range(struct regex_parser *p, struct class *c, uint32_t first)
{
    uint32_t last = first;
    size_t n;
    if (p->p + 1 < p->end && *p->p == '-' && p->p[1] != ']' && p->p[1] != '[') {
        p->p++;
        if (*p->p == '\\') {
            enum regex_escape what;
            const struct property *property;
            int negated;
            p->p++;
            if (p->p == p->end)
                return regex_unknown(p, "a backslash at its end");
            TRY(regex_read_escape(p, &what, &last, &property, &negated));
            if (what != ESCAPE_CHAR)
                return regex_unknown(p, "a range that ends in no character");
        } else {
            last = utf8_read(p->p, &n);
            p->p += n;
        }
        if (last < first)
            return regex_unknown(p, "a range that runs backwards");
    }
    if (p->any_case && last >= 0x80)
        return regex_unknown(p, "(?i:) over characters beyond ASCII");
    return code_set_add(&c->set, first, last);
}

static enum status read_class_escape(struct regex_parser *p, struct class *c)
{
    enum regex_escape what;
    const struct property *property;
    uint32_t first;
    int negated;
    p->p++;
    if (p->p == p->end)
        return regex_unknown(p, "a backslash at its end");
    if (*p->p == 'h') {
        p->p++;
        TRY(code_set_add(&c->set, '0', '9'));
        TRY(code_set_add(&c->set, 'a', 'f'));
        return code_set_add(&c->set, 'A', 'F');
    }
    TRY(regex_read_escape(p, &what, &first, &property, &negated));
    if (what == ESCAPE_OTHER)
        return regex_unknown(p, "an escape");
    if (what == ESCAPE_CHAR)
        return read_range(p, c, first);
    if (p->any_case)
        return regex_unknown(p, "(?i:) over a property");
    if (property == property_find("\\w", 2)) /* in a class Oniguruma's \w lacks the numbers of Latin-1 that \w elsewhere has */
        property = property_find("[\\w]", 4);
    return add_property(c, property, negated);
}

/* Adds a class inside another class: by its members if it is a plain union, else as an alternative. */
static enum status read_nested(struct regex_parser *p, struct class *c)
{
    struct class inner = {0};
    int simple;
    enum status st = regex_at(p, "[:") ? regex_unknown(p, "a POSIX class") : read_class(p, &inner, &simple);
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
static enum status read_union(struct regex_parser *p, struct class *c)
{
    size_t n;
    while (p->p < p->end && *p->p != ']' && !regex_at(p, "&&")) {
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
    return p->p < p->end ? OK : regex_unknown(p, "a class without end");
}

/* Reads [...]. *simple 1: *out is the union of the class's members; 0: `others` of *out has the whole class as an expression. */
static enum status read_class(struct regex_parser *p, struct class *out, int *simple)
{
    enum status st = OK;
    struct text_buffer text = {0}; /* an intersection first && second && third, written as (?=first)(?=second)third */
    struct class part = {0};
    int parts = 0;
    if (++p->depth > DEEPEST)
        return regex_unknown(p, "too many levels");
    p->p++;
    int negated = regex_take(p, "^");
    if (regex_at(p, "]"))
        return regex_unknown(p, "a class that begins with ]");
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

enum status regex_write_class(struct regex_parser *p)
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

enum status regex_write_property(struct regex_parser *p, const struct property *property, int negated)
{
    struct class c = {0};
    enum status st = add_property(&c, property, 0);
    if (st == OK)
        st = class_write(&c, negated, p->out);
    class_free(&c);
    return st;
}
