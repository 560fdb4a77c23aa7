/* Copying tensors from files of weights into a new one, byte for byte and whatever their types. */
#include "data/safetensors.h"

#include "base/sys.h"
#include "data/file.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 20 };

/* Makes a tensor's entry in the header: {"dtype": ..., "shape": [...], "data_offsets": [begin, end]}. */
static json_t *entry_of(const struct st_raw *t, int64_t begin)
{
    json_t *shape = json_array();
    for (int i = 0; i < t->n_dims; i++)
        json_array_append_new(shape, json_integer((json_int_t)t->shape[i]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", t->type, "shape", shape, "data_offsets", (json_int_t)begin,
                     (json_int_t)(begin + t->bytes));
}

/* Makes the beginning of the file: the length of the JSON header and its text, padded so that the data starts at a multiple of 8.
 * The caller frees *out. */
static enum status make_header(const struct st_file *f, const char *const *names, int n, char **out, int64_t *bytes)
{
    json_t *root = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    enum status st = root ? OK : status_fail(ERR_NOMEM, "out of memory: a header");
    int64_t at = 0;
    for (int i = 0; i < n && st == OK; i++) {
        struct st_raw t;
        st = st_find_raw(f, names[i], &t);
        if (st == OK && json_object_set_new(root, names[i], entry_of(&t, at)) != 0)
            st = status_fail(ERR_NOMEM, "out of memory: a header");
        at += st == OK ? t.bytes : 0;
    }
    char *text = st == OK ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    TRY(st);
    size_t length = text ? strlen(text) : 0;
    uint64_t padded = (length + 7) / 8 * 8;
    char *header = text ? sys_malloc(8 + padded) : NULL;
    if (header) {
        memcpy(header, &padded, 8);
        memset(header + 8, ' ', padded);
        memcpy(header + 8, text, length);
    }
    free(text);
    *out = header;
    *bytes = 8 + (int64_t)padded;
    return header ? OK : status_fail(ERR_NOMEM, "out of memory: a header of %zu bytes", length);
}

static enum status copy_tensor(const struct st_raw *t, int fd, const char *path, int64_t at, char *buffer)
{
    int in;
    int64_t size;
    TRY(file_open(t->path, &in, &size));
    enum status st = OK;
    for (int64_t done = 0, part; done < t->bytes && st == OK; done += part) {
        part = min_i64(PIECE, t->bytes - done);
        st = file_read(in, t->path, buffer, (size_t)part, t->at + done);
        if (st == OK)
            st = file_write(fd, path, buffer, (size_t)part, at + done);
    }
    sys_close(in);
    return st;
}

static enum status write_all(const struct st_file *f, const char *const *names, int n, int fd, const char *path)
{
    char *header = NULL, *buffer = sys_malloc(PIECE);
    int64_t at = 0;
    enum status st = buffer ? make_header(f, names, n, &header, &at) : status_fail(ERR_NOMEM, "out of memory: a buffer");
    if (st == OK)
        st = file_write(fd, path, header, (size_t)at, 0);
    for (int i = 0; i < n && st == OK; i++) {
        struct st_raw t;
        st = st_find_raw(f, names[i], &t);
        if (st == OK)
            st = copy_tensor(&t, fd, path, at, buffer);
        at += st == OK ? t.bytes : 0;
    }
    if (st == OK && sys_fsync(fd) != 0)
        st = status_fail(ERR_IO, "cannot write %s: %s", path, strerror(errno));
    free(header);
    free(buffer);
    return st;
}

enum status st_copy(const struct st_file *f, const char *const *names, int n, const char *path)
{
    int fd = sys_create_file(path);
    if (fd < 0)
        return status_fail(ERR_IO, "cannot create %s: %s", path, sys_strerror(errno));
    enum status st = write_all(f, names, n, fd, path);
    if (sys_close(fd) != 0 && st == OK)
        st = status_fail(ERR_IO, "cannot write %s: %s", path, strerror(errno));
    if (st != OK)
        sys_unlink(path);
    return st;
}
