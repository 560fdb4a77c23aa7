/* Running a program's comm lanes: one thread for all of them, because only one thread talks to MPI. */
#include "engine/comm_lanes.h"

#include "base/clock.h"
#include "engine/bounce.h"

struct comm_lane {
    int next;   /* next instruction of the lane; n_instrs: none */
    int flying; /* 1: the next instruction has been started */
    int64_t start_ns;
};

static int next_of(const struct program *p, enum lane lane, int from)
{
    while (from < p->n_instrs && p->instrs[from].lane != lane)
        from++;
    return from;
}

enum status comm_lanes_explain(const struct program *p, int i, enum status st)
{
    const struct instr *in = &p->instrs[i];
    char cause[1024];
    snprintf(cause, sizeof cause, "%s", status_message());
    for (int k = 0; k < in->n_operands; k++) {
        const struct operand *o = &p->operands[in->first_operand + k];
        if (o->tensor >= 0)
            return status_fail(st, "%s (at instruction %d of program %s: %s of %s, layer %d, on the %s lane)", cause, i, p->name,
                               op_name(in->op), p->tensors[o->tensor].name, in->unit, lane_name(in->lane));
    }
    return status_fail(st, "%s", cause);
}

static enum status start(struct comm_run *r, enum lane lane, struct comm_lane *l, struct exec_halves h)
{
    const struct instr *in = &r->program->instrs[l->next];
    void *arg[OP_MAX_ARGS];
    int64_t offset, bytes;
    l->start_ns = clock_ns();
    l->flying = 1;
    if (!h.send && !h.receive) { /* no bytes travel */
        comm_pass(r->context->comm, lane);
        return OK;
    }
    for (int k = 0; k < OP_MAX_ARGS; k++)
        arg[k] = exec_argument(r->context, r->program, in, k, &offset, &bytes);
    if (r->context->bounce)
        TRY(bounce_in(r->context, r->program, in, h.send, arg));
    return comm_start(r->context->comm, lane, in->op, &program_call(r->program, in)->attrs, arg, h.send, h.receive);
}

static int is_left_out(const struct comm_run *r, enum lane lane, const struct comm_lane *l)
{
    struct comm *c = r->context->comm;
    return !r->must[l->next] && comm_is_cut(c) && !comm_owes(c, lane);
}

static void retire(struct comm_run *r, enum lane lane, struct comm_lane *l)
{
    r->retire(r->user, lane, l->next, l->start_ns);
    l->start_ns = 0;
    l->flying = 0;
    l->next = next_of(r->program, lane, l->next + 1);
}

/* Starts or polls the lane's instruction. *moved: something happened. */
static enum status serve(struct comm_run *r, enum lane lane, struct comm_lane *l, int *moved)
{
    const struct instr *in = &r->program->instrs[l->next];
    const struct exec_halves h = exec_halves(r->context, r->program, in);
    enum status st = OK;
    int done = 0;
    if (!l->flying) {
        if (comm_cut_holds(r->context->comm) || !tickets_ready(r->tickets, r->program, in))
            return OK;
        *moved = 1;
        if (is_left_out(r, lane, l)) {
            comm_pass(r->context->comm, lane);
            retire(r, lane, l);
            return OK;
        }
        st = start(r, lane, l, h);
    }
    if (st == OK && (h.send || h.receive))
        st = comm_poll(r->context->comm, lane, &done);
    else
        done = 1;
    if (st == OK && done && r->context->bounce)
        st = bounce_out(r->context, r->program, in, h.receive);
    if (st != OK)
        return comm_lanes_explain(r->program, l->next, st);
    if (!done)
        return OK;
    retire(r, lane, l);
    *moved = 1;
    return OK;
}

/* Tells whether the lanes have reached the point where all ranks cut. */
static int are_settled(const struct comm_run *r, const struct comm_lane *lane)
{
    int n = r->program->n_instrs, settled = comm_is_cut(r->context->comm);
    for (int l = 0; l < COMM_LANES && settled; l++)
        settled = !lane[l].flying && (lane[l].next >= n || !comm_owes(r->context->comm, (enum lane)(LANE_WORLD + l)));
    return settled;
}

enum status comm_lanes_run(struct comm_run *r)
{
    struct comm_lane lane[COMM_LANES] = {0};
    int n = r->program->n_instrs;
    for (int l = 0; l < COMM_LANES; l++)
        lane[l].next = next_of(r->program, (enum lane)(LANE_WORLD + l), 0);
    for (;;) {
        int left = 0, flying = 0, moved = 0;
        if (tickets_failed(r->tickets))
            return ERR_CANCELLED;
        TRY(comm_cut_look(r->context->comm));
        if (are_settled(r, lane))
            r->settle(r->user);
        for (int l = 0; l < COMM_LANES; l++) {
            if (lane[l].next >= n)
                continue;
            left = 1;
            TRY(serve(r, (enum lane)(LANE_WORLD + l), &lane[l], &moved));
            flying |= lane[l].flying;
        }
        if (!left && atomic_load(r->others) == 0)
            return OK;
        if (moved)
            continue;
        if (flying)
            comm_nap(r->context->comm);
        else
            tickets_sleep(r->tickets, LANE_WORLD); /* until some lane retires an instruction */
    }
}
