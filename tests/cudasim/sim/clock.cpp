/* Vector clocks: what a thread knows to have happened. */
#include "sim.h"

#include <algorithm>
#include <stdlib.h>
#include <string.h>

static clock_vector *free_list;

static clock_vector *take(void)
{
    clock_vector *v = free_list;
    if (v) {
        free_list = v->next_free;
    } else {
        v = new clock_vector;
        v->seen = static_cast<uint32_t *>(malloc(2 * SIM_MAX_IDS * sizeof(uint32_t)));
        v->proxy = v->seen + SIM_MAX_IDS;
    }
    v->references = 1;
    return v;
}

static void drop(clock_vector *v)
{
    if (v && --v->references == 0) {
        v->next_free = free_list;
        free_list = v;
    }
}

/* Ids come into being while a block runs; vectors are as long as the ids that can exist in this block at most. */
static size_t width(void)
{
    return sim_now ? std::min<size_t>(SIM_MAX_IDS, (size_t)sim_now->threads * 3 + SIM_LOAD_AGENTS + 64) : SIM_MAX_IDS;
}

knowledge::knowledge(const knowledge &o) : v(o.v)
{
    if (v)
        v->references++;
}

knowledge &knowledge::operator=(const knowledge &o)
{
    if (o.v)
        o.v->references++;
    drop(v);
    v = o.v;
    return *this;
}

knowledge::~knowledge()
{
    drop(v);
}

void knowledge::own()
{
    if (v && v->references == 1)
        return;
    clock_vector *n = take();
    size_t bytes = width() * sizeof(uint32_t);
    if (v) {
        memcpy(n->seen, v->seen, bytes);
        memcpy(n->proxy, v->proxy, bytes);
    } else {
        memset(n->seen, 0, SIM_MAX_IDS * sizeof(uint32_t));
        memset(n->proxy, 0, SIM_MAX_IDS * sizeof(uint32_t));
    }
    drop(v);
    v = n;
}

void knowledge::join(const knowledge &o)
{
    if (!o.v || o.v == v)
        return;
    if (!v) {
        *this = o;
        return;
    }
    own();
    size_t n = width();
    for (size_t i = 0; i < n; i++)
        v->seen[i] = std::max(v->seen[i], o.v->seen[i]);
    for (size_t i = 0; i < n; i++)
        v->proxy[i] = std::max(v->proxy[i], o.v->proxy[i]);
}

void knowledge::see(int id, uint32_t clock)
{
    if (seen(id) >= clock)
        return;
    own();
    v->seen[id] = clock;
}

void knowledge::see_proxy(int id, uint32_t clock)
{
    if (proxy(id) >= clock)
        return;
    own();
    v->proxy[id] = clock;
}

void knowledge::fence()
{
    if (!v)
        return;
    own();
    memcpy(v->proxy, v->seen, width() * sizeof(uint32_t));
}
