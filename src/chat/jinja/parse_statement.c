/* Parsing statements. */
#include "chat/jinja/parser.h"

#include <string.h>

static struct jinja_node *parse_statement(struct jinja_parser *p);

/* Parses statements up to a tag whose name is one of `ends`, and stops at that name; ends NULL: up to the template's end. */
static struct jinja_node *parse_until(struct jinja_parser *p, const char *const *ends)
{
    struct jinja_node *first = NULL, **last = &first;
    for (;;) {
        struct jinja_node *node;
        p->task->line = p->at->line;
        if (p->at->kind == TOKEN_END) {
            if (ends)
                jinja_fail(p->task, "the template ends before {%% %s %%}", ends[0]);
            return first;
        }
        if (p->at->kind == TOKEN_DATA) {
            node = jinja_node(p, NODE_DATA);
            node->constant = jinja_of_text(jinja_text(p->task, p->at->bytes, p->at->n, MARK_TEMPLATE));
            p->at++;
        } else if (p->at->kind == TOKEN_PRINT) {
            node = jinja_node(p, NODE_PRINT);
            p->at++;
            node->a = jinja_parse_tuple(p, 1, NULL);
            if (p->at->kind != TOKEN_PRINT_END)
                jinja_unexpected(p, "}}");
            p->at++;
        } else {
            p->at++;
            for (size_t i = 0; ends && ends[i]; i++)
                if (jinja_at_name(p, ends[i]))
                    return first;
            node = parse_statement(p);
        }
        *last = node;
        while (*last)
            last = &(*last)->next;
    }
}

static void end_tag(struct jinja_parser *p)
{
    if (p->at->kind != TOKEN_BLOCK_END)
        jinja_unexpected(p, "%}");
    p->at++;
}

/* Parses the rest of a tag, then statements up to a tag whose name is one of `ends`; takes that name and returns it. */
static const char *parse_body(struct jinja_parser *p, const char *const *ends, struct jinja_node **body)
{
    jinja_skip_operator(p, ":");
    end_tag(p);
    if (++p->depth > 200)
        jinja_fail(p->task, "statements nest deeper than 200 levels");
    *body = parse_until(p, ends);
    p->depth--;
    return p->at++->bytes;
}

static void parse_whole_body(struct jinja_parser *p, const char *end, struct jinja_node **body)
{
    const char *ends[] = {end, NULL};
    parse_body(p, ends, body);
    end_tag(p);
}

/* Parses a body in which no break or continue may leave an outer loop. */
static void parse_closed_body(struct jinja_parser *p, const char *end, struct jinja_node **body)
{
    int loops = p->loops;
    p->loops = 0;
    parse_whole_body(p, end, body);
    p->loops = loops;
}

static struct jinja_node *parse_for(struct jinja_parser *p, struct jinja_node *node)
{
    static const char *const ends[] = {"endfor", "else", NULL};
    node->kind = NODE_FOR;
    node->a = jinja_parse_target(p, "in", 0);
    if (!jinja_skip_name(p, "in"))
        jinja_unexpected(p, "'in'");
    node->b = jinja_parse_tuple(p, 0, "recursive");
    if (jinja_skip_name(p, "if"))
        node->c = jinja_parse_expression(p);
    node->flag = jinja_skip_name(p, "recursive");
    p->loops++;
    const char *end = parse_body(p, ends, &node->body);
    p->loops--;
    if (strcmp(end, "else") == 0)
        parse_whole_body(p, "endfor", &node->other);
    else
        end_tag(p);
    return node;
}

static struct jinja_node *parse_if(struct jinja_parser *p, struct jinja_node *node)
{
    static const char *const ends[] = {"endif", "elif", "else", NULL};
    struct jinja_node *at = node;
    for (;;) {
        at->kind = NODE_IF;
        at->a = jinja_parse_tuple(p, 0, NULL);
        const char *end = parse_body(p, ends, &at->body);
        if (strcmp(end, "elif") != 0) {
            if (strcmp(end, "else") == 0)
                parse_whole_body(p, "endif", &at->other);
            else
                end_tag(p);
            return node;
        }
        at = at->other = jinja_node(p, NODE_IF);
    }
}

static struct jinja_node *parse_set(struct jinja_parser *p, struct jinja_node *node)
{
    node->kind = NODE_SET;
    node->a = jinja_parse_target(p, NULL, 1);
    if (jinja_skip_operator(p, "=")) {
        node->b = jinja_parse_tuple(p, 1, NULL);
        end_tag(p);
        return node;
    }
    node->kind = NODE_SET_BLOCK;
    node->b = jinja_parse_filters(p, NULL);
    parse_closed_body(p, "endset", &node->body);
    return node;
}

static void parse_params(struct jinja_parser *p, struct jinja_node *node)
{
    size_t room = 0;
    jinja_expect_operator(p, "(");
    while (!jinja_at_operator(p, ")")) {
        struct jinja_param param = {.name = jinja_expect_name(p, "a parameter's name")};
        param.id = jinja_name_id(p->task, p->names, param.name);
        if (jinja_skip_operator(p, "="))
            param.fallback = jinja_parse_expression(p);
        else if (node->n_params > 0 && node->params[node->n_params - 1].fallback)
            jinja_unexpected(p, "a default, as the parameter before has one");
        node->params = jinja_grow(p->task, node->params, node->n_params, 1, sizeof param, &room);
        node->params[node->n_params++] = param;
        if (!jinja_at_operator(p, ")"))
            jinja_expect_operator(p, ",");
    }
    jinja_expect_operator(p, ")");
}

static struct jinja_node *parse_macro(struct jinja_parser *p, struct jinja_node *node)
{
    node->kind = NODE_MACRO;
    node->name = jinja_expect_name(p, "a macro's name");
    node->id = jinja_name_id(p->task, p->names, node->name);
    parse_params(p, node);
    parse_closed_body(p, "endmacro", &node->body);
    return node;
}

static struct jinja_node *parse_call_block(struct jinja_parser *p, struct jinja_node *node)
{
    node->kind = NODE_CALL_BLOCK;
    node->name = "caller";
    if (jinja_at_operator(p, "("))
        parse_params(p, node);
    node->a = jinja_parse_expression(p);
    if (node->a->kind != NODE_CALL)
        jinja_unexpected(p, "a call");
    parse_closed_body(p, "endcall", &node->body);
    return node;
}

static struct jinja_node *parse_filter_block(struct jinja_parser *p, struct jinja_node *node)
{
    node->kind = NODE_FILTER_BLOCK;
    node->b = jinja_parse_filters(p, jinja_parse_filter(p, NULL));
    parse_closed_body(p, "endfilter", &node->body);
    return node;
}

static struct jinja_node *parse_generation(struct jinja_parser *p, struct jinja_node *node)
{
    node->kind = NODE_GENERATION;
    p->generations++;
    parse_closed_body(p, "endgeneration", &node->body);
    return node;
}

static struct jinja_node *parse_with(struct jinja_parser *p, struct jinja_node *node)
{
    node->kind = NODE_WITH;
    while (p->at->kind != TOKEN_BLOCK_END) {
        if (node->n_items > 0)
            jinja_expect_operator(p, ",");
        jinja_node_add(p, node, jinja_parse_target(p, NULL, 0));
        jinja_expect_operator(p, "=");
        jinja_node_add(p, node, jinja_parse_expression(p));
    }
    parse_whole_body(p, "endwith", &node->body);
    return node;
}

static struct jinja_node *parse_print(struct jinja_parser *p, struct jinja_node *node)
{
    struct jinja_node *at = node;
    for (;;) {
        at->kind = NODE_PRINT;
        at->a = jinja_parse_expression(p);
        if (!jinja_skip_operator(p, ","))
            break;
        at = at->next = jinja_node(p, NODE_PRINT);
    }
    end_tag(p);
    return node;
}

static struct jinja_node *parse_jump(struct jinja_parser *p, struct jinja_node *node)
{
    node->kind = strcmp(node->name, "break") == 0 ? NODE_BREAK : NODE_CONTINUE;
    if (p->loops == 0)
        jinja_fail(p->task, "{%% %s %%} outside of a loop", node->name);
    end_tag(p);
    return node;
}

static const struct {
    const char *name;
    struct jinja_node *(*parse)(struct jinja_parser *, struct jinja_node *);
} statements[] = {
    {"for", parse_for},
    {"if", parse_if},
    {"set", parse_set},
    {"macro", parse_macro},
    {"call", parse_call_block},
    {"filter", parse_filter_block},
    {"generation", parse_generation},
    {"with", parse_with},
    {"print", parse_print},
    {"break", parse_jump},
    {"continue", parse_jump},
};

/* Parses a statement behind "{%"; tags that end a body are not taken here. */
static struct jinja_node *parse_statement(struct jinja_parser *p)
{
    struct jinja_node *node = jinja_node(p, NODE_BREAK);
    node->name = jinja_expect_name(p, "a statement's name");
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++)
        if (strcmp(node->name, statements[i].name) == 0)
            return statements[i].parse(p, node);
    jinja_fail(p->task,
               strncmp(node->name, "end", 3) == 0 || strcmp(node->name, "else") == 0 || strcmp(node->name, "elif") == 0
                   ? "{%% %s %%} closes nothing"
                   : "{%% %s %%} is not supported",
               node->name);
}

struct jinja_node *jinja_parse(struct jinja_parser *p)
{
    return parse_until(p, NULL);
}
