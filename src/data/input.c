/* Reading files that may be compressed. */
#include "data/input.h"

#include "base/num.h"
#include "base/progress.h"
#include "base/sys.h"
#include "build_config.h"
#include "data/file.h"
#include "parquet/parquet.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <xxhash.h>
#ifdef HAVE_ZLIB
#include <zlib.h>
#endif
#ifdef HAVE_ZSTD
#include <zstd.h>
#endif

enum { RAW_BYTES = 1 << 18 };

enum packed_by { AS_IT_IS, BY_GZIP, BY_ZSTD, AS_PARQUET };

struct input {
    const char *path;
    struct fingerprint *print; /* fingerprint to fill in, or NULL */
    enum packed_by by;
    int fd;
    int64_t bytes, at; /* bytes: length of the file; at: number of the next byte to read; of a .parquet, bytes that were read */
    XXH3_state_t *hash;
    uint8_t *raw; /* bytes of an archive that were read and not yet decompressed */
    size_t raw_at, raw_n;
    int unfinished; /* 1: a gzip member or zstd frame has begun and not ended */
    int members;    /* 1: at least one gzip member has ended */
    struct parquet *parquet;
    struct text_buffer row; /* row of a .parquet, of which row_at bytes were read */
    size_t row_at;
#ifdef HAVE_ZLIB
    z_stream gzip;
#endif
#ifdef HAVE_ZSTD
    ZSTD_DStream *zstd;
#endif
};

static enum packed_by packed_by(const char *path)
{
    static const char *const ends[] = {[BY_GZIP] = ".gz", [BY_ZSTD] = ".zst", [AS_PARQUET] = ".parquet"};
    const size_t n = strlen(path);
    for (enum packed_by by = BY_GZIP; by <= AS_PARQUET; by++)
        if (n > strlen(ends[by]) && strcasecmp(path + n - strlen(ends[by]), ends[by]) == 0)
            return by;
    return AS_IT_IS;
}

size_t input_name(const char *path)
{
    static const size_t suffix[] = {[BY_GZIP] = 3, [BY_ZSTD] = 4, [AS_PARQUET] = 0};
    return strlen(path) - suffix[packed_by(path)];
}

int input_is_compressed(const char *path)
{
    return packed_by(path) != AS_IT_IS;
}

int input_is_parquet(const char *path)
{
    return packed_by(path) == AS_PARQUET;
}

/* ---- the file's own bytes ---- */

static enum status read_raw(struct input *in, uint8_t *buf, size_t n, size_t *got)
{
    *got = (size_t)min_i64((int64_t)n, in->bytes - in->at);
    if (in->print)
        fingerprint_before_read(in->print, in->fd, in->at, (int64_t)*got);
    TRY(file_read(in->fd, in->path, buf, *got, in->at));
    if (in->hash) {
        XXH3_64bits_update(in->hash, buf, *got);
        progress_read((int64_t)*got);
    }
    in->at += (int64_t)*got;
    return OK;
}

static enum status fill(struct input *in)
{
    in->raw_at = 0;
    return read_raw(in, in->raw, RAW_BYTES, &in->raw_n);
}

/* ---- decompression ---- */

#if defined(HAVE_ZLIB) || defined(HAVE_ZSTD)
static enum status refuse(const struct input *in, const char *why)
{
    return status_fail(ERR_INVALID, "%s is damaged: %s", in->path, why);
}
#endif

#ifdef HAVE_ZLIB
static enum status begin_gzip(struct input *in)
{
    enum { GZIP_ONLY = 16 };
    return inflateInit2(&in->gzip, MAX_WBITS + GZIP_ONLY) == Z_OK ? OK
                                                                  : status_fail(ERR_NOMEM, "out of memory: reading %s", in->path);
}

/* Decompresses a piece of a .gz. Several members, one behind the other, count as one file, as gzip itself reads them. */
static enum status step_gzip(struct input *in, uint8_t *buf, size_t n, size_t *got)
{
    enum { FIRST_OF_MEMBER = 0x1f };
    z_stream *z = &in->gzip;
    *got = 0;
    /* zeros between members, with which tapes' blocks are filled up, are skipped */
    while (in->members && !in->unfinished && in->raw_at < in->raw_n && in->raw[in->raw_at] == 0)
        in->raw_at++;
    if (in->raw_at == in->raw_n && !in->unfinished)
        return OK;
    if (in->members && !in->unfinished && in->raw[in->raw_at] != FIRST_OF_MEMBER)
        return refuse(in, "something that is no gzip follows its last member");
    z->next_in = in->raw + in->raw_at;
    z->avail_in = (unsigned)(in->raw_n - in->raw_at);
    z->next_out = buf;
    z->avail_out = (unsigned)min_i64((int64_t)n, 1 << 30);
    if (z->avail_in > 0)
        in->unfinished = 1;
    int rc = inflate(z, Z_NO_FLUSH);
    *got = (size_t)(z->next_out - buf);
    in->raw_at = in->raw_n - z->avail_in;
    if (rc == Z_STREAM_END) {
        in->unfinished = 0;
        in->members = 1;
        inflateReset(z);
    } else if (rc == Z_MEM_ERROR) {
        return status_fail(ERR_NOMEM, "out of memory: reading %s", in->path);
    } else if (rc != Z_OK && rc != Z_BUF_ERROR) {
        return refuse(in, z->msg ? z->msg : "it is no gzip file");
    }
    return OK;
}
#else
static enum status begin_gzip(struct input *in)
{
    return status_fail(ERR_INVALID, "%s: this ltrain was built without zlib: gunzip it, or build with zlib1g-dev installed",
                       in->path);
}

static enum status step_gzip(struct input *in, uint8_t *buf, size_t n, size_t *got)
{
    (void)buf, (void)n, (void)got;
    return begin_gzip(in);
}
#endif

#ifdef HAVE_ZSTD
static enum status begin_zstd(struct input *in)
{
    in->zstd = ZSTD_createDStream();
    if (!in->zstd || ZSTD_isError(ZSTD_initDStream(in->zstd)))
        return status_fail(ERR_NOMEM, "out of memory: reading %s", in->path);
    return OK;
}

static enum status step_zstd(struct input *in, uint8_t *buf, size_t n, size_t *got)
{
    ZSTD_inBuffer from = {in->raw, in->raw_n, in->raw_at};
    ZSTD_outBuffer to = {buf, n, 0};
    size_t rc = ZSTD_decompressStream(in->zstd, &to, &from);
    if (ZSTD_isError(rc))
        return refuse(in, ZSTD_getErrorName(rc));
    if (from.pos > in->raw_at || to.pos > 0)
        in->unfinished = rc != 0;
    in->raw_at = from.pos;
    *got = to.pos;
    return OK;
}
#else
static enum status begin_zstd(struct input *in)
{
    return status_fail(ERR_INVALID, "%s: this ltrain was built without libzstd: unzstd it, or build with libzstd-dev installed",
                       in->path);
}

static enum status step_zstd(struct input *in, uint8_t *buf, size_t n, size_t *got)
{
    (void)buf, (void)n, (void)got;
    return begin_zstd(in);
}
#endif

static enum status unpack(struct input *in, uint8_t *buf, size_t n, size_t *got)
{
    for (*got = 0; *got < n;) {
        size_t more = 0, before = in->raw_at;
        if (in->raw_at == in->raw_n && in->at < in->bytes) {
            TRY(fill(in));
            before = 0;
        }
        if (in->raw_at == in->raw_n && !in->unfinished)
            return OK;
        TRY(in->by == BY_GZIP ? step_gzip(in, buf + *got, n - *got, &more) : step_zstd(in, buf + *got, n - *got, &more));
        *got += more;
        if (more == 0 && in->raw_at == before && in->at == in->bytes && in->unfinished)
            return status_fail(ERR_INVALID, "%s is cut off: its last %s does not end", in->path,
                               in->by == BY_GZIP ? "member" : "frame");
    }
    return OK;
}

/* ---- rows of Parquet files ---- */

/* Counts bytes of a .parquet as progress; all that were counted are at most the file's. */
static void count_part(struct input *in, int64_t n)
{
    const int64_t counted = min_i64(n, in->bytes - in->at);
    in->at += counted;
    if (in->print)
        progress_read(counted);
}

static enum status read_part(void *input, void *buf, size_t n, int64_t at)
{
    struct input *in = input;
    count_part(in, (int64_t)n);
    return file_read(in->fd, in->path, buf, n, at);
}

static enum status refuse_changed(const char *path)
{
    return status_fail(ERR_CORRUPT, "%s changes while it is read: start once nothing writes to it any more", path);
}

/* Takes the fingerprint of the whole file first, since rows come from places all over the file. */
static enum status begin_parquet(struct input *in)
{
    uint64_t stamp;
    if (in->print) {
        TRY(fingerprint_take(in->path, NULL, NULL, in->print));
        progress_read(-in->print->bytes); /* the same bytes count when rows are made of them */
    }
    TRY(file_open(in->path, &in->fd, &in->bytes));
    TRY(fingerprint_stamp_of(in->fd, in->path, &stamp, NULL));
    if (in->print && stamp != in->print->stamp)
        return refuse_changed(in->path);
    return parquet_open(&(struct parquet_file){in->path, in->bytes, read_part, in}, &in->parquet);
}

static enum status read_rows(struct input *in, uint8_t *buf, size_t n, size_t *got)
{
    int more = 1;
    for (*got = 0; *got < n && more;) {
        if (in->row_at == in->row.n) {
            TRY(parquet_row(in->parquet, &in->row, &more));
            in->row_at = 0;
        }
        const size_t part = (size_t)min_i64((int64_t)(n - *got), (int64_t)(in->row.n - in->row_at));
        if (part > 0)
            memcpy(buf + *got, in->row.data + in->row_at, part);
        in->row_at += part;
        *got += part;
    }
    return OK;
}

void input_select(struct input *in, int (*reads)(void *user, const char *name), void *user)
{
    if (in->parquet)
        parquet_select(in->parquet, reads, user);
}

int input_has_column(const struct input *in, const char *name)
{
    return in->parquet && parquet_has(in->parquet, name);
}

enum status input_check_column(const struct input *in, const char *name)
{
    return in->parquet ? parquet_check(in->parquet, name) : OK;
}

/* ---- the whole ---- */

static enum status begin(struct input *in)
{
    if (in->by == AS_PARQUET)
        return begin_parquet(in);
    TRY(file_open(in->path, &in->fd, &in->bytes));
    if (in->print) {
        in->print->bytes = in->bytes;
        TRY(fingerprint_stamp_of(in->fd, in->path, &in->print->stamp, &in->print->settled));
        in->hash = XXH3_createState();
        if (!in->hash || XXH3_64bits_reset(in->hash) != XXH_OK)
            return status_fail(ERR_NOMEM, "out of memory: reading %s", in->path);
    }
    if (in->by == AS_IT_IS)
        return OK;
    in->raw = sys_malloc(RAW_BYTES);
    if (!in->raw)
        return status_fail(ERR_NOMEM, "out of memory: reading %s", in->path);
    return in->by == BY_GZIP ? begin_gzip(in) : begin_zstd(in);
}

enum status input_open(const char *path, struct fingerprint *print, struct input **out)
{
    struct input *in = sys_calloc(1, sizeof *in);
    if (!in)
        return status_fail(ERR_NOMEM, "out of memory: reading %s", path);
    in->path = path;
    in->print = print;
    in->by = packed_by(path);
    in->fd = -1;
    enum status st = begin(in);
    if (st != OK)
        input_close(in);
    else
        *out = in;
    return st;
}

enum status input_read(struct input *in, uint8_t *buf, size_t n, size_t *got)
{
    return in->by == AS_IT_IS     ? read_raw(in, buf, n, got)
           : in->by == AS_PARQUET ? read_rows(in, buf, n, got)
                                  : unpack(in, buf, n, got);
}

enum status input_end(struct input *in)
{
    uint64_t stamp;
    TRY(fingerprint_stamp_of(in->fd, in->path, &stamp, NULL));
    if (in->hash)
        in->print->xxh3 = XXH3_64bits_digest(in->hash);
    if (in->parquet)
        count_part(in, in->bytes); /* columns that were left out */
    return stamp == in->print->stamp ? OK : refuse_changed(in->path);
}

void input_close(struct input *in)
{
    if (!in)
        return;
    if (in->fd >= 0)
        sys_close(in->fd);
    XXH3_freeState(in->hash);
#ifdef HAVE_ZLIB
    if (in->by == BY_GZIP && in->raw)
        inflateEnd(&in->gzip);
#endif
#ifdef HAVE_ZSTD
    ZSTD_freeDStream(in->zstd);
#endif
    free(in->raw);
    parquet_close(in->parquet);
    text_buffer_free(&in->row);
    free(in);
}
