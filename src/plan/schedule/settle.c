#include "plan/schedule/settle.h"

#include "base/sys.h"

#include <stdlib.h>

static int is_reduction(const struct instr *in)
{
    return (in->lane == LANE_WORLD || in->lane == LANE_ZERO || in->lane == LANE_STAGE) &&
           (in->op == OP_REDUCE_SCATTER || in->op == OP_ALL_REDUCE);
}

/* Returns 1 if instruction i waits for an instruction that is part of settling. */
static int follows(const struct deps *d, const uint8_t *part, int i)
{
    for (int k = d->first[i]; k < d->first[i + 1]; k++)
        if (part[d->dep[k]] != SETTLING_NONE)
            return 1;
    return 0;
}

static enum settling_part part_of(const struct program *p, const struct deps *d, const uint8_t *part, int i)
{
    const struct instr *in = &p->instrs[i];
    if (is_reduction(in))
        return SETTLING_REDUCTION;
    const int adds = in->lane == LANE_COMPUTE && (in->op == OP_ACCUM || in->op == OP_SUMSQ);
    return adds && follows(d, part, i) ? SETTLING_SUM : SETTLING_NONE;
}

/* Instructions of two units, one after the other in the lowered order: those of the earlier unit begin at `earlier` and end at
 * `later`. */
struct units {
    int earlier, later;
};

/* Appends to `dep` the earlier unit's last instructions of settling. Returns the new number of dependencies. */
static int wait_for_earlier(const uint8_t *part, const struct units *u, int *dep, int n)
{
    for (int i = u->earlier; i < u->later; i++)
        if (part[i] == SETTLING_SUM || (part[i] == SETTLING_REDUCTION && part[i + 1] != SETTLING_SUM))
            dep[n++] = i;
    return n;
}

/* Sets s->deps: the first compute instruction after a unit's reductions waits until all of the previous unit's are added. */
static enum status add_bounds(const struct program *p, const struct deps *d, struct settling *s)
{
    int n = p->n_instrs, parts = 0, k = 0, unit = -1, bound = 0;
    struct units u = {0, 0};
    for (int i = 0; i < n; i++)
        parts += s->part[i] != SETTLING_NONE;
    int *first = s->deps.first = sys_malloc(sizeof *first * (size_t)(n + 1));
    int *dep = s->deps.dep = sys_malloc(sizeof *dep * (size_t)(d->first[n] + parts + 1));
    if (!first || !dep)
        return status_no_memory("while planning");
    for (int i = 0; i < n; i++) {
        const struct instr *in = &p->instrs[i];
        if (s->part[i] == SETTLING_REDUCTION && in->unit != unit) {
            bound = unit >= 0;
            unit = in->unit;
            u = (struct units){u.later, i};
        }
        first[i] = k;
        for (int e = d->first[i]; e < d->first[i + 1]; e++)
            dep[k++] = d->dep[e];
        if (bound && in->lane == LANE_COMPUTE && s->part[i] == SETTLING_NONE) {
            k = wait_for_earlier(s->part, &u, dep, k);
            bound = 0;
        }
    }
    first[n] = k;
    return OK;
}

enum status settling_find(const struct program *p, const struct deps *d, struct settling *out)
{
    int i = 0;
    *out = (struct settling){0};
    while (i < p->n_instrs && !is_reduction(&p->instrs[i]))
        i++;
    if (i == p->n_instrs)
        return OK;
    out->part = sys_calloc((size_t)p->n_instrs, sizeof *out->part);
    if (!out->part)
        return status_no_memory("while planning");
    for (; i < p->n_instrs; i++)
        out->part[i] = (uint8_t)part_of(p, d, out->part, i);
    enum status st = add_bounds(p, d, out);
    if (st != OK)
        settling_free(out);
    return st;
}

void settling_free(struct settling *s)
{
    free(s->part);
    hazards_free(&s->deps);
    s->part = NULL;
}
