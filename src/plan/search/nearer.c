/* Leaving out of the search what lies farther away than it has to. */
#include "plan/search/estimate.h"

#include "plan/search/memo.h"
#include "plan/search/tuning.h"

#include <math.h>

/* Judges the placement with the last, the farthest option of every class, which keeps `kept` chunks. Sets the most bytes over both
 * places of the update. Returns 0 if no program has tables for it. */
static int judge_farthest(const struct estimator *e, const struct strategy *fixed, int kept, double most[TIERS])
{
    const struct options *o = estimator_options(e);
    struct candidate c = {.strategy = options_first(o, fixed)};
    for (int d = DECISION_PARAMS; d <= DECISION_PASSING; d++)
        decision_set(&c.strategy, d, o->value[d][o->n[d] - 1]);
    c.strategy.placement.kept_chunks = kept;
    for (int t = 0; t < TIERS; t++)
        most[t] = 0;
    for (int u = 0; u < o->n[DECISION_UPDATE]; u++) {
        c.strategy.placement.update_on_host = o->value[DECISION_UPDATE][u];
        estimator_judge(e, &c);
        for (int t = 0; t < TIERS; t++)
            most[t] = fmax(most[t], (double)c.bytes[t]);
    }
    return isfinite(c.excess);
}

/* Tells whether the host has room for all that the options put there. */
static int host_holds_all(const struct problem *p, const struct estimator *e, const struct strategy *fixed)
{
    double most[TIERS];
    return judge_farthest(e, fixed, options_most_kept(estimator_options(e)), most) &&
           most[TIER_HOST] <= HOST_HOLDS * (double)p->limit[TIER_HOST];
}

/* Tells whether the device has room to spare while it holds as little as the options allow. */
static int device_is_ample(const struct problem *p, const struct estimator *e, const struct strategy *fixed)
{
    double most[TIERS];
    return judge_farthest(e, fixed, options_fewest_kept(estimator_options(e)), most) &&
           most[TIER_DEVICE] <= PASSING_ROOM * (double)p->limit[TIER_DEVICE];
}

/* Tells whether a residual stream takes next to nothing of the device. */
static int stream_is_small(const struct problem *p, const struct strategy *s)
{
    return s->rows * p->model->config.dim * dtype_size(s->key.dtype) <= p->limit[TIER_DEVICE] / PASSING_PART;
}

/* Measures fewer options first: all needs are found again with more of them, as long as the memo is held. */
enum status estimator_create(const struct problem *p, const struct options *o, const struct strategy *fixed,
                             struct estimator **out)
{
    struct options some = *o;
    const int passing = memo_is_held() && stream_is_small(p, fixed) && options_leave_passing(&some);
    struct options near = some;
    const int drives = memo_is_held() && options_leave_drives(&near);
    for (int with_drives = !drives; with_drives < 1 + passing; with_drives++) {
        TRY(estimator_measure(p, with_drives ? &some : &near, fixed, out));
        if ((with_drives || host_holds_all(p, *out, fixed)) && (!passing || device_is_ample(p, *out, fixed))) {
            estimator_bring_nearer(*out);
            return OK;
        }
        estimator_destroy(*out);
    }
    return estimator_measure(p, o, fixed, out);
}
