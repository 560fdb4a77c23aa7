/* Looks at settings: leanest placements, and trials of the most promising ones. */
#include "plan/glance.h"

#include "plan/fit.h"
#include "plan/plan.h"

/* What seems not to fit by this share may: the leanest placement by estimate is not always the leanest. Looked at where that
 * takes no time. */
#define UNCERTAIN 0.1

/* Of every so many layers the input is kept where memory is all that matters. */
enum { FEW_INPUTS = 4 };

/* The settings with the one placement that is mostly the leanest: what they leave open lies as far away as it can. */
static void empty_device(const int64_t limit[TIERS], struct settings *s)
{
    enum offload *const class[] = {&s->params, &s->grads, &s->optim, &s->acts};
    for (int i = 0; i < 4; i++)
        if (*class[i] == OFFLOAD_AUTO)
            *class[i] = limit[TIER_NVME] > 0 ? OFFLOAD_NVME : OFFLOAD_CPU;
    if (s->alpha < 0)
        s->alpha = 0;
    if (s->update == UPDATE_AUTO)
        s->update = UPDATE_HOST;
}

enum status glance_leanest(const struct model *m, const struct settings *s, const struct strategy *fixed,
                           const int64_t limit[TIERS], struct candidate *out)
{
    struct settings lean = *s;
    struct cost_model cost;
    plan_cost_model(s, &cost);
    empty_device(limit, &lean);
    TRY(search_leanest(m, &lean, fixed, &cost, limit, out));
    int drives = search_scarce(out->bytes, limit) == TIER_NVME; /* too small for all that may lie there */
    if (out->excess <= 1 || (!out->whole && !drives && out->excess > PLAN_FINER_HELPS))
        return OK;
    if (!out->whole && out->bytes[TIER_DEVICE] > limit[TIER_DEVICE]) /* hardly anything needs less of it */
        return OK;
    TRY(search_leanest(m, s, fixed, &cost, limit, out));
    if (!out->whole || out->excess <= 1 || out->excess > 1 + UNCERTAIN)
        return OK;
    struct search all;
    TRY(search_create(m, s, fixed, &cost, limit, &all));
    if (all.candidates[0].tried && all.candidates[0].excess < out->excess)
        *out = all.candidates[0];
    search_destroy(&all);
    return OK;
}

enum status glance_whole(const struct model *m, const struct settings *s, const int64_t limit[TIERS], struct candidate *c)
{
    int role = ROLE_UPDATE | ROLE_FORWARD | ROLE_BACKWARD | ROLE_FIRST | (s->grad_accum == 1 ? ROLE_LAST : 0);
    if (c->whole)
        return OK;
    TRY(fit_serially(m, &c->strategy, role, c->bytes));
    c->excess = search_excess(c->bytes, limit);
    c->whole = 1;
    return OK;
}

/* With the inputs of every so many layers kept, or fewer. */
static enum status fits_with_inputs(const struct model *m, const struct settings *s, const int64_t limit[TIERS], int input_every,
                                    struct candidate *out)
{
    struct strategy fixed;
    TRY(plan_fixed(m, s, &fixed));
    fixed.input_every = (int)max_i64(fixed.input_every, input_every);
    TRY(glance_leanest(m, s, &fixed, limit, out));
    if (out->excess <= 1 || out->excess > PLAN_FINER_HELPS || out->bytes[TIER_DEVICE] <= limit[TIER_DEVICE] || !out->whole ||
        !plan_finer_tiles(m, s, &fixed))
        return OK;
    for (int steps = 1; steps < PLAN_FINER && plan_finer_tiles(m, s, &fixed);)
        steps++;
    return glance_leanest(m, s, &fixed, limit, out);
}

enum status glance_fits(const struct model *m, const struct settings *s, const int64_t limit[TIERS], struct candidate *out)
{
    return fits_with_inputs(m, s, limit, 1, out);
}

enum status glance_fits_long(const struct model *m, const struct settings *s, const int64_t limit[TIERS], struct candidate *out)
{
    if (s->keep_inputs < 0 && m->config.layers > FEW_INPUTS) {
        TRY(fits_with_inputs(m, s, limit, FEW_INPUTS, out));
        if (out->excess <= 1 || !out->whole)
            return OK;
    }
    return glance_fits(m, s, limit, out);
}

enum status glance_like(const struct model *m, const struct settings *s, const int64_t limit[TIERS], const struct strategy *like,
                        struct candidate *out)
{
    struct strategy same;
    struct cost_model cost;
    int64_t chunks = ceil_div(like->rows, like->row_chunk);
    TRY(plan_fixed(m, s, &same));
    plan_cost_model(s, &cost);
    strategy_place(&same, like);
    same.kept_chunks = (int)(like->kept_chunks * ceil_div(same.rows, same.row_chunk) / chunks);
    return search_fits(m, s, &same, &cost, limit, out);
}

enum status glance_fits_like(const struct model *m, const struct settings *s, const int64_t limit[TIERS],
                             const struct strategy *like, struct candidate *out)
{
    TRY(glance_like(m, s, limit, like, out));
    return out->excess <= 1 ? OK : fits_with_inputs(m, s, limit, (int)min_i64(like->input_every, FEW_INPUTS), out);
}

enum status glance_reckon(const struct model *m, const struct settings *s, const int64_t limit[TIERS], struct candidate *out)
{
    struct settings lean = *s;
    struct strategy fixed;
    struct cost_model cost;
    TRY(plan_fixed(m, s, &fixed));
    plan_cost_model(s, &cost);
    empty_device(limit, &lean);
    return search_least(m, &lean, &fixed, &cost, limit, out);
}

enum status glance_seconds(const struct model *m, const struct settings *s, const int64_t limit[TIERS], double rate,
                           struct candidate *out)
{
    struct strategy fixed;
    struct cost_model cost;
    TRY(plan_fixed(m, s, &fixed));
    plan_cost_model(s, &cost);
    TRY(glance_reckon(m, s, limit, out));
    if (out->bytes[TIER_DEVICE] <= (1 + UNCERTAIN) * (double)limit[TIER_DEVICE]) {
        TRY(search_promising(m, s, &fixed, &cost, limit, rate, out));
        if (out->tried && out->excess <= 1)
            return OK;
    }
    TRY(glance_fits(m, s, limit, out));
    if (out->excess > 1)
        return OK;
    fixed = out->strategy; /* of large models one trial is enough: what is tried beside it gains 5% at most */
    return (out->whole ? search_price : search_price_as_is)(m, s, &fixed, &cost, limit, out);
}
