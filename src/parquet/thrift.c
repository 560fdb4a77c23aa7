/* Reading Thrift's compact protocol. */
#include "parquet/thrift.h"

enum { DEEPEST = 32 };

static uint8_t read_byte(struct thrift *t)
{
    if (t->at < t->end)
        return *t->at++;
    t->bad = 1;
    return 0;
}

uint64_t thrift_varint(struct thrift *t)
{
    uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        const uint8_t byte = read_byte(t);
        v |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return v;
    }
    t->bad = 1;
    return 0;
}

int thrift_next(struct thrift *t, struct thrift_field *f)
{
    const uint8_t head = read_byte(t);
    if (t->bad || head == 0)
        return 0;
    const int64_t id = head >> 4 ? f->id + (head >> 4) : thrift_zigzag(thrift_varint(t));
    f->type = head & 0x0f;
    t->bad |= id < INT16_MIN || id > INT16_MAX;
    f->id = t->bad ? 0 : (int)id;
    return !t->bad;
}

int64_t thrift_integer(struct thrift *t, const struct thrift_field *f)
{
    if (f->type == THRIFT_BYTE)
        return (int8_t)read_byte(t);
    if (f->type >= THRIFT_I16 && f->type <= THRIFT_I64) {
        const int64_t v = thrift_zigzag(thrift_varint(t));
        return t->bad ? 0 : v;
    }
    t->bad = 1;
    return 0;
}

/* Reads the header of a list or set: its number of elements, and their type. */
static int64_t read_list(struct thrift *t, int *type)
{
    const uint8_t head = read_byte(t);
    const uint64_t n = head >> 4 == 15 ? thrift_varint(t) : head >> 4;
    *type = head & 0x0f;
    t->bad |= n > (uint64_t)(t->end - t->at); /* each element has a byte at least */
    return t->bad ? 0 : (int64_t)n;
}

int64_t thrift_structs(struct thrift *t, const struct thrift_field *f)
{
    int type = THRIFT_STOP;
    const int64_t n = f->type == THRIFT_LIST ? read_list(t, &type) : 0;
    t->bad |= f->type != THRIFT_LIST || (n > 0 && type != THRIFT_STRUCT);
    return t->bad ? 0 : n;
}

static const uint8_t *read_bytes(struct thrift *t, uint64_t n)
{
    const uint8_t *bytes = t->at;
    if (n > (uint64_t)(t->end - t->at))
        t->bad = 1;
    else
        t->at += n;
    return t->bad ? NULL : bytes;
}

const char *thrift_binary(struct thrift *t, const struct thrift_field *f, size_t *n)
{
    t->bad |= f->type != THRIFT_BINARY;
    const uint64_t bytes = t->bad ? 0 : thrift_varint(t);
    const uint8_t *at = read_bytes(t, bytes);
    *n = at ? (size_t)bytes : 0;
    return (const char *)at;
}

int thrift_is_struct(struct thrift *t, const struct thrift_field *f)
{
    t->bad |= f->type != THRIFT_STRUCT;
    return !t->bad;
}

static void skip(struct thrift *t, int type);

static void skip_elements(struct thrift *t, int64_t n, const int *types, int kinds)
{
    for (int64_t i = 0; i < n && !t->bad; i++)
        for (int k = 0; k < kinds; k++)
            if (types[k] == THRIFT_TRUE || types[k] == THRIFT_FALSE)
                read_byte(t); /* a truth value has a byte of its own in lists, and none as a field */
            else
                skip(t, types[k]);
}

static void skip_map(struct thrift *t)
{
    const uint64_t n = thrift_varint(t);
    if (n == 0 || t->bad)
        return;
    const uint8_t head = read_byte(t);
    t->bad |= n > (uint64_t)(t->end - t->at);
    skip_elements(t, t->bad ? 0 : (int64_t)n, (const int[]){head >> 4, head & 0x0f}, 2);
}

static void skip(struct thrift *t, int type)
{
    struct thrift_field f = {0};
    int element;
    if (++t->depth > DEEPEST)
        t->bad = 1;
    else if (type == THRIFT_BYTE)
        read_byte(t);
    else if (type >= THRIFT_I16 && type <= THRIFT_I64)
        thrift_varint(t);
    else if (type == THRIFT_DOUBLE)
        read_bytes(t, 8);
    else if (type == THRIFT_BINARY)
        read_bytes(t, thrift_varint(t));
    else if (type == THRIFT_MAP)
        skip_map(t);
    else if (type == THRIFT_LIST || type == THRIFT_SET) {
        const int64_t n = read_list(t, &element);
        skip_elements(t, n, &element, 1);
    } else if (type == THRIFT_STRUCT)
        while (thrift_next(t, &f))
            skip(t, f.type);
    else
        t->bad |= type != THRIFT_TRUE && type != THRIFT_FALSE;
    t->depth--;
}

void thrift_skip(struct thrift *t, const struct thrift_field *f)
{
    skip(t, f->type);
}
