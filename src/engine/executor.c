/* Lane threads. Lanes scan the program for their instructions; I/O lanes keep several requests in flight and retire them in
 * order. */
#include "engine/executor.h"

#include "base/clock.h"
#include "base/sys.h"
#include "device/tickets.h"
#include "engine/comm_lanes.h"
#include "engine/comm_guard.h"
#include "engine/device_lanes.h"
#include "engine/scrub.h"
#include "offload/places.h"
#include "program/updates.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define IN_FLIGHT 64

struct flight {
    uint64_t request;
    int64_t start_ns;
    int instr;
};

struct executor {
    struct exec_context x;
    struct tickets tickets;
    struct device_lanes *device; /* NULL: device lanes are executed by threads, like the others */
    const struct program *p;
    struct trace_event *events; /* events of the current program, by instruction: own_events, or the caller's */
    struct trace_event *own_events;
    struct known {
        const struct program *p;
        struct lane_index index;
        uint8_t *must; /* 1 for each instruction that runs even after a cut */
        int n_must;
    } * known;
    int n_known;
    /* State of the current program. */
    const struct lane_index *index;
    const uint8_t *must;
    atomic_int must_left; /* instructions of `must` that have not retired */
    atomic_int others;    /* number of lanes, without comm lanes, that are not at the program's end */
    atomic_int settled;   /* 1: the comm lanes are at the point where all ranks cut */
    enum phase reached;   /* phase that compute has reached */
    /* numbers of instructions, over all runs, that were executed and retired after a cut */
    atomic_int finished_must, finished_others;
    int64_t began;
    pthread_t thread[LANES]; /* n_threads threads of lanes and reapers; the calling thread is none of them */
    int n_threads;
    pthread_mutex_t lock;
    pthread_cond_t go, idle;
    int64_t generation; /* counter of programs started */
    int running, quit;
    struct lane_stats stats[LANES];
    int64_t retired_ns[LANES]; /* time of the lane's last retirement */
    struct lane_start {
        struct executor *e;
        enum lane lane;
    } start[LANES];
};

/* Counts an executed instruction that retires after a cut. */
static void count_finished(struct executor *e, int i)
{
    if (comm_is_cut(e->x.comm))
        atomic_fetch_add(e->must[i] ? &e->finished_must : &e->finished_others, 1);
}

static void note(struct executor *e, enum lane lane, int i, int64_t start)
{
    int64_t now = clock_ns(), from = start > e->retired_ns[lane] ? start : e->retired_ns[lane];
    e->stats[lane].busy_ns += now - from; /* requests in flight together count once */
    e->retired_ns[lane] = now;
    e->stats[lane].bytes += program_call(e->p, &e->p->instrs[i])->bytes;
    e->events[i] = (struct trace_event){start - e->began, now - e->began};
    count_finished(e, i);
}

static void note_skipped(struct executor *e, int i)
{
    int64_t now = clock_ns() - e->began;
    e->events[i] = (struct trace_event){now, now};
}

/* Tells whether instruction i is left out because the program is cut. Lanes, tickets and waits go on until the rest is done, so
 * order and hazards stay the program's. Asked after waiting, since the producers of its operands may have been left out. */
static int is_left_out(struct executor *e, int i)
{
    return !e->must[i] && comm_is_cut(e->x.comm);
}

/* Ends a cut program as soon as nothing is left of it: every lane stops before its next instruction. */
static void end_early(struct executor *e)
{
    if (atomic_load(&e->must_left) > 0 || !atomic_load(&e->settled) || !comm_is_cut(e->x.comm))
        return;
    status_fail(ERR_CANCELLED, "program %s was cut short", e->p->name);
    tickets_fail(&e->tickets, ERR_CANCELLED);
}

static void note_reached(struct executor *e, const struct instr *in)
{
    if (in->lane == LANE_COMPUTE && !comm_is_cut(e->x.comm))
        e->reached = (enum phase)in->phase;
}

static void retired_on_device(void *user, enum lane lane, int64_t from, int64_t to)
{
    struct executor *e = user;
    for (int64_t t = from; t < to; t++) {
        int i = e->index->at[e->index->first[lane] + t];
        note_reached(e, &e->p->instrs[i]);
        if (e->events[i].start_ns != DEVICE_LEFT_OUT)
            count_finished(e, i);
        if (e->must[i])
            atomic_fetch_sub(&e->must_left, 1);
    }
    end_early(e);
}

static void retire(struct executor *e, enum lane lane, int i)
{
    tickets_retire(&e->tickets, lane, e->p->instrs[i].ticket);
    if (e->must[i])
        atomic_fetch_sub(&e->must_left, 1);
    end_early(e);
}

/* Lets a long kernel stop early once the program is cut, unless its instruction must run. */
static void let_stop(struct executor *e, enum lane lane, int i)
{
    struct backend *b = e->x.backend;
    if (lane == LANE_COMPUTE && b->may_stop)
        b->may_stop(b, e->must[i] ? NULL : comm_cut_flag(e->x.comm));
}

static enum status run_serial(struct executor *e, enum lane lane)
{
    const struct program *p = e->p;
    for (int i = 0; i < p->n_instrs; i++) {
        const struct instr *in = &p->instrs[i];
        if (in->lane != lane)
            continue;
        TRY(tickets_wait(&e->tickets, lane, p, in));
        if (exec_holds(&e->x, in->predicate) && !is_left_out(e, i)) {
            int64_t start = clock_ns();
            note_reached(e, in);
            let_stop(e, lane, i);
            TRY(exec_instr(&e->x, p, in));
            note(e, lane, i, start);
        } else {
            note_skipped(e, i);
        }
        retire(e, lane, i);
    }
    return OK;
}

struct flights {
    struct flight q[IN_FLIGHT];
    int first, n;
};

static void retire_oldest(struct executor *e, enum lane lane, struct flights *f)
{
    struct flight *o = &f->q[f->first];
    note(e, lane, o->instr, o->start_ns);
    f->first = (f->first + 1) % IN_FLIGHT;
    f->n--;
    retire(e, lane, o->instr);
}

static enum status retire_done(struct executor *e, enum lane lane, enum store_direction d, struct flights *f)
{
    uint64_t done = 0;
    if (f->n == 0)
        return OK;
    TRY(store_poll(e->x.store, d, &done));
    while (f->n > 0 && f->q[f->first].request <= done)
        retire_oldest(e, lane, f);
    return OK;
}

static enum status wait_oldest(struct executor *e, enum lane lane, enum store_direction d, struct flights *f)
{
    TRY(store_wait(e->x.store, d, f->q[f->first].request));
    retire_oldest(e, lane, f);
    return OK;
}

/* Executes an instruction that is no request of its own, unless it is skipped. */
static enum status run_alone(struct executor *e, enum lane lane, int i, int skipped)
{
    const int64_t start = clock_ns();
    if (skipped) {
        note_skipped(e, i);
    } else {
        TRY(exec_instr(&e->x, e->p, &e->p->instrs[i]));
        note(e, lane, i, start);
    }
    retire(e, lane, i);
    return OK;
}

static enum status run_pipelined(struct executor *e, enum lane lane)
{
    const struct program *p = e->p;
    enum store_direction d = lane == LANE_READ ? STORE_READ : STORE_WRITE;
    struct flights f = {.n = 0};
    enum status st = OK;
    for (int i = 0; i < p->n_instrs && st == OK; i++) {
        const struct instr *in = &p->instrs[i];
        if (in->lane != lane)
            continue;
        /* while requests are in flight, sleep until one of them completes, else until the board changes */
        while (f.n > 0 && (f.n == IN_FLIGHT || !tickets_ready(&e->tickets, p, in)))
            TRY_GOTO(wait_oldest(e, lane, d, &f), out);
        TRY_GOTO(tickets_wait(&e->tickets, lane, p, in), out);
        const int skipped = is_left_out(e, i) || !exec_holds(&e->x, in->predicate);
        if (skipped || in->op != OP_COPY) { /* nothing else is in flight then */
            while (f.n > 0)
                TRY_GOTO(wait_oldest(e, lane, d, &f), out);
            TRY_GOTO(run_alone(e, lane, i, skipped), out);
            continue;
        }
        int64_t nvme, bytes, unused;
        exec_argument(&e->x, p, in, lane == LANE_READ ? 0 : 1, &nvme, &bytes);
        void *memory = exec_argument(&e->x, p, in, lane == LANE_READ ? 1 : 0, &unused, &bytes);
        struct flight *slot = &f.q[(f.first + f.n) % IN_FLIGHT];
        *slot = (struct flight){.start_ns = clock_ns(), .instr = i};
        TRY_GOTO(store_submit(e->x.store, d, nvme, memory, bytes, &slot->request), out);
        f.n++;
        TRY_GOTO(retire_done(e, lane, d, &f), out);
    }
    while (f.n > 0)
        TRY_GOTO(wait_oldest(e, lane, d, &f), out);
out:
    /* no request may be in flight when the arenas are reused */
    if (st != OK) {
        char first[1024];
        memcpy(first, status_message(), sizeof first - 1);
        first[sizeof first - 1] = 0;
        for (int k = 0; k < f.n; k++)
            (void)store_wait(e->x.store, d, f.q[(f.first + k) % IN_FLIGHT].request);
        return st == ERR_CANCELLED ? st : status_fail(st, "%s", first);
    }
    return st;
}

/* Checks and sums the host's state that a message has read and written. */
static void scrub_message(struct executor *e, const struct instr *in)
{
    if (e->x.carried) /* the reaper did */
        return;
    const enum status st = scrub_check_read(e->x.scrub, e->p, in);
    scrub_begin_write(e->x.scrub, e->p, in);
    scrub_end_write(e->x.scrub, e->p, in);
    if (st != OK)
        tickets_fail(&e->tickets, st);
}

static void retire_comm(void *user, enum lane lane, int instr, int64_t start_ns)
{
    struct executor *e = user;
    if (start_ns > 0) {
        scrub_message(e, &e->p->instrs[instr]);
        note(user, lane, instr, start_ns);
    } else {
        note_skipped(user, instr);
    }
    retire(user, lane, instr);
}

static void settle(void *user)
{
    struct executor *e = user;
    atomic_store(&e->settled, 1);
    end_early(e);
}

/* Threads have the number of the lane that they serve, but for two in the places of comm lanes: one runs all of these, the other
 * reaps what the device's library carries between ranks. Compute's thread is the caller's; a device with streams has a reaper there. */
enum { THREAD_COMM = LANE_WORLD, THREAD_REAPS_COMM = LANE_ULYSSES };

static enum status run_comm(struct executor *e)
{
    struct comm_run r = {.context = &e->x,
                         .program = e->p,
                         .tickets = &e->tickets,
                         .must = e->must,
                         .others = &e->others,
                         .retire = retire_comm,
                         .settle = settle,
                         .user = e};
    return e->x.carried ? comm_guard_run(&r) : comm_lanes_run(&r);
}

static enum status run_thread(struct executor *e, int thread)
{
    const enum lane lane = (enum lane)thread;
    if (thread == THREAD_COMM)
        return run_comm(e);
    if (thread == THREAD_REAPS_COMM)
        return device_lanes_reap(e->device, LANE_WORLD);
    if (e->device && lane <= LANE_D2H)
        return device_lanes_reap(e->device, lane);
    return lane_is_pipelined(lane) && e->x.store ? run_pipelined(e, lane) : run_serial(e, lane);
}

static void run_lane(struct executor *e, int thread)
{
    enum status st = run_thread(e, thread);
    if (st != OK)
        tickets_fail(&e->tickets, st);
    if (thread != THREAD_COMM && atomic_fetch_sub(&e->others, 1) == 1)
        tickets_nudge(&e->tickets);
}

static void *lane_thread(void *arg)
{
    struct lane_start *s = arg;
    struct executor *e = s->e;
    int64_t seen = 0;
    enum status entered = backend_status(e->x.backend, e->x.backend->enter(e->x.backend));
    places_bind(s->lane == LANE_HOST ? PLACE_COMPUTE : PLACE_TRANSFER);
    pthread_mutex_lock(&e->lock);
    for (;;) {
        while (!e->quit && e->generation == seen)
            pthread_cond_wait(&e->go, &e->lock);
        if (e->quit)
            break;
        seen = e->generation;
        pthread_mutex_unlock(&e->lock);
        if (entered == OK)
            run_lane(e, s->lane);
        else
            tickets_fail(&e->tickets, entered);
        pthread_mutex_lock(&e->lock);
        if (--e->running == 0)
            pthread_cond_signal(&e->idle);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

/* Returns 1 if there are other ranks, so that a thread runs the comm lanes, else 0. */
static int has_comm_thread(const struct executor *e)
{
    return e->x.comm && comm_size(e->x.comm) > 1;
}

/* Prepares indices of the programs, and memory for measurements, which is written once so that it is resident before the first
 * step. */
static enum status learn(struct executor *e, struct program *const *programs, int n)
{
    size_t most = 1;
    e->known = sys_calloc((size_t)n + 1, sizeof *e->known);
    for (int k = 0; k < n && e->known; k++) {
        if (!programs[k])
            continue;
        struct known *known = &e->known[e->n_known++];
        known->p = programs[k];
        TRY(lane_index_make(programs[k], &known->index));
        known->must = sys_malloc((size_t)programs[k]->n_instrs + 1);
        if (!known->must)
            return status_fail(ERR_NOMEM, "out of memory for the executor");
        TRY(updates_mark(programs[k], known->must, &known->n_must));
        most = programs[k]->n_instrs > (int)most ? (size_t)programs[k]->n_instrs : most;
    }
    e->own_events = sys_malloc(most * sizeof *e->own_events);
    if (!e->known || !e->own_events)
        return status_fail(ERR_NOMEM, "out of memory for the executor");
    memset(e->own_events, 0, most * sizeof *e->own_events);
    return OK;
}

enum status executor_create(const struct exec_context *x, struct program *const *programs, int n, struct executor **out)
{
    struct executor *e = sys_calloc(1, sizeof *e);
    if (!e)
        return status_fail(ERR_NOMEM, "out of memory for the executor");
    e->x = *x;
    tickets_init(&e->tickets);
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->go, NULL);
    pthread_cond_init(&e->idle, NULL);
    enum status st = learn(e, programs, n);
    if (st == OK && x->backend->streams)
        st = device_lanes_create(&e->x, programs, n, &e->device);
    if (st != OK) {
        executor_destroy(e);
        return st;
    }
    const int end = e->x.carried ? THREAD_REAPS_COMM : (int)LANE_WORLD - 1 + has_comm_thread(e);
    for (int l = e->device ? LANE_COMPUTE : LANE_COMPUTE + 1; l <= end; l++) {
        e->start[l] = (struct lane_start){e, (enum lane)l};
        int error = sys_thread(&e->thread[e->n_threads], lane_thread, &e->start[l]);
        if (error) {
            executor_destroy(e);
            return status_fail(ERR_NOMEM, "cannot start the %s lane's thread: %s", lane_name((enum lane)l), strerror(error));
        }
        e->n_threads++;
    }
    *out = e;
    return OK;
}

void executor_destroy(struct executor *e)
{
    if (!e)
        return;
    pthread_mutex_lock(&e->lock);
    e->quit = 1;
    pthread_cond_broadcast(&e->go);
    pthread_mutex_unlock(&e->lock);
    for (int i = 0; i < e->n_threads; i++)
        pthread_join(e->thread[i], NULL);
    pthread_cond_destroy(&e->go);
    pthread_cond_destroy(&e->idle);
    pthread_mutex_destroy(&e->lock);
    tickets_destroy(&e->tickets);
    device_lanes_destroy(e->device);
    for (int k = 0; k < e->n_known; k++) {
        lane_index_free(&e->known[k].index);
        free(e->known[k].must);
    }
    free(e->known);
    free(e->own_events);
    free(e);
}

static struct span measured(const void *events, const struct program *p, int i)
{
    const struct trace_event *at = (const struct trace_event *)events + i;
    (void)p;
    return (struct span){(double)at->start_ns * 1e-9, (double)at->end_ns * 1e-9};
}

struct timeline executor_timeline(const struct program *p, const struct lane_index *index, const struct trace_event *events)
{
    return (struct timeline){.p = p, .index = index, .span = measured, .user = events, .submits = 1};
}

/* Adds the time that compute stood still in the program that has just run. */
static void add_stalls(struct executor *e, const struct known *known)
{
    struct timeline t = executor_timeline(known->p, &known->index, e->events);
    struct stalls s = {0};
    stalls_add(&t, (double)(clock_ns() - e->began) * 1e-9, 1, &s);
    for (int l = 0; l < LANES; l++)
        for (int c = 0; c < CLASSES; c++)
            e->stats[l].stalled[c] += s.waited[l][c];
}

enum status executor_run(struct executor *e, const struct program *p, struct trace_event *trace)
{
    const struct known *known = e->known;
    while (known->p && known->p != p)
        known++;
    assert(known->p);
    tickets_reset(&e->tickets);
    TRY(backend_status(e->x.backend, e->x.backend->enter(e->x.backend)));
    if (e->x.store)
        store_limit_writes(e->x.store, p->write_depth);
    pthread_mutex_lock(&e->lock);
    e->p = p;
    e->events = trace ? trace : e->own_events;
    e->index = &known->index;
    e->must = known->must;
    atomic_store(&e->must_left, known->n_must);
    /* lane threads but the comm lanes', and the caller's if it runs a lane */
    atomic_store(&e->others, e->n_threads + !e->device - has_comm_thread(e));
    atomic_store(&e->settled, !has_comm_thread(e));
    e->reached = PHASE_NONE;
    e->began = clock_ns();
    if (e->device)
        device_lanes_begin(e->device, p, &e->tickets, e->events, trace != NULL, e->began,
                           &(struct device_cut){e->must, retired_on_device, e});
    e->running = e->n_threads;
    e->generation++;
    pthread_cond_broadcast(&e->go);
    pthread_mutex_unlock(&e->lock);
    if (e->device)
        (void)device_lanes_submit(e->device); /* a failure is on the board of tickets, whose status is returned below */
    else
        run_lane(e, LANE_COMPUTE);
    if (e->x.backend->may_stop)
        e->x.backend->may_stop(e->x.backend, NULL);
    pthread_mutex_lock(&e->lock);
    while (e->running > 0)
        pthread_cond_wait(&e->idle, &e->lock);
    pthread_mutex_unlock(&e->lock);
    for (int l = 0; l < LANES; l++)
        /* with streams, waits for compute's tickets are the submitter's, made while the device computes */
        if (!e->device || l != LANE_COMPUTE)
            e->stats[l].waited_ns += atomic_load(&e->tickets.waited_ns[l]);
    if (e->device && !tickets_failed(&e->tickets))
        device_lanes_measure(e->device, &known->index, e->stats);
    if (!tickets_failed(&e->tickets))
        add_stalls(e, known);
    enum status st = tickets_status(&e->tickets);
    return st == ERR_CANCELLED ? OK : st;
}

void executor_finished(const struct executor *e, int *must, int *others)
{
    *must = atomic_load(&e->finished_must);
    *others = atomic_load(&e->finished_others);
}

enum phase executor_reached(const struct executor *e)
{
    return e->reached;
}

struct lane_submission executor_take_submission(struct executor *e)
{
    return e->device ? device_lanes_take_submission(e->device) : (struct lane_submission){0};
}

struct executed executor_last(const struct executor *e)
{
    return e->events == e->own_events ? (struct executed){e->p, e->events} : (struct executed){NULL, NULL};
}

void executor_take_stats(struct executor *e, struct lane_stats out[LANES])
{
    memcpy(out, e->stats, sizeof e->stats);
    memset(e->stats, 0, sizeof e->stats);
}
