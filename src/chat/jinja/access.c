/* Attributes, items and slices of values. */
#include "chat/jinja/run.h"

#include <string.h>

/* Python's methods by type: those of methods.c work, the others are known only to be refused by name when called. */
/* clang-format off */
static const char *const text_methods[] = {"capitalize", "casefold", "center", "count", "encode", "endswith", "expandtabs",
    "find", "format", "format_map", "index", "isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "isidentifier", "islower",
    "isnumeric", "isprintable", "isspace", "istitle", "isupper", "join", "ljust", "lower", "lstrip", "maketrans", "partition",
    "removeprefix", "removesuffix", "replace", "rfind", "rindex", "rjust", "rpartition", "rsplit", "rstrip", "split",
    "splitlines", "startswith", "strip", "swapcase", "title", "translate", "upper", "zfill", NULL};
static const char *const dict_methods[] = {"clear", "copy", "fromkeys", "get", "items", "keys", "pop", "popitem", "setdefault",
    "update", "values", NULL};
static const char *const list_methods[] = {"append", "clear", "copy", "count", "extend", "index", "insert", "pop", "remove",
    "reverse", "sort", NULL};
static const char *const tuple_methods[] = {"count", "index", NULL};
/* clang-format on */

/* Attributes of other types, of which only some of numbers and macros work. */
static const char *const number_attributes[] = {"as_integer_ratio", "bit_count", "bit_length", "conjugate", "from_bytes",
                                                "fromhex",          "hex",       "is_integer", "to_bytes",  NULL};
static const char *const macro_attributes[] = {"caller", "catch_kwargs", "catch_varargs", "explicit_caller", NULL};
static const char *const iterator_attributes[] = {"close", "isdisjoint", "mapping", "send", "throw", NULL};
static const char *const range_attributes[] = {"start", "step", "stop", NULL};

static void refuse_known(struct jinja_run *run, struct jinja_value v, const char *const *names, const char *name)
{
    for (; *names; names++)
        if (strcmp(*names, name) == 0)
            jinja_fail(run->task, "'%s' of a %s is not supported", name, jinja_type(v));
}

/* Returns real, imag, numerator or denominator of a number. */
static struct jinja_value number_attribute(struct jinja_run *run, struct jinja_value v, const char *name)
{
    const int real = v.kind == JINJA_FLOAT;
    refuse_known(run, v, number_attributes, name);
    if (strcmp(name, "real") == 0 || (!real && strcmp(name, "numerator") == 0))
        return real ? v : jinja_int(v.i);
    if (strcmp(name, "imag") == 0)
        return real ? jinja_float(0) : jinja_int(0);
    return !real && strcmp(name, "denominator") == 0 ? jinja_int(1) : jinja_undefined(name);
}

static struct jinja_value macro_attribute(struct jinja_run *run, struct jinja_value v, const char *name)
{
    refuse_known(run, v, macro_attributes, name);
    const struct jinja_node *node = v.macro->node;
    if (strcmp(name, "name") == 0)
        return node->name ? jinja_of_text(jinja_literal(run->task, node->name)) : jinja_none();
    if (strcmp(name, "arguments") != 0)
        return jinja_undefined(name);
    struct jinja_list *list = jinja_list_new(run->task);
    for (size_t i = 0; i < node->n_params; i++)
        jinja_list_add(run->task, list, jinja_of_text(jinja_literal(run->task, run->names->at[node->params[i].id])));
    return jinja_of_list(JINJA_TUPLE, list);
}

static struct jinja_value method_of(struct jinja_run *run, struct jinja_value v, const char *const *methods, const char *name)
{
    for (size_t i = 0; methods[i]; i++)
        if (strcmp(methods[i], name) == 0) {
            struct jinja_method *m = jinja_take(run->task, sizeof *m);
            *m = (struct jinja_method){.self = v, .name = methods[i]};
            return (struct jinja_value){.kind = JINJA_METHOD, .method = m};
        }
    return jinja_undefined(name);
}

/* Returns an attribute of a value; keys of a dict are not looked at. */
static struct jinja_value plain_attribute(struct jinja_run *run, struct jinja_value v, const char *name)
{
    const struct jinja_value *at;
    switch (v.kind) {
    case JINJA_UNDEFINED:
        jinja_fail_undefined(run->task, v);
    case JINJA_DICT:
        return method_of(run, v, dict_methods, name);
    case JINJA_TEXT:
        return method_of(run, v, text_methods, name);
    case JINJA_LIST:
        return method_of(run, v, list_methods, name);
    case JINJA_RANGE:
        refuse_known(run, v, range_attributes, name);
        return method_of(run, v, tuple_methods, name);
    case JINJA_TUPLE:
        return method_of(run, v, tuple_methods, name);
    case JINJA_BOOL:
    case JINJA_INT:
    case JINJA_FLOAT:
        return number_attribute(run, v, name);
    case JINJA_MACRO:
        return macro_attribute(run, v, name);
    case JINJA_VIEW:
    case JINJA_ITERATOR:
        refuse_known(run, v, iterator_attributes, name);
        return jinja_undefined(name);
    case JINJA_GLOBAL:
        jinja_fail(run->task, "attributes of %s are not supported", v.name);
    case JINJA_NAMESPACE:
        at = jinja_dict_name(run->task, v.dict, name);
        return at ? *at : jinja_undefined(name);
    case JINJA_LOOP:
        return jinja_loop_attribute(run, v.loop, name);
    default:
        return jinja_undefined(name);
    }
}

struct jinja_value jinja_attribute(struct jinja_run *run, struct jinja_value v, const char *name)
{
    struct jinja_value found = plain_attribute(run, v, name);
    if (found.kind == JINJA_UNDEFINED && v.kind == JINJA_DICT) {
        const struct jinja_value *at = jinja_dict_name(run->task, v.dict, name);
        return at ? *at : found;
    }
    return found;
}

struct jinja_value jinja_item(struct jinja_run *run, struct jinja_value v, struct jinja_value key)
{
    int whole = key.kind == JINJA_INT || key.kind == JINJA_BOOL;
    if (v.kind == JINJA_UNDEFINED)
        jinja_fail_undefined(run->task, v);
    if (v.kind == JINJA_DICT && key.kind != JINJA_LIST && key.kind != JINJA_DICT) {
        const struct jinja_value *at = jinja_dict_get(run->task, v.dict, key);
        if (at)
            return *at;
    }
    if (whole && (v.kind == JINJA_LIST || v.kind == JINJA_TUPLE || v.kind == JINJA_RANGE)) {
        int64_t n = (int64_t)v.list->n, i = key.i < 0 ? key.i + n : key.i;
        return i >= 0 && i < n ? v.list->items[i] : jinja_undefined("an item of a list");
    }
    if (whole && v.kind == JINJA_TEXT) {
        int64_t n = key.i < 0 ? (int64_t)jinja_chars(run->task, v.text) : 0, i = key.i + n;
        size_t first = i < 0 ? v.text->n : jinja_char_at(run->task, v.text, (size_t)i), end = first;
        if (first == v.text->n)
            return jinja_undefined("a character of a str");
        jinja_next_char(v.text, &end);
        return jinja_of_text(jinja_as_safe(run->task, v.text, jinja_cut(run->task, v.text, first, end)));
    }
    if (key.kind != JINJA_TEXT)
        return jinja_undefined("an item");
    return plain_attribute(run, v, jinja_copy(run->task, key.text->bytes, key.text->n));
}

/* Clamps one end of a slice of n items to the valid range, as Python does. */
static int64_t clamp(int64_t i, int64_t n, int64_t step)
{
    i = i < 0 ? i + n : i;
    int64_t least = step < 0 ? -1 : 0, most = step < 0 ? n - 1 : n;
    return i < least ? least : i > most ? most : i;
}

static struct jinja_value slice_text(struct jinja_run *run, const struct jinja_text *text, int64_t first, int64_t end,
                                     int64_t step)
{
    if (step == 1) {
        size_t from = jinja_char_at(run->task, text, (size_t)first);
        size_t to = end > first ? jinja_char_at(run->task, text, (size_t)end) : from;
        return jinja_of_text(jinja_as_safe(run->task, text, jinja_cut(run->task, text, from, to)));
    }
    struct jinja_list *chars = jinja_items(run->task, jinja_of_text(text));
    struct jinja_builder b = {.task = run->task};
    for (int64_t i = first; step > 0 ? i < end : i > end; i += step)
        jinja_put(&b, chars->items[i].text);
    return jinja_of_text(jinja_as_safe(run->task, text, jinja_built(&b)));
}

struct jinja_value jinja_slice(struct jinja_run *run, struct jinja_value v, const struct jinja_value part[3])
{
    int64_t at[3], n;
    for (int i = 0; i < 3; i++)
        at[i] = part[i].kind == JINJA_NONE ? 0 : jinja_need_int(run->task, part[i], "a slice's end");
    if (v.kind == JINJA_UNDEFINED)
        jinja_fail_undefined(run->task, v);
    if (v.kind != JINJA_TEXT && v.kind != JINJA_LIST && v.kind != JINJA_TUPLE && v.kind != JINJA_RANGE)
        jinja_fail(run->task, "a %s cannot be sliced", jinja_type(v));
    n = jinja_length(run->task, v);
    int64_t step = part[2].kind == JINJA_NONE ? 1 : at[2];
    if (step == 0)
        jinja_fail(run->task, "a slice's step is 0");
    /* limited, so that sums cannot overflow; longer steps give the same slice */
    step = step > n ? n + 1 : step < -n ? -n - 1 : step;
    int64_t first = part[0].kind == JINJA_NONE ? (step < 0 ? n - 1 : 0) : clamp(at[0], n, step);
    int64_t end = part[1].kind == JINJA_NONE ? (step < 0 ? -1 : n) : clamp(at[1], n, step);
    if (v.kind == JINJA_TEXT)
        return slice_text(run, v.text, first, end, step);
    struct jinja_list *out = jinja_list_new(run->task);
    for (int64_t i = first; step > 0 ? i < end : i > end; i += step)
        jinja_list_add(run->task, out, v.list->items[i]);
    return jinja_of_list(v.kind, out);
}
