/* Vector clocks: what a thread knows to have happened before. */
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

/* Makes this object the vector's only owner, and the vector long enough for `ids`. */
void knowledge::own(size_t ids)
{
    if (!v || v->references > 1) {
        clock_vector *n = take();
        n->ids = v ? v->ids : 0;
        if (v) {
            memcpy(n->seen, v->seen, n->ids * sizeof(uint32_t));
            memcpy(n->proxy, v->proxy, n->ids * sizeof(uint32_t));
        }
        drop(v);
        v = n;
    }
    if (v->ids < ids) {
        memset(v->seen + v->ids, 0, (ids - v->ids) * sizeof(uint32_t));
        memset(v->proxy + v->ids, 0, (ids - v->ids) * sizeof(uint32_t));
        v->ids = ids;
    }
}

__attribute__((target_clones("avx2", "default"))) static void reach(uint32_t *to, const uint32_t *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = std::max(to[i], from[i]);
}

void knowledge::join(const knowledge &o)
{
    if (!o.v || o.v == v)
        return;
    if (!v) {
        *this = o;
        return;
    }
    own(o.v->ids);
    reach(v->seen, o.v->seen, o.v->ids);
    reach(v->proxy, o.v->proxy, o.v->ids);
}

void knowledge::see(int id, uint32_t clock)
{
    if (seen(id) >= clock)
        return;
    own((size_t)id + 1);
    v->seen[id] = clock;
}

void knowledge::see_proxy(int id, uint32_t clock)
{
    if (proxy(id) >= clock)
        return;
    own((size_t)id + 1);
    v->proxy[id] = clock;
}

void knowledge::fence()
{
    if (!v)
        return;
    own(0);
    memcpy(v->proxy, v->seen, v->ids * sizeof(uint32_t));
}
