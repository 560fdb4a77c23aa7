/* The longest sequence that fits a pipeline's stages. */
#include "plan/longest_stages.h"

#include "base/hurry.h"
#include "base/num.h"
#include "base/progress.h"
#include "plan/hybrid.h"
#include "plan/lower/mesh.h"
#include "plan/max_seq.h"
#include "plan/roles.h"
#include "plan/search/tuning.h"

enum { MOST_TOKENS = 1 << 30 }; /* token numbers are 32 bits */

struct stretching {
    const struct model *m;
    const struct plan_request *s;
    int ranks, per_host, place;
    const int64_t *limit;
    struct longest *found; /* the shortest length that did not fit, with its need */
};

/* Returns the distance between lengths that are tried: plans of stages take long. */
static int64_t step_at(int64_t tokens)
{
    enum { COARSER = 4 };
    return length_step(COARSER * tokens);
}

/* Plans a length. *used: the plan's request. *fits: 0: there is no plan that fits, and *out may be NULL. */
static enum status plan_request_at(const struct stretching *x, struct plan_request *used, int *fits, struct plan **out)
{
    *out = NULL;
    *fits = 0;
    TRY(plan_mesh(x->m, used, x->ranks, x->per_host));
    used->open_degrees &= ~(1u << MESH_DP); /* the longest sequence is shared by as many ranks as there are */
    used->open_parts = 0;
    const enum status st = plan_ranks_create(x->m, used, x->place, x->limit, out);
    if (st == ERR_NOFIT) {
        *x->found = (struct longest){.longer = used->seq_len, .beyond = 1};
        return OK;
    }
    TRY(st);
    *fits = 1;
    for (int i = 0; i < plan_n_roles(*out) && *fits; i++) {
        const struct plan *p = plan_of_role(*out, i);
        *fits = p->fits;
        if (!p->fits)
            *x->found = (struct longest){.longer = used->seq_len, .tier = p->misfit, .bytes = p->arena[p->misfit]};
    }
    if (*fits)
        progress_fits(used->seq_len);
    return OK;
}

/* Plans a length in slices, as settings say or a rule chooses or, if that does not fit and slices are open, in whole sequences, whose
 * keys and values need not stay on the device. */
static enum status plan_at(const struct stretching *x, const struct plan_request *s, int64_t tokens, struct plan_request *used,
                           int *fits, struct plan **out)
{
    const struct longest before = *x->found;
    for (int whole = 0; whole < 2; whole++) {
        *used = *s;
        used->seq_len = tokens;
        if (whole)
            used->mesh.degree[MESH_SLICES] = 1;
        TRY(plan_request_at(x, used, fits, out));
        if (*fits || s->mesh.degree[MESH_SLICES] > 0 || mesh_degree(&used->mesh, MESH_SLICES) == 1)
            break;
        if (!whole)
            plan_destroy(*out);
    }
    if (*fits)
        *x->found = before;
    return OK;
}

/* Tells whether a length fits some brief plan: with ZeRO stage 3 and messages at once, where these are open, which take the least. */
static enum status fits_at(const struct stretching *x, int64_t tokens, int *fits)
{
    struct plan_request least = *x->s, used;
    struct plan *p;
    least.effort = EFFORT_QUICK;
    least.zero = least.zero == AUTO || least.zero_is_unsaid ? 3 : least.zero;
    least.stage_ahead = least.stage_ahead == AUTO ? 0 : least.stage_ahead;
    TRY(plan_at(x, &least, tokens, &used, fits, &p));
    plan_destroy(p);
    return OK;
}

/* Finds by brief plans a length that fits, *low (0: none), of which the next one, a step longer, does not. */
static enum status bracket(const struct stretching *x, int64_t *low)
{
    int64_t high = 0, at = LENGTH_FIRST;
    int fits;
    *low = 0;
    while (high == 0 || (*low > 0 ? high - *low > step_at(*low) : high > LENGTH_SHORTEST)) {
        if (*low > 0 && hurry_asked())
            break;
        TRY(fits_at(x, at, &fits));
        *(fits ? low : &high) = at;
        if (fits && at >= MOST_TOKENS)
            break;
        if (high == 0)
            at = min_i64(MOST_TOKENS, 2 * at);
        else if (*low == 0)
            at = max_i64(LENGTH_SHORTEST, high / 2);
        else {
            const int64_t step = step_at(*low);
            at = *low + max_i64(1, (high - *low) / step / 2) * step;
        }
    }
    return OK;
}

enum status plan_longest_stages(const struct model *m, struct plan_request *s, int ranks, int per_host, int place,
                                const int64_t limit[TIERS], struct plan **out)
{
    struct longest found = {.step = 0};
    const struct stretching x = {m, s, ranks, per_host, place, limit, &found};
    struct plan_request used;
    int64_t low;
    int fits;
    if (model_learns_positions(&m->config))
        return status_fail(
            ERR_INVALID,
            "--max-seq: model %s has learned positions, whose lengths are not searched for stages: give --seq-len, or "
            "leave pp out",
            m->config.name);
    TRY(bracket(&x, &low));
    for (low = max_i64(low, LENGTH_SHORTEST);;) { /* mostly the first one fits */
        TRY(plan_at(&x, s, low, &used, &fits, out));
        if (fits || low <= LENGTH_SHORTEST)
            break;
        plan_destroy(*out);
        low = max_i64(LENGTH_SHORTEST, low - step_at(low));
    }
    progress_fits(0);
    if (!*out)
        return status_fail(ERR_NOFIT, "--max-seq: no program of %d tokens fits its tables: take fewer stages", LENGTH_SHORTEST);
    found.step = step_at(low);
    (*out)->longest = found;
    used.row_chunk = s->row_chunk; /* later changes start from the settings, with open sizes left open */
    used.head_tile = s->head_tile;
    used.loss_tile = s->loss_tile;
    *s = used;
    return OK;
}
