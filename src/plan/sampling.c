#include "plan/sampling.h"

#include "base/sys.h"
#include "machine/rank_cost.h"
#include "plan/lower/strategy.h"
#include "plan/lower/fixed.h"
#include "plan/lower/slots.h"
#include "plan/program_set.h"
#include "plan/schedule/prefetch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Rows of a prefill: products of 512 rows run at nine tenths of their best rate, and parameters are fetched once for them. */
#define PREFILL_ROWS 512
/* Fewest and most tokens of a block of the cache, and the number of blocks of a long text; texts are read in whole blocks. */
enum { BLOCK_LEAST = 256, BLOCK_MOST = 4096, BLOCKS = 64 };
/* Seconds for which a byte in that tier travels to the device, roughly: a link at 25 GB/s, a drive at 3 GB/s. */
static const double seconds_a_byte[] = {[RES_DEVICE] = 0, [RES_HOST] = 1 / 25e9, [RES_NVME] = 1 / 3e9};

/* Fixes the grid: rows, blocks, one tile of all heads. */
static enum status fix(const struct model *m, const struct plan_request *s, struct strategy *out)
{
    struct plan_request r = *s;
    int64_t least = s->row_chunk > 0 ? s->row_chunk : BLOCK_LEAST, block = least;
    r.mesh = mesh_uniform(1);
    r.micro_batch = 1;
    while (block * BLOCKS < s->seq_len && block < BLOCK_MOST)
        block *= 2;
    r.seq_len = s->row_chunk > 0 ? s->row_chunk : min_i64(block, PREFILL_ROWS);
    r.row_chunk = r.seq_len;
    r.head_tile = model_most_heads(m);
    r.loss_tile = AUTO;
    TRY(plan_fixed(m, &r, out));
    out->input_rows = out->rows;
    out->cache_block = block;
    out->cached_tokens = round_up(max_i64(s->seq_len, 1), block);
    out->seq_len = out->cached_tokens;
    out->placement.acts = out->placement.passing = RES_DEVICE;
    out->placement.grads = out->placement.optim = RES_DEVICE;
    return OK;
}

static struct strategy with_rows(const struct strategy *s, int64_t rows)
{
    struct strategy r = *s;
    r.rows = r.key.row_chunk = r.key.loss_tile = rows;
    return r;
}

/* --- Placements --- */

struct option {
    enum residency params, cached;
    enum residency
        experts;    /* tier of experts that slots on the device take as tokens choose them; RES_NONE: there are no slots */
    double seconds; /* seconds for which one token's bytes travel to the device */
};

/* Tells whether slots can take the model's experts from a tier. */
static int may_slot(const struct model *m, const struct plan_request *s, enum residency experts)
{
    return (experts == RES_HOST || experts == RES_NVME) && m->config.experts > m->config.experts_used &&
           s->device != DEVICE_CUDA && slots_suit(m);
}

static int is_allowed(enum offload given, enum residency r)
{
    return given == OFFLOAD_AUTO || (given == OFFLOAD_NONE && r == RES_DEVICE) || (given == OFFLOAD_CPU && r == RES_HOST) ||
           (given == OFFLOAD_NVME && r == RES_NVME);
}

static int by_seconds(const void *a, const void *b)
{
    const struct option *x = a, *y = b;
    return x->seconds != y->seconds   ? (x->seconds > y->seconds) - (x->seconds < y->seconds)
           : x->params != y->params   ? (int)x->params - (int)y->params
           : x->experts != y->experts ? (int)x->experts - (int)y->experts
                                      : (int)x->cached - (int)y->cached;
}

/* Returns the bytes of the cache. all: 1 with blocks that are being filled and states of a whole text, 0 whole blocks only. */
static double cache_bytes(const struct model *m, const struct strategy *s, int all)
{
    double bytes = 0;
    for (const struct model_kind *k = m->kinds; k < m->kinds + m->n_kinds; k++)
        for (int i = 0; i < m->layers[k->first].n_blocks; i++) {
            const struct model_block *b = &m->layers[k->first].blocks[i];
            const int64_t token = cached_per_token(m, s, b) * dtype_size(s->key.dtype), text = block_cached_per_text(m, b);
            if (token > 0)
                bytes += (double)k->layers * (double)(all + cached_slots(m, s, block_mask(b))) * (double)s->cache_block *
                         (double)token;
            bytes += all * (double)k->layers * (double)text * (double)sizeof(float);
        }
    return bytes;
}

/* Returns the bytes of all experts, or of all other units. */
static double bytes_of(const struct model *m, const struct plan_request *s, int experts)
{
    double n = 0;
    for (int u = 0; u < m->n_units; u++)
        n += model_unit_has_experts(m, u) == experts
                 ? (double)m->units[u].elements * (double)dtype_size(s->dtype) + (double)m->units[u].packed_bytes
                 : 0;
    return n;
}

/* Returns the seconds for which an option's parameters travel: all, or of experts in slots those that a token chooses. */
static double parameter_seconds(const struct model *m, const struct plan_request *s, const struct option *o)
{
    const enum residency given = s->experts == OFFLOAD_AUTO ? o->params : (enum residency)(s->experts - OFFLOAD_NONE);
    const double chosen = o->experts == RES_NONE
                              ? seconds_a_byte[given]
                              : seconds_a_byte[o->experts] * (double)m->config.experts_used / (double)m->config.experts;
    return bytes_of(m, s, 0) * seconds_a_byte[o->params] + bytes_of(m, s, 1) * chosen;
}

/* Tells whether an option may have its experts in a tier, apart from its other parameters. */
static int experts_may_be(const struct plan_request *s, const struct option *o, enum residency experts)
{
    if (s->experts != OFFLOAD_AUTO)
        return is_allowed(s->experts, experts);
    return experts == o->params || (experts > o->params && s->params == OFFLOAD_AUTO);
}

/* Adds an option without slots, and those that differ from it in slots alone. cache: seconds for which cached keys travel. */
static int add_options(const struct model *m, const struct plan_request *s, struct option o, double cache, struct option *out)
{
    int n = 0;
    out[n++] = o;
    for (o.experts = RES_HOST; o.experts <= RES_NVME; o.experts++)
        if (experts_may_be(s, &o, o.experts) && may_slot(m, s, o.experts))
            out[n++] = o;
    for (int i = 0; i < n; i++)
        out[i].seconds = parameter_seconds(m, s, &out[i]) + cache;
    return n;
}

enum { OPTIONS = 9 * 3 };
/* Lists the placements that the settings leave open, the fastest first. Returns their number. */
static int list_options(const struct model *m, const struct plan_request *s, const struct strategy *fixed,
                        struct option out[OPTIONS])
{
    int n = 0;
    double cache = cache_bytes(m, fixed, 1);
    for (enum residency p = RES_DEVICE; p <= RES_NVME; p++)
        for (enum residency c = RES_DEVICE; c <= RES_NVME; c++)
            if (is_allowed(s->params, p) && is_allowed(s->acts, c))
                n += add_options(m, s, (struct option){p, c, RES_NONE, 0}, cache * seconds_a_byte[c], &out[n]);
    qsort(out, (size_t)n, sizeof *out, by_seconds);
    return n;
}

/* --- Programs --- */

struct sizes {
    enum plan_program which;
    int64_t rows;
};

static int list_sizes(const struct strategy *s, struct sizes out[3])
{
    int n = 0;
    out[n++] = (struct sizes){PLAN_PREFILL, s->input_rows};
    if (s->input_rows > SAMPLING_SHORT_ROWS)
        out[n++] = (struct sizes){PLAN_PREFILL_SHORT, SAMPLING_SHORT_ROWS};
    out[n++] = (struct sizes){PLAN_DECODE, 1};
    return n;
}

/* Finds the memory of all programs if nothing is fetched ahead, which takes least. *fits: 1 if it is within the limits. */
static enum status fits_serially(const struct model *m, const struct strategy *s, const int64_t limit[TIERS], int64_t need[TIERS],
                                 int *fits)
{
    struct sizes size[3];
    enum tier which;
    int n = list_sizes(s, size);
    memset(need, 0, sizeof(int64_t) * TIERS);
    for (int i = 0; i < n; i++) {
        struct strategy r = with_rows(s, size[i].rows);
        int64_t arena[TIERS];
        TRY(fit_serially(m, &r, DUTY_FORWARD, arena));
        for (int t = 0; t < TIERS; t++)
            need[t] = max_i64(need[t], arena[t]);
    }
    *fits = fit_within(need, limit, &which);
    return OK;
}

/* Tells whether whole blocks of the cache alone exceed their tier, which needs no program to be known. need: their bytes. */
static int cache_exceeds(const struct model *m, const struct strategy *s, const int64_t limit[TIERS], int64_t need[TIERS])
{
    static const enum tier tiers[] = {[RES_DEVICE] = TIER_DEVICE, [RES_HOST] = TIER_HOST, [RES_NVME] = TIER_NVME};
    const enum tier t = tiers[s->placement.cached];
    const double bytes = cache_bytes(m, s, 0);
    memset(need, 0, sizeof(int64_t) * TIERS);
    need[t] = (int64_t)bytes;
    return bytes > (double)limit[t];
}

/* Makes the programs of a placement. */
static enum status make_programs(const struct model *m, const struct strategy *s, struct plan *plan)
{
    struct sizes size[3];
    int n = list_sizes(s, size);
    plan->strategy = *s;
    plan->fits = 1;
    for (int i = 0; i < n && plan->fits; i++) {
        struct strategy r = with_rows(s, size[i].rows);
        int level = 0;
        struct program **p = &plan->programs[size[i].which];
        TRY(fit_program(m, &r, &plan->cost, DUTY_FORWARD, plan->limit, 0, FIT_SERIAL, &level, &plan->io, p));
        plan->fits = fit_within((*p)->arena, plan->limit, &plan->misfit);
    }
    plan_account(plan);
    if (plan->programs[PLAN_DECODE])
        plan->seconds = plan->programs[PLAN_DECODE]->seconds;
    return OK;
}

/* Sets an option's placement, with the fewest slots. Groups are as large as drives read them by. */
static void place(const struct model *m, const struct option *o, struct strategy *s)
{
    s->placement.params = o->params;
    s->placement.cached = o->cached;
    if (o->experts == RES_NONE)
        return;
    s->placement.experts_at = 1 + (int)o->experts;
    s->expert_slots = m->config.experts_used;
    if (o->experts == RES_NVME)
        s->key.group = slots_group(m, s->key.dtype);
}

/* Chooses the fastest placement that fits if nothing is fetched ahead; if none fits, the smallest one. *fits: 1 if it fits.
 * Programs of texts whose cache alone exceeds its tier are not made: for a text of a billion tokens they take long. */
static enum status choose(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS], struct strategy *out,
                          int64_t need[TIERS], int *fits)
{
    struct option option[OPTIONS];
    double least = INFINITY;
    struct strategy fixed;
    TRY(fix(m, s, &fixed));
    int n = list_options(m, s, &fixed, option);
    *fits = 0;
    for (int i = 0; i < n && !*fits; i++) {
        struct strategy next = fixed;
        int64_t bytes[TIERS];
        double excess = 0;
        place(m, &option[i], &next);
        if (!cache_exceeds(m, &next, limit, bytes))
            TRY(fits_serially(m, &next, limit, bytes, fits));
        for (int t = 0; t < TIERS; t++)
            excess = fmax(excess, (double)bytes[t] / fmax(1, (double)limit[t]));
        if (*fits || excess < least) {
            *out = next;
            memcpy(need, bytes, sizeof bytes);
            least = excess;
        }
    }
    return OK;
}

/* Promotes the parameters of as many layers to the device as fit there. */
static enum status promote(const struct model *m, const int64_t limit[TIERS], struct strategy *s)
{
    int low = 0, high = (int)m->config.layers;
    if (s->placement.params == RES_DEVICE)
        return OK;
    s->placement.promoted_class = CLASS_PARAM;
    s->placement.promote_tier = RES_DEVICE;
    while (low < high) {
        int64_t need[TIERS];
        int fits;
        s->placement.promoted_layers = (low + high + 1) / 2;
        TRY(fits_serially(m, s, limit, need, &fits));
        low = fits ? s->placement.promoted_layers : low;
        high = fits ? high : s->placement.promoted_layers - 1;
    }
    s->placement.promoted_layers = low;
    return OK;
}

/* Gives the memory that is left to slots of experts. */
static enum status add_slots(const struct model *m, const int64_t limit[TIERS], struct strategy *s)
{
    int64_t low = s->expert_slots, high = low > 0 ? m->config.experts : 0;
    while (low < high) {
        int64_t need[TIERS];
        int fits;
        s->expert_slots = (low + high + 1) / 2;
        TRY(fits_serially(m, s, limit, need, &fits));
        low = fits ? s->expert_slots : low;
        high = fits ? high : s->expert_slots - 1;
    }
    s->expert_slots = low;
    return OK;
}

enum status plan_sampling(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS], struct plan **out)
{
    struct strategy chosen;
    int64_t need[TIERS];
    int fits;
    enum status st;
    struct plan *plan = sys_calloc(1, sizeof *plan);
    if (!plan)
        return status_no_memory("while planning");
    plan_cost_model(s, &plan->cost);
    memcpy(plan->limit, limit, sizeof plan->limit);
    TRY_GOTO(choose(m, s, limit, &chosen, need, &fits), fail);
    if (fits)
        TRY_GOTO(promote(m, limit, &chosen), fail);
    if (fits)
        TRY_GOTO(add_slots(m, limit, &chosen), fail);
    plan->tokens = plan->sequences = plan->micro_batches = 1;
    TRY_GOTO(make_programs(m, &chosen, plan), fail);
    if (!fits)
        memcpy(plan->arena, need, sizeof need);
    *out = plan;
    return OK;
fail:
    plan_destroy(plan);
    return st;
}

enum status plan_sampling_longest(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS], int64_t *out)
{
    struct plan_request r = *s;
    int64_t low = 0, high = s->seq_len;
    *out = 0;
    while (high - low > max_i64(1, high / 64)) {
        struct strategy chosen;
        int64_t need[TIERS];
        int fits;
        r.seq_len = low + (high - low + 1) / 2;
        TRY(choose(m, &r, limit, &chosen, need, &fits));
        if (fits) {
            *out = min_i64(chosen.cached_tokens, s->seq_len);
            low = max_i64(r.seq_len, *out);
        } else {
            high = r.seq_len;
        }
    }
    return OK;
}
