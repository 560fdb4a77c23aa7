/* Results of planning that are asked for again, in a hash table. */
#include "plan/search/memo.h"

#include "base/mix.h"
#include "base/sys.h"
#include "plan/search/shelf.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    struct entry *next;
    uint64_t hash;
    size_t bytes, result_bytes;
    unsigned char data[]; /* the key, then the result */
};

enum { SLOTS = 1 << 12 };

static struct {
    pthread_mutex_t lock;
    int holders;
    struct entry **slot; /* [SLOTS]; NULL: nothing is kept yet */
} memo = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint64_t hash_of(uint64_t h, const void *key, size_t bytes)
{
    uint64_t word = 0;
    size_t at = 0;
    for (; at + sizeof word <= bytes; at += sizeof word) {
        memcpy(&word, (const unsigned char *)key + at, sizeof word);
        h = mix(h, word);
    }
    word = 0;
    memcpy(&word, (const unsigned char *)key + at, bytes - at);
    return mix(h, word);
}

void memo_hold(void)
{
    pthread_mutex_lock(&memo.lock);
    memo.holders++;
    pthread_mutex_unlock(&memo.lock);
}

void memo_release(void)
{
    pthread_mutex_lock(&memo.lock);
    if (--memo.holders == 0)
        shelf_clear();
    if (memo.holders == 0 && memo.slot) {
        for (int i = 0; i < SLOTS; i++)
            for (struct entry *e = memo.slot[i], *next; e; e = next) {
                next = e->next;
                free(e);
            }
        free(memo.slot);
        memo.slot = NULL;
    }
    pthread_mutex_unlock(&memo.lock);
}

int memo_is_held(void)
{
    pthread_mutex_lock(&memo.lock);
    const int held = memo.holders > 0;
    pthread_mutex_unlock(&memo.lock);
    return held;
}

int memo_find(const void *key, size_t bytes, void *result, size_t result_bytes)
{
    const uint64_t h = hash_of(bytes, key, bytes);
    pthread_mutex_lock(&memo.lock);
    const struct entry *e = memo.slot ? memo.slot[h % SLOTS] : NULL;
    while (e && (e->hash != h || e->bytes != bytes || e->result_bytes != result_bytes || memcmp(e->data, key, bytes) != 0))
        e = e->next;
    pthread_mutex_unlock(&memo.lock); /* entries do not move or change while the memo is held */
    if (e)
        memcpy(result, e->data + bytes, result_bytes);
    return e != NULL;
}

void memo_keep(const void *key, size_t bytes, const void *result, size_t result_bytes)
{
    const uint64_t h = hash_of(bytes, key, bytes);
    pthread_mutex_lock(&memo.lock);
    if (memo.holders > 0 && !memo.slot)
        memo.slot = sys_calloc(SLOTS, sizeof(struct entry *));
    struct entry *e = memo.slot ? sys_malloc(sizeof *e + bytes + result_bytes) : NULL;
    if (e) {
        *e = (struct entry){memo.slot[h % SLOTS], h, bytes, result_bytes};
        memcpy(e->data, key, bytes);
        memcpy(e->data + bytes, result, result_bytes);
        memo.slot[h % SLOTS] = e;
    }
    pthread_mutex_unlock(&memo.lock);
}

uint64_t memo_model(const struct model *m)
{
    uint64_t h = hash_of(1, &m->config, sizeof m->config);
    h = hash_of(h, &m->part, sizeof m->part);
    for (int i = 0; i < m->n_params; i++)
        h = mix(h, (uint64_t)m->params[i].trained);
    return h;
}
