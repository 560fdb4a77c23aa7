/* Costs of instructions for one rank, from a machine, a mesh and settings. */
#include "machine/rank_cost.h"

#include "machine/hardware.h"
#include "machine/islands.h"
#include "program/target.h"

#include <math.h>
#include <string.h>

/* A group's ranks: the number of all, of the nodes they are on, and of those on one node. */
struct span {
    double ranks, nodes, on_node;
};

/* Finds the span of a group. Ranks are numbered node by node; a group has consecutive ones (stride 1), or every stride-th. */
static struct span span_of(int members, int stride, int per_node)
{
    struct span s = {.ranks = members};
    s.on_node = stride >= per_node ? 1 : (double)per_node / stride;
    if (s.on_node > members)
        s.on_node = members;
    s.nodes = members / s.on_node;
    return s;
}

/* Sets the bytes per second that a rank sends. Messages to members on other nodes go through the device's own network link, the
 * rest through the links inside; both at once. A gather over all ranks crosses each node's border once, shared by its devices'
 * links. */
static void set_comm(struct cost_model *c, const struct hardware *h, enum lane lane, const struct span *s)
{
    int crosses = s->nodes > 1;
    double far = !crosses             ? 0
                 : lane == LANE_WORLD ? (s->nodes - 1) / s->nodes / s->on_node / ((s->ranks - 1) / s->ranks)
                                      : (s->ranks - s->on_node) / (s->ranks - 1);
    double inside = (1 - far) / h->inside, across = far / h->across;
    if (lane == LANE_WORLD && crosses)
        inside = 1 / h->inside; /* messages from afar are passed on inside */
    double seconds = inside > across ? inside : across;
    c->lane_bytes[lane] = 1 / seconds;
    c->lane_seconds[lane] = crosses ? h->across_seconds : h->inside_seconds;
    c->demand[lane][LINK_INSIDE] = inside / seconds;
    c->demand[lane][LINK_ACROSS] = across / seconds;
}

/* Sets a copy lane of a CPU, whose copies are memcpy. On cpu:discrete the target is poisoned before, and both take at least as
 * long as the link would. A copy that sleeps until its bytes are due takes a core from compute when it wakes, and compute's
 * threads wait for each other. */
static void set_copies(struct cost_model *c, const struct hardware *h, const struct plan_request *s, enum lane lane, double full)
{
    double busy = 1 / full;
    if (s->device == DEVICE_CPU_DISCRETE && 1 / h->late > busy)
        busy = 1 / h->late;
    c->lane_bytes[lane] = 1 / busy;
    c->demand[lane][LINK_CORES] = h->cores[lane];
    if (s->link_gbps > 0) {
        c->lane_bytes[lane] = fmin(s->link_gbps * 1e9, 1 / busy);
        c->lane_seconds[lane] += h->wake_seconds;
        c->lane_cores[lane] = h->throttled_cores;
        c->demand[lane][LINK_CORES] = fmin(h->cores[lane], c->lane_bytes[lane] / h->throttled_bytes);
    }
}

/* Sets the copy and I/O lanes to a rank's part of its node. */
static void set_transfers(struct cost_model *c, const struct hardware *h, const struct plan_request *s, double sharing)
{
    double rate[LANES] = {
        [LANE_H2D] = h->h2d, [LANE_D2H] = h->d2h, [LANE_READ] = h->read / sharing, [LANE_WRITE] = h->write / sharing};
    for (int l = LANE_H2D; l <= LANE_WRITE; l++) {
        c->lane_bytes[l] = rate[l];
        if (!h->cpu)
            c->demand[l][LINK_MEMORY] = rate[l] / (h->host_memory / sharing);
        else if (l == LANE_READ || l == LANE_WRITE)
            c->demand[l][LINK_CORES] = h->cores[l];
        else
            set_copies(c, h, s, (enum lane)l, rate[l]);
    }
    c->lane_idle[LANE_READ] += h->read_seconds;
    c->lane_idle[LANE_WRITE] += h->write_seconds;
    c->demand[LANE_READ][LINK_DRIVES] = c->demand[LANE_WRITE][LINK_DRIVES] = (h->read + h->write) / h->both / 2;
}

static void scale_curve(struct curve *c, double part)
{
    for (int k = 0; k < c->n; k++)
        c->y[k] *= part;
}

static void scale_ops(struct op_rates *r, double part)
{
    scale_curve(&r->memory, part);
    for (int op = 0; op < OP_COUNT; op++)
        for (int t = 0; t < COST_TYPES; t++)
            scale_curve(&r->op[op][t], part);
}

/* Scales a device that ranks share: each gets `part` of it. */
static void scale_device(struct rates *r, double part)
{
    scale_ops(&r->ops, part);
    for (int t = 0; t < COST_TYPES; t++) {
        for (int l = 0; l < GEMM_LAYOUTS; l++)
            for (int i = 0; i < GEMM_SHAPES; i++)
                r->gemm[t].flops[l][i] *= part;
        for (int d = 0; d < ATTENTION_DIMS; d++) {
            scale_curve(&r->attention[t][d].forward, part);
            scale_curve(&r->attention[t][d].backward, part);
        }
    }
}

/* Limits messages among all ranks, and those between stages, to the link between islands, which a node's devices share. Of stages those
 * at the islands' borders alone send over it, but all wait for the slowest message of a tick. */
static void set_between(struct cost_model *c, const struct hardware *h, enum lane lane)
{
    const double each = h->islands->bytes / h->devices, across = fmin(h->across, each), rate = c->lane_bytes[lane];
    /* the part of a message that crosses nodes is the same, only slower */
    const double most = lane == LANE_WORLD && c->demand[lane][LINK_ACROSS] > 0
                            ? across * (rate / (h->across * c->demand[lane][LINK_ACROSS]))
                            : across;
    c->lane_bytes[lane] = fmin(rate, most);
    c->lane_seconds[lane] = fmax(c->lane_seconds[lane], h->islands->seconds);
    c->demand[lane][LINK_INSIDE] *= c->lane_bytes[lane] / rate;
    c->demand[lane][LINK_ACROSS] *= c->lane_bytes[lane] / rate;
    c->demand[lane][LINK_BETWEEN] = c->lane_bytes[lane] / most;
}

void plan_cost_model(const struct plan_request *s, struct cost_model *out)
{
    struct hardware assumed;
    const struct hardware *h = s->hardware;
    if (!h) {
        hardware_assumed(&assumed);
        h = &assumed;
    }
    int per_node = (int)max_i64(h->devices, ceil_div(mesh_ranks(&s->mesh), h->nodes));
    memset(out, 0, sizeof *out);
    out->device = h->device;
    out->host = h->host;
    out->overhead = h->overhead;
    out->peak_flops = h->peak_flops[s->dtype];
    snprintf(out->source, sizeof out->source, "%s", h->source);
    for (int l = 0; l < LANES; l++) {
        out->lane_bytes[l] = 1e30; /* stays for lanes that have a model of their own */
        out->lane_seconds[l] = h->overhead;
        out->lane_idle[l] = l != LANE_COMPUTE ? h->wake_seconds : 0;
    }
    set_transfers(out, h, s, per_node);
    for (int l = LANE_WORLD; l < LANES; l++) {
        const struct mesh_group g = mesh_group_of(&s->mesh, (enum lane)l, 0);
        const struct span span = span_of(g.members, g.stride, per_node);
        set_comm(out, h, (enum lane)l, &span);
        if (h->islands && g.members > 1 && (l == LANE_WORLD || l == LANE_PP))
            set_between(out, h, (enum lane)l);
    }
    scale_ops(&out->host, 1.0 / per_node);
    scale_device(&out->device, (double)h->devices / per_node);
    out->widens = h->cpu;
    out->pads = !h->cpu;
    out->chained = !h->cpu;
    if (h->cpu) {
        out->demand[LANE_COMPUTE][LINK_CORES] = 1;
        out->demand[LANE_HOST][LINK_CORES] = h->cores[LANE_HOST];
        for (int l = LANE_WORLD; l < LANES; l++)
            out->demand[l][LINK_CORES] = h->cores[l];
    } else {
        out->demand[LANE_HOST][LINK_MEMORY] = 1;
    }
}
