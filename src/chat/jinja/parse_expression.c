/* Parsing expressions, from the weakest operator to the strongest, as Jinja's own parser does. */
#include "chat/jinja/parser.h"

#include <string.h>

enum { MAX_NESTING = 250 };

static struct jinja_node *parse_unary(struct jinja_parser *p, int with_filters);
static struct jinja_node *parse_condition(struct jinja_parser *p);

static void sink(struct jinja_parser *p)
{
    p->task->line = p->at->line;
    if (++p->depth > MAX_NESTING)
        jinja_fail(p->task, "expressions nest deeper than %d levels", MAX_NESTING);
}

static struct jinja_node *two(struct jinja_parser *p, enum jinja_node_kind kind, struct jinja_node *a, struct jinja_node *b)
{
    struct jinja_node *node = jinja_node(p, kind);
    node->line = a->line;
    node->a = a;
    node->b = b;
    return node;
}

static void parse_argument(struct jinja_parser *p, struct jinja_args *args)
{
    int starred = args->star || args->star_star;
    if (jinja_skip_operator(p, "*")) {
        if (starred)
            jinja_unexpected(p, "one *, and ** last");
        args->star = parse_condition(p);
    } else if (jinja_skip_operator(p, "**")) {
        if (args->star_star)
            jinja_unexpected(p, "one **");
        args->star_star = parse_condition(p);
    } else if (p->at->kind == TOKEN_NAME && p->at[1].kind == TOKEN_OPERATOR && strcmp(p->at[1].bytes, "=") == 0) {
        if (args->star_star)
            jinja_unexpected(p, "** last");
        const char *name = p->at->bytes;
        p->at += 2;
        struct jinja_node *value = jinja_node(p, NODE_COND); /* a node of its own, as it also bears the argument's name */
        value->a = parse_condition(p);
        value->keyword = name;
        args->keyword = jinja_grow(p->task, args->keyword, args->n_keyword, 1, sizeof value, &args->keyword_room);
        args->keyword[args->n_keyword++] = value;
    } else {
        if (starred || args->n_keyword > 0)
            jinja_unexpected(p, "arguments without a name before those with one");
        args->positional = jinja_grow(p->task, args->positional, args->n_positional, 1, sizeof *args->positional, &args->room);
        args->positional[args->n_positional++] = parse_condition(p);
    }
}

static struct jinja_args *parse_args(struct jinja_parser *p)
{
    struct jinja_args *args = jinja_take(p->task, sizeof *args);
    jinja_expect_operator(p, "(");
    while (!jinja_at_operator(p, ")")) {
        parse_argument(p, args);
        if (!jinja_at_operator(p, ")"))
            jinja_expect_operator(p, ",");
    }
    jinja_expect_operator(p, ")");
    return args;
}

static struct jinja_node *parse_list(struct jinja_parser *p)
{
    struct jinja_node *list = jinja_node(p, NODE_LIST);
    jinja_expect_operator(p, "[");
    while (!jinja_at_operator(p, "]")) {
        jinja_node_add(p, list, parse_condition(p));
        if (!jinja_at_operator(p, "]"))
            jinja_expect_operator(p, ",");
    }
    jinja_expect_operator(p, "]");
    return list;
}

static struct jinja_node *parse_dict(struct jinja_parser *p)
{
    struct jinja_node *dict = jinja_node(p, NODE_DICT);
    jinja_expect_operator(p, "{");
    while (!jinja_at_operator(p, "}")) {
        jinja_node_add(p, dict, parse_condition(p));
        jinja_expect_operator(p, ":");
        jinja_node_add(p, dict, parse_condition(p));
        if (!jinja_at_operator(p, "}"))
            jinja_expect_operator(p, ",");
    }
    jinja_expect_operator(p, "}");
    return dict;
}

static struct jinja_node *constant(struct jinja_parser *p, struct jinja_value v)
{
    struct jinja_node *node = jinja_node(p, NODE_CONST);
    node->constant = v;
    return node;
}

static struct jinja_node *parse_name(struct jinja_parser *p, int with_members)
{
    const char *name = p->at->bytes;
    struct jinja_node *node;
    if (strcmp(name, "true") == 0 || strcmp(name, "True") == 0)
        node = constant(p, jinja_bool(1));
    else if (strcmp(name, "false") == 0 || strcmp(name, "False") == 0)
        node = constant(p, jinja_bool(0));
    else if (strcmp(name, "none") == 0 || strcmp(name, "None") == 0)
        node = constant(p, jinja_none());
    else
        node = jinja_node(p, NODE_NAME);
    node->name = name;
    p->at++;
    if (node->kind == NODE_CONST)
        return node;
    node->id = jinja_name_id(p->task, p->names, name);
    if (with_members && jinja_skip_operator(p, ".")) {
        struct jinja_node *member = jinja_node(p, NODE_MEMBER);
        member->a = node;
        member->name = jinja_expect_name(p, "an attribute's name");
        return member;
    }
    return node;
}

static struct jinja_node *parse_strings(struct jinja_parser *p)
{
    struct jinja_node *node = jinja_node(p, NODE_CONST);
    struct jinja_builder b = {.task = p->task};
    for (; p->at->kind == TOKEN_STRING; p->at++) /* "a" "b" is "ab" */
        jinja_put_bytes(&b, p->at->bytes, p->at->n, MARK_TEMPLATE);
    node->constant = jinja_of_text(jinja_built(&b));
    return node;
}

static struct jinja_node *parse_primary(struct jinja_parser *p, int with_members)
{
    struct jinja_node *node;
    switch (p->at->kind) {
    case TOKEN_NAME:
        return parse_name(p, with_members);
    case TOKEN_STRING:
        return parse_strings(p);
    case TOKEN_INT:
    case TOKEN_FLOAT:
        node = constant(p, p->at->kind == TOKEN_INT ? jinja_int(p->at->i) : jinja_float(p->at->f));
        p->at++;
        return node;
    default:
        break;
    }
    if (jinja_skip_operator(p, "(")) {
        if (jinja_at_operator(p, ")"))
            node = jinja_node(p, NODE_TUPLE);
        else
            node = jinja_parse_tuple(p, 1, NULL);
        jinja_expect_operator(p, ")");
        return node;
    }
    if (jinja_at_operator(p, "["))
        return parse_list(p);
    if (jinja_at_operator(p, "{"))
        return parse_dict(p);
    jinja_unexpected(p, "an expression");
}

/* Parses the inside of square brackets behind a value: an index or a slice. */
static struct jinja_node *parse_subscript(struct jinja_parser *p, struct jinja_node *of)
{
    struct jinja_node *part[3] = {NULL, NULL, NULL};
    int n = 0;
    for (;; n++) {
        if (!jinja_at_operator(p, ":") && !jinja_at_operator(p, "]"))
            part[n] = parse_condition(p);
        if (n == 2 || !jinja_skip_operator(p, ":"))
            break;
    }
    jinja_expect_operator(p, "]");
    if (n == 0) {
        if (!part[0])
            jinja_unexpected(p, "an index");
        return two(p, NODE_ITEM, of, part[0]);
    }
    struct jinja_node *slice = two(p, NODE_SLICE, of, NULL);
    for (int i = 0; i < 3; i++)
        jinja_node_add(p, slice, part[i]);
    return slice;
}

static struct jinja_node *parse_postfix(struct jinja_parser *p, struct jinja_node *node)
{
    for (;;) {
        p->task->line = p->at->line;
        if (jinja_skip_operator(p, ".")) {
            struct jinja_node *of = node;
            if (p->at->kind == TOKEN_INT) {
                node = two(p, NODE_ITEM, of, constant(p, jinja_int(p->at->i)));
                p->at++;
                continue;
            }
            node = two(p, NODE_ATTR, of, NULL);
            node->name = jinja_expect_name(p, "a name or number behind '.'");
        } else if (jinja_skip_operator(p, "[")) {
            node = parse_subscript(p, node);
        } else if (jinja_at_operator(p, "(")) {
            node = two(p, NODE_CALL, node, NULL);
            node->args = parse_args(p);
        } else {
            return node;
        }
    }
}

/* Parses the name of a filter or test, which may not have dots. */
static const char *parse_dotted(struct jinja_parser *p, const char *what)
{
    const char *name = jinja_expect_name(p, what);
    if (jinja_at_operator(p, "."))
        jinja_fail(p->task, "%s '%s.' is not supported", what, name);
    return name;
}

struct jinja_node *jinja_parse_filter(struct jinja_parser *p, struct jinja_node *of)
{
    struct jinja_node *node = jinja_node(p, NODE_FILTER);
    node->a = of;
    node->name = parse_dotted(p, "a filter");
    if (jinja_at_operator(p, "("))
        node->args = parse_args(p);
    return node;
}

struct jinja_node *jinja_parse_filters(struct jinja_parser *p, struct jinja_node *of)
{
    while (jinja_skip_operator(p, "|"))
        of = jinja_parse_filter(p, of);
    return of;
}

static struct jinja_node *parse_test(struct jinja_parser *p, struct jinja_node *of)
{
    int negated = jinja_skip_name(p, "not");
    struct jinja_node *node = two(p, NODE_TEST, of, NULL);
    node->name = parse_dotted(p, "a test");
    enum jinja_token_kind kind = p->at->kind;
    if (jinja_at_operator(p, "(")) {
        node->args = parse_args(p);
    } else if ((kind == TOKEN_NAME && !jinja_at_name(p, "else") && !jinja_at_name(p, "or") && !jinja_at_name(p, "and")) ||
               kind == TOKEN_STRING || kind == TOKEN_INT || kind == TOKEN_FLOAT || jinja_at_operator(p, "[") ||
               jinja_at_operator(p, "{")) {
        if (jinja_at_name(p, "is"))
            jinja_fail(p->task, "tests cannot be chained with 'is'");
        node->args = jinja_take(p->task, sizeof *node->args);
        node->args->positional = jinja_take(p->task, sizeof *node->args->positional);
        node->args->positional[node->args->n_positional++] = parse_postfix(p, parse_primary(p, 0));
    }
    return negated ? two(p, NODE_NOT, node, NULL) : node;
}

static struct jinja_node *parse_unary(struct jinja_parser *p, int with_filters)
{
    struct jinja_node *node;
    sink(p);
    if (jinja_at_operator(p, "-") || jinja_at_operator(p, "+")) {
        node = jinja_node(p, jinja_at_operator(p, "-") ? NODE_NEGATE : NODE_PLUS);
        p->at++;
        node->a = parse_unary(p, 0);
    } else {
        node = parse_primary(p, 0);
    }
    node = parse_postfix(p, node);
    while (with_filters) {
        if (jinja_skip_operator(p, "|")) {
            node = jinja_parse_filter(p, node);
        } else if (jinja_skip_name(p, "is")) {
            node = parse_test(p, node);
        } else if (jinja_at_operator(p, "(")) {
            node = two(p, NODE_CALL, node, NULL);
            node->args = parse_args(p);
        } else {
            break;
        }
    }
    p->depth--;
    return node;
}

/* Parses binary operators of equal precedence, grouped to the left. part: parses an operand. */
static struct jinja_node *parse_binary(struct jinja_parser *p, const char *const *ops,
                                       struct jinja_node *(*part)(struct jinja_parser *))
{
    struct jinja_node *left = part(p);
    for (size_t i = 0; ops[i];) {
        if (!jinja_skip_operator(p, ops[i])) {
            i++;
            continue;
        }
        left = two(p, NODE_BINARY, left, part(p));
        left->op = ops[i];
        i = 0;
    }
    return left;
}

static struct jinja_node *parse_operand(struct jinja_parser *p)
{
    return parse_unary(p, 1);
}

static struct jinja_node *parse_power(struct jinja_parser *p)
{
    static const char *const ops[] = {"**", NULL};
    return parse_binary(p, ops, parse_operand);
}

static struct jinja_node *parse_product(struct jinja_parser *p)
{
    static const char *const ops[] = {"*", "/", "//", "%", NULL};
    return parse_binary(p, ops, parse_power);
}

static struct jinja_node *parse_concat(struct jinja_parser *p)
{
    struct jinja_node *first = parse_product(p), *concat = NULL;
    while (jinja_skip_operator(p, "~")) {
        if (!concat) {
            concat = two(p, NODE_CONCAT, first, NULL);
            jinja_node_add(p, concat, first);
        }
        jinja_node_add(p, concat, parse_product(p));
    }
    return concat ? concat : first;
}

static struct jinja_node *parse_sum(struct jinja_parser *p)
{
    static const char *const ops[] = {"+", "-", NULL};
    return parse_binary(p, ops, parse_concat);
}

/* Takes the comparison operator at p->at; NULL: there is none. */
static const char *take_comparison(struct jinja_parser *p)
{
    static const char *const ops[] = {"==", "!=", "<=", ">=", "<", ">"};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (jinja_skip_operator(p, ops[i]))
            return ops[i];
    if (jinja_skip_name(p, "in"))
        return "in";
    if (jinja_at_name(p, "not") && p->at[1].kind == TOKEN_NAME && strcmp(p->at[1].bytes, "in") == 0) {
        p->at += 2;
        return "not in";
    }
    return NULL;
}

static struct jinja_node *parse_comparison(struct jinja_parser *p)
{
    struct jinja_node *first = parse_sum(p), *chain = NULL;
    size_t room = 0;
    for (const char *op; (op = take_comparison(p));) {
        if (!chain) {
            chain = two(p, NODE_COMPARE, first, NULL);
            jinja_node_add(p, chain, first);
        }
        chain->ops = jinja_grow(p->task, chain->ops, chain->n_items - 1, 1, sizeof *chain->ops, &room);
        chain->ops[chain->n_items - 1] = op;
        jinja_node_add(p, chain, parse_sum(p));
    }
    return chain ? chain : first;
}

static struct jinja_node *parse_not(struct jinja_parser *p)
{
    if (!jinja_at_name(p, "not"))
        return parse_comparison(p);
    sink(p);
    struct jinja_node *node = jinja_node(p, NODE_NOT);
    p->at++;
    node->a = parse_not(p);
    p->depth--;
    return node;
}

static struct jinja_node *parse_and(struct jinja_parser *p)
{
    struct jinja_node *left = parse_not(p);
    while (jinja_skip_name(p, "and"))
        left = two(p, NODE_AND, left, parse_not(p));
    return left;
}

/* Parses an expression that is no `x if y else z`: in a loop or if, these words may belong to the statement. */
static struct jinja_node *parse_or(struct jinja_parser *p)
{
    struct jinja_node *left = parse_and(p);
    while (jinja_skip_name(p, "or"))
        left = two(p, NODE_OR, left, parse_and(p));
    return left;
}

static struct jinja_node *parse_condition(struct jinja_parser *p)
{
    sink(p);
    struct jinja_node *value = parse_or(p);
    while (jinja_skip_name(p, "if")) {
        struct jinja_node *cond = two(p, NODE_COND, value, parse_or(p));
        if (jinja_skip_name(p, "else"))
            cond->c = parse_condition(p);
        value = cond;
    }
    p->depth--;
    return value;
}

struct jinja_node *jinja_parse_expression(struct jinja_parser *p)
{
    return parse_condition(p);
}

static int at_tuple_end(const struct jinja_parser *p, const char *until)
{
    return p->at->kind == TOKEN_PRINT_END || p->at->kind == TOKEN_BLOCK_END || jinja_at_operator(p, ")") ||
           (until && jinja_at_name(p, until));
}

/* Items separated by commas; they make a tuple if there is at least one comma. */
struct items {
    struct jinja_node *first, *tuple;
};

/* Adds an item, and returns 1 if a comma follows. */
static int take_item(struct jinja_parser *p, struct items *items, struct jinja_node *item)
{
    if (items->tuple)
        jinja_node_add(p, items->tuple, item);
    items->first = items->first ? items->first : item;
    if (!jinja_skip_operator(p, ","))
        return 0;
    if (!items->tuple) {
        items->tuple = jinja_node(p, NODE_TUPLE);
        jinja_node_add(p, items->tuple, items->first);
    }
    return 1;
}

static struct jinja_node *end_items(struct jinja_parser *p, const struct items *items, const char *wanted)
{
    if (!items->first)
        jinja_unexpected(p, wanted);
    return items->tuple ? items->tuple : items->first;
}

struct jinja_node *jinja_parse_tuple(struct jinja_parser *p, int with_condition, const char *until)
{
    struct items items = {NULL, NULL};
    while (!at_tuple_end(p, until))
        if (!take_item(p, &items, with_condition ? parse_condition(p) : parse_or(p)))
            break;
    return end_items(p, &items, "an expression");
}

struct jinja_node *jinja_parse_target(struct jinja_parser *p, const char *until, int with_members)
{
    struct items items = {NULL, NULL};
    while (!at_tuple_end(p, until) && !jinja_at_operator(p, "=")) {
        struct jinja_node *item;
        sink(p);
        if (jinja_skip_operator(p, "(")) {
            item = jinja_parse_target(p, NULL, with_members);
            jinja_expect_operator(p, ")");
        } else {
            item = parse_primary(p, with_members);
        }
        p->depth--;
        if (item->kind != NODE_NAME && item->kind != NODE_MEMBER && item->kind != NODE_TUPLE)
            jinja_fail(p->task, "only names can be set");
        if (!take_item(p, &items, item))
            break;
    }
    return end_items(p, &items, "a name");
}
