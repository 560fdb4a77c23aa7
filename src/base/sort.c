/* Radix sort, least significant digit first (Knuth, The Art of Computer Programming, volume 3, 5.2.5). */
#include "base/sort.h"

#include "base/sys.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DIGIT_BITS 11 /* bits of a digit: its table of counts fits the first-level cache */
#define BUCKETS (1 << DIGIT_BITS)
#define DIGITS ((64 + DIGIT_BITS - 1) / DIGIT_BITS)
#define HALF_DIGITS ((32 + DIGIT_BITS - 1) / DIGIT_BITS)
#define MOST_MOVES 4 /* shifts per entry, on average, above which mending ties in place (mend) takes longer than sorting anew */

struct counts {
    int of[DIGITS][BUCKETS];
};

static int digit(uint64_t key, int d)
{
    return (int)(key >> (d * DIGIT_BITS)) & (BUCKETS - 1);
}

static void count(struct counts *c, uint64_t key, int digits)
{
    for (int d = 0; d < digits; d++)
        c->of[d][digit(key, d)]++;
}

/* Turns counts of digit d into the places where each bucket begins; 0 if all n entries are in one bucket. */
static int begin_buckets(struct counts *c, int d, int n)
{
    int at = 0;
    for (int b = 0; b < BUCKETS; b++) {
        int here = c->of[d][b];
        if (here == n)
            return 0;
        c->of[d][b] = at;
        at += here;
    }
    return 1;
}

/* Maps a double to an unsigned number, keeping the order: of negative doubles all bits are inverted, of others the sign. */
static uint64_t ordered(double key)
{
    uint64_t u;
    key += 0.0; /* turns -0 into 0, as they are equal keys */
    memcpy(&u, &key, sizeof u);
    return u >> 63 ? ~u : u | (uint64_t)1 << 63;
}

struct entry {
    uint32_t key;
    int index;
};

struct sorter {
    const double *key;
    int *index;
    int n;
    struct entry *from, *to; /* from: present entries; to: room for the next pass */
    struct counts *counts;
};

/* Sorts the entries by their keys. */
static void sort_entries(struct sorter *s)
{
    memset(s->counts, 0, sizeof *s->counts);
    for (int i = 0; i < s->n; i++)
        count(s->counts, s->from[i].key, HALF_DIGITS);
    for (int d = 0; d < HALF_DIGITS; d++) {
        if (!begin_buckets(s->counts, d, s->n))
            continue;
        for (int i = 0; i < s->n; i++)
            s->to[s->counts->of[d][digit(s->from[i].key, d)]++] = s->from[i];
        struct entry *swap = s->from;
        s->from = s->to;
        s->to = swap;
    }
}

/* Sorts by all 64 bits of any keys: first by the lower halves, then by the upper ones. */
static void sort_halves(struct sorter *s)
{
    for (int i = 0; i < s->n; i++)
        s->from[i] = (struct entry){(uint32_t)ordered(s->key[s->index[i]]), s->index[i]};
    sort_entries(s);
    for (int i = 0; i < s->n; i++)
        s->from[i].key = (uint32_t)(ordered(s->key[s->from[i].index]) >> 32);
    sort_entries(s);
}

/* Puts adjacent entries with equal keys into the order of their numbers. Returns 0 if that would take too long. */
static int mend(struct sorter *s)
{
    int64_t moves = 0;
    for (int i = 1; i < s->n; i++) {
        struct entry e = s->from[i];
        int k = i;
        for (; k > 0 && s->from[k - 1].key == e.key && s->key[s->from[k - 1].index] > s->key[e.index]; k--)
            s->from[k] = s->from[k - 1];
        s->from[k] = e;
        moves += i - k;
        if (moves > MOST_MOVES * (int64_t)s->n)
            return 0;
    }
    return 1;
}

/* Sorts in half the passes, by 32-bit numbers that say where each key lies between the smallest and the largest. Returns 0 if the
 * keys are not spread evenly enough; times usually are. */
static int sort_spread(struct sorter *s)
{
    double least = INFINITY, most = -INFINITY;
    for (int i = 0; i < s->n; i++) {
        double key = s->key[s->index[i]];
        least = key < least ? key : least;
        most = key > most ? key : most;
    }
    double scale = (double)UINT32_MAX / (most - least);
    if (!(scale > 0 && scale < INFINITY))
        return 0;
    for (int i = 0; i < s->n; i++)
        s->from[i] = (struct entry){(uint32_t)((s->key[s->index[i]] - least) * scale), s->index[i]};
    sort_entries(s);
    return mend(s);
}

int sort_by_key(const double *key, int *index, int n)
{
    int sorted = 1;
    for (int i = 1; i < n && sorted; i++)
        sorted = key[index[i - 1]] <= key[index[i]];
    if (sorted)
        return 1;
    struct sorter s = {key,
                       index,
                       n,
                       sys_malloc(sizeof(struct entry) * (size_t)n),
                       sys_malloc(sizeof(struct entry) * (size_t)n),
                       sys_malloc(sizeof(struct counts))};
    int done = s.from && s.to && s.counts;
    if (done && !sort_spread(&s))
        sort_halves(&s);
    for (int i = 0; i < n && done; i++)
        index[i] = s.from[i].index;
    free(s.from);
    free(s.to);
    free(s.counts);
    return done;
}

int sort_int64(int64_t *at, int n)
{
    static const uint64_t sign = (uint64_t)1 << 63; /* flipping the sign bit lets signed numbers ascend as unsigned ones */
    uint64_t *other = sys_malloc(sizeof *other * ((size_t)n + 1)), *from = (uint64_t *)at, *to = other;
    struct counts *c = sys_calloc(1, sizeof *c);
    int done = other && c;
    for (int i = 0; i < n && done; i++)
        count(c, from[i] ^ sign, DIGITS);
    for (int d = 0; d < DIGITS && done; d++) {
        if (!begin_buckets(c, d, n))
            continue;
        for (int i = 0; i < n; i++)
            to[c->of[d][digit(from[i] ^ sign, d)]++] = from[i];
        uint64_t *swap = from;
        from = to;
        to = swap;
    }
    if (done && from == other)
        memcpy(at, other, sizeof *at * (size_t)n);
    free(other);
    free(c);
    return done;
}
