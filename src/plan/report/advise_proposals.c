/* The table of proposals: changes to the settings. */
#include "plan/report/advise_proposals.h"

#include "base/units.h"
#include "plan/lower/mesh.h"
#include "plan/report/advise.h"
#include "plan/report/describe.h"
#include "plan/search/meshes.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((format(printf, 2, 3))) static void say(struct proposal_setup *to, const char *format, ...)
{
    va_list args;
    size_t n = strlen(to->change.say);
    va_start(args, format);
    if (n > 0)
        n += (size_t)snprintf(to->change.say + n, sizeof to->change.say - n, " ");
    vsnprintf(to->change.say + n, sizeof to->change.say - n, format, args);
    va_end(args);
}

/* --- Present resources, used in another way --- */

static int free_offload(struct proposal_setup *to)
{
    struct plan_request *s = &to->s;
    if (s->params == OFFLOAD_AUTO && s->grads == OFFLOAD_AUTO && s->optim == OFFLOAD_AUTO && s->acts == OFFLOAD_AUTO &&
        s->passing == OFFLOAD_AUTO && s->experts == OFFLOAD_AUTO)
        return 0;
    s->params = s->grads = s->optim = s->acts = s->passing = s->experts = OFFLOAD_AUTO;
    say(to, "--offload auto");
    return 1;
}

static int free_alpha(struct proposal_setup *to)
{
    if (to->s.alpha < 0)
        return 0;
    to->s.alpha = AUTO;
    to->s.alpha_by_kind = 0;
    say(to, "--alpha auto");
    return 1;
}

static int free_prefetch(struct proposal_setup *to)
{
    if (to->s.prefetch < 0)
        return 0;
    to->s.prefetch = AUTO;
    say(to, "--prefetch auto");
    return 1;
}

static int free_update(struct proposal_setup *to)
{
    if (to->s.update == UPDATE_AUTO)
        return 0;
    to->s.update = UPDATE_AUTO;
    say(to, "--update auto");
    return 1;
}

static int free_inputs(struct proposal_setup *to)
{
    if (to->s.keep_inputs < 0)
        return 0;
    to->s.keep_inputs = AUTO;
    say(to, "--keep-inputs auto");
    return 1;
}

static int (*const freed[])(struct proposal_setup *) = {free_offload, free_alpha, free_prefetch, free_update, free_inputs};
enum { FREED = sizeof freed / sizeof *freed };

/* Leaves the i-th fixed setting to the planner; i = FREED: all fixed settings. Returns the number of settings left to the
 * planner. */
static int free_placement(const struct advisor *x, struct proposal_setup *to, int64_t i)
{
    int n = 0;
    (void)x;
    if (i < FREED)
        return freed[i](to);
    for (i = 0; i < FREED; i++)
        n += freed[i](to);
    return n;
}

/* Proposes to keep fewer layer inputs, if the settings fix their number; if they do not, the planner has already tried this. */
static int keep_fewer_inputs(const struct advisor *x, struct proposal_setup *to, int64_t every)
{
    if (to->s.keep_inputs < 0 || to->s.keep_inputs >= every || every >= x->m->config.layers || (x->p->fits && !advisor_waits(x)))
        return 0;
    to->s.keep_inputs = every;
    say(to, "--keep-inputs %lld", (long long)every);
    return 1;
}

static int free_tiles(const struct advisor *x, struct proposal_setup *to, int64_t arg)
{
    (void)x, (void)arg;
    if (to->s.row_chunk <= 0 && to->s.head_tile <= 0 && to->s.loss_tile <= 0 && to->s.group <= 0)
        return 0;
    free_placement(x, to, FREED);
    to->s.row_chunk = to->s.head_tile = to->s.loss_tile = to->s.group = AUTO;
    say(to, "--tiles auto");
    return 1;
}

/* Proposes bf16. freely: also leaves to the planner all that the settings fix; if 0, the placement stays. */
static int store_bf16(const struct advisor *x, struct proposal_setup *to, int64_t freely)
{
    if (to->s.dtype == BF16 || (freely && free_placement(x, to, FREED) == 0))
        return 0;
    to->s.dtype = BF16;
    say(to, "--dtype bf16");
    return 1;
}

/* Proposes to compute as many sequences together as have about `rows` rows on a rank, if a step of several waits for what each
 * micro-batch moves. */
static int pack(const struct advisor *x, struct proposal_setup *to, int64_t rows)
{
    const int64_t sharing = mesh_sharing(&to->s.mesh), each = to->s.batch / to->s.mesh.degree[MESH_DP];
    int64_t packed = 1;
    while (2 * packed * to->s.seq_len <= rows * sharing && 2 * packed <= each)
        packed *= 2;
    if (to->s.evaluation || packed <= x->p->strategy.key.packed || (x->p->fits && !advisor_waits(x)))
        return 0;
    plan_take_mesh(&to->s, &to->s.mesh, packed);
    say(to, "--batch %lld --micro-batch %lld", (long long)to->s.batch, (long long)packed);
    return 1;
}

/* --- More resources --- */

/* Multiplies a tier's budget by `times`; for a named machine, the budget of each of its ranks. */
static int more_memory(struct proposal_setup *to, enum tier tier, int64_t times)
{
    char text[32];
    int64_t *const given[] = {&to->s.device_mem, &to->s.host_mem, &to->s.nvme_max}, whole = *given[tier], more;
    if (to->s.machine)
        whole = tier == TIER_DEVICE ? to->hardware.device_mem : tier == TIER_HOST ? to->hardware.host_mem : to->hardware.nvme_mem;
    if (whole <= 0 || whole > INT64_MAX / times || to->limit[tier] > INT64_MAX / times)
        return 0;
    if (units_parse_bytes("", units_format_short(times * whole, text), &more) != OK) /* tries exactly the printed amount */
        return 0;
    *given[tier] = more;
    to->limit[tier] = (int64_t)((double)more / (double)whole * (double)to->limit[tier]);
    to->change.gives_more = GIVES_MEMORY;
    say(to, "%s %s", budget_flag[tier], text);
    return 1;
}

static int waits_for_drives(const struct advisor *x)
{
    return x->report.lane[LANE_READ].exposed + x->report.lane[LANE_WRITE].exposed > ADVICE_HELPS * x->p->seconds;
}

int advisor_computes_twice(const struct advisor *x)
{
    return x->report.recomputed > ADVICE_HELPS * x->p->seconds;
}

int advisor_waits(const struct advisor *x)
{
    return x->p->seconds - x->report.lane[LANE_COMPUTE].busy > ADVICE_HELPS * x->p->seconds;
}

int advisor_gains_in_bf16(const struct advisor *x)
{
    const struct hardware *h = x->s->hardware;
    return x->s->dtype == F32 && h && h->peak_flops[BF16] >= HARDWARE_BF16_PAYS * h->peak_flops[F32];
}

static int more_host(const struct advisor *x, struct proposal_setup *to, int64_t times)
{
    int helps = !x->p->fits || waits_for_drives(x) || advisor_computes_twice(x);
    return helps && more_memory(to, TIER_HOST, times);
}

/* Proposes more device memory. A data-sheet device has fixed memory unless --device-mem is given. */
static int more_device(const struct advisor *x, struct proposal_setup *to, int64_t times)
{
    struct hardware *h = &to->hardware;
    int helps = x->p->fits ? advisor_waits(x) || advisor_computes_twice(x) : x->p->misfit == TIER_DEVICE;
    if (!helps || to->s.device_mem <= 0)
        return 0;
    if (!to->s.machine)
        return more_memory(to, TIER_DEVICE, times);
    if (times > 2 || h->device_holds <= h->device_mem) /* the device's whole memory is proposed only once */
        return 0;
    to->limit[TIER_DEVICE] = (int64_t)((double)h->device_holds / (double)h->device_mem * (double)to->limit[TIER_DEVICE]);
    h->device_mem = h->device_holds;
    to->s.device_mem = AUTO;
    to->change.gives_more = GIVES_MEMORY;
    say(to, "%s auto", budget_flag[TIER_DEVICE]);
    return 1;
}

/* Sets `drives` drives of the present kind. The rate is rounded as it is printed, so that the printed flags are those tried. */
static void set_drives(struct proposal_setup *to, int drives)
{
    char rate[32];
    snprintf(rate, sizeof rate, "%.3g", to->hardware.read / to->hardware.drives * 1e-9);
    to->s.nvme_drives = drives;
    to->s.nvme_gbps = strtod(rate, NULL);
    hardware_set_drives(&to->hardware, drives, to->s.nvme_gbps);
    say(to, "--nvme %dx%sGB/s", drives, rate);
}

/* Proposes all that the drives hold, if --nvme-max allows less or --nvme none allows nothing. */
static int whole_drives(const struct advisor *x, struct proposal_setup *to, int64_t arg)
{
    struct hardware *h = &to->hardware;
    int helps = !x->p->fits || advisor_waits(x) || advisor_computes_twice(x);
    int64_t limit[TIERS];
    (void)arg;
    if (!helps || !to->s.machine || h->drives == 0 || h->drives_hold <= h->nvme_mem)
        return 0;
    h->nvme_mem = h->drives_hold;
    to->s.nvme_max = AUTO;
    hardware_limits(h, x->p->strategy.ranks, limit);
    to->limit[TIER_NVME] = limit[TIER_NVME];
    to->change.gives_more = GIVES_MEMORY;
    if (x->s->nvme_drives == 0) /* the drives' budget follows from their number */
        set_drives(to, h->drives);
    else
        say(to, "%s auto", budget_flag[TIER_NVME]);
    return 1;
}

static int more_drives(const struct advisor *x, struct proposal_setup *to, int64_t times)
{
    int helps = !x->p->fits || waits_for_drives(x);
    if (!helps || !to->s.machine || to->hardware.drives == 0)
        return helps && x->p->misfit == TIER_NVME && !budget_is_free_space(x->p, x->s) && more_memory(to, TIER_NVME, times);
    if (to->hardware.nvme_mem == 0)
        return 0;
    to->hardware.drives_hold *= times;
    if (to->s.nvme_max < 0) {
        to->hardware.nvme_mem *= times;
        to->limit[TIER_NVME] *= times;
    }
    to->change.gives_more = GIVES_MEMORY;
    set_drives(to, (int)times * to->hardware.drives);
    return 1;
}

static int mesh_is_given(const struct advisor *x)
{
    return x->p->strategy.ranks > 1 && x->s->open_degrees == 0;
}

/* Takes the mesh that `ranks` would have if none were given, except that a given dp stays. Returns 0 if there is none. */
static int free_mesh(const struct advisor *x, struct proposal_setup *to, int ranks)
{
    const int dp = x->s->mesh.degree[MESH_DP], chosen = (x->s->open_degrees & 1u << MESH_DP) != 0;
    to->s.mesh.degree[MESH_DP] = dp > 1 && !chosen ? dp : AUTO;
    to->s.mesh.degree[MESH_ULYSSES] = to->s.mesh.degree[MESH_RING] = AUTO;
    /* a status other than OK: heads do not divide among `ranks` */
    return plan_mesh(x->m, &to->s, ranks, to->hardware.devices) == OK && meshes_take_first(x->m, to->limit, &to->s) == OK;
}

/* Proposes the devices that a given mesh leaves idle. */
static int all_devices(const struct advisor *x, struct proposal_setup *to, int64_t arg)
{
    const struct hardware *h = &to->hardware;
    int ranks = h->nodes * h->devices;
    (void)arg;
    if (!to->s.machine || h->cpu || !mesh_is_given(x) || x->p->strategy.ranks >= ranks || !free_mesh(x, to, ranks))
        return 0;
    hardware_limits(h, ranks, to->limit);
    char mesh[MESH_TEXT];
    say(to, "--mesh %s", mesh_format(&to->s.mesh, mesh));
    return 1;
}

/* Proposes more devices, as more nodes of the present kind; not with a given mesh, which would not use them. */
static int more_devices(const struct advisor *x, struct proposal_setup *to, int64_t times)
{
    struct hardware *h = &to->hardware;
    char name[80];
    if (!to->s.machine || h->cpu || mesh_is_given(x) || (x->p->fits && !advisor_waits(x) && !advisor_computes_twice(x)))
        return 0;
    snprintf(name, sizeof name, "%dx%s", (int)times * h->nodes * h->devices, h->name);
    if (!hardware_is_preset(to->s.machine) || !hardware_is_preset(name) || hardware_preset(name, h) != OK)
        return 0;                 /* a machine that is not a preset has no such name */
    hardware_override(h, &to->s); /* tries exactly the printed flags: a data sheet's host has memory for each device */
    int ranks = (int)times * x->p->strategy.ranks;
    if (!free_mesh(x, to, ranks))
        return 0;
    hardware_limits(h, ranks, to->limit);
    to->change.gives_more = GIVES_DEVICES;
    say(to, "--machine %s", name);
    return 1;
}

/* --- A shorter sequence --- */

static int shorter(const struct advisor *x, struct proposal_setup *to, int64_t tokens)
{
    free_placement(x, to, FREED);
    to->s.seq_len = tokens;
    to->change.shortens = 1;
    say(to, tokens % 1024 ? "--seq-len %lld" : "--seq-len %lldk", (long long)(tokens % 1024 ? tokens : tokens / 1024));
    return 1;
}

/* For a plan that does not fit, a proposal of PROPOSAL_NUMERICS is tried only if none before it helps, PROPOSAL_MORE in any case.
 * For a plan that fits, all are tried. */
const struct proposal proposals[] = {
    {free_placement, 0, PROPOSAL_PLACEMENT, PROPOSAL_FREES},
    {free_placement, 1, PROPOSAL_PLACEMENT, PROPOSAL_FREES},
    {free_placement, 2, PROPOSAL_PLACEMENT, PROPOSAL_FREES},
    {free_placement, 3, PROPOSAL_PLACEMENT, PROPOSAL_FREES},
    {free_placement, 4, PROPOSAL_PLACEMENT, PROPOSAL_FREES},
    {free_placement, FREED, PROPOSAL_PLACEMENT, PROPOSAL_FREES_ALL},
    {keep_fewer_inputs, 2, PROPOSAL_PLACEMENT, PROPOSAL_OTHER},
    {keep_fewer_inputs, 4, PROPOSAL_PLACEMENT, PROPOSAL_TIMES},
    {keep_fewer_inputs, 8, PROPOSAL_PLACEMENT, PROPOSAL_TIMES},
    {store_bf16, 0, PROPOSAL_NUMERICS, PROPOSAL_OTHER},
    {store_bf16, 1, PROPOSAL_NUMERICS, PROPOSAL_OTHER},
    {free_tiles, 0, PROPOSAL_NUMERICS, PROPOSAL_OTHER},
    {all_devices, 0, PROPOSAL_NUMERICS, PROPOSAL_OTHER},
    {pack, 16384, PROPOSAL_NUMERICS, PROPOSAL_OTHER},
    {pack, 65536, PROPOSAL_NUMERICS, PROPOSAL_OTHER},
    {whole_drives, 0, PROPOSAL_MORE, PROPOSAL_OTHER},
    {more_drives, 2, PROPOSAL_MORE, PROPOSAL_OTHER},
    {more_drives, 4, PROPOSAL_MORE, PROPOSAL_TIMES},
    {more_host, 2, PROPOSAL_MORE, PROPOSAL_OTHER},
    {more_host, 4, PROPOSAL_MORE, PROPOSAL_TIMES},
    {more_device, 2, PROPOSAL_MORE, PROPOSAL_OTHER},
    {more_device, 4, PROPOSAL_MORE, PROPOSAL_TIMES},
    {more_devices, 2, PROPOSAL_MORE, PROPOSAL_OTHER},
    {more_devices, 4, PROPOSAL_MORE, PROPOSAL_TIMES},
    {shorter, 0, PROPOSAL_LENGTH, PROPOSAL_OTHER},
};
const int proposals_n = sizeof proposals / sizeof *proposals;
_Static_assert(FREED == 5 && sizeof proposals / sizeof *proposals <= (size_t)ADVICE_MAX,
               "each proposal of free_placement is in the table, and each is kept at most once");

int proposal_start(const struct advisor *x, int proposal, int64_t tokens, struct proposal_setup *to)
{
    to->s = *x->s;
    memcpy(to->limit, x->p->limit, sizeof to->limit);
    memset(&to->change, 0, sizeof to->change);
    to->change.proposal = proposal;
    to->change.tokens = tokens;
    if (x->s->hardware) {
        to->hardware = *x->s->hardware;
        to->s.hardware = &to->hardware;
    }
    return proposals[proposal].apply(x, to, proposals[proposal].stage == PROPOSAL_LENGTH ? tokens : proposals[proposal].arg) > 0;
}

void proposal_shorten(const struct advisor *x, int64_t tokens, struct proposal_setup *to)
{
    proposal_start(x, proposals_n - 1, tokens, to);
}

enum status advisor_model(struct advisor *x, const struct proposal_setup *t, const struct model **out)
{
    *out = x->m;
    if (x->m->pos_embed < 0 || t->s.seq_len == x->s->seq_len)
        return OK;
    model_destroy(x->sized);
    x->sized = NULL;
    TRY(model_create_for(x->m, t->s.seq_len, (const char *const *)t->s.freeze.item, t->s.freeze.n, &x->sized));
    *out = x->sized;
    return OK;
}
