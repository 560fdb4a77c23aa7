/* Reading the footer of a Parquet file. */
#include "parquet/footer.h"

#include "base/num.h"
#include "base/sys.h"
#include "parquet/thrift.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_ELEMENTS = 20000 };

/* A footer that is being read. */
struct reading {
    const char *path;
    struct thrift t;
    int64_t limit;
    struct footer *out;
};

static enum status refuse(const struct reading *r, const char *why)
{
    return status_fail(ERR_INVALID, "%s is damaged: %s", r->path, why);
}

/* ---- the schema ---- */

/* Returns the meaning of a converted type, which older writers give instead of a logical type. */
static enum parquet_meaning converted_meaning(int64_t type)
{
    enum {
        UTF8,
        MAP,
        MAP_KEY_VALUE,
        LIST,
        ENUM,
        DECIMAL,
        DATE,
        TIME_MS,
        TIME_US,
        STAMP_MS,
        STAMP_US,
        UINT_8,
        UINT_64 = 14,
        INT_8,
        INT_64 = 18,
        JSON
    };
    switch (type) {
    case UTF8:
    case ENUM:
    case JSON:
        return MEANS_TEXT;
    case MAP:
    case MAP_KEY_VALUE:
        return MEANS_MAP;
    case LIST:
        return MEANS_LIST;
    case DECIMAL:
        return MEANS_DECIMAL;
    case DATE:
        return MEANS_DATE;
    case TIME_MS:
    case TIME_US:
        return MEANS_TIME;
    case STAMP_MS:
    case STAMP_US:
        return MEANS_TIMESTAMP;
    default:
        return type >= UINT_8 && type <= UINT_64 ? MEANS_UNSIGNED : type >= INT_8 && type <= INT_64 ? MEANS_NOTHING : MEANS_OTHER;
    }
}

static enum parquet_meaning read_integer_type(struct thrift *t)
{
    enum { IS_SIGNED = 2 };
    struct thrift_field f = {0};
    int is_signed = 1;
    while (thrift_next(t, &f))
        if (f.id == IS_SIGNED)
            is_signed = f.type == THRIFT_TRUE;
        else
            thrift_skip(t, &f);
    return is_signed ? MEANS_NOTHING : MEANS_UNSIGNED;
}

/* Reads a logical type, a union: a struct of which one field is there. */
static enum parquet_meaning read_logical_type(struct thrift *t)
{
    enum { INTEGER = 10 };
    static const enum parquet_meaning of[] = {
        [1] = MEANS_TEXT, [2] = MEANS_MAP,  [3] = MEANS_LIST,      [4] = MEANS_TEXT,  [5] = MEANS_DECIMAL,
        [6] = MEANS_DATE, [7] = MEANS_TIME, [8] = MEANS_TIMESTAMP, [11] = MEANS_NULL, [12] = MEANS_TEXT};
    enum parquet_meaning meaning = MEANS_OTHER;
    struct thrift_field f = {0};
    while (thrift_next(t, &f))
        if (f.id == INTEGER && thrift_is_struct(t, &f)) {
            meaning = read_integer_type(t);
        } else {
            if (f.id > 0 && f.id < (int)(sizeof of / sizeof *of) && of[f.id] != MEANS_NOTHING)
                meaning = of[f.id];
            thrift_skip(t, &f);
        }
    return meaning;
}

static enum status read_element(struct reading *r, struct footer_element *e)
{
    enum { TYPE = 1, LENGTH, REPETITION, NAME, CHILDREN, CONVERTED, LOGICAL = 10 };
    struct thrift *t = &r->t;
    struct thrift_field f = {0};
    const char *name = "";
    size_t n = 0;
    int64_t stored = PARQUET_GROUP, repetition = PARQUET_REQUIRED, bytes = 0, children = 0;
    enum parquet_meaning converted = MEANS_NOTHING, logical = MEANS_NOTHING;
    while (thrift_next(t, &f)) {
        if (f.id == TYPE)
            stored = thrift_integer(t, &f);
        else if (f.id == LENGTH)
            bytes = thrift_integer(t, &f);
        else if (f.id == REPETITION)
            repetition = thrift_integer(t, &f);
        else if (f.id == NAME)
            name = thrift_binary(t, &f, &n);
        else if (f.id == CHILDREN)
            children = thrift_integer(t, &f);
        else if (f.id == CONVERTED)
            converted = converted_meaning(thrift_integer(t, &f));
        else if (f.id == LOGICAL && thrift_is_struct(t, &f))
            logical = read_logical_type(t);
        else
            thrift_skip(t, &f);
    }
    if (t->bad || !name || stored < PARQUET_GROUP || stored >= PARQUET_STORED || repetition < 0 ||
        repetition > PARQUET_REPEATED || children < 0 || children > MOST_ELEMENTS ||
        (stored == PARQUET_GROUP) != (children > 0) || bytes < 0 || bytes > INT32_MAX || memchr(name, 0, n))
        return refuse(r, "its footer has a broken schema");
    e->name = sys_malloc(n + 1);
    if (!e->name)
        return status_fail(ERR_NOMEM, "out of memory: the columns of %s", r->path);
    memcpy(e->name, name, n);
    e->name[n] = 0;
    e->stored = (enum parquet_stored)stored;
    e->repetition = (enum parquet_repetition)repetition;
    e->bytes = (int32_t)bytes;
    e->children = (int32_t)children;
    e->meaning = logical != MEANS_NOTHING && logical != MEANS_OTHER ? logical : converted != MEANS_NOTHING ? converted : logical;
    return OK;
}

static enum status read_schema(struct reading *r, const struct thrift_field *f)
{
    struct footer *out = r->out;
    const int64_t n = thrift_structs(&r->t, f);
    if (n > MOST_ELEMENTS)
        return status_fail(ERR_INVALID, "%s has %lld columns and groups of columns, and at most %d are read", r->path,
                           (long long)n, MOST_ELEMENTS);
    if (n == 0 || out->element)
        return refuse(r, "its footer has no schema");
    out->element = sys_calloc((size_t)n, sizeof *out->element);
    if (!out->element)
        return status_fail(ERR_NOMEM, "out of memory: the columns of %s", r->path);
    for (out->n_elements = 0; out->n_elements < n; out->n_elements++) {
        struct footer_element *e = &out->element[out->n_elements];
        TRY(read_element(r, e));
        /* the root may say that it has no members, if it is the only element */
        out->n_leaves += e->stored != PARQUET_GROUP;
    }
    return OK;
}

/* ---- groups of rows ---- */

static void read_column(struct thrift *t, struct footer_chunk *c)
{
    enum { TYPE = 1, CODEC = 4, VALUES, PACKED_BYTES = 7, DATA = 9, DICTIONARY = 11 };
    struct thrift_field f = {0};
    int64_t bytes = -1, data = -1, dictionary = 0;
    while (thrift_next(t, &f)) {
        if (f.id == TYPE)
            c->stored = (enum parquet_stored)thrift_integer(t, &f);
        else if (f.id == CODEC)
            c->codec = (int)thrift_integer(t, &f);
        else if (f.id == VALUES)
            c->values = thrift_integer(t, &f);
        else if (f.id == PACKED_BYTES)
            bytes = thrift_integer(t, &f);
        else if (f.id == DATA)
            data = thrift_integer(t, &f);
        else if (f.id == DICTIONARY)
            dictionary = thrift_integer(t, &f);
        else
            thrift_skip(t, &f);
    }
    c->first = dictionary > 0 && dictionary < data ? dictionary : data;
    c->end = bytes >= 0 && c->first >= 0 && bytes <= INT64_MAX - c->first ? c->first + bytes : -1;
}

static enum status read_chunk(struct reading *r, struct footer_chunk *c)
{
    enum { PATH = 1, COLUMN = 3, ENCRYPTION = 8, ENCRYPTED };
    struct thrift_field f = {0};
    *c = (struct footer_chunk){.first = -1, .end = -1, .values = -1};
    while (thrift_next(&r->t, &f)) {
        if (f.id == PATH)
            return status_fail(ERR_INVALID, "%s has its columns in other files, which are not read", r->path);
        if (f.id == ENCRYPTION || f.id == ENCRYPTED)
            return status_fail(ERR_INVALID, "%s has encrypted columns, which are not read", r->path);
        if (f.id == COLUMN && thrift_is_struct(&r->t, &f))
            read_column(&r->t, c);
        else
            thrift_skip(&r->t, &f);
    }
    if (c->values == 0 && !r->t.bad) { /* writers give such columns any place */
        c->first = c->end = r->limit;
        return OK;
    }
    if (r->t.bad || c->values < 0 || c->first < 4 || c->end < c->first || c->end > r->limit)
        return refuse(r, "its footer names a column that is not within the file");
    return OK;
}

/* Makes room for one more group. */
static enum status grow(struct reading *r, int64_t *room)
{
    struct footer *out = r->out;
    if (out->n_groups < *room)
        return OK;
    *room = *room ? 2 * *room : 16;
    int64_t *rows = sys_realloc(out->rows, (size_t)*room * sizeof *rows);
    if (rows)
        out->rows = rows;
    struct footer_chunk *chunk =
        rows ? sys_realloc(out->chunk, (size_t)(*room * max_i64(out->n_leaves, 1)) * sizeof *chunk) : NULL;
    if (!chunk)
        return status_fail(ERR_NOMEM, "out of memory: %lld groups of rows in %s", (long long)*room, r->path);
    out->chunk = chunk;
    return OK;
}

static enum status read_group(struct reading *r)
{
    enum { COLUMNS = 1, ROWS = 3 };
    struct footer *out = r->out;
    struct thrift_field f = {0};
    int64_t rows = -1, n = -1;
    while (thrift_next(&r->t, &f)) {
        if (f.id == ROWS) {
            rows = thrift_integer(&r->t, &f);
        } else if (f.id == COLUMNS && n < 0) {
            n = thrift_structs(&r->t, &f);
            for (int64_t i = 0; i < n && n == out->n_leaves; i++)
                TRY(read_chunk(r, &out->chunk[out->n_chunks++]));
            if (n != out->n_leaves)
                break;
        } else {
            thrift_skip(&r->t, &f);
        }
    }
    if (r->t.bad || rows < 0 || n != out->n_leaves)
        return refuse(r, "its footer has a broken group of rows");
    out->rows[out->n_groups++] = rows;
    return OK;
}

static enum status read_groups(struct reading *r, const struct thrift_field *f)
{
    const int64_t n = thrift_structs(&r->t, f);
    int64_t room = 0;
    if (!r->out->element || r->out->rows)
        return refuse(r, "its footer is in disorder");
    for (int64_t i = 0; i < n; i++) {
        TRY(grow(r, &room));
        TRY(read_group(r));
    }
    return OK;
}

/* ---- the whole ---- */

static enum status read_fields(struct reading *r)
{
    enum { SCHEMA = 2, GROUPS = 4, ENCRYPTION = 8 };
    struct thrift_field f = {0};
    while (thrift_next(&r->t, &f)) {
        if (f.id == SCHEMA)
            TRY(read_schema(r, &f));
        else if (f.id == GROUPS)
            TRY(read_groups(r, &f));
        else if (f.id == ENCRYPTION)
            return status_fail(ERR_INVALID, "%s has encrypted columns, which are not read", r->path);
        else
            thrift_skip(&r->t, &f);
    }
    return r->t.bad || !r->out->element ? refuse(r, "its footer is broken") : OK;
}

enum status footer_read(const char *path, const uint8_t *text, int64_t n, int64_t limit, struct footer *out)
{
    *out = (struct footer){.n_elements = 0};
    struct reading r = {.path = path, .t = {.at = text, .end = text + n}, .limit = limit, .out = out};
    enum status st = read_fields(&r);
    if (st != OK)
        footer_free(out);
    return st;
}

void footer_free(struct footer *f)
{
    /* an element whose reading failed has no name yet */
    for (int64_t i = 0; i < f->n_elements; i++)
        free(f->element[i].name);
    free(f->element);
    free(f->chunk);
    free(f->rows);
    *f = (struct footer){.n_elements = 0};
}
