/* Comparing two checkpoints, tensor by tensor. */
#include "checkpoint/checkpoint.h"

#include "base/num.h"
#include "base/sys.h"
#include "checkpoint/digests.h"
#include "checkpoint/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 20 }; /* bytes of a tensor that are compared at a time; whole elements */

/* One of the two checkpoints. */
struct side {
    const char *path;
    struct st_file *file[DIGEST_FILES];
    struct digests digests;
    int has_digests;
};

/* Differences between two tensors of one form. */
struct apart {
    int64_t unequal, rows, first, last_row; /* elements and rows that differ; the first element; the last row that was counted */
};

static enum status open_side(struct comm *c, const char *path, struct side *s)
{
    struct manifest m;
    char file[CKPT_PATH];
    *s = (struct side){.path = path};
    TRY(manifest_look(c, path, &m));
    for (int k = 0; k < DIGEST_FILES; k++) {
        TRY(ckpt_path(file, path, ckpt_file_names[k], ""));
        TRY(st_open(file, &s->file[k]));
    }
    s->has_digests = m.digests != 0;
    return s->has_digests ? digests_read(path, m.digests, &s->digests) : OK;
}

static void close_side(struct side *s)
{
    for (int k = 0; k < DIGEST_FILES; k++)
        st_close(s->file[k]);
    if (s->has_digests)
        digests_free(&s->digests);
}

/* Compares elements of `size` bytes, the first of which is number `at`, and adds to *d. */
static void count_apart(const char *a, const char *b, int64_t n, int64_t size, int64_t at, int64_t row, struct apart *d)
{
    for (int64_t i = 0; i < n; i++) {
        if (memcmp(a + i * size, b + i * size, (size_t)size) == 0)
            continue;
        d->first = d->unequal++ == 0 ? at + i : d->first;
        d->rows += (at + i) / row != d->last_row;
        d->last_row = (at + i) / row;
    }
}

static int64_t elements_of(const struct st_raw *t)
{
    int64_t n = 1;
    for (int d = 0; d < t->n_dims; d++)
        n *= t->shape[d];
    return n;
}

/* Returns the elements of a row: all that share their first index. */
static int64_t row_of(const struct st_raw *t)
{
    return t->n_dims > 0 && t->shape[0] > 0 ? elements_of(t) / t->shape[0] : 1;
}

static enum status compare_bytes(const struct side *a, const struct side *b, int k, const char *name, const struct st_raw *t,
                                 char *buffer, struct apart *d)
{
    const int64_t n = elements_of(t), size = n > 0 ? t->bytes / n : 1;
    *d = (struct apart){.last_row = -1};
    for (int64_t at = 0; at < t->bytes; at += CHUNK) {
        const int64_t bytes = min_i64(CHUNK, t->bytes - at);
        TRY(st_read_bytes(a->file[k], name, at, bytes, buffer));
        TRY(st_read_bytes(b->file[k], name, at, bytes, buffer + CHUNK));
        if (memcmp(buffer, buffer + CHUNK, (size_t)bytes) != 0)
            count_apart(buffer, buffer + CHUNK, bytes / size, size, at / size, row_of(t), d);
    }
    return OK;
}

/* Tells whether a tensor's bytes are those that were saved; 1 if no digest says. */
static enum status is_as_saved(struct side *s, int k, int i, const char *name, int *as_saved)
{
    struct ckpt_part part;
    uint64_t sum = 0, saved;
    *as_saved = 1;
    if (!s->has_digests || !digests_look(&s->digests, k, name, &saved) || !digest_find(s->file[k], i, &part))
        return OK;
    TRY(ckpt_hash(&part, 0, ckpt_segments(part.bytes), &sum));
    *as_saved = sum == saved;
    return OK;
}

static int find(const struct st_file *f, const char *name)
{
    for (int i = 0; i < st_count(f); i++)
        if (strcmp(st_name(f, i), name) == 0)
            return i;
    return -1;
}

/* Writes the sentence about the first tensor with other bits. */
static enum status describe(struct side *a, struct side *b, int k, int i, const struct st_raw *t, const struct apart *d,
                            char text[1024])
{
    const char *name = st_name(a->file[k], i);
    const int64_t row = row_of(t), rows = elements_of(t) / row;
    float x, y;
    int a_saved, b_saved;
    TRY(st_read_f32(a->file[k], name, d->first, 1, &x));
    TRY(st_read_f32(b->file[k], name, d->first, 1, &y));
    TRY(is_as_saved(a, k, i, name, &a_saved));
    TRY(is_as_saved(b, k, find(b->file[k], name), name, &b_saved));
    const char *changed = !a_saved && !b_saved ? "; neither has the bytes that were saved, by its digest"
                          : !a_saved           ? "; the first one's bytes have changed since it was saved, by its digest"
                          : !b_saved           ? "; the second one's bytes have changed since it was saved, by its digest"
                                               : "";
    snprintf(text, 1024,
             "%s in %s: row %lld of %lld, element %lld of the row: %.9g and %.9g; %lld elements in %lld rows differ%s", name,
             ckpt_file_names[k], (long long)(d->first / row), (long long)rows, (long long)(d->first % row), (double)x, (double)y,
             (long long)d->unequal, (long long)d->rows, changed);
    return OK;
}

static void shape_text(const struct st_raw *t, char text[160])
{
    int n = snprintf(text, 160, "%.16s [", t->type);
    for (int d = 0; d < t->n_dims && n < 130; d++)
        n += snprintf(text + n, 160 - (size_t)n, "%s%lld", d ? ", " : "", (long long)t->shape[d]);
    snprintf(text + n, 160 - (size_t)n, "]");
}

/* Compares type and shape; a difference is described, if it is the first. */
static int is_alike(const struct st_raw *a, const struct st_raw *b, const char *name, struct checkpoint_difference *out)
{
    char x[160], y[160];
    if (strcmp(a->type, b->type) == 0 && a->n_dims == b->n_dims &&
        memcmp(a->shape, b->shape, (size_t)a->n_dims * sizeof *a->shape) == 0)
        return 1;
    shape_text(a, x);
    shape_text(b, y);
    if (!out->first[0])
        snprintf(out->first, sizeof out->first, "%s is %s in the first one and %s in the second", name, x, y);
    return 0;
}

static enum status compare_tensor(struct side *a, struct side *b, int k, int i, char *buffer, struct checkpoint_difference *out)
{
    const char *name = st_name(a->file[k], i);
    struct st_raw t, u;
    struct apart d;
    out->tensors++;
    TRY(st_find_raw(a->file[k], name, &t));
    if (!st_has(b->file[k], name)) {
        if (out->differ++ == 0)
            snprintf(out->first, sizeof out->first, "%s is only in the first one's %s", name, ckpt_file_names[k]);
        return OK;
    }
    TRY(st_find_raw(b->file[k], name, &u));
    if (!is_alike(&t, &u, name, out)) {
        out->differ++;
        return OK;
    }
    TRY(compare_bytes(a, b, k, name, &t, buffer, &d));
    out->elements += elements_of(&t);
    out->unequal += d.unequal;
    if (d.unequal == 0)
        return OK;
    out->differ++;
    return out->first[0] ? OK : describe(a, b, k, i, &t, &d, out->first);
}

/* Counts the second one's tensors that the first one has not. */
static void count_others(const struct side *a, const struct side *b, int k, struct checkpoint_difference *out)
{
    for (int i = 0; i < st_count(b->file[k]); i++) {
        if (st_has(a->file[k], st_name(b->file[k], i)))
            continue;
        out->tensors++;
        out->differ++;
        if (!out->first[0])
            snprintf(out->first, sizeof out->first, "%s is only in the second one's %s", st_name(b->file[k], i),
                     ckpt_file_names[k]);
    }
}

static enum status compare_sides(struct side *a, struct side *b, struct checkpoint_difference *out)
{
    enum status st = OK;
    char *buffer = sys_malloc(2 * CHUNK);
    if (!buffer)
        return status_fail(ERR_NOMEM, "out of memory: comparing %s with %s", a->path, b->path);
    for (int k = 0; k < DIGEST_FILES && st == OK; k++) {
        for (int i = 0; i < st_count(a->file[k]) && st == OK; i++)
            st = compare_tensor(a, b, k, i, buffer, out);
        count_others(a, b, k, out);
    }
    free(buffer);
    return st;
}

enum status checkpoint_compare(const char *a, const char *b, struct checkpoint_difference *out)
{
    struct side x = {.path = a}, y = {.path = b};
    struct comm *alone;
    *out = (struct checkpoint_difference){.tensors = 0};
    TRY(comm_create_self(&alone));
    enum status st = open_side(alone, a, &x);
    if (st == OK)
        st = open_side(alone, b, &y);
    if (st == OK)
        st = compare_sides(&x, &y, out);
    close_side(&x);
    close_side(&y);
    comm_destroy(alone);
    return st;
}
