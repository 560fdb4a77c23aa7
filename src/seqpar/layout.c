/* Shapes, and which ring member holds which chunks of a sequence. */
#include "seqpar/layout.h"

#include "base/num.h"
#include "base/sys.h"

#include <stdlib.h>
#include <string.h>

/* 16 chunks per member keep LPT within 1.02 of even for long documents and 1.05 for short ones (bench/results/balance.txt). A
 * chunk shorter than a tile of the attention kernel only adds partial tiles. */
enum { MAX_PER_MEMBER = 16, MIN_CHUNK = 64, MIN_PER_MEMBER_AUTO = 4 };

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

static int chunks_per_member(int64_t seq_len, int ring, enum seq_kind kind)
{
    int per = 2;
    if (ring == 1)
        return 1;
    while (kind != SEQ_ZIGZAG && per < MAX_PER_MEMBER && seq_len / ring / (2 * per) >= MIN_CHUNK)
        per *= 2;
    return per;
}

enum status seq_shape_create(int64_t seq_len, int ulysses, int ring, enum seq_kind kind, struct seq_shape *out)
{
    if (seq_len < 1 || seq_len > INT32_MAX)
        return status_fail(ERR_INVALID, "seq-len: %lld is not between 1 and %d", (long long)seq_len, INT32_MAX);
    if (ulysses < 1 || ring < 1)
        return status_fail(ERR_INVALID, "mesh: ulysses=%d and ring=%d must be 1 or more", ulysses, ring);
    int per = chunks_per_member(seq_len, ring, kind);
    int64_t padded = round_up(seq_len, ring * lcm(per, ulysses));
    if (padded > INT32_MAX)
        return status_fail(ERR_INVALID, "seq-len: %lld tokens padded for ulysses=%d and ring=%d are %lld, above %d",
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

const char *seq_kind_name(enum seq_kind kind)
{
    static const char *const names[] = {"zigzag", "balanced", "auto"};
    return names[kind];
}

int64_t seq_pad(const struct seq_shape *shape, int64_t used, const struct seq_tokens *t)
{
    for (int64_t q = used; q < shape->padded; q++) {
        t->tokens[q] = 0;
        t->targets[q] = -1;
        t->positions[q] = 0;
        t->lo[q] = (int32_t)q;
    }
    return shape->padded - used;
}

/* ---- creation ---- */

static int zigzag_owner(const struct seq_layout *l, int chunk)
{
    int half = l->shape.ring == 1 ? 0 : chunk / (l->per / 2); /* 0 .. 2 ring - 1 */
    return half < l->shape.ring ? half : 2 * l->shape.ring - 1 - half;
}

/* held and place from owner. */
static void list_chunks(struct seq_layout *l)
{
    memset(l->room, 0, sizeof *l->room * (size_t)l->shape.ring);
    for (int c = 0; c < l->shape.chunks; c++) {
        int m = l->owner[c];
        l->place[c] = l->room[m]++; /* as the count so far */
        l->held[m * l->per + l->place[c]] = c;
    }
}

static void assign_zigzag(struct seq_layout *l)
{
    l->kind = SEQ_ZIGZAG;
    for (int c = 0; c < l->shape.chunks; c++)
        l->owner[c] = zigzag_owner(l, c);
    memcpy(l->load, l->zigzag, sizeof *l->load * (size_t)l->shape.ring);
    list_chunks(l);
}

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
    int32_t *narrow = sys_calloc(3 * chunks + ring, sizeof *narrow);
    struct seq_weighted *order = sys_calloc(chunks, sizeof *order);
    if (!l || !wide || !narrow || !order) {
        free(l), free(wide), free(narrow), free(order);
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
    l->room = narrow + 3 * chunks;
    l->order = order;
    assign_zigzag(l);
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
    free(l);
}

const struct seq_shape *seq_layout_shape(const struct seq_layout *l)
{
    return &l->shape;
}

/* ---- assignment ---- */

/* FNV-1a over words. */
static uint64_t mix(uint64_t h, uint32_t word)
{
    return (h ^ word) * 0x100000001b3u;
}

static enum status weigh(struct seq_layout *l, const int32_t *lo)
{
    int32_t before = 0;
    int64_t q = 0;
    l->digest = 0xcbf29ce484222325u;
    for (int c = 0; c < l->shape.chunks; c++) {
        int64_t pairs = 0;
        for (int64_t end = q + l->shape.chunk; q < end; q++) {
            if (lo[q] < before || lo[q] > q)
                return status_fail(ERR_INVALID,
                                   "sequence layout: token %lld's first key %d is not between %d (the token's before) and itself",
                                   (long long)q, lo[q], before);
            before = lo[q];
            pairs += q + 1 - before;
            l->digest = mix(l->digest, (uint32_t)before);
        }
        l->work[c] = pairs;
    }
    return OK;
}

/* Heaviest first; equal ones by index, so that the order is one. */
static int compare_weighted(const void *a, const void *b)
{
    const struct seq_weighted *x = a, *y = b;
    if (x->work != y->work)
        return x->work > y->work ? -1 : 1;
    return x->chunk < y->chunk ? -1 : x->chunk > y->chunk;
}

static void assign_heaviest_first(struct seq_layout *l)
{
    int ring = l->shape.ring;
    l->kind = SEQ_BALANCED;
    for (int c = 0; c < l->shape.chunks; c++)
        l->order[c] = (struct seq_weighted){l->work[c], c};
    qsort(l->order, (size_t)l->shape.chunks, sizeof *l->order, compare_weighted);
    for (int m = 0; m < ring; m++) {
        l->load[m] = 0;
        l->room[m] = l->per;
    }
    for (int k = 0; k < l->shape.chunks; k++) {
        int least = -1;
        for (int m = 0; m < ring; m++)
            if (l->room[m] && (least < 0 || l->load[m] < l->load[least]))
                least = m;
        l->owner[l->order[k].chunk] = least;
        l->load[least] += l->order[k].work;
        l->room[least]--;
    }
    list_chunks(l);
}

static int64_t largest(const int64_t *load, int n)
{
    int64_t max = 0;
    for (int i = 0; i < n; i++)
        max = max_i64(max, load[i]);
    return max;
}

/* Zigzag's heaviest member is at most 1/128 above the other assignment's. */
static int zigzag_is_even(const struct seq_layout *l)
{
    int64_t most = largest(l->load, l->shape.ring);
    return largest(l->zigzag, l->shape.ring) <= most + most / 128;
}

enum status seq_layout_assign(struct seq_layout *l, const int32_t *lo)
{
    TRY(weigh(l, lo));
    memset(l->zigzag, 0, sizeof *l->zigzag * (size_t)l->shape.ring);
    for (int c = 0; c < l->shape.chunks; c++)
        l->zigzag[zigzag_owner(l, c)] += l->work[c];
    if (l->shape.kind != SEQ_ZIGZAG)
        assign_heaviest_first(l);
    if (l->shape.kind == SEQ_ZIGZAG || zigzag_is_even(l))
        assign_zigzag(l);
    for (int c = 0; c < l->shape.chunks; c++)
        l->digest = mix(l->digest, (uint32_t)l->owner[c]);
    return OK;
}

enum seq_kind seq_layout_kind(const struct seq_layout *l)
{
    return l->kind;
}

int64_t seq_load(const struct seq_layout *l, int member)
{
    return l->load[member];
}

static double imbalance(const int64_t *load, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)load[i];
    return sum > 0 ? (double)largest(load, n) * n / sum : 1.0;
}

double seq_imbalance(const struct seq_layout *l)
{
    return imbalance(l->load, l->shape.ring);
}

double seq_imbalance_zigzag(const struct seq_layout *l)
{
    return imbalance(l->zigzag, l->shape.ring);
}

uint64_t seq_layout_digest(const struct seq_layout *l)
{
    return l->digest;
}
