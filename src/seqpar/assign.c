/* Distributing the chunks of a sequence over ring members, by attended pairs. */
#include "seqpar/layout.h"

#include "base/num.h"

#include <stdlib.h>
#include <string.h>

/* ---- tables ---- */

static int zigzag_owner(const struct seq_layout *l, int chunk)
{
    int half = l->shape.ring == 1 ? 0 : chunk / (l->per / 2); /* number of the half, 0 .. 2 ring - 1, from the front */
    return half < l->shape.ring ? half : 2 * l->shape.ring - 1 - half;
}

/* Fills the tables held and place from the table owner. */
static void list_chunks(struct seq_layout *l)
{
    memset(l->room, 0, sizeof *l->room * (size_t)l->shape.ring);
    for (int c = 0; c < l->shape.chunks; c++) {
        int m = l->owner[c];
        l->place[c] = l->room[m]++; /* here room counts the chunks listed so far */
        l->held[m * l->per + l->place[c]] = c;
    }
}

static void sum_loads(struct seq_layout *l)
{
    memset(l->load, 0, sizeof *l->load * (size_t)l->shape.ring);
    for (int c = 0; c < l->shape.chunks; c++)
        l->load[l->owner[c]] += l->work[c];
}

int64_t layout_largest(const int64_t *load, int n)
{
    int64_t max = 0;
    for (int i = 0; i < n; i++)
        max = max_i64(max, load[i]);
    return max;
}

void layout_zigzag(struct seq_layout *l)
{
    l->kind = SEQ_ZIGZAG;
    for (int c = 0; c < l->shape.chunks; c++)
        l->owner[c] = zigzag_owner(l, c);
    memcpy(l->load, l->zigzag, sizeof *l->load * (size_t)l->shape.ring);
    list_chunks(l);
}

/* ---- heaviest first ---- */

/* Compares chunks by attended pairs; if equal, by index, so that the order is unique. */
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

/* ---- zigzag, repaired ---- */

/* Swaps a chunk of member `heavy` for a chunk of member `light` with fewer pairs: the two whose swap comes closest to moving
 * `want` pairs. Returns 0 if there are no such chunks. */
static int swap_chunks(struct seq_layout *l, int heavy, int light, int64_t want)
{
    int32_t *a = l->held + heavy * l->per, *b = l->held + light * l->per, *best_a = NULL, *best_b = NULL;
    int64_t least = INT64_MAX, moved = 0, gap = l->load[heavy] - l->load[light];
    for (int x = 0; x < l->per; x++)
        for (int y = 0; y < l->per; y++) {
            int64_t shift = l->work[a[x]] - l->work[b[y]], miss = llabs(shift - want);
            if (shift > 0 && shift < gap && miss < least) {
                least = miss;
                moved = shift;
                best_a = a + x;
                best_b = b + y;
            }
        }
    if (!best_a)
        return 0;
    int32_t chunk = *best_a;
    *best_a = *best_b;
    *best_b = chunk;
    l->owner[*best_a] = heavy;
    l->owner[*best_b] = light;
    l->load[heavy] -= moved;
    l->load[light] += moved;
    return 1;
}

/* Assigns in zigzag with greedy swaps between the heaviest and the lightest member, until the heaviest has at most `limit` pairs. */
static void assign_repaired(struct seq_layout *l, int64_t mean, int64_t limit)
{
    layout_zigzag(l);
    for (int swaps = 0; swaps < l->shape.chunks; swaps++) {
        int heavy = 0, light = 0;
        for (int m = 1; m < l->shape.ring; m++) {
            heavy = l->load[m] > l->load[heavy] ? m : heavy;
            light = l->load[m] < l->load[light] ? m : light;
        }
        /* number of pairs whose move brings one of the two members to the mean */
        int64_t want = max_i64(1, min_i64(l->load[heavy] - mean, mean - l->load[light]));
        if (l->load[heavy] <= limit || !swap_chunks(l, heavy, light, want))
            break;
    }
    list_chunks(l);
}

/* ---- the choice ---- */

/* Mixes a word into a hash by FNV-1a over words. */
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

/* Counts the blocks (a member's queries, another member's keys) with attended pairs, whose keys the ring sends. */
static int64_t count_blocks(const struct seq_layout *l, const int32_t *lo)
{
    int64_t blocks = 0;
    for (int dst = 0; dst < l->shape.ring; dst++) {
        memset(l->needs, 0, (size_t)l->shape.ring);
        layout_mark_needs(l, lo, dst, l->needs);
        for (int src = 0; src < l->shape.ring; src++)
            blocks += src != dst && l->needs[src];
    }
    return blocks;
}

static void assign_balanced(struct seq_layout *l, const int32_t *lo)
{
    int64_t total = 0;
    for (int c = 0; c < l->shape.chunks; c++)
        total += l->work[c];
    int64_t mean = total / l->shape.ring, limit = mean + mean / 100;
    assign_heaviest_first(l);
    int64_t most = layout_largest(l->load, l->shape.ring), blocks = count_blocks(l, lo);
    memcpy(l->other, l->owner, sizeof *l->owner * (size_t)l->shape.chunks);
    assign_repaired(l, mean, limit);
    int64_t repaired = layout_largest(l->load, l->shape.ring);
    if (repaired > most && (repaired > limit || 2 * count_blocks(l, lo) > blocks)) {
        memcpy(l->owner, l->other, sizeof *l->owner * (size_t)l->shape.chunks);
        sum_loads(l);
        list_chunks(l);
    }
    l->kind = SEQ_ZIGZAG;
    for (int c = 0; c < l->shape.chunks; c++)
        l->kind = l->owner[c] == zigzag_owner(l, c) ? l->kind : SEQ_BALANCED;
}

enum status seq_layout_assign(struct seq_layout *l, const int32_t *lo)
{
    TRY(weigh(l, lo));
    memset(l->zigzag, 0, sizeof *l->zigzag * (size_t)l->shape.ring);
    for (int c = 0; c < l->shape.chunks; c++)
        l->zigzag[zigzag_owner(l, c)] += l->work[c];
    if (l->shape.kind == SEQ_ZIGZAG)
        layout_zigzag(l);
    else
        assign_balanced(l, lo);
    for (int c = 0; c < l->shape.chunks; c++)
        l->digest = mix(l->digest, (uint32_t)l->owner[c]);
    return OK;
}
