/* Placements and grids in a line. */
#include "plan/report/describe.h"

#include "program/drives.h"

#include <math.h>
#include <stdio.h>

static const char *residency_name(enum residency r)
{
    static const char *const names[] = {"none", "cpu", "nvme", "recompute"};
    return names[r];
}

static int uses_drives(const struct strategy *s)
{
    return s->params == RES_NVME || s->grads == RES_NVME || s->optim == RES_NVME || s->acts == RES_NVME;
}

/* What layers save of all chunks: each kind, if they differ. */
static void describe_saved(const struct strategy *s, long long chunks, char buf[64])
{
    if (s->full_more == 0 && s->window_fewer == 0)
        snprintf(buf, 64, "%d/%lld", s->saved_chunks, chunks);
    else
        snprintf(buf, 64, "window=%d/%lld,full=%d/%lld", strategy_saved(s, 1), chunks, strategy_saved(s, 0), chunks);
}

void strategy_describe(const struct strategy *s, char *buf, int size)
{
    char saved[64];
    char inputs[32] = "", split[48] = "", carry[64] = "", writes[32] = "", promoted[64] = "";
    long long chunks = ceil_div(s->rows, s->row_chunk);
    describe_saved(s, chunks, saved);
    if (s->device_chunks > 0)
        snprintf(split, sizeof split, " (%d of %lld chunks on the device)", s->device_chunks, chunks);
    if (s->promoted_layers > 0)
        snprintf(promoted, sizeof promoted, " (%s of %d layer%s on the %s)", class_name(s->promoted_class), s->promoted_layers,
                 s->promoted_layers > 1 ? "s" : "", tier_name((enum tier)s->promote_tier));
    if (s->carry != s->acts)
        snprintf(carry, sizeof carry, " (what layers pass on stays on the %s)", tier_name((enum tier)s->carry));
    if (s->keep_every > 1)
        snprintf(inputs, sizeof inputs, "  inputs 1/%d", s->keep_every);
    if (s->write_depth > 0 && uses_drives(s))
        snprintf(writes, sizeof writes, "  writes %d/%d", s->write_depth, DRIVE_DEPTH);
    snprintf(buf, (size_t)size,
             "params=%s,grads=%s,optim=%s,acts=%s%s%s%s  alpha %s%s  update on %s%s  tiles rows=%lld,heads=%d,loss=%lld",
             residency_name(s->params), residency_name(s->grads), residency_name(s->optim), residency_name(s->acts), split,
             promoted, carry, saved, inputs,
             strategy_updates_on_both(s) ? "both"
             : s->update_on_host         ? "host"
                                         : "device",
             writes, (long long)s->row_chunk, s->head_tile, (long long)s->loss_tile);
}

void plan_describe(const struct plan *p, char *buf, int size)
{
    char text[PLAN_TEXT], why[128] = "";
    const struct default_grid *u = &p->default_grid;
    strategy_describe(&p->strategy, text, sizeof text);
    if (p->finer)
        snprintf(why, sizeof why, " (to fit: nothing does with the default tiles)");
    else if (u->head_tile > 0 && isinf(u->slower))
        snprintf(why, sizeof why, " (for speed: it does not fit with rows=%lld,heads=%d,loss=%lld)", (long long)u->row_chunk,
                 u->head_tile, (long long)u->loss_tile);
    else if (u->head_tile > 0)
        snprintf(why, sizeof why, " (for speed: rows=%lld,heads=%d,loss=%lld take %.*f%% longer)", (long long)u->row_chunk,
                 u->head_tile, (long long)u->loss_tile, u->slower < 0.01, 100 * u->slower);
    snprintf(buf, (size_t)size, "%s%s", text, why);
}

void plan_longest_flags(const struct plan *p, char buf[96])
{
    char mesh[MESH_TEXT];
    const struct strategy *s = &p->strategy;
    int n = 0;
    buf[0] = 0;
    if (p->longest.mesh)
        n = snprintf(buf, 96, " --mesh %s", mesh_format(&s->mesh, mesh));
    if (p->longest.tiles)
        snprintf(buf + n, (size_t)(96 - n), " --tiles rows=%lld,heads=%d,loss=%lld", (long long)s->row_chunk, s->head_tile,
                 (long long)s->loss_tile);
}
