/* Seeded permutations computed without a table, and the mixing of sources by a table that is repeated. */
#include "data/order.h"

#include "base/rng.h"
#include "base/sys.h"

#include <stdlib.h>

/* Permutes by a Feistel network over an even number of bits that holds n, applied until the result is below n (Black and Rogaway
 * 2002, "Ciphers with arbitrary finite domains"). At least 8 bits, so that a few sequences are mixed well, too. */
uint64_t order_permute(uint64_t seed, uint64_t epoch, uint64_t i, uint64_t n)
{
    enum { ROUNDS = 8 };
    int half = 4;
    while ((n - 1) >> (2 * half))
        half++;
    uint64_t mask = ((uint64_t)1 << half) - 1, stream = rng_stream("corpus order") + epoch;
    do {
        uint64_t left = i >> half, right = i & mask;
        for (int round = 0; round < ROUNDS; round++) {
            uint32_t word[4];
            rng_block(seed, stream, (uint64_t)round << 56 | right, word);
            uint64_t mixed = left ^ (word[0] & mask);
            left = right;
            right = mixed;
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}

enum { SLOTS = 1 << 16, MOST_SOURCES = 64 };

struct mixture {
    int n;
    uint64_t count[MOST_SOURCES]; /* slots of each source; their sum is SLOTS */
    struct slot {
        uint32_t source, before; /* before: number of earlier slots of the same source */
    } slot[SLOTS];
};

/* Gives each slot of the table to the source that lags most behind its share, so that shares hold after few sequences, too. */
enum status mixture_create(const double *share, const char *const *name, int n, struct mixture **out)
{
    double all = 0.0;
    struct mixture *m = sys_calloc(1, sizeof *m);
    if (!m)
        return status_fail(ERR_NOMEM, "out of memory: the order of %d sources", n);
    m->n = n;
    for (int i = 0; i < n; i++)
        all += share[i];
    for (uint32_t t = 0; t < SLOTS; t++) {
        int most = 0;
        double lag, largest = -1e300;
        for (int i = 0; i < n; i++) {
            lag = share[i] / all * (double)(t + 1) - (double)m->count[i];
            if (lag > largest) {
                largest = lag;
                most = i;
            }
        }
        m->slot[t] = (struct slot){(uint32_t)most, (uint32_t)m->count[most]++};
    }
    for (int i = 0; i < n; i++)
        if (m->count[i] == 0) {
            mixture_destroy(m);
            return status_fail(ERR_INVALID, "--data: %s has less than 1/%d of all sequences, so small a weight cannot be kept",
                               name[i], SLOTS);
        }
    *out = m;
    return OK;
}

void mixture_destroy(struct mixture *m)
{
    free(m);
}

int mixture_at(const struct mixture *m, uint64_t cursor, uint64_t *before)
{
    const struct slot *s = &m->slot[cursor % SLOTS];
    *before = cursor / SLOTS * m->count[s->source] + s->before;
    return (int)s->source;
}

uint64_t mixture_count(const struct mixture *m, uint64_t cursor, int source)
{
    uint64_t n = cursor / SLOTS * m->count[source];
    for (uint64_t t = 0; t < cursor % SLOTS; t++)
        n += m->slot[t].source == (uint32_t)source;
    return n;
}
