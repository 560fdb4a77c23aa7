/* Reading runs of small numbers. */
#include "parquet/rle.h"

#include "parquet/thrift.h"

uint64_t bits_at(const uint8_t *bytes, uint64_t bit, int width)
{
    uint64_t v = 0;
    const int shift = (int)(bit % 8);
    bytes += bit / 8;
    for (int have = 0; have < width + shift; have += 8) {
        const int to = have - shift;
        v |= to < 0 ? (uint64_t)*bytes >> -to : (uint64_t)*bytes << to;
        bytes++;
    }
    return width == 64 ? v : v & (((uint64_t)1 << width) - 1);
}

void rle_begin(struct rle *r, const uint8_t *text, size_t n, int width)
{
    *r = (struct rle){.at = text, .end = text + n, .width = width};
}

/* Begins the next run; returns 0 if there is none. */
static int begin_run(struct rle *r)
{
    struct thrift t = {.at = r->at, .end = r->end};
    const uint64_t head = thrift_varint(&t), room = (uint64_t)(t.end - t.at);
    if (t.bad || head >> 1 == 0)
        return 0;
    r->is_packed = (int)(head & 1);
    if (r->is_packed) {
        /* the last eight numbers may be cut off where the text ends */
        uint64_t eights = head >> 1;
        if (r->width > 0 && eights > room / (uint64_t)r->width + 1)
            return 0;
        const uint64_t bytes = eights * (uint64_t)r->width;
        r->left = bytes <= room ? 8 * eights : 8 * room / (uint64_t)r->width;
        r->packed = t.at;
        r->bit = 0;
        r->at = t.at + (bytes <= room ? bytes : room);
        return r->left > 0;
    }
    const uint64_t bytes = ((uint64_t)r->width + 7) / 8;
    if (bytes > room)
        return 0;
    r->left = head >> 1;
    r->value = 0;
    for (uint64_t i = 0; i < bytes; i++)
        r->value |= (uint64_t)t.at[i] << 8 * i;
    r->at = t.at + bytes;
    return 1;
}

int rle_next(struct rle *r, uint32_t *out)
{
    if (r->left == 0 && !begin_run(r))
        return 0;
    r->left--;
    if (!r->is_packed) {
        *out = (uint32_t)r->value;
        return 1;
    }
    *out = (uint32_t)bits_at(r->packed, r->bit, r->width);
    r->bit += (uint64_t)r->width;
    return 1;
}
