/* Snappy's raw format and LZ4's blocks: literal bytes, and copies of bytes that came before. */
#include "parquet/codec.h"
#include "parquet/thrift.h"

#include <string.h>

struct lz {
    const uint8_t *at, *end;
    uint8_t *to;
    size_t n, room;
};

static int add_literal(struct lz *z, size_t n)
{
    if (n > (size_t)(z->end - z->at) || n > z->room - z->n)
        return 0;
    memcpy(z->to + z->n, z->at, n);
    z->at += n;
    z->n += n;
    return 1;
}

/* Copies n bytes from `back` bytes before; both may overlap, which repeats them. */
static int add_copy(struct lz *z, size_t back, size_t n)
{
    if (back == 0 || back > z->n || n > z->room - z->n)
        return 0;
    uint8_t *to = z->to + z->n;
    const uint8_t *from = to - back;
    for (size_t i = 0; i < n; i++)
        to[i] = from[i];
    z->n += n;
    return 1;
}

/* Reads a number of `bytes` bytes, the lowest first. */
static int read_number(struct lz *z, size_t bytes, size_t *out)
{
    if (bytes > (size_t)(z->end - z->at))
        return 0;
    *out = 0;
    for (size_t i = 0; i < bytes; i++)
        *out |= (size_t)z->at[i] << 8 * i;
    z->at += bytes;
    return 1;
}

/* ---- Snappy ---- */

static int snappy_literal(struct lz *z, size_t tag)
{
    enum { SHORT = 60 };
    size_t n = tag >> 2;
    if (n >= SHORT && !read_number(z, n - SHORT + 1, &n))
        return 0;
    return add_literal(z, n + 1);
}

static int snappy_copy(struct lz *z, size_t tag)
{
    enum { SHORT_COPY = 1, LONG_COPY = 3 };
    size_t back;
    const int kind = tag & 3;
    if (!read_number(z, kind == SHORT_COPY ? 1 : kind == LONG_COPY ? 4 : 2, &back))
        return 0;
    if (kind == SHORT_COPY)
        return add_copy(z, (tag >> 5) << 8 | back, (tag >> 2 & 7) + 4);
    return add_copy(z, back, (tag >> 2) + 1);
}

int snappy_unpack(const uint8_t *from, size_t n, uint8_t *to, size_t m)
{
    struct thrift head = {.at = from, .end = from + n};
    if (thrift_varint(&head) != m || head.bad)
        return 0;
    struct lz z = {.at = head.at, .end = head.end, .to = to, .room = m};
    while (z.at < z.end) {
        const size_t tag = *z.at++;
        if (!(tag & 3 ? snappy_copy(&z, tag) : snappy_literal(&z, tag)))
            return 0;
    }
    return z.n == m;
}

/* ---- LZ4 ---- */

/* Reads the rest of a length whose four bits in the token are all set. */
static int lz4_length(struct lz *z, size_t *n)
{
    size_t more = 255;
    if (*n < 15)
        return 1;
    while (more == 255) {
        if (!read_number(z, 1, &more))
            return 0;
        *n += more;
    }
    return 1;
}

int lz4_unpack(const uint8_t *from, size_t n, uint8_t *to, size_t m)
{
    enum { LEAST = 4 };
    struct lz z = {.at = from, .end = from + n, .to = to, .room = m};
    while (z.at < z.end) {
        const uint8_t token = *z.at++;
        size_t literal = token >> 4, copy = token & 15, back;
        if (!lz4_length(&z, &literal) || !add_literal(&z, literal))
            return 0;
        if (z.at == z.end) /* the last literal has no copy behind it */
            break;
        if (!read_number(&z, 2, &back) || !lz4_length(&z, &copy) || !add_copy(&z, back, copy + LEAST))
            return 0;
    }
    return z.n == m;
}
