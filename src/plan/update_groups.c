/* How many elements are updated at once where nothing of them moves. */
#include "plan/update_groups.h"

#include "machine/hardware.h"
#include "plan/lower/groups.h"
#include "plan/program_set.h"
#include "plan/search/tuning.h"

static int is_resident(const struct strategy *s)
{
    return s->params == RES_DEVICE && s->grads == RES_DEVICE && s->optim == RES_DEVICE;
}

/* Groups of all units that are updated: each is an instruction that sums its gradient's squares, and one that updates it. */
static int64_t updated_groups(const struct model *m, const struct strategy *s)
{
    int64_t n = 0;
    for (int u = 0; u < m->n_units; u++)
        n += plan_groups(m, s, u, m->units[u].trained_elements);
    return n;
}

enum status plan_for_resident_groups(const struct problem *p, struct plan **out)
{
    struct plan *now = *out, *next;
    struct candidate c;
    double excess;
    if (p->request.group > 0 || p->request.evaluation || !p->request.hardware || p->request.hardware->cpu ||
        now->strategy.ranks > 1 || now->strategy.group >= GROUP_RESIDENT || !is_resident(&now->strategy))
        return OK;
    TRY(plan_as_candidate(now, &c));
    c.strategy.group = GROUP_RESIDENT;
    const int64_t fewer = updated_groups(p->model, &now->strategy) - updated_groups(p->model, &c.strategy);
    if (2 * (double)fewer * p->cost.overhead < GROUP_GAIN * now->seconds)
        return OK;
    TRY(plan_candidate(p, &c, 0, &excess, &next));
    next->default_grid = now->default_grid;
    next->finer = now->finer;
    const int better = next->fits && next->seconds < now->seconds;
    *out = better ? next : now;
    plan_destroy(better ? now : next);
    return OK;
}
