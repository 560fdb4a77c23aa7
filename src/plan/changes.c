/* Changes to the settings that make a plan fit, or faster. */
#include "plan/changes.h"

#include "base/clock.h"
#include "base/units.h"
#include "plan/hardware.h"

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

struct search {
    const struct plan *p;
    const struct model *m;
    const struct settings *s;
    double deadline;
    struct changes *out;
};

static void trial_start(const struct search *x, struct trial *t)
{
    t->s = *x->s;
    memcpy(t->limit, x->p->limit, sizeof t->limit);
    memset(&t->change, 0, sizeof t->change);
    if (x->s->hardware) {
        t->hardware = *x->s->hardware;
        t->s.hardware = &t->hardware;
    }
}

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
    int at = c->n;
    if (c->n == CHANGES_MAX)
        return;
    for (; at > 0 && cheaper(change, &c->by_cost[at - 1]); at--)
        c->by_cost[at] = c->by_cost[at - 1];
    c->by_cost[at] = *change;
    c->n++;
}

/* Plans with the trial's settings. *fits: NULL, or whether they do. */
static enum status try(struct search *x, struct trial *t, int *fits)
{
    struct plan *p;
    if (fits)
        *fits = 0;
    double now = clock_seconds();
    if (now > x->deadline || (x->p->fits && now + x->p->took > x->deadline)) {
        x->out->all_tried = 0;
        return OK;
    }
    TRY(plan_create(x->m, &t->s, t->limit, &p));
    x->out->tried++;
    t->change.seconds = p->seconds;
    t->change.per_second = (double)p->tokens / p->seconds;
    memcpy(t->change.arena, p->arena, sizeof t->change.arena);
    plan_describe(p, t->change.strategy, sizeof t->change.strategy);
    if (p->fits && (!x->p->fits || t->change.per_second > 1.02 * (double)x->p->tokens / x->p->seconds))
        keep(x->out, &t->change);
    if (fits)
        *fits = p->fits;
    plan_destroy(p);
    return OK;
}

/* --- What is there, used otherwise --- */

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

/* Leaves to the planner what the settings fix. Returns how much that is. */
static int free_all(struct trial *t)
{
    int n = 0;
    for (int i = 0; i < FREED; i++)
        n += freed[i](t);
    return n;
}

/* What the settings fix, left to the planner: each alone, then all. */
static enum status try_free(struct search *x)
{
    struct trial t;
    for (int i = 0; i < FREED; i++) {
        trial_start(x, &t);
        if (freed[i](&t))
            TRY(try(x, &t, NULL));
    }
    trial_start(x, &t);
    return free_all(&t) > 1 ? try(x, &t, NULL) : OK;
}

/* What changes rounding: smaller storage, smaller tiles. */
static enum status try_numerics(struct search *x)
{
    struct trial t;
    trial_start(x, &t);
    if (t.s.dtype == F32) {
        if (!x->p->fits)
            free_all(&t);
        t.s.dtype = BF16;
        say(&t, "--dtype bf16");
        TRY(try(x, &t, NULL));
    }
    if (x->p->fits || x->p->misfit != TIER_DEVICE)
        return OK;
    for (int64_t rows = x->p->strategy.row_chunk / 2; rows >= 64 && rows >= x->p->strategy.row_chunk / 8; rows /= 2) {
        trial_start(x, &t);
        free_all(&t);
        t.s.row_chunk = rows;
        t.s.loss_tile = AUTO;
        say(&t, "--tiles rows=%lld", (long long)rows);
        TRY(try(x, &t, NULL));
    }
    return OK;
}

/* --- More of something --- */

static const char *const limit_flag[] = {"--device-mem", "--host-mem", "--nvme-max"};

/* Twice a tier's budget; of a machine that is not here, for each of its ranks. */
static enum status try_memory(struct search *x, enum tier tier)
{
    struct trial t;
    char bytes[32];
    trial_start(x, &t);
    int64_t *const given[] = {&t.s.device_mem, &t.s.host_mem, &t.s.nvme_max};
    int64_t whole = *given[tier];
    if (x->s->machine)
        whole = tier == TIER_DEVICE ? t.hardware.device_mem : tier == TIER_HOST ? t.hardware.host_mem : t.hardware.nvme_mem;
    if (whole < 0 || whole > INT64_MAX / 2 || t.limit[tier] > INT64_MAX / 2)
        return OK;
    *given[tier] = 2 * whole;
    t.limit[tier] *= 2;
    t.change.gives_more = 1;
    say(&t, "%s %s", limit_flag[tier], units_format_short(2 * whole, bytes));
    return try(x, &t, NULL);
}

static enum status try_drives(struct search *x)
{
    struct trial t;
    trial_start(x, &t);
    if (!t.s.machine || t.hardware.drives == 0)
        return OK;
    double each = t.hardware.read / t.hardware.drives * 1e-9;
    t.hardware.drives *= 2;
    t.hardware.read *= 2;
    t.hardware.write *= 2;
    t.hardware.both *= 2;
    t.hardware.nvme_mem *= 2;
    t.limit[TIER_NVME] *= 2;
    t.change.gives_more = 1;
    say(&t, "--nvme %dx%.3gGB/s", t.hardware.drives, each);
    return try(x, &t, NULL);
}

/* Twice the devices, as more nodes of the kind there is. */
static enum status try_devices(struct search *x)
{
    struct trial t;
    trial_start(x, &t);
    if (!t.s.machine || t.hardware.cpu)
        return OK;
    int ranks = 2 * x->p->strategy.ranks;
    if (t.hardware.nodes > 1 || t.hardware.devices >= 8)
        t.hardware.nodes *= 2;
    else
        t.hardware.devices *= 2;
    t.s.dp = t.s.ulysses = t.s.ring = AUTO;
    t.change.gives_more = 1;
    if (plan_mesh(x->m, &t.s, ranks, t.hardware.devices) != OK)
        return OK; /* the model's heads do not divide so */
    hardware_limits(&t.hardware, ranks, t.limit);
    say(&t, "--machine %dx%s", t.hardware.nodes * t.hardware.devices, t.hardware.name);
    return try(x, &t, NULL);
}

/* Drives and memory where the step waits for them or computes twice, or where they are full. */
static enum status try_more(struct search *x)
{
    struct report r;
    TRY(report_make(x->p, x->m, &r));
    double slow = 0.02 * x->p->seconds, drives = r.lane[LANE_READ].exposed + r.lane[LANE_WRITE].exposed;
    if (!x->p->fits)
        return x->p->misfit == TIER_NVME ? try_drives(x) : OK;
    if (drives > slow)
        TRY(try_drives(x));
    if (drives > slow || r.recomputed > slow)
        TRY(try_memory(x, TIER_HOST));
    if (r.recomputed > slow || x->p->seconds - r.lane[LANE_COMPUTE].busy > slow)
        TRY(try_memory(x, TIER_DEVICE));
    return OK;
}

/* --- A shorter sequence --- */

/* Whole multiples of 1024 tokens, or of 64 for short ones. */
static int64_t round_length(double tokens)
{
    int64_t unit = tokens >= 16384 ? 1024 : 64;
    return (int64_t)(tokens / (double)unit) * unit;
}

static enum status try_shorter(struct search *x)
{
    struct trial t;
    int64_t low = 0, high = x->s->seq_len;
    for (int i = 0; i < 9; i++) { /* until one fits, then closer */
        int64_t length = low ? round_length((double)(low + high) / 2) : round_length((double)high / 2);
        int fits;
        if (length <= low || length >= high || (low && high - low < high / 10))
            break;
        trial_start(x, &t);
        free_all(&t);
        t.s.seq_len = length;
        t.change.shortens = 1;
        say(&t, length % 1024 ? "--seq-len %lld" : "--seq-len %lldk", (long long)(length % 1024 ? length : length / 1024));
        TRY(try(x, &t, &fits));
        if (fits)
            low = length;
        else
            high = length;
    }
    return OK;
}

enum status changes_find(const struct plan *p, const struct model *m, const struct settings *s, double seconds,
                         struct changes *out)
{
    struct search x = {p, m, s, clock_seconds() + seconds, out};
    memset(out, 0, sizeof *out);
    out->all_tried = 1;
    TRY(try_free(&x));
    if (p->fits || out->n == 0)
        TRY(try_numerics(&x));
    TRY(try_more(&x));
    TRY(try_devices(&x));
    return p->fits || out->n > 0 ? OK : try_shorter(&x);
}

/* --- For people --- */

enum status changes_wanted(const struct plan *p, const struct model *m, int *wanted)
{
    struct report r;
    TRY(report_make(p, m, &r));
    double slow = 0.02 * p->seconds;
    *wanted = !p->fits || p->seconds - r.lane[LANE_COMPUTE].busy > slow || r.recomputed > slow;
    return OK;
}

void changes_print(const struct plan *p, const struct changes *c, FILE *f)
{
    if (c->n > 0)
        fprintf(f, "\nWhat would %s:\n", p->fits ? "be faster" : "fit");
    for (int i = 0; i < c->n && i < 3; i++) {
        const struct change *x = &c->by_cost[i];
        char a[32], b[32], d[32];
        fprintf(f, "  %-32s %.4g s a step, %.4g tok/s; device %s, host %s, nvme %s\n", x->say, x->seconds, x->per_second,
                units_format_bytes(x->arena[TIER_DEVICE], a), units_format_bytes(x->arena[TIER_HOST], b),
                units_format_bytes(x->arena[TIER_NVME], d));
    }
    if (c->n == 0 && p->fits && c->tried > 0)
        fprintf(f, "\nNone of %d changes tried is 2%% faster%s.\n", c->tried, c->all_tried ? "" : "; time ran out for more");
}

enum status changes_refuse(const struct plan *p, const struct settings *s, const struct changes *c)
{
    char need[32], given[32], other[32], has[64]; /* "48 MiB are given (--device-mem)" */
    const int64_t asked[TIERS] = {s->device_mem, s->host_mem, s->nvme_max};
    enum tier t = p->misfit;
    units_format_bytes(p->arena[t], need);
    snprintf(has, sizeof has, "%s are %s (%s)", units_format_bytes(p->limit[t], given),
             asked[t] == p->limit[t] ? "given"
             : s->machine            ? "there"
                                     : "free",
             limit_flag[t]);
    const struct change *best = &c->by_cost[0];
    if (c->n > 0 && !best->shortens) {
        double slower = (best->seconds / p->seconds - 1) * 100;
        return status_fail(ERR_NOFIT, "the plan needs %s on the %s and %s. %s would need %s, %.0f%% slower.", need, tier_name(t),
                           has, best->say, units_format_bytes(best->arena[t], other), slower > 0 ? slower : 0);
    }
    if (c->n > 0)
        return status_fail(ERR_NOFIT, "the plan needs %s on the %s and %s. No offload setting fits; %s would need %s.", need,
                           tier_name(t), has, best->say, units_format_bytes(best->arena[t], other));
    return status_fail(ERR_NOFIT,
                       "the plan needs %s on the %s and %s. No offload setting fits%s: give more, or shorten --seq-len.", need,
                       tier_name(t), has, c->all_tried ? "" : " of those tried in time");
}

enum status plan_refuse(const struct plan *p, const struct model *m, const struct settings *s)
{
    struct changes c;
    TRY(changes_find(p, m, s, CHANGES_SECONDS, &c));
    return changes_refuse(p, s, &c);
}
