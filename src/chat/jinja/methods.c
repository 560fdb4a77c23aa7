/* Methods of str, dict, list and loop. */
#include "chat/jinja/methods.h"

#include "chat/jinja/run.h"

#include <string.h>

typedef struct jinja_value method(struct jinja_run *, struct jinja_value self, struct jinja_call *);

static struct jinja_value strip(struct jinja_run *run, struct jinja_value self, struct jinja_call *call, enum jinja_side side)
{
    return jinja_of_text(jinja_strip(run->task, self.text, jinja_argument(run->task, call, 0, NULL, jinja_none()), side));
}

static struct jinja_value strip_both(struct jinja_run *run, struct jinja_value self, struct jinja_call *call)
{
    return strip(run, self, call, SIDE_BOTH);
}

static struct jinja_value strip_left(struct jinja_run *run, struct jinja_value self, struct jinja_call *call)
{
    return strip(run, self, call, SIDE_LEFT);
}

static struct jinja_value strip_right(struct jinja_run *run, struct jinja_value self, struct jinja_call *call)
{
    return strip(run, self, call, SIDE_RIGHT);
}

/* Tells whether text begins (or ends) with v, a str, or with one of v's items, a tuple of str. */
static int has_end(struct jinja_run *run, const struct jinja_text *text, struct jinja_value v, enum jinja_side side)
{
    if (v.kind == JINJA_TUPLE) {
        for (size_t i = 0; i < v.list->n; i++)
            if (has_end(run, text, v.list->items[i].kind == JINJA_TUPLE ? jinja_none() : v.list->items[i], side))
                return 1;
        return 0;
    }
    const struct jinja_text *part = jinja_need_text(run->task, v, "what a str starts or ends with");
    if (part->n > text->n)
        return 0;
    return memcmp(side == SIDE_LEFT ? text->bytes : text->bytes + text->n - part->n, part->bytes, part->n) == 0;
}

static struct jinja_value startswith(struct jinja_run *run, struct jinja_value self, struct jinja_call *call)
{
    return jinja_bool(has_end(run, self.text, jinja_argument(run->task, call, 0, NULL, jinja_none()), SIDE_LEFT));
}

static struct jinja_value endswith(struct jinja_run *run, struct jinja_value self, struct jinja_call *call)
{
    return jinja_bool(has_end(run, self.text, jinja_argument(run->task, call, 0, NULL, jinja_none()), SIDE_RIGHT));
}

static void add_part(struct jinja_run *run, struct jinja_list *out, const struct jinja_text *text, size_t first, size_t end)
{
    jinja_list_add(run->task, out, jinja_of_text(jinja_cut(run->task, text, first, end)));
}

static size_t skip(const struct jinja_text *text, size_t at, int spaces)
{
    while (at < text->n) {
        size_t next = at;
        if (jinja_is_space(jinja_next_char(text, &next)) != spaces)
            break;
        at = next;
    }
    return at;
}

/* Returns the last place in text at which `part` stands and ends at or before `end`; -1: there is none. */
static int64_t find_last(struct jinja_run *run, const struct jinja_text *text, const struct jinja_text *part, size_t end)
{
    int64_t at = (int64_t)end - (int64_t)part->n;
    jinja_look(run->task, end);
    while (at >= 0 && memcmp(text->bytes + at, part->bytes, part->n) != 0)
        at--;
    return at;
}

static void reverse(struct jinja_list *list)
{
    for (size_t i = 0; i + 1 < list->n - i; i++) {
        struct jinja_value other = list->items[i];
        list->items[i] = list->items[list->n - 1 - i];
        list->items[list->n - 1 - i] = other;
    }
}

static void split_spaces(struct jinja_run *run, struct jinja_list *out, const struct jinja_text *text, int64_t times)
{
    for (size_t at = skip(text, 0, 1); at < text->n;) {
        size_t end = skip(text, at, 0);
        end = times-- == 0 ? text->n : end; /* the last part is all the rest, spaces included */
        add_part(run, out, text, at, end);
        at = skip(text, end, 1);
    }
}

static struct jinja_value split(struct jinja_run *run, struct jinja_value self, struct jinja_call *call)
{
    struct jinja_value sep = jinja_argument(run->task, call, 0, "sep", jinja_none());
    int64_t times = jinja_need_int(run->task, jinja_argument(run->task, call, 1, "maxsplit", jinja_int(-1)), "maxsplit");
    struct jinja_list *out = jinja_list_new(run->task);
    if (sep.kind == JINJA_NONE) {
        split_spaces(run, out, self.text, times);
        return jinja_of_list(JINJA_LIST, out);
    }
    const struct jinja_text *part = jinja_need_text(run->task, sep, "split's separator");
    if (part->n == 0)
        jinja_fail(run->task, "split's separator is empty");
    size_t at = 0;
    for (int64_t found; times != 0 && (found = jinja_find(run->task, self.text, part, at)) >= 0; times -= times > 0) {
        add_part(run, out, self.text, at, (size_t)found);
        at = (size_t)found + part->n;
    }
    add_part(run, out, self.text, at, self.text->n);
    return jinja_of_list(JINJA_LIST, out);
}

static struct jinja_value rsplit(struct jinja_run *run, struct jinja_value self, struct jinja_call *call)
{
    struct jinja_value sep = jinja_argument(run->task, call, 0, "sep", jinja_none());
    int64_t times = jinja_need_int(run->task, jinja_argument(run->task, call, 1, "maxsplit", jinja_int(-1)), "maxsplit");
    struct jinja_list *out = jinja_list_new(run->task);
    if (sep.kind == JINJA_NONE)
        jinja_fail(run->task, "str.rsplit() without a separator is not supported");
    const struct jinja_text *part = jinja_need_text(run->task, sep, "rsplit's separator");
    if (part->n == 0)
        jinja_fail(run->task, "rsplit's separator is empty");
    size_t end = self.text->n;
    for (int64_t found; times != 0 && (found = find_last(run, self.text, part, end)) >= 0; times -= times > 0) {
        add_part(run, out, self.text, (size_t)found + part->n, end);
        end = (size_t)found;
    }
    add_part(run, out, self.text, 0, end);
    reverse(out);
    return jinja_of_list(JINJA_LIST, out);
}

static struct jinja_value partition(struct jinja_run *run, struct jinja_value self, struct jinja_call *call)
{
    const struct jinja_text *part =
        jinja_need_text(run->task, jinja_argument(run->task, call, 0, NULL, jinja_none()), "the separator");
    struct jinja_list *out = jinja_list_new(run->task);
    int64_t found = part->n > 0 ? jinja_find(run->task, self.text, part, 0) : -1;
    size_t at = found < 0 ? self.text->n : (size_t)found, end = found < 0 ? at : at + part->n;
    if (part->n == 0)
        jinja_fail(run->task, "partition's separator is empty");
    add_part(run, out, self.text, 0, at);
    add_part(run, out, self.text, at, end);
    add_part(run, out, self.text, end, self.text->n);
    return jinja_of_list(JINJA_TUPLE, out);
}

static struct jinja_value splitlines(struct jinja_run *run, struct jinja_value self, struct jinja_call *call)
{
    int keep = jinja_need_int(run->task, jinja_argument(run->task, call, 0, "keepends", jinja_bool(0)), "keepends") != 0;
    return jinja_of_list(JINJA_LIST, jinja_lines(run->task, self.text, keep));
}

static struct jinja_value replace(struct jinja_run *run, struct jinja_value self, struct jinja_call *call)
{
    const struct jinja_text *from =
        jinja_need_text(run->task, jinja_argument(run->task, call, 0, NULL, jinja_none()), "what is replaced");
    const struct jinja_text *to =
        jinja_need_text(run->task, jinja_argument(run->task, call, 1, NULL, jinja_none()), "the replacement");
    int64_t times = jinja_need_int(run->task, jinja_argument(run->task, call, 2, "count", jinja_int(-1)), "count");
    return jinja_of_text(jinja_replace(run->task, self.text, from, to, times));
}

static struct jinja_value find(struct jinja_run *run, struct jinja_value self, struct jinja_call *call)
{
    const struct jinja_text *part =
        jinja_need_text(run->task, jinja_argument(run->task, call, 0, NULL, jinja_none()), "what is looked for");
    int64_t found = jinja_find(run->task, self.text, part, 0);
    return jinja_int(found <= 0 ? found : (int64_t)jinja_chars(run->task, jinja_cut(run->task, self.text, 0, (size_t)found)));
}

static struct jinja_value rfind(struct jinja_run *run, struct jinja_value self, struct jinja_call *call)
{
    const struct jinja_text *part =
        jinja_need_text(run->task, jinja_argument(run->task, call, 0, NULL, jinja_none()), "what is looked for");
    int64_t found = find_last(run, self.text, part, self.text->n);
    return jinja_int(found <= 0 ? found : (int64_t)jinja_chars(run->task, jinja_cut(run->task, self.text, 0, (size_t)found)));
}

static struct jinja_value count(struct jinja_run *run, struct jinja_value self, struct jinja_call *call)
{
    const struct jinja_text *part =
        jinja_need_text(run->task, jinja_argument(run->task, call, 0, NULL, jinja_none()), "what is counted");
    int64_t n = 0;
    if (part->n == 0)
        return jinja_int((int64_t)jinja_chars(run->task, self.text) + 1);
    for (int64_t at = 0; (at = jinja_find(run->task, self.text, part, (size_t)at)) >= 0; at += (int64_t)part->n)
        n++;
    return jinja_int(n);
}

static struct jinja_value join(struct jinja_run *run, struct jinja_value self, struct jinja_call *call)
{
    struct jinja_list *items = jinja_items(run->task, jinja_argument(run->task, call, 0, NULL, jinja_none()));
    struct jinja_builder b = {.task = run->task};
    for (size_t i = 0; i < items->n; i++) {
        if (i > 0)
            jinja_put(&b, self.text);
        jinja_put(&b, jinja_need_text(run->task, items->items[i], "an item that is joined"));
    }
    return jinja_of_text(jinja_built(&b));
}

static struct jinja_value remove_end(struct jinja_run *run, struct jinja_value self, struct jinja_call *call,
                                     enum jinja_side side)
{
    struct jinja_value part = jinja_argument(run->task, call, 0, NULL, jinja_none());
    size_t n = jinja_need_text(run->task, part, "what is removed")->n;
    if (!has_end(run, self.text, part, side))
        return self;
    return jinja_of_text(side == SIDE_LEFT ? jinja_cut(run->task, self.text, n, self.text->n)
                                           : jinja_cut(run->task, self.text, 0, self.text->n - n));
}

static struct jinja_value removeprefix(struct jinja_run *run, struct jinja_value self, struct jinja_call *call)
{
    return remove_end(run, self, call, SIDE_LEFT);
}

static struct jinja_value removesuffix(struct jinja_run *run, struct jinja_value self, struct jinja_call *call)
{
    return remove_end(run, self, call, SIDE_RIGHT);
}

static struct jinja_value upper(struct jinja_run *run, struct jinja_value self, struct jinja_call *call)
{
    (void)call;
    return jinja_of_text(jinja_case(run->task, self.text, CASE_UPPER));
}

static struct jinja_value lower(struct jinja_run *run, struct jinja_value self, struct jinja_call *call)
{
    (void)call;
    return jinja_of_text(jinja_case(run->task, self.text, CASE_LOWER));
}

static struct jinja_value capitalize(struct jinja_run *run, struct jinja_value self, struct jinja_call *call)
{
    (void)call;
    return jinja_of_text(jinja_case(run->task, self.text, CASE_CAPITALIZE));
}

static struct jinja_value title(struct jinja_run *run, struct jinja_value self, struct jinja_call *call)
{
    (void)call;
    return jinja_of_text(jinja_case(run->task, self.text, CASE_TITLE_METHOD));
}

static int all_chars(const struct jinja_text *text, int (*is)(int32_t))
{
    for (size_t at = 0; at < text->n;)
        if (!is(jinja_next_char(text, &at)))
            return 0;
    return text->n > 0;
}

static struct jinja_value isspace_(struct jinja_run *run, struct jinja_value self, struct jinja_call *call)
{
    (void)run, (void)call;
    return jinja_bool(all_chars(self.text, jinja_is_space));
}

static struct jinja_value isdecimal(struct jinja_run *run, struct jinja_value self, struct jinja_call *call)
{
    (void)run, (void)call;
    return jinja_bool(all_chars(self.text, jinja_is_digit));
}

static struct jinja_value isdigit_(struct jinja_run *run, struct jinja_value self, struct jinja_call *call)
{
    (void)run, (void)call;
    return jinja_bool(all_chars(self.text, jinja_is_digit_sign));
}

static struct jinja_value isalpha_(struct jinja_run *run, struct jinja_value self, struct jinja_call *call)
{
    (void)run, (void)call;
    return jinja_bool(all_chars(self.text, jinja_is_letter));
}

static struct jinja_value isupper_(struct jinja_run *run, struct jinja_value self, struct jinja_call *call)
{
    (void)run, (void)call;
    return jinja_bool(jinja_is_case(self.text, 1));
}

static struct jinja_value islower_(struct jinja_run *run, struct jinja_value self, struct jinja_call *call)
{
    (void)run, (void)call;
    return jinja_bool(jinja_is_case(self.text, 0));
}

static struct jinja_value format(struct jinja_run *run, struct jinja_value self, struct jinja_call *call)
{
    return jinja_braces(run->task, self.text, call);
}

static struct jinja_value get(struct jinja_run *run, struct jinja_value self, struct jinja_call *call)
{
    struct jinja_value key = jinja_argument(run->task, call, 0, NULL, jinja_undefined("get's key"));
    struct jinja_value fallback = jinja_argument(run->task, call, 1, NULL, jinja_none());
    const struct jinja_value *at = jinja_dict_get(run->task, self.dict, key);
    return at ? *at : fallback;
}

static struct jinja_value keys(struct jinja_run *run, struct jinja_value self, struct jinja_call *call)
{
    (void)call;
    return jinja_of_list(JINJA_VIEW, jinja_items(run->task, self));
}

static struct jinja_value values(struct jinja_run *run, struct jinja_value self, struct jinja_call *call)
{
    struct jinja_list *out = jinja_list_new(run->task);
    (void)call;
    for (size_t i = 0; i < self.dict->n; i++)
        jinja_list_add(run->task, out, self.dict->values[i]);
    return jinja_of_list(JINJA_VIEW, out);
}

static struct jinja_value items(struct jinja_run *run, struct jinja_value self, struct jinja_call *call)
{
    struct jinja_list *out = jinja_list_new(run->task);
    (void)call;
    for (size_t i = 0; i < self.dict->n; i++) {
        struct jinja_list *pair = jinja_list_new(run->task);
        jinja_list_add(run->task, pair, self.dict->keys[i]);
        jinja_list_add(run->task, pair, self.dict->values[i]);
        jinja_list_add(run->task, out, jinja_of_list(JINJA_TUPLE, pair));
    }
    return jinja_of_list(JINJA_VIEW, out);
}

static struct jinja_value copy(struct jinja_run *run, struct jinja_value self, struct jinja_call *call)
{
    (void)run, (void)call;
    return self; /* the same object serves as its copy, as no template changes a dict or list */
}

static struct jinja_value list_count(struct jinja_run *run, struct jinja_value self, struct jinja_call *call)
{
    struct jinja_value item = jinja_argument(run->task, call, 0, NULL, jinja_none());
    int64_t n = 0;
    for (size_t i = 0; i < self.list->n; i++)
        n += jinja_equal(run->task, self.list->items[i], item);
    return jinja_int(n);
}

static struct jinja_value list_index(struct jinja_run *run, struct jinja_value self, struct jinja_call *call)
{
    struct jinja_value item = jinja_argument(run->task, call, 0, NULL, jinja_none());
    for (size_t i = 0; i < self.list->n; i++)
        if (jinja_equal(run->task, self.list->items[i], item))
            return jinja_int((int64_t)i);
    jinja_fail(run->task, "list.index(): the item is not in the list");
}

static struct jinja_value cycle(struct jinja_run *run, struct jinja_value self, struct jinja_call *call)
{
    if (call->n_positional == 0)
        jinja_fail(run->task, "loop.cycle() needs items");
    return call->positional[(size_t)self.loop->index0 % call->n_positional];
}

static struct jinja_value changed(struct jinja_run *run, struct jinja_value self, struct jinja_call *call)
{
    struct jinja_list *now = jinja_list_new(run->task), *before = self.loop->changed;
    for (size_t i = 0; i < call->n_positional; i++)
        jinja_list_add(run->task, now, call->positional[i]);
    if (before && jinja_equal(run->task, jinja_of_list(JINJA_TUPLE, before), jinja_of_list(JINJA_TUPLE, now)))
        return jinja_bool(0);
    self.loop->changed = now;
    return jinja_bool(1);
}

enum { ANY = 1000 }; /* number of arguments that stands for "any number" */

static const struct {
    enum jinja_kind of;
    const char *name;
    method *call;
    int least, most; /* fewest and most arguments that may be given without a name */
} methods[] = {
    {JINJA_TEXT, "strip", strip_both, 0, 1},
    {JINJA_TEXT, "lstrip", strip_left, 0, 1},
    {JINJA_TEXT, "rstrip", strip_right, 0, 1},
    {JINJA_TEXT, "startswith", startswith, 1, 1},
    {JINJA_TEXT, "endswith", endswith, 1, 1},
    {JINJA_TEXT, "split", split, 0, 2},
    {JINJA_TEXT, "rsplit", rsplit, 0, 2},
    {JINJA_TEXT, "partition", partition, 1, 1},
    {JINJA_TEXT, "splitlines", splitlines, 0, 1},
    {JINJA_TEXT, "replace", replace, 2, 3},
    {JINJA_TEXT, "find", find, 1, 1},
    {JINJA_TEXT, "rfind", rfind, 1, 1},
    {JINJA_TEXT, "count", count, 1, 1},
    {JINJA_TEXT, "join", join, 1, 1},
    {JINJA_TEXT, "removeprefix", removeprefix, 1, 1},
    {JINJA_TEXT, "removesuffix", removesuffix, 1, 1},
    {JINJA_TEXT, "upper", upper, 0, 0},
    {JINJA_TEXT, "lower", lower, 0, 0},
    {JINJA_TEXT, "capitalize", capitalize, 0, 0},
    {JINJA_TEXT, "title", title, 0, 0},
    {JINJA_TEXT, "isspace", isspace_, 0, 0},
    {JINJA_TEXT, "isdecimal", isdecimal, 0, 0},
    {JINJA_TEXT, "isdigit", isdigit_, 0, 0},
    {JINJA_TEXT, "isalpha", isalpha_, 0, 0},
    {JINJA_TEXT, "isupper", isupper_, 0, 0},
    {JINJA_TEXT, "islower", islower_, 0, 0},
    {JINJA_TEXT, "format", format, 0, ANY},
    {JINJA_DICT, "get", get, 1, 2},
    {JINJA_DICT, "keys", keys, 0, 0},
    {JINJA_DICT, "values", values, 0, 0},
    {JINJA_DICT, "items", items, 0, 0},
    {JINJA_DICT, "copy", copy, 0, 0},
    {JINJA_LIST, "copy", copy, 0, 0},
    {JINJA_LIST, "count", list_count, 1, 1},
    {JINJA_LIST, "index", list_index, 1, 1},
    {JINJA_TUPLE, "count", list_count, 1, 1},
    {JINJA_TUPLE, "index", list_index, 1, 1},
    {JINJA_LOOP, "cycle", cycle, 0, ANY},
    {JINJA_LOOP, "changed", changed, 0, ANY},
};

/* Makes the result of a method of a safe text safe, too, be it a text or a list of texts, as markupsafe does. */
static struct jinja_value all_safe(struct jinja_task *task, const struct jinja_text *of, struct jinja_value v)
{
    if (v.kind == JINJA_TEXT)
        return jinja_of_text(jinja_as_safe(task, of, v.text));
    for (size_t i = 0; (v.kind == JINJA_LIST || v.kind == JINJA_TUPLE) && i < v.list->n; i++)
        v.list->items[i] = all_safe(task, of, v.list->items[i]);
    return v;
}

/* Refuses inserted texts that `replace`, `join` or `format` of a safe text would escape in Jinja. */
static void check_inserted(struct jinja_run *run, const struct jinja_method *m, const struct jinja_call *call)
{
    const int replaces = strcmp(m->name, "replace") == 0;
    if (!m->self.text->safe || (!replaces && strcmp(m->name, "join") != 0 && strcmp(m->name, "format") != 0))
        return;
    for (size_t i = replaces; i < call->n_positional; i++) {
        const struct jinja_value v = call->positional[i];
        if (v.kind == JINJA_TEXT)
            jinja_check_safe(run->task, m->self.text, v.text);
        for (size_t k = 0; (v.kind == JINJA_LIST || v.kind == JINJA_TUPLE) && k < v.list->n; k++)
            if (v.list->items[k].kind == JINJA_TEXT)
                jinja_check_safe(run->task, m->self.text, v.list->items[k].text);
    }
}

struct jinja_value jinja_call_method(struct jinja_run *run, const struct jinja_method *m, struct jinja_call *call)
{
    char what[80] = "";
    strncat(strncat(strncat(what, jinja_type(m->self), 30), ".", 2), m->name, 40);
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        if (methods[i].of != m->self.kind || strcmp(methods[i].name, m->name) != 0)
            continue;
        if (call->n_positional < (size_t)methods[i].least && call->n_named == 0)
            jinja_fail(run->task, "%s() needs %d arguments", what, methods[i].least);
        if (m->self.kind == JINJA_TEXT)
            check_inserted(run, m, call);
        struct jinja_value out = methods[i].call(run, m->self, call);
        if (m->self.kind == JINJA_TEXT && m->self.text->safe)
            out = all_safe(run->task, m->self.text, out);
        if (methods[i].most < ANY || methods[i].of != JINJA_TEXT)
            jinja_arguments_end(run->task, call, what, methods[i].most);
        return out;
    }
    jinja_fail(run->task, "%s() is not supported", what);
}
