/* Reading the pages of a column. */
#include "parquet/column.h"

#include "base/num.h"
#include "base/units.h"
#include "parquet/codec.h"
#include "parquet/thrift.h"

#include <string.h>

enum page_type { PAGE_DATA, PAGE_INDEX, PAGE_DICTIONARY, PAGE_DATA_2 };

enum { RUNS = 3 /* encoding of levels */ };

/* A page's header. */
struct page {
    int64_t type, bytes, packed_bytes;
    int64_t values, encoding;
    int64_t levels_encoding, depths_encoding; /* data pages of the first form */
    int64_t levels_bytes, depths_bytes;       /* data pages of the second form */
    int is_packed;
    int has_crc;
    uint32_t crc;
};

enum status column_refuse(const struct column *c, const char *why)
{
    return status_fail(ERR_INVALID, "%s is damaged: column %s, before byte %lld: %s", c->file->path, c->name, (long long)c->at,
                       why);
}

/* ---- headers ---- */

static void read_data_header(struct thrift *t, struct page *p)
{
    enum { VALUES = 1, ENCODING, LEVELS, DEPTHS };
    struct thrift_field f = {0};
    while (thrift_next(t, &f))
        if (f.id == VALUES)
            p->values = thrift_integer(t, &f);
        else if (f.id == ENCODING)
            p->encoding = thrift_integer(t, &f);
        else if (f.id == LEVELS)
            p->levels_encoding = thrift_integer(t, &f);
        else if (f.id == DEPTHS)
            p->depths_encoding = thrift_integer(t, &f);
        else
            thrift_skip(t, &f);
}

static void read_dictionary_header(struct thrift *t, struct page *p)
{
    enum { VALUES = 1 };
    struct thrift_field f = {0};
    while (thrift_next(t, &f))
        if (f.id == VALUES)
            p->values = thrift_integer(t, &f);
        else
            thrift_skip(t, &f);
}

static void read_data_2_header(struct thrift *t, struct page *p)
{
    enum { VALUES = 1, ENCODING = 4, LEVELS, DEPTHS, IS_PACKED };
    struct thrift_field f = {0};
    while (thrift_next(t, &f))
        if (f.id == VALUES)
            p->values = thrift_integer(t, &f);
        else if (f.id == ENCODING)
            p->encoding = thrift_integer(t, &f);
        else if (f.id == LEVELS)
            p->levels_bytes = thrift_integer(t, &f);
        else if (f.id == DEPTHS)
            p->depths_bytes = thrift_integer(t, &f);
        else if (f.id == IS_PACKED)
            p->is_packed = f.type == THRIFT_TRUE;
        else
            thrift_skip(t, &f);
}

static void parse_header(struct thrift *t, struct page *p)
{
    enum { TYPE = 1, BYTES, PACKED_BYTES, CRC, DATA, DICTIONARY = 7, DATA_2 };
    struct thrift_field f = {0};
    *p = (struct page){.type = -1,
                       .bytes = -1,
                       .packed_bytes = -1,
                       .values = -1,
                       .levels_encoding = RUNS,
                       .depths_encoding = RUNS,
                       .is_packed = 1};
    while (thrift_next(t, &f))
        if (f.id == TYPE)
            p->type = thrift_integer(t, &f);
        else if (f.id == BYTES)
            p->bytes = thrift_integer(t, &f);
        else if (f.id == PACKED_BYTES)
            p->packed_bytes = thrift_integer(t, &f);
        else if (f.id == CRC) {
            p->crc = (uint32_t)thrift_integer(t, &f);
            p->has_crc = 1;
        } else if (f.id == DATA && thrift_is_struct(t, &f))
            read_data_header(t, p);
        else if (f.id == DICTIONARY && thrift_is_struct(t, &f))
            read_dictionary_header(t, p);
        else if (f.id == DATA_2 && thrift_is_struct(t, &f))
            read_data_2_header(t, p);
        else
            thrift_skip(t, &f);
}

/* Reads the header at c->at, whose length is not known before, and moves c->at behind it. */
static enum status read_header(struct column *c, struct page *p)
{
    enum { FIRST = 1024, MOST = 16 << 20 };
    const int64_t room = c->chunk.end - c->at;
    for (int64_t want = FIRST;; want *= 8) {
        const int64_t n = min_i64(want, room);
        c->packed.n = 0;
        TRY(text_buffer_reserve(&c->packed, (size_t)max_i64(n, 1)));
        TRY(c->file->read(c->file->user, c->packed.data, (size_t)n, c->at));
        struct thrift t = {.at = c->packed.data, .end = c->packed.data + n};
        parse_header(&t, p);
        if (!t.bad) {
            c->at += t.at - c->packed.data;
            break;
        }
        if (n == room || want >= MOST)
            return column_refuse(c, "a page's header is broken");
    }
    if (p->bytes < 0 || p->packed_bytes < 0 || p->packed_bytes > INT32_MAX || p->packed_bytes > c->chunk.end - c->at)
        return column_refuse(c, "a page is longer than its column");
    char bytes[32], most[32];
    if (p->bytes > COLUMN_MOST_PAGE)
        return status_fail(ERR_INVALID,
                           "%s has a page of %s, and at most %s are read: write it anew with fewer rows in a page (pyarrow: "
                           "write_batch_size)",
                           c->file->path, units_format_bytes(p->bytes, bytes), units_format_bytes(COLUMN_MOST_PAGE, most));
    return OK;
}

/* ---- pages ---- */

/* Reads a page's bytes, decompressed from byte `plain` on; they are put into `to`. */
static enum status unpack(struct column *c, const struct page *p, int64_t plain, struct text_buffer *to)
{
    const int is_packed = c->chunk.codec != CODEC_NONE && p->is_packed && p->bytes > plain;
    struct text_buffer *from = is_packed ? &c->packed : to;
    const size_t n = (size_t)p->packed_bytes, head = (size_t)plain;
    from->n = to->n = 0;
    TRY(text_buffer_reserve(from, n + 1));
    TRY(c->file->read(c->file->user, from->data, n, c->at));
    c->at += p->packed_bytes;
    if (p->has_crc && !codec_is_whole(from->data, n, p->crc))
        return column_refuse(c, "a page's bytes have another checksum");
    if (!is_packed) {
        to->n = (size_t)min_i64(p->bytes, p->packed_bytes);
        /* some writers compress pages without values, too */
        return p->bytes == p->packed_bytes || (p->bytes == plain && p->bytes <= p->packed_bytes)
                   ? OK
                   : column_refuse(c, "a page has another length than its header says");
    }
    TRY(text_buffer_reserve(to, (size_t)p->bytes + 1));
    memcpy(to->data, from->data, head);
    to->n = (size_t)p->bytes;
    return codec_unpack(c->chunk.codec, from->data + head, n - head, to->data + head, to->n - head)
               ? OK
               : column_refuse(c, "a page cannot be decompressed");
}

static enum status read_dictionary(struct column *c, const struct page *p)
{
    struct text_buffer bytes = {0};
    if (c->dictionary.values >= 0)
        return column_refuse(c, "it has two dictionaries");
    enum status st = unpack(c, p, 0, &bytes);
    if (st != OK) {
        text_buffer_free(&bytes);
        return st;
    }
    return dictionary_read(&c->dictionary, c->chunk.stored, bytes.data, bytes.n, p->values)
               ? OK
               : column_refuse(c, "its dictionary is broken");
}

/* Returns the number of bits that levels up to `most` take. */
static int level_bits(int most)
{
    int bits = 0;
    while (most >> bits)
        bits++;
    return bits;
}

/* Begins at levels that have their length before them; *at moves behind them. */
static int begin_levels(struct rle *r, int most, int64_t encoding, const uint8_t **at, const uint8_t *end)
{
    uint32_t n;
    if (most == 0)
        return 1;
    if (encoding != RUNS || end - *at < 4)
        return 0;
    memcpy(&n, *at, sizeof n);
    if (n > (size_t)(end - *at) - 4)
        return 0;
    rle_begin(r, *at + 4, n, level_bits(most));
    *at += 4 + n;
    return 1;
}

static enum status begin_data(struct column *c, const struct page *p)
{
    if (p->values < 0 || p->values > c->left)
        return column_refuse(c, "a page has more values than its column");
    if (!values_are_known(c->chunk.stored, (int)p->encoding))
        return status_fail(ERR_INVALID, "%s: column %s has the encoding %lld, which is not read: write the file anew (pyarrow)",
                           c->file->path, c->name, (long long)p->encoding);
    int64_t plain = 0;
    if (p->type == PAGE_DATA_2) {
        if (p->levels_bytes < 0 || p->depths_bytes < 0 || p->levels_bytes > p->packed_bytes - p->depths_bytes ||
            p->levels_bytes > p->bytes - p->depths_bytes)
            return column_refuse(c, "a page's levels are longer than the page");
        plain = p->levels_bytes + p->depths_bytes;
    }
    TRY(unpack(c, p, plain, &c->page));
    const uint8_t *at = c->page.data, *end = at + c->page.n;
    if (p->type == PAGE_DATA_2) {
        rle_begin(&c->depths, at, (size_t)p->depths_bytes, level_bits(c->most_depth));
        rle_begin(&c->levels, at + p->depths_bytes, (size_t)p->levels_bytes, level_bits(c->leaf->level));
        at += plain;
    } else if (!begin_levels(&c->depths, c->most_depth, p->depths_encoding, &at, end) ||
               !begin_levels(&c->levels, c->leaf->level, p->levels_encoding, &at, end)) {
        return column_refuse(c, "a page's levels are broken, or in an encoding that is not read");
    }
    if (!values_begin(&c->values, c->chunk.stored, (int)p->encoding, &c->dictionary, at, (size_t)(end - at), (uint64_t)p->values))
        return column_refuse(c, "a page's values are broken");
    c->left_in_page = p->values;
    return OK;
}

static enum status read_page(struct column *c)
{
    struct page p;
    if (c->at >= c->chunk.end)
        return column_refuse(c, "it has fewer values than its footer says");
    TRY(read_header(c, &p));
    if (p.type == PAGE_DICTIONARY)
        return read_dictionary(c, &p);
    if (p.type == PAGE_DATA || p.type == PAGE_DATA_2)
        return begin_data(c, &p);
    c->at += p.packed_bytes; /* an index, or something that later versions of the format have */
    return OK;
}

/* ---- values ---- */

enum status column_begin(struct column *c, const struct footer_chunk *chunk)
{
    dictionary_free(&c->dictionary);
    c->chunk = *chunk;
    c->at = chunk->first;
    c->left = chunk->values;
    c->left_in_page = 0;
    c->has_value = 0;
    if (chunk->stored != c->leaf->element->stored)
        return column_refuse(c, "it has another type than the schema says");
    return codec_check(c->file->path, chunk->codec);
}

enum status column_look(struct column *c)
{
    uint32_t depth = 0, level = 0;
    if (c->has_value)
        return OK;
    c->depth = -1;
    if (c->left == 0)
        return OK;
    while (c->left_in_page == 0)
        TRY(read_page(c));
    if ((c->most_depth > 0 && !rle_next(&c->depths, &depth)) || (c->leaf->level > 0 && !rle_next(&c->levels, &level)) ||
        (int64_t)depth > c->most_depth || (int64_t)level > c->leaf->level)
        return column_refuse(c, "a page's levels are broken");
    c->depth = (int)depth;
    c->level = (int)level;
    c->has_value = 1;
    c->left--;
    c->left_in_page--;
    return OK;
}

enum status column_take(struct column *c, struct value *out)
{
    c->has_value = 0;
    if (!out || values_next(&c->values, out))
        return OK;
    return column_refuse(c, "a page's values are broken");
}

void column_free(struct column *c)
{
    dictionary_free(&c->dictionary);
    text_buffer_free(&c->packed);
    text_buffer_free(&c->page);
    text_buffer_free(&c->values.last);
}
