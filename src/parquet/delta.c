/* Reading numbers stored as differences. */
#include "parquet/delta.h"

#include "parquet/rle.h"
#include "parquet/thrift.h"

enum { MOST_MINIS = 4096, MOST_MINI_SIZE = 1 << 20, WIDEST = 64 };

int delta_begin(struct delta *d, const uint8_t *text, size_t n)
{
    struct thrift t = {.at = text, .end = text + n};
    const uint64_t block = thrift_varint(&t), minis = thrift_varint(&t), total = thrift_varint(&t);
    const int64_t first = thrift_zigzag(thrift_varint(&t));
    if (t.bad || minis == 0 || minis > MOST_MINIS || block / minis == 0 || block / minis > MOST_MINI_SIZE || block % minis != 0 ||
        block / minis % 8 != 0)
        return 0;
    *d = (struct delta){.at = t.at,
                        .end = t.end,
                        .left = total,
                        .value = (uint64_t)first,
                        .minis = minis,
                        .mini_size = block / minis,
                        .mini = minis};
    return 1;
}

static int begin_mini(struct delta *d)
{
    if (d->mini == d->minis) {
        struct thrift t = {.at = d->at, .end = d->end};
        d->least = (uint64_t)thrift_zigzag(thrift_varint(&t));
        if (t.bad || d->minis > (uint64_t)(t.end - t.at))
            return 0;
        d->widths = t.at;
        d->at = t.at + d->minis;
        d->mini = 0;
    }
    const int width = d->widths[d->mini];
    const uint64_t bytes = (uint64_t)width * d->mini_size / 8;
    if (width > WIDEST || bytes > (uint64_t)(d->end - d->at))
        return 0;
    d->packed = d->at;
    d->at += bytes;
    d->bit = 0;
    d->in_mini = d->mini_size;
    d->mini++;
    return 1;
}

int delta_next(struct delta *d, int64_t *out)
{
    if (d->left == 0)
        return 0;
    d->left--;
    if (!d->has_begun) {
        d->has_begun = 1;
        *out = (int64_t)d->value;
        return 1;
    }
    if (d->in_mini == 0 && !begin_mini(d))
        return 0;
    const int width = d->widths[d->mini - 1];
    d->value += d->least + bits_at(d->packed, d->bit, width); /* differences wrap around, as unsigned numbers do */
    d->bit += (uint64_t)width;
    d->in_mini--;
    *out = (int64_t)d->value;
    return 1;
}

const uint8_t *delta_end(const struct delta *d)
{
    struct delta all = *d;
    uint64_t left = all.left > 0 ? all.left - 1 : 0; /* the first number stands in the header */
    for (; left > 0; left -= left < all.mini_size ? left : all.mini_size)
        if (!begin_mini(&all))
            return NULL;
    return all.at;
}
