/* Opening Parquet files and reading their rows. */
#include "parquet/parquet.h"

#include "base/sys.h"
#include "parquet/column.h"
#include "parquet/footer.h"
#include "parquet/rows.h"
#include "parquet/schema.h"

#include <stdlib.h>
#include <string.h>

#define MAGIC "PAR1"
enum { MAGIC_BYTES = 4, TAIL = 8, MOST_FOOTER = 256 << 20 };

struct parquet {
    struct parquet_file file;
    struct footer footer;
    struct schema schema;
    struct column *column; /* [footer.n_leaves] */
    int64_t group;         /* number of the next group of rows */
    int64_t left;          /* rows left of the group before */
};

/* ---- opening ---- */

static enum status read_footer(struct parquet *p)
{
    const struct parquet_file *f = &p->file;
    uint8_t head[MAGIC_BYTES] = {0}, tail[TAIL] = {0};
    uint32_t n;
    if (f->bytes < MAGIC_BYTES)
        return status_fail(ERR_INVALID, "%s is no Parquet file: it has %lld bytes", f->path, (long long)f->bytes);
    TRY(f->read(f->user, head, sizeof head, 0));
    if (memcmp(head, MAGIC, MAGIC_BYTES) != 0)
        return status_fail(ERR_INVALID, "%s is no Parquet file: it does not begin with " MAGIC, f->path);
    if (f->bytes >= MAGIC_BYTES + TAIL)
        TRY(f->read(f->user, tail, sizeof tail, f->bytes - TAIL));
    if (memcmp(tail + MAGIC_BYTES, "PARE", MAGIC_BYTES) == 0)
        return status_fail(ERR_INVALID, "%s is encrypted, which is not read", f->path);
    if (memcmp(tail + MAGIC_BYTES, MAGIC, MAGIC_BYTES) != 0)
        return status_fail(ERR_INVALID, "%s is cut off, or was not written to its end: it does not end with " MAGIC, f->path);
    memcpy(&n, tail, sizeof n);
    const int64_t limit = f->bytes - TAIL - n;
    if (limit < MAGIC_BYTES || n > MOST_FOOTER)
        return status_fail(ERR_INVALID, "%s is damaged: its footer has %u bytes", f->path, n);
    uint8_t *text = sys_malloc(n + 1);
    if (!text)
        return status_fail(ERR_NOMEM, "out of memory: the footer of %s", f->path);
    enum status st = f->read(f->user, text, n, limit);
    if (st == OK)
        st = footer_read(f->path, text, n, limit, &p->footer);
    free(text);
    return st;
}

/* Sets up the columns below the node. name: of the member of the rows; depth: number of lists around. */
static void set_columns(struct parquet *p, const struct node *node, const char *name, int depth)
{
    const int is_list = node->kind == NODE_LIST || node->kind == NODE_MAP;
    if (node->kind == NODE_VALUE)
        p->column[node->first_leaf] =
            (struct column){.file = &p->file, .leaf = node, .name = name, .most_depth = depth, .dictionary = {.values = -1}};
    for (const struct node *c = node->child; c; c = c->next)
        set_columns(p, c, name, depth + is_list);
}

static enum status open_all(struct parquet *p)
{
    char name[8];
    TRY(read_footer(p));
    TRY(schema_make(p->file.path, &p->footer, &p->schema));
    p->column = sys_calloc((size_t)p->footer.n_leaves + 1, sizeof *p->column);
    if (!p->column)
        return status_fail(ERR_NOMEM, "out of memory: the columns of %s", p->file.path);
    for (struct node *n = p->schema.nodes->child; n; n = n->next) {
        n->is_left_out = schema_unread(n, name, sizeof name) != NULL;
        set_columns(p, n, n->name, 0);
    }
    return OK;
}

enum status parquet_open(const struct parquet_file *file, struct parquet **out)
{
    struct parquet *p = sys_calloc(1, sizeof *p);
    if (!p)
        return status_fail(ERR_NOMEM, "out of memory: reading %s", file->path);
    p->file = *file;
    enum status st = open_all(p);
    if (st != OK)
        parquet_close(p);
    else
        *out = p;
    return st;
}

void parquet_close(struct parquet *p)
{
    if (!p)
        return;
    for (int64_t i = 0; p->column && i < p->footer.n_leaves; i++)
        column_free(&p->column[i]);
    free(p->column);
    schema_free(&p->schema);
    footer_free(&p->footer);
    free(p);
}

/* ---- rows ---- */

/* Returns the column of that name; NULL: there is none. */
static const struct node *find(const struct parquet *p, const char *name)
{
    const struct node *n = p->schema.nodes->child;
    while (n && strcmp(n->name, name) != 0)
        n = n->next;
    return n;
}

int parquet_has(const struct parquet *p, const char *name)
{
    return find(p, name) != NULL;
}

enum status parquet_check(const struct parquet *p, const char *name)
{
    char full[200];
    const struct node *n = find(p, name);
    const char *type = n ? schema_unread(n, full, sizeof full) : NULL;
    return type ? status_fail(ERR_INVALID,
                              "%s: its column %s is %s, which is not read: write the file anew with a text in its place, or "
                              "without it",
                              p->file.path, full, type)
                : OK;
}

void parquet_select(struct parquet *p, int (*reads)(void *user, const char *name), void *user)
{
    for (struct node *n = p->schema.nodes->child; n; n = n->next)
        n->is_left_out |= !reads(user, n->name);
}

/* Goes to the next group that has rows; *got 0: there is none. */
static enum status begin_group(struct parquet *p, int *got)
{
    const struct node *rows = p->schema.nodes;
    for (*got = 1; p->left == 0; p->group++) {
        if (p->group == p->footer.n_groups) {
            *got = 0;
            return OK;
        }
        const struct footer_chunk *chunk = p->footer.chunk + p->group * p->footer.n_leaves;
        p->left = p->footer.rows[p->group];
        for (const struct node *n = rows->child; n; n = n->next)
            for (int64_t i = n->first_leaf; i < n->first_leaf + n->leaves && !n->is_left_out; i++)
                TRY(column_begin(&p->column[i], &chunk[i]));
    }
    return OK;
}

/* Makes sure that all columns below the node are at the beginning of a row, or at their end. */
static enum status check_row(struct parquet *p, const struct node *n, int depth)
{
    for (int64_t i = n->first_leaf; i < n->first_leaf + n->leaves; i++) {
        struct column *c = &p->column[i];
        TRY(column_look(c));
        if (c->depth != depth)
            return column_refuse(c, depth < 0 ? "it has more values than rows" : "a row begins within a list, or is missing");
    }
    return OK;
}

static enum status write_row(struct parquet *p, struct text_buffer *out)
{
    const char *before = "{";
    for (const struct node *n = p->schema.nodes->child; n; n = n->next) {
        int null;
        if (n->is_left_out)
            continue;
        TRY(check_row(p, n, 0));
        TRY(rows_is_null(n, p->column, &null));
        if (null) {
            TRY(rows_skip_null(n, p->column));
        } else {
            TRY(text_buffer_add(out, before, 1));
            TRY(rows_write_text(n->name, strlen(n->name), out));
            TRY(text_buffer_add(out, ":", 1));
            TRY(rows_write(n, p->column, out));
            before = ",";
        }
        if (p->left == 1)
            TRY(check_row(p, n, -1));
    }
    p->left--;
    TRY(rows_check_length(&p->file, out));
    return text_buffer_add(out, *before == '{' ? "{}\n" : "}\n", *before == '{' ? 3 : 2);
}

enum status parquet_row(struct parquet *p, struct text_buffer *out, int *got)
{
    out->n = 0;
    TRY(begin_group(p, got));
    return *got ? write_row(p, out) : OK;
}
