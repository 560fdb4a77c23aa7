/* The table of filters, and the filters that apply another filter or a test (map, select, ...). */
#include "chat/jinja/filters.h"

#include <string.h>

/* Returns the arguments of `call` from number `first` on: those passed on to the filter or test that is applied to each item. */
static struct jinja_call rest_of(const struct jinja_call *call, size_t first)
{
    struct jinja_call rest = *call;
    first = first < call->n_positional ? first : call->n_positional;
    rest.positional = call->positional ? call->positional + first : NULL;
    rest.n_positional = call->n_positional - first;
    rest.n_used = 0;
    return rest;
}

static const char *name_of(struct jinja_run *run, struct jinja_value v, const char *what)
{
    const struct jinja_text *name = jinja_need_text(run->task, v, what);
    return jinja_copy(run->task, name->bytes, name->n);
}

static struct jinja_value map(struct jinja_run *run, struct jinja_value v, struct jinja_call *call)
{
    struct jinja_list *items = jinja_items(run->task, v), *out = jinja_list_new(run->task);
    int by_attribute = call->n_positional == 0;
    struct jinja_value attribute = jinja_none(), fallback = jinja_undefined(NULL);
    const char *name = NULL;
    if (by_attribute) {
        if (!jinja_argument_given(call, -1, "attribute"))
            jinja_fail(run->task, "filter map needs a filter or an attribute");
        attribute = jinja_argument(run->task, call, -1, "attribute", jinja_none());
        fallback = jinja_argument(run->task, call, -1, "default", jinja_undefined(NULL));
        jinja_arguments_end(run->task, call, "filter map", 0);
    } else {
        name = name_of(run, call->positional[0], "map's filter");
    }
    for (size_t i = 0; i < items->n; i++) {
        struct jinja_call rest = rest_of(call, 1);
        struct jinja_value item = items->items[i];
        item = by_attribute ? filter_attribute(run, item, attribute) : jinja_filter(run, name, item, &rest);
        if (by_attribute && item.kind == JINJA_UNDEFINED && fallback.kind != JINJA_UNDEFINED)
            item = fallback;
        jinja_list_add(run->task, out, item);
    }
    call->n_positional = call->n_named = 0; /* the named filter took these arguments */
    return jinja_of_list(JINJA_ITERATOR, out);
}

/* Keeps the items for which a test, applied to the item or to an attribute of the item, gives `wanted`. */
static struct jinja_value choose(struct jinja_run *run, struct jinja_value v, struct jinja_call *call, int by_attribute,
                                 int wanted)
{
    struct jinja_list *items = jinja_items(run->task, v), *out = jinja_list_new(run->task);
    size_t first = by_attribute;
    struct jinja_value attribute = jinja_none();
    if (by_attribute) {
        if (call->n_positional == 0)
            jinja_fail(run->task, "filter selectattr needs an attribute");
        attribute = call->positional[0];
    }
    const char *test = call->n_positional > first ? name_of(run, call->positional[first], "a test's name") : NULL;
    for (size_t i = 0; i < items->n; i++) {
        struct jinja_call rest = rest_of(call, first + 1);
        struct jinja_value item = by_attribute ? filter_attribute(run, items->items[i], attribute) : items->items[i];
        if ((test ? jinja_test(run, test, item, &rest) : jinja_truth(item)) == wanted)
            jinja_list_add(run->task, out, items->items[i]);
    }
    call->n_positional = call->n_named = 0;
    return jinja_of_list(JINJA_ITERATOR, out);
}

static struct jinja_value filter_select(struct jinja_run *run, struct jinja_value v, struct jinja_call *call)
{
    return choose(run, v, call, 0, 1);
}

static struct jinja_value filter_reject(struct jinja_run *run, struct jinja_value v, struct jinja_call *call)
{
    return choose(run, v, call, 0, 0);
}

static struct jinja_value filter_selectattr(struct jinja_run *run, struct jinja_value v, struct jinja_call *call)
{
    return choose(run, v, call, 1, 1);
}

static struct jinja_value filter_rejectattr(struct jinja_run *run, struct jinja_value v, struct jinja_call *call)
{
    return choose(run, v, call, 1, 0);
}

static const struct {
    const char *name;
    jinja_filter_call *call;
    int places; /* number of arguments that may be given without a name */
} filters[] = {
    {"abs", filter_abs, 0},
    {"attr", filter_attr, 1},
    {"capitalize", filter_capitalize, 0},
    {"count", filter_length, 0},
    {"d", filter_default, 2},
    {"default", filter_default, 2},
    {"dictsort", filter_dictsort, 3},
    {"first", filter_first, 0},
    {"float", filter_float, 1},
    {"format", filter_format, 1000},
    {"indent", filter_indent, 3},
    {"int", filter_int, 2},
    {"items", filter_items, 0},
    {"join", filter_join, 2},
    {"last", filter_last, 0},
    {"length", filter_length, 0},
    {"list", filter_list, 0},
    {"lower", filter_lower, 0},
    {"map", map, 0},
    {"max", filter_max, 2},
    {"min", filter_min, 2},
    {"reject", filter_reject, 0},
    {"rejectattr", filter_rejectattr, 0},
    {"replace", filter_replace, 3},
    {"reverse", filter_reverse, 0},
    {"round", filter_round, 2},
    {"safe", filter_safe, 0},
    {"select", filter_select, 0},
    {"selectattr", filter_selectattr, 0},
    {"sort", filter_sort, 3},
    {"string", filter_string, 0},
    {"sum", filter_sum, 2},
    {"title", filter_title, 0},
    {"tojson", filter_tojson, 4},
    {"trim", filter_trim, 1},
    {"unique", filter_unique, 2},
    {"upper", filter_upper, 0},
    {"wordcount", filter_wordcount, 0},
};

struct jinja_value jinja_filter(struct jinja_run *run, const char *name, struct jinja_value v, struct jinja_call *call)
{
    char what[64] = "filter ";
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        if (strcmp(filters[i].name, name) == 0) {
            jinja_step(run->task, 1);
            jinja_sink(run->task);
            struct jinja_value out = filters[i].call(run, v, call);
            jinja_arguments_end(run->task, call, strncat(what, name, 50), filters[i].places);
            jinja_rise(run->task);
            return out;
        }
    jinja_fail(run->task, "the filter '%.60s' is not supported", name);
}
