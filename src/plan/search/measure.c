#include "plan/search/measure.h"

#include "base/mix.h"
#include "base/sys.h"
#include "plan/lower/fixed.h"
#include "plan/lower/program.h"
#include "plan/schedule/pack.h"
#include "plan/schedule/prefetch.h"
#include "plan/search/tuning.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void add_terms(double *a, double factor, const double *b, int n)
{
    for (int i = 0; i < n; i++)
        a[i] += factor * b[i];
}

void need_add(struct need *a, double factor, const struct need *b)
{
    if (factor != 0)
        add_terms((double *)a, factor, (const double *)b, (int)(sizeof *a / sizeof(double)));
}

/* The two programs of a few chunks from which the needs of a program of many chunks follow. */
enum { FEW, MORE, SAMPLES };

/* A sample's instructions that differ in their row chunk only: they do the same to tiles of the same tensors. */
struct site {
    uint64_t key; /* 0: none */
    struct instr instr;
    struct op_call call; /* call of one of the instructions */
    int moment;
    int count[SAMPLES];
    /* attention: queries, keys and bytes of scratch memory of an instruction, which may grow otherwise than in proportion */
    int64_t queries[SAMPLES], keys[SAMPLES], scratch[SAMPLES];
    double seconds[SAMPLES], bytes[SAMPLES], flops[SAMPLES];
    double versions[SAMPLES];     /* largest version of a tensor */
    int64_t live[SAMPLES][TIERS]; /* most bytes of short-lived buffers while one of them runs */
    int is_saving;                /* the forward pass writes activations to drives */
};

/* Sites in the order in which they are found, and a hash table of them. Site 0 stands for the instructions before the first
 * computation. */
struct sites {
    struct site *site;
    int n, cap;
    int *slot; /* index of a site; 0: free */
    int slots; /* a power of 2 */
};

/* Sizes of a sample as a whole. */
struct totals {
    double instrs, buffers, persistent[TIERS];
    int64_t largest; /* bytes of the largest buffer */
};

/* Finds the best rate of products of each storage type, in FLOP/s. */
static void best_rates(const struct cost_model *cost, double out[COST_TYPES])
{
    for (int t = 0; t < COST_TYPES; t++) {
        out[t] = 1;
        for (int i = 0; i < GEMM_LAYOUTS * GEMM_SHAPES; i++)
            out[t] = fmax(out[t], cost->device.gemm[t].flops[i / GEMM_SHAPES][i % GEMM_SHAPES]);
    }
}

static int moment_of(const struct model *m, const struct instr *in)
{
    static const int parts[PHASES] = {[PHASE_NONE] = PART_OTHER,      [PHASE_IO] = PART_OTHER,  [PHASE_UPDATE] = PART_UPDATE,
                                      [PHASE_FORWARD] = PART_FORWARD, [PHASE_LOSS] = PART_LOSS, [PHASE_BACKWARD] = PART_BACKWARD};
    const int last = (int)m->config.layers - 1, layer = in->unit < 0 ? 0 : m->units[in->unit].layer;
    const int unit = in->unit < 0    ? UNIT_NONE
                     : layer < 0     ? UNIT_EMBEDDING
                     : layer < last  ? UNIT_LAYER
                     : layer == last ? UNIT_LAST_LAYER
                                     : UNIT_HEAD;
    return parts[in->phase] * UNITS + unit;
}

/* Tells whether a moment begins with the instruction. Moments follow computations: these hardly differ between placements,
 * transfers do. */
static int sets_moment(const struct instr *in)
{
    return in->lane == LANE_COMPUTE || in->phase == PHASE_UPDATE;
}

/* Tells whether the instruction writes activations to drives in the forward pass. */
static int saves_activations(const struct program *p, const struct instr *in)
{
    return in->lane == LANE_WRITE && in->phase == PHASE_FORWARD &&
           p->tensors[p->operands[in->first_operand].tensor].class == CLASS_ACT;
}

/* Makes the key of an instruction's site: of what it does, for which unit, and of the tensors of its arguments. */
static uint64_t site_key(const struct program *p, const struct instr *in, const uint64_t *names)
{
    uint64_t h = mix(mix(1, (uint64_t)in->op << 16 | (uint64_t)in->lane << 8 | in->phase),
                     (uint64_t)(uint16_t)in->unit << 16 | (uint16_t)in->predicate);
    for (int k = 0, arg = -1; k < in->n_operands; k++) {
        const struct operand *o = &p->operands[in->first_operand + k];
        if ((int)o->arg == arg)
            continue; /* a further part of an argument, of which there are as many as tiles */
        arg = (int)o->arg;
        h = mix(h, (uint64_t)arg << 8 | o->access);
        h = mix(h, o->tensor < 0 ? 0 : names[o->tensor]);
    }
    return h ? h : 1;
}

static void sites_free(struct sites *x)
{
    free(x->site);
    free(x->slot);
}

/* Makes room for `most` sites. The caller frees them, also after an error. */
static enum status sites_create(int most, struct sites *out)
{
    memset(out, 0, sizeof *out);
    out->slots = 64;
    while (out->slots < 2 * most)
        out->slots *= 2;
    out->cap = most + 1;
    out->n = 1;
    out->site = sys_malloc((size_t)out->cap * sizeof *out->site);
    out->slot = sys_calloc((size_t)out->slots, sizeof *out->slot);
    if (!out->site || !out->slot)
        return status_no_memory("while planning");
    memset(&out->site[0], 0, sizeof *out->site);
    return OK;
}

/* Finds or adds the site of a key. Returns its index; -1: there is no room for another site. */
static int site_at(struct sites *x, uint64_t key)
{
    int at = (int)(key >> 20) & (x->slots - 1);
    while (x->slot[at] && x->site[x->slot[at]].key != key)
        at = (at + 1) & (x->slots - 1);
    if (!x->slot[at]) {
        if (x->n == x->cap)
            return -1;
        memset(&x->site[x->n], 0, sizeof *x->site);
        x->site[x->n].key = key;
        x->slot[at] = x->n++;
    }
    return x->slot[at];
}

/* Notes the sizes of an attention instruction, of which a site has one for each tile of heads. */
static void note_attention(struct site *x, int sample, const struct program *p, const struct instr *in, const struct op_call *c)
{
    const struct operand *last = &p->operands[in->first_operand + in->n_operands - 1];
    x->queries[sample] = c->attrs.attn.sq;
    x->keys[sample] = c->attrs.attn.sk;
    x->scratch[sample] = last->tensor < 0 ? last->bytes : 0;
}

static void site_add(struct site *x, int sample, const struct program *p, const struct instr *in, double seconds)
{
    const struct op_call *c = program_call(p, in);
    if (x->count[sample]++ == 0)
        x->instr = *in, x->call = *c;
    x->seconds[sample] += seconds;
    x->bytes[sample] += (double)c->bytes;
    x->flops[sample] += c->flops;
    if (op_class(in->op) == OPS_ATTENTION)
        note_attention(x, sample, p, in, c);
    for (int k = 0; k < in->n_operands; k++)
        x->versions[sample] = larger(x->versions[sample], operand_version_after(&p->operands[in->first_operand + k]));
    x->is_saving = saves_activations(p, in);
}

/* Adds a sample's instructions to the sites. at: set, for each instruction, to the site of the computation that it runs beside. Returns 0
 * if there are more sites than room. */
static int add_instrs(const struct model *m, const struct cost_model *cost, const struct program *p, int sample,
                      const uint64_t *names, struct sites *x, int *at)
{
    struct cost_memo memo = {.m = cost, .p = p};
    for (int i = 0, now = 0; i < p->n_instrs; i++) {
        const struct instr *in = &p->instrs[i];
        const int site = site_at(x, site_key(p, in, names));
        if (site < 0)
            return 0;
        site_add(&x->site[site], sample, p, in, cost_memo_seconds(&memo, in));
        x->site[site].moment = moment_of(m, in);
        now = sets_moment(in) ? site : now;
        at[i] = now;
    }
    return 1;
}

static void find_totals(const struct program *p, struct totals *out)
{
    *out = (struct totals){.instrs = p->n_instrs, .buffers = p->n_buffers};
    for (int b = 0; b < p->n_persistent; b++)
        out->persistent[p->buffers[b].tier] += (double)round_up(p->buffers[b].bytes, BUFFER_ALIGN);
    for (int b = 0; b < p->n_buffers; b++)
        out->largest = max_i64(out->largest, p->buffers[b].bytes);
}

/* Finds a sample's sites and totals. *known: set to 0 if there are more sites than room. */
static enum status take_sample(const struct model *m, const struct cost_model *cost, const struct program *p, int sample,
                               struct sites *x, int *known)
{
    uint64_t *names = sys_malloc(sizeof *names * (size_t)(p->n_tensors + 1));
    int *at = sys_malloc(sizeof *at * (size_t)(p->n_instrs + 1));
    int64_t(*live)[TIERS] = NULL;
    enum status st = names && at ? OK : status_no_memory("while planning");
    for (int i = 0; st == OK && i < p->n_tensors; i++)
        names[i] = mix_text(0, p->tensors[i].name);
    if (st == OK)
        *known = add_instrs(m, cost, p, sample, names, x, at);
    if (st == OK && *known) {
        live = sys_malloc(sizeof *live * (size_t)x->n);
        st = live ? pack_live_at(p, at, x->n, live) : status_no_memory("while planning");
    }
    for (int i = 0; st == OK && *known && i < x->n; i++)
        memcpy(x->site[i].live[sample], live[i], sizeof live[i]);
    free(names);
    free(at);
    free(live);
    return st;
}

/* Adds the seconds of instructions with one call. */
static void add_busy(const struct instr *in, const struct op_call *c, int is_saving, double seconds, double flops,
                     const double best[COST_TYPES], struct need *out)
{
    out->busy[in->phase == PHASE_BACKWARD ? BACKWARD : FORWARD][in->lane] += seconds;
    if (is_saving)
        out->saved += seconds;
    if (op_class(in->op) == OPS_ATTENTION)
        out->least_compute += seconds;
    else if (op_class(in->op) == OPS_MATRIX)
        out->least_compute += flops / best[op_storage_type(in->op, &c->attrs)];
}

/* Returns the value after `times` more steps of the size that leads from the first sample to the second. */
static double extend(double few, double more, double times)
{
    return more + times * (more - few);
}

/* Sets an attention site's queries and keys. */
static void extend_attention(const struct site *x, double times, struct op_attrs *a)
{
    a->attn.sq = (int64_t)extend((double)x->queries[FEW], (double)x->queries[MORE], times);
    a->attn.sk = (int64_t)extend((double)x->keys[FEW], (double)x->keys[MORE], times);
}

/* Returns the most bytes of short-lived buffers while the site's instructions run. */
static double site_live(const struct site *x, const struct target *target, enum tier t, double times)
{
    const double live = extend((double)x->live[FEW][t], (double)x->live[MORE][t], times);
    if (t != TIER_DEVICE || x->scratch[MORE] == 0)
        return live;
    struct op_attrs attrs = x->call.attrs;
    extend_attention(x, times, &attrs);
    return live - extend((double)x->scratch[FEW], (double)x->scratch[MORE], times) +
           (double)target->workspace(target, x->instr.op, &attrs, 1);
}

/* Finds the seconds of a site. With more rows there are more instructions on chunks; all other instructions get larger, and their rates
 * change with their size. Returns 0 if the seconds do not follow from the samples. */
static int site_seconds(const struct cost_model *cost, const struct site *x, double times, double *out)
{
    *out = extend(x->seconds[FEW], x->seconds[MORE], times);
    if (x->count[FEW] == 0 || x->count[MORE] == 0)
        return 0;
    if (x->count[FEW] != x->count[MORE] || (x->instr.lane != LANE_COMPUTE && x->instr.lane != LANE_HOST))
        return 1;
    if (op_class(x->instr.op) == OPS_MATRIX)
        return x->flops[FEW] == x->flops[MORE];
    if (x->bytes[FEW] == x->bytes[MORE] && x->queries[FEW] == x->queries[MORE])
        return 1;
    struct op_call call = x->call;
    call.bytes = (int64_t)(extend(x->bytes[FEW], x->bytes[MORE], times) / x->count[MORE]);
    if (op_class(x->instr.op) == OPS_ATTENTION) {
        extend_attention(x, times, &call.attrs);
        call.flops = x->flops[MORE] / x->count[MORE];
    }
    *out = x->count[MORE] * cost_seconds(cost, &x->instr, &call);
    return 1;
}

/* Extrapolates the needs of a program from two samples. times: steps from the second sample to the program, in steps from the first
 * sample to the second. Returns 0 if the needs do not follow from the samples. */
static int combine_sites(const struct cost_model *cost, const struct target *target, const struct sites *x,
                         const struct totals total[SAMPLES], double times, struct need *out)
{
    double best[COST_TYPES], seconds;
    best_rates(cost, best);
    memset(out, 0, sizeof *out);
    out->instrs = extend(total[FEW].instrs, total[MORE].instrs, times);
    out->buffers = extend(total[FEW].buffers, total[MORE].buffers, times);
    for (int t = 0; t < TIERS; t++)
        out->persistent[t] = extend(total[FEW].persistent[t], total[MORE].persistent[t], times);
    for (int i = 0; i < x->n; i++) {
        const struct site *site = &x->site[i];
        for (int t = 0; t < TIERS; t++) {
            double *most = &out->short_lived[site->moment][t];
            *most = larger(*most, site_live(site, target, (enum tier)t, times));
        }
        out->versions = larger(out->versions, extend(site->versions[FEW], site->versions[MORE], times));
        if (i == 0)
            continue;
        if (!site_seconds(cost, site, times, &seconds))
            return 0;
        add_busy(&site->instr, &site->call, site->is_saving, seconds, extend(site->flops[FEW], site->flops[MORE], times), best,
                 out);
    }
    return 1;
}

/* Lowers the program of s. */
static enum status lower(const struct model *m, const struct strategy *s, int duties, struct program **out)
{
    struct io_buffers io;
    TRY(lower_program(m, s, duties, &io, out));
    if ((*out)->excess <= EXCESS_BYTES)
        return OK;
    enum status beyond = program_built(*out);
    program_destroy(*out);
    return beyond;
}

/* Measures the short-lived bytes of each moment. */
static enum status measure_short_lived(const struct model *m, const struct program *p, double out[MOMENTS][TIERS])
{
    int64_t live[MOMENTS][TIERS];
    int *moment = sys_malloc(sizeof *moment * ((size_t)p->n_instrs + 1));
    if (!moment)
        return status_no_memory("while planning");
    for (int i = 0, now = 0; i < p->n_instrs; i++) {
        now = sets_moment(&p->instrs[i]) ? moment_of(m, &p->instrs[i]) : now;
        moment[i] = now;
    }
    enum status st = pack_live_at(p, moment, MOMENTS, live);
    for (int k = 0; st == OK && k < MOMENTS; k++)
        for (int t = 0; t < TIERS; t++)
            out[k][t] = (double)live[k][t];
    free(moment);
    return st;
}

enum status measure_whole(const struct subject *x, const struct strategy *s, int duties, struct need *out)
{
    const struct model *m = x->model;
    const struct problem *p = x->problem;
    struct strategy given = *s;
    struct program *whole;
    struct totals total;
    struct cost_memo memo = {.m = &p->cost};
    double best[COST_TYPES];
    plan_keep_as_given(m, &p->request, &given);
    TRY(lower(m, &given, duties, &whole));
    memo.p = whole;
    best_rates(&p->cost, best);
    memset(out, 0, sizeof *out);
    find_totals(whole, &total);
    out->instrs = total.instrs;
    out->buffers = total.buffers;
    for (int i = 0; i < whole->n_operands; i++)
        out->versions = larger(out->versions, operand_version_after(&whole->operands[i]));
    memcpy(out->persistent, total.persistent, sizeof out->persistent);
    for (int i = 0; i < whole->n_instrs; i++) {
        const struct instr *in = &whole->instrs[i];
        const struct op_call *c = program_call(whole, in);
        add_busy(in, c, saves_activations(whole, in), cost_memo_seconds(&memo, in), c->flops, best, out);
    }
    enum status st = measure_short_lived(m, whole, out->short_lived);
    program_destroy(whole);
    return st;
}

/* Numbers of row chunks of the samples. */
static const int sample_chunks[SAMPLES] = {4, 6};

/* Shortens a sequence to a few row chunks, the last of which has as many rows as before. */
static void shorten(const struct strategy *s, int chunks, int sample, struct strategy *out)
{
    *out = *s;
    out->rows = s->rows - (chunks - sample) * s->key.row_chunk;
    out->placement.kept_chunks = s->placement.kept_chunks > 0 ? sample : 0;
}

/* Sets the samples of a program of many chunks. Returns 0 if the program has no samples: it is short itself, or some of its chunks are
 * kept and others recomputed, so that live bytes do not grow in proportion. */
static int set_samples(const struct strategy *s, struct strategy out[SAMPLES], double *times)
{
    const struct placement *p = &s->placement;
    const int chunks = (int)ceil_div(s->rows, s->key.row_chunk), few = sample_chunks[FEW], more = sample_chunks[MORE];
    if (chunks <= few + more || s->key.row_chunk % s->key.loss_tile || p->full_more || p->light_fewer || p->device_chunks ||
        (p->kept_chunks > 0 && p->kept_chunks < chunks))
        return 0;
    shorten(s, chunks, few, &out[FEW]);
    shorten(s, chunks, more, &out[MORE]);
    *times = (double)(chunks - more) / (more - few);
    return 1;
}

/* Measures from samples. *known: 0 if the needs do not follow from them. */
static enum status measure_samples(const struct problem *p, const struct model *m, const struct strategy s[SAMPLES], int duties,
                                   double times, int *known, struct need *out)
{
    struct program *program[SAMPLES] = {NULL};
    struct totals total[SAMPLES];
    struct sites sites = {0};
    enum status st = OK;
    *known = 1;
    for (int i = 0; st == OK && i < SAMPLES; i++)
        st = lower(m, &s[i], duties, &program[i]);
    if (st == OK)
        st = sites_create(program[FEW]->n_instrs + 1, &sites);
    for (int i = 0; st == OK && *known && i < SAMPLES; i++) {
        find_totals(program[i], &total[i]);
        st = take_sample(m, &p->cost, program[i], i, &sites, known);
    }
    if (st == OK && *known)
        *known = extend((double)total[FEW].largest, (double)total[MORE].largest, times) < PROGRAM_MOST_BYTES / 2.0 &&
                 combine_sites(&p->cost, s->target, &sites, total, times, out);
    sites_free(&sites);
    for (int i = 0; i < SAMPLES; i++)
        program_destroy(program[i]);
    return st;
}

enum status measure_sampled(const struct subject *x, const struct strategy *s, int duties, int *known, struct need *out)
{
    struct strategy samples[SAMPLES];
    double times;
    *known = 0;
    return duties != DUTY_UPDATE && set_samples(s, samples, &times) /* an update's program does not depend on chunks */
               ? measure_samples(x->problem, x->model, samples, duties, times, known, out)
               : OK;
}

enum status measure_need(const struct subject *x, const struct strategy *s, int duties, struct need *out)
{
    struct strategy given = *s;
    int known;
    plan_keep_as_given(x->model, &x->problem->request, &given);
    TRY(measure_sampled(x, &given, duties, &known, out));
    return known ? OK : measure_whole(x, s, duties, out);
}
