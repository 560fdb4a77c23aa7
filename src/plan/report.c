/* What people read of a plan. */
#include "plan/plan.h"

#include "base/units.h"

#include <string.h>

static const char *residency_name(enum residency r)
{
    static const char *const names[] = {"none", "cpu", "nvme", "recompute"};
    return names[r];
}

void plan_describe(const struct plan *p, char *buf, int size)
{
    const struct strategy *s = &p->strategy;
    int64_t chunks = ceil_div(s->rows, s->row_chunk);
    snprintf(
        buf, (size_t)size, "params=%s,grads=%s,optim=%s,acts=%s  alpha %d/%lld  update on %s  tiles rows=%lld,heads=%d,loss=%lld",
        residency_name(s->params), residency_name(s->grads), residency_name(s->optim), residency_name(s->acts), s->kept_chunks,
        (long long)chunks, s->update_on_host ? "host" : "device", (long long)s->row_chunk, s->head_tile, (long long)s->loss_tile);
}

static void cell(FILE *f, int64_t bytes)
{
    char text[32];
    fprintf(f, " %11s", bytes > 0 ? units_format_bytes(bytes, text) : "-");
}

void plan_print(const struct plan *p, const struct model *m, FILE *f)
{
    char tokens[32], line[256];
    double tokens_per_second = (double)p->tokens / p->seconds;
    const struct strategy *s = &p->strategy;
    fprintf(f, "%s %.2fM, %s tokens", m->config.name, (double)m->total_params * 1e-6, units_format_count(s->seq_len, tokens));
    if (s->ranks > 1)
        fprintf(f, " on %d ranks (dp=%d,ulysses=%d,ring=%d, zero %d)", s->ranks, s->dp, s->ulysses, s->ring, s->zero);
    fprintf(f, ": %s. Step %.3g s, %.3g tok/s (%s).\n", p->fits ? "fits" : "does not fit", p->seconds, tokens_per_second,
            p->cost.source);
    if (s->ranks > 1)
        fprintf(f, "Of each rank:\n");
    plan_describe(p, line, sizeof line);
    fprintf(f, "%s\n\n%-14s %11s %11s %11s\n", line, "", "device", "host", "nvme");
    for (int c = 0; c < CLASSES; c++) {
        fprintf(f, "%-14s", class_name((enum tensor_class)c));
        for (int t = 0; t < TIERS; t++)
            cell(f, p->peak[t][c]);
        fprintf(f, "\n");
    }
    fprintf(f, "%-14s", "peak");
    for (int t = 0; t < TIERS; t++)
        cell(f, p->arena[t]);
    fprintf(f, "   (rows peak at different moments)\n%-14s", "limit");
    for (int t = 0; t < TIERS; t++)
        cell(f, p->limit[t]);
    fprintf(f, "\n%-14s", "lower bound");
    const struct program *step = p->programs[PLAN_UPDATE_STEP];
    for (int t = 0; t < TIERS; t++)
        cell(f, step->lower_bound[t]);
    int64_t moved[LANES] = {0};
    for (int i = 0; i < step->n_instrs; i++)
        moved[step->instrs[i].lane] += step->instrs[i].bytes;
    fprintf(f, "   (bytes live at once)\n\nmoved in a step:");
    for (int l = LANE_H2D; l <= LANE_WRITE; l++) {
        char text[32];
        fprintf(f, "  %s %s", lane_name((enum lane)l), units_format_bytes(moved[l], text));
    }
    for (int l = LANE_WORLD; l < LANES; l++) {
        char text[32];
        if (moved[l] > 0)
            fprintf(f, "%s %s %s", l == LANE_WORLD ? "\nsent to other ranks, no block left out: " : " ", lane_name((enum lane)l),
                    units_format_bytes(moved[l], text));
    }
    fprintf(f, "\n");
}

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
