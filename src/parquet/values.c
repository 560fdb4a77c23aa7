/* Reading values in each of Parquet's encodings. */
#include "parquet/values.h"

#include "base/sys.h"

#include <stdlib.h>
#include <string.h>

enum { PLAIN, OLD_DICTIONARY = 2, RLE, DELTA_NUMBERS = 5, DELTA_LENGTHS, DELTA_TEXTS, DICTIONARY, BYTE_STREAMS };

static size_t width_of(enum parquet_stored stored)
{
    static const size_t bytes[PARQUET_STORED] = {
        [PARQUET_INT32] = 4, [PARQUET_INT64] = 8, [PARQUET_FLOAT] = 4, [PARQUET_DOUBLE] = 8};
    return bytes[stored];
}

static uint32_t length_at(const uint8_t *at)
{
    uint32_t n;
    memcpy(&n, at, sizeof n); /* machines that this program runs on store the lowest byte first, as files do */
    return n;
}

/* Takes a number as it is stored. */
static void take_number(enum parquet_stored stored, const uint8_t *at, struct value *out)
{
    int32_t i;
    float f;
    if (stored == PARQUET_INT32) {
        memcpy(&i, at, sizeof i);
        out->integer = i;
    } else if (stored == PARQUET_INT64) {
        memcpy(&out->integer, at, sizeof out->integer);
    } else if (stored == PARQUET_FLOAT) {
        memcpy(&f, at, sizeof f);
        out->real = f;
    } else {
        memcpy(&out->real, at, sizeof out->real);
    }
}

/* ---- dictionaries ---- */

static int find_starts(struct dictionary *d)
{
    size_t at = 0;
    for (int64_t i = 0; i < d->values; i++) {
        if (d->n - at < 4 || length_at(d->bytes + at) > d->n - at - 4)
            return 0;
        d->start[i] = (uint32_t)at;
        at += 4 + length_at(d->bytes + at);
    }
    return 1;
}

int dictionary_read(struct dictionary *d, enum parquet_stored stored, uint8_t *bytes, size_t n, int64_t values)
{
    const size_t width = stored == PARQUET_BYTES ? 4 : width_of(stored); /* a text has its length at least */
    *d = (struct dictionary){.bytes = bytes, .n = n, .values = values};
    if (values < 0 || width == 0 || (uint64_t)values > n / width || n > UINT32_MAX)
        return 0;
    if (stored != PARQUET_BYTES)
        return 1;
    d->start = sys_malloc(((size_t)values + 1) * sizeof *d->start);
    return d->start && find_starts(d);
}

void dictionary_free(struct dictionary *d)
{
    free(d->bytes);
    free(d->start);
    *d = (struct dictionary){.values = -1};
}

static int take_of_dictionary(struct values *v, struct value *out)
{
    const struct dictionary *d = v->dictionary;
    uint32_t i;
    if (!rle_next(&v->places, &i) || i >= d->values)
        return 0;
    if (v->stored != PARQUET_BYTES) {
        take_number(v->stored, d->bytes + i * width_of(v->stored), out);
        return 1;
    }
    out->bytes = d->bytes + d->start[i] + 4;
    out->n = length_at(d->bytes + d->start[i]);
    return 1;
}

/* ---- other encodings ---- */

int values_are_known(enum parquet_stored stored, int encoding)
{
    const int is_number = width_of(stored) > 0, is_whole = stored == PARQUET_INT32 || stored == PARQUET_INT64;
    switch (encoding) {
    case PLAIN:
        return is_number || stored == PARQUET_BYTES || stored == PARQUET_BOOLEAN;
    case OLD_DICTIONARY:
    case DICTIONARY:
        return is_number || stored == PARQUET_BYTES;
    case RLE:
        return stored == PARQUET_BOOLEAN;
    case DELTA_NUMBERS:
        return is_whole;
    case DELTA_LENGTHS:
    case DELTA_TEXTS:
        return stored == PARQUET_BYTES;
    case BYTE_STREAMS:
        return is_number;
    default:
        return 0;
    }
}

/* Begins at numbers stored as differences, and moves v->at behind them. */
static int begin_delta(struct values *v, struct delta *d)
{
    if (!delta_begin(d, v->at, (size_t)(v->end - v->at)))
        return 0;
    if (d->left > v->count)
        return 0;
    v->at = delta_end(d);
    return v->at != NULL;
}

int values_begin(struct values *v, enum parquet_stored stored, int encoding, const struct dictionary *d, const uint8_t *text,
                 size_t n, uint64_t count)
{
    enum { WIDEST = 32, LENGTH = 4 };
    struct text_buffer last = v->last;
    last.n = 0;
    *v = (struct values){
        .stored = stored, .encoding = encoding, .at = text, .end = text + n, .count = count, .dictionary = d, .last = last};
    switch (encoding) {
    case OLD_DICTIONARY:
    case DICTIONARY:
        if (n == 0) /* no value is there */
            return 1;
        if (text[0] > WIDEST || d->values < 0)
            return 0;
        rle_begin(&v->places, text + 1, n - 1, text[0]);
        return 1;
    case RLE:
        if (n < LENGTH || length_at(text) > n - LENGTH)
            return n == 0;
        rle_begin(&v->places, text + LENGTH, length_at(text), 1);
        return 1;
    case DELTA_NUMBERS:
    case DELTA_LENGTHS:
        return n == 0 || begin_delta(v, &v->numbers);
    case DELTA_TEXTS:
        return n == 0 || (begin_delta(v, &v->shared) && begin_delta(v, &v->numbers));
    case BYTE_STREAMS:
        v->count = n / width_of(stored);
        return n % width_of(stored) == 0;
    default:
        return 1;
    }
}

static int take_plain(struct values *v, struct value *out)
{
    const size_t room = (size_t)(v->end - v->at), width = width_of(v->stored);
    if (v->stored == PARQUET_BOOLEAN) {
        if (v->index / 8 >= room)
            return 0;
        out->integer = (int64_t)bits_at(v->at, v->index++, 1);
        return 1;
    }
    if (v->stored == PARQUET_BYTES) {
        if (room < 4 || length_at(v->at) > room - 4)
            return 0;
        out->n = length_at(v->at);
        out->bytes = v->at + 4;
        v->at += 4 + out->n;
        return 1;
    }
    if (room < width)
        return 0;
    take_number(v->stored, v->at, out);
    v->at += width;
    return 1;
}

/* Takes the next n bytes of the texts behind the lengths. */
static int take_text(struct values *v, int64_t n, struct value *out)
{
    if (n < 0 || n > v->end - v->at)
        return 0;
    out->bytes = v->at;
    out->n = (size_t)n;
    v->at += n;
    return 1;
}

/* Takes a text of which the beginning is that of the text before. */
static int take_shared(struct values *v, struct value *out)
{
    int64_t shared, rest;
    if (!delta_next(&v->shared, &shared) || !delta_next(&v->numbers, &rest) || shared < 0 || (uint64_t)shared > v->last.n ||
        !take_text(v, rest, out))
        return 0;
    v->last.n = (size_t)shared;
    if (text_buffer_add(&v->last, out->bytes, out->n) != OK)
        return 0;
    out->bytes = v->last.data;
    out->n = v->last.n;
    return 1;
}

/* Takes a number whose bytes lie apart, the first bytes of all numbers first. */
static int take_of_streams(struct values *v, struct value *out)
{
    uint8_t bytes[8];
    if (v->index >= v->count)
        return 0;
    for (size_t i = 0; i < width_of(v->stored); i++)
        bytes[i] = v->at[i * v->count + v->index];
    v->index++;
    take_number(v->stored, bytes, out);
    return 1;
}

int values_next(struct values *v, struct value *out)
{
    uint32_t truth;
    int64_t n;
    switch (v->encoding) {
    case PLAIN:
        return take_plain(v, out);
    case RLE:
        if (!rle_next(&v->places, &truth))
            return 0;
        out->integer = truth;
        return 1;
    case DELTA_NUMBERS:
        return delta_next(&v->numbers, &out->integer);
    case DELTA_LENGTHS:
        return delta_next(&v->numbers, &n) && take_text(v, n, out);
    case DELTA_TEXTS:
        return take_shared(v, out);
    case BYTE_STREAMS:
        return take_of_streams(v, out);
    default:
        return take_of_dictionary(v, out);
    }
}
