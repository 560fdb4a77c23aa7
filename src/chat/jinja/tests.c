/* Tests: `x is name(arguments)`. */
#include "chat/jinja/run.h"

#include "chat/jinja/methods.h"

#include <string.h>

static int is_odd(struct jinja_run *run, struct jinja_value v, struct jinja_value n)
{
    (void)n;
    return jinja_equal(run->task, jinja_binary(run, "%", v, jinja_int(2)), jinja_int(1));
}

static int is_even(struct jinja_run *run, struct jinja_value v, struct jinja_value n)
{
    (void)n;
    return jinja_equal(run->task, jinja_binary(run, "%", v, jinja_int(2)), jinja_int(0));
}

static int is_divisible(struct jinja_run *run, struct jinja_value v, struct jinja_value n)
{
    return !jinja_truth(jinja_binary(run, "%", v, n));
}

static int is_defined(struct jinja_run *run, struct jinja_value v, struct jinja_value n)
{
    (void)run, (void)n;
    return v.kind != JINJA_UNDEFINED;
}

static int is_undefined(struct jinja_run *run, struct jinja_value v, struct jinja_value n)
{
    (void)run, (void)n;
    return v.kind == JINJA_UNDEFINED;
}

static int is_none(struct jinja_run *run, struct jinja_value v, struct jinja_value n)
{
    (void)run, (void)n;
    return v.kind == JINJA_NONE;
}

static int is_boolean(struct jinja_run *run, struct jinja_value v, struct jinja_value n)
{
    (void)run, (void)n;
    return v.kind == JINJA_BOOL;
}

static int is_false(struct jinja_run *run, struct jinja_value v, struct jinja_value n)
{
    (void)run, (void)n;
    return v.kind == JINJA_BOOL && !v.i;
}

static int is_true(struct jinja_run *run, struct jinja_value v, struct jinja_value n)
{
    (void)run, (void)n;
    return v.kind == JINJA_BOOL && v.i;
}

static int is_integer(struct jinja_run *run, struct jinja_value v, struct jinja_value n)
{
    (void)run, (void)n;
    return v.kind == JINJA_INT;
}

static int is_float(struct jinja_run *run, struct jinja_value v, struct jinja_value n)
{
    (void)run, (void)n;
    return v.kind == JINJA_FLOAT;
}

static int is_number(struct jinja_run *run, struct jinja_value v, struct jinja_value n)
{
    (void)run, (void)n;
    return jinja_is_number(v);
}

static int is_string(struct jinja_run *run, struct jinja_value v, struct jinja_value n)
{
    (void)run, (void)n;
    return v.kind == JINJA_TEXT;
}

static int is_mapping(struct jinja_run *run, struct jinja_value v, struct jinja_value n)
{
    (void)run, (void)n;
    return v.kind == JINJA_DICT;
}

static int is_sequence(struct jinja_run *run, struct jinja_value v, struct jinja_value n)
{
    (void)run, (void)n;
    return v.kind == JINJA_TEXT || v.kind == JINJA_LIST || v.kind == JINJA_TUPLE || v.kind == JINJA_RANGE ||
           v.kind == JINJA_DICT || v.kind == JINJA_UNDEFINED;
}

static int is_iterable(struct jinja_run *run, struct jinja_value v, struct jinja_value n)
{
    return is_sequence(run, v, n) || v.kind == JINJA_VIEW || v.kind == JINJA_ITERATOR || v.kind == JINJA_LOOP;
}

static int is_callable(struct jinja_run *run, struct jinja_value v, struct jinja_value n)
{
    (void)run, (void)n;
    return v.kind == JINJA_MACRO || v.kind == JINJA_METHOD || v.kind == JINJA_GLOBAL || v.kind == JINJA_LOOP ||
           v.kind == JINJA_UNDEFINED;
}

static int is_lower(struct jinja_run *run, struct jinja_value v, struct jinja_value n)
{
    (void)n;
    return jinja_is_case(jinja_string(run->task, v), 0);
}

static int is_upper(struct jinja_run *run, struct jinja_value v, struct jinja_value n)
{
    (void)n;
    return jinja_is_case(jinja_string(run->task, v), 1);
}

/* Tells whether v and n are the same object in Python's sense: constants by value, others by identity. */
static int is_same(struct jinja_run *run, struct jinja_value v, struct jinja_value n)
{
    if (v.kind != n.kind)
        return 0;
    if (v.kind == JINJA_NONE || v.kind == JINJA_BOOL || v.kind == JINJA_INT)
        return v.kind == JINJA_NONE || v.i == n.i;
    if (v.kind == JINJA_TEXT || v.kind == JINJA_FLOAT)
        jinja_fail(run->task, "whether two of %s are the same object is not supported", jinja_type(v));
    return v.list == n.list;
}

static int is_in(struct jinja_run *run, struct jinja_value v, struct jinja_value n)
{
    return jinja_contains(run->task, n, v);
}

static int is_equal(struct jinja_run *run, struct jinja_value v, struct jinja_value n)
{
    return jinja_equal(run->task, v, n);
}

static int is_unequal(struct jinja_run *run, struct jinja_value v, struct jinja_value n)
{
    return !jinja_equal(run->task, v, n);
}

static int is_greater(struct jinja_run *run, struct jinja_value v, struct jinja_value n)
{
    return jinja_compare(run->task, v, n) > 0;
}

static int is_greater_equal(struct jinja_run *run, struct jinja_value v, struct jinja_value n)
{
    return jinja_compare(run->task, v, n) >= 0;
}

static int is_less(struct jinja_run *run, struct jinja_value v, struct jinja_value n)
{
    return jinja_compare(run->task, v, n) < 0;
}

static int is_less_equal(struct jinja_run *run, struct jinja_value v, struct jinja_value n)
{
    return jinja_compare(run->task, v, n) <= 0;
}

static const struct {
    const char *name;
    int (*is)(struct jinja_run *, struct jinja_value, struct jinja_value);
    size_t arguments;
} tests[] = {
    {"odd", is_odd, 0},
    {"even", is_even, 0},
    {"divisibleby", is_divisible, 1},
    {"defined", is_defined, 0},
    {"undefined", is_undefined, 0},
    {"none", is_none, 0},
    {"boolean", is_boolean, 0},
    {"false", is_false, 0},
    {"true", is_true, 0},
    {"integer", is_integer, 0},
    {"float", is_float, 0},
    {"number", is_number, 0},
    {"string", is_string, 0},
    {"mapping", is_mapping, 0},
    {"sequence", is_sequence, 0},
    {"iterable", is_iterable, 0},
    {"callable", is_callable, 0},
    {"lower", is_lower, 0},
    {"upper", is_upper, 0},
    {"sameas", is_same, 1},
    {"in", is_in, 1},
    {"==", is_equal, 1},
    {"eq", is_equal, 1},
    {"equalto", is_equal, 1},
    {"!=", is_unequal, 1},
    {"ne", is_unequal, 1},
    {">", is_greater, 1},
    {"gt", is_greater, 1},
    {"greaterthan", is_greater, 1},
    {">=", is_greater_equal, 1},
    {"ge", is_greater_equal, 1},
    {"<", is_less, 1},
    {"lt", is_less, 1},
    {"lessthan", is_less, 1},
    {"<=", is_less_equal, 1},
    {"le", is_less_equal, 1},
};

int jinja_test(struct jinja_run *run, const char *name, struct jinja_value v, struct jinja_call *call)
{
    jinja_step(run->task, 1);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (strcmp(tests[i].name, name) == 0) {
            if (call->n_positional != tests[i].arguments || call->n_named > 0)
                jinja_fail(run->task, "the test '%s' takes %zu arguments, %zu are given", name, tests[i].arguments,
                           call->n_positional + call->n_named);
            return tests[i].is(run, v, call->n_positional > 0 ? call->positional[0] : jinja_none());
        }
    jinja_fail(run->task, "the test '%.60s' is not supported", name);
}
