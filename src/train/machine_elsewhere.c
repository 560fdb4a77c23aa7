/* The machine of --machine: its budgets, device and ranks. */
#include "train/machine.h"

#include "base/sys.h"
#include "base/units.h"
#include "engine/backend_cpu.h"
#include "engine/cuda_target.h"
#include "machine/hardware.h"
#include "machine/islands.h"
#include "train/gpu.h"
#include "train/train.h"

#include <errno.h>
#include <omp.h>
#include <string.h>

enum status machine_set_target(struct settings *s, const struct target *t)
{
    s->plan.target = sys_malloc(sizeof *s->plan.target);
    if (!s->plan.target)
        return status_no_memory("while planning");
    *s->plan.target = *t;
    return OK;
}

int train_planned_ranks(const struct settings *s)
{
    if (s->plan.ranks > 0)
        return s->plan.ranks;
    int product = (int)mesh_ranks(&s->plan.mesh);
    return product;
}

/* Opens the machine that the settings name, from a data sheet or a file. Its islands lie behind it, to be freed with it. */
static enum status open_machine(struct settings *s)
{
    enum status st;
    struct elsewhere {
        struct hardware hardware;
        struct islands islands;
    } *all = sys_calloc(1, sizeof *all);
    if (!all)
        return status_no_memory("while planning");
    s->plan.hardware = &all->hardware;
    int preset = hardware_is_preset(s->plan.machine);
    FILE *f = preset ? NULL : sys_read_text(s->plan.machine);
    if (f) {
        st = machine_read(s->plan.machine, f, s->plan.hardware, &all->islands);
        fclose(f);
    } else if (preset || errno == ENOENT) {
        st = hardware_preset(s->plan.machine, s->plan.hardware);
    } else {
        st = status_fail(ERR_INVALID, "--machine: cannot read %s: %s", s->plan.machine, sys_strerror(errno));
    }
    TRY(st);
    if (!s->plan.hardware->cpu && s->plan.device_mem > s->plan.hardware->device_mem) {
        char asked[32], there[32];
        units_format_apart(s->plan.device_mem, s->plan.hardware->device_mem, asked, there);
        return status_fail(ERR_INVALID,
                           "--device-mem: %s are more than the %s that a program can have of %s: leave it out, or give less",
                           asked, there, s->plan.hardware->name);
    }
    if (s->plan.device != DEVICE_AUTO && s->plan.hardware->cpu == (s->plan.device == DEVICE_CUDA))
        return status_fail(ERR_INVALID, "--device is %s, and what --machine %s names has %s: leave out --device",
                           s->plan.device == DEVICE_CUDA ? "cuda" : "cpu", s->plan.machine,
                           s->plan.hardware->cpu ? "no GPU" : "GPUs");
    hardware_override(s->plan.hardware, &s->plan);
    for (int i = 0; i < all->islands.n; i++)
        hardware_override(&all->islands.of[i], &s->plan);
    return OK;
}

/* Finds the number of ranks on a machine that is not here: the one asked for, or a device each. Open mesh degrees are derived
 * from it. */
static enum status ranks_elsewhere(const struct settings *s, int *out)
{
    const struct hardware *h = s->plan.hardware;
    int devices = h->islands ? islands_all_devices(h->islands) : h->nodes * h->devices, asked = train_planned_ranks(s),
        preset = hardware_is_preset(s->plan.machine);
    int said = s->plan.ranks > 0 || mesh_is_decided(&s->plan.mesh) || (h->cpu && asked > 1);
    *out = said ? asked : devices;
    if (h->islands && *out != devices)
        return status_fail(ERR_INVALID,
                           "--machine: %d ranks are asked for, and the islands of %s have %d devices, each with one: change the "
                           "file, or leave out --ranks",
                           *out, s->plan.machine, devices);
    if (!h->cpu && asked > devices) {
        char take[80] = "give it more in its file";
        if (preset)
            snprintf(take, sizeof take, "take --machine %dx%s", asked, h->name);
        return status_fail(ERR_INVALID, "--machine: %d ranks are asked for, and %s has %d device%s: %s", asked, s->plan.machine,
                           devices, devices == 1 ? "" : "s", take);
    }
    if (!said && devices % asked) {
        char take[80] = "";
        if (preset)
            snprintf(take, sizeof take, "take --machine %dx%s, or ", asked, h->name);
        return status_fail(ERR_INVALID,
                           "--mesh: %d ranks do not divide the %d devices of %s: %sadd --ranks %d to leave some idle", asked,
                           devices, s->plan.machine, take, asked);
    }
    return OK;
}

/* Computes the bytes of one rank and the ranks of a node: of islands, the least of all. */
static void share_out(const struct hardware *h, struct machine_ranks *out)
{
    const struct islands *x = h->islands;
    hardware_limits(h, out->ranks, out->limit);
    out->per_host = (int)max_i64(h->devices, ceil_div(out->ranks, h->nodes));
    for (int i = 0; x && i < x->n; i++) {
        int64_t limit[TIERS];
        hardware_limits(&x->of[i], out->ranks, limit);
        out->per_host = (int)min_i64(out->per_host, x->of[i].devices);
        for (int t = 0; t < TIERS; t++)
            out->limit[t] = min_i64(out->limit[t], limit[t]);
    }
}

enum status machine_elsewhere(struct settings *s, const struct model *m, struct machine_ranks *out)
{
    int ranks;
    TRY(open_machine(s));
    TRY(ranks_elsewhere(s, &ranks));
    const struct hardware *h = s->plan.hardware;
    if (s->plan.device == DEVICE_AUTO)
        s->plan.device = h->cpu ? DEVICE_CPU : DEVICE_CUDA;
    TRY(gpu_settle_type(s, m, h->cpu ? 0 : h->capability));
    out->ranks = ranks;
    share_out(h, out);
    const int threads = s->plan.threads > 0 ? s->plan.threads : omp_get_max_threads();
    struct target t = h->cpu ? backend_cpu_target(threads) : cuda_target(h->capability, h->processors, threads);
    t.fast = t.capability > 0 && !s->plan.deterministic;
    return machine_set_target(s, &t);
}
