#include "plan/search/needs.h"

#include "base/sys.h"
#include "plan/lower/program.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Everything that the needs depend on, for one model and one request but for its mesh and stage. */
struct needs_key {
    struct strategy strategy;
    struct subject_layers layers;
    uint64_t costs; /* hash */
    int duties;
};

struct known {
    struct needs_key key;
    struct need need;
};

struct needs {
    pthread_mutex_t lock;
    struct known *list;
    int n, cap;
};

enum status needs_create(struct needs **out)
{
    *out = sys_calloc(1, sizeof **out);
    if (!*out)
        return status_no_memory("while planning");
    pthread_mutex_init(&(*out)->lock, NULL);
    return OK;
}

void needs_destroy(struct needs *x)
{
    if (!x)
        return;
    pthread_mutex_destroy(&x->lock);
    free(x->list);
    free(x);
}

/* Makes a key, padding included. The update's program has neither row chunks nor activations: keys of update programs leave them
 * out. */
static void set_key(const struct subject *of, const struct strategy *s, int duties, struct needs_key *out)
{
    memset(out, 0, sizeof *out);
    memcpy(&out->strategy, s, sizeof *s);
    out->layers = of->layers;
    out->costs = of->problem->costs;
    out->duties = duties;
    if (duties != DUTY_UPDATE)
        return;
    struct placement *p = &out->strategy.placement;
    out->strategy.key.row_chunk = 0;
    p->acts = p->passing = RES_DEVICE;
    p->device_layers = p->device_chunks = p->kept_chunks = p->full_more = p->light_fewer = 0;
}

/* Copies the needs of a key; returns 0 if they are not known. */
static int look_up(struct needs *x, const struct needs_key *key, struct need *out)
{
    int found = 0;
    pthread_mutex_lock(&x->lock);
    for (int i = x->n - 1; i >= 0 && !found; i--)
        if (memcmp(&x->list[i].key, key, sizeof *key) == 0) {
            *out = x->list[i].need;
            found = 1;
        }
    pthread_mutex_unlock(&x->lock);
    return found;
}

static enum status note(struct needs *x, const struct needs_key *key, const struct need *need)
{
    enum status st = OK;
    pthread_mutex_lock(&x->lock);
    if (x->n == x->cap) {
        const int cap = x->cap ? 2 * x->cap : 64;
        struct known *more = sys_realloc(x->list, sizeof *more * (size_t)cap);
        if (more)
            x->list = more, x->cap = cap;
        else
            st = status_no_memory("while planning");
    }
    if (st == OK)
        x->list[x->n++] = (struct known){*key, *need};
    pthread_mutex_unlock(&x->lock);
    return st;
}

enum status needs_find(struct needs *x, const struct subject *of, const struct strategy *s, int duties, struct need *out)
{
    struct needs_key key;
    if (!x)
        return measure_need(of, s, duties, out);
    set_key(of, s, duties, &key);
    if (look_up(x, &key, out))
        return OK;
    TRY(measure_need(of, s, duties, out));
    return note(x, &key, out);
}
