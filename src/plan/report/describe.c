/* Placements and grids in one line of text, flags and sources of budgets, times in the units that people read. */
#include "plan/report/describe.h"

#include "machine/hardware.h"
#include "program/drives.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *residency_name(enum residency r)
{
    static const char *const names[] = {"none", "cpu", "nvme", "recompute"};
    return names[r];
}

static int uses_drives(const struct strategy *s)
{
    return s->placement.params == RES_NVME || s->placement.grads == RES_NVME || s->placement.optim == RES_NVME ||
           s->placement.acts == RES_NVME || s->placement.experts_at == 1 + RES_NVME;
}

/* Writes --alpha, and the number of kept row chunks: for each kind of layer, if they differ. */
static void describe_kept(const struct strategy *s, long long chunks, char buf[128])
{
    const int window = strategy_kept(s, 1), full = strategy_kept(s, 0);
    const double all = (double)chunks;
    if (s->placement.full_more == 0 && s->placement.light_fewer == 0)
        snprintf(buf, 128, "%.4g (%d of %lld row chunks kept)", s->placement.kept_chunks / all, s->placement.kept_chunks, chunks);
    else
        snprintf(buf, 128, "window=%.4g,full=%.4g (%d and %d of %lld row chunks kept)", window / all, full / all, window, full,
                 chunks);
}

void strategy_describe(const struct strategy *s, char *buf, int size)
{
    char kept[128];
    char inputs[32] = "", split[48] = "", passing[48] = "", writes[32] = "", promoted[64] = "";
    long long chunks = ceil_div(s->rows, s->key.row_chunk);
    describe_kept(s, chunks, kept);
    if (s->placement.device_chunks > 0)
        snprintf(split, sizeof split, " (%d of %lld chunks on the device)", s->placement.device_chunks, chunks);
    if (s->placement.promoted_layers > 0)
        snprintf(promoted, sizeof promoted, " (%s of %d layer%s on the %s)", class_name(s->placement.promoted_class),
                 s->placement.promoted_layers, s->placement.promoted_layers > 1 ? "s" : "",
                 tier_name((enum tier)s->placement.promote_tier));
    if (s->placement.acts != RES_DEVICE)
        snprintf(passing, sizeof passing, ",passing=%s", residency_name(s->placement.passing));
    if (s->placement.experts_at > 0)
        snprintf(passing + strlen(passing), sizeof passing - strlen(passing), ",experts=%s",
                 residency_name((enum residency)(s->placement.experts_at - 1)));
    if (s->placement.keep_inputs > 1)
        snprintf(inputs, sizeof inputs, "  --keep-inputs %d", s->placement.keep_inputs);
    if (s->placement.write_depth > 0 && uses_drives(s))
        snprintf(writes, sizeof writes, "  writes %d/%d", s->placement.write_depth, DRIVE_DEPTH);
    snprintf(buf, (size_t)size,
             "--offload params=%s,grads=%s,optim=%s,acts=%s%s%s%s  --alpha %s%s  %s%s  --tiles rows=%lld,heads=%d,loss=%lld",
             residency_name(s->placement.params), residency_name(s->placement.grads), residency_name(s->placement.optim),
             residency_name(s->placement.acts), passing, split, promoted, kept, inputs,
             strategy_updates_on_both(s)   ? "AdamW on both"
             : s->placement.update_on_host ? "--update host"
                                           : "--update device",
             writes, (long long)s->key.row_chunk, s->key.head_tile, (long long)s->key.loss_tile);
}

void plan_describe(const struct plan *p, char *buf, int size)
{
    char text[PLAN_TEXT], why[128] = "";
    const struct default_grid *u = &p->default_grid;
    strategy_describe(&p->strategy, text, sizeof text);
    if (p->finer)
        snprintf(why, sizeof why, " (to fit: nothing does with the default tiles)");
    else if (u->head_tile > 0 && isinf(u->slower))
        snprintf(why, sizeof why, " (for speed; with the default tiles rows=%lld,heads=%d,loss=%lld it does not fit)",
                 (long long)u->row_chunk, u->head_tile, (long long)u->loss_tile);
    else if (u->head_tile > 0)
        snprintf(why, sizeof why, " (for speed; the default tiles rows=%lld,heads=%d,loss=%lld take %.*f%% longer)",
                 (long long)u->row_chunk, u->head_tile, (long long)u->loss_tile, u->slower < 0.01, 100 * u->slower);
    snprintf(buf, (size_t)size, "%s%s", text, why);
}

void plan_longest_flags(const struct plan *p, char buf[96])
{
    char mesh[MESH_TEXT];
    const struct strategy *s = &p->strategy;
    int n = 0;
    buf[0] = 0;
    if (p->longest.mesh)
        n = snprintf(buf, 96, " --mesh %s", mesh_format(&s->key.mesh, mesh));
    if (p->longest.tiles)
        snprintf(buf + n, (size_t)(96 - n), " --tiles rows=%lld,heads=%d,loss=%lld", (long long)s->key.row_chunk,
                 s->key.head_tile, (long long)s->key.loss_tile);
}

const char *const budget_flag[TIERS] = {"--device-mem", "--host-mem", "--nvme-max"};

const char *budget_flag_given(const struct plan_request *s, enum tier t)
{
    return t == TIER_NVME && s->nvme_drives == 0 ? "--nvme none" : budget_flag[t];
}

const char *budget_memory_limit(const struct plan_request *s, enum tier t)
{
    const int64_t asked = t == TIER_DEVICE ? s->device_mem : s->host_mem;
    return t != TIER_NVME && asked < 0 && !s->machine ? s->memory_limit : "";
}

int budget_is_free_space(const struct plan *p, const struct plan_request *s)
{
    return !s->machine && s->nvme_max > p->limit[TIER_NVME];
}

int budget_sharing(const struct plan *p, const struct plan_request *s)
{
    const struct hardware *h = s->machine ? s->hardware : NULL;
    return h ? (int)max_i64(h->devices, ceil_div(p->strategy.ranks, h->nodes)) : 1;
}

const char *report_time_unit(double seconds, double *unit)
{
    static const struct {
        double from, seconds;
        const char *name;
    } units[] = {{999.5 * DAY, 365 * DAY, "years"},
                 {47.95 * 3600, DAY, "days"},
                 {99.5 * 60, 3600, "h"},
                 {999.5, 60, "min"},
                 {0.00995, 1, "s"},
                 {0.00995e-3, 1e-3, "ms"},
                 {0.00995e-6, 1e-6, "us"},
                 {-INFINITY, 1e-9, "ns"}};
    int i = 0;
    while (seconds < units[i].from)
        i++;
    *unit = units[i].seconds;
    return units[i].name;
}

const char *report_duration(double seconds, char buf[32])
{
    double unit = 1;
    const char *name = seconds > 0 ? report_time_unit(seconds, &unit) : "s";
    snprintf(buf, 32, seconds / unit < 999.5 ? "%.3g %s" : "%.0f %s", seconds / unit, name);
    return buf;
}

const char *report_compared(double faster, double least, char buf[32])
{
    int slower = faster < 1;
    double times = slower ? 1 / faster : faster;
    if (times < 1 + least)
        snprintf(buf, 32, "as fast");
    else if (times < 2)
        snprintf(buf, 32, "%.*f%% %s", least < 0.001, 100 * (times - 1), slower ? "slower" : "faster");
    else
        snprintf(buf, 32, slower ? "takes %.*f times as long" : "%.*f times as fast", times < 10, times);
    return buf;
}
