/* Python's str and repr of values; implements a part of value.h. */
#include "chat/jinja/value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Writes the shortest decimal that reads back as f, in Python's form; returns its length. */
static size_t float_text(double f, char out[40])
{
    if (isnan(f) || isinf(f))
        return (size_t)snprintf(out, 40, "%s", isnan(f) ? "nan" : f > 0 ? "inf" : "-inf");
    char shortest[40];
    int digits = 1;
    do
        snprintf(shortest, sizeof shortest, "%.*e", digits - 1, f);
    while (strtod(shortest, NULL) != f && digits++ < 17);
    int exponent = atoi(strchr(shortest, 'e') + 1);
    if (exponent < -4 || exponent >= 16) { /* 1e+16, 1.5e-05 */
        char *e = strchr(shortest, 'e');
        return (size_t)snprintf(out, 40, "%.*se%c%02d", (int)(e - shortest), shortest, exponent < 0 ? '-' : '+', abs(exponent));
    }
    int places = digits - 1 - exponent;
    return (size_t)snprintf(out, 40, "%.*f", places < 1 ? 1 : places, f);
}

static void put_text_repr(struct jinja_builder *b, const struct jinja_text *text)
{
    int double_quotes = memchr(text->bytes, '\'', text->n) && !memchr(text->bytes, '"', text->n);
    const char *quote = double_quotes ? "\"" : "'";
    jinja_put_string(b, text->safe ? "Markup(" : "");
    jinja_put_string(b, quote);
    for (size_t at = 0, first = 0; at < text->n; first = at) {
        char escape[12];
        int n = 0;
        int32_t c = jinja_next_char(text, &at);
        if (c == '\\' || c == quote[0])
            n = snprintf(escape, sizeof escape, "\\%c", (char)c);
        else if (c == '\n' || c == '\r' || c == '\t')
            n = snprintf(escape, sizeof escape, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
        else if (!jinja_is_printable(c))
            n = snprintf(escape, sizeof escape, c < 256 ? "\\x%02x" : c < 65536 ? "\\u%04x" : "\\U%08x", (unsigned)c);
        if (n > 0)
            jinja_put_bytes(b, escape, (size_t)n, jinja_mark(text, first));
        else
            jinja_put_part(b, text, first, at);
    }
    jinja_put_string(b, quote);
    jinja_put_string(b, text->safe ? ")" : "");
}

static void put_list_repr(struct jinja_builder *b, struct jinja_value v)
{
    jinja_put_string(b, v.kind == JINJA_TUPLE ? "(" : "[");
    for (size_t i = 0; i < v.list->n; i++) {
        if (i > 0)
            jinja_put_string(b, ", ");
        jinja_put_repr(b, v.list->items[i]);
    }
    jinja_put_string(b, v.kind != JINJA_TUPLE ? "]" : v.list->n == 1 ? ",)" : ")");
}

static void put_dict_repr(struct jinja_builder *b, const struct jinja_dict *dict)
{
    jinja_put_string(b, "{");
    for (size_t i = 0; i < dict->n; i++) {
        if (i > 0)
            jinja_put_string(b, ", ");
        jinja_put_repr(b, dict->keys[i]);
        jinja_put_string(b, ": ");
        jinja_put_repr(b, dict->values[i]);
    }
    jinja_put_string(b, "}");
}

void jinja_put_repr(struct jinja_builder *b, struct jinja_value v)
{
    char number[40];
    jinja_step(b->task, 1);
    jinja_sink(b->task);
    switch (v.kind) {
    case JINJA_UNDEFINED:
        jinja_put_string(b, "Undefined");
        break;
    case JINJA_NONE:
        jinja_put_string(b, "None");
        break;
    case JINJA_BOOL:
        jinja_put_string(b, v.i ? "True" : "False");
        break;
    case JINJA_INT:
        jinja_put_bytes(b, number, (size_t)snprintf(number, sizeof number, "%lld", (long long)v.i), MARK_TEMPLATE);
        break;
    case JINJA_FLOAT:
        jinja_put_bytes(b, number, float_text(v.f, number), MARK_TEMPLATE);
        break;
    case JINJA_TEXT:
        put_text_repr(b, v.text);
        break;
    case JINJA_LIST:
    case JINJA_TUPLE:
        put_list_repr(b, v);
        break;
    case JINJA_DICT:
        put_dict_repr(b, v.dict);
        break;
    default:
        jinja_fail(b->task, "a %s has no text: printing it is not supported", jinja_type(v));
    }
    jinja_rise(b->task);
}

const struct jinja_text *jinja_string(struct jinja_task *task, struct jinja_value v)
{
    if (v.kind == JINJA_TEXT)
        return v.text;
    if (v.kind == JINJA_UNDEFINED)
        return jinja_literal(task, "");
    struct jinja_builder b = {.task = task};
    jinja_put_repr(&b, v);
    return jinja_built(&b);
}
