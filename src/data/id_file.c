/* Reading the headers of files of token ids. */
#include "data/id_file.h"

#include "base/sys.h"
#include "data/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LLMC_HEADER = 1024, MEGATRON_HEADER = 34 }; /* bytes */
#define MEGATRON_MAGIC "MMIDIDX\0\0"

struct reading {
    const char *path;
    int fd;
    int64_t bytes;
};

static int ends_with(const char *path, const char *suffix)
{
    size_t n = strlen(path), m = strlen(suffix);
    return n > m && strcmp(path + n - m, suffix) == 0;
}

static enum status read_head(const struct reading *r, void *head, size_t n)
{
    memset(head, 0, n);
    return file_read(r->fd, r->path, head, (size_t)r->bytes < n ? (size_t)r->bytes : n, 0);
}

static enum status check_length(const struct reading *r, const struct id_file *f)
{
    if (r->bytes - f->first_byte == f->tokens * f->width)
        return OK;
    return status_fail(
        ERR_INVALID, "%s has %lld bytes, and %lld tokens of %d bytes behind a header of %lld: it is cut off, or of another type",
        r->path, (long long)r->bytes, (long long)f->tokens, f->width, (long long)f->first_byte);
}

/* ---- Megatron ---- */

/* Makes the name of NAME.bin from that of NAME.idx, or the other way round. */
static int other_of(const char *path, const char *suffix, char other[4096])
{
    size_t n = strlen(path);
    if (n < 5 || n >= 4096)
        return 0;
    memcpy(other, path, n + 1);
    memcpy(other + n - 4, suffix, 4);
    return 1;
}

static int is_index(const struct reading *r)
{
    char head[9];
    return r->bytes >= MEGATRON_HEADER && read_head(r, head, sizeof head) == OK && memcmp(head, MEGATRON_MAGIC, sizeof head) == 0;
}

static enum status set_type(const struct reading *r, int code, struct id_file *f)
{
    static const struct {
        int width, is_signed;
    } types[] = {{0, 0}, {1, 0}, {1, 1}, {2, 1}, {4, 1}, {8, 1}, {0, 0}, {0, 0}, {2, 0}};
    if (code < 0 || code >= (int)(sizeof types / sizeof *types) || types[code].width == 0)
        return status_fail(ERR_INVALID, "%s: its tokens have the type %d, which is none of whole numbers", r->path, code);
    f->width = types[code].width;
    f->is_signed = types[code].is_signed;
    return OK;
}

/* Megatron's index: the lengths of sequences, the byte where each begins, and the first sequence of each document. */
struct index {
    int64_t sequences, documents; /* documents: one more than the number of documents */
    const int32_t *length;
    const int64_t *first;
    const int64_t *document;
};

static enum status find_ends(const struct reading *r, const struct index *x, struct id_file *f)
{
    int64_t at = 0, next = 0;
    f->ends = sys_malloc((size_t)(x->documents + 1) * sizeof *f->ends);
    if (!f->ends)
        return status_fail(ERR_NOMEM, "out of memory: %lld documents of %s", (long long)x->documents, r->path);
    for (int64_t i = 0; i <= x->sequences; i++) {
        while (next < x->documents && x->document[next] == i) {
            if (at > 0 && (f->n_ends == 0 || f->ends[f->n_ends - 1] < at))
                f->ends[f->n_ends++] = at;
            next++;
        }
        if (i == x->sequences)
            break;
        if (x->length[i] < 0 || x->first[i] != at * f->width)
            return status_fail(ERR_INVALID, "%s: sequence %lld is not behind the one before it: write the data set anew", r->path,
                               (long long)i);
        at += x->length[i];
    }
    if (next < x->documents)
        return status_fail(ERR_INVALID, "%s is damaged: document %lld begins at no sequence", r->path, (long long)next);
    if (at > 0 && (f->n_ends == 0 || f->ends[f->n_ends - 1] < at))
        f->ends[f->n_ends++] = at;
    f->tokens = at;
    return OK;
}

static enum status read_index(const struct reading *r, struct id_file *f)
{
    uint8_t head[MEGATRON_HEADER];
    struct index x;
    uint64_t version;
    TRY(read_head(r, head, sizeof head));
    memcpy(&version, head + 9, 8);
    memcpy(&x.sequences, head + 18, 8);
    memcpy(&x.documents, head + 26, 8);
    if (version != 1)
        return status_fail(ERR_INVALID, "%s: version %llu of the format, known is 1", r->path, (unsigned long long)version);
    TRY(set_type(r, head[17], f));
    int64_t rest = r->bytes - MEGATRON_HEADER;
    if (x.sequences < 0 || x.documents < 0 || x.sequences > rest / 12 || x.documents > rest / 8 ||
        rest < 12 * x.sequences + 8 * x.documents)
        return status_fail(ERR_INVALID, "%s is cut off: it has %lld bytes, too few for %lld sequences and %lld documents",
                           r->path, (long long)r->bytes, (long long)x.sequences, (long long)x.documents);
    /* in memory the lengths, of 4 bytes, come last, so that the arrays of 8-byte numbers are aligned */
    int64_t wide = 8 * (x.sequences + x.documents);
    char *memory = sys_malloc((size_t)(wide + 4 * x.sequences + 1));
    if (!memory)
        return status_fail(ERR_NOMEM, "out of memory: the index %s", r->path);
    x.first = (int64_t *)memory;
    x.document = x.first + x.sequences;
    x.length = (int32_t *)(memory + wide);
    enum status st = file_read(r->fd, r->path, memory + wide, (size_t)(4 * x.sequences), MEGATRON_HEADER);
    if (st == OK)
        st = file_read(r->fd, r->path, memory, (size_t)wide, MEGATRON_HEADER + 4 * x.sequences);
    if (st == OK)
        st = find_ends(r, &x, f);
    free(memory);
    return st;
}

/* Reads the .idx beside a .bin, if there is one (*found = 1). */
static enum status look_beside(const struct reading *r, struct id_file *f, int *found)
{
    char path[4096];
    struct reading index = {.path = path};
    *found = 0;
    if (!other_of(r->path, ".idx", path) || sys_access(path, F_OK) != 0)
        return OK;
    TRY(file_open(path, &index.fd, &index.bytes));
    *found = is_index(&index);
    enum status st = *found ? read_index(&index, f) : OK;
    sys_close(index.fd);
    if (st == OK && *found) {
        f->format = IDS_MEGATRON;
        st = check_length(r, f);
    }
    return st;
}

static enum status look_index(const struct reading *r, struct id_file *f)
{
    char path[4096];
    if (!is_index(r))
        return OK;
    f->format = IDS_MEGATRON_INDEX;
    if (other_of(r->path, ".bin", path) && sys_access(path, F_OK) != 0)
        return status_fail(ERR_INVALID, "%s is the index of %s, which is not there", r->path, path);
    return OK;
}

/* ---- llm.c, and no header ---- */

static enum status look_bin(const struct reading *r, int token_bytes, struct id_file *f)
{
    enum { GPT2 = 20240520, LLAMA3 = 20240801, GPT2_END = 50256, LLAMA3_BEGIN = 128000 };
    int32_t head[3];
    int found;
    TRY(look_beside(r, f, &found));
    if (found)
        return OK;
    TRY(read_head(r, head, sizeof head));
    if (r->bytes >= LLMC_HEADER && ((head[0] == GPT2 && head[1] == 1) || (head[0] == LLAMA3 && head[1] == 7))) {
        f->format = IDS_LLMC;
        f->first_byte = LLMC_HEADER;
        f->width = head[0] == GPT2 ? 2 : 4;
        f->begins = head[0] == GPT2 ? GPT2_END : LLAMA3_BEGIN;
        f->tokens = head[2];
        return check_length(r, f);
    }
    if (head[0] == GPT2 || head[0] == LLAMA3)
        return status_fail(ERR_INVALID, "%s: a file of llm.c of version %d; known are version 1 of %d and 7 of %d", r->path,
                           head[1], GPT2, LLAMA3);
    if (token_bytes == 0)
        return status_fail(
            ERR_INVALID,
            "%s has neither llm.c's header nor Megatron's index (%.*s.idx) beside it: --token-type u16 or u32 says what "
            "its tokens are; where it has none, name the other files ('DIR/**/*.c')",
            r->path, (int)strlen(r->path) - 4, r->path);
    if (r->bytes % token_bytes)
        return status_fail(ERR_INVALID, "%s has %lld bytes, no multiple of %d (--token-type)", r->path, (long long)r->bytes,
                           token_bytes);
    f->format = IDS_PLAIN;
    f->width = token_bytes;
    f->tokens = r->bytes / token_bytes;
    return OK;
}

enum status id_file_look(const char *path, int token_bytes, struct id_file *out)
{
    struct reading r = {.path = path};
    struct id_file f = {.begins = -1, .width = 1};
    int bin = ends_with(path, ".bin");
    *out = f;
    if (!bin && !ends_with(path, ".idx"))
        return OK;
    TRY(file_open(path, &r.fd, &r.bytes));
    enum status st = bin ? look_bin(&r, token_bytes, &f) : look_index(&r, &f);
    sys_close(r.fd);
    if (st != OK)
        id_file_free(&f);
    else
        *out = f;
    return st;
}

void id_file_free(struct id_file *f)
{
    free(f->ends);
    f->ends = NULL;
}

/* ---- reading ---- */

int64_t id_file_get(const struct id_file *f, const uint8_t *at)
{
    uint64_t x = 0;
    memcpy(&x, at, (size_t)f->width); /* least significant byte first */
    int unused = 64 - 8 * f->width;
    return f->is_signed ? (int64_t)(x << unused) >> unused : (int64_t)x;
}

int64_t id_file_document(const struct id_file *f, int64_t at)
{
    int64_t low = 0, high = f->n_ends;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (f->ends[middle] <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}
