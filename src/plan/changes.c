/* Changes to the settings that make a plan fit. */
#include "plan/plan.h"

#include "base/units.h"

#include <string.h>

static void set_offload(struct settings *s, enum offload all)
{
    s->params = s->grads = s->optim = s->acts = all;
}

enum status plan_refuse(const struct plan *p, const struct model *m, const struct settings *s, const int64_t limit[TIERS])
{
    static const char *const flag[] = {"--device-mem", "--host-mem", "--nvme-max"};
    static const struct {
        const char *say;
        enum offload acts, all;
        double alpha;
    } change[] = {{"--alpha 0", OFFLOAD_AUTO, OFFLOAD_AUTO, 0},
                  {"--offload acts=cpu", OFFLOAD_CPU, OFFLOAD_AUTO, -1},
                  {"--offload cpu", OFFLOAD_AUTO, OFFLOAD_CPU, -1},
                  {"--offload nvme", OFFLOAD_AUTO, OFFLOAD_NVME, -1},
                  {"--offload nvme --alpha 0", OFFLOAD_AUTO, OFFLOAD_NVME, 0}};
    char need[32], given[32], other[32];
    units_format_bytes(p->arena[p->misfit], need);
    const int64_t asked[TIERS] = {s->device_mem, s->host_mem, s->nvme_max};
    char has[64]; /* "48 MiB are given (--device-mem)" */
    snprintf(has, sizeof has, "%s are %s (%s)", units_format_bytes(limit[p->misfit], given),
             asked[p->misfit] == limit[p->misfit] ? "given" : "free", flag[p->misfit]);
    for (size_t i = 0; i < sizeof change / sizeof *change; i++) {
        struct settings changed = *s;
        struct plan *with;
        if (change[i].all != OFFLOAD_AUTO)
            set_offload(&changed, change[i].all);
        if (change[i].acts != OFFLOAD_AUTO)
            changed.acts = change[i].acts;
        if (change[i].alpha >= 0)
            changed.alpha = change[i].alpha;
        TRY(plan_create(m, &changed, limit, &with));
        if (with->fits) {
            double slower = (with->seconds / p->seconds - 1) * 100;
            enum status st = status_fail(ERR_NOFIT, "the plan needs %s on the %s and %s. %s would need %s, %.0f%% slower.", need,
                                         tier_name(p->misfit), has, change[i].say,
                                         units_format_bytes(with->arena[p->misfit], other), slower > 0 ? slower : 0);
            plan_destroy(with);
            return st;
        }
        plan_destroy(with);
    }
    return status_fail(ERR_NOFIT, "the plan needs %s on the %s and %s. No offload setting fits: give more, or shorten --seq-len.",
                       need, tier_name(p->misfit), has);
}
