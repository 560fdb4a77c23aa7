/* Prints the parts of a rank's memory: `memory_parts OPTION...`, with options as for `ltrain plan`.
 *
 * It looks at the program that needs most of a tier, at the moment at which the tier is fullest. For each kind of buffer it
 * prints a line "TIER NAME BYTES" (NAME: the first tensor that the buffer holds, without numbers, or the op whose scratch memory
 * it is), and "TIER holes BYTES" for the gaps between buffers. A tier's lines add up to its arena. */
#include "base/num.h"
#include "settings/read.h"
#include "train/train.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct part {
    char name[64];
    int64_t bytes;
};

/* Shortens "unit3.param" to "unit.param". */
static void kind_of(const char *name, char out[64])
{
    int n = 0;
    for (const char *at = name; *at && n < 63; at++)
        if (!isdigit((unsigned char)*at))
            out[n++] = *at;
    out[n] = 0;
}

static void name_buffers(const struct program *p, char (*name)[64])
{
    for (int i = p->n_instrs - 1; i >= 0; i--)
        for (int k = p->instrs[i].n_operands - 1; k >= 0; k--) {
            const struct operand *o = &p->operands[p->instrs[i].first_operand + k];
            if (o->tensor >= 0)
                kind_of(p->tensors[o->tensor].name, name[o->buffer]);
            else if (!name[o->buffer][0])
                snprintf(name[o->buffer], 64, "scratch of %s", op_name(p->instrs[i].op));
        }
    for (int i = 0; i < p->n_live_in; i++)
        kind_of(p->tensors[p->live_in[i].tensor].name, name[p->live_in[i].buffer]);
}

static int is_live(const struct program *p, int b, double t)
{
    return b < p->n_persistent || (p->buffers[b].t0 <= t && t < p->buffers[b].t1);
}

static int64_t live_bytes(const struct program *p, enum tier tier, double t)
{
    int64_t sum = 0;
    for (int b = 0; b < p->n_buffers; b++)
        if (p->buffers[b].tier == tier && is_live(p, b, t))
            sum += round_up(p->buffers[b].bytes, BUFFER_ALIGN);
    return sum;
}

static void print_tier(const struct program *p, enum tier tier, char (*name)[64])
{
    double when = -1;
    int64_t most = -1, listed = 0;
    for (int b = 0; b < p->n_buffers; b++) { /* the tier is fullest at a moment at which a buffer's life begins */
        int64_t live = p->buffers[b].tier == tier ? live_bytes(p, tier, b < p->n_persistent ? -1 : p->buffers[b].t0) : -1;
        if (live > most) {
            most = live;
            when = b < p->n_persistent ? -1 : p->buffers[b].t0;
        }
    }
    struct part *parts = calloc((size_t)p->n_buffers + 1, sizeof *parts);
    int n = 0;
    for (int b = 0; b < p->n_buffers && parts; b++) {
        int k = 0;
        if (p->buffers[b].tier != tier || !is_live(p, b, when))
            continue;
        while (k < n && strcmp(parts[k].name, name[b]) != 0)
            k++;
        if (k == n)
            snprintf(parts[n++].name, sizeof parts->name, "%s", name[b]);
        parts[k].bytes += round_up(p->buffers[b].bytes, BUFFER_ALIGN);
    }
    static const char *const tiers[] = {"device", "host", "nvme"};
    for (int k = 0; k < n; listed += parts[k++].bytes)
        printf("%s\t%s\t%lld\n", tiers[tier], parts[k].name, (long long)parts[k].bytes);
    printf("%s\tholes\t%lld\n", tiers[tier], (long long)(p->arena[tier] - listed));
    free(parts);
}

int main(int argc, char **argv)
{
    struct settings s;
    struct settings_flags *flags;
    struct comm *comm;
    struct model *m;
    struct train_plans plans;
    int64_t limit[TIERS];
    if (settings_flags_parse(argc - 1, argv + 1, &flags) != OK || settings_read(flags, SETTINGS_PLAN, &s) != OK ||
        comm_create_self(&comm) != OK || train_open_model(&s, &m) != OK ||
        train_plan(&s, comm, train_planned_ranks(&s), m, &plans, limit) != OK) {
        fprintf(stderr, "%s\n", status_message());
        return 1;
    }
    const struct plan *plan = plans.plan[0];
    for (int t = 0; t < TIERS; t++) {
        const struct program *p = NULL;
        for (int k = 0; k < PLAN_PROGRAMS; k++)
            if (plan->programs[k] && (!p || plan->programs[k]->arena[t] > p->arena[t]))
                p = plan->programs[k];
        char(*name)[64] = calloc((size_t)p->n_buffers + 1, sizeof *name);
        if (!name)
            return 1;
        name_buffers(p, name);
        print_tier(p, (enum tier)t, name);
        free(name);
    }
    return 0;
}
