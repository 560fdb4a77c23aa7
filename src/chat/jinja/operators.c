/* Arithmetic, and joining and repeating of texts and lists. */
#include "chat/jinja/run.h"

#include <math.h>
#include <string.h>

static _Noreturn void refuse(struct jinja_task *task, const char *op, struct jinja_value a, struct jinja_value b)
{
    if (a.kind == JINJA_UNDEFINED || b.kind == JINJA_UNDEFINED)
        jinja_fail_undefined(task, a.kind == JINJA_UNDEFINED ? a : b);
    jinja_fail(task, "%s %s %s is not possible", jinja_type(a), op, jinja_type(b));
}

static _Noreturn void overflow(struct jinja_task *task)
{
    jinja_fail(task, "a number does not fit in 64 bits");
}

static struct jinja_value join_texts(struct jinja_task *task, const struct jinja_text *a, const struct jinja_text *b)
{
    struct jinja_builder out = {.task = task};
    jinja_check_safe(task, a, b);
    jinja_check_safe(task, b, a);
    jinja_put(&out, a);
    jinja_put(&out, b);
    struct jinja_text *sum = jinja_built(&out);
    sum->safe = a->safe || b->safe;
    return jinja_of_text(sum);
}

static struct jinja_value add(struct jinja_task *task, struct jinja_value a, struct jinja_value b)
{
    if (a.kind == JINJA_TEXT && b.kind == JINJA_TEXT)
        return join_texts(task, a.text, b.text);
    if (a.kind != b.kind || (a.kind != JINJA_LIST && a.kind != JINJA_TUPLE))
        refuse(task, "+", a, b);
    struct jinja_list *out = jinja_list_new(task);
    for (size_t i = 0; i < a.list->n; i++)
        jinja_list_add(task, out, a.list->items[i]);
    for (size_t i = 0; i < b.list->n; i++)
        jinja_list_add(task, out, b.list->items[i]);
    return jinja_of_list(a.kind, out);
}

static struct jinja_value repeat(struct jinja_task *task, struct jinja_value a, struct jinja_value b)
{
    struct jinja_value what = jinja_is_number(a) ? b : a, times = jinja_is_number(a) ? a : b;
    if (!jinja_is_number(times) || times.kind == JINJA_FLOAT ||
        (what.kind != JINJA_TEXT && what.kind != JINJA_LIST && what.kind != JINJA_TUPLE))
        refuse(task, "*", a, b);
    if (what.kind == JINJA_TEXT) {
        struct jinja_builder out = {.task = task};
        for (int64_t i = 0; i < times.i && what.text->n > 0; i++) {
            jinja_step(task, 1);
            jinja_put(&out, what.text);
        }
        return jinja_of_text(jinja_as_safe(task, what.text, jinja_built(&out)));
    }
    struct jinja_list *out = jinja_list_new(task);
    for (int64_t i = 0; i < times.i && what.list->n > 0; i++)
        for (size_t j = 0; j < what.list->n; j++)
            jinja_list_add(task, out, what.list->items[j]);
    return jinja_of_list(what.kind, out);
}

static struct jinja_value power(struct jinja_task *task, struct jinja_value a, struct jinja_value b)
{
    if (a.kind == JINJA_FLOAT || b.kind == JINJA_FLOAT || b.i < 0)
        return jinja_float(pow(jinja_number(a), jinja_number(b)));
    int64_t out = 1, base = a.i;
    for (int64_t i = b.i; i > 0; i >>= 1) { /* by squaring */
        if ((i & 1) && __builtin_mul_overflow(out, base, &out))
            overflow(task);
        if (i > 1 && __builtin_mul_overflow(base, base, &base))
            overflow(task);
    }
    return jinja_int(out);
}

/* Divides a by b. // and % round toward minus infinity, so that a remainder has the divisor's sign, as in Python. */
static struct jinja_value divide(struct jinja_task *task, const char *op, struct jinja_value a, struct jinja_value b)
{
    if (jinja_number(b) == 0.0)
        jinja_fail(task, "division by zero");
    if (op[0] == '/' && op[1] == 0)
        return jinja_float(jinja_number(a) / jinja_number(b));
    if (a.kind == JINJA_FLOAT || b.kind == JINJA_FLOAT) {
        double x = jinja_number(a), y = jinja_number(b), rest = fmod(x, y);
        rest = rest == 0.0 ? copysign(0.0, y) : (rest < 0.0) != (y < 0.0) ? rest + y : rest;
        return jinja_float(op[0] == '%' ? rest : floor((x - rest) / y + 0.5));
    }
    if (a.i == INT64_MIN && b.i == -1)
        overflow(task);
    int64_t rest = a.i % b.i;
    rest = rest != 0 && (rest < 0) != (b.i < 0) ? rest + b.i : rest;
    return jinja_int(op[0] == '%' ? rest : (a.i - rest) / b.i);
}

static struct jinja_value calculate(struct jinja_task *task, const char *op, struct jinja_value a, struct jinja_value b)
{
    int real = a.kind == JINJA_FLOAT || b.kind == JINJA_FLOAT, wrong = 0;
    double x = jinja_number(a), y = jinja_number(b);
    int64_t out = 0;
    if (strcmp(op, "**") == 0)
        return power(task, a, b);
    switch (op[0]) {
    case '+':
        wrong = !real && __builtin_add_overflow(a.i, b.i, &out);
        x += y;
        break;
    case '-':
        wrong = !real && __builtin_sub_overflow(a.i, b.i, &out);
        x -= y;
        break;
    case '*':
        wrong = !real && __builtin_mul_overflow(a.i, b.i, &out);
        x *= y;
        break;
    default:
        return divide(task, op, a, b);
    }
    if (wrong)
        overflow(task);
    return real ? jinja_float(x) : jinja_int(out);
}

struct jinja_value jinja_binary(struct jinja_run *run, const char *op, struct jinja_value a, struct jinja_value b)
{
    if (jinja_is_number(a) && jinja_is_number(b))
        return calculate(run->task, op, a, b);
    if (op[0] == '+')
        return add(run->task, a, b);
    if (strcmp(op, "*") == 0)
        return repeat(run->task, a, b);
    if (op[0] == '%' && a.kind == JINJA_TEXT)
        return jinja_percent(run->task, a.text, b);
    refuse(run->task, op, a, b);
}

struct jinja_value jinja_negate(struct jinja_task *task, struct jinja_value v)
{
    if (v.kind == JINJA_UNDEFINED)
        jinja_fail_undefined(task, v);
    if (!jinja_is_number(v))
        jinja_fail(task, "a %s has no sign", jinja_type(v));
    if (v.kind == JINJA_FLOAT)
        return jinja_float(-v.f);
    if (v.i == INT64_MIN)
        overflow(task);
    return jinja_int(-v.i);
}
