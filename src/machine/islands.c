/* Machines of unlike parts. */
#include "machine/islands.h"

int islands_devices(const struct islands *x, int island)
{
    return x->nodes[island] * x->of[island].devices;
}

int islands_all_devices(const struct islands *x)
{
    int n = 0;
    for (int i = 0; i < x->n; i++)
        n += islands_devices(x, i);
    return n;
}

int islands_fit(const struct islands *x, int stages)
{
    const int all = islands_all_devices(x), each = all / stages;
    int fit = all % stages == 0;
    for (int i = 0; i < x->n && fit; i++)
        fit = islands_devices(x, i) % each == 0;
    return fit;
}

int islands_stages(const struct islands *x, int least)
{
    for (int stages = least; stages <= islands_all_devices(x); stages++)
        if (islands_fit(x, stages))
            return stages;
    return 0;
}

int islands_of_stage(const struct islands *x, int stage, int stages)
{
    const int first = islands_all_devices(x) / stages * stage;
    int island = 0;
    for (int end = islands_devices(x, 0); island < x->n - 1 && first >= end; end += islands_devices(x, island))
        island++;
    return island;
}

struct hardware islands_alone(const struct islands *x, int island)
{
    struct hardware h = x->of[island];
    h.nodes = x->nodes[island];
    return h;
}

static void keep_least(int64_t *least, int64_t bytes)
{
    *least = bytes < *least ? bytes : *least;
}

void islands_mix(const struct islands *x, struct hardware *out)
{
    int slowest = 0;
    for (int i = 1; i < x->n; i++)
        if (x->of[i].peak_flops[BF16] < x->of[slowest].peak_flops[BF16])
            slowest = i;
    *out = x->of[slowest];
    for (int i = 0; i < x->n; i++) {
        const struct hardware *h = &x->of[i];
        keep_least(&out->device_mem, h->device_mem);
        keep_least(&out->host_mem, h->host_mem / h->devices * out->devices);
        keep_least(&out->nvme_mem, h->nvme_mem / h->devices * out->devices);
        out->capability = h->capability < out->capability ? h->capability : out->capability;
        out->processors = h->processors < out->processors ? h->processors : out->processors;
        out->host_assumed |= h->host_assumed;
        out->drives_assumed |= h->drives_assumed;
    }
}

void islands_number(struct islands *x)
{
    const int all = islands_all_devices(x);
    for (int i = 0; i < x->n; i++)
        x->of[i].nodes = (int)ceil_div(all, x->of[i].devices);
}
