/* Writing JSON as transformers' tojson does: without HTML escapes, and with escapes beyond ASCII only if asked for. */
#include "chat/jinja/run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void put_escape(struct jinja_builder *b, int32_t c, int32_t mark)
{
    char out[16];
    int n;
    if (c >= 0x10000)
        n = snprintf(out, sizeof out, "\\u%04x\\u%04x", (unsigned)(0xD800 + ((c - 0x10000) >> 10)),
                     (unsigned)(0xDC00 + ((c - 0x10000) & 0x3FF)));
    else
        n = snprintf(out, sizeof out, "\\u%04x", (unsigned)c);
    jinja_put_bytes(b, out, (size_t)n, mark);
}

static void put_string(struct jinja_builder *b, const struct jinja_text *text, int ascii)
{
    static const char letters[] = "\"\\\b\f\n\r\t", escapes[] = "\"\\bfnrt";
    size_t at = 0, plain = 0; /* bytes [plain, at) need no escape */
    jinja_put_string(b, "\"");
    while (at < text->n) {
        size_t first = at;
        int32_t c = jinja_next_char(text, &at), mark = jinja_mark(text, first);
        if (c >= 0x20 && c != '"' && c != '\\' && !(ascii && c > 0x7E))
            continue;
        jinja_put_part(b, text, plain, first);
        plain = at;
        const char *letter = c > 0 && c < 0x80 ? strchr(letters, c) : NULL;
        if (letter) {
            char escape[2] = {'\\', escapes[letter - letters]};
            jinja_put_bytes(b, escape, 2, mark);
        } else {
            put_escape(b, c, mark);
        }
    }
    jinja_put_part(b, text, plain, text->n);
    jinja_put_string(b, "\"");
}

static void put_line(struct jinja_builder *b, const struct jinja_json_style *style, int level)
{
    if (!style->indent)
        return;
    jinja_put_string(b, "\n");
    for (int i = 0; i < level; i++)
        jinja_put(b, style->indent);
}

static void put_list(struct jinja_builder *b, const struct jinja_list *list, const struct jinja_json_style *style, int level)
{
    jinja_put_string(b, "[");
    for (size_t i = 0; i < list->n; i++) {
        if (i > 0)
            jinja_put(b, style->between);
        put_line(b, style, level + 1);
        jinja_put_json(b, list->items[i], style, level + 1);
    }
    if (list->n > 0)
        put_line(b, style, level);
    jinja_put_string(b, "]");
}

static void put_key(struct jinja_builder *b, struct jinja_value key, int ascii)
{
    if (key.kind == JINJA_TEXT) {
        put_string(b, key.text, ascii);
        return;
    }
    if (!jinja_is_number(key) && key.kind != JINJA_NONE)
        jinja_fail(b->task, "tojson: a key is a %s", jinja_type(key));
    jinja_put_string(b, "\"");
    jinja_put_json(b, key, NULL, 0);
    jinja_put_string(b, "\"");
}

/* Returns the indices of a dict's keys in the order of writing; sort: by key, as Python sorts. */
static size_t *sorted_keys(struct jinja_task *task, const struct jinja_dict *dict, int sort)
{
    size_t *order = jinja_take(task, (dict->n + 1) * sizeof *order);
    for (size_t i = 0; i < dict->n; i++) {
        size_t at = i;
        for (; sort && at > 0 && jinja_compare(task, dict->keys[order[at - 1]], dict->keys[i]) > 0; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    return order;
}

static void put_dict(struct jinja_builder *b, const struct jinja_dict *dict, const struct jinja_json_style *style, int level)
{
    const size_t *order = sorted_keys(b->task, dict, style->sort);
    jinja_put_string(b, "{");
    for (size_t i = 0; i < dict->n; i++) {
        if (i > 0)
            jinja_put(b, style->between);
        put_line(b, style, level + 1);
        put_key(b, dict->keys[order[i]], style->ascii);
        jinja_put(b, style->colon);
        jinja_put_json(b, dict->values[order[i]], style, level + 1);
    }
    if (dict->n > 0)
        put_line(b, style, level);
    jinja_put_string(b, "}");
}

void jinja_put_json(struct jinja_builder *b, struct jinja_value v, const struct jinja_json_style *style, int level)
{
    jinja_step(b->task, 1);
    jinja_sink(b->task);
    switch (v.kind) {
    case JINJA_NONE:
        jinja_put_string(b, "null");
        break;
    case JINJA_BOOL:
        jinja_put_string(b, v.i ? "true" : "false");
        break;
    case JINJA_FLOAT:
        if (isnan(v.f) || isinf(v.f)) {
            jinja_put_string(b, isnan(v.f) ? "NaN" : v.f > 0 ? "Infinity" : "-Infinity");
            break;
        }
        jinja_put_repr(b, v);
        break;
    case JINJA_INT:
        jinja_put_repr(b, v);
        break;
    case JINJA_TEXT:
        put_string(b, v.text, style->ascii);
        break;
    case JINJA_LIST:
    case JINJA_TUPLE:
        put_list(b, v.list, style, level);
        break;
    case JINJA_DICT:
        put_dict(b, v.dict, style, level);
        break;
    case JINJA_UNDEFINED:
        jinja_fail_undefined(b->task, v);
    default:
        jinja_fail(b->task, "tojson: a %s is not JSON", jinja_type(v));
    }
    jinja_rise(b->task);
}
