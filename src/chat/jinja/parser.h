/* Parsing tokens into a tree. Private to src/chat. */
#ifndef LTRAIN_CHAT_JINJA_PARSER_H
#define LTRAIN_CHAT_JINJA_PARSER_H

#include "chat/jinja/lexer.h"
#include "chat/jinja/node.h"

struct jinja_parser {
    struct jinja_task *task;
    const struct jinja_token *at;
    struct jinja_names *names;
    int depth;
    int loops;       /* number of for loops around the current statement, not counting those outside of its macro */
    int generations; /* number of {% generation %} blocks found so far */
};

/* Parses a whole template, and returns the first of its statements. A construct that is not understood ends the task. */
struct jinja_node *jinja_parse(struct jinja_parser *p);

/* Parses an expression, for statements (parse_expression.c). */
struct jinja_node *jinja_parse_expression(struct jinja_parser *p);
/* Parses an expression, or a tuple if there are commas. until: a name at which the tuple ends ("in"); NULL: none. */
struct jinja_node *jinja_parse_tuple(struct jinja_parser *p, int with_condition, const char *until);
/* Parses a target of an assignment: a name, a tuple of names, or (with_members) name.attribute of a namespace. */
struct jinja_node *jinja_parse_target(struct jinja_parser *p, const char *until, int with_members);
struct jinja_node *jinja_parse_filters(struct jinja_parser *p, struct jinja_node *of);
struct jinja_node *jinja_parse_filter(struct jinja_parser *p, struct jinja_node *of); /* starts at the filter's name */

struct jinja_node *jinja_node(struct jinja_parser *p, enum jinja_node_kind kind);
void jinja_node_add(struct jinja_parser *p, struct jinja_node *list, struct jinja_node *item);
int jinja_name_id(struct jinja_task *task, struct jinja_names *names, const char *name);
int jinja_at_operator(const struct jinja_parser *p, const char *op);
int jinja_at_name(const struct jinja_parser *p, const char *name);
int jinja_skip_operator(struct jinja_parser *p, const char *op);
int jinja_skip_name(struct jinja_parser *p, const char *name);
void jinja_expect_operator(struct jinja_parser *p, const char *op);
const char *jinja_expect_name(struct jinja_parser *p, const char *what);
_Noreturn void jinja_unexpected(struct jinja_parser *p, const char *expected);

#endif
