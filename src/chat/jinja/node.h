/* The syntax tree of a template. Private to src/chat. */
#ifndef LTRAIN_CHAT_JINJA_NODE_H
#define LTRAIN_CHAT_JINJA_NODE_H

#include "chat/jinja/value.h"

enum jinja_node_kind {
    /* expressions */
    NODE_CONST, /* constant */
    NODE_NAME,  /* name, id */
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
    NODE_IF,           /* if a: body, else other (an elif is one node there) */
    NODE_SET,          /* a = b */
    NODE_SET_BLOCK,    /* a = body, through the filters b if there are any */
    NODE_MACRO,        /* name, id, params, body */
    NODE_CALL_BLOCK,   /* call a with a caller of params, body */
    NODE_FILTER_BLOCK, /* body through the filters b */
    NODE_GENERATION,   /* body */
    NODE_WITH,         /* items: target, value, target, value ...; body */
    NODE_BREAK,
    NODE_CONTINUE,
    /* targets, beside NODE_NAME and NODE_TUPLE */
    NODE_MEMBER, /* name.attribute of a namespace: a (the name), name (the attribute) */
};

struct jinja_args {
    struct jinja_node **positional;
    size_t n_positional, room;
    struct jinja_node **keyword; /* nodes with a name (keyword) and the value in a */
    size_t n_keyword, keyword_room;
    struct jinja_node *star, *star_star; /* *x, **x; or NULL */
};

struct jinja_param {
    const char *name;
    int id;
    struct jinja_node *fallback; /* the value if none is given, or NULL */
};

struct jinja_node {
    enum jinja_node_kind kind;
    int line;
    int flag;
    const char *name;
    const char *keyword; /* name of a keyword argument */
    int id;              /* number of a name: equal names have equal ids */
    const char *op;      /* NODE_BINARY */
    const char **ops;    /* NODE_COMPARE */
    struct jinja_value constant;
    struct jinja_node *a, *b, *c;
    struct jinja_node **items;
    size_t n_items, room;
    struct jinja_args *args;
    struct jinja_param *params;
    size_t n_params;
    struct jinja_node *body, *other; /* first statements */
    struct jinja_node *next;         /* the statement after this one */
};

/* A template's names; a name's id is its place here. */
struct jinja_names {
    const char **at;
    size_t n, room;
};

#endif
