/* Moving what a program holds only while it runs to other addresses, and back. */
#include "engine/displace.h"

#include "base/num.h"

int64_t displace_room(const struct plan *plan, const struct program *p, enum tier t)
{
    return t == TIER_NVME ? 0 : (plan->arena[t] - p->arena[t]) / BUFFER_ALIGN * BUFFER_ALIGN;
}

void displace_program(const struct plan *plan, struct program *p, int sign)
{
    for (int b = p->n_persistent; b < p->n_buffers; b++)
        p->buffers[b].address += sign * displace_room(plan, p, (enum tier)p->buffers[b].tier);
}
