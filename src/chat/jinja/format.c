/* Formatting by "..." % values and by "...".format(values); widths are not supported. */
#include "chat/jinja/run.h"

#include <stdio.h>
#include <string.h>

/* Returns the value for %(name), or, if name is NULL, for the `which`-th % of the format. */
static struct jinja_value percent_value(struct jinja_task *task, struct jinja_value v, const struct jinja_text *name,
                                        size_t which)
{
    if (name) {
        const struct jinja_value *at = v.kind == JINJA_DICT ? jinja_dict_get(task, v.dict, jinja_of_text(name)) : NULL;
        if (!at)
            jinja_fail(task, "a format needs a value '%.*s'", (int)(name->n > 60 ? 60 : name->n), name->bytes);
        return *at;
    }
    if (v.kind == JINJA_TUPLE ? which >= v.list->n : which > 0)
        jinja_fail(task, "a format has more places than values");
    return v.kind == JINJA_TUPLE ? v.list->items[which] : v;
}

/* Appends the first `most` characters of a text; all if negative. */
static void put_beginning(struct jinja_builder *b, const struct jinja_text *text, int most)
{
    jinja_put_part(b, text, 0, most < 0 ? text->n : jinja_char_at(b->task, text, (size_t)most));
}

static void put_percent(struct jinja_builder *b, char conversion, int digits, struct jinja_value v)
{
    char number[400];
    int n = 0;
    struct jinja_builder repr = {.task = b->task};
    switch (conversion) {
    case 's':
        put_beginning(b, jinja_string(b->task, v), digits);
        return;
    case 'r':
        jinja_put_repr(&repr, v);
        put_beginning(b, jinja_built(&repr), digits);
        return;
    case 'd':
    case 'i':
        if (!jinja_is_number(v))
            jinja_fail(b->task, "%%%c takes a number, not a %s", conversion, jinja_type(v));
        n = snprintf(number, sizeof number, "%.*lld", digits < 1 ? 1 : digits,
                     (long long)(v.kind == JINJA_FLOAT ? (int64_t)jinja_need_int(b->task, v, "%d") : v.i));
        break;
    case 'f':
        if (!jinja_is_number(v))
            jinja_fail(b->task, "%%f takes a number, not a %s", jinja_type(v));
        n = snprintf(number, sizeof number, "%.*f", digits < 0 ? 6 : digits, jinja_number(v));
        break;
    default:
        jinja_fail(b->task, "%%%c in a format is not supported", conversion);
    }
    jinja_put_bytes(b, number, (size_t)n, MARK_TEMPLATE);
}

struct jinja_value jinja_percent(struct jinja_task *task, const struct jinja_text *format, struct jinja_value v)
{
    struct jinja_builder b = {.task = task};
    size_t which = 0;
    int by_name = 0;
    for (size_t i = 0; i < format->n;) {
        size_t first = i;
        while (i < format->n && format->bytes[i] != '%')
            i++;
        jinja_put_part(&b, format, first, i);
        if (i == format->n)
            break;
        const struct jinja_text *name = NULL;
        int digits = -1;
        i++;
        if (i < format->n && format->bytes[i] == '(') {
            size_t end = i + 1;
            while (end < format->n && format->bytes[end] != ')')
                end++;
            name = jinja_cut(task, format, i + 1, end);
            i = end + 1;
            by_name = 1;
        }
        if (i + 1 < format->n && format->bytes[i] == '.' && format->bytes[i + 1] >= '0' && format->bytes[i + 1] <= '9') {
            digits = format->bytes[i + 1] - '0';
            i += 2;
        }
        if (i >= format->n)
            jinja_fail(task, "a format ends behind '%%'");
        char conversion = format->bytes[i++];
        if (conversion == '%')
            jinja_put_part(&b, format, i - 1, i);
        else {
            const struct jinja_value value = percent_value(task, v, name, which++);
            if (value.kind == JINJA_TEXT)
                jinja_check_safe(task, format, value.text);
            put_percent(&b, conversion, digits, value);
        }
    }
    if (!by_name && (v.kind == JINJA_TUPLE ? which < v.list->n : which == 0 && v.kind != JINJA_DICT && v.kind != JINJA_LIST))
        jinja_fail(task, "a format has fewer places than values");
    return jinja_of_text(jinja_as_safe(task, format, jinja_built(&b)));
}

struct jinja_value jinja_braces(struct jinja_task *task, const struct jinja_text *format, struct jinja_call *call)
{
    struct jinja_builder b = {.task = task};
    int next = 0, numbered = 0;
    for (size_t i = 0; i < format->n;) {
        char c = format->bytes[i];
        size_t first = i++;
        if (c != '{' && c != '}') {
            jinja_put_part(&b, format, first, i);
            continue;
        }
        if (i < format->n && format->bytes[i] == c) { /* a doubled brace stands for itself */
            jinja_put_part(&b, format, first, i++);
            continue;
        }
        size_t end = i;
        while (end < format->n && format->bytes[end] != '}')
            end++;
        if (c == '}' || end == format->n)
            jinja_fail(task, "a format has a single '%c'", c);
        char *name = jinja_copy(task, format->bytes + i, end - i);
        int by_number = name[0] >= '0' && name[0] <= '9', place = by_number ? name[0] - '0' : name[0] ? -1 : next++;
        if (strpbrk(name, ":.[!") || (by_number && name[1]))
            jinja_fail(task, "'{%.60s}' in a format is not supported", name);
        numbered |= by_number;
        if (numbered && next > 0)
            jinja_fail(task, "a format numbers some of its places and others not");
        if (!jinja_argument_given(call, place, place < 0 ? name : NULL))
            jinja_fail(task, "a format needs a value for '{%.60s}'", name);
        jinja_put(&b, jinja_string(task, jinja_argument(task, call, place, place < 0 ? name : NULL, jinja_none())));
        i = end + 1;
    }
    return jinja_of_text(jinja_built(&b));
}
