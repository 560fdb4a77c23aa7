/* Looking at tokens, and making nodes. */
#include "chat/jinja/parser.h"

#include <stdio.h>
#include <string.h>

struct jinja_node *jinja_node(struct jinja_parser *p, enum jinja_node_kind kind)
{
    struct jinja_node *node = jinja_take(p->task, sizeof *node);
    node->kind = kind;
    node->line = p->at->line;
    return node;
}

void jinja_node_add(struct jinja_parser *p, struct jinja_node *list, struct jinja_node *item)
{
    list->items = jinja_grow(p->task, list->items, list->n_items, 1, sizeof item, &list->room);
    list->items[list->n_items++] = item;
}

int jinja_name_id(struct jinja_task *task, struct jinja_names *names, const char *name)
{
    for (size_t i = 0; i < names->n; i++)
        if (strcmp(names->at[i], name) == 0)
            return (int)i;
    jinja_step(task, (int64_t)names->n);
    names->at = jinja_grow(task, names->at, names->n, 1, sizeof *names->at, &names->room);
    names->at[names->n] = name;
    return (int)names->n++;
}

int jinja_at_operator(const struct jinja_parser *p, const char *op)
{
    return p->at->kind == TOKEN_OPERATOR && strcmp(p->at->bytes, op) == 0;
}

int jinja_at_name(const struct jinja_parser *p, const char *name)
{
    return p->at->kind == TOKEN_NAME && strcmp(p->at->bytes, name) == 0;
}

int jinja_skip_operator(struct jinja_parser *p, const char *op)
{
    int there = jinja_at_operator(p, op);
    p->at += there;
    return there;
}

int jinja_skip_name(struct jinja_parser *p, const char *name)
{
    int there = jinja_at_name(p, name);
    p->at += there;
    return there;
}

_Noreturn void jinja_unexpected(struct jinja_parser *p, const char *expected)
{
    static const char *const what[] = {[TOKEN_DATA] = "text",    [TOKEN_BLOCK] = "{%",       [TOKEN_BLOCK_END] = "%}",
                                       [TOKEN_PRINT] = "{{",     [TOKEN_PRINT_END] = "}}",   [TOKEN_STRING] = "a string",
                                       [TOKEN_INT] = "a number", [TOKEN_FLOAT] = "a number", [TOKEN_END] = "the template's end"};
    char got[80];
    if (p->at->kind == TOKEN_NAME || p->at->kind == TOKEN_OPERATOR)
        snprintf(got, sizeof got, "'%.60s'", p->at->bytes);
    else
        snprintf(got, sizeof got, "%s", what[p->at->kind]);
    p->task->line = p->at->line;
    jinja_fail(p->task, "expected %s, found %s", expected, got);
}

void jinja_expect_operator(struct jinja_parser *p, const char *op)
{
    char expected[8];
    snprintf(expected, sizeof expected, "'%.3s'", op);
    if (!jinja_skip_operator(p, op))
        jinja_unexpected(p, expected);
}

const char *jinja_expect_name(struct jinja_parser *p, const char *what)
{
    if (p->at->kind != TOKEN_NAME)
        jinja_unexpected(p, what);
    return p->at++->bytes;
}
