/* Writing safetensors: one process makes the file with its header, any number of processes write elements into it. */
#include "data/safetensors.h"

#include "base/sys.h"
#include "data/file.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 16 }; /* elements converted at a time */

/* Place of a tensor's elements in the data. */
struct place {
    enum dtype dtype;
    /* bytes of an element; number of elements; first byte. Types below 8 bits count bytes as elements. */
    int64_t each, elements, begin;
};

struct st_writer {
    int fd;
    char *path;
    struct place *tensors;
    int n;
    int64_t data; /* first byte of the data in the file */
    bf16 buffer[CHUNK];
};

/* ---- header ---- */

static int64_t bits_each(const struct st_decl *d)
{
    return d->type ? st_type_bits(d->type) : d->dtype == F32 || d->dtype == BF16 ? 8 * dtype_size(d->dtype) : 0;
}

int64_t st_decl_bytes(const struct st_decl *d)
{
    int64_t bits = bits_each(d);
    if (d->n_dims < 0 || d->n_dims > ST_DIMS || bits == 0)
        return -1;
    for (int i = 0; i < d->n_dims; i++)
        if (d->shape[i] < 0 || __builtin_mul_overflow(bits, d->shape[i], &bits))
            return -1;
    return bits % 8 ? -1 : bits / 8;
}

/* Makes a tensor's entry in the header: {"dtype": ..., "shape": [...], "data_offsets": [*at, end]}. Advances *at to the end. */
static enum status describe(const struct st_decl *d, struct place *p, int64_t *at, json_t **out)
{
    const int64_t bytes = st_decl_bytes(d), begin = *at, each = max_i64(bits_each(d) / 8, 1);
    if (bytes < 0 || __builtin_add_overflow(begin, bytes, at))
        return status_fail(
            ERR_INVALID,
            "tensor %s: only fp32 and bf16, and bytes of the types that files have, with up to six dimensions of a "
            "sensible size can be written",
            d->name);
    if (begin % each)
        return status_fail(
            ERR_INVALID,
            "tensor %s: %lld bytes an element after an odd number of smaller ones would be misaligned; declare the larger "
            "types first",
            d->name, (long long)each);
    json_t *shape = json_array();
    for (int i = 0; i < d->n_dims; i++)
        json_array_append_new(shape, json_integer((json_int_t)d->shape[i]));
    *p = (struct place){d->dtype, each, bytes / each, begin};
    *out = json_pack("{s:s, s:o, s:[I, I]}", "dtype",
                     d->type           ? d->type
                     : d->dtype == F32 ? "F32"
                                       : "BF16",
                     "shape", shape, "data_offsets", (json_int_t)begin, (json_int_t)*at);
    return *out ? OK : status_fail(ERR_NOMEM, "out of memory: a header");
}

/* Makes the bytes before the data: the length of the JSON text, and the text, padded with spaces so that the data starts at a
 * multiple of 8. The caller frees *bytes. */
static enum status make_header(const char *path, const struct st_decl *decls, int n, struct place *places, char **bytes,
                               int64_t *length, int64_t *data_bytes)
{
    enum status st = OK;
    json_t *root = json_pack("{s:{s:s}}", "__metadata__", "format", "pt"), *entry = NULL;
    *data_bytes = 0;
    for (int i = 0; i < n && st == OK; i++) {
        if (json_object_get(root, decls[i].name))
            st = status_fail(ERR_INVALID, "%s: tensor name %s is taken", path, decls[i].name);
        else if ((st = describe(&decls[i], &places[i], data_bytes, &entry)) == OK &&
                 json_object_set_new(root, decls[i].name, entry) != 0)
            st = status_fail(ERR_INVALID, "%s: tensor name %s cannot be written as JSON", path, decls[i].name);
    }
    char *text = st == OK ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    TRY(st);
    int64_t n_text = text ? (int64_t)strlen(text) : 0;
    uint64_t padded = (uint64_t)round_up(n_text, 8);
    *length = 8 + (int64_t)padded;
    *bytes = text ? sys_malloc((size_t)*length) : NULL;
    if (*bytes) {
        memcpy(*bytes, &padded, 8);
        memset(*bytes + 8, ' ', padded);
        memcpy(*bytes + 8, text, (size_t)n_text);
    }
    free(text);
    return *bytes ? OK : status_fail(ERR_NOMEM, "out of memory: the header of %s", path);
}

/* ---- making ---- */

/* Reserves space, so that a full disk shows now and not after hours of writing. On file systems that cannot reserve, the file
 * grows as it is written. */
static enum status reserve(int fd, const char *path, int64_t bytes)
{
    int r;
    do {
        r = sys_fallocate(fd, 0, 0, (off_t)bytes);
    } while (r != 0 && errno == EINTR);
    if (r == 0 || errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL)
        return OK;
    return status_fail(ERR_IO, "cannot reserve %lld bytes for %s: %s", (long long)bytes, path, strerror(errno));
}

static enum status write_header(const char *path, const char *header, int64_t length, int64_t data_bytes)
{
    int fd = sys_create_file(path);
    if (fd < 0)
        return status_fail(ERR_IO, "cannot create %s: %s", path, sys_strerror(errno));
    enum status st = reserve(fd, path, length + data_bytes);
    if (st == OK)
        st = file_write(fd, path, header, (size_t)length, 0);
    if (st == OK && sys_fsync(fd) != 0)
        st = status_fail(ERR_IO, "cannot write %s: %s", path, strerror(errno));
    if (sys_close(fd) != 0 && st == OK)
        st = status_fail(ERR_IO, "cannot write %s: %s", path, strerror(errno));
    if (st != OK)
        sys_unlink(path);
    return st;
}

enum status st_create(const char *path, const struct st_decl *decls, int n)
{
    char *header = NULL;
    int64_t length, data_bytes;
    struct place *places = sys_malloc(sizeof *places * ((size_t)n + 1));
    if (!places)
        return status_fail(ERR_NOMEM, "out of memory: a list of %d tensors", n);
    enum status st = make_header(path, decls, n, places, &header, &length, &data_bytes);
    if (st == OK)
        st = write_header(path, header, length, data_bytes);
    free(header);
    free(places);
    return st;
}

/* ---- writing ---- */

void st_write_abort(struct st_writer *w)
{
    if (!w)
        return;
    if (w->fd >= 0)
        sys_close(w->fd);
    free(w->tensors);
    free(w->path);
    free(w);
}

static enum status check_header(const struct st_writer *w, const char *header)
{
    char *there = sys_malloc((size_t)w->data);
    if (!there)
        return status_fail(ERR_NOMEM, "out of memory: the header of %s", w->path);
    enum status st = file_read(w->fd, w->path, there, (size_t)w->data, 0);
    if (st == OK && memcmp(there, header, (size_t)w->data) != 0)
        st = status_fail(ERR_CORRUPT, "%s has another header than was written", w->path);
    free(there);
    return st;
}

enum status st_write_open(const char *path, const struct st_decl *decls, int n, struct st_writer **out)
{
    enum status st;
    char *header = NULL;
    int64_t data_bytes;
    struct st_writer *w = sys_malloc(sizeof *w);
    if (!w)
        return status_fail(ERR_NOMEM, "out of memory: %zu bytes to write %s", sizeof *w, path);
    memset(w, 0, offsetof(struct st_writer, buffer));
    w->fd = -1;
    w->path = strdup(path);
    w->n = n;
    w->tensors = sys_malloc(sizeof *w->tensors * ((size_t)n + 1));
    if (!w->path || !w->tensors)
        TRY_GOTO(status_fail(ERR_NOMEM, "out of memory: a list of %d tensors", n), fail);
    TRY_GOTO(make_header(path, decls, n, w->tensors, &header, &w->data, &data_bytes), fail);
    w->fd = sys_open_file(path, O_RDWR, 0);
    if (w->fd < 0)
        TRY_GOTO(status_fail(ERR_IO, "cannot open %s: %s", path, sys_strerror(errno)), fail);
    TRY_GOTO(check_header(w, header), fail);
    free(header);
    *out = w;
    return OK;
fail:
    free(header);
    st_write_abort(w);
    return st;
}

enum status st_write_f32(struct st_writer *w, int tensor, int64_t first, int64_t n, const float *data)
{
    const struct place *t = tensor >= 0 && tensor < w->n ? &w->tensors[tensor] : NULL;
    if (!t || first < 0 || n < 0 || n > t->elements - first)
        return status_fail(ERR_INVALID, "%s: %lld elements from number %lld on of tensor %d of %d, which has %lld", w->path,
                           (long long)n, (long long)first, tensor, w->n, t ? (long long)t->elements : 0);
    int64_t at = w->data + t->begin + first * dtype_size(t->dtype);
    if (t->dtype == F32)
        return file_write(w->fd, w->path, data, (size_t)(4 * n), at);
    for (int64_t done = 0, part; done < n; done += part) {
        part = min_i64(n - done, CHUNK);
        for (int64_t i = 0; i < part; i++)
            w->buffer[i] = bf16_from_float(data[done + i]);
        TRY(file_write(w->fd, w->path, w->buffer, (size_t)(2 * part), at + 2 * done));
    }
    return OK;
}

enum status st_write_bytes(struct st_writer *w, int tensor, int64_t first, int64_t n, const void *data)
{
    const struct place *t = tensor >= 0 && tensor < w->n ? &w->tensors[tensor] : NULL;
    if (!t || first < 0 || n < 0 || n > t->elements * t->each - first)
        return status_fail(ERR_INVALID, "%s: %lld bytes from number %lld on of tensor %d of %d, which has %lld", w->path,
                           (long long)n, (long long)first, tensor, w->n, t ? (long long)(t->elements * t->each) : 0);
    return file_write(w->fd, w->path, data, (size_t)n, w->data + t->begin + first);
}

enum status st_write_finish(struct st_writer *w)
{
    enum status st = OK;
    if (!w)
        return OK;
    int fd = w->fd;
    w->fd = -1;
    if (sys_fsync(fd) != 0)
        st = status_fail(ERR_IO, "cannot write %s: %s", w->path, strerror(errno));
    if (sys_close(fd) != 0 && st == OK)
        st = status_fail(ERR_IO, "cannot write %s: %s", w->path, strerror(errno));
    st_write_abort(w);
    return st;
}
