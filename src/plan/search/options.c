/* The choices that a request leaves open. */
#include "plan/search/options.h"

#include "plan/lower/fixed.h"

#include <string.h>

static void open_value(struct options *o, enum decision_id d, int value)
{
    o->value[d][o->n[d]++] = value;
}

static int residencies(enum offload given, enum residency out[TIERS])
{
    static const enum residency all[TIERS] = {RES_DEVICE, RES_HOST, RES_NVME};
    if (given == OFFLOAD_AUTO) {
        memcpy(out, all, sizeof all);
        return TIERS;
    }
    out[0] = given == OFFLOAD_CPU ? RES_HOST : given == OFFLOAD_NVME ? RES_NVME : RES_DEVICE;
    return 1;
}

/* Lists open tiers of activations; hidden states between layers lie no farther away than the activations that layers save. */
static void open_activations(const struct plan_request *s, struct options *o)
{
    enum residency acts[TIERS], passing[TIERS];
    int n_acts = residencies(s->acts, acts), n_passing = residencies(s->passing, passing);
    for (int i = 0; i < n_acts; i++)
        for (int k = 0; k < n_passing; k++) {
            if (k > 0 && passing[k] > acts[i])
                continue;
            open_value(o, DECISION_ACTS, (int)acts[i]);
            open_value(o, DECISION_PASSING, (int)(passing[k] < acts[i] ? passing[k] : acts[i]));
        }
}

void options_of(const struct model *m, const struct plan_request *s, const struct strategy *fixed, struct options *o)
{
    struct plan_request request = *s;
    const int64_t layers = m->config.layers;
    int chunks = (int)ceil_div(fixed->rows, fixed->key.row_chunk);
    memset(o, 0, sizeof *o);
    for (int d = DECISION_PARAMS; d < DECISION_ACTS; d++) {
        enum residency tiers[TIERS];
        for (int i = 0, n = residencies(*decision_request(&request, d), tiers); i < n; i++)
            open_value(o, d, (int)tiers[i]);
    }
    open_activations(s, o);
    open_value(o, DECISION_UPDATE, s->update == UPDATE_HOST);
    if (s->update == UPDATE_AUTO)
        open_value(o, DECISION_UPDATE, 1);
    for (int n = 0; n < 8 && n < layers && (n == 0 || s->acts == OFFLOAD_AUTO); n = n ? 2 * n : 1)
        open_value(o, DECISION_DEVICE_LAYERS, n);
    o->split = s->acts == OFFLOAD_AUTO && chunks > 1;
    for (int quarter = 4; quarter >= 0; quarter--) {
        const int kept = plan_kept_chunks(m, s, fixed, s->alpha >= 0 ? s->alpha : quarter / 4.0), n = o->n[DECISION_KEPT_CHUNKS];
        if (n == 0 || o->value[DECISION_KEPT_CHUNKS][n - 1] != kept)
            open_value(o, DECISION_KEPT_CHUNKS, kept);
    }
}

static int is_open(const struct options *o, enum decision_id d, enum residency at)
{
    for (int i = 0; i < o->n[d]; i++)
        if (o->value[d][i] == (int)at)
            return 1;
    return 0;
}

int options_leave_drives(struct options *o)
{
    int changed = 0;
    for (int d = DECISION_PARAMS; d <= DECISION_ACTS; d++) {
        if (!is_open(o, d, RES_DEVICE) || !is_open(o, d, RES_HOST) || !is_open(o, d, RES_NVME))
            continue;
        while (o->value[d][o->n[d] - 1] == (int)RES_NVME) /* tiers are listed from near to far */
            o->n[d]--;
        changed = 1;
    }
    o->n[DECISION_PASSING] = o->n[DECISION_ACTS];
    return changed;
}

int options_leave_passing(struct options *o)
{
    int n = 0;
    for (int i = 0; i < o->n[DECISION_ACTS]; i++)
        if (i == 0 || o->value[DECISION_ACTS][i] != o->value[DECISION_ACTS][n - 1]) { /* the nearest of a tier is listed first */
            o->value[DECISION_ACTS][n] = o->value[DECISION_ACTS][i];
            o->value[DECISION_PASSING][n++] = o->value[DECISION_PASSING][i];
        }
    const int changed = n < o->n[DECISION_ACTS];
    o->n[DECISION_ACTS] = o->n[DECISION_PASSING] = n;
    return changed;
}

void options_bring_nearer(const struct options *o, struct strategy *s)
{
    int listed = 0;
    for (int d = DECISION_PARAMS; d <= DECISION_ACTS; d++)
        if (decision_get(s, d) == (int)RES_NVME && !is_open(o, d, RES_NVME) && is_open(o, d, RES_HOST))
            decision_set(s, d, RES_HOST);
    for (int i = o->n[DECISION_ACTS] - 1; i >= 0 && !listed; i--)
        if (o->value[DECISION_ACTS][i] == (int)s->placement.acts && o->value[DECISION_PASSING][i] <= (int)s->placement.passing) {
            s->placement.passing = (enum residency)o->value[DECISION_PASSING][i];
            listed = 1;
        }
}

struct strategy options_first(const struct options *o, const struct strategy *fixed)
{
    struct strategy base = *fixed;
    for (int d = 0; d < DECISIONS; d++)
        if (o->n[d] > 0 && d != DECISION_DEVICE_LAYERS)
            decision_set(&base, d, o->value[d][0]);
    return base;
}

int options_count(const struct options *o)
{
    int n = 1;
    for (int d = 0; d < DECISIONS; d++)
        if (o->n[d] > 0 && decision_leader(d) == (enum decision_id)d)
            n *= o->n[d];
    return n;
}

void options_place(const struct options *o, int i, struct strategy *out)
{
    int at[DECISIONS];
    out->placement.device_chunks = out->placement.promoted_layers = 0;
    for (int d = DECISIONS - 1; d >= 0; d--)
        if (o->n[d] > 0 && decision_leader(d) == (enum decision_id)d) {
            at[d] = i % o->n[d];
            i /= o->n[d];
        }
    for (int d = 0; d < DECISIONS; d++)
        if (o->n[d] > 0)
            decision_set(out, d, o->value[d][at[decision_leader(d)]]);
}

int options_index(const struct options *o, enum decision_id d, const struct strategy *s)
{
    const int value = decision_get(s, d), passing = (int)s->placement.passing;
    for (int i = 1; i < o->n[d]; i++)
        if (o->value[d][i] == value && (d != DECISION_ACTS || o->value[DECISION_PASSING][i] == passing))
            return i;
    return 0;
}

int options_most_kept(const struct options *o)
{
    return o->value[DECISION_KEPT_CHUNKS][0];
}

int options_fewest_kept(const struct options *o)
{
    return o->value[DECISION_KEPT_CHUNKS][o->n[DECISION_KEPT_CHUNKS] - 1];
}

/* Tells whether layers may have a class in a nearer tier. Activations on the device are left to device_layers, optimizer state
 * there to the update. */
int options_may_promote(const struct options *o, const struct strategy *s, enum tensor_class class, enum residency at)
{
    if (at >= strategy_tier(s, class))
        return 0;
    if (class != CLASS_ACT)
        return is_open(o, (enum decision_id) class, at) &&
               !(class == CLASS_OPTIM && at == RES_DEVICE && s->placement.update_on_host && o->n[DECISION_UPDATE] == 1);
    for (int i = 0; i < o->n[DECISION_ACTS]; i++)
        if (at == RES_HOST && o->value[DECISION_ACTS][i] == (int)at && o->value[DECISION_PASSING][i] == (int)s->placement.passing)
            return 1;
    return 0;
}

/* Adds the nearer tier of the promoted class as a second option, and the place where these layers are updated. */
static void open_promoted(const struct strategy *s, struct options *o)
{
    open_value(o, (enum decision_id)s->placement.promoted_class, (int)s->placement.promote_tier);
    if (s->placement.promoted_class == CLASS_ACT)
        open_value(o, DECISION_PASSING, (int)s->placement.passing);
    if (s->placement.promoted_class == CLASS_OPTIM && s->placement.promote_tier == RES_DEVICE && s->placement.update_on_host) {
        o->value[DECISION_UPDATE][0] = 0;
        open_value(o, DECISION_UPDATE, 1);
    }
}

void options_of_one(const struct strategy *s, struct options *o)
{
    memset(o, 0, sizeof *o);
    for (int d = DECISION_PARAMS; d < DECISION_ACTS; d++)
        open_value(o, d, decision_get(s, d));
    if (s->placement.device_layers + s->placement.device_chunks >
        0) { /* chunks on the device are estimated from placements with all activations there */
        open_value(o, DECISION_ACTS, RES_DEVICE);
        open_value(o, DECISION_PASSING, RES_DEVICE);
    }
    open_value(o, DECISION_ACTS, (int)s->placement.acts);
    open_value(o, DECISION_PASSING, (int)s->placement.passing);
    open_value(o, DECISION_UPDATE, s->placement.update_on_host);
    open_value(o, DECISION_DEVICE_LAYERS, s->placement.device_layers);
    open_value(o, DECISION_KEPT_CHUNKS, s->placement.kept_chunks);
    if (s->placement.device_chunks > 0 && s->placement.kept_chunks > 0) /* then it matters which chunks are kept */
        open_value(o, DECISION_KEPT_CHUNKS, 0);
    if (s->placement.promoted_layers > 0)
        open_promoted(s, o);
}
