/* Making values, and their truth, equality, order and walking. */
#include "chat/jinja/value.h"

#include <string.h>

struct jinja_value jinja_none(void)
{
    return (struct jinja_value){.kind = JINJA_NONE};
}

struct jinja_value jinja_bool(int truth)
{
    return (struct jinja_value){.kind = JINJA_BOOL, .i = truth != 0};
}

struct jinja_value jinja_int(int64_t i)
{
    return (struct jinja_value){.kind = JINJA_INT, .i = i};
}

struct jinja_value jinja_float(double f)
{
    return (struct jinja_value){.kind = JINJA_FLOAT, .f = f};
}

struct jinja_value jinja_undefined(const char *name)
{
    return (struct jinja_value){.kind = JINJA_UNDEFINED, .name = name};
}

struct jinja_value jinja_of_text(const struct jinja_text *text)
{
    return (struct jinja_value){.kind = JINJA_TEXT, .text = text};
}

struct jinja_value jinja_of_list(enum jinja_kind kind, struct jinja_list *list)
{
    return (struct jinja_value){.kind = kind, .list = list};
}

struct jinja_list *jinja_list_new(struct jinja_task *task)
{
    return jinja_take(task, sizeof(struct jinja_list));
}

void jinja_list_add(struct jinja_task *task, struct jinja_list *list, struct jinja_value item)
{
    list->items = jinja_grow(task, list->items, list->n, 1, sizeof item, &list->room);
    list->items[list->n++] = item;
}

struct jinja_dict *jinja_dict_new(struct jinja_task *task)
{
    return jinja_take(task, sizeof(struct jinja_dict));
}

static struct jinja_value *find_key(struct jinja_task *task, const struct jinja_dict *dict, struct jinja_value key)
{
    if (key.kind == JINJA_LIST || key.kind == JINJA_DICT)
        jinja_fail(task, "a %s cannot be a key", jinja_type(key));
    jinja_step(task, (int64_t)dict->n / 8);
    for (size_t i = 0; i < dict->n; i++)
        if (jinja_equal(task, dict->keys[i], key))
            return &dict->values[i];
    return NULL;
}

void jinja_dict_add(struct jinja_task *task, struct jinja_dict *dict, struct jinja_value key, struct jinja_value value)
{
    dict->keys = jinja_grow(task, dict->keys, dict->n, 1, sizeof key, &dict->room);
    dict->values = jinja_grow(task, dict->values, dict->n, 1, sizeof value, &dict->values_room);
    dict->keys[dict->n] = key;
    dict->values[dict->n++] = value;
}

void jinja_dict_set(struct jinja_task *task, struct jinja_dict *dict, struct jinja_value key, struct jinja_value value)
{
    struct jinja_value *at = find_key(task, dict, key);
    if (at)
        *at = value;
    else
        jinja_dict_add(task, dict, key, value);
}

const struct jinja_value *jinja_dict_get(struct jinja_task *task, const struct jinja_dict *dict, struct jinja_value key)
{
    return find_key(task, dict, key);
}

const struct jinja_value *jinja_dict_name(struct jinja_task *task, const struct jinja_dict *dict, const char *key)
{
    jinja_step(task, (int64_t)dict->n / 8);
    for (size_t i = 0; i < dict->n; i++)
        if (dict->keys[i].kind == JINJA_TEXT && jinja_is(dict->keys[i].text, key))
            return &dict->values[i];
    return NULL;
}

const char *jinja_type(struct jinja_value v)
{
    static const char *const names[] = {"undefined value", "None",   "bool",    "int",       "float",    "str",       "list",
                                        "tuple",           "range",  "dict",    "dict view", "iterator", "namespace", "loop",
                                        "macro",           "method", "function"};
    return names[v.kind];
}

int jinja_is_number(struct jinja_value v)
{
    return v.kind == JINJA_BOOL || v.kind == JINJA_INT || v.kind == JINJA_FLOAT;
}

double jinja_number(struct jinja_value v)
{
    return v.kind == JINJA_FLOAT ? v.f : (double)v.i;
}

int jinja_truth(struct jinja_value v)
{
    switch (v.kind) {
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        return 0;
    case JINJA_BOOL:
    case JINJA_INT:
        return v.i != 0;
    case JINJA_FLOAT:
        return v.f != 0.0;
    case JINJA_TEXT:
        return v.text->n > 0;
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_RANGE:
    case JINJA_VIEW:
        return v.list->n > 0;
    case JINJA_DICT:
        return v.dict->n > 0;
    default:
        return 1;
    }
}

static int equal_lists(struct jinja_task *task, const struct jinja_list *a, const struct jinja_list *b)
{
    if (a->n != b->n)
        return 0;
    for (size_t i = 0; i < a->n; i++)
        if (!jinja_equal(task, a->items[i], b->items[i]))
            return 0;
    return 1;
}

static int equal_dicts(struct jinja_task *task, const struct jinja_dict *a, const struct jinja_dict *b)
{
    if (a->n != b->n)
        return 0;
    for (size_t i = 0; i < a->n; i++) {
        const struct jinja_value *other = jinja_dict_get(task, b, a->keys[i]);
        if (!other || !jinja_equal(task, a->values[i], *other))
            return 0;
    }
    return 1;
}

int jinja_equal(struct jinja_task *task, struct jinja_value a, struct jinja_value b)
{
    int equal = 0;
    jinja_step(task, 1);
    if (jinja_is_number(a) && jinja_is_number(b))
        return a.kind == JINJA_FLOAT || b.kind == JINJA_FLOAT ? jinja_number(a) == jinja_number(b) : a.i == b.i;
    if (a.kind != b.kind)
        return 0;
    jinja_sink(task);
    switch (a.kind) {
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        equal = 1;
        break;
    case JINJA_TEXT:
        equal = jinja_same(a.text, b.text);
        break;
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_RANGE:
        equal = equal_lists(task, a.list, b.list);
        break;
    case JINJA_DICT:
        equal = equal_dicts(task, a.dict, b.dict);
        break;
    case JINJA_GLOBAL:
        equal = strcmp(a.name, b.name) == 0;
        break;
    default:
        equal = a.list == b.list; /* the same object */
    }
    jinja_rise(task);
    return equal;
}

int jinja_compare(struct jinja_task *task, struct jinja_value a, struct jinja_value b)
{
    jinja_step(task, 1);
    if (a.kind == JINJA_UNDEFINED || b.kind == JINJA_UNDEFINED)
        jinja_fail_undefined(task, a.kind == JINJA_UNDEFINED ? a : b);
    if (jinja_is_number(a) && jinja_is_number(b)) {
        if (a.kind != JINJA_FLOAT && b.kind != JINJA_FLOAT)
            return (a.i > b.i) - (a.i < b.i);
        return (jinja_number(a) > jinja_number(b)) - (jinja_number(a) < jinja_number(b));
    }
    if (a.kind == JINJA_TEXT && b.kind == JINJA_TEXT)
        return jinja_order(a.text, b.text);
    if (a.kind != b.kind || (a.kind != JINJA_LIST && a.kind != JINJA_TUPLE))
        jinja_fail(task, "%s and %s have no order", jinja_type(a), jinja_type(b));
    for (size_t i = 0; i < a.list->n && i < b.list->n; i++)
        if (!jinja_equal(task, a.list->items[i], b.list->items[i])) {
            jinja_sink(task);
            int order = jinja_compare(task, a.list->items[i], b.list->items[i]);
            jinja_rise(task);
            return order;
        }
    return (a.list->n > b.list->n) - (a.list->n < b.list->n);
}

int jinja_contains(struct jinja_task *task, struct jinja_value all, struct jinja_value part)
{
    if (all.kind == JINJA_TEXT) {
        if (part.kind != JINJA_TEXT)
            jinja_fail(task, "a %s cannot be looked for in a str", jinja_type(part));
        return jinja_find(task, all.text, part.text, 0) >= 0;
    }
    if (all.kind == JINJA_DICT)
        return jinja_dict_get(task, all.dict, part) != NULL;
    struct jinja_list *items = jinja_items(task, all);
    for (size_t i = 0; i < items->n; i++)
        if (jinja_equal(task, items->items[i], part))
            return 1;
    return 0;
}

int64_t jinja_need_int(struct jinja_task *task, struct jinja_value v, const char *what)
{
    if (v.kind != JINJA_INT && v.kind != JINJA_BOOL)
        jinja_fail(task, "%s must be an int, not a %s", what, jinja_type(v));
    return v.i;
}

const struct jinja_text *jinja_need_text(struct jinja_task *task, struct jinja_value v, const char *what)
{
    if (v.kind == JINJA_UNDEFINED)
        jinja_fail_undefined(task, v);
    if (v.kind != JINJA_TEXT)
        jinja_fail(task, "%s must be a str, not a %s", what, jinja_type(v));
    return v.text;
}

_Noreturn void jinja_fail_undefined(struct jinja_task *task, struct jinja_value v)
{
    if (v.name && strcmp(v.name, "content") == 0) /* OpenAI leaves the content out of messages with tool calls only */
        jinja_fail(task, "'content' is undefined: the template needs it, so give a message that has none \"content\": \"\"");
    if (v.name)
        jinja_fail(task, "'%s' is undefined", v.name);
    jinja_fail(task, "a value is undefined");
}

static struct jinja_list *chars_of(struct jinja_task *task, const struct jinja_text *text)
{
    struct jinja_list *out = jinja_list_new(task);
    for (size_t at = 0, first = 0; at < text->n; first = at) {
        jinja_next_char(text, &at);
        jinja_list_add(task, out, jinja_of_text(jinja_cut(task, text, first, at)));
    }
    return out;
}

struct jinja_list *jinja_items(struct jinja_task *task, struct jinja_value v)
{
    struct jinja_list *out;
    switch (v.kind) {
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_RANGE:
    case JINJA_VIEW:
        return v.list;
    case JINJA_ITERATOR:
        out = jinja_list_new(task);
        *out = (struct jinja_list){.items = v.list->items + v.list->at, .n = v.list->n - v.list->at};
        v.list->at = v.list->n;
        return out;
    case JINJA_UNDEFINED:
        return jinja_list_new(task);
    case JINJA_TEXT:
        return chars_of(task, v.text);
    case JINJA_DICT:
        out = jinja_list_new(task);
        for (size_t i = 0; i < v.dict->n; i++)
            jinja_list_add(task, out, v.dict->keys[i]);
        return out;
    default:
        jinja_fail(task, "a %s cannot be walked", jinja_type(v));
    }
}

int64_t jinja_length(struct jinja_task *task, struct jinja_value v)
{
    switch (v.kind) {
    case JINJA_UNDEFINED:
        return 0;
    case JINJA_TEXT:
        return (int64_t)jinja_chars(task, v.text);
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_RANGE:
    case JINJA_VIEW:
        return (int64_t)v.list->n;
    case JINJA_DICT:
        return (int64_t)v.dict->n;
    default:
        return -1;
    }
}
