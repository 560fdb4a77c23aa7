/* The shelf: the last few lowered programs of trials, the latest first. */
#include "plan/search/shelf.h"

#include "plan/search/tuning.h"

#include <pthread.h>
#include <string.h>

struct shelved {
    struct shelf_key key;
    struct draft *draft;
};

static struct {
    pthread_mutex_t lock;
    int n;
    struct shelved at[SHELF_PROGRAMS];
} shelf = {.lock = PTHREAD_MUTEX_INITIALIZER};

void shelf_key_set(const struct strategy *s, uint64_t model, uint64_t costs, int duties, struct shelf_key *out)
{
    memset(out, 0, sizeof *out);
    memcpy(&out->strategy, s, sizeof *s);
    out->strategy.placement.prefetch = 0;
    out->strategy.placement.write_depth = 0;
    out->model = model;
    out->costs = costs;
    out->duties = duties;
}

struct draft *shelf_take(const struct shelf_key *key)
{
    struct draft *found = NULL;
    pthread_mutex_lock(&shelf.lock);
    for (int i = 0; i < shelf.n && !found; i++)
        if (memcmp(&shelf.at[i].key, key, sizeof *key) == 0) {
            found = shelf.at[i].draft;
            for (int k = i + 1; k < SHELF_PROGRAMS; k++)
                shelf.at[k - 1] = shelf.at[k];
            shelf.n--;
        }
    pthread_mutex_unlock(&shelf.lock);
    return found;
}

void shelf_put(const struct shelf_key *key, struct draft *d)
{
    int instrs = draft_program(d)->n_instrs, keep = 0;
    if (instrs > SHELF_INSTRS) {
        draft_destroy(d);
        return;
    }
    pthread_mutex_lock(&shelf.lock);
    while (keep < shelf.n && keep < SHELF_PROGRAMS - 1 && instrs + draft_program(shelf.at[keep].draft)->n_instrs <= SHELF_INSTRS)
        instrs += draft_program(shelf.at[keep++].draft)->n_instrs;
    while (shelf.n > keep)
        draft_destroy(shelf.at[--shelf.n].draft);
    for (int i = SHELF_PROGRAMS - 1; i > 0; i--)
        shelf.at[i] = shelf.at[i - 1];
    shelf.at[0] = (struct shelved){*key, d};
    shelf.n = keep + 1;
    pthread_mutex_unlock(&shelf.lock);
}

void shelf_clear(void)
{
    pthread_mutex_lock(&shelf.lock);
    while (shelf.n > 0)
        draft_destroy(shelf.at[--shelf.n].draft);
    pthread_mutex_unlock(&shelf.lock);
}
