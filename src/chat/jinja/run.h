/* The state of a template being rendered. Private to src/chat.
 *
 * Scopes are Jinja's: bodies of loops, macros, set, filter, call, with and generation blocks have their own, and variables set
 * there do not leak; `if` has none. A macro sees the scope that it was defined in. */
#ifndef LTRAIN_CHAT_JINJA_RUN_H
#define LTRAIN_CHAT_JINJA_RUN_H

#include "chat/jinja/node.h"

struct jinja_run;

struct jinja_scope {
    struct jinja_scope *outer;
    int *ids;
    struct jinja_value *values;
    size_t n, room, values_room;
};

struct jinja_macro {
    const struct jinja_node *node;
    struct jinja_scope *scope; /* scope of its definition */
};

/* A for loop that is being executed. */
struct jinja_loop {
    const struct jinja_node *node;
    struct jinja_scope *scope;
    struct jinja_list *items;
    size_t at;    /* number of items taken so far, whether or not they pass the condition */
    int filtered; /* 1: only items that pass the loop's condition count */
    int has_ahead;
    struct jinja_value ahead, current, before;
    int64_t index0, length; /* index of the current item; number of items in all, -1: not counted yet */
    int64_t depth0;
    struct jinja_list *changed; /* arguments of the last loop.changed() */
};

/* Evaluated arguments of a call. */
struct jinja_call {
    struct jinja_value *positional;
    size_t n_positional, room;
    const char **names; /* names of the values in `named` */
    struct jinja_value *named;
    size_t n_named, names_room, named_room;
    const char *used[8]; /* names for which jinja_argument was asked */
    size_t n_used;
};

struct jinja_run {
    struct jinja_task *task;
    const struct jinja_names *names;
    struct jinja_value *variables;     /* values of the template's variables, by id; kind JINJA_UNDEFINED: not given */
    int varargs, kwargs, caller, loop; /* ids of the variables with these names; -1: the template does not use the name */
    struct jinja_scope *scope;
    struct jinja_builder *out;
    int64_t now;
    /* functions of exec.c that expressions call; pointers, as eval.c may not call exec.c directly */
    struct jinja_value (*call_macro)(struct jinja_run *, const struct jinja_macro *, struct jinja_call *);
    struct jinja_value (*call_loop)(struct jinja_run *, struct jinja_loop *, struct jinja_value items);
    int (*accepts)(struct jinja_run *, struct jinja_loop *, struct jinja_value item);
};

/* Opens a scope, sets a name in one, or looks one up (scope.c). */
struct jinja_scope *jinja_scope_new(struct jinja_run *run, struct jinja_scope *outer);
void jinja_scope_set(struct jinja_run *run, struct jinja_scope *scope, int id, struct jinja_value v);
struct jinja_value jinja_look_up(struct jinja_run *run, int id);

/* Returns the argument at `place` (-1: only by name) or named `name`; fallback if neither is given (call.c). */
struct jinja_value jinja_argument(struct jinja_task *task, struct jinja_call *call, int place, const char *name,
                                  struct jinja_value fallback);
int jinja_argument_given(const struct jinja_call *call, int place, const char *name);
/* Refuses arguments that are left over: more than `places` without a name, or names for which jinja_argument was not asked. what:
 * the callee in messages ("filter trim"). */
void jinja_arguments_end(struct jinja_task *task, const struct jinja_call *call, const char *what, int places);

/* Takes the loop's next item; returns 0 if there is none (loop.c). */
int jinja_loop_next(struct jinja_run *run, struct jinja_loop *loop, struct jinja_value *item);
struct jinja_value jinja_loop_attribute(struct jinja_run *run, struct jinja_loop *loop, const char *name);

/* Evaluates v.name, v[key] or v[first:end:step] (access.c). */
struct jinja_value jinja_attribute(struct jinja_run *run, struct jinja_value v, const char *name);
struct jinja_value jinja_item(struct jinja_run *run, struct jinja_value v, struct jinja_value key);
struct jinja_value jinja_slice(struct jinja_run *run, struct jinja_value v, const struct jinja_value part[3]);

/* Calculates a op b, or -v (operators.c). */
struct jinja_value jinja_binary(struct jinja_run *run, const char *op, struct jinja_value a, struct jinja_value b);
struct jinja_value jinja_negate(struct jinja_task *task, struct jinja_value v);
/* Formats "..." % v; jinja_braces: formats "...".format(call) (format.c). */
struct jinja_value jinja_percent(struct jinja_task *task, const struct jinja_text *format, struct jinja_value v);
struct jinja_value jinja_braces(struct jinja_task *task, const struct jinja_text *format, struct jinja_call *call);

/* Calls a value of kind METHOD or GLOBAL (methods.c, globals.c). */
struct jinja_value jinja_call_method(struct jinja_run *run, const struct jinja_method *method, struct jinja_call *call);
int jinja_is_global(const char *name);
struct jinja_value jinja_call_global(struct jinja_run *run, const char *name, struct jinja_call *call);

/* Applies a filter or a test (filters.c, tests.c). */
struct jinja_value jinja_filter(struct jinja_run *run, const char *name, struct jinja_value v, struct jinja_call *call);
int jinja_test(struct jinja_run *run, const char *name, struct jinja_value v, struct jinja_call *call);

/* Evaluates expressions (eval.c) and executes statements (exec.c). */
struct jinja_value jinja_eval(struct jinja_run *run, const struct jinja_node *node);
void jinja_eval_args(struct jinja_run *run, const struct jinja_args *args, struct jinja_call *call);
struct jinja_value jinja_eval_filter(struct jinja_run *run, const struct jinja_node *node, struct jinja_value v);
struct jinja_value jinja_call(struct jinja_run *run, struct jinja_value callee, struct jinja_call *call);
void jinja_exec(struct jinja_run *run, const struct jinja_node *first);

/* Options of json.dumps (json.c). */
struct jinja_json_style {
    int ascii, sort;
    /* texts for indenting, between items and behind keys; indent NULL: all on one line */
    const struct jinja_text *indent, *between, *colon;
};
void jinja_put_json(struct jinja_builder *b, struct jinja_value v, const struct jinja_json_style *style, int level);

#endif
