/* Trials of one placement in other ways. */
#include "plan/search/retry.h"

#include "plan/schedule/prefetch.h"
#include "program/drives.h"

/* Those within this share of the best one are tried at shorter distances, too (some paces further, and FIT_LATE): where drives
 * read and write at once, fetching late was up to 7% faster until 008c5c6, and is 1% since (row 8 of
 * bench/results/2026-11-23-search-vs-random.txt). */
#define CLOSE 1.01
#define SHORTER 3 /* paces further */
/* Blocks of writes in flight beside reads: half a lane's window is what memory mostly has room for, a quarter lets reads have
 * nearly all of the drives. */
#define WRITES_YIELD (DRIVE_DEPTH / 2)
#define WRITES_LAST (DRIVE_DEPTH / 4)
#define LATE_HELPS 1.01     /* where compute waits for less, fetching later does not help */
#define YIELDING_HELPS 1.01 /* where compute waits for less, writes to drives do not hold it up */

/* Whether compute waits while drives are written. */
static int is_held_up(const struct candidate *c)
{
    return c->written > 0 && c->seconds > YIELDING_HELPS * c->compute;
}

/* Tries c otherwise, at c->late or a later pace, and keeps what is faster. */
static enum status try_instead(const struct trials *t, struct candidate *c, int write_depth, int pace, double *spent)
{
    struct candidate other = *c;
    other.strategy.write_depth = write_depth;
    *spent += trial_instrs(t, c);
    TRY(trial_run(t, &other, pace > c->late ? pace : c->late));
    if (other.excess <= 1 && candidate_cost(&other) < candidate_cost(c))
        *c = other;
    return OK;
}

/* Whether compute waits while the device has parameters that the host updates; settled by whole trials only. */
static int parameters_may_wait(const struct plan_request *s, const struct candidate *c)
{
    return c->whole && s->prefetch < 0 && s->params == OFFLOAD_AUTO && c->strategy.params == RES_DEVICE &&
           c->strategy.update_on_host && c->seconds > LATE_HELPS * c->compute;
}

/* With parameters on the host in place of the device: where the host updates them, they come from there in any case, and fetched
 * late they leave the link to what is needed sooner. */
static enum status try_parameters_late(const struct trials *t, struct candidate *c, double *spent)
{
    struct candidate other = *c;
    other.strategy.params = RES_HOST;
    estimator_judge(t->search->estimator, &other);
    if (other.excess > 1)
        return OK;
    *spent += trial_instrs(t, c);
    other.late = FIT_LATE;
    TRY(trial_run(t, &other, FIT_LATE));
    if (other.excess <= 1 && candidate_cost(&other) < candidate_cost(c))
        *c = other;
    return OK;
}

enum status retry_all(const struct trials *t, struct candidate *c, double best, double *spent)
{
    if (c->excess > 1 || c->seconds > CLOSE * best)
        return OK;
    const int shorter = c->pace + SHORTER;
    c->otherwise = 1;
    if (t->problem->request.prefetch < 0 && c->seconds > LATE_HELPS * c->compute)
        TRY(try_instead(t, c, c->strategy.write_depth, shorter, spent));
    if (t->problem->request.prefetch < 0 && c->seconds > LATE_HELPS * c->compute && shorter < FIT_LATE)
        TRY(try_instead(t, c, c->strategy.write_depth, FIT_LATE, spent));
    if (is_held_up(c) && c->strategy.write_depth != WRITES_LAST)
        TRY(try_instead(t, c, WRITES_LAST, 0, spent));
    if (parameters_may_wait(&t->problem->request, c))
        TRY(try_parameters_late(t, c, spent));
    return OK;
}

enum status retry_yielding(const struct trials *t, struct candidate *c, double best)
{
    TRY(trial_run(t, c, c->late));
    if (c->excess <= 1 && c->estimate < best && is_held_up(c) && c->strategy.write_depth == 0)
        TRY(try_instead(t, c, WRITES_YIELD, 0, &(double){0}));
    return OK;
}
