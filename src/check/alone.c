/* The run that a check compares with: one rank, everything resident; if it does not fit, settings that would. */
#include "check/alone.h"

#include "base/units.h"

#include <stdio.h>

#define SHORTEST 64 /* tokens: shorter sequences are not proposed */

void check_alone_settings(const struct settings *given, enum check_tiles tiles, struct settings *out)
{
    *out = *given;
    out->plan.mesh = mesh_uniform(1);
    out->plan.open_degrees = 0;
    out->plan.packing_is_open = 0;
    out->sp = SP_NONE;
    out->plan.ranks = AUTO;
    out->plan.zero = 0;
    out->plan.grad_accum = ceil_div(given->plan.batch, given->plan.micro_batch);
    out->plan.experts = OFFLOAD_AUTO;
    out->plan.params = out->plan.grads = out->plan.optim = out->plan.acts = OFFLOAD_NONE;
    out->plan.alpha = out->plan.prefetch = AUTO;
    out->plan.alpha_by_kind = 0;
    out->plan.keep_inputs = AUTO;
    out->plan.update = UPDATE_DEVICE;
    out->plan.device = given->plan.device == DEVICE_CUDA ? DEVICE_CUDA : DEVICE_CPU;
    out->plan.device_mem = out->plan.host_mem = out->plan.nvme_max = AUTO;
    out->plan.link_gbps = 0;
    out->mode = MODE_RUN;
    out->trace = AUTO;
    if (tiles == TILES_OWN)
        out->plan.row_chunk = out->plan.head_tile = out->plan.loss_tile = AUTO;
}

/* Plans in `bytes` of memory. *need: bytes; *plan: NULL if that is too many. */
static enum status try_plan(const struct model *m, const struct settings *s, int64_t bytes, struct plan **plan, int64_t *need)
{
    const int64_t limit[TIERS] = {bytes, bytes, 0};
    TRY(plan_create(m, &s->plan, limit, plan));
    *need = (*plan)->arena[TIER_DEVICE] + (*plan)->arena[TIER_HOST];
    if (!(*plan)->fits || *need > bytes) {
        plan_destroy(*plan);
        *plan = NULL;
    }
    return OK;
}

static int fits(const struct model *m, const struct settings *s, int64_t bytes)
{
    struct plan *plan = NULL;
    int64_t need;
    int good = try_plan(m, s, bytes, &plan, &need) == OK && plan;
    plan_destroy(plan);
    return good;
}

/* Returns the first of half, quarter, ... of the length that fits; 0: none. */
static int64_t shorter(const struct model *m, const struct settings *s, int64_t bytes)
{
    struct settings changed = *s;
    changed.plan.row_chunk = changed.plan.head_tile = changed.plan.loss_tile = AUTO;
    for (changed.plan.seq_len /= 2; changed.plan.seq_len >= SHORTEST; changed.plan.seq_len /= 2) {
        struct model *sized;
        if (model_create_for(m, changed.plan.seq_len, (const char *const *)s->plan.freeze.item, s->plan.freeze.n, &sized) != OK)
            return 0;
        int good = fits(sized, &changed, bytes);
        model_destroy(sized);
        if (good)
            return changed.plan.seq_len;
    }
    return 0;
}

/* Returns the largest preset, smaller than the model, that fits with this length; NULL: none. */
static const char *smaller(const struct model *m, const struct settings *s, int64_t bytes)
{
    static const char *const preset[] = {"8b", "1b", "125m", "25m", "tiny"};
    struct settings changed = *s;
    changed.plan.row_chunk = changed.plan.head_tile = changed.plan.loss_tile = AUTO;
    for (size_t i = 0; i < sizeof preset / sizeof *preset; i++) {
        struct model_config config;
        struct model *other;
        if (model_preset(preset[i], &config) != OK || model_create(&config, NULL, 0, &other) != OK)
            continue;
        int good = other->total_params < m->total_params && fits(other, &changed, bytes);
        model_destroy(other);
        if (good)
            return preset[i];
    }
    return NULL;
}

enum status check_alone_plan(const struct model *m, const struct settings *s, int64_t bytes, struct plan **out)
{
    struct plan *plan = NULL;
    char a[32], b[32], what[256];
    int64_t need;
    TRY(try_plan(m, s, bytes, &plan, &need));
    if (plan) {
        *out = plan;
        return OK;
    }
    int64_t length = shorter(m, s, bytes);
    const char *preset = length ? NULL : smaller(m, s, bytes);
    if (length)
        snprintf(what, sizeof what, "--seq-len %lld would fit", (long long)length);
    else if (preset)
        snprintf(what, sizeof what, "no length fits with this model; --model %s would", preset);
    else
        snprintf(what, sizeof what, "no preset fits with this length: free memory, or shorten --seq-len");
    return status_fail(ERR_NOFIT,
                       "check: alone and resident this needs %s, and %s of rank 0's memory are left beside the run: %s",
                       units_format_bytes(need, a), units_format_bytes(bytes, b), what);
}
