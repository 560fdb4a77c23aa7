/* Sizes of update groups, if the default ones cost time. */
#include "plan/passes/passes.h"

#include "machine/hardware.h"
#include "plan/lower/groups.h"
#include "plan/program_set.h"
#include "plan/search/tuning.h"

#include <math.h>

static int is_resident(const struct strategy *s)
{
    return s->placement.params == RES_DEVICE && s->placement.grads == RES_DEVICE && s->placement.optim == RES_DEVICE;
}

/* Counts the groups of all units that are updated. Each has an instruction that sums its gradient's squares, and one that updates
 * it. */
static int64_t updated_groups(const struct model *m, const struct strategy *s)
{
    int64_t n = 0;
    for (int u = 0; u < m->n_units; u++)
        n += plan_groups(m, s, u, m->units[u].trained_elements);
    return n;
}

/* Replaces *out by the plan of the same placement with groups of `group` elements if that fits and takes less than `most` times
 * the seconds. *taken: 1 if so. */
static enum status try_groups(const struct problem *p, int64_t group, double most, struct plan **out, int *taken)
{
    struct plan *now = *out, *next;
    struct candidate c;
    double excess;
    TRY(plan_as_candidate(now, &c));
    c.strategy.key.group = group;
    TRY(plan_candidate(p, &c, 0, &excess, &next));
    next->default_grid = now->default_grid;
    next->finer = now->finer;
    *taken = next->fits && next->seconds < most * now->seconds;
    *out = *taken ? next : now;
    plan_destroy(*taken ? now : next);
    return OK;
}

static int is_open(const struct problem *p)
{
    return p->request.group <= 0 && !p->request.evaluation && p->request.hardware && !p->request.hardware->cpu;
}

enum status plan_for_resident_groups(const struct problem *p, struct plan **out)
{
    struct plan *now = *out;
    int taken;
    if (!is_open(p) || now->strategy.ranks > 1 || now->strategy.key.group >= GROUP_RESIDENT || !is_resident(&now->strategy))
        return OK;
    struct strategy larger = now->strategy;
    larger.key.group = GROUP_RESIDENT;
    const int64_t fewer = updated_groups(p->model, &now->strategy) - updated_groups(p->model, &larger);
    return 2 * (double)fewer * p->cost.overhead < GROUP_GAIN * now->seconds ? OK : try_groups(p, GROUP_RESIDENT, 1, out, &taken);
}

/* Returns the share of a micro-batch's time that messages between all ranks take. */
static double messages_busy(const struct plan *plan)
{
    const struct program *p = plan->programs[PLAN_LAST] ? plan->programs[PLAN_LAST] : plan_any(plan);
    double busy = 0, end = 0;
    for (int i = 0; i < p->n_instrs; i++) {
        const struct instr *in = &p->instrs[i];
        busy += in->lane == LANE_WORLD ? in->end - in->start : 0;
        end = fmax(end, in->end);
    }
    return end > 0 ? busy / end : 0;
}

enum status plan_for_messages(const struct problem *p, struct plan **out)
{
    int taken = is_open(p) && (*out)->strategy.ranks > 1 && messages_busy(*out) > GROUP_MESSAGES_BUSY;
    /* groups four times as large come first: if these gain nothing, larger ones do not either */
    for (int64_t group = 4 * (*out)->strategy.key.group; taken && group <= GROUP_MESSAGES_MOST; group *= 2)
        TRY(try_groups(p, group, 1 - GROUP_GAIN, out, &taken));
    return OK;
}
