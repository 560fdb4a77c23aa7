/* Writing rows as JSON. */
#include "parquet/rows.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static enum status add(struct text_buffer *out, const char *text)
{
    return text_buffer_add(out, text, strlen(text));
}

enum status rows_write_text(const char *text, size_t n, struct text_buffer *out)
{
    size_t from = 0;
    TRY(add(out, "\""));
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c >= ' ' && c != '"' && c != '\\')
            continue;
        TRY(text_buffer_add(out, text + from, i - from));
        TRY(c < ' ' ? text_buffer_print(out, "\\u%04x", c) : text_buffer_print(out, "\\%c", c));
        from = i + 1;
    }
    TRY(text_buffer_add(out, text + from, n - from));
    return add(out, "\"");
}

static enum status write_real(double x, int digits, struct text_buffer *out)
{
    char text[40];
    if (!isfinite(x)) /* JSON has no such numbers */
        return add(out, "null");
    snprintf(text, sizeof text, "%.*g", digits, x);
    if (!strpbrk(text, ".e"))
        strcat(text, ".0");
    return add(out, text);
}

static enum status write_value(const struct footer_element *e, const struct value *v, struct text_buffer *out)
{
    enum { FLOAT_DIGITS = 9, DOUBLE_DIGITS = 17 }; /* digits that tell all numbers apart */
    char text[24];
    switch (e->stored) {
    case PARQUET_BOOLEAN:
        return add(out, v->integer ? "true" : "false");
    case PARQUET_FLOAT:
        return write_real(v->real, FLOAT_DIGITS, out);
    case PARQUET_DOUBLE:
        return write_real(v->real, DOUBLE_DIGITS, out);
    case PARQUET_BYTES:
        return rows_write_text((const char *)v->bytes, v->n, out);
    default:
        if (e->meaning == MEANS_UNSIGNED && e->stored == PARQUET_INT32)
            snprintf(text, sizeof text, "%" PRIu32, (uint32_t)v->integer);
        else if (e->meaning == MEANS_UNSIGNED)
            snprintf(text, sizeof text, "%" PRIu64, (uint64_t)v->integer);
        else
            snprintf(text, sizeof text, "%" PRId64, v->integer);
        return add(out, text);
    }
}

/* Looks at the next value of the node's first column, which must be there. */
static enum status look(const struct node *node, struct column *column, struct column **out)
{
    struct column *c = *out = &column[node->first_leaf];
    TRY(column_look(c));
    return c->depth < 0 ? column_refuse(c, "it ends before the others") : OK;
}

enum status rows_is_null(const struct node *node, struct column *column, int *null)
{
    struct column *c;
    TRY(look(node, column, &c));
    *null = c->level < node->level;
    return c->level < node->level - node->is_optional ? column_refuse(c, "it disagrees with the columns beside it") : OK;
}

/* Skips a value that is not there in any column below: its level is below `level`. */
static enum status skip_below(const struct node *node, int level, struct column *column)
{
    for (int64_t i = 0; i < node->leaves; i++) {
        struct column *c = &column[node->first_leaf + i];
        TRY(column_look(c));
        if (c->depth < 0 || c->level >= level)
            return column_refuse(c, "it disagrees with the columns beside it");
        TRY(column_take(c, NULL));
    }
    return OK;
}

enum status rows_skip_null(const struct node *node, struct column *column)
{
    return skip_below(node, node->level, column);
}

/* Finds whether another element of the list comes next, in which all columns below must agree. */
static enum status find_further(const struct node *list, struct column *column, int *further)
{
    for (int64_t i = 0; i < list->leaves; i++) {
        struct column *c = &column[list->first_leaf + i];
        TRY(column_look(c));
        const int is_further = c->depth == list->depth;
        if (c->depth > list->depth || (i > 0 && is_further != *further))
            return column_refuse(c, "it disagrees with the columns beside it");
        *further = is_further;
    }
    return OK;
}

static enum status write_leaf(const struct node *node, struct column *column, struct text_buffer *out)
{
    struct value v = {.n = 0};
    struct column *c;
    TRY(look(node, column, &c));
    TRY(column_take(c, &v));
    return write_value(node->element, &v, out);
}

/* Writes the members that are not null: tables have a null for each member that a row does not have. */
static enum status write_struct(const struct node *node, struct column *column, struct text_buffer *out)
{
    const char *before = "{";
    for (const struct node *m = node->child; m; m = m->next) {
        int null;
        TRY(rows_is_null(m, column, &null));
        if (null) {
            TRY(rows_skip_null(m, column));
            continue;
        }
        TRY(add(out, before));
        TRY(rows_write_text(m->name, strlen(m->name), out));
        TRY(add(out, ":"));
        TRY(rows_write(m, column, out));
        before = ",";
    }
    return add(out, *before == '{' ? "{}" : "}");
}

static enum status write_pair(const struct node *pair, struct column *column, struct text_buffer *out)
{
    const struct node *key = pair->child;
    int null;
    TRY(rows_is_null(key, column, &null));
    if (null)
        return column_refuse(&column[key->first_leaf], "a map has a key that is null");
    TRY(rows_write(key, column, out));
    TRY(add(out, ":"));
    return rows_write(key->next, column, out);
}

static enum status write_list(const struct node *node, struct column *column, struct text_buffer *out)
{
    const int is_map = node->kind == NODE_MAP;
    struct column *c;
    TRY(look(node, column, &c));
    TRY(add(out, is_map ? "{" : "["));
    if (c->level <= node->level) {
        TRY(skip_below(node, node->level + 1, column));
    } else {
        for (int further = 1, n = 0; further; n = 1) {
            TRY(n ? add(out, ",") : OK);
            TRY(is_map ? write_pair(node->child, column, out) : rows_write(node->child, column, out));
            TRY(find_further(node, column, &further));
        }
    }
    return add(out, is_map ? "}" : "]");
}

enum status rows_check_length(const struct parquet_file *file, const struct text_buffer *row)
{
    return row->n <= PARQUET_MOST_ROW
               ? OK
               : status_fail(ERR_INVALID,
                             "%s has a row of more than %zu MiB as JSON, which is more than is read: cut it into several",
                             file->path, PARQUET_MOST_ROW >> 20);
}

enum status rows_write(const struct node *node, struct column *column, struct text_buffer *out)
{
    int null;
    TRY(rows_is_null(node, column, &null));
    TRY(rows_check_length(column->file, out));
    if (null) {
        TRY(rows_skip_null(node, column));
        return add(out, "null");
    }
    switch (node->kind) {
    case NODE_VALUE:
        return write_leaf(node, column, out);
    case NODE_STRUCT:
        return write_struct(node, column, out);
    default:
        return write_list(node, column, out);
    }
}
