/* The collectives of a program: every member sends exactly its part to each other one, (P-1)/P of the volume, in chunks.
 *
 * A transfer is a set of flows, one to and one from each other member. Each flow has at most two chunks in flight. Chunks of
 * neighbours come first, so that not everybody sends to the same member. Gathers and exchanges are flows between the arguments
 * themselves.
 *
 * A reduction cuts the share into segments. The members' pieces of a segment arrive in `work`, in one of two places. Once all are
 * there they are added in the members' order, whatever order they came in. */
#include "comm/flows.h"
#include "comm/state.h"
#include "ops/reduce.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OWN_STEP ((int64_t)4 << 20) /* bytes copied between two looks at the network */
enum { RECV = 1 };                  /* direction bit of a slot */

static void set_flow(struct transfer *t, struct flow *f, const void *base, int64_t bytes, int64_t chunk, int64_t stride)
{
    *f = (struct flow){.base = (char *)base, .bytes = bytes, .chunk = chunk, .stride = stride, .chunks = ceil_div(bytes, chunk)};
    t->unposted += f->chunks;
}

static void no_flows(struct group *g)
{
    memset(g->send, 0, 2 * (size_t)g->members * sizeof *g->send);
}

/* Zeroes the end of this rank's share, beyond the data. */
static void zero_end(void *share, const struct op_attrs *a, int element, int me)
{
    const int64_t there = flows_share(a, me);
    memset((char *)share + there * element, 0, (size_t)((a->comm.share - there) * element));
}

/* Begins the flows of a collective that is no reduction. */
static void begin_flows(struct group *g, const struct collective *x, int64_t chunk)
{
    struct transfer *t = &g->t;
    no_flows(g);
    for (int m = 0; m < g->members; m++) {
        if (m == g->me)
            continue;
        const struct flow_part out = flows_out(x, m), in = flows_in(x, m);
        set_flow(t, &g->send[m], out.at, out.bytes, chunk, 0);
        set_flow(t, &g->recv[m], in.at, in.bytes, chunk, 0);
    }
    const struct flow_part own = flows_own(x, &t->own_to);
    t->own_from = own.at;
    t->own_bytes = own.bytes;
    if (x->op == OP_DEAL)
        zero_end(x->arg[1], x->attrs, x->attrs->comm.element, g->me);
}

static void begin_reduce(struct group *g, int64_t chunk)
{
    struct transfer *t = &g->t;
    const struct op_attrs *a = &t->attrs;
    const char *src = t->arg[0];
    char *work = t->op == OP_ALL_REDUCE ? t->arg[1] : t->arg[2];
    int64_t on_wire = flows_wire_element(a);
    t->reducing = 1;
    t->piece = flows_piece(a, g->members, chunk);
    t->segments = ceil_div(flows_share(a, g->me), t->piece);
    int64_t message = t->piece * on_wire, place = message * g->members;
    no_flows(g);
    for (int m = 0; m < g->members; m++) {
        if (m == g->me)
            continue;
        set_flow(t, &g->recv[m], work + m * message, flows_share(a, g->me) * on_wire, message, place);
        if (on_wire == 2)
            set_flow(t, &g->send[m], work + 2 * place + m * message, flows_share(a, m) * 2, message, place);
        else
            set_flow(t, &g->send[m], src + m * a->comm.share * 4, flows_share(a, m) * 4, message, 0);
    }
}

enum status comm_start(struct comm *c, enum lane lane, enum op_kind op, const struct op_attrs *attrs, void *const *arg, int send,
                       int recv)
{
    struct group *g = comm_group(c, lane);
    TRY(failure_broken(c));
    if (g->busy)
        return status_fail(ERR_INVALID, "the %s lane is still busy with %s when %s starts", lane_name(lane), op_name(g->t.op),
                           op_name(op));
    g->t = (struct transfer){.op = op, .attrs = *attrs};
    for (int i = 0; i < op_arg_count(op) && i < 3; i++)
        g->t.arg[i] = arg[i];
    if (op_class(op) != OPS_COLLECTIVE)
        return status_fail(ERR_INVALID, "%s is not a collective", op_name(op));
    const struct collective x = {
        .op = op, .attrs = attrs, .arg = arg, .members = g->members, .me = g->me, .send = send, .receive = recv};
    TRY(flows_check(&x));
    if (flows_is_reduction(op))
        begin_reduce(g, c->chunk);
    else
        begin_flows(g, &x, c->chunk);
    g->busy = 1;
    c->naps = 0;
    c->votes.own.started[lane - LANE_WORLD]++;
    lastword_doing(c, lane, op);
    patience_begin(&g->patience);
    return OK;
}

int comm_is_busy(const struct comm *c)
{
    int busy = 0;
    for (int l = 0; l < COMM_LANES; l++)
        busy |= c->group[l].busy;
    return busy;
}

/* Returns a slot of the wire's table, by member, direction and parity of the chunk. */
static int slot_of(int member, int direction, int64_t chunk)
{
    return member * 4 + direction * 2 + (int)(chunk & 1);
}

static int64_t flow_bytes(const struct flow *f, int64_t k)
{
    return min_i64(f->chunk, f->bytes - k * f->chunk);
}

static char *flow_place(const struct flow *f, int64_t k)
{
    return f->base + (f->stride ? (k & 1) * f->stride : k * f->chunk);
}

static void round_piece(const struct transfer *t, int member, int64_t k, bf16 *out)
{
    const float *x = (const float *)t->arg[0] + member * t->attrs.comm.share + k * t->piece;
    int64_t n = min_i64(t->piece, flows_share(&t->attrs, member) - k * t->piece);
    for (int64_t i = 0; i < n; i++)
        out[i] = bf16_from_float(x[i]);
}

static int64_t *traffic_with(struct comm *c, struct group *g, int rank)
{
    return strcmp(c->peer[rank].host, c->launch.host) == 0 ? &g->sent.same_host : &g->sent.other_hosts;
}

static enum status post_flow(struct comm *c, struct group *g, int member, int direction, int *moved)
{
    struct transfer *t = &g->t;
    struct flow *f = direction == RECV ? &g->recv[member] : &g->send[member];
    int rank = group_rank(c, g, member);
    while (f->posted < f->chunks) {
        int64_t k = f->posted, bytes = flow_bytes(f, k);
        int slot = slot_of(member, direction, k);
        if (wire_in_use(c->wire, g->channel, slot))
            return OK;
        if (direction == RECV && t->reducing && k >= t->reduced + 2)
            return OK; /* the chunk's place still holds a piece that has not been added */
        if (direction == RECV) {
            TRY(wire_recv(c->wire, g->channel, slot, rank, flow_place(f, k), (int)bytes));
        } else {
            if (t->reducing && f->stride)
                round_piece(t, member, k, (bf16 *)flow_place(f, k));
            TRY(wire_send(c->wire, g->channel, slot, rank, flow_place(f, k), (int)bytes));
            *traffic_with(c, g, rank) += bytes;
        }
        f->posted++;
        t->unposted--;
        t->in_flight++;
        *moved = 1;
    }
    return OK;
}

static enum status post(struct comm *c, struct group *g, int *moved)
{
    for (int d = 1; d < g->members && g->t.unposted > 0; d++) {
        TRY(post_flow(c, g, (g->me - d + g->members) % g->members, RECV, moved));
        TRY(post_flow(c, g, (g->me + d) % g->members, 0, moved));
    }
    return OK;
}

void comm_describe_collective(const struct comm *c, enum lane lane, enum op_kind op, const struct op_attrs *a, char text[96])
{
    const int members = c->group[lane - LANE_WORLD].members;
    int64_t elements = op == OP_ALL_TO_ALL ? a->comm.share * members : a->comm.n;
    int element = flows_is_reduction(op) ? 4 : a->comm.element;
    snprintf(text, 96, "%s of %" PRId64 " bytes on the %s lane", op_name(op), elements * element, lane_name(lane));
}

static const char *describe(const struct comm *c, enum lane lane, char text[96])
{
    const struct transfer *t = &c->group[lane - LANE_WORLD].t;
    comm_describe_collective(c, lane, t->op, &t->attrs, text);
    return text;
}

void comm_count(struct comm *c, enum lane lane, enum op_kind op, const struct op_attrs *attrs, void *const *arg, int send,
                int receive)
{
    struct group *g = comm_group(c, lane);
    const struct collective x = {
        .op = op, .attrs = attrs, .arg = arg, .members = g->members, .me = g->me, .send = send, .receive = receive};
    for (int m = 0; m < g->members; m++)
        if (m != g->me)
            *traffic_with(c, g, group_rank(c, g, m)) += flows_sent(&x, m);
}

static enum status collect(struct comm *c, enum lane lane, struct group *g, int *moved)
{
    const struct wire_event *event;
    int n;
    TRY(wire_test(c->wire, g->channel, &event, &n));
    for (int i = 0; i < n; i++) {
        int member = event[i].slot / 4, direction = event[i].slot / 2 % 2;
        struct flow *f = &g->recv[member];
        g->t.in_flight--;
        *moved = 1;
        if (direction != RECV)
            continue;
        /* k: of the one or two chunks in flight, the one whose parity is the slot's */
        int64_t k = f->posted - 1 - ((f->posted - 1 - event[i].slot) & 1);
        if (event[i].bytes != flow_bytes(f, k)) {
            char what[96];
            status_fail(ERR_PEER,
                        "rank %d sent rank %d %s%d bytes where %" PRId64 " were due, in %s: the ranks run different programs",
                        group_rank(c, g, member), c->launch.rank, event[i].bytes < 0 ? "more than " : "",
                        event[i].bytes < 0 ? (int)flow_bytes(f, k) : event[i].bytes, flow_bytes(f, k), describe(c, lane, what));
            return failure_break_and_tell(c);
        }
        g->t.arrived[k & 1]++;
    }
    return OK;
}

/* Adds the pieces of the next segment. */
static void reduce_segment(struct group *g)
{
    struct transfer *t = &g->t;
    const struct op_attrs *a = &t->attrs;
    const int64_t first = t->reduced * t->piece, message = t->piece * flows_wire_element(a);
    const char *work = t->op == OP_ALL_REDUCE ? t->arg[1] : t->arg[2];
    float *own = (float *)t->arg[0] + g->me * a->comm.share + first;
    ops_reduce(&(struct reduce_pieces){.dst = t->op == OP_ALL_REDUCE ? own : (float *)t->arg[1] + first,
                                       .own = own,
                                       .pieces = work + (t->reduced & 1) * message * g->members,
                                       .n = min_i64(t->piece, flows_share(a, g->me) - first),
                                       .stride = message,
                                       .members = g->members,
                                       .me = g->me,
                                       .type = a->comm.type});
    t->arrived[t->reduced & 1] = 0;
    t->reduced++;
}

/* Does this rank's own work: copying, adding, going from the first half of an all-reduce to the second. */
static void advance(struct comm *c, struct group *g, int *moved)
{
    struct transfer *t = &g->t;
    if (t->own_bytes > 0) {
        int64_t n = min_i64(t->own_bytes, OWN_STEP);
        memcpy(t->own_to, t->own_from, (size_t)n);
        t->own_to += n;
        t->own_from += n;
        t->own_bytes -= n;
        *moved = 1;
    }
    if (!t->reducing)
        return;
    if (t->reduced < t->segments && t->arrived[t->reduced & 1] == g->members - 1) {
        reduce_segment(g);
        *moved = 1;
    }
    if (t->reduced < t->segments || t->unposted > 0 || t->in_flight > 0)
        return;
    t->reducing = 0;
    *moved = 1;
    if (t->op == OP_ALL_REDUCE) {
        struct op_attrs attrs;
        struct collective gather, x = {.op = t->op, .attrs = &t->attrs, .arg = t->arg, .members = g->members, .me = g->me};
        void *arg[2];
        flows_gather_sums(&x, &attrs, arg, &gather);
        begin_flows(g, &gather, c->chunk);
    } else {
        zero_end(t->arg[1], &t->attrs, 4, g->me);
    }
}

static int missing_rank(const struct comm *c, const struct group *g)
{
    for (int direction = RECV; direction >= 0; direction--)
        for (int m = 0; m < g->members; m++)
            if (wire_in_use(c->wire, g->channel, slot_of(m, direction, 0)) ||
                wire_in_use(c->wire, g->channel, slot_of(m, direction, 1)))
                return group_rank(c, g, m);
    return -1;
}

static enum status make_progress(struct comm *c, enum lane lane, struct group *g, int *moved)
{
    if (g->t.in_flight > 0)
        TRY(collect(c, lane, g, moved));
    advance(c, g, moved);
    return g->t.unposted > 0 ? post(c, g, moved) : OK;
}

enum status comm_poll(struct comm *c, enum lane lane, int *done)
{
    struct group *g = comm_group(c, lane);
    const struct transfer *t = &g->t;
    int moved = 0;
    *done = 0;
    TRY(failure_broken(c));
    if (g->busy)
        TRY(failure_of_wire(c, make_progress(c, lane, g, &moved)));
    if (moved)
        c->naps = 0;
    if (!g->busy || (t->unposted == 0 && t->in_flight == 0 && t->own_bytes == 0 && !t->reducing)) {
        g->busy = 0;
        lastword_doing(c, lane, -1);
        *done = 1;
        return OK;
    }
    if (moved)
        patience_begin(&g->patience);
    else if (c->wire) {
        char what[96];
        TRY(patience_look(c, &g->patience, missing_rank(c, g), describe(c, lane, what)));
    }
    return OK;
}
