/* Figures of a plan, from its programs on the virtual clock. */
#include "plan/report/figures.h"

#include "base/sys.h"
#include "plan/report/describe.h"
#include "plan/roles.h"
#include "plan/ticks.h"
#include "program/stalls.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct span planned(const void *user, const struct program *p, int i)
{
    (void)user;
    return (struct span){p->instrs[i].start, p->instrs[i].end};
}

static void add_busy(const struct program *p, enum lane saving, double count, struct report *r)
{
    for (int i = 0; i < p->n_instrs; i++) {
        const struct instr *in = &p->instrs[i];
        const struct op_call *call = program_call(p, in);
        struct report_lane *lane = &r->lane[in->lane];
        lane->instrs += (int64_t)count;
        lane->busy += count * (in->end - in->start);
        if (in->lane == LANE_COMPUTE) {
            r->compute[op_class(in->op)] += count * (in->end - in->start);
            r->hardware_flops += count * call->flops;
            continue;
        }
        lane->bytes += (int64_t)count * call->bytes;
        if (in->lane == saving && in->phase == PHASE_FORWARD && stalls_class(p, in) == CLASS_ACT)
            r->saved += (int64_t)count * call->bytes;
        if (in->lane != LANE_HOST)
            r->moved[stalls_class(p, in)] += (int64_t)count * call->bytes;
    }
}

/* --- Experts --- */

/* Marks the units of experts. The caller frees the result; NULL: there are no experts. */
static enum status mark_experts(const struct model *m, unsigned char **out)
{
    *out = NULL;
    if (m->config.experts == 0)
        return OK;
    *out = sys_calloc((size_t)m->n_units, 1);
    if (!*out)
        return status_no_memory("for the plan's report");
    for (int u = 0; u < m->n_units; u++)
        (*out)[u] = (unsigned char)model_unit_has_experts(m, u);
    return OK;
}

/* Adds the bytes of experts' state that a program moves, and takes the largest number of them that any program finds at its start. */
static void add_experts(const struct program *p, const unsigned char *apart, double count, struct report *r)
{
    int64_t held[TIERS] = {0};
    for (int i = 0; i < p->n_live_in; i++) {
        const struct binding *b = &p->live_in[i];
        if (b->unit >= 0 && apart[b->unit])
            held[p->buffers[b->buffer].tier] += (b->row1 - b->row0) * p->tensors[b->tensor].row_bytes;
    }
    for (int t = 0; t < TIERS; t++)
        r->experts.held[t] = max_i64(r->experts.held[t], held[t]);
    for (int i = 0; i < p->n_instrs; i++) {
        const struct instr *in = &p->instrs[i];
        if (in->unit >= 0 && apart[in->unit] && in->lane != LANE_COMPUTE && in->lane != LANE_HOST)
            r->experts.moved += (int64_t)count * program_call(p, in)->bytes;
    }
}

/* --- Recomputation --- */

/* A set of hashes with open addressing; 0: free. */
struct seen {
    uint64_t *key;
    size_t mask;
};

static int seen_before(struct seen *s, uint64_t key)
{
    size_t at = (size_t)(key >> 20) & s->mask;
    for (; s->key[at]; at = (at + 1) & s->mask)
        if (s->key[at] == key)
            return 1;
    s->key[at] = key;
    return 0;
}

static uint64_t mix(uint64_t h, int64_t x)
{
    h = (h ^ (uint64_t)x) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

/* Returns a hash of an instruction's op, its attributes, the parameters it reads and the rows it writes; 0: it reads no
 * parameters. */
static uint64_t work_key(const struct program *p, const struct instr *in)
{
    uint64_t key = mix(1, (int64_t)in->op);
    int parameters = 0;
    const struct op_attrs *a = &program_call(p, in)->attrs;
    for (size_t i = 0; i < sizeof a->words / sizeof *a->words; i++)
        key = mix(key, a->words[i]);
    for (int k = 0; k < in->n_operands; k++) {
        const struct operand *o = &p->operands[in->first_operand + k];
        int parameter = o->tensor >= 0 && p->tensors[o->tensor].class == CLASS_PARAM;
        parameters += parameter;
        if (parameter)
            key = mix(mix(mix(key, o->tensor), o->row0), operand_row1(p, o));
        else if (o->access != ACCESS_READ)
            key = mix(key, o->row0);
    }
    return parameters ? key | 1 : 0;
}

/* Adds up the seconds of recomputation: instructions that repeat an earlier one's op on the same rows with the same parameters.
 * Rope and activation functions have no parameters and are not counted, as they take next to no time. */
static enum status add_recomputed(const struct program *p, double count, struct report *r)
{
    struct seen s = {.mask = 1};
    while (s.mask < 2 * (size_t)p->n_instrs)
        s.mask *= 2;
    s.key = sys_calloc(s.mask, sizeof *s.key);
    if (!s.key)
        return status_fail(ERR_NOMEM, "out of memory for the plan's report");
    s.mask--;
    for (int i = 0; i < p->n_instrs; i++) {
        const struct instr *in = &p->instrs[i];
        uint64_t key = in->lane == LANE_COMPUTE ? work_key(p, in) : 0;
        if (key && seen_before(&s, key))
            r->recomputed += count * (in->end - in->start);
    }
    free(s.key);
    return OK;
}

/* --- The whole --- */

void report_counts(const struct plan *p, int64_t count[PLAN_PROGRAMS])
{
    memset(count, 0, sizeof *count * PLAN_PROGRAMS);
    if (p->fits && strategy_stages(&p->strategy) > 1) {
        const struct ticks t = plan_ticks(p);
        ticks_runs(&t, count);
        count[PLAN_FLUSH] = 1;
        return;
    }
    count[PLAN_UPDATE_STEP] = p->fits ? 1 : p->micro_batches;
    if (p->fits && p->micro_batches > 1) {
        count[PLAN_MORE] = p->micro_batches - 2;
        count[PLAN_LAST] = 1;
    }
}

static void add_rates(const struct plan *p, const struct model *m, struct report *r)
{
    double busy = 0, exposed = 0;
    int64_t length = p->tokens / p->sequences;
    double pairs[MODEL_MASKS];
    model_causal_pairs(m, length, pairs);
    r->model_flops = (double)p->sequences * model_flops(m, length, pairs);
    r->tokens_per_second = (double)p->tokens / plan_step_seconds(p);
    r->mfu = r->model_flops / (plan_step_seconds(p) * p->strategy.ranks * plan_peak_flops(p));
    r->written_per_day = (double)r->lane[LANE_WRITE].bytes * p->strategy.ranks * DAY / p->seconds;
    for (int l = LANE_COMPUTE + 1; l < LANES; l++) {
        busy += r->lane[l].busy;
        exposed += r->lane[l].exposed;
    }
    r->hidden = busy > 0 ? 1 - exposed / busy : NAN;
}

static void add_stalls(const struct stalls *s, struct report *r)
{
    memcpy(r->waited, s->waited, sizeof r->waited);
    memcpy(r->exposed, s->class, sizeof r->exposed);
    for (int l = 0; l < LANES; l++)
        r->lane[l].exposed = s->lane[l];
    r->experts.exposed = s->apart;
}

/* Adds up the figures of all programs. apart: marks the units of experts, if the model has some. */
static enum status add_programs(const struct plan *p, const unsigned char *apart, struct report *r)
{
    struct stalls stalls = {0};
    int64_t count[PLAN_PROGRAMS];
    report_counts(p, count);
    for (int k = 0; k < PLAN_PROGRAMS; k++) {
        const struct program *program = p->programs[k];
        struct lane_index index;
        const struct timeline clock = {.p = program, .index = &index, .span = planned, .apart = apart};
        for (int t = 0; program && t < TIERS; t++) {
            r->lower_bound[t] = max_i64(r->lower_bound[t], program->lower_bound[t]);
            r->serial_bound[t] = max_i64(r->serial_bound[t], program->serial_bound[t]);
        }
        if (!program || count[k] == 0)
            continue;
        TRY(lane_index_make(program, &index));
        add_busy(program, p->strategy.placement.acts == RES_NVME ? LANE_WRITE : LANE_D2H, (double)count[k], r);
        if (apart)
            add_experts(program, apart, (double)count[k], r);
        stalls_add(&clock, program->seconds, (double)count[k], &stalls);
        lane_index_free(&index);
        TRY(add_recomputed(program, (double)count[k], r));
    }
    add_stalls(&stalls, r);
    return OK;
}

enum status report_make(const struct plan *p, const struct model *m, struct report *out)
{
    unsigned char *apart;
    TRY(mark_experts(m, &apart));
    memset(out, 0, sizeof *out);
    enum status st = add_programs(p, apart, out);
    free(apart);
    if (st == OK)
        add_rates(p, m, out);
    return st;
}

enum lane report_slowest_lane(const struct report *r)
{
    enum lane slowest = LANE_H2D;
    for (int l = LANE_H2D + 1; l < LANES; l++)
        if (r->lane[l].exposed > r->lane[slowest].exposed)
            slowest = (enum lane)l;
    return slowest;
}
