#include "machine/observed.h"

#include <math.h>
#include <string.h>

/* Length of a causal sequence at which processors' attention has half of its rate for long ones: packing and the rows' own work
 * take as long as the pairs then. One core's rates from 256 to 8,192 tokens show 150 in both directions (AVX-512, head dim 64). */
#define HALF_LENGTH 150.0
/* Size of a product's dimension at which processors have half of their rate for large ones. Two cores' steps of a 25m model at
 * 1,024 and 4,096 tokens show about that (AVX-512; sizes from 128 to 8,192). */
#define HALF_SIZE 100.0
/* Largest factor of a correction. A larger quotient means that the process was stopped, or that hardly anything was measured. */
#define MOST_CORRECTION 30.0
#define LEAST_SECONDS 1e-5 /* seconds of one kind of work below which its rates are not corrected */

static void add(struct observed_sum *s, double planned, double measured)
{
    s->planned += planned;
    s->measured += measured;
    s->n++;
}

/* Makes rates of attention depend on pairs for each row, as they do. Measured curves are of causal sequences and stay; processors'
 * single figure becomes a curve. */
static void rates_by_pairs(struct attention_rates *r, int cpu)
{
    struct curve *curves[] = {&r->forward, &r->backward};
    for (size_t i = 0; cpu && i < sizeof curves / sizeof *curves; i++) {
        const double most = curves[i]->y[0];
        if (curves[i]->n != 1)
            continue;
        curves[i]->n = CURVE_POINTS;
        for (int k = 0; k < CURVE_POINTS; k++) {
            curves[i]->x[k] = 128 << k;
            curves[i]->y[k] = most * curves[i]->x[k] / (curves[i]->x[k] + HALF_LENGTH);
        }
    }
}

/* Makes rates of products depend on their sizes where processors' single figure stands for all; measured ones stay. */
static void rates_by_size(struct gemm_rates *r, int cpu)
{
    struct gemm_rates part;
    hardware_set_gemm(&part, 1, HALF_SIZE);
    for (int l = 0; cpu && l < GEMM_LAYOUTS; l++) {
        double *flops = r->flops[l];
        int alike = 1;
        for (int i = 1; i < GEMM_SHAPES; i++)
            alike = alike && flops[i] == flops[0];
        for (int i = 0; alike && i < GEMM_SHAPES; i++)
            flops[i] *= part.flops[l][i];
    }
}

/* Returns the ratio of a product's seconds by rates_by_size to its planned ones. */
static double product_as_corrected(const struct cost_model *m, const struct cost_product *p)
{
    struct gemm_rates by_size = m->device.gemm[p->type];
    rates_by_size(&by_size, m->widens);
    return gemm_rate(&m->device.gemm[p->type], p->layout, p->sizes.m, p->sizes.n, p->sizes.k) /
           gemm_rate(&by_size, p->layout, p->sizes.m, p->sizes.n, p->sizes.k);
}

/* Returns the ratio of an instruction's seconds by those rates which observed_correct scales to its planned ones. */
static double as_corrected(const struct cost_model *m, const struct instr *in, const struct op_call *c)
{
    const enum dtype type = op_storage_type(in->op, &c->attrs);
    if (op_class(in->op) == OPS_MATRIX) {
        const struct cost_product p = cost_product(m, in->op, &c->attrs);
        return product_as_corrected(m, &p);
    }
    if (op_class(in->op) == OPS_ATTENTION && m->device.attention_by == BY_QUERIES) {
        struct attention_rates r[ATTENTION_DIMS];
        memcpy(r, m->device.attention[type], sizeof r);
        for (int d = 0; d < ATTENTION_DIMS; d++)
            rates_by_pairs(&r[d], m->widens);
        return cost_attention_seconds(m, r, BY_PAIRS, in->op, c) /
               cost_attention_seconds(m, m->device.attention[type], BY_QUERIES, in->op, c);
    }
    if (op_is_scan(in->op))
        return cost_memory_seconds(m, in, c) / (cost_seconds(m, in, c) - m->overhead);
    return 1;
}

void observed_add(struct observed *o, const struct cost_model *m, const struct program *program, const struct instr *in,
                  double measured)
{
    const struct op_call *c = program_call(program, in);
    const struct op_attrs *a = &c->attrs;
    const double planned = m->overhead + (in->end - in->start - m->overhead) * as_corrected(m, in, c);
    const enum dtype type = op_storage_type(in->op, a);
    if (in->lane == LANE_HOST) {
        add(&o->op[OBSERVED_HOST][in->op][type], planned, measured);
    } else if (op_class(in->op) == OPS_MATRIX) {
        const struct cost_product p = cost_product(m, in->op, a);
        add(&o->gemm[p.type][p.layout], planned, measured);
    } else if (op_class(in->op) == OPS_ATTENTION) {
        add(&o->attention[type][in->op != OP_ATTN_FWD], planned, measured);
    } else {
        add(&o->op[OBSERVED_DEVICE][in->op][type], planned, measured);
    }
}

void observed_merge(struct observed *o, const struct observed *more)
{
    struct observed_sum *to = &o->gemm[0][0];
    const struct observed_sum *from = &more->gemm[0][0];
    _Static_assert(sizeof *o % sizeof *to == 0, "sums only");
    for (size_t i = 0; i < sizeof *o / sizeof *to; i++) {
        to[i].planned += from[i].planned;
        to[i].measured += from[i].measured;
        to[i].n += from[i].n;
    }
}

/* Returns the factor that corrects a rate; 1: nothing was observed. overhead: fixed seconds of an instruction, which rates do not
 * change. */
static double factor(const struct observed_sum *s, double overhead)
{
    const double fixed = (double)s->n * overhead;
    double planned = s->planned - fixed, measured = s->measured - fixed;
    if (measured < s->measured / 4) { /* the overhead is really less than planned: it is not subtracted */
        planned = s->planned;
        measured = s->measured;
    }
    if (s->n == 0 || planned < LEAST_SECONDS || measured < LEAST_SECONDS)
        return 1;
    return fmin(fmax(planned / measured, 1 / MOST_CORRECTION), MOST_CORRECTION);
}

static void scale_curve(struct curve *c, double by)
{
    for (int i = 0; i < c->n; i++)
        c->y[i] *= by;
}

static void correct_ops(const struct observed_sum o[OP_COUNT][COST_TYPES], double overhead, struct op_rates *r)
{
    for (int op = 0; op < OP_COUNT; op++)
        for (int t = 0; t < COST_TYPES; t++) {
            const double by = factor(&o[op][t], overhead);
            if (by == 1)
                continue;
            if (r->op[op][t].n == 0)
                r->op[op][t] = r->memory;
            scale_curve(&r->op[op][t], by);
        }
}

static void correct_products(const struct observed_sum o[GEMM_LAYOUTS], double overhead, int cpu, struct gemm_rates *r)
{
    double by[GEMM_LAYOUTS];
    int corrected = 0;
    for (int l = 0; l < GEMM_LAYOUTS; l++) {
        by[l] = factor(&o[l], overhead);
        corrected |= by[l] != 1;
    }
    if (corrected)
        rates_by_size(r, cpu);
    for (int l = 0; l < GEMM_LAYOUTS; l++)
        for (int i = 0; i < GEMM_SHAPES; i++)
            r->flops[l][i] *= by[l];
}

static void correct_attention(const struct observed_sum o[COST_TYPES][2], double overhead, int cpu, struct rates *r)
{
    double by[COST_TYPES][2];
    int corrected = 0;
    for (int t = 0; t < COST_TYPES; t++)
        for (int b = 0; b < 2; b++) {
            by[t][b] = factor(&o[t][b], overhead);
            corrected |= by[t][b] != 1;
        }
    for (int t = 0; t < COST_TYPES && corrected; t++)
        for (int d = 0; d < ATTENTION_DIMS; d++) {
            if (r->attention_by == BY_QUERIES)
                rates_by_pairs(&r->attention[t][d], cpu);
            scale_curve(&r->attention[t][d].forward, by[t][0]);
            scale_curve(&r->attention[t][d].backward, by[t][1]);
        }
    if (corrected)
        r->attention_by = BY_PAIRS;
}

static void correct_device(const struct observed *o, double overhead, int cpu, struct rates *r)
{
    for (int t = 0; t < COST_TYPES; t++)
        correct_products(o->gemm[t], overhead, cpu, &r->gemm[t]);
    correct_attention(o->attention, overhead, cpu, r);
    correct_ops(o->op[OBSERVED_DEVICE], overhead, &r->ops);
}

void observed_correct(const struct observed *o, struct hardware *h)
{
    const double overhead = h->overhead;
    struct {
        enum lane lane;
        double *rate;
    } links[] = {{LANE_H2D, &h->h2d}, {LANE_D2H, &h->d2h}, {LANE_READ, &h->read}, {LANE_WRITE, &h->write}};
    correct_device(o, overhead, h->cpu, &h->device);
    correct_ops(o->op[OBSERVED_HOST], overhead, &h->host);
    const double before = h->read + h->write;
    for (size_t i = 0; i < sizeof links / sizeof *links; i++)
        *links[i].rate *= factor(&o->lane[links[i].lane], 0);
    h->both *= (h->read + h->write) / before;
    struct observed_sum messages = {0};
    for (int l = LANE_WORLD; l < LANES; l++) {
        messages.planned += o->lane[l].planned;
        messages.measured += o->lane[l].measured;
        messages.n += o->lane[l].n;
    }
    h->inside *= factor(&messages, 0);
    h->across *= factor(&messages, 0);
}
