/* Executing statements. */
#include "chat/jinja/run.h"

#include <string.h>

enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

static enum flow exec_body(struct jinja_run *run, const struct jinja_node *first);

/* Assigns v to the target, in the current scope. */
static void assign(struct jinja_run *run, const struct jinja_node *target, struct jinja_value v)
{
    run->task->line = target->line;
    if (target->kind == NODE_NAME) {
        jinja_scope_set(run, run->scope, target->id, v);
    } else if (target->kind == NODE_MEMBER) {
        struct jinja_value of = jinja_look_up(run, target->a->id);
        if (of.kind != JINJA_NAMESPACE)
            jinja_fail(run->task, "'%s' is no namespace: its attributes cannot be set", target->a->name);
        jinja_dict_set(run->task, of.dict, jinja_of_text(jinja_literal(run->task, target->name)), v);
    } else {
        struct jinja_list *items = v.kind == JINJA_UNDEFINED ? NULL : jinja_items(run->task, v);
        if (!items || items->n != target->n_items)
            jinja_fail(run->task, "%zu names are set from %zu values", target->n_items, items ? items->n : 0);
        for (size_t i = 0; i < items->n; i++)
            assign(run, target->items[i], items->items[i]);
    }
}

/* Executes statements in `scope`, and returns what they print. */
static struct jinja_value capture(struct jinja_run *run, struct jinja_scope *scope, const struct jinja_node *body)
{
    struct jinja_builder b = {.task = run->task}, *out = run->out;
    struct jinja_scope *before = run->scope;
    run->out = &b;
    run->scope = scope;
    exec_body(run, body);
    run->out = out;
    run->scope = before;
    return jinja_of_text(jinja_built(&b));
}

static int accepts(struct jinja_run *run, struct jinja_loop *loop, struct jinja_value item)
{
    struct jinja_scope *before = run->scope;
    run->scope = jinja_scope_new(run, loop->scope);
    assign(run, loop->node->a, item);
    int taken = jinja_truth(jinja_eval(run, loop->node->c));
    run->scope = before;
    return taken;
}

/* Runs a for loop over items; the current scope becomes the outer scope of each iteration. */
static enum flow walk(struct jinja_run *run, const struct jinja_node *node, struct jinja_value items, int64_t depth0)
{
    struct jinja_scope *outer = run->scope;
    struct jinja_loop *loop = jinja_take(run->task, sizeof *loop);
    *loop = (struct jinja_loop){.node = node,
                                .scope = outer,
                                .items = jinja_items(run->task, items),
                                .filtered = node->c != NULL,
                                .index0 = -1,
                                .length = -1,
                                .depth0 = depth0};
    struct jinja_value item;
    int finished = 0; /* 1: some iteration ran to its end */
    while (jinja_loop_next(run, loop, &item)) {
        jinja_step(run->task, 1);
        run->scope = jinja_scope_new(run, outer);
        assign(run, node->a, item);
        if (run->loop >= 0)
            jinja_scope_set(run, run->scope, run->loop, (struct jinja_value){.kind = JINJA_LOOP, .loop = loop});
        enum flow flow = exec_body(run, node->body);
        finished |= flow == FLOW_ON;
        if (flow == FLOW_BREAK)
            break;
    }
    if (!finished && node->other) { /* also after a break in the first iteration, as in Jinja */
        run->scope = jinja_scope_new(run, outer);
        enum flow flow = exec_body(run, node->other);
        run->scope = outer;
        return flow;
    }
    run->scope = outer;
    return FLOW_ON;
}

/* Runs loop(items) of a recursive loop, and returns what its body prints. */
static struct jinja_value call_loop(struct jinja_run *run, struct jinja_loop *loop, struct jinja_value items)
{
    struct jinja_builder b = {.task = run->task}, *out = run->out;
    struct jinja_scope *before = run->scope;
    if (!loop->node->flag)
        jinja_fail(run->task, "a loop that calls itself must be marked `recursive`");
    jinja_sink(run->task);
    run->out = &b;
    run->scope = loop->scope;
    walk(run, loop->node, items, loop->depth0 + 1);
    run->out = out;
    run->scope = before;
    jinja_rise(run->task);
    return jinja_of_text(jinja_built(&b));
}

/* Binds the parameters of a macro to arguments. */
static void bind(struct jinja_run *run, const struct jinja_macro *macro, struct jinja_call *call, struct jinja_scope *scope)
{
    const struct jinja_node *node = macro->node;
    struct jinja_list *rest = jinja_list_new(run->task);
    struct jinja_dict *named = jinja_dict_new(run->task);
    run->scope = scope;
    for (size_t i = 0; i < node->n_params; i++) {
        const struct jinja_param *p = &node->params[i];
        struct jinja_value v = jinja_argument(run->task, call, (int)i, p->name, jinja_undefined(p->name));
        if (p->fallback && !jinja_argument_given(call, (int)i, p->name))
            v = jinja_eval(run, p->fallback);
        jinja_scope_set(run, scope, p->id, v);
    }
    for (size_t i = node->n_params; i < call->n_positional; i++)
        jinja_list_add(run->task, rest, call->positional[i]);
    for (size_t i = 0; i < call->n_named; i++) {
        size_t j = 0;
        while (j < node->n_params && strcmp(node->params[j].name, call->names[i]) != 0)
            j++;
        if (j < node->n_params)
            continue;
        if (strcmp(call->names[i], "caller") == 0 && run->caller >= 0)
            jinja_scope_set(run, scope, run->caller, call->named[i]);
        else
            jinja_dict_add(run->task, named, jinja_of_text(jinja_literal(run->task, call->names[i])), call->named[i]);
    }
    if ((rest->n > 0 && run->varargs < 0) || (named->n > 0 && run->kwargs < 0))
        jinja_fail(run->task, "the macro %s takes no such argument", node->name);
    if (run->varargs >= 0)
        jinja_scope_set(run, scope, run->varargs, jinja_of_list(JINJA_TUPLE, rest));
    if (run->kwargs >= 0)
        jinja_scope_set(run, scope, run->kwargs, (struct jinja_value){.kind = JINJA_DICT, .dict = named});
}

static struct jinja_value call_macro(struct jinja_run *run, const struct jinja_macro *macro, struct jinja_call *call)
{
    struct jinja_scope *before = run->scope, *scope = jinja_scope_new(run, macro->scope);
    jinja_sink(run->task);
    bind(run, macro, call, scope);
    struct jinja_value out = capture(run, scope, macro->node->body);
    run->scope = before;
    jinja_rise(run->task);
    return out;
}

static struct jinja_value make_macro(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_macro *macro = jinja_take(run->task, sizeof *macro);
    *macro = (struct jinja_macro){.node = node, .scope = run->scope};
    return (struct jinja_value){.kind = JINJA_MACRO, .macro = macro};
}

static void print(struct jinja_run *run, struct jinja_value v)
{
    jinja_put(run->out, jinja_string(run->task, v));
}

/* Executes {% call(params) macro(...) %}: the block's body is passed to the macro as the argument `caller`. */
static void exec_call_block(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_call call;
    struct jinja_value callee = jinja_eval(run, node->a->a);
    jinja_eval_args(run, node->a->args, &call);
    call.names = jinja_grow(run->task, call.names, call.n_named, 1, sizeof *call.names, &call.names_room);
    call.named = jinja_grow(run->task, call.named, call.n_named, 1, sizeof *call.named, &call.named_room);
    call.names[call.n_named] = "caller";
    call.named[call.n_named++] = make_macro(run, node);
    run->task->line = node->line;
    print(run, jinja_call(run, callee, &call));
}

static void exec_generation(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_scope *before = run->scope;
    size_t first = run->out->n;
    run->scope = jinja_scope_new(run, before);
    exec_body(run, node->body);
    run->scope = before;
    jinja_put_flag(run->out, first, MARK_GENERATED);
}

static enum flow exec_with(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_scope *before = run->scope, *scope = jinja_scope_new(run, before);
    for (size_t i = 0; i < node->n_items; i += 2) {
        struct jinja_value v = jinja_eval(run, node->items[i + 1]);
        run->scope = scope;
        assign(run, node->items[i], v);
        run->scope = before;
    }
    run->scope = scope;
    enum flow flow = exec_body(run, node->body);
    run->scope = before;
    return flow;
}

static enum flow exec_if(struct jinja_run *run, const struct jinja_node *node)
{
    for (;;) {
        if (jinja_truth(jinja_eval(run, node->a)))
            return exec_body(run, node->body);
        const struct jinja_node *other = node->other;
        if (!other || other->kind != NODE_IF || other->next)
            return exec_body(run, other);
        node = other; /* an elif, handled by the loop instead of recursion, as chains of elif may be long */
    }
}

static enum flow exec_one(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value v;
    switch (node->kind) {
    case NODE_DATA:
        jinja_put(run->out, node->constant.text);
        return FLOW_ON;
    case NODE_PRINT:
        print(run, jinja_eval(run, node->a));
        return FLOW_ON;
    case NODE_FOR:
        return walk(run, node, jinja_eval(run, node->b), 0);
    case NODE_IF:
        return exec_if(run, node);
    case NODE_SET:
        assign(run, node->a, jinja_eval(run, node->b));
        return FLOW_ON;
    case NODE_SET_BLOCK:
        v = capture(run, jinja_scope_new(run, run->scope), node->body);
        assign(run, node->a, node->b ? jinja_eval_filter(run, node->b, v) : v);
        return FLOW_ON;
    case NODE_MACRO:
        jinja_scope_set(run, run->scope, node->id, make_macro(run, node));
        return FLOW_ON;
    case NODE_CALL_BLOCK:
        exec_call_block(run, node);
        return FLOW_ON;
    case NODE_FILTER_BLOCK:
        v = capture(run, jinja_scope_new(run, run->scope), node->body);
        print(run, jinja_eval_filter(run, node->b, v));
        return FLOW_ON;
    case NODE_GENERATION:
        exec_generation(run, node);
        return FLOW_ON;
    case NODE_WITH:
        return exec_with(run, node);
    default:
        return node->kind == NODE_BREAK ? FLOW_BREAK : FLOW_CONTINUE;
    }
}

static enum flow exec_body(struct jinja_run *run, const struct jinja_node *first)
{
    enum flow flow = FLOW_ON;
    jinja_sink(run->task);
    for (const struct jinja_node *node = first; node && flow == FLOW_ON; node = node->next) {
        jinja_step(run->task, 1);
        run->task->line = node->line;
        flow = exec_one(run, node);
    }
    jinja_rise(run->task);
    return flow;
}

void jinja_exec(struct jinja_run *run, const struct jinja_node *first)
{
    run->call_macro = call_macro;
    run->call_loop = call_loop;
    run->accepts = accepts;
    run->scope = jinja_scope_new(run, NULL);
    exec_body(run, first);
}
