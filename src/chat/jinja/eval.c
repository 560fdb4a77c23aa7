/* Evaluating expressions. */
#include "chat/jinja/run.h"

#include <string.h>

static void add_argument(struct jinja_run *run, struct jinja_call *call, struct jinja_value v)
{
    call->positional = jinja_grow(run->task, call->positional, call->n_positional, 1, sizeof v, &call->room);
    call->positional[call->n_positional++] = v;
}

static void add_named(struct jinja_run *run, struct jinja_call *call, const char *name, struct jinja_value v)
{
    for (size_t i = 0; i < call->n_named; i++)
        if (strcmp(call->names[i], name) == 0)
            jinja_fail(run->task, "argument '%.60s' is given twice", name);
    call->names = jinja_grow(run->task, call->names, call->n_named, 1, sizeof name, &call->names_room);
    call->named = jinja_grow(run->task, call->named, call->n_named, 1, sizeof v, &call->named_room);
    call->names[call->n_named] = name;
    call->named[call->n_named++] = v;
}

void jinja_eval_args(struct jinja_run *run, const struct jinja_args *args, struct jinja_call *call)
{
    *call = (struct jinja_call){0};
    if (!args)
        return;
    for (size_t i = 0; i < args->n_positional; i++)
        add_argument(run, call, jinja_eval(run, args->positional[i]));
    for (size_t i = 0; i < args->n_keyword; i++)
        add_named(run, call, args->keyword[i]->keyword, jinja_eval(run, args->keyword[i]->a));
    if (args->star) {
        struct jinja_list *more = jinja_items(run->task, jinja_eval(run, args->star));
        for (size_t i = 0; i < more->n; i++)
            add_argument(run, call, more->items[i]);
    }
    if (!args->star_star)
        return;
    struct jinja_value more = jinja_eval(run, args->star_star);
    if (more.kind != JINJA_DICT)
        jinja_fail(run->task, "** takes a dict, not a %s", jinja_type(more));
    for (size_t i = 0; i < more.dict->n; i++) {
        const struct jinja_text *name = jinja_need_text(run->task, more.dict->keys[i], "an argument's name");
        add_named(run, call, jinja_copy(run->task, name->bytes, name->n), more.dict->values[i]);
    }
}

struct jinja_value jinja_call(struct jinja_run *run, struct jinja_value callee, struct jinja_call *call)
{
    switch (callee.kind) {
    case JINJA_MACRO:
        return run->call_macro(run, callee.macro, call);
    case JINJA_METHOD:
        return jinja_call_method(run, callee.method, call);
    case JINJA_GLOBAL:
        return jinja_call_global(run, callee.name, call);
    case JINJA_LOOP:
        if (call->n_positional != 1 || call->n_named > 0)
            jinja_fail(run->task, "loop() takes what it walks");
        return run->call_loop(run, callee.loop, call->positional[0]);
    case JINJA_UNDEFINED:
        jinja_fail_undefined(run->task, callee);
    default:
        jinja_fail(run->task, "a %s cannot be called", jinja_type(callee));
    }
}

struct jinja_value jinja_eval_filter(struct jinja_run *run, const struct jinja_node *node, struct jinja_value v)
{
    struct jinja_call call;
    jinja_sink(run->task);
    if (node->a)
        v = node->a->kind == NODE_FILTER ? jinja_eval_filter(run, node->a, v) : jinja_eval(run, node->a);
    jinja_eval_args(run, node->args, &call);
    run->task->line = node->line;
    v = jinja_filter(run, node->name, v, &call);
    jinja_rise(run->task);
    return v;
}

static struct jinja_value eval_items(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_list *list = jinja_list_new(run->task);
    for (size_t i = 0; i < node->n_items; i++)
        jinja_list_add(run->task, list, jinja_eval(run, node->items[i]));
    return jinja_of_list(node->kind == NODE_TUPLE ? JINJA_TUPLE : JINJA_LIST, list);
}

static struct jinja_value eval_dict(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_dict *dict = jinja_dict_new(run->task);
    for (size_t i = 0; i < node->n_items; i += 2) {
        struct jinja_value key = jinja_eval(run, node->items[i]);
        jinja_dict_set(run->task, dict, key, jinja_eval(run, node->items[i + 1]));
    }
    return (struct jinja_value){.kind = JINJA_DICT, .dict = dict};
}

static int holds(struct jinja_run *run, const char *op, struct jinja_value a, struct jinja_value b)
{
    if (strcmp(op, "==") == 0)
        return jinja_equal(run->task, a, b);
    if (strcmp(op, "!=") == 0)
        return !jinja_equal(run->task, a, b);
    if (strcmp(op, "in") == 0)
        return jinja_contains(run->task, b, a);
    if (strcmp(op, "not in") == 0)
        return !jinja_contains(run->task, b, a);
    int order = jinja_compare(run->task, a, b);
    if (op[0] == '<')
        return op[1] ? order <= 0 : order < 0;
    return op[1] ? order >= 0 : order > 0;
}

static struct jinja_value eval_comparison(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value left = jinja_eval(run, node->items[0]);
    for (size_t i = 1; i < node->n_items; i++) {
        struct jinja_value right = jinja_eval(run, node->items[i]);
        run->task->line = node->line;
        if (!holds(run, node->ops[i - 1], left, right))
            return jinja_bool(0);
        left = right;
    }
    return jinja_bool(1);
}

static struct jinja_value eval_concat(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_builder b = {.task = run->task};
    for (size_t i = 0; i < node->n_items; i++)
        jinja_put(&b, jinja_string(run->task, jinja_eval(run, node->items[i])));
    return jinja_of_text(jinja_built(&b));
}

static struct jinja_value eval_slice(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value of = jinja_eval(run, node->a), part[3];
    for (int i = 0; i < 3; i++)
        part[i] = node->items[i] ? jinja_eval(run, node->items[i]) : jinja_none();
    run->task->line = node->line;
    return jinja_slice(run, of, part);
}

static struct jinja_value eval_call(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_call call;
    struct jinja_value callee = jinja_eval(run, node->a);
    jinja_eval_args(run, node->args, &call);
    run->task->line = node->line;
    return jinja_call(run, callee, &call);
}

static struct jinja_value eval_test(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_call call;
    struct jinja_value v = jinja_eval(run, node->a);
    jinja_eval_args(run, node->args, &call);
    run->task->line = node->line;
    return jinja_bool(jinja_test(run, node->name, v, &call));
}

/* Evaluates operators with one or two operands. */
static struct jinja_value eval_operator(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value a = jinja_eval(run, node->a), b;
    switch (node->kind) {
    case NODE_AND:
        return jinja_truth(a) ? jinja_eval(run, node->b) : a;
    case NODE_OR:
        return jinja_truth(a) ? a : jinja_eval(run, node->b);
    case NODE_NOT:
        return jinja_bool(!jinja_truth(a));
    case NODE_NEGATE:
        return jinja_negate(run->task, a);
    case NODE_PLUS:
        return jinja_negate(run->task, jinja_negate(run->task, a));
    case NODE_ITEM:
        b = jinja_eval(run, node->b);
        run->task->line = node->line;
        return jinja_item(run, a, b);
    default: /* NODE_BINARY */
        b = jinja_eval(run, node->b);
        run->task->line = node->line;
        return jinja_binary(run, node->op, a, b);
    }
}

static struct jinja_value eval_other(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value of;
    switch (node->kind) {
    case NODE_CONST:
        return node->constant;
    case NODE_NAME:
        return jinja_look_up(run, node->id);
    case NODE_TUPLE:
    case NODE_LIST:
        return eval_items(run, node);
    case NODE_DICT:
        return eval_dict(run, node);
    case NODE_ATTR:
        of = jinja_eval(run, node->a);
        run->task->line = node->line;
        return jinja_attribute(run, of, node->name);
    case NODE_SLICE:
        return eval_slice(run, node);
    case NODE_CALL:
        return eval_call(run, node);
    case NODE_FILTER:
        return jinja_eval_filter(run, node, jinja_none());
    case NODE_TEST:
        return eval_test(run, node);
    case NODE_CONCAT:
        return eval_concat(run, node);
    case NODE_COMPARE:
        return eval_comparison(run, node);
    case NODE_COND:
        if (jinja_truth(jinja_eval(run, node->b)))
            return jinja_eval(run, node->a);
        return node->c ? jinja_eval(run, node->c) : jinja_undefined("the value of an `if` without `else`");
    default:
        return eval_operator(run, node);
    }
}

struct jinja_value jinja_eval(struct jinja_run *run, const struct jinja_node *node)
{
    jinja_step(run->task, 1);
    jinja_sink(run->task);
    run->task->line = node->line;
    struct jinja_value v = eval_other(run, node);
    jinja_rise(run->task);
    return v;
}
