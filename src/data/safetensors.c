/* Reading safetensors: strict headers, sharded checkpoints, conversion to fp32.
 *
 * A file is: 8 bytes header length (little endian), a JSON object {name: {dtype, shape, data_offsets}, "__metadata__": {...}},
 * the data. Offsets count from the data's start; the tensors must cover the data without hole or overlap
 * (https://huggingface.co/docs/safetensors, format). */
#include "data/safetensors.h"

#include "base/convert.h"
#include "base/sys.h"
#include "data/file.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensor data is little endian and read as it lies");

enum { MAX_HEADER_BYTES = 100000000, PATH_BYTES = 4096 };

/* Types of elements that safetensors 0.8.0 knows; only floating ones of at least 16 bits are read. */
static const struct kind {
    const char *name;
    int64_t bits;
    int readable;
    enum dtype dtype;
} kinds[] = {
    {"F32", 32, 1, F32}, {"BF16", 16, 1, BF16}, {"F16", 16, 1, F16}, {"F64", 64, 1, F64}, {"I64", 64},        {"U64", 64},
    {"I32", 32},         {"U32", 32},           {"I16", 16},         {"U16", 16},         {"I8", 8},          {"U8", 8},
    {"BOOL", 8},         {"F8_E4M3", 8},        {"F8_E5M2", 8},      {"F8_E8M0", 8},      {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
    {"F6_E2M3", 6},      {"F6_E3M2", 6},        {"F4", 4},           {"C64", 64},
};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

int64_t st_type_bits(const char *type)
{
    for (int i = 0; i < N_KINDS; i++)
        if (strcmp(kinds[i].name, type) == 0)
            return kinds[i].bits;
    return 0;
}

struct tensor {
    const char *name; /* tensor's name; the shard's header owns the text */
    const struct kind *kind;
    int shard, n_dims;
    int64_t shape[ST_DIMS]; /* lengths of the first dimensions */
    int64_t elements;
    int64_t begin, end; /* range of bytes within the shard's data */
};

struct shard {
    char *path;
    int fd;
    int64_t bytes, data; /* bytes: length of the file; data: byte of the file at which the data starts */
    json_t *header;
};

struct st_file {
    char *path;   /* the path that was opened: a file or the index */
    json_t *list; /* the index's weight_map; NULL: there is no index */
    struct shard *shards;
    struct tensor *tensors; /* sorted by name once all shards are open */
    int n_shards, n_tensors;
    int n_left_out;       /* number of copies of tensors in shards that the index does not name for them */
    const char *left_out; /* name of the first such tensor */
};

/* ---- JSON of a file ---- */

static enum status load_json(int fd, const char *path, int64_t at, int64_t n, json_t **out)
{
    json_error_t error;
    json_t *root = NULL;
    char *text = sys_malloc((size_t)n + 1);
    if (!text)
        return status_fail(ERR_NOMEM, "out of memory: %lld bytes for the header of %s", (long long)n, path);
    enum status st = file_read(fd, path, text, (size_t)n, at);
    if (st == OK && (n == 0 || text[0] != '{'))
        st = status_fail(ERR_CORRUPT, "%s: the header is not a JSON object", path);
    else if (st == OK && !(root = json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES, &error)))
        st = status_fail(ERR_CORRUPT, "%s: the header is not valid JSON: %s (byte %d)", path, error.text, error.position);
    free(text);
    if (st == OK)
        *out = root;
    return st;
}

/* ---- one header ---- */

static enum status bad(const struct shard *s, const char *name, const char *what)
{
    return status_fail(ERR_CORRUPT, "%s: tensor %.100s: %s", s->path, name, what);
}

static enum status parse_shape(const struct shard *s, const json_t *shape, struct tensor *t)
{
    t->n_dims = (int)json_array_size(shape);
    t->elements = 1;
    for (int i = 0; i < t->n_dims; i++) {
        const json_t *d = json_array_get(shape, (size_t)i);
        int64_t n = json_is_integer(d) ? (int64_t)json_integer_value(d) : -1;
        if (n < 0 || __builtin_mul_overflow(t->elements, n, &t->elements))
            return bad(s, t->name, "a shape must hold whole numbers of a sensible size");
        if (i < ST_DIMS)
            t->shape[i] = n;
    }
    return OK;
}

static enum status parse_tensor(const struct shard *s, const json_t *entry, struct tensor *t)
{
    const json_t *dtype = json_object_get(entry, "dtype"), *shape = json_object_get(entry, "shape");
    const json_t *offsets = json_object_get(entry, "data_offsets"), *begin = json_array_get(offsets, 0),
                 *end = json_array_get(offsets, 1);
    int64_t bits;
    if (!json_is_string(dtype) || !json_is_array(shape) || json_array_size(offsets) != 2 || !json_is_integer(begin) ||
        !json_is_integer(end) || json_object_size(entry) != 3)
        return bad(s, t->name, "must have dtype, shape and data_offsets [begin, end], and nothing else");
    for (int k = 0; k < N_KINDS && !t->kind; k++)
        if (strcmp(json_string_value(dtype), kinds[k].name) == 0)
            t->kind = &kinds[k];
    if (!t->kind)
        return status_fail(ERR_INVALID, "%s: tensor %.100s: dtype %.40s is not known", s->path, t->name,
                           json_string_value(dtype));
    TRY(parse_shape(s, shape, t));
    t->begin = (int64_t)json_integer_value(begin);
    t->end = (int64_t)json_integer_value(end);
    if (t->begin < 0 || t->end < t->begin || t->end > s->bytes - s->data)
        return bad(s, t->name, "its data_offsets lie outside the file; is the file cut short?");
    if (__builtin_mul_overflow(t->elements, t->kind->bits, &bits) || bits % 8 || bits / 8 != t->end - t->begin)
        return bad(s, t->name, "its data_offsets do not fit its shape and dtype");
    return OK;
}

static enum status check_metadata(const struct shard *s, json_t *metadata)
{
    const char *key;
    json_t *value;
    if (!json_is_object(metadata))
        return status_fail(ERR_CORRUPT, "%s: __metadata__ must be an object", s->path);
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value))
            return status_fail(ERR_CORRUPT, "%s: __metadata__.%.100s must be a string", s->path, key);
    }
    return OK;
}

static int compare_place(const void *a, const void *b)
{
    const struct tensor *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

/* Refuses tensors that, in the order of their offsets, do not cover the data exactly. */
static enum status check_cover(const struct shard *s, struct tensor *t, int n)
{
    int64_t at = 0;
    if (n)
        qsort(t, (size_t)n, sizeof *t, compare_place);
    for (int i = 0; i < n; i++) {
        if (t[i].begin != at)
            return bad(s, t[i].name, t[i].begin < at ? "its data overlaps another tensor's" : "there is a hole before its data");
        at = t[i].end;
    }
    if (at != s->bytes - s->data)
        return status_fail(ERR_CORRUPT, "%s: the tensors hold %lld bytes, the file %lld", s->path, (long long)at,
                           (long long)(s->bytes - s->data));
    return OK;
}

static enum status parse_header(struct st_file *f, int shard)
{
    const struct shard *s = &f->shards[shard];
    const char *name;
    json_t *entry;
    int n = 0;
    size_t room = (size_t)f->n_tensors + json_object_size(s->header);
    struct tensor *all = sys_malloc(sizeof *all * (room + 1));
    if (!all)
        return status_fail(ERR_NOMEM, "out of memory: a list of %zu tensors", room);
    if (f->n_tensors)
        memcpy(all, f->tensors, sizeof *all * (size_t)f->n_tensors);
    free(f->tensors);
    f->tensors = all;
    struct tensor *t = all + f->n_tensors;
    json_object_foreach(s->header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0) {
            TRY(check_metadata(s, entry));
            continue;
        }
        t[n] = (struct tensor){.name = name, .shard = shard};
        TRY(parse_tensor(s, entry, &t[n++]));
    }
    TRY(check_cover(s, t, n));
    f->n_tensors += n;
    return OK;
}

/* ---- opening ---- */

/* Opens one more shard; f->shards has room for it. */
static enum status open_shard(struct st_file *f, const char *path)
{
    struct shard *s = &f->shards[f->n_shards];
    uint64_t length = 0;
    *s = (struct shard){.fd = -1, .path = strdup(path)};
    f->n_shards++; /* from here on st_close cleans up */
    if (!s->path)
        return status_fail(ERR_NOMEM, "out of memory: a path");
    TRY(file_open(path, &s->fd, &s->bytes));
    if (s->bytes < 8)
        return status_fail(ERR_CORRUPT, "%s has %lld bytes; that is no safetensors file", path, (long long)s->bytes);
    TRY(file_read(s->fd, path, &length, 8, 0));
    if (length > MAX_HEADER_BYTES)
        return status_fail(ERR_CORRUPT, "%s: a header of %llu bytes is above the format's limit of %d; is it a safetensors file?",
                           path, (unsigned long long)length, MAX_HEADER_BYTES);
    s->data = 8 + (int64_t)length;
    if (s->data > s->bytes)
        return status_fail(ERR_CORRUPT, "%s has %lld bytes and its header alone %lld; is the file cut short?", path,
                           (long long)s->bytes, (long long)s->data);
    TRY(load_json(s->fd, path, 8, (int64_t)length, &s->header));
    return parse_header(f, f->n_shards - 1);
}

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static int compare_name(const void *a, const void *b)
{
    return strcmp(((const struct tensor *)a)->name, ((const struct tensor *)b)->name);
}

/* Sorts the tensors by name, and leaves out copies in shards other than the one that the index names for the tensor. */
static enum status sort_names(struct st_file *f)
{
    int n = 0;
    for (int i = 0; i < f->n_tensors; i++) {
        const char *file = json_string_value(json_object_get(f->list, f->tensors[i].name));
        if (!file || strcmp(file_name(f->shards[f->tensors[i].shard].path), file) == 0)
            f->tensors[n++] = f->tensors[i];
        else if (f->n_left_out++ == 0)
            f->left_out = f->tensors[i].name;
    }
    f->n_tensors = n;
    if (f->n_tensors)
        qsort(f->tensors, (size_t)f->n_tensors, sizeof *f->tensors, compare_name);
    for (int i = 1; i < f->n_tensors; i++)
        if (compare_name(&f->tensors[i - 1], &f->tensors[i]) == 0)
            return status_fail(ERR_CORRUPT, "tensor %.100s is in both %s and %s", f->tensors[i].name,
                               f->shards[f->tensors[i - 1].shard].path, f->shards[f->tensors[i].shard].path);
    return OK;
}

static const struct tensor *lookup(const struct st_file *f, const char *name)
{
    struct tensor key = {.name = name};
    return f->n_tensors ? bsearch(&key, f->tensors, (size_t)f->n_tensors, sizeof key, compare_name) : NULL;
}

static enum status allocate_shards(struct st_file *f, size_t n)
{
    f->shards = sys_calloc(n + 1, sizeof *f->shards);
    return f->shards ? OK : status_fail(ERR_NOMEM, "out of memory: a list of %zu files", n);
}

/* Makes the path of a file named by the index, in the index's directory; only plain file names, so that an index cannot point
 * elsewhere. */
static enum status shard_path(const char *index, const json_t *file, char path[PATH_BYTES])
{
    const char *name = json_string_value(file), *slash = strrchr(index, '/');
    if (!name || !name[0] || strchr(name, '/'))
        return status_fail(ERR_CORRUPT, "%s: weight_map must give file names without a directory", index);
    int n = snprintf(path, PATH_BYTES, "%.*s%s", slash ? (int)(slash + 1 - index) : 0, index, name);
    return n < PATH_BYTES ? OK : status_fail(ERR_INVALID, "%s: the path of a file is too long", index);
}

/* Opens every file that the index names. A tensor that is missing from its file is an error only when somebody asks for it. */
static enum status open_listed(struct st_file *f)
{
    json_t *file;
    const char *name;
    char path[PATH_BYTES];
    if (json_object_size(f->list) == 0)
        return status_fail(ERR_CORRUPT, "%s: weight_map is missing or empty", f->path);
    TRY(allocate_shards(f, json_object_size(f->list)));
    json_object_foreach(f->list, name, file)
    {
        int known = 0;
        TRY(shard_path(f->path, file, path));
        for (int i = 0; i < f->n_shards && !known; i++)
            known = strcmp(f->shards[i].path, path) == 0;
        if (!known)
            TRY(open_shard(f, path));
    }
    return sort_names(f);
}

static enum status open_index(struct st_file *f)
{
    int fd;
    int64_t bytes;
    json_t *root;
    TRY(file_open(f->path, &fd, &bytes));
    enum status st = bytes <= MAX_HEADER_BYTES
                         ? load_json(fd, f->path, 0, bytes, &root)
                         : status_fail(ERR_CORRUPT, "%s has %lld bytes; that is no index", f->path, (long long)bytes);
    sys_close(fd);
    TRY(st);
    f->list = json_incref(json_object_get(root, "weight_map"));
    json_decref(root);
    return open_listed(f);
}

static int ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* Finds the file to open: the path itself, or the safetensors file or index in that directory. */
static enum status resolve(const char *path, char file[PATH_BYTES])
{
    static const char *const names[] = {"", "/model.safetensors", "/model.safetensors.index.json"};
    struct stat s;
    if (sys_stat(path, &s) != 0)
        return sys_cannot_open(path);
    for (int i = S_ISDIR(s.st_mode) ? 1 : 0; i < 3; i++) {
        if (snprintf(file, PATH_BYTES, "%s%s", path, names[i]) >= PATH_BYTES)
            return status_fail(ERR_INVALID, "%.64s...: the path is too long", path);
        if (i == 0 || sys_stat(file, &s) == 0)
            return OK;
        if (!sys_is_absent(errno))
            return sys_cannot_open(file);
    }
    return status_fail(
        ERR_INVALID,
        "%s has neither model.safetensors nor model.safetensors.index.json: download the weights there, too (ltrain "
        "plan needs config.json only)",
        path);
}

enum status st_open(const char *path, struct st_file **out)
{
    char file[PATH_BYTES];
    enum status st;
    TRY(resolve(path, file));
    struct st_file *f = sys_calloc(1, sizeof *f);
    if (!f)
        return status_fail(ERR_NOMEM, "out of memory: the description of %s", path);
    f->path = strdup(file);
    if (!f->path) {
        st = status_fail(ERR_NOMEM, "out of memory: a path");
        goto fail;
    }
    if (ends_with(file, ".index.json")) {
        TRY_GOTO(open_index(f), fail);
    } else {
        TRY_GOTO(allocate_shards(f, 1), fail);
        TRY_GOTO(open_shard(f, file), fail);
        TRY_GOTO(sort_names(f), fail);
    }
    *out = f;
    return OK;
fail:
    st_close(f);
    return st;
}

void st_close(struct st_file *f)
{
    if (!f)
        return;
    for (int i = 0; i < f->n_shards; i++) {
        if (f->shards[i].fd >= 0)
            sys_close(f->shards[i].fd);
        json_decref(f->shards[i].header);
        free(f->shards[i].path);
    }
    json_decref(f->list);
    free(f->shards);
    free(f->tensors);
    free(f->path);
    free(f);
}

int st_files(const struct st_file *f)
{
    return f->n_shards;
}

const char *st_file_path(const struct st_file *f, int i)
{
    return f->shards[i].path;
}

enum status st_stamp(const struct st_file *f, uint64_t *out)
{
    *out = 0xcbf29ce484222325u;
    for (int i = 0; i < f->n_shards; i++) {
        struct stat s;
        if (sys_fstat(f->shards[i].fd, &s) != 0)
            return status_fail(ERR_IO, "cannot read the state of %s: %s", f->shards[i].path, strerror(errno));
        const uint64_t facts[] = {(uint64_t)s.st_ino, (uint64_t)s.st_size, (uint64_t)s.st_mtim.tv_sec,
                                  (uint64_t)s.st_mtim.tv_nsec};
        for (size_t k = 0; k < sizeof facts / sizeof *facts; k++) /* FNV-1a, word by word instead of byte by byte */
            *out = (*out ^ facts[k]) * 0x100000001b3u;
    }
    return OK;
}

/* ---- asking and reading ---- */

int st_count(const struct st_file *f)
{
    return f->n_tensors;
}

const char *st_name(const struct st_file *f, int i)
{
    return f->tensors[i].name;
}

int st_left_out(const struct st_file *f, const char **first)
{
    *first = f->left_out;
    return f->n_left_out;
}

int st_has(const struct st_file *f, const char *name)
{
    return lookup(f, name) != NULL;
}

const char *st_path(const struct st_file *f, const char *name)
{
    const struct tensor *t = name ? lookup(f, name) : NULL;
    return t ? f->shards[t->shard].path : f->path;
}

static enum status find(const struct st_file *f, const char *name, const struct tensor **out)
{
    const struct tensor *t = lookup(f, name);
    const char *listed = json_string_value(json_object_get(f->list, name));
    if (!t && listed)
        return status_fail(ERR_CORRUPT, "%s: tensor %s is not in %s, where the index has it", f->path, name, listed);
    if (!t)
        return status_fail(ERR_INVALID, "%s: there is no tensor %s", f->path, name);
    if (!t->kind->readable)
        return status_fail(ERR_INVALID, "%s: tensor %s is stored as %s; F32, F16, BF16 and F64 can be read: convert it",
                           f->shards[t->shard].path, name, t->kind->name);
    if (t->n_dims > ST_DIMS)
        return status_fail(ERR_INVALID, "%s: tensor %s has %d dimensions; up to %d can be read", f->shards[t->shard].path, name,
                           t->n_dims, ST_DIMS);
    *out = t;
    return OK;
}

enum status st_find_raw(const struct st_file *f, const char *name, struct st_raw *out)
{
    const struct tensor *t = lookup(f, name);
    if (!t)
        return status_fail(ERR_INVALID, "%s: there is no tensor %s", f->path, name);
    const struct shard *s = &f->shards[t->shard];
    if (t->n_dims > ST_DIMS)
        return status_fail(ERR_INVALID, "%s: tensor %.100s has %d dimensions; at most %d are copied", s->path, name, t->n_dims,
                           ST_DIMS);
    *out = (struct st_raw){.path = s->path, .type = t->kind->name, .n_dims = t->n_dims, .at = s->data + t->begin};
    out->bytes = t->end - t->begin;
    memcpy(out->shape, t->shape, sizeof out->shape);
    return OK;
}

const char *st_own_name(const struct st_file *f, const char *name)
{
    const struct tensor *t = lookup(f, name);
    return t ? t->name : NULL;
}

enum status st_find(const struct st_file *f, const char *name, struct st_info *info)
{
    const struct tensor *t = NULL;
    TRY(find(f, name, &t));
    *info = (struct st_info){.dtype = t->kind->dtype, .n_dims = t->n_dims, .elements = t->elements};
    memcpy(info->shape, t->shape, sizeof info->shape);
    return OK;
}

/* Bytes read at a time: READ_BYTES of values that keep their type, SCRATCH of values to be converted. These and their result fit
 * a second-level cache. */
enum { READ_BYTES = 128 << 10, SCRATCH = 64 << 10 };

/* Reads n values from byte `at` of the file on. */
static enum status read_block(const struct shard *s, enum dtype from, int64_t at, int64_t n, enum dtype to, void *out,
                              int64_t *finite)
{
    double scratch[SCRATCH / sizeof(double)];
    void *raw = from == to ? out : scratch;
    TRY(file_read(s->fd, s->path, raw, (size_t)(n * dtype_size(from)), at));
    *finite = convert_values(from, raw, to, out, n);
    return OK;
}

enum status st_read_bytes(struct st_file *f, const char *name, int64_t first, int64_t n, void *out)
{
    const struct tensor *t = lookup(f, name);
    if (!t)
        return status_fail(ERR_INVALID, "%s: there is no tensor %s", f->path, name);
    const struct shard *s = &f->shards[t->shard];
    if (first < 0 || n < 0 || n > t->end - t->begin - first)
        return status_fail(ERR_INVALID, "%s: %lld bytes from number %lld on of tensor %s, which has %lld", s->path, (long long)n,
                           (long long)first, name, (long long)(t->end - t->begin));
    return file_read(s->fd, s->path, out, (size_t)n, s->data + t->begin + first);
}

enum status st_read(struct st_file *f, const char *name, int64_t first, int64_t n, enum dtype to, void *out, int64_t *finite)
{
    const struct tensor *t = NULL;
    TRY(find(f, name, &t));
    const struct shard *s = &f->shards[t->shard];
    if (first < 0 || n < 0 || n > t->elements - first)
        return status_fail(ERR_INVALID, "%s: %lld elements from number %lld on of tensor %s, which has %lld", s->path,
                           (long long)n, (long long)first, name, (long long)t->elements);
    const int64_t here = t->kind->bits / 8, there = dtype_size(to), most = (t->kind->dtype == to ? READ_BYTES : SCRATCH) / here;
    *finite = n;
    for (int64_t done = 0; done < n; done += most) {
        int64_t count = min_i64(most, n - done), good;
        TRY(read_block(s, t->kind->dtype, s->data + t->begin + (first + done) * here, count, to, (char *)out + done * there,
                       &good));
        if (good < count)
            *finite = min_i64(*finite, done + good);
    }
    return OK;
}

enum status st_read_f32(struct st_file *f, const char *name, int64_t first, int64_t n, float *out)
{
    int64_t finite;
    return st_read(f, name, first, n, F32, out, &finite);
}
