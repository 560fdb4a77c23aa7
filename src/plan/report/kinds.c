/* Work and traffic of each kind of layer, from the plan's programs. */
#include "plan/report/kinds.h"

#include "base/units.h"
#include "plan/report/describe.h"
#include "plan/report/figures.h"

#include <string.h>

/* Returns the kind of an instruction's layer; NULL: it belongs to no layer. */
static struct layer_kind *kind_of(const struct model *m, const struct instr *in, struct layer_kind *kinds)
{
    const int of_layer = in->unit >= 0 && model_unit_in_layer(m, in->unit);
    return of_layer ? &kinds[m->layers[m->units[in->unit].layer].kind] : NULL;
}

static void add_program(const struct program *p, const struct model *m, double count, struct layer_kind *kinds)
{
    double idle_from = 0;
    for (int i = 0; i < p->n_instrs; i++) {
        const struct instr *in = &p->instrs[i];
        struct layer_kind *k = kind_of(m, in, kinds);
        const double seconds = in->end - in->start, idle = in->start - idle_from;
        if (in->lane == LANE_COMPUTE)
            idle_from = in->end;
        if (!k)
            continue;
        if (in->lane == LANE_COMPUTE) {
            k->compute += count * seconds;
            k->attention += op_class(in->op) == OPS_ATTENTION ? count * seconds : 0;
            k->waits += count * idle;
            continue;
        }
        k->busy[in->lane] += count * seconds;
        if (in->lane != LANE_HOST)
            k->moved += (int64_t)count * program_call(p, in)->bytes;
    }
}

void layer_kinds_make(const struct plan *p, const struct model *m, struct layer_kind out[MODEL_KINDS])
{
    int64_t count[PLAN_PROGRAMS];
    double pairs[MODEL_MASKS];
    const double length = (double)(p->tokens / p->sequences), sequences = (double)p->sequences;
    memset(out, 0, MODEL_KINDS * sizeof *out);
    model_causal_pairs(m, p->tokens / p->sequences, pairs);
    report_counts(p, count);
    for (int i = 0; i < PLAN_PROGRAMS; i++)
        if (p->programs[i] && count[i] > 0)
            add_program(p->programs[i], m, (double)count[i], out);
    for (int k = 0; k < m->n_kinds; k++) {
        const struct model_kind *kind = &m->kinds[k];
        const struct attention_block *a = model_attention(m, kind->first);
        struct layer_kind *x = &out[k];
        x->attends = a != NULL;
        x->window = a ? m->mask_window[a->mask] : 0;
        x->shape = a ? m->shapes[a->shape] : (struct attention_shape){0};
        model_kind_blocks(m, kind, x->blocks);
        x->layers = kind->layers;
        x->chunks = (int)ceil_div(p->strategy.rows, p->strategy.key.row_chunk);
        x->kept = strategy_kept(&p->strategy, model_is_light(m, kind->first));
        x->pairs = a ? sequences * pairs[a->mask] : 0;
        x->causal = sequences * length * length / 2;
        const double share = 1.0 / (x->layers > 0 ? x->layers : 1);
        x->compute *= share;
        x->attention *= share;
        x->waits *= share;
        x->moved = (int64_t)((double)x->moved * share);
        for (int l = 0; l < LANES; l++)
            x->busy[l] *= share;
    }
}

/* Returns the busiest lane, compute and host excluded. */
static enum lane busiest_lane(const struct layer_kind *k)
{
    enum lane busiest = LANE_H2D;
    for (int l = LANE_H2D; l < LANES; l++)
        if (k->busy[l] > k->busy[busiest])
            busiest = (enum lane)l;
    return busiest;
}

static const char *name_of(const struct layer_kind *k, char name[32])
{
    if (!k->attends)
        return "no attention";
    snprintf(name, 32, k->window > 0 ? "window %lld" : "full", (long long)k->window);
    return name;
}

static void print_kind(const struct layer_kind *k, FILE *f)
{
    char name[32], alpha[32], compute[32], waits[32], moved[32], busiest[32] = "-";
    const enum lane lane = busiest_lane(k);
    const double busy = 100 * k->busy[lane] / k->compute;
    if (k->busy[lane] > 0)
        snprintf(busiest, sizeof busiest, "%s %.*f%%", lane_name(lane), busy < 9.95, busy);
    snprintf(alpha, sizeof alpha, "%d/%d", k->kept, k->chunks);
    fprintf(f, "%-13s %6d %6.3g%% %7s %9s %4.0f%% %8s %8s %10s\n", name_of(k, name), k->layers, 100 * k->pairs / k->causal, alpha,
            report_duration(k->compute, compute), 100 * k->attention / k->compute, report_duration(k->waits, waits),
            k->moved > 0 ? units_format_bytes(k->moved, moved) : "-", busiest);
}

/* Prints blocks and heads of each kind, if they differ. */
static void print_parts(const struct layer_kind *kinds, int n, FILE *f)
{
    const struct layer_kind *first = NULL;
    int differ = 0;
    char label[32];
    for (int k = 0; k < n && kinds[k].blocks[0]; k++)
        fprintf(f, "(Blocks of %s: %s.)\n", name_of(&kinds[k], label), kinds[k].blocks);
    for (int k = 0; k < n; k++)
        if (kinds[k].attends && !first)
            first = &kinds[k];
        else if (kinds[k].attends)
            differ |= memcmp(&kinds[k].shape, &first->shape, sizeof first->shape) != 0;
    for (int k = 0; k < n && differ; k++) {
        const struct attention_shape *s = &kinds[k].shape;
        if (kinds[k].attends)
            fprintf(f, "(Heads of %s: %lld on %lld KV head%s, of %lld.)\n", name_of(&kinds[k], label), (long long)s->heads,
                    (long long)s->kv_heads, s->kv_heads > 1 ? "s" : "", (long long)s->head_dim);
    }
}

void layer_kinds_print(const struct layer_kind *kinds, int n, FILE *f)
{
    if (n < 2)
        return;
    fprintf(f, "\n%-13s %6s %7s %7s %9s %5s %8s %8s %10s\n", "kind of layer", "layers", "pairs", "alpha", "compute", "attn",
            "waits", "moved", "lanes");
    for (int k = 0; k < n; k++)
        print_kind(&kinds[k], f);
    fprintf(f, "(Of one layer, in a step. pairs: share of all pairs of a token and an earlier\n"
               "  one; alpha: row chunks kept of all; attn: share of compute; waits: compute,\n"
               "  for data; lanes: the busiest besides compute, in percent of compute's time.)\n");
    print_parts(kinds, n, f);
}
