/* Thrift's compact protocol, read from memory. Private to this folder. */
#ifndef LTRAIN_PARQUET_THRIFT_H
#define LTRAIN_PARQUET_THRIFT_H

#include <stddef.h>
#include <stdint.h>

enum thrift_type {
    THRIFT_STOP,
    THRIFT_TRUE,
    THRIFT_FALSE,
    THRIFT_BYTE,
    THRIFT_I16,
    THRIFT_I32,
    THRIFT_I64,
    THRIFT_DOUBLE,
    THRIFT_BINARY,
    THRIFT_LIST,
    THRIFT_SET,
    THRIFT_MAP,
    THRIFT_STRUCT
};

/* Place in a text of the protocol. */
struct thrift {
    const uint8_t *at, *end;
    int bad;   /* 1: the text ends too early or is none of the protocol; whatever is read then is 0 */
    int depth; /* number of structs and lists around the value that is being skipped */
};

/* Field of a struct; id and type 0 before the first one is read. */
struct thrift_field {
    int id, type;
};

/* Reads the next field's header; returns 0 at the end of the struct, or if the text is bad. */
int thrift_next(struct thrift *t, struct thrift_field *f);
/* Reads the value of a whole number's field; another type makes the text bad. */
int64_t thrift_integer(struct thrift *t, const struct thrift_field *f);
/* Reads a list's header and returns its number of elements, which are structs if there are any. */
int64_t thrift_structs(struct thrift *t, const struct thrift_field *f);
/* Reads a binary field; the bytes lie in the text. */
const char *thrift_binary(struct thrift *t, const struct thrift_field *f, size_t *n);
/* Tells whether the field is a struct, whose fields come next; another type makes the text bad. */
int thrift_is_struct(struct thrift *t, const struct thrift_field *f);
void thrift_skip(struct thrift *t, const struct thrift_field *f);
/* Reads an unsigned number of 7 bits a byte. */
uint64_t thrift_varint(struct thrift *t);
/* Undoes the zigzag order, in which small negative numbers are small. */
static inline int64_t thrift_zigzag(uint64_t v)
{
    return (int64_t)((v >> 1) ^ (~(v & 1) + 1));
}

#endif
