/* A template being rendered. Private to this folder.
 *
 * Scopes are as Jinja's: bodies of loops, macros, set, filter, call, with and generation blocks have one of their own, what is
 * set in it does not leak; `if` has none. A macro sees the scope that it was defined in. */
#ifndef LTRAIN_CHAT_RUN_H
#define LTRAIN_CHAT_RUN_H

#include "chat/node.h"

struct jinja_run;

struct jinja_scope {
    struct jinja_scope *outer;
    int *ids;
    struct jinja_value *values;
    size_t n, room, values_room;
};

struct jinja_macro {
    const struct jinja_node *node;
    struct jinja_scope *scope; /* that it was defined in */
};

/* A for loop under way. */
struct jinja_loop {
    const struct jinja_node *node;
    struct jinja_scope *scope;
    struct jinja_list *items;
    size_t at;    /* of items: how many were looked at */
    int filtered; /* items pass the loop's own condition only */
    int has_ahead;
    struct jinja_value ahead, current, before;
    int64_t index0, length; /* length -1: not counted yet */
    int64_t depth0;
    struct jinja_list *changed; /* what loop.changed() was given last */
};

/* Arguments, evaluated. */
struct jinja_call {
    struct jinja_value *positional;
    size_t n_positional, room;
    const char **names; /* of named */
    struct jinja_value *named;
    size_t n_named, names_room, named_room;
    const char *used[8]; /* names that jinja_argument was asked for */
    size_t n_used;
};

struct jinja_run {
    struct jinja_task *task;
    const struct jinja_names *names;
    struct jinja_value *variables;     /* by id; kind JINJA_UNDEFINED: not given */
    int varargs, kwargs, caller, loop; /* ids of these names; -1: the template does not use it */
    struct jinja_scope *scope;
    struct jinja_builder *out;
    int64_t now;
    /* What statements give to expressions, which know none. */
    struct jinja_value (*call_macro)(struct jinja_run *, const struct jinja_macro *, struct jinja_call *);
    struct jinja_value (*call_loop)(struct jinja_run *, struct jinja_loop *, struct jinja_value items);
    int (*accepts)(struct jinja_run *, struct jinja_loop *, struct jinja_value item);
};

/* scope.c */
struct jinja_scope *jinja_scope_new(struct jinja_run *run, struct jinja_scope *outer);
void jinja_scope_set(struct jinja_run *run, struct jinja_scope *scope, int id, struct jinja_value v);
struct jinja_value jinja_look_up(struct jinja_run *run, int id);

/* call.c: argument `place` (-1: by name only) or `name`, else fallback. jinja_arguments_end: no others were given. */
struct jinja_value jinja_argument(struct jinja_task *task, struct jinja_call *call, int place, const char *name,
                                  struct jinja_value fallback);
int jinja_argument_given(const struct jinja_call *call, int place, const char *name);
/* what ("filter trim") may take `places` arguments without a name, and those with names that were asked for. */
void jinja_arguments_end(struct jinja_task *task, const struct jinja_call *call, const char *what, int places);

/* loop.c: 0: there is no further item. */
int jinja_loop_next(struct jinja_run *run, struct jinja_loop *loop, struct jinja_value *item);
struct jinja_value jinja_loop_attribute(struct jinja_run *run, struct jinja_loop *loop, const char *name);

/* access.c: v.name, v[key], v[first:end:step] */
struct jinja_value jinja_attribute(struct jinja_run *run, struct jinja_value v, const char *name);
struct jinja_value jinja_item(struct jinja_run *run, struct jinja_value v, struct jinja_value key);
struct jinja_value jinja_slice(struct jinja_run *run, struct jinja_value v, const struct jinja_value part[3]);

/* operators.c, format.c */
struct jinja_value jinja_binary(struct jinja_run *run, const char *op, struct jinja_value a, struct jinja_value b);
struct jinja_value jinja_negate(struct jinja_task *task, struct jinja_value v);
/* "..." % v, and "...".format(call) */
struct jinja_value jinja_percent(struct jinja_task *task, const struct jinja_text *format, struct jinja_value v);
struct jinja_value jinja_braces(struct jinja_task *task, const struct jinja_text *format, struct jinja_call *call);

/* methods.c, globals.c: the value of METHOD and GLOBAL called */
struct jinja_value jinja_call_method(struct jinja_run *run, const struct jinja_method *method, struct jinja_call *call);
int jinja_is_global(const char *name);
struct jinja_value jinja_call_global(struct jinja_run *run, const char *name, struct jinja_call *call);

/* filters.c, tests.c */
struct jinja_value jinja_filter(struct jinja_run *run, const char *name, struct jinja_value v, struct jinja_call *call);
int jinja_test(struct jinja_run *run, const char *name, struct jinja_value v, struct jinja_call *call);

/* eval.c, exec.c */
struct jinja_value jinja_eval(struct jinja_run *run, const struct jinja_node *node);
void jinja_eval_args(struct jinja_run *run, const struct jinja_args *args, struct jinja_call *call);
struct jinja_value jinja_eval_filter(struct jinja_run *run, const struct jinja_node *node, struct jinja_value v);
struct jinja_value jinja_call(struct jinja_run *run, struct jinja_value callee, struct jinja_call *call);
void jinja_exec(struct jinja_run *run, const struct jinja_node *first);

/* json.c: json.dumps, and the other way. mark: of all strings in it. */
struct jinja_json_style {
    int ascii, sort;
    const struct jinja_text *indent, *between, *colon; /* indent NULL: on one line */
};
void jinja_put_json(struct jinja_builder *b, struct jinja_value v, const struct jinja_json_style *style, int level);

#endif
