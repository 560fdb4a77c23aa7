/* Changes to the settings that make a plan fit, or faster. */
#include "plan/changes.h"

#include "base/units.h"
#include "plan/glance.h"
#include "plan/hardware.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Settings and what they point to, to be changed. */
struct trial {
    struct settings s;
    struct hardware hardware;
    int64_t limit[TIERS];
    struct change change;
};

struct seeker {
    const struct plan *p;
    const struct model *m;
    const struct settings *s;
    struct report report;
    double stalls; /* seconds for each second of traffic */
    struct changes *out;
};

__attribute__((format(printf, 2, 3))) static void say(struct trial *t, const char *format, ...)
{
    va_list args;
    size_t n = strlen(t->change.say);
    va_start(args, format);
    if (n > 0)
        n += (size_t)snprintf(t->change.say + n, sizeof t->change.say - n, " ");
    vsnprintf(t->change.say + n, sizeof t->change.say - n, format, args);
    va_end(args);
}

/* --- What is there, used otherwise. Each returns whether there is something to change. --- */

static int free_offload(struct trial *t)
{
    struct settings *s = &t->s;
    if (s->params == OFFLOAD_AUTO && s->grads == OFFLOAD_AUTO && s->optim == OFFLOAD_AUTO && s->acts == OFFLOAD_AUTO)
        return 0;
    s->params = s->grads = s->optim = s->acts = OFFLOAD_AUTO;
    say(t, "--offload auto");
    return 1;
}

static int free_alpha(struct trial *t)
{
    if (t->s.alpha < 0)
        return 0;
    t->s.alpha = AUTO;
    say(t, "--alpha auto");
    return 1;
}

static int free_prefetch(struct trial *t)
{
    if (t->s.prefetch < 0)
        return 0;
    t->s.prefetch = AUTO;
    say(t, "--prefetch auto");
    return 1;
}

static int free_update(struct trial *t)
{
    if (t->s.update == UPDATE_AUTO)
        return 0;
    t->s.update = UPDATE_AUTO;
    say(t, "--update auto");
    return 1;
}

static int (*const freed[])(struct trial *) = {free_offload, free_alpha, free_prefetch, free_update};
enum { FREED = sizeof freed / sizeof *freed };

/* The i-th of what the settings fix left to the planner; i = FREED: all of it. Returns how much that is. */
static int free_placement(const struct seeker *x, struct trial *t, int64_t i)
{
    int n = 0;
    (void)x;
    if (i < FREED)
        return freed[i](t);
    for (i = 0; i < FREED; i++)
        n += freed[i](t);
    return n;
}

static int free_tiles(const struct seeker *x, struct trial *t, int64_t arg)
{
    (void)x, (void)arg;
    if (t->s.row_chunk <= 0 && t->s.head_tile <= 0 && t->s.loss_tile <= 0 && t->s.group <= 0)
        return 0;
    free_placement(x, t, FREED);
    t->s.row_chunk = t->s.head_tile = t->s.loss_tile = t->s.group = AUTO;
    say(t, "--tiles auto");
    return 1;
}

/* With all that is fixed left to the planner, or as it is. */
static int store_bf16(const struct seeker *x, struct trial *t, int64_t freely)
{
    if (t->s.dtype == BF16 || (freely && free_placement(x, t, FREED) == 0))
        return 0;
    t->s.dtype = BF16;
    say(t, "--dtype bf16");
    return 1;
}

/* --- More of something --- */

const char *const changes_flag[TIERS] = {"--device-mem", "--host-mem", "--nvme-max"};

/* So many times a tier's budget; of a machine that is not here, for each of its ranks. */
static int more_memory(struct trial *t, enum tier tier, int64_t times)
{
    char text[32];
    int64_t *const given[] = {&t->s.device_mem, &t->s.host_mem, &t->s.nvme_max}, whole = *given[tier], more;
    if (t->s.machine)
        whole = tier == TIER_DEVICE ? t->hardware.device_mem : tier == TIER_HOST ? t->hardware.host_mem : t->hardware.nvme_mem;
    if (whole <= 0 || whole > INT64_MAX / times || t->limit[tier] > INT64_MAX / times)
        return 0;
    if (units_parse_bytes("", units_format_short(times * whole, text), &more) != OK) /* what is typed is what is tried */
        return 0;
    *given[tier] = more;
    t->limit[tier] = (int64_t)((double)more / (double)whole * (double)t->limit[tier]);
    t->change.gives_more = 1;
    say(t, "%s %s", changes_flag[tier], text);
    return 1;
}

static int waits_for_drives(const struct seeker *x)
{
    return x->report.lane[LANE_READ].exposed + x->report.lane[LANE_WRITE].exposed > CHANGES_HELP * x->p->seconds;
}

static int computes_twice(const struct seeker *x)
{
    return x->report.recomputed > CHANGES_HELP * x->p->seconds;
}

static int waits(const struct seeker *x)
{
    return x->p->seconds - x->report.lane[LANE_COMPUTE].busy > CHANGES_HELP * x->p->seconds;
}

static int computes_faster_in_bf16(const struct seeker *x)
{
    const struct hardware *h = x->s->hardware;
    return x->s->dtype == F32 && h && h->peak_flops[BF16] >= HARDWARE_BF16_PAYS * h->peak_flops[F32];
}

static int more_host(const struct seeker *x, struct trial *t, int64_t times)
{
    int helps = !x->p->fits || waits_for_drives(x) || computes_twice(x);
    return helps && more_memory(t, TIER_HOST, times);
}

/* A device that is bought has the memory that it has, unless the settings have it otherwise. */
static int more_device(const struct seeker *x, struct trial *t, int64_t times)
{
    int helps = x->p->fits ? waits(x) || computes_twice(x) : x->p->misfit == TIER_DEVICE;
    return helps && t->s.device_mem > 0 && more_memory(t, TIER_DEVICE, times);
}

static int more_drives(const struct seeker *x, struct trial *t, int64_t times)
{
    int helps = x->p->fits ? waits_for_drives(x) : x->p->misfit != TIER_DEVICE;
    if (!helps || !t->s.machine || t->hardware.drives == 0)
        return helps && x->p->misfit == TIER_NVME && more_memory(t, TIER_NVME, times);
    double each = t->hardware.read / t->hardware.drives * 1e-9, n = (double)times;
    t->hardware.drives *= (int)times;
    t->hardware.read *= n;
    t->hardware.write *= n;
    t->hardware.both *= n;
    t->hardware.nvme_mem *= times;
    t->limit[TIER_NVME] *= times;
    t->change.gives_more = 1;
    say(t, "--nvme %dx%.3gGB/s", t->hardware.drives, each);
    return 1;
}

/* More devices, as more nodes of the kind there is. */
static int more_devices(const struct seeker *x, struct trial *t, int64_t times)
{
    struct hardware *h = &t->hardware;
    char name[80];
    if (!t->s.machine || h->cpu || (x->p->fits && !waits(x) && !computes_twice(x)))
        return 0;
    if (h->nodes > 1 || h->devices >= 8)
        h->nodes *= (int)times;
    else
        h->devices *= (int)times;
    snprintf(name, sizeof name, "%dx%s", h->nodes * h->devices, h->name);
    t->s.dp = t->s.ulysses = t->s.ring = AUTO;
    int ranks = (int)times * x->p->strategy.ranks;
    if (!hardware_is_preset(name) || plan_mesh(x->m, &t->s, ranks, h->devices) != OK)
        return 0; /* the model's heads do not divide so, or it has no name */
    hardware_limits(h, ranks, t->limit);
    t->change.gives_more = 1;
    say(t, "--machine %s", name);
    return 1;
}

/* --- A shorter sequence --- */

static int shorter(const struct seeker *x, struct trial *t, int64_t tokens)
{
    free_placement(x, t, FREED);
    t->s.seq_len = tokens;
    t->change.shortens = 1;
    say(t, tokens % 1024 ? "--seq-len %lld" : "--seq-len %lldk", (long long)(tokens % 1024 ? tokens : tokens / 1024));
    return 1;
}

/* --- Trying --- */

typedef int changer(const struct seeker *x, struct trial *t, int64_t arg);

/* In the order in which they are tried. For a plan that does not fit those at no price come first: the next stage is looked at if
 * none of the one before helps, more of something in any case. Of a plan that fits, all are. */
static const struct proposal {
    changer *apply;
    int64_t arg;
    enum { PLACEMENT, NUMERICS, MORE, LENGTH } stage;
} proposals[] = {
    {free_placement, 0, PLACEMENT},
    {free_placement, 1, PLACEMENT},
    {free_placement, 2, PLACEMENT},
    {free_placement, 3, PLACEMENT},
    {free_placement, FREED, PLACEMENT},
    {store_bf16, 0, NUMERICS},
    {store_bf16, 1, NUMERICS},
    {free_tiles, 0, NUMERICS},
    {more_drives, 2, MORE},
    {more_drives, 4, MORE},
    {more_host, 2, MORE},
    {more_host, 4, MORE},
    {more_device, 2, MORE},
    {more_device, 4, MORE},
    {more_devices, 2, MORE},
    {more_devices, 4, MORE},
    {shorter, 0, LENGTH},
};
enum { PROPOSALS = sizeof proposals / sizeof *proposals, SHORTER = PROPOSALS - 1 };
_Static_assert((int)PROPOSALS <= (int)CHANGES_MAX, "each is kept once at most");

/* Applies a proposal, that of a shorter sequence to so many tokens. Returns whether there is something to try. */
static int trial_start(const struct seeker *x, int proposal, int64_t tokens, struct trial *t)
{
    t->s = *x->s;
    memcpy(t->limit, x->p->limit, sizeof t->limit);
    memset(&t->change, 0, sizeof t->change);
    t->change.proposal = proposal;
    t->change.tokens = tokens;
    if (x->s->hardware) {
        t->hardware = *x->s->hardware;
        t->s.hardware = &t->hardware;
    }
    return proposals[proposal].apply(x, t, proposal == SHORTER ? tokens : proposals[proposal].arg) > 0;
}

static int cheaper(const struct change *a, const struct change *b)
{
    if (a->shortens != b->shortens)
        return b->shortens;
    if (a->gives_more != b->gives_more)
        return b->gives_more;
    return a->shortens ? a->per_second > b->per_second : a->seconds < b->seconds;
}

static void keep(struct changes *c, const struct change *change)
{
    int at = c->n++;
    for (; at > 0 && cheaper(change, &c->by_cost[at - 1]); at--)
        c->by_cost[at] = c->by_cost[at - 1];
    c->by_cost[at] = *change;
}

static int helps(const struct seeker *x, int fits, const struct change *c)
{
    return fits && (!x->p->fits || c->per_second > (1 + CHANGES_HELP) * (double)x->p->tokens / x->p->seconds);
}

static void measure(const struct trial *t, double seconds, const int64_t bytes[TIERS], const struct strategy *strategy,
                    struct change *c)
{
    int64_t sequences = t->s.batch > 0 ? t->s.batch : t->s.grad_accum;
    c->seconds = seconds;
    c->per_second = (double)(t->s.seq_len * sequences) / seconds;
    memcpy(c->arena, bytes, sizeof c->arena);
    strategy_describe(strategy, c->strategy, sizeof c->strategy);
}

/* A look at the trial; keeps it if it helps. *helped: NULL, or whether it does. */
static enum status try(struct seeker *x, struct trial *t, int *helped)
{
    struct candidate c;
    TRY(glance_seconds(x->m, &t->s, t->limit, x->stalls, &c));
    x->out->tried++;
    measure(t, c.seconds, c.bytes, &c.strategy, &t->change);
    int good = helps(x, c.excess <= 1, &t->change);
    if (good)
        keep(x->out, &t->change);
    if (helped)
        *helped = good;
    return OK;
}

/* One of what leaves more to the planner that is as good as all of it, is said with fewer words. */
static void drop_wordy(struct changes *c)
{
    int all = -1, n = 0;
    double best = INFINITY;
    for (int i = 0; i < c->n; i++) {
        const struct proposal *p = &proposals[c->by_cost[i].proposal];
        if (p->apply == free_placement && p->arg == FREED)
            all = i;
        else if (p->apply == free_placement)
            best = fmin(best, c->by_cost[i].seconds);
    }
    if (all < 0 || best > 1.01 * c->by_cost[all].seconds)
        return;
    for (int i = 0; i < c->n; i++)
        if (i != all)
            c->by_cost[n++] = c->by_cost[i];
    c->n = n;
}

/* Of programs of up to so many instructions the cheapest change is planned whole, to say exactly what it takes. */
#define SMALL 100e3

static int is_small(const struct seeker *x)
{
    return x->p->programs[PLAN_UPDATE_STEP]->n_instrs <= SMALL;
}

static enum status try_all(struct seeker *x)
{
    struct trial t;
    int free_ones = 0; /* that helped */
    for (int i = 0, helped = 0; i < SHORTER; i++) {
        const struct proposal *p = &proposals[i];
        int again = i > 0 && p->stage == MORE && p->apply == proposals[i - 1].apply;
        if (again && (helped || x->p->fits)) /* four times is looked at where twice is not enough to fit */
            continue;
        if (p->apply == free_placement && p->arg < FREED && !is_small(x)) /* all at once is enough */
            continue;
        helped = 0;
        if ((p->stage == NUMERICS && !x->p->fits && free_ones > 0) || !trial_start(x, i, x->s->seq_len, &t))
            continue;
        TRY(try(x, &t, &helped));
        free_ones += p->stage < MORE && helped;
    }
    drop_wordy(x->out);
    return OK;
}

/* Whole multiples of 1024 tokens, or of 64 for short ones. */
static int64_t round_length(double tokens)
{
    int64_t unit = tokens >= 16384 ? 1024 : 64;
    return (int64_t)(tokens / (double)unit) * unit;
}

enum { LENGTHS = 8, SHORTEST = 64 };

/* The longest sequence that fits, to a sixteenth: along the line through what the last two lengths need. */
static enum status try_shorter(struct seeker *x)
{
    struct trial t;
    struct candidate c;
    int64_t low = 0, high = x->s->seq_len, length = high;
    double last = 0, last_excess = 0;
    for (int i = 0; i < LENGTHS; i++) {
        trial_start(x, SHORTER, length, &t);
        TRY(glance_fits(x->m, &t.s, t.limit, &c));
        x->out->tried++;
        x->out->shortest = length;
        memcpy(x->out->least, c.bytes, sizeof c.bytes);
        if (c.excess <= 1)
            low = length;
        else
            high = length;
        if ((low > 0 && high - low <= high / 16) || high <= SHORTEST)
            break;
        double at = (double)length, sixteenth = (double)(high - low) / 16;
        double next = i == 0 ? at / c.excess : at + (1 - c.excess) * (at - last) / (c.excess - last_excess);
        last = at;
        last_excess = c.excess;
        next = fmin(fmax(0.99 * next, (double)low + sixteenth), (double)high - sixteenth);
        length = max_i64(SHORTEST, round_length(next));
        if (length <= low || length >= high)
            break;
    }
    if (low == 0 || low == x->s->seq_len)
        return OK;
    trial_start(x, SHORTER, low, &t);
    return try(x, &t, NULL);
}

/* Plans the cheapest whole, and drops those that look as if they helped and do not. */
static enum status make_exact(struct seeker *x)
{
    struct changes *c = x->out;
    while (c->n > 0) {
        struct trial t;
        struct plan *p;
        struct change *k = &c->by_cost[0];
        trial_start(x, k->proposal, k->tokens, &t);
        TRY(plan_create(x->m, &t.s, t.limit, &p));
        k->exact = 1;
        measure(&t, p->seconds, p->arena, &p->strategy, k);
        int good = helps(x, p->fits, k);
        plan_destroy(p);
        if (good)
            return OK;
        memmove(k, k + 1, (size_t)--c->n * sizeof *k);
    }
    return OK;
}

/* What others may do better is not known: at least what the search takes a second of traffic to be worth. */
#define FEWEST_STALLS 0.1

static double stalls_per_traffic(const struct seeker *x)
{
    double traffic = 0;
    for (int l = LANE_COMPUTE + 1; l < LANES; l++)
        traffic += x->report.lane[l].busy;
    return fmax(FEWEST_STALLS, (x->p->seconds - x->report.lane[LANE_COMPUTE].busy) / fmax(traffic, 1e-9));
}

enum status changes_find(const struct plan *p, const struct model *m, const struct settings *s, struct changes *out)
{
    struct seeker x = {.p = p, .m = m, .s = s, .out = out};
    memset(out, 0, sizeof *out);
    TRY(report_make(p, m, &x.report));
    x.stalls = stalls_per_traffic(&x);
    if (p->fits && !waits(&x) && !computes_twice(&x) && !computes_faster_in_bf16(&x))
        return OK;
    TRY(try_all(&x));
    if (!p->fits && (out->n == 0 || out->by_cost[0].gives_more))
        TRY(try_shorter(&x));
    return is_small(&x) ? make_exact(&x) : OK;
}
