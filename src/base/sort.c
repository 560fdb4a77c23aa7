/* Radix sort, least significant digit first (Knuth, The Art of Computer Programming, volume 3, 5.2.5). */
#include "base/sort.h"

#include "base/sys.h"

#include <stdlib.h>
#include <string.h>

#define DIGIT_BITS 11 /* a table of counts fits into the first-level cache */
#define BUCKETS (1 << DIGIT_BITS)
#define DIGITS ((64 + DIGIT_BITS - 1) / DIGIT_BITS)

struct counts {
    int of[DIGITS][BUCKETS];
};

static int digit(uint64_t key, int d)
{
    return (int)(key >> (d * DIGIT_BITS)) & (BUCKETS - 1);
}

static void count(struct counts *c, uint64_t key)
{
    for (int d = 0; d < DIGITS; d++)
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

/* As unsigned numbers in the order of the doubles: negative ones have all bits turned round, others the sign. */
static uint64_t ordered(double key)
{
    uint64_t u;
    key += 0.0; /* -0 and 0 are equal keys */
    memcpy(&u, &key, sizeof u);
    return u >> 63 ? ~u : u | (uint64_t)1 << 63;
}

struct entry {
    uint64_t key;
    int index;
};

int sort_by_key(const double *key, int *index, int n)
{
    int sorted = 1;
    for (int i = 1; i < n && sorted; i++)
        sorted = key[index[i - 1]] <= key[index[i]];
    if (sorted)
        return 1;
    struct entry *from = sys_malloc(sizeof *from * (size_t)n), *to = sys_malloc(sizeof *to * (size_t)n);
    struct counts *c = sys_calloc(1, sizeof *c);
    int done = from && to && c;
    for (int i = 0; i < n && done; i++) {
        from[i] = (struct entry){ordered(key[index[i]]), index[i]};
        count(c, from[i].key);
    }
    for (int d = 0; d < DIGITS && done; d++) {
        if (!begin_buckets(c, d, n))
            continue;
        for (int i = 0; i < n; i++)
            to[c->of[d][digit(from[i].key, d)]++] = from[i];
        struct entry *swap = from;
        from = to;
        to = swap;
    }
    for (int i = 0; i < n && done; i++)
        index[i] = from[i].index;
    free(from);
    free(to);
    free(c);
    return done;
}

int sort_int64(int64_t *at, int n)
{
    static const uint64_t sign = (uint64_t)1 << 63; /* turned round, numbers ascend as unsigned ones */
    uint64_t *other = sys_malloc(sizeof *other * ((size_t)n + 1)), *from = (uint64_t *)at, *to = other;
    struct counts *c = sys_calloc(1, sizeof *c);
    int done = other && c;
    for (int i = 0; i < n && done; i++)
        count(c, from[i] ^ sign);
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
