/* Costs of instructions, by interpolation between given rates. */
#include "machine/cost.h"

#include "program/program.h"

#include <math.h>

double curve_at(const struct curve *c, double x)
{
    if (c->n == 0)
        return 0;
    if (x <= c->x[0])
        return c->y[0];
    for (int i = 1; i < c->n; i++)
        if (x < c->x[i]) {
            double t = log(x / c->x[i - 1]) / log(c->x[i] / c->x[i - 1]);
            return c->y[i - 1] + t * (c->y[i] - c->y[i - 1]);
        }
    return c->y[c->n - 1];
}

/* Locates a size on the grid: at share *t of the way from point *i to the next one. A size below the grid scales *factor. */
static void locate(double size, int *i, double *t, double *factor)
{
    double at = log2(size / GEMM_SMALLEST) / 2; /* sizes grow by 4 */
    if (at < 0) {
        *factor *= size / GEMM_SMALLEST;
        at = 0;
    }
    if (at > GEMM_SIZES - 1)
        at = GEMM_SIZES - 1;
    *i = at >= GEMM_SIZES - 1 ? GEMM_SIZES - 2 : (int)at;
    *t = at - *i;
}

double gemm_rate(const struct gemm_rates *r, enum gemm_layout layout, double m, double n, double k)
{
    int at[3];
    double t[3], factor = 1, rate = 0;
    locate(m, &at[0], &t[0], &factor);
    locate(n, &at[1], &t[1], &factor);
    locate(k, &at[2], &t[2], &factor);
    for (int corner = 0; corner < 8; corner++) {
        double weight = 1;
        int index = 0;
        for (int d = 0; d < 3; d++) {
            int up = corner >> d & 1;
            weight *= up ? t[d] : 1 - t[d];
            index = index * GEMM_SIZES + at[d] + up;
        }
        rate += weight * r->flops[layout][index];
    }
    return rate * factor;
}

static const struct curve *direction(const struct attention_rates *r, enum op_kind op)
{
    return op == OP_ATTN_FWD ? &r->forward : &r->backward;
}

double attention_rate(const struct attention_rates r[ATTENTION_DIMS], enum op_kind op, double head_dim, double length)
{
    int n = 0, i = 0;
    while (n < ATTENTION_DIMS && r[n].head_dim > 0)
        n++;
    if (n == 0)
        return 0;
    while (i < n - 1 && head_dim > r[i].head_dim)
        i++;
    double high = curve_at(direction(&r[i], op), length);
    if (i == 0 || head_dim >= r[i].head_dim)
        return high;
    double low = curve_at(direction(&r[i - 1], op), length);
    double t = log(head_dim / r[i - 1].head_dim) / log((double)r[i].head_dim / r[i - 1].head_dim);
    return low + t * (high - low);
}

double cost_attention_seconds(const struct cost_model *m, const struct attention_rates r[ATTENTION_DIMS],
                              enum attention_length by, enum op_kind op, const struct op_call *c)
{
    const struct op_attrs *a = &c->attrs;
    const double pair = op_flops(op, a, 1),
                 length = attention_length(by, (double)a->attn.sq, (double)a->attn.sk, c->flops / pair);
    struct op_attrs padded = *a;
    padded.attn.head_dim = padded.attn.value_dim = (int32_t)op_wider_dim(a);
    const double more = m->pads ? op_flops(op, &padded, 1) / pair : 1;
    return c->flops * more / attention_rate(r, op, padded.attn.head_dim, length);
}

/* Returns the op's own curve; n = 0: there is none. */
static const struct curve *own_curve(const struct cost_model *m, const struct instr *in, const struct op_call *c)
{
    return &(in->lane == LANE_HOST ? &m->host : &m->device.ops)->op[in->op][op_storage_type(in->op, &c->attrs)];
}

double cost_memory_seconds(const struct cost_model *m, const struct instr *in, const struct op_call *c)
{
    const struct curve *own = own_curve(m, in, c), *any = in->lane == LANE_HOST ? &m->host.memory : &m->device.ops.memory;
    return (double)c->bytes / curve_at(own->n ? own : any, (double)c->bytes);
}

struct cost_product cost_product(const struct cost_model *m, enum op_kind op, const struct op_attrs *a)
{
    const struct op_product p = op_product(op, a);
    return (struct cost_product){.sizes = p,
                                 .type = m->widens && p.a_type != p.b_type ? F32 : op_storage_type(op, a),
                                 .layout = p.ta   ? GEMM_TN
                                           : p.tb ? GEMM_NT
                                                  : GEMM_NN};
}

static double compute_seconds(const struct cost_model *m, const struct instr *in, const struct op_call *c)
{
    const struct op_attrs *a = &c->attrs;
    const enum dtype type = op_storage_type(in->op, a);
    enum op_class class = op_class(in->op);
    if (class == OPS_MATRIX) {
        const struct cost_product p = cost_product(m, in->op, a);
        return c->flops / gemm_rate(&m->device.gemm[p.type], p.layout, p.sizes.m, p.sizes.n, p.sizes.k);
    }
    if (class == OPS_ATTENTION)
        return cost_attention_seconds(m, m->device.attention[type], (enum attention_length)m->device.attention_by, in->op, c);
    const double memory = cost_memory_seconds(m, in, c);
    if (!op_is_scan(in->op) || own_curve(m, in, c)->n > 0) /* a scan's own curve was measured, its products among the rest */
        return memory;
    const struct op_product p = op_product(in->op, a);
    const double products = c->flops / gemm_rate(&m->device.gemm[type], GEMM_NN, p.m, p.n, p.k);
    return products > memory ? products : memory;
}

void cost_with_links(const struct cost_model *m, double speed, struct cost_model *out)
{
    *out = *m;
    for (int l = 0; l < LANES; l++)
        if (l != LANE_COMPUTE && l != LANE_HOST)
            out->lane_bytes[l] *= speed;
}

double cost_seconds(const struct cost_model *m, const struct instr *in, const struct op_call *c)
{
    if (in->lane == LANE_COMPUTE || in->lane == LANE_HOST)
        return m->overhead + compute_seconds(m, in, c);
    return m->lane_seconds[in->lane] + (double)c->bytes / m->lane_bytes[in->lane];
}

double cost_memo_seconds(struct cost_memo *memo, const struct instr *in)
{
    const uint64_t of = (uint64_t)1 << 63 | (uint64_t)in->call << 16 | (uint64_t)in->op << 8 | in->lane;
    const int i = (int)((in->call + in->op) % COST_MEMO);
    if (memo->kept[i].of != of) {
        memo->kept[i].of = of;
        memo->kept[i].seconds = cost_seconds(memo->m, in, program_call(memo->p, in));
    }
    return memo->kept[i].seconds;
}
