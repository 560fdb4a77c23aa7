/* Writing safetensors as a stream: the header first, then the data in the order declared, hashed as it goes out. */
#include "data/safetensors.h"

#include "base/sys.h"
#include "data/file.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { CHUNK = 1 << 17 }; /* elements converted at a time */

struct piece {
    enum dtype dtype;
    int64_t elements;
};

struct st_writer {
    int fd;
    char *path;
    XXH3_state_t *hash;
    struct piece *tensors;
    int n, current;  /* the tensor being written */
    int64_t written; /* its elements so far */
    int64_t at;      /* bytes of the file so far */
    bf16 buffer[CHUNK];
};

/* ---- header ---- */

/* {"dtype": ..., "shape": [...], "data_offsets": [*at, end]}; advances *at to the end. */
static enum status describe(const struct st_decl *d, struct piece *p, int64_t *at, json_t **out)
{
    int64_t elements = 1, bytes, begin = *at;
    json_t *shape = json_array();
    for (int i = 0; i < d->n_dims && i < 2; i++) {
        if (d->shape[i] < 0 || __builtin_mul_overflow(elements, d->shape[i], &elements))
            elements = -1;
        json_array_append_new(shape, json_integer((json_int_t)d->shape[i]));
    }
    if (d->n_dims < 0 || d->n_dims > 2 || elements < 0 || (d->dtype != F32 && d->dtype != BF16) ||
        __builtin_mul_overflow(elements, dtype_size(d->dtype), &bytes) || __builtin_add_overflow(begin, bytes, at)) {
        json_decref(shape);
        return status_fail(ERR_INVALID,
                           "tensor %s: only fp32 and bf16 with up to two dimensions of a sensible size can be written", d->name);
    }
    if (begin % dtype_size(d->dtype)) {
        json_decref(shape);
        return status_fail(ERR_INVALID, "tensor %s: fp32 after an odd number of bf16 would be misaligned; declare fp32 first",
                           d->name);
    }
    *p = (struct piece){d->dtype, elements};
    *out = json_pack("{s:s, s:o, s:[I, I]}", "dtype", d->dtype == F32 ? "F32" : "BF16", "shape", shape, "data_offsets",
                     (json_int_t)begin, (json_int_t)*at);
    return *out ? OK : status_fail(ERR_NOMEM, "out of memory: a header");
}

/* The header's JSON text; sizes go to w->tensors. */
static enum status header_text(struct st_writer *w, const struct st_decl *decls, char **text)
{
    enum status st = OK;
    int64_t at = 0;
    json_t *root = json_pack("{s:{s:s}}", "__metadata__", "format", "pt"), *entry = NULL;
    for (int i = 0; i < w->n && st == OK; i++) {
        if (json_object_get(root, decls[i].name))
            st = status_fail(ERR_INVALID, "%s: tensor name %s is taken", w->path, decls[i].name);
        else if ((st = describe(&decls[i], &w->tensors[i], &at, &entry)) == OK &&
                 json_object_set_new(root, decls[i].name, entry) != 0)
            st = status_fail(ERR_INVALID, "%s: tensor name %s cannot be written as JSON", w->path, decls[i].name);
    }
    *text = st == OK ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    return st != OK || *text ? st : status_fail(ERR_NOMEM, "out of memory: a header");
}

static enum status put(struct st_writer *w, const void *bytes, int64_t n)
{
    TRY(file_write(w->fd, w->path, bytes, (size_t)n, w->at));
    XXH3_64bits_update(w->hash, bytes, (size_t)n);
    w->at += n;
    return OK;
}

/* Padded with spaces, so that the data starts at a multiple of 8. */
static enum status write_header(struct st_writer *w, const struct st_decl *decls)
{
    char *text = NULL;
    TRY(header_text(w, decls, &text));
    int64_t n = (int64_t)strlen(text);
    uint64_t padded = (uint64_t)round_up(n, 8);
    enum status st = put(w, &padded, 8);
    if (st == OK)
        st = put(w, text, n);
    if (st == OK)
        st = put(w, "       ", (int64_t)padded - n);
    free(text);
    return st;
}

/* ---- life ---- */

static void destroy(struct st_writer *w)
{
    if (w->fd >= 0)
        sys_close(w->fd);
    if (w->hash)
        XXH3_freeState(w->hash);
    free(w->tensors);
    free(w->path);
    free(w);
}

enum status st_create(const char *path, const struct st_decl *decls, int n, struct st_writer **out)
{
    enum status st;
    struct st_writer *w = sys_malloc(sizeof *w);
    if (!w)
        return status_fail(ERR_NOMEM, "out of memory: %zu bytes to write %s", sizeof *w, path);
    memset(w, 0, offsetof(struct st_writer, buffer));
    w->fd = -1;
    w->path = strdup(path);
    w->hash = XXH3_createState();
    w->n = n;
    w->tensors = sys_malloc(sizeof *w->tensors * ((size_t)n + 1));
    if (!w->path || !w->hash || !w->tensors) {
        destroy(w);
        return status_fail(ERR_NOMEM, "out of memory: a list of %d tensors", n);
    }
    XXH3_64bits_reset(w->hash);
    w->fd = sys_open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (w->fd < 0) {
        st = status_fail(ERR_IO, "cannot create %s: %s", path, strerror(errno));
        destroy(w);
        return st;
    }
    st = write_header(w, decls);
    if (st != OK) {
        st_abort(w);
        return st;
    }
    *out = w;
    return OK;
}

enum status st_write_f32(struct st_writer *w, const float *data, int64_t n)
{
    while (w->current < w->n && w->written == w->tensors[w->current].elements) {
        w->current++;
        w->written = 0;
    }
    int64_t left = w->current < w->n ? w->tensors[w->current].elements - w->written : 0;
    if (n < 0 || n > left)
        return status_fail(ERR_INVALID, "%s: %lld elements are given and %lld left of tensor %d", w->path, (long long)n,
                           (long long)left, w->current);
    for (int64_t done = 0, part; done < n; done += part) {
        const float *from = data + done;
        part = n - done;
        if (w->tensors[w->current].dtype == F32) {
            TRY(put(w, from, 4 * part));
            continue;
        }
        part = min_i64(part, CHUNK);
        for (int64_t i = 0; i < part; i++)
            w->buffer[i] = bf16_from_float(from[i]);
        TRY(put(w, w->buffer, 2 * part));
    }
    w->written += n;
    return OK;
}

/* All elements of all tensors came. */
static enum status check_complete(const struct st_writer *w)
{
    for (int i = w->current; i < w->n; i++)
        if (w->tensors[i].elements != (i == w->current ? w->written : 0))
            return status_fail(ERR_INVALID, "%s: tensor %d of %d is not complete", w->path, i, w->n);
    return OK;
}

enum status st_finish(struct st_writer *w, uint64_t *xxh3)
{
    enum status st = check_complete(w);
    if (st == OK && sys_fsync(w->fd) != 0)
        st = status_fail(ERR_IO, "cannot write %s: %s", w->path, strerror(errno));
    if (st == OK) {
        int fd = w->fd;
        w->fd = -1;
        if (sys_close(fd) != 0)
            st = status_fail(ERR_IO, "cannot write %s: %s", w->path, strerror(errno));
    }
    if (st != OK) {
        st_abort(w);
        return st;
    }
    if (xxh3)
        *xxh3 = XXH3_64bits_digest(w->hash);
    destroy(w);
    return OK;
}

void st_abort(struct st_writer *w)
{
    if (!w)
        return;
    sys_unlink(w->path);
    destroy(w);
}
