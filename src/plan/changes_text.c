/* Changes in words: what would help, and refusals. */
#include "plan/changes.h"

#include "base/units.h"

#define SAID 0.005 /* a share of the step that is worth a word */

void changes_print(const struct plan *p, const struct changes *c, FILE *f)
{
    double now = (double)p->tokens / p->seconds;
    if (c->n > 0)
        fprintf(f, "\nWhat would %s:\n", p->fits ? "be faster" : "fit");
    for (int i = 0; i < c->n && i < CHANGES_SAID; i++) {
        const struct change *x = &c->by_cost[i];
        char a[32], b[32], d[32], e[32], g[32];
        fprintf(f, "  %-32s %s%s a step, %s; device %s, host %s, nvme %s\n", x->say, x->exact ? "" : "about ",
                report_duration(x->seconds, e), report_compared(x->per_second / now, SAID, g),
                units_format_bytes(x->arena[TIER_DEVICE], a), units_format_bytes(x->arena[TIER_HOST], b),
                units_format_bytes(x->arena[TIER_NVME], d));
    }
    if (c->n == 0 && p->fits && c->tried > 0)
        fprintf(f, "\nNone of %d changes tried is %.0f%% faster.\n", c->tried, 100 * CHANGES_HELP);
}

/* What was not enough at the shortest length tried. */
static void describe_nearest(const struct plan *p, const struct changes *c, char *buf, int size)
{
    char tokens[32], need[32];
    buf[0] = 0;
    for (int t = 0; t < TIERS; t++)
        if (c->shortest > 0 && c->least[t] > p->limit[t]) {
            snprintf(buf, (size_t)size, " (even %s tokens need %s on the %s)", units_format_count(c->shortest, tokens),
                     units_format_bytes(c->least[t], need), tier_name((enum tier)t));
            return;
        }
}

enum status changes_refuse(const struct plan *p, const struct settings *s, const struct changes *c)
{
    char need[32], given[32], other[32], has[64], text[96], faster[32]; /* "48 MiB are given (--device-mem)" */
    const int64_t asked[TIERS] = {s->device_mem, s->host_mem, s->nvme_max};
    enum tier t = p->misfit;
    units_format_bytes(p->arena[t], need);
    snprintf(has, sizeof has, "%s are %s (%s)", units_format_bytes(p->limit[t], given),
             asked[t] == p->limit[t] ? "given"
             : s->machine            ? "there"
                                     : "free",
             changes_flag[t]);
    const struct change *best = &c->by_cost[0];
    if (c->n > 0 && !best->shortens && !best->gives_more)
        return status_fail(ERR_NOFIT, "the plan needs %s on the %s and %s. %s would need %s%s, %s.", need, tier_name(t), has,
                           best->say, best->exact ? "" : "about ", units_format_bytes(best->arena[t], other),
                           report_compared(best->per_second * p->seconds / (double)p->tokens, SAID, faster));
    if (c->n > 0)
        return status_fail(ERR_NOFIT, "the plan needs %s on the %s and %s. No offload setting fits; %s would need %s%s%s.", need,
                           tier_name(t), has, best->say, best->exact ? "" : "about ", units_format_bytes(best->arena[t], other),
                           best->shortens ? " (ltrain plan --max-seq finds the longest)" : "");
    describe_nearest(p, c, text, sizeof text);
    return status_fail(ERR_NOFIT,
                       "the plan needs %s on the %s and %s. No offload setting fits, nor a shorter --seq-len%s: give more.", need,
                       tier_name(t), has, text);
}

enum status plan_refuse(const struct plan *p, const struct model *m, const struct settings *s)
{
    struct changes c;
    TRY(changes_find(p, m, s, &c));
    return changes_refuse(p, s, &c);
}
