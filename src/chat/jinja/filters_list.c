/* Filters over lists and dicts. */
#include "chat/jinja/filters.h"

#include "chat/jinja/methods.h"

#include <string.h>

/* Returns a part of a dotted name as a key; a part of digits only is a number. */
static struct jinja_value part_key(struct jinja_task *task, const struct jinja_text *name, size_t first, size_t end)
{
    int64_t number = 0;
    int digits = end > first && end - first < 10;
    for (size_t i = first; i < end && digits; i++) {
        digits = name->bytes[i] >= '0' && name->bytes[i] <= '9';
        number = number * 10 + (name->bytes[i] - '0');
    }
    return digits ? jinja_int(number) : jinja_of_text(jinja_cut(task, name, first, end));
}

struct jinja_value filter_attribute(struct jinja_run *run, struct jinja_value v, struct jinja_value attribute)
{
    if (attribute.kind == JINJA_NONE)
        return v;
    if (attribute.kind != JINJA_TEXT)
        return jinja_item(run, v, attribute);
    const struct jinja_text *name = attribute.text;
    for (size_t first = 0; first <= name->n;) {
        const char *dot = memchr(name->bytes + first, '.', name->n - first);
        size_t end = dot ? (size_t)(dot - name->bytes) : name->n;
        v = jinja_item(run, v, part_key(run->task, name, first, end));
        first = end + 1;
    }
    return v;
}

static struct jinja_value no_case(struct jinja_run *run, struct jinja_value v)
{
    return v.kind == JINJA_TEXT ? jinja_of_text(jinja_case(run->task, v.text, CASE_LOWER)) : v;
}

struct jinja_value filter_length(struct jinja_run *run, struct jinja_value v, struct jinja_call *call)
{
    int64_t n = jinja_length(run->task, v);
    (void)call;
    if (n < 0)
        jinja_fail(run->task, "a %s has no length", jinja_type(v));
    return jinja_int(n);
}

struct jinja_value filter_list(struct jinja_run *run, struct jinja_value v, struct jinja_call *call)
{
    (void)call;
    return jinja_of_list(JINJA_LIST, jinja_items(run->task, v));
}

struct jinja_value filter_first(struct jinja_run *run, struct jinja_value v, struct jinja_call *call)
{
    (void)call;
    if (v.kind == JINJA_ITERATOR)
        return v.list->at < v.list->n ? v.list->items[v.list->at++] : jinja_undefined("the first item of nothing");
    struct jinja_list *items = jinja_items(run->task, v);
    return items->n > 0 ? items->items[0] : jinja_undefined("the first item of nothing");
}

struct jinja_value filter_last(struct jinja_run *run, struct jinja_value v, struct jinja_call *call)
{
    (void)call;
    if (v.kind == JINJA_ITERATOR || v.kind == JINJA_UNDEFINED)
        jinja_fail(run->task, "filter last needs a list, not an %s: write `| list | last`", jinja_type(v));
    struct jinja_list *items = jinja_items(run->task, v);
    return items->n > 0 ? items->items[items->n - 1] : jinja_undefined("the last item of nothing");
}

struct jinja_value filter_join(struct jinja_run *run, struct jinja_value v, struct jinja_call *call)
{
    struct jinja_value between = jinja_argument(run->task, call, 0, "d", jinja_of_text(jinja_literal(run->task, "")));
    struct jinja_value attribute = jinja_argument(run->task, call, 1, "attribute", jinja_none());
    struct jinja_list *items = jinja_items(run->task, v);
    struct jinja_builder b = {.task = run->task};
    for (size_t i = 0; i < items->n; i++) {
        if (i > 0)
            jinja_put(&b, jinja_string(run->task, between));
        jinja_put(&b, jinja_string(run->task, filter_attribute(run, items->items[i], attribute)));
    }
    return jinja_of_text(jinja_built(&b));
}

static struct jinja_list *pairs_of(struct jinja_run *run, const struct jinja_dict *dict)
{
    struct jinja_list *out = jinja_list_new(run->task);
    for (size_t i = 0; i < dict->n; i++) {
        struct jinja_list *pair = jinja_list_new(run->task);
        jinja_list_add(run->task, pair, dict->keys[i]);
        jinja_list_add(run->task, pair, dict->values[i]);
        jinja_list_add(run->task, out, jinja_of_list(JINJA_TUPLE, pair));
    }
    return out;
}

struct jinja_value filter_items(struct jinja_run *run, struct jinja_value v, struct jinja_call *call)
{
    (void)call;
    if (v.kind == JINJA_UNDEFINED)
        return jinja_of_list(JINJA_ITERATOR, jinja_list_new(run->task));
    if (v.kind != JINJA_DICT)
        jinja_fail(run->task, "filter items takes a dict, not a %s", jinja_type(v));
    return jinja_of_list(JINJA_ITERATOR, pairs_of(run, v.dict));
}

/* Sorts items by keys, both [n], by a merge sort that is stable, also in reverse, as Python's. */
static void sort_by(struct jinja_task *task, struct jinja_value *items, struct jinja_value *keys, size_t n, int reverse)
{
    if (n < 2)
        return;
    size_t half = n / 2, a = 0, b = half;
    struct jinja_value *out = jinja_take(task, 2 * n * sizeof *out), *out_keys = out + n;
    jinja_sink(task);
    sort_by(task, items, keys, half, reverse);
    sort_by(task, items + half, keys + half, n - half, reverse);
    for (size_t i = 0; i < n; i++) {
        int order = a == half ? 1 : b == n ? -1 : jinja_compare(task, keys[a], keys[b]);
        if (a < half && b < n && reverse)
            order = -order;
        size_t from = order <= 0 ? a++ : b++;
        out[i] = items[from];
        out_keys[i] = keys[from];
    }
    memcpy(items, out, n * sizeof *items);
    memcpy(keys, out_keys, n * sizeof *keys);
    jinja_rise(task);
}

static struct jinja_list *copy_of(struct jinja_run *run, struct jinja_value v)
{
    struct jinja_list *items = jinja_items(run->task, v), *out = jinja_list_new(run->task);
    for (size_t i = 0; i < items->n; i++)
        jinja_list_add(run->task, out, items->items[i]);
    return out;
}

struct jinja_value filter_dictsort(struct jinja_run *run, struct jinja_value v, struct jinja_call *call)
{
    int with_case = jinja_truth(jinja_argument(run->task, call, 0, "case_sensitive", jinja_bool(0)));
    struct jinja_value by = jinja_argument(run->task, call, 1, "by", jinja_of_text(jinja_literal(run->task, "key")));
    int reverse = jinja_truth(jinja_argument(run->task, call, 2, "reverse", jinja_bool(0)));
    const struct jinja_text *what = jinja_need_text(run->task, by, "dictsort's by");
    if (v.kind == JINJA_UNDEFINED)
        jinja_fail_undefined(run->task, v);
    if (v.kind != JINJA_DICT || (!jinja_is(what, "key") && !jinja_is(what, "value")))
        jinja_fail(run->task, "filter dictsort takes a dict, by key or value");
    struct jinja_list *pairs = pairs_of(run, v.dict);
    struct jinja_value *keys = jinja_take(run->task, (pairs->n + 1) * sizeof *keys);
    for (size_t i = 0; i < pairs->n; i++) {
        keys[i] = pairs->items[i].list->items[jinja_is(what, "value")];
        keys[i] = with_case ? keys[i] : no_case(run, keys[i]);
    }
    sort_by(run->task, pairs->items, keys, pairs->n, reverse);
    return jinja_of_list(JINJA_LIST, pairs);
}

/* Returns the keys by which items are sorted: an attribute of each, or a list of several, which are given separated by commas. */
static struct jinja_value *keys_of(struct jinja_run *run, const struct jinja_list *items, struct jinja_value attribute,
                                   int with_case)
{
    struct jinja_value *keys = jinja_take(run->task, (items->n + 1) * sizeof *keys);
    for (size_t i = 0; i < items->n; i++) {
        struct jinja_list *parts = jinja_list_new(run->task);
        size_t n = attribute.kind == JINJA_TEXT ? attribute.text->n : 0;
        for (size_t first = 0; first <= n;) {
            const char *comma = n > 0 ? memchr(attribute.text->bytes + first, ',', n - first) : NULL;
            size_t end = comma ? (size_t)(comma - attribute.text->bytes) : n;
            struct jinja_value part = n > 0 ? jinja_of_text(jinja_cut(run->task, attribute.text, first, end)) : attribute;
            struct jinja_value key = filter_attribute(run, items->items[i], part);
            jinja_list_add(run->task, parts, with_case ? key : no_case(run, key));
            first = end + 1;
        }
        keys[i] = jinja_of_list(JINJA_LIST, parts);
    }
    return keys;
}

struct jinja_value filter_sort(struct jinja_run *run, struct jinja_value v, struct jinja_call *call)
{
    int reverse = jinja_truth(jinja_argument(run->task, call, 0, "reverse", jinja_bool(0)));
    int with_case = jinja_truth(jinja_argument(run->task, call, 1, "case_sensitive", jinja_bool(0)));
    struct jinja_value attribute = jinja_argument(run->task, call, 2, "attribute", jinja_none());
    struct jinja_list *items = copy_of(run, v);
    sort_by(run->task, items->items, keys_of(run, items, attribute, with_case), items->n, reverse);
    return jinja_of_list(JINJA_LIST, items);
}

struct jinja_value filter_unique(struct jinja_run *run, struct jinja_value v, struct jinja_call *call)
{
    int with_case = jinja_truth(jinja_argument(run->task, call, 0, "case_sensitive", jinja_bool(0)));
    struct jinja_value attribute = jinja_argument(run->task, call, 1, "attribute", jinja_none());
    struct jinja_list *items = jinja_items(run->task, v), *out = jinja_list_new(run->task), *seen = jinja_list_new(run->task);
    for (size_t i = 0; i < items->n; i++) {
        struct jinja_value key = filter_attribute(run, items->items[i], attribute);
        if (key.kind == JINJA_LIST || key.kind == JINJA_DICT)
            jinja_fail(run->task, "filter unique cannot compare a %s", jinja_type(key));
        key = with_case ? key : no_case(run, key);
        if (jinja_contains(run->task, jinja_of_list(JINJA_LIST, seen), key))
            continue;
        jinja_list_add(run->task, seen, key);
        jinja_list_add(run->task, out, items->items[i]);
    }
    return jinja_of_list(JINJA_ITERATOR, out);
}

struct jinja_value filter_reverse(struct jinja_run *run, struct jinja_value v, struct jinja_call *call)
{
    struct jinja_list *items = jinja_items(run->task, v), *out = jinja_list_new(run->task);
    struct jinja_builder b = {.task = run->task};
    (void)call;
    for (size_t i = items->n; i-- > 0;) {
        if (v.kind == JINJA_TEXT)
            jinja_put(&b, items->items[i].text);
        else
            jinja_list_add(run->task, out, items->items[i]);
    }
    return v.kind == JINJA_TEXT ? jinja_of_text(jinja_as_safe(run->task, v.text, jinja_built(&b)))
                                : jinja_of_list(JINJA_ITERATOR, out);
}

struct jinja_value filter_sum(struct jinja_run *run, struct jinja_value v, struct jinja_call *call)
{
    struct jinja_value attribute = jinja_argument(run->task, call, 0, "attribute", jinja_none());
    struct jinja_value sum = jinja_argument(run->task, call, 1, "start", jinja_int(0));
    struct jinja_list *items = jinja_items(run->task, v);
    if (sum.kind == JINJA_TEXT)
        jinja_fail(run->task, "filter sum adds no str: use join");
    for (size_t i = 0; i < items->n; i++)
        sum = jinja_binary(run, "+", sum, filter_attribute(run, items->items[i], attribute));
    return sum;
}

static struct jinja_value extreme(struct jinja_run *run, struct jinja_value v, struct jinja_call *call, int sign)
{
    int with_case = jinja_truth(jinja_argument(run->task, call, 0, "case_sensitive", jinja_bool(0)));
    struct jinja_value attribute = jinja_argument(run->task, call, 1, "attribute", jinja_none()), best_key = jinja_none();
    struct jinja_list *items = jinja_items(run->task, v);
    struct jinja_value best = jinja_undefined("the extreme of nothing");
    for (size_t i = 0; i < items->n; i++) {
        struct jinja_value key = filter_attribute(run, items->items[i], attribute);
        key = with_case ? key : no_case(run, key);
        if (i > 0 && sign * jinja_compare(run->task, key, best_key) <= 0)
            continue;
        best = items->items[i];
        best_key = key;
    }
    return best;
}

struct jinja_value filter_min(struct jinja_run *run, struct jinja_value v, struct jinja_call *call)
{
    return extreme(run, v, call, -1);
}

struct jinja_value filter_max(struct jinja_run *run, struct jinja_value v, struct jinja_call *call)
{
    return extreme(run, v, call, 1);
}

struct jinja_value filter_attr(struct jinja_run *run, struct jinja_value v, struct jinja_call *call)
{
    const struct jinja_text *name =
        jinja_need_text(run->task, jinja_argument(run->task, call, 0, "name", jinja_none()), "attr's name");
    if (v.kind == JINJA_DICT) /* the filter attr never looks at a dict's keys */
        v.dict = jinja_dict_new(run->task);
    return jinja_attribute(run, v, jinja_copy(run->task, name->bytes, name->n));
}

struct jinja_value filter_default(struct jinja_run *run, struct jinja_value v, struct jinja_call *call)
{
    struct jinja_value fallback =
        jinja_argument(run->task, call, 0, "default_value", jinja_of_text(jinja_literal(run->task, "")));
    int boolean = jinja_truth(jinja_argument(run->task, call, 1, "boolean", jinja_bool(0)));
    return v.kind == JINJA_UNDEFINED || (boolean && !jinja_truth(v)) ? fallback : v;
}
