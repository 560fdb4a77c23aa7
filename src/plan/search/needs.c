/* Needs that were measured, for estimators on other grids, of other placements and of other requests. */
#include "plan/search/needs.h"

#include "plan/lower/fixed.h"
#include "plan/lower/program.h"
#include "plan/search/memo.h"

#include <string.h>

/* Everything that the needs depend on. */
struct needs_key {
    struct strategy strategy;
    uint64_t model, costs; /* hashes */
    int duties;
};

/* Makes a key, padding included. The update's program has neither row chunks nor activations: keys of update programs leave them
 * out. */
static void set_key(const struct subject *of, const struct strategy *s, int duties, struct needs_key *out)
{
    memset(out, 0, sizeof *out);
    memcpy(&out->strategy, s, sizeof *s);
    plan_keep_as_given(of->model, &of->problem->request, &out->strategy);
    out->model = of->hash;
    out->costs = of->problem->costs;
    out->duties = duties;
    if (duties != DUTY_UPDATE)
        return;
    struct placement *p = &out->strategy.placement;
    out->strategy.key.row_chunk = 0;
    p->acts = p->passing = RES_DEVICE;
    p->device_layers = p->device_chunks = p->kept_chunks = p->full_more = p->light_fewer = 0;
}

enum status needs_find(const struct subject *of, const struct strategy *s, int duties, struct need *out)
{
    struct needs_key key;
    set_key(of, s, duties, &key);
    if (memo_find(&key, sizeof key, out, sizeof *out))
        return OK;
    TRY(measure_need(of, s, duties, out));
    memo_keep(&key, sizeof key, out, sizeof *out);
    return OK;
}
