/* The thread that talks to the other ranks while a library carries their messages. */
#include "engine/comm_guard.h"

#include "base/clock.h"

#include <string.h>

static const int64_t LOOK_NS = 100000000; /* time between two looks at processes and library */
static const int64_t GRACE_NS =
    700000000; /* nanoseconds to wait until the cause of a library's failure is known, mostly another rank's end */
static const int64_t NAP_NS = 2000000;

/* The collective that waits for other ranks; n_instrs: none. */
struct waiting {
    int oldest; /* first collective that has not retired; -1: not looked for yet */
    int began;  /* 1: its operands are there, so it waits for other ranks */
    char what[96];
};

static int is_retired(const struct comm_run *r, const struct instr *in)
{
    return atomic_load(&r->tickets->done[in->lane]) >= in->ticket;
}

/* Advances to the oldest collective that has not retired. */
static void find_waiting(struct comm_run *r, struct waiting *w)
{
    const struct program *p = r->program;
    struct comm *c = r->context->comm;
    const int before = w->oldest;
    w->oldest = before < 0 ? 0 : before;
    while (w->oldest < p->n_instrs && (!lane_is_comm(p->instrs[w->oldest].lane) || is_retired(r, &p->instrs[w->oldest])))
        w->oldest++;
    if (w->oldest != before) {
        w->began = 0;
        comm_wait_begin(c, LANE_WORLD, -1, 2 * (int64_t)w->oldest);
    }
    if (w->oldest == p->n_instrs)
        return;
    const struct instr *in = &p->instrs[w->oldest];
    if (w->began || !tickets_ready(r->tickets, p, in))
        return;
    w->began = 1;
    comm_describe_collective(c, in->lane, in->op, &program_call(p, in)->attrs, w->what);
    comm_wait_begin(c, in->lane, (int)in->op, 2 * (int64_t)w->oldest + 1);
}

/* Finds the cause of a library's failure: a dead rank, or one that says why it leaves, fails the library too. Returns that cause,
 * or `st` if none shows up in time. */
static enum status find_cause(struct comm_run *r, enum status st)
{
    struct comm *c = r->context->comm;
    char said[1024];
    snprintf(said, sizeof said, "%s", status_message());
    for (const int64_t until = clock_ns() + GRACE_NS; clock_ns() < until; clock_sleep_ns(NAP_NS))
        TRY(comm_wait_look(c, "messages that NCCL carries", 0));
    return status_fail(st, "%s", said);
}

static enum status look(struct comm_run *r, struct waiting *w)
{
    struct backend *b = r->context->backend;
    int joined;
    find_waiting(r, w);
    if (!w->began)
        snprintf(w->what, sizeof w->what, "program %s", r->program->name);
    TRY(comm_wait_look(r->context->comm, w->what, w->began));
    enum status st = backend_status(b, b->health(b, &joined));
    return st == OK ? OK : find_cause(r, st);
}

static int are_settled(const struct comm_run *r)
{
    int settled = comm_is_cut(r->context->comm);
    for (int l = LANE_WORLD; l < LANES && settled; l++)
        settled = !comm_owes(r->context->comm, (enum lane)l);
    return settled;
}

/* Takes part in the agreement on where to stop, during which the submitting thread starts no collective. */
static enum status look_at_cut(struct comm_run *r)
{
    struct comm *c = r->context->comm;
    const int held = comm_cut_holds(c);
    TRY(comm_cut_look(c));
    if (held != comm_cut_holds(c))
        tickets_nudge(r->tickets);
    if (are_settled(r))
        r->settle(r->user);
    return OK;
}

static enum status guard(struct comm_run *r)
{
    struct waiting w = {.oldest = -1};
    int64_t looked = 0;
    comm_wait_program(r->context->comm);
    while (atomic_load(r->others) > 0) {
        enum status st = look_at_cut(r);
        const int64_t now = clock_ns();
        if (st == OK && now - looked >= LOOK_NS) {
            looked = now;
            st = look(r, &w);
        }
        if (st != OK)
            return w.oldest >= 0 && w.oldest < r->program->n_instrs ? comm_lanes_explain(r->program, w.oldest, st) : st;
        if (tickets_failed(r->tickets) && tickets_status(r->tickets) != ERR_CANCELLED)
            return ERR_CANCELLED;
        if (tickets_failed(r->tickets)) /* the program is cut, and streams drain */
            clock_sleep_ns(NAP_NS);
        else
            tickets_sleep(r->tickets, LANE_WORLD);
    }
    return OK;
}

enum status comm_guard_run(struct comm_run *r)
{
    struct backend *b = r->context->backend;
    enum status st = guard(r);
    if (st == OK)
        return OK;
    if (st != ERR_CANCELLED)
        /* fails the board before the abort: aborted streams end as if their work were done, with undefined results */
        tickets_fail(r->tickets, st);
    b->abort(b);
    return ERR_CANCELLED;
}
