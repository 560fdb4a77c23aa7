/* Flags and sources of the budgets. */
#include "plan/report/budget.h"

#include "machine/hardware.h"

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
