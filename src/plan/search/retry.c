/* Further trials of one placement. */
#include "plan/search/retry.h"

#include "plan/schedule/prefetch.h"
#include "plan/search/tuning.h"
#include "program/drives.h"

/* Tells whether compute waits while drives are written. */
static int is_held_up(const struct candidate *c)
{
    return c->written > 0 && c->seconds > RETRY_WAITS * c->compute;
}

/* Tries c with another write depth, at `level` or c->first_level if that is later, and keeps the result if it is cheaper. */
static enum status try_instead(const struct trials *t, struct candidate *c, int write_depth, int level, double *spent)
{
    struct candidate other = *c;
    other.strategy.placement.write_depth = write_depth;
    *spent += trial_instrs(t, c);
    TRY(trial_run(t, &other, level > c->first_level ? level : c->first_level));
    if (other.excess <= 1 && candidate_cost(&other) < candidate_cost(c))
        *c = other;
    return OK;
}

/* Tells whether compute waits while the device has parameters that the host updates. Only trials of all layers settle that. */
static int parameters_may_wait(const struct plan_request *s, const struct candidate *c)
{
    return c->all_layers && s->prefetch < 0 && s->params == OFFLOAD_AUTO && c->strategy.placement.params == RES_DEVICE &&
           c->strategy.placement.update_on_host && c->seconds > RETRY_WAITS * c->compute;
}

/* Tries parameters on the host in place of the device. The host updates them, so they cross the link in any case; fetched later
 * they let more urgent data pass. */
static enum status try_parameters_on_host(const struct trials *t, struct candidate *c, double *spent)
{
    struct candidate other = *c;
    other.strategy.placement.params = RES_HOST;
    estimator_judge(t->search->estimator, &other);
    if (other.excess > 1)
        return OK;
    *spent += trial_instrs(t, c);
    other.first_level = FIT_LATE;
    TRY(trial_run(t, &other, FIT_LATE));
    if (other.excess <= 1 && candidate_cost(&other) < candidate_cost(c))
        *c = other;
    return OK;
}

enum status retry_all(const struct trials *t, struct candidate *c, double best, double *spent)
{
    if (c->excess > 1 || c->seconds > RETRY_WITHIN * best)
        return OK;
    const int shorter = c->level + RETRY_LATER;
    c->retried = 1;
    if (t->problem->request.prefetch < 0 && c->seconds > RETRY_WAITS * c->compute)
        TRY(try_instead(t, c, c->strategy.placement.write_depth, shorter, spent));
    if (t->problem->request.prefetch < 0 && c->seconds > RETRY_WAITS * c->compute && shorter < FIT_LATE)
        TRY(try_instead(t, c, c->strategy.placement.write_depth, FIT_LATE, spent));
    if (is_held_up(c) && c->strategy.placement.write_depth != RETRY_WRITES_LAST)
        TRY(try_instead(t, c, RETRY_WRITES_LAST, 0, spent));
    if (parameters_may_wait(&t->problem->request, c))
        TRY(try_parameters_on_host(t, c, spent));
    return OK;
}

enum status retry_yielding(const struct trials *t, struct candidate *c, double best)
{
    TRY(trial_run(t, c, c->first_level));
    if (c->excess <= 1 && c->estimate < best && is_held_up(c) && c->strategy.placement.write_depth == 0)
        TRY(try_instead(t, c, RETRY_WRITES_YIELD, 0, &(double){0}));
    return OK;
}
