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

/* Makes a key, padding included. */
static void set_key(const struct subject *of, const struct strategy *s, int duties, struct needs_key *out)
{
    memset(out, 0, sizeof *out);
    memcpy(&out->strategy, s, sizeof *s);
    plan_keep_as_given(of->model, &of->problem->request, &out->strategy);
    out->model = of->hash;
    out->costs = of->problem->costs;
    out->duties = duties;
}

/* Leaves out of the key of an update's program all that it does not depend on: the sequence, its tiles, and activations. */
static void forget_sequence(struct needs_key *k)
{
    struct strategy *s = &k->strategy;
    struct placement *p = &s->placement;
    s->seq_len = s->rows = s->piece = s->sequences = 0;
    s->key.row_chunk = s->key.loss_tile = s->key.packed = 0;
    s->key.head_tile = 0;
    p->acts = p->passing = RES_DEVICE;
    p->device_layers = p->device_chunks = p->kept_chunks = p->full_more = p->light_fewer = 0;
}

/* Finds the needs of an update's program. Those that are kept are without inputs and outputs, whose bytes depend on the sequence. */
static enum status find_update(const struct subject *of, const struct strategy *s, struct need *out)
{
    struct needs_key key;
    int64_t io[TIERS];
    set_key(of, s, DUTY_UPDATE, &key);
    forget_sequence(&key);
    TRY(lower_io_bytes(of->model, s, io));
    if (memo_find(&key, sizeof key, out, sizeof *out)) {
        for (int t = 0; t < TIERS; t++)
            out->persistent[t] += (double)io[t];
        return OK;
    }
    TRY(measure_need(of, s, DUTY_UPDATE, out));
    struct need alone = *out;
    for (int t = 0; t < TIERS; t++)
        alone.persistent[t] -= (double)io[t];
    memo_keep(&key, sizeof key, &alone, sizeof alone);
    return OK;
}

enum status needs_find(const struct subject *of, const struct strategy *s, int duties, struct need *out)
{
    struct needs_key key;
    if (duties == DUTY_UPDATE && strategy_stages(s) == 1)
        return find_update(of, s, out);
    set_key(of, s, duties, &key);
    if (memo_find(&key, sizeof key, out, sizeof *out))
        return OK;
    TRY(measure_need(of, s, duties, out));
    memo_keep(&key, sizeof key, out, sizeof *out);
    return OK;
}
