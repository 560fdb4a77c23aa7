/* The syntax tree of a template. Private to src/chat. */
#ifndef LTRAIN_CHAT_JINJA_NODE_H
#define LTRAIN_CHAT_JINJA_NODE_H

#include "chat/jinja/value.h"

enum jinja_node_kind {
    /* Expressions. Each comment names the fields that are set, and their places in the source: */
    NODE_CONST, /* a constant: field `constant` */
    NODE_NAME,  /* a variable: fields name, id */
    NODE_TUPLE,
    NODE_LIST,   /* items */
    NODE_DICT,   /* items: key, value, key, value ... */
    NODE_ATTR,   /* a.name */
    NODE_ITEM,   /* a[b] */
    NODE_SLICE,  /* a[items[0]:items[1]:items[2]], each may be NULL */
    NODE_CALL,   /* a(args) */
    NODE_FILTER, /* a | name(args); a is NULL in a set block */
    NODE_TEST,   /* a is name(args) */
    NODE_NOT,
    NODE_NEGATE,
    NODE_PLUS,    /* +a */
    NODE_BINARY,  /* a op b */
    NODE_CONCAT,  /* items joined by ~ */
    NODE_COMPARE, /* items compared in a chain, ops[i] between items[i] and items[i + 1] */
    NODE_AND,
    NODE_OR,   /* a, b */
    NODE_COND, /* a if b else c; c may be NULL */
    /* statements */
    NODE_DATA,         /* constant, as it is */
    NODE_PRINT,        /* a */
    NODE_FOR,          /* for a in b if c: body, else other; flag: recursive */
    NODE_IF,           /* if a: body, else other; an elif is a NODE_IF in `other` */
    NODE_SET,          /* a = b */
    NODE_SET_BLOCK,    /* a = body, through the filters b if there are any */
    NODE_MACRO,        /* macro with name, id, params, body */
    NODE_CALL_BLOCK,   /* {% call(params) a %}: the body is the caller */
    NODE_FILTER_BLOCK, /* body through the filters b */
    NODE_GENERATION,   /* {% generation %} with body */
    NODE_WITH,         /* {% with %}: items are target, value, target, value ...; then body */
    NODE_BREAK,
    NODE_CONTINUE,
    /* targets of assignments, besides NODE_NAME and NODE_TUPLE */
    NODE_MEMBER, /* name.attribute of a namespace: a (the name), name (the attribute) */
};

struct jinja_args {
    struct jinja_node **positional;
    size_t n_positional, room;
    struct jinja_node **keyword; /* keyword arguments: nodes with a name (field keyword) and the value in `a` */
    size_t n_keyword, keyword_room;
    struct jinja_node *star, *star_star; /* *x, **x; or NULL */
};

struct jinja_param {
    const char *name;
    int id;
    struct jinja_node *fallback; /* default value of the parameter, or NULL */
};

struct jinja_node {
    enum jinja_node_kind kind;
    int line;
    int flag;
    const char *name;
    const char *keyword; /* name of a keyword argument */
    int id;              /* number of the variable's name: equal names have equal numbers */
    const char *op;      /* operator of NODE_BINARY */
    const char **ops;    /* operators of NODE_COMPARE */
    struct jinja_value constant;
    struct jinja_node *a, *b, *c;
    struct jinja_node **items;
    size_t n_items, room;
    struct jinja_args *args;
    struct jinja_param *params;
    size_t n_params;
    struct jinja_node *body, *other; /* first statements of both lists */
    struct jinja_node *next;         /* the statement after this one */
};

/* The names of variables in a template; a name's id is its index here. */
struct jinja_names {
    const char **at;
    size_t n, room;
};

#endif
