/* Filters that give text or numbers. */
#include "chat/jinja/filters.h"

#include "chat/jinja/methods.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct jinja_value filter_tojson(struct jinja_run *run, struct jinja_value v, struct jinja_call *call)
{
    struct jinja_task *task = run->task;
    struct jinja_value indent = jinja_argument(task, call, 1, "indent", jinja_none());
    struct jinja_value separators = jinja_argument(task, call, 2, "separators", jinja_none());
    struct jinja_json_style style = {.ascii = jinja_truth(jinja_argument(task, call, 0, "ensure_ascii", jinja_bool(0))),
                                     .sort = jinja_truth(jinja_argument(task, call, 3, "sort_keys", jinja_bool(0)))};
    if (indent.kind == JINJA_TEXT) {
        style.indent = indent.text;
    } else if (indent.kind != JINJA_NONE) {
        struct jinja_value space = jinja_of_text(jinja_literal(task, " "));
        style.indent = jinja_binary(run, "*", space, jinja_int(jinja_need_int(task, indent, "tojson's indent"))).text;
    }
    style.between = jinja_literal(task, style.indent ? "," : ", ");
    style.colon = jinja_literal(task, ": ");
    if (separators.kind != JINJA_NONE) {
        struct jinja_list *two = jinja_items(task, separators);
        if (two->n != 2)
            jinja_fail(task, "tojson's separators are two");
        style.between = jinja_need_text(task, two->items[0], "tojson's separator");
        style.colon = jinja_need_text(task, two->items[1], "tojson's separator");
    }
    struct jinja_builder b = {.task = task};
    jinja_put_json(&b, v, &style, 0);
    return jinja_of_text(jinja_built(&b));
}

struct jinja_value filter_string(struct jinja_run *run, struct jinja_value v, struct jinja_call *call)
{
    (void)call;
    return jinja_of_text(jinja_string(run->task, v));
}

struct jinja_value filter_safe(struct jinja_run *run, struct jinja_value v, struct jinja_call *call)
{
    const struct jinja_text *text = jinja_string(run->task, v);
    struct jinja_text *safe = jinja_cut(run->task, text, 0, text->n);
    (void)call;
    safe->safe = 1;
    return jinja_of_text(safe);
}

struct jinja_value filter_trim(struct jinja_run *run, struct jinja_value v, struct jinja_call *call)
{
    struct jinja_value chars = jinja_argument(run->task, call, 0, "chars", jinja_none());
    const struct jinja_text *text = jinja_string(run->task, v);
    return jinja_of_text(jinja_as_safe(run->task, text, jinja_strip(run->task, text, chars, SIDE_BOTH)));
}

/* Changes the case of letters as a method of Python's str does. The result is a safe text if v is. */
static struct jinja_value change_case(struct jinja_run *run, struct jinja_value v, enum jinja_casing casing)
{
    const struct jinja_text *text = jinja_string(run->task, v);
    return jinja_of_text(jinja_as_safe(run->task, text, jinja_case(run->task, text, casing)));
}

struct jinja_value filter_upper(struct jinja_run *run, struct jinja_value v, struct jinja_call *call)
{
    (void)call;
    return change_case(run, v, CASE_UPPER);
}

struct jinja_value filter_lower(struct jinja_run *run, struct jinja_value v, struct jinja_call *call)
{
    (void)call;
    return change_case(run, v, CASE_LOWER);
}

struct jinja_value filter_capitalize(struct jinja_run *run, struct jinja_value v, struct jinja_call *call)
{
    (void)call;
    return change_case(run, v, CASE_CAPITALIZE);
}

struct jinja_value filter_title(struct jinja_run *run, struct jinja_value v, struct jinja_call *call)
{
    (void)call;
    return jinja_of_text(jinja_case(run->task, jinja_string(run->task, v), CASE_TITLE_FILTER));
}

struct jinja_value filter_replace(struct jinja_run *run, struct jinja_value v, struct jinja_call *call)
{
    struct jinja_task *task = run->task;
    const struct jinja_text *from = jinja_string(task, jinja_argument(task, call, 0, "old", jinja_undefined("old")));
    const struct jinja_text *to = jinja_string(task, jinja_argument(task, call, 1, "new", jinja_undefined("new")));
    struct jinja_value times = jinja_argument(task, call, 2, "count", jinja_none());
    if (!jinja_argument_given(call, 0, "old") || !jinja_argument_given(call, 1, "new"))
        jinja_fail(task, "filter replace needs two arguments");
    return jinja_of_text(jinja_replace(task, jinja_string(task, v), from, to,
                                       times.kind == JINJA_NONE ? -1 : jinja_need_int(task, times, "count")));
}

struct jinja_value filter_indent(struct jinja_run *run, struct jinja_value v, struct jinja_call *call)
{
    struct jinja_task *task = run->task;
    struct jinja_value width = jinja_argument(task, call, 0, "width", jinja_int(4));
    int first = jinja_truth(jinja_argument(task, call, 1, "first", jinja_bool(0)));
    int blank = jinja_truth(jinja_argument(task, call, 2, "blank", jinja_bool(0)));
    if (width.kind != JINJA_TEXT)
        width = jinja_binary(run, "*", jinja_of_text(jinja_literal(task, " ")),
                             jinja_int(jinja_need_int(task, width, "indent's width")));
    struct jinja_value with_end =
        jinja_binary(run, "+", v, jinja_of_text(jinja_literal(task, "\n"))); /* Jinja adds a newline at the end */
    struct jinja_list *lines = jinja_lines(task, jinja_need_text(task, with_end, "what is indented"), 0);
    struct jinja_builder b = {.task = task};
    for (size_t i = 0; i < lines->n; i++) {
        if (i > 0)
            jinja_put_string(&b, "\n");
        if (i > 0 ? blank || lines->items[i].text->n > 0 : first)
            jinja_put(&b, width.text);
        jinja_put(&b, lines->items[i].text);
    }
    return jinja_of_text(jinja_as_safe(task, with_end.text, jinja_built(&b)));
}

/* Reads a number that is the whole text, except for spaces around it. Returns 0 if the text is no number. */
static int read_number(struct jinja_task *task, const struct jinja_text *text, int64_t base, int whole, struct jinja_value *out)
{
    const struct jinja_text *bare = jinja_strip(task, text, jinja_none(), SIDE_BOTH);
    char *copy = jinja_copy(task, bare->bytes, bare->n), *end;
    if (bare->n == 0 || strchr(" \t\n", copy[0]) || (!whole && strpbrk(copy, "xXpP(")))
        return 0;
    for (size_t at = 0; at < bare->n;) {
        const int32_t c = jinja_next_char(bare, &at);
        if (c > 127 && jinja_is_digit(c))
            jinja_fail(task, "a number in other digits than 0 to 9 is not supported");
    }
    errno = 0;
    if (whole)
        *out = jinja_int(strtoll(copy, &end, (int)base));
    else
        *out = jinja_float(strtod(copy, &end));
    if (errno == ERANGE && whole)
        jinja_fail(task, "%.40s does not fit in 64 bits", copy);
    return end == copy + bare->n;
}

struct jinja_value filter_int(struct jinja_run *run, struct jinja_value v, struct jinja_call *call)
{
    struct jinja_value fallback = jinja_argument(run->task, call, 0, "default", jinja_int(0)), out = fallback;
    int64_t base = jinja_need_int(run->task, jinja_argument(run->task, call, 1, "base", jinja_int(10)), "int's base");
    if (base != 0 && (base < 2 || base > 36))
        jinja_fail(run->task, "int's base must be 0 or 2 to 36");
    if (v.kind == JINJA_UNDEFINED)
        jinja_fail_undefined(run->task, v);
    if (v.kind == JINJA_INT || v.kind == JINJA_BOOL)
        return jinja_int(v.i);
    if (v.kind == JINJA_TEXT && read_number(run->task, v.text, base, 1, &out))
        return out;
    if (v.kind == JINJA_FLOAT || (v.kind == JINJA_TEXT && read_number(run->task, v.text, 10, 0, &out))) {
        double f = v.kind == JINJA_FLOAT ? v.f : out.f;
        if (isnan(f) || isinf(f))
            return fallback;
        if (fabs(f) >= 9.2e18)
            jinja_fail(run->task, "a number does not fit in 64 bits");
        return jinja_int((int64_t)f);
    }
    return fallback;
}

struct jinja_value filter_float(struct jinja_run *run, struct jinja_value v, struct jinja_call *call)
{
    struct jinja_value fallback = jinja_argument(run->task, call, 0, "default", jinja_float(0.0)), out = fallback;
    if (v.kind == JINJA_UNDEFINED)
        jinja_fail_undefined(run->task, v);
    if (jinja_is_number(v))
        return jinja_float(jinja_number(v));
    return v.kind == JINJA_TEXT && read_number(run->task, v.text, 10, 0, &out) ? out : fallback;
}

static void need_number(struct jinja_run *run, struct jinja_value v, const char *filter)
{
    if (v.kind == JINJA_UNDEFINED)
        jinja_fail_undefined(run->task, v);
    if (!jinja_is_number(v))
        jinja_fail(run->task, "filter %s takes a number, not a %s", filter, jinja_type(v));
}

struct jinja_value filter_abs(struct jinja_run *run, struct jinja_value v, struct jinja_call *call)
{
    (void)call;
    need_number(run, v, "abs");
    if (v.kind == JINJA_FLOAT)
        return jinja_float(fabs(v.f));
    return v.i < 0 ? jinja_negate(run->task, v) : jinja_int(v.i);
}

struct jinja_value filter_round(struct jinja_run *run, struct jinja_value v, struct jinja_call *call)
{
    struct jinja_value method = jinja_argument(run->task, call, 1, "method", jinja_of_text(jinja_literal(run->task, "common")));
    int64_t digits =
        jinja_need_int(run->task, jinja_argument(run->task, call, 0, "precision", jinja_int(0)), "round's precision");
    const struct jinja_text *how = jinja_need_text(run->task, method, "round's method");
    need_number(run, v, "round");
    if (digits < 0 || digits > 15)
        jinja_fail(run->task, "round to %lld digits is not supported", (long long)digits);
    double scale = pow(10.0, (double)digits), x = jinja_number(v);
    if (jinja_is(how, "ceil"))
        return jinja_float(ceil(x * scale) / scale);
    if (jinja_is(how, "floor"))
        return jinja_float(floor(x * scale) / scale);
    if (!jinja_is(how, "common"))
        jinja_fail(run->task, "round's method must be common, ceil or floor");
    if (v.kind != JINJA_FLOAT)
        return jinja_int(v.i);
    char out[400]; /* nearest decimal; ties are decided by the exact binary value, as in Python */
    snprintf(out, sizeof out, "%.*f", (int)digits, x);
    return jinja_float(strtod(out, NULL));
}

struct jinja_value filter_format(struct jinja_run *run, struct jinja_value v, struct jinja_call *call)
{
    struct jinja_list *values = jinja_list_new(run->task);
    struct jinja_dict *named = jinja_dict_new(run->task);
    for (size_t i = 0; i < call->n_positional; i++)
        jinja_list_add(run->task, values, call->positional[i]);
    for (size_t i = 0; i < call->n_named; i++)
        jinja_dict_add(run->task, named, jinja_of_text(jinja_literal(run->task, call->names[i])), call->named[i]);
    if (call->n_named > 0 && call->n_positional > 0)
        jinja_fail(run->task, "filter format takes values by place or by name, not both");
    call->n_named = 0;
    struct jinja_value all =
        named->n > 0 ? (struct jinja_value){.kind = JINJA_DICT, .dict = named} : jinja_of_list(JINJA_TUPLE, values);
    return jinja_percent(run->task, jinja_string(run->task, v), all);
}

struct jinja_value filter_wordcount(struct jinja_run *run, struct jinja_value v, struct jinja_call *call)
{
    const struct jinja_text *text = jinja_string(run->task, v);
    int64_t words = 0;
    int inside = 0;
    (void)call;
    for (size_t at = 0; at < text->n;) {
        int32_t c = jinja_next_char(text, &at);
        int word = jinja_is_word(c);
        words += word && !inside;
        inside = word;
    }
    return jinja_int(words);
}
