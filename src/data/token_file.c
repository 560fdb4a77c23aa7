/* Writing token files in order, and reading them in checked blocks. */
#include "data/token_file.h"

#include "base/directory.h"
#include "base/num.h"
#include "base/sys.h"
#include "data/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define MAGIC "LTTOKEN4"
#define FIRST_TOKEN 4096 /* offset of the first token in the file */
#define BLOCK_BYTES ((int64_t)1 << 16)

struct header {
    char magic[8];
    struct token_source source;
    struct token_totals totals;
    int64_t width, blocks;
    uint64_t tables;   /* checksum of all tables */
    uint64_t checksum; /* checksum of the header's fields before this one */
};

/* Tables behind the tokens, in one piece and in this order: ends of documents, number of documents up to each file's end, counts
 * of ids, fingerprints of files, checksums of blocks. */
struct tables {
    int64_t *ends, *file_ends, *counts;
    struct fingerprint *print;
    uint64_t *block;
    void *memory;
    size_t bytes;
};

static size_t table_bytes(const struct header *h)
{
    return (size_t)(h->totals.documents + h->source.files + h->source.ids + h->blocks) * 8 +
           (size_t)h->source.files * sizeof(struct fingerprint);
}

/* Finds the tables in t->memory, of t->bytes. */
static void lay_out(const struct header *h, struct tables *t)
{
    size_t ends = (size_t)(h->totals.documents + h->source.files) * 8, counts = (size_t)h->source.ids * 8,
           print = (size_t)h->source.files * sizeof *t->print;
    t->ends = t->memory;
    t->file_ends = t->ends + h->totals.documents;
    t->counts = (int64_t *)((char *)t->memory + ends);
    t->print = (struct fingerprint *)((char *)t->memory + ends + counts);
    t->block = (uint64_t *)((char *)t->memory + ends + counts + print);
}

static void name_of(const char *dir, const struct token_source *s, char path[4096], const char *suffix)
{
    snprintf(path, 4096, "%s/%016" PRIx64 "%s", dir, s->key, suffix);
}

static int64_t token_bytes(const struct header *h)
{
    return h->totals.tokens * h->width;
}

/* ---- writing ---- */

struct token_writer {
    struct header header;
    char path[4096], final[4096];
    int fd;
    uint8_t block[BLOCK_BYTES];
    int64_t held; /* bytes in the present block */
    int64_t *counts, *file_ends;
    int64_t *ends, ends_room;
    uint64_t *sums;
    int64_t sums_room;
};

/* Adds advice to the message of a failed write: the unwritable or full directory is often one in the home directory, which the
 * user did not choose. */
static enum status with_advice(enum status st)
{
    char cause[1024];
    if (st != ERR_IO)
        return st;
    snprintf(cause, sizeof cause, "%s", status_message());
    return status_fail(st, "%s (--token-cache DIR names another directory for tokens)", cause);
}

/* Tells whether the open file belongs to this user, has a single name, and is still the one at `path`: another writer may have
 * renamed it meanwhile. */
static int is_own(int fd, const char *path)
{
    struct stat open, named;
    return sys_fstat(fd, &open) == 0 && sys_lstat(path, &named) == 0 && open.st_ino == named.st_ino &&
           open.st_dev == named.st_dev && open.st_uid == geteuid() && open.st_nlink == 1;
}

/* Opens KEY.part, perhaps left by a killed run, for writing. If another run or user has that file, opens one with this process's
 * number in its name. */
static enum status open_for_writing(struct token_writer *w, const char *dir)
{
    char suffix[32];
    name_of(dir, &w->header.source, w->final, ".tokens");
    for (int turn = 0; turn < 2; turn++) {
        snprintf(suffix, sizeof suffix, turn ? ".%d.part" : ".part", (int)getpid());
        name_of(dir, &w->header.source, w->path, suffix);
        if (turn == 1)
            sys_unlink(w->path); /* left by a dead process of the same number, or put there by somebody else */
        w->fd = sys_open_file(w->path, O_RDWR | O_CREAT | (turn ? O_EXCL : 0), 0666);
        if (w->fd < 0 && turn == 1)
            return with_advice(status_fail(ERR_IO, "cannot write %s: %s", w->path, sys_strerror(errno)));
        if (w->fd >= 0 && sys_flock(w->fd, LOCK_EX | LOCK_NB) == 0 && is_own(w->fd, w->path))
            break;
        if (turn == 0 && w->fd >= 0) {
            sys_close(w->fd);
            w->fd = -1;
        }
    }
    return sys_ftruncate(w->fd, 0) == 0 ? OK : status_fail(ERR_IO, "cannot write %s: %s", w->path, strerror(errno));
}

enum status token_writer_create(const char *dir, const struct token_source *source, struct token_writer **out)
{
    enum status st;
    TRY(with_advice(directory_make(dir)));
    struct token_writer *w = sys_calloc(1, sizeof *w);
    if (!w)
        return status_fail(ERR_NOMEM, "out of memory: writing tokens");
    w->fd = -1;
    w->header.source = *source;
    w->header.width = source->ids <= 65536 ? 2 : 4;
    w->counts = sys_calloc((size_t)source->ids, sizeof *w->counts);
    w->file_ends = sys_calloc((size_t)source->files + 1, sizeof *w->file_ends);
    if (!w->counts || !w->file_ends)
        st = status_fail(ERR_NOMEM, "out of memory: counts of %lld tokens", (long long)source->ids);
    else
        st = open_for_writing(w, dir);
    if (st != OK) {
        token_writer_destroy(w);
        return st;
    }
    *out = w;
    return OK;
}

void token_writer_destroy(struct token_writer *w)
{
    if (!w)
        return;
    if (w->fd >= 0) {
        sys_unlink(w->path);
        sys_close(w->fd);
    }
    free(w->counts);
    free(w->file_ends);
    free(w->ends);
    free(w->sums);
    free(w);
}

static enum status grow(void **array, int64_t *room, int64_t n)
{
    if (n < *room)
        return OK;
    int64_t more = max_i64(1024, 2 * *room);
    void *larger = sys_realloc(*array, (size_t)more * 8);
    if (!larger)
        return status_fail(ERR_NOMEM, "out of memory: a table of %lld documents", (long long)more);
    *array = larger;
    *room = more;
    return OK;
}

static enum status write_block(struct token_writer *w)
{
    if (w->held == 0)
        return OK;
    TRY(grow((void **)&w->sums, &w->sums_room, w->header.blocks));
    w->sums[w->header.blocks] = XXH3_64bits(w->block, (size_t)w->held);
    TRY(with_advice(file_write(w->fd, w->path, w->block, (size_t)w->held, FIRST_TOKEN + w->header.blocks * BLOCK_BYTES)));
    w->header.blocks++;
    w->held = 0;
    return OK;
}

enum status token_writer_add(struct token_writer *w, const int32_t *id, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t x = (uint32_t)id[i];
        if (x >= (uint64_t)w->header.source.ids)
            return status_fail(ERR_INVALID, "the tokenizer gives the id %lld, and its ids end at %lld", (long long)id[i],
                               (long long)w->header.source.ids - 1);
        w->counts[x]++;
        memcpy(w->block + w->held, &x, (size_t)w->header.width); /* least significant byte first */
        w->held += w->header.width;
        if (w->held == BLOCK_BYTES)
            TRY(write_block(w));
    }
    w->header.totals.tokens += n;
    return OK;
}

enum status token_writer_end_document(struct token_writer *w, int64_t file)
{
    int64_t n = w->header.totals.documents;
    if ((n ? w->ends[n - 1] : 0) == w->header.totals.tokens) {
        w->header.totals.empty++;
        return OK;
    }
    TRY(grow((void **)&w->ends, &w->ends_room, n));
    w->ends[n] = w->header.totals.tokens;
    w->header.totals.documents++;
    w->file_ends[file] = n + 1;
    return OK;
}

enum status token_writer_finish(struct token_writer *w, const struct token_totals *totals, const struct fingerprint *print)
{
    struct header *h = &w->header;
    struct tables t = {.bytes = 0};
    TRY(write_block(w));
    h->totals.text_bytes = totals->text_bytes;
    h->totals.repaired = totals->repaired;
    h->totals.repaired_file = totals->repaired_file;
    h->totals.chats = totals->chats;
    memcpy(h->magic, MAGIC, 8);
    t.bytes = table_bytes(h);
    t.memory = sys_malloc(t.bytes + 1);
    if (!t.memory)
        return status_fail(ERR_NOMEM, "out of memory: tables of tokens");
    lay_out(h, &t);
    if (h->totals.documents)
        memcpy(t.ends, w->ends, (size_t)h->totals.documents * 8);
    for (int64_t i = 0; i < h->source.files; i++)
        t.file_ends[i] = max_i64(w->file_ends[i], i ? t.file_ends[i - 1] : 0);
    memcpy(t.counts, w->counts, (size_t)h->source.ids * 8);
    memcpy(t.print, print, (size_t)h->source.files * sizeof *print);
    if (h->blocks)
        memcpy(t.block, w->sums, (size_t)h->blocks * 8);
    h->tables = XXH3_64bits(t.memory, t.bytes);
    h->checksum = XXH3_64bits(h, offsetof(struct header, checksum));
    enum status st = file_write(w->fd, w->path, t.memory, t.bytes, FIRST_TOKEN + token_bytes(h));
    if (st == OK)
        st = file_write(w->fd, w->path, h, sizeof *h, 0);
    free(t.memory);
    if (st == OK && (sys_fsync(w->fd) != 0 || sys_rename(w->path, w->final) != 0))
        st = status_fail(ERR_IO, "cannot write %s: %s", w->final, strerror(errno));
    if (st == OK) {
        sys_close(w->fd);
        w->fd = -1;
    }
    return with_advice(st);
}

/* ---- reading ---- */

struct token_file {
    struct header header;
    struct tables tables;
    char path[4096];
    int fd;
};

void token_file_close(struct token_file *f)
{
    if (!f)
        return;
    if (f->fd >= 0)
        sys_close(f->fd);
    free(f->tables.memory);
    free(f);
}

/* Tells whether the header is valid and belongs to this source, and the file is long enough for the tokens and ends that the
 * header says. */
static int is_whole(const struct header *h, const struct token_source *s, int64_t bytes)
{
    return memcmp(h->magic, MAGIC, 8) == 0 && h->checksum == XXH3_64bits(h, offsetof(struct header, checksum)) &&
           h->source.key == s->key && h->source.files == s->files && h->source.ids == s->ids &&
           bytes >= FIRST_TOKEN + token_bytes(h) + h->totals.documents * 8;
}

static enum status read_tables(struct token_file *f, int64_t bytes, int *whole)
{
    struct tables *t = &f->tables;
    const struct header *h = &f->header;
    t->bytes = table_bytes(h);
    *whole = bytes == FIRST_TOKEN + token_bytes(h) + (int64_t)t->bytes;
    if (!*whole)
        return OK;
    t->memory = sys_malloc(t->bytes + 1);
    if (!t->memory)
        return status_fail(ERR_NOMEM, "out of memory: tables of tokens");
    lay_out(h, t);
    TRY(file_read(f->fd, f->path, t->memory, t->bytes, FIRST_TOKEN + token_bytes(h)));
    *whole = XXH3_64bits(t->memory, t->bytes) == h->tables;
    return OK;
}

enum status token_file_open(const char *dir, const struct token_source *source, struct token_file **out)
{
    struct token_file *f = sys_calloc(1, sizeof *f);
    int64_t bytes;
    int whole = 0;
    *out = NULL;
    if (!f)
        return status_fail(ERR_NOMEM, "out of memory: a file of tokens");
    f->fd = -1;
    name_of(dir, source, f->path, ".tokens");
    enum status st = sys_access(f->path, R_OK) == 0 ? file_open(f->path, &f->fd, &bytes) : OK;
    if (st == OK && f->fd >= 0 && bytes >= FIRST_TOKEN)
        st = file_read(f->fd, f->path, &f->header, sizeof f->header, 0);
    if (st == OK && f->fd >= 0 && bytes >= FIRST_TOKEN && is_whole(&f->header, source, bytes))
        st = read_tables(f, bytes, &whole);
    if (st == OK && whole)
        *out = f;
    else
        token_file_close(f);
    return st;
}

const struct token_totals *token_file_totals(const struct token_file *f)
{
    return &f->header.totals;
}

const struct fingerprint *token_file_fingerprint(const struct token_file *f, int64_t i)
{
    return &f->tables.print[i];
}

int64_t token_file_ids(const struct token_file *f)
{
    return f->header.source.ids;
}

const int64_t *token_file_counts(const struct token_file *f)
{
    return f->tables.counts;
}

const int64_t *token_file_ends(const struct token_file *f)
{
    return f->tables.ends;
}

const int64_t *token_file_file_ends(const struct token_file *f)
{
    return f->tables.file_ends;
}

/* Widens n tokens of a checked block to 32-bit ids. */
static void widen(const struct header *h, const uint8_t *from, int64_t n, int32_t *out)
{
    const uint16_t *narrow = (const uint16_t *)from;
    if (h->width == 4)
        memcpy(out, from, (size_t)n * 4);
    else
        for (int64_t i = 0; i < n; i++)
            out[i] = narrow[i];
}

enum status token_file_read(const struct token_file *f, int64_t at, int64_t n, int32_t *out)
{
    const struct header *h = &f->header;
    int64_t a_block = BLOCK_BYTES / h->width;
    _Alignas(8) uint8_t block[BLOCK_BYTES];
    while (n > 0) {
        int64_t b = at / a_block, first = b * a_block, held = min_i64(a_block, h->totals.tokens - first),
                part = min_i64(n, first + held - at);
        TRY(file_read(f->fd, f->path, block, (size_t)(held * h->width), FIRST_TOKEN + b * BLOCK_BYTES));
        if (XXH3_64bits(block, (size_t)(held * h->width)) != f->tables.block[b])
            return status_fail(ERR_CORRUPT, "%s: block %lld is not what was written: remove the file, and it is made again",
                               f->path, (long long)b);
        widen(h, block + (at - first) * h->width, part, out);
        at += part;
        out += part;
        n -= part;
    }
    return OK;
}
