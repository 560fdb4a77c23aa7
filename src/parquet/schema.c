/* Making the tree of a Parquet file's columns. */
#include "parquet/schema.h"

#include "base/sys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 60 };

struct making {
    const char *path;
    const struct footer *f;
    struct schema *out;
    int64_t at;   /* number of the next element */
    int64_t leaf; /* number of the next leaf */
};

static enum status refuse(const struct making *m, const char *why)
{
    return status_fail(ERR_INVALID, "%s is damaged: %s", m->path, why);
}

/* Returns the type of a value that is not read; NULL: values of this type are read. */
static const char *unread_type(const struct footer_element *e)
{
    switch (e->meaning) {
    case MEANS_DECIMAL:
        return "a decimal number";
    case MEANS_DATE:
        return "a date";
    case MEANS_TIME:
        return "a time";
    case MEANS_TIMESTAMP:
        return "a timestamp";
    case MEANS_OTHER:
        return "of a type that JSON does not have";
    case MEANS_TEXT:
        return e->stored == PARQUET_BYTES ? NULL : "a text of fixed length";
    default:
        return e->stored == PARQUET_INT96                               ? "a timestamp"
               : e->stored == PARQUET_FIXED                             ? "bytes of fixed length"
               : e->stored == PARQUET_BYTES && e->meaning != MEANS_NULL ? "bytes, not marked as text"
                                                                        : NULL;
    }
}

static struct node *add(struct making *m, const struct node *n)
{
    struct node *node = &m->out->nodes[m->out->n++];
    *node = *n;
    node->first_leaf = m->leaf;
    return node;
}

static enum status make_element(struct making *m, int level, int depth, int nesting, struct node **out);

/* Makes the members of a struct. */
static enum status make_members(struct making *m, int64_t n, int level, int depth, int nesting, struct node *node)
{
    struct node **next = &node->child;
    for (int64_t i = 0; i < n; i++) {
        TRY(make_element(m, level, depth, nesting, next));
        next = &(*next)->next;
    }
    node->leaves = m->leaf - node->first_leaf;
    return OK;
}

/* Makes the value or struct of element e, whose own repetition and list have been taken into account. */
static enum status make_content(struct making *m, const struct footer_element *e, int is_optional, int level, int depth,
                                int nesting, struct node **out)
{
    const struct node n = {.kind = e->stored == PARQUET_GROUP ? NODE_STRUCT : NODE_VALUE,
                           .name = e->name,
                           .is_optional = is_optional,
                           .level = level,
                           .element = e};
    *out = add(m, &n);
    if (n.kind == NODE_STRUCT)
        return make_members(m, e->children, level, depth, nesting, *out);
    (*out)->unread = unread_type(e);
    (*out)->leaves = 1;
    m->leaf++;
    return OK;
}

/* Tells whether the repeated element of a list is itself the list's element, as older writers have it, and not a group around
 * it. */
static int is_itself_element(const struct footer_element *list, const struct footer_element *repeated)
{
    const size_t n = strlen(list->name);
    return repeated->stored != PARQUET_GROUP || repeated->children > 1 || strcmp(repeated->name, "array") == 0 ||
           (strncmp(repeated->name, list->name, n) == 0 && strcmp(repeated->name + n, "_tuple") == 0);
}

/* Makes a list or map, whose only member is the repeated element at m->at. */
static enum status make_list(struct making *m, const struct footer_element *e, int is_optional, int level, int depth, int nesting,
                             struct node **out)
{
    const struct footer_element *repeated = m->at < m->f->n_elements ? &m->f->element[m->at] : NULL;
    const int is_map = e->meaning == MEANS_MAP;
    if (!repeated || e->children != 1 || repeated->repetition != PARQUET_REPEATED ||
        (is_map && (repeated->stored != PARQUET_GROUP || repeated->children < 1 || repeated->children > 2)))
        return refuse(m, "its footer has a list or map of another form");
    m->at++;
    *out = add(m, &(struct node){.kind = is_map ? NODE_MAP : NODE_LIST,
                                 .name = e->name,
                                 .is_optional = is_optional,
                                 .level = level,
                                 .depth = depth + 1});
    struct node *list = *out;
    if (!is_map && !is_itself_element(e, repeated))
        TRY(make_element(m, level + 1, depth + 1, nesting, &list->child));
    else
        TRY(make_content(m, repeated, 0, level + 1, depth + 1, nesting, &list->child));
    list->leaves = m->leaf - list->first_leaf;
    if (is_map && (list->child->child->kind != NODE_VALUE || list->child->child->element->meaning != MEANS_TEXT))
        list->unread = "a map whose keys are no texts";
    else if (is_map && repeated->children == 1)
        list->unread = "a map without values";
    return OK;
}

static enum status make_element(struct making *m, int level, int depth, int nesting, struct node **out)
{
    if (m->at >= m->f->n_elements || nesting > DEEPEST)
        return refuse(m, "its footer has a broken schema");
    const struct footer_element *e = &m->f->element[m->at++];
    const int is_optional = e->repetition == PARQUET_OPTIONAL;
    const int is_list = e->stored == PARQUET_GROUP && (e->meaning == MEANS_LIST || e->meaning == MEANS_MAP);
    if (e->repetition == PARQUET_REPEATED) { /* a list without a group around it */
        *out = add(m, &(struct node){.kind = NODE_LIST, .name = e->name, .level = level, .depth = depth + 1});
        struct node *list = *out;
        TRY(is_list ? make_list(m, e, 0, level + 1, depth + 1, nesting + 1, &list->child)
                    : make_content(m, e, 0, level + 1, depth + 1, nesting + 1, &list->child));
        list->leaves = m->leaf - list->first_leaf;
        return OK;
    }
    return is_list ? make_list(m, e, is_optional, level + is_optional, depth, nesting + 1, out)
                   : make_content(m, e, is_optional, level + is_optional, depth, nesting + 1, out);
}

enum status schema_make(const char *path, const struct footer *f, struct schema *out)
{
    struct making m = {.path = path, .f = f, .out = out, .at = 1};
    const struct footer_element *root = f->element;
    out->n = 0;
    out->nodes =
        sys_calloc((size_t)(2 * f->n_elements), sizeof *out->nodes); /* an element makes a list and its content at most */
    if (!out->nodes)
        return status_fail(ERR_NOMEM, "out of memory: the columns of %s", path);
    struct node *rows = add(&m, &(struct node){.kind = NODE_STRUCT, .name = ""});
    enum status st = root->stored != PARQUET_GROUP ? refuse(&m, "its footer has a broken schema")
                                                   : make_members(&m, root->children, 0, 0, 0, rows);
    if (st == OK && m.at != f->n_elements)
        st = refuse(&m, "its footer has a broken schema");
    if (st != OK)
        schema_free(out);
    return st;
}

void schema_free(struct schema *s)
{
    free(s->nodes);
    *s = (struct schema){.n = 0};
}

/* Looks below the node, whose name is the first `used` bytes of name. Elements of lists have names that nobody gave them. */
static const char *find_unread(const struct node *node, char *name, size_t bytes, size_t used)
{
    const char *type = node->unread;
    for (const struct node *c = node->child; c && !type; c = c->next) {
        const int n = node->kind == NODE_STRUCT ? snprintf(name + used, bytes - used, ".%s", c->name) : 0;
        type = find_unread(c, name, bytes, used + (size_t)n < bytes ? used + (size_t)n : bytes - 1);
        if (!type)
            name[used] = 0;
    }
    return type;
}

const char *schema_unread(const struct node *node, char *name, size_t bytes)
{
    const int n = snprintf(name, bytes, "%s", node->name);
    return find_unread(node, name, bytes, (size_t)n < bytes ? (size_t)n : bytes - 1);
}
