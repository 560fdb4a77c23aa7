/* An expression that is being translated, and its classes. Private to regex_translate.c and regex_class.c. */
#ifndef LTRAIN_TEXT_REGEX_CLASS_H
#define LTRAIN_TEXT_REGEX_CLASS_H

#include "text/text_buffer.h"
#include "text/unicode.h"

#include <string.h>

#define DEEPEST 60 /* most levels of nested groups and classes */
#define ANY "[\\x{0}-\\x{10ffff}]"

/* A Ruby expression that is read, and what has been written of it. */
struct regex_parser {
    const uint8_t *p, *start, *end;
    struct text_buffer *out;
    int depth;
    int any_case, dot_all; /* options (?i) and (?m) in force */
};

static inline enum status regex_unknown(const struct regex_parser *p, const char *what)
{
    return status_fail(ERR_INVALID, "the regular expression has %s at byte %zu, which is not known here", what,
                       (size_t)(p->p - p->start));
}

static inline int regex_at(const struct regex_parser *p, const char *text)
{
    size_t n = strlen(text);
    return (size_t)(p->end - p->p) >= n && memcmp(p->p, text, n) == 0;
}

static inline int regex_take(struct regex_parser *p, const char *text)
{
    if (!regex_at(p, text))
        return 0;
    p->p += strlen(text);
    return 1;
}

static inline enum status regex_put(struct regex_parser *p, const char *text)
{
    return text_buffer_add(p->out, text, strlen(text));
}

static inline enum status regex_put_char(struct text_buffer *out, uint32_t c)
{
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
        return text_buffer_add_char(out, c);
    return text_buffer_print(out, "\\x{%x}", c);
}

/* Kinds of escapes. */
enum regex_escape { ESCAPE_OTHER, ESCAPE_CHAR, ESCAPE_PROPERTY };

/* Reads an escape behind its backslash. *what tells which of *c, and of *property with *negated, is set. */
enum status regex_read_escape(struct regex_parser *p, enum regex_escape *what, uint32_t *c, const struct property **property,
                              int *negated);
/* Translates a class [...]. */
enum status regex_write_class(struct regex_parser *p);
/* Writes the characters that have a property, or all others. */
enum status regex_write_property(struct regex_parser *p, const struct property *property, int negated);

#endif
