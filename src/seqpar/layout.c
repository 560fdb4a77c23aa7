/* Shapes and layouts: the chunks of a sequence that each ring member holds. */
#include "seqpar/layout.h"

#include "base/num.h"
#include "base/sys.h"

#include <stdlib.h>
#include <string.h>

/* Limits of chunks. 32 chunks per member share out every mix of bench/results/balance.txt within about 1%; with 16, a window of
 * 64k stays at 1.03. A chunk shorter than a tile of the attention kernel only adds partial tiles. */
enum { MAX_PER_MEMBER = 32, MIN_CHUNK = 64, MIN_PER_MEMBER_AUTO = 4 };

/* ---- shapes ---- */

static int64_t lcm(int64_t a, int64_t b)
{
    int64_t x = a, y = b;
    while (y) {
        int64_t r = x % y;
        x = y;
        y = r;
    }
    return a / x * b;
}

/* Returns the chunks that a ring member holds, of at least `least` tokens each if there are more than two. */
static int chunks_per_member(int64_t seq_len, int ring, enum seq_kind kind, int64_t least)
{
    int per = 2;
    if (ring == 1)
        return 1;
    while (kind != SEQ_ZIGZAG && per < MAX_PER_MEMBER && seq_len / ring / (2 * per) >= least)
        per *= 2;
    return per;
}

/* Returns a power of two that divides the pieces: at least `least`, up to MOST_UNIT if padding stays below an eighth. */
static int64_t unit_of(int64_t seq_len, int64_t pieces, int64_t least)
{
    enum { MOST_UNIT = 1024 };
    int64_t unit = 1;
    while (unit < least || (unit < MOST_UNIT && seq_len / (2 * unit * pieces) >= 8))
        unit *= 2;
    return unit;
}

enum status seq_shape_create_pieces(int64_t seq_len, int ulysses, int ring, enum seq_kind kind, int64_t least, int slices,
                                    struct seq_shape *out)
{
    enum { MIN_PIECE = 1024 }; /* each piece costs messages of a state, whatever its length */
    const int passes = least > 0 && ulysses * ring > 1;
    if (seq_len < 1 || seq_len > INT32_MAX)
        return status_fail(ERR_INVALID, "--seq-len: %lld is not between 1 and %d", (long long)seq_len, INT32_MAX);
    if (ulysses < 1 || ring < 1)
        return status_fail(ERR_INVALID, "--mesh: ulysses=%d and ring=%d must be 1 or more", ulysses, ring);
    int per = chunks_per_member(seq_len, ring, kind, passes ? MIN_PIECE : MIN_CHUNK);
    int64_t pieces = ring * lcm(per, ulysses),
            padded = round_up(seq_len, pieces * (passes ? unit_of(seq_len, pieces, least) : slices));
    if (padded > INT32_MAX)
        return status_fail(ERR_INVALID, "--seq-len: %lld tokens padded for ulysses=%d and ring=%d are %lld, above %d",
                           (long long)seq_len, ulysses, ring, (long long)padded, INT32_MAX);
    if (kind == SEQ_AUTO)
        kind = per >= MIN_PER_MEMBER_AUTO ? SEQ_BALANCED : SEQ_ZIGZAG;
    *out = (struct seq_shape){.seq_len = seq_len,
                              .padded = padded,
                              .ulysses = ulysses,
                              .ring = ring,
                              .kind = kind,
                              .chunk = padded / (per * ring),
                              .chunks = per * ring};
    return OK;
}

void seq_pad(int64_t first, int64_t end, const struct seq_tokens *t)
{
    for (int64_t q = first; q < end; q++) {
        t->tokens[q] = 0;
        t->targets[q] = -1;
        t->positions[q] = 0;
        t->lo[q] = (int32_t)q;
    }
}

/* ---- creation ---- */

static enum status check_shape(const struct seq_shape *s)
{
    int ok = s->seq_len >= 1 && s->padded >= s->seq_len && s->padded <= INT32_MAX && s->ulysses >= 1 && s->ring >= 1;
    ok = ok && s->chunks >= 1 && s->chunks % s->ring == 0 && (s->ring == 1 || s->chunks / s->ring % 2 == 0);
    ok = ok && s->chunk >= 1 && s->chunk * s->chunks == s->padded && s->padded / s->ring % s->ulysses == 0;
    return ok ? OK
              : status_fail(ERR_INVALID,
                            "sequence layout: %lld tokens in %d chunks of %lld do not divide over ulysses=%d, ring=%d",
                            (long long)s->padded, s->chunks, (long long)s->chunk, s->ulysses, s->ring);
}

enum status seq_layout_create(const struct seq_shape *shape, struct seq_layout **out)
{
    TRY(check_shape(shape));
    size_t chunks = (size_t)shape->chunks, ring = (size_t)shape->ring;
    struct seq_layout *l = sys_calloc(1, sizeof *l);
    int64_t *wide = sys_calloc(chunks + 2 * ring, sizeof *wide);
    int32_t *narrow = sys_calloc(4 * chunks + ring, sizeof *narrow);
    struct seq_weighted *order = sys_calloc(chunks, sizeof *order);
    uint8_t *needs = sys_calloc(ring, 1);
    if (!l || !wide || !narrow || !order || !needs) {
        free(l), free(wide), free(narrow), free(order), free(needs);
        return status_fail(ERR_NOMEM, "out of memory: a sequence layout of %d chunks", shape->chunks);
    }
    l->shape = *shape;
    l->per = shape->chunks / shape->ring;
    l->work = wide;
    l->load = wide + chunks;
    l->zigzag = l->load + ring;
    l->owner = narrow;
    l->place = narrow + chunks;
    l->held = narrow + 2 * chunks;
    l->other = narrow + 3 * chunks;
    l->room = narrow + 4 * chunks;
    l->order = order;
    l->needs = needs;
    layout_zigzag(l);
    *out = l;
    return OK;
}

void seq_layout_destroy(struct seq_layout *l)
{
    if (!l)
        return;
    free(l->work);
    free(l->owner);
    free(l->order);
    free(l->needs);
    free(l);
}

/* ---- results of the last assignment ---- */

uint64_t seq_layout_digest(const struct seq_layout *l)
{
    return l->digest;
}
