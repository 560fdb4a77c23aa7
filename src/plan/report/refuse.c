/* Refusals: the needs of a plan that does not fit, and changes that would fit. */
#include "plan/report/refuse.h"

#include "base/units.h"
#include "machine/hardware.h"
#include "plan/report/describe.h"

#include <stdio.h>
#include <string.h>

/* Writes which tier was too small even for the shortest length tried, and the flag that gives more of it. */
static void describe_nearest(const struct plan *p, const struct plan_request *s, const struct advice *advice, char *buf, int size)
{
    char tokens[32], need[32];
    snprintf(buf, (size_t)size, ": give more");
    for (int t = 0; t < TIERS; t++)
        if (advice->shortest > 0 && advice->least[t] > p->limit[t]) {
            snprintf(buf, (size_t)size, " (even %s tokens need %s on the %s): give more there (%s)",
                     units_format_count(advice->shortest, tokens), units_format_bytes(advice->least[t], need),
                     tier_name((enum tier)t),
                     budget_memory_limit(s, (enum tier)t)[0] ? "raise that limit" : budget_flag_given(s, (enum tier)t));
            return;
        }
}

static int is_short(const struct plan *p, int t)
{
    return p->arena[t] > p->limit[t] || t == (int)p->misfit;
}

/* Writes need and budget of every tier that is too small: "48 MiB on the device and 32 MiB are given (--device-mem)". */
static void describe_excess(const struct plan *p, const struct plan_request *s, char *buf, size_t size)
{
    const int64_t asked[TIERS] = {s->device_mem, s->host_mem, s->nvme_max};
    const char *memory = "";
    buf[0] = 0;
    for (int t = 0; t < TIERS; t++) {
        char need[32], has[32], given[32], part[32] = "", left[480] = "";
        int sharing = t == TIER_DEVICE ? 1 : budget_sharing(p, s);
        if (!is_short(p, t))
            continue;
        units_format_apart(p->arena[t], p->limit[t], need, has);
        if (sharing > 1)
            snprintf(part, sizeof part, sharing == 2 ? "half of " : "1/%d of ", sharing);
        if (t == TIER_NVME && budget_is_free_space(p, s))
            snprintf(left, sizeof left, " gives %s: free some or name another --nvme-path", units_format_bytes(asked[t], given));
        else if (t == TIER_NVME && asked[t] < 0 && s->kept_free > 0)
            snprintf(left, sizeof left, ", %d%% left free, beside %s for checkpoints, model and log", HARDWARE_LEFT_FREE,
                     units_format_bytes(s->kept_free, given));
        else if (t == TIER_NVME && asked[t] < 0)
            snprintf(left, sizeof left, ", %d%% left free", HARDWARE_LEFT_FREE);
        if (s->scarce[t][0]) {
            const size_t said = strlen(left);
            snprintf(left + said, sizeof left - said, "; %s", s->scarce[t]);
        }
        size_t n = strlen(buf);
        snprintf(buf + n, size - n, "%s%s on the %s and %s are %s (%s%s%s)", n ? ", " : "", need, tier_name((enum tier)t), has,
                 asked[t] >= 0 && asked[t] / sharing == p->limit[t] ? "given"
                 : s->machine                                       ? "there"
                                                                    : "free",
                 part, budget_flag_given(s, (enum tier)t), left);
        memory = memory[0] ? memory : budget_memory_limit(s, (enum tier)t);
    }
    const size_t n = strlen(buf);
    if (memory[0])
        snprintf(buf + n, size - n, "; of memory %s", memory);
}

/* Writes a change's need of the tiers that are too small: "31 MiB", "31 MiB on the device and 2.0 GiB on the host". */
static void describe_need(const struct plan *p, const struct change *c, char *buf, size_t size)
{
    int n = 0, said = 0;
    for (int t = 0; t < TIERS; t++)
        n += is_short(p, t);
    buf[0] = 0;
    for (int t = 0; t < TIERS; t++) {
        char need[32];
        size_t at = strlen(buf);
        if (!is_short(p, t))
            continue;
        snprintf(buf + at, size - at, "%s%s%s%s",
                 said == 0       ? ""
                 : said == n - 1 ? " and "
                                 : ", ",
                 units_format_bytes(c->arena[t], need), n > 1 ? " on the " : "", n > 1 ? tier_name((enum tier)t) : "");
        said++;
    }
}

enum status refuse_advised(const struct plan *p, const struct plan_request *s, const struct advice *advice)
{
    char excess[1400], need[128], text[128], step[32];
    describe_excess(p, s, excess, sizeof excess);
    const struct change *best = &advice->by_cost[0];
    describe_need(p, best, need, sizeof need);
    if (advice->n > 0 && !best->shortens && !best->gives_more)
        return status_fail(ERR_NOFIT, "the plan needs %s. %s would need %s%s; a step would take %s.", excess, best->say,
                           best->exact ? "" : "about ", need, report_duration(best->seconds, step));
    if (advice->n > 0)
        return status_fail(ERR_NOFIT, "the plan needs %s. No offload setting fits; %s would need %s%s%s.", excess, best->say,
                           best->exact ? "" : "about ", need, best->shortens ? " (ltrain plan --max-seq finds the longest)" : "");
    describe_nearest(p, s, advice, text, sizeof text);
    return status_fail(ERR_NOFIT, "the plan needs %s. No offload setting fits, nor a shorter --seq-len%s.", excess, text);
}

enum status refuse_plan(const struct plan *p, const struct model *m, const struct plan_request *s)
{
    struct advice advice;
    TRY(advise_find(p, m, s, &advice));
    return refuse_advised(p, s, &advice);
}

enum status refuse_early(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS])
{
    struct plan estimated;
    struct advice advice;
    int beyond;
    if (s->open_parts || mesh_degree(&s->mesh, MESH_TP) > 1 || mesh_degree(&s->mesh, MESH_PP) > 1)
        return OK; /* estimates are of whole layers */
    TRY(advise_early(m, s, limit, &estimated, &advice, &beyond));
    return beyond ? refuse_advised(&estimated, s, &advice) : OK;
}
