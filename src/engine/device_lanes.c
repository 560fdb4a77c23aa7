/* Submitting instructions to a device's streams, and retiring them. */
#include "engine/device_lanes.h"

#include "base/clock.h"
#include "base/sys.h"
#include "base/watch.h"
#include "engine/again.h"
#include "engine/scrub.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Cursors, the device's queues of instructions: COMPUTE, H2D and D2H by their lane numbers, and one for all comm lanes. */
enum { COMM_CURSOR = LANE_D2H + 1, CURSORS, NO_CURSOR = -1 };
#define WATCH_INSTRS 64 /* instructions of a lane of which at least one is watched */
#define WATCH_EVENTS 32 /* announced instructions of which at least one is watched */
/* Planned time that a lane may be submitted ahead of what has retired, except for AHEAD_LEAST instructions: submitted work runs
 * to its end even if a signal comes. */
#define AHEAD_SECONDS 0.5
#define AHEAD_LEAST 4
#define WATCH_SECONDS (AHEAD_SECONDS / 4) /* planned time in which at least one instruction is watched */

enum mark { ANNOUNCED = 1, WATCHED = 2 };

/* Marks of a program's instructions in two variants: as lanes need them (`plain`), and with every end measured (`timed`). */
struct marks {
    const struct program *p;
    struct lane_index index;
    int *position; /* position of each instruction on its cursor, from 1 */
    int *next;     /* the instruction after each one on its cursor; n_instrs: none */
    uint8_t *plain, *timed;
    int32_t *after; /* ticket of its lane that must retire before an instruction is submitted; 0: none */
};

/* An instruction whose event was recorded. */
struct announced {
    int64_t position;
    int instr;
};

struct stream {
    /* the submitter's fields */
    int next;                /* next instruction; n_instrs: none */
    int64_t recorded;        /* number of events in this run; the k-th is in slot k % BACKEND_EVENTS */
    _Atomic int64_t retired; /* position, set by the reaper before it retires tickets */
    /* fields under the lock */
    pthread_mutex_t lock;
    pthread_cond_t moved;
    struct announced ring[BACKEND_EVENTS];
    int64_t published; /* number of events up to the last watched one, for the reaper */
    int over;          /* 1: nothing more will be published */
};

struct device_lanes {
    const struct exec_context *x;
    int cursors; /* number of cursors; COMM_CURSOR if the comm lanes do not run on the device */
    struct marks *marks;
    int n_marks;
    int joins;           /* LTRAIN_CUDA_SYNC: join after each instruction, so that a failure is reported at its own */
    _Atomic int in_hand; /* instruction being submitted; with `joins` any failure is its own */
    struct stream stream[CURSORS];
    /* state of the current run */
    const struct program *p;
    const struct marks *marked;
    const uint8_t *mark;
    int timed;
    const int32_t *after;
    int64_t submitted[LANES]; /* tickets, by lane */
    struct tickets *tickets;
    struct trace_event *events;
    struct device_cut cut;
    int64_t began, recording; /* times by clock_ns(): start of the program; recording of BACKEND_BEGAN */
    struct lane_submission submission;
};

static int cursor_of(const struct device_lanes *d, int lane)
{
    if (lane <= LANE_D2H)
        return lane;
    return lane_is_comm((enum lane)lane) && d->cursors == CURSORS ? COMM_CURSOR : NO_CURSOR;
}

static enum lane stream_lane(int cursor)
{
    return cursor == COMM_CURSOR ? LANE_WORLD : (enum lane)cursor;
}

/* --- Announced and watched instructions --- */

/* Marks collectives, the instructions that other lanes wait for, and the last one of a lane before a wait for another lane. Where
 * a lane may stand still, the end of its last instruction has to be measured; without a wait the next one starts at once. */
static void mark_waited_for(const struct device_lanes *d, struct marks *m)
{
    const struct program *p = m->p;
    int last[CURSORS] = {NO_CURSOR, NO_CURSOR, NO_CURSOR, NO_CURSOR};
    for (int i = 0; i < p->n_instrs; i++) {
        const struct instr *in = &p->instrs[i];
        const int cursor = cursor_of(d, in->lane);
        for (const struct wait *w = program_waits(p, in), *end = w + in->n_waits; w < end; w++) {
            const int of = cursor_of(d, w->lane);
            if (cursor != NO_CURSOR && of != cursor && last[cursor] >= 0)
                m->plain[last[cursor]] |= ANNOUNCED;
            if (of == NO_CURSOR || of == cursor)
                continue;
            const int watched = cursor == NO_CURSOR || cursor == COMM_CURSOR;
            m->plain[m->index.at[m->index.first[w->lane] + w->ticket - 1]] |= watched ? ANNOUNCED | WATCHED : ANNOUNCED;
        }
        if (cursor == COMM_CURSOR)
            m->plain[i] |= ANNOUNCED | WATCHED;
        if (cursor != NO_CURSOR)
            last[cursor] = i;
    }
}

static double planned_seconds(const struct instr *in)
{
    return in->end > in->start ? in->end - in->start : 0;
}

static void mark_regularly(const struct device_lanes *d, const struct program *p, int timed, uint8_t *marks)
{
    int instrs[CURSORS] = {0}, announced[CURSORS] = {0}; /* numbers of instructions since the last watched one, by cursor */
    double planned[CURSORS] = {0};
    int last[CURSORS] = {-1, -1, -1, -1};
    for (int i = 0; i < p->n_instrs; i++)
        if (cursor_of(d, p->instrs[i].lane) != NO_CURSOR)
            last[cursor_of(d, p->instrs[i].lane)] = i;
    for (int i = 0; i < p->n_instrs; i++) {
        const int c = cursor_of(d, p->instrs[i].lane);
        if (c == NO_CURSOR)
            continue;
        if (timed)
            marks[i] |= ANNOUNCED;
        announced[c] += marks[i] & ANNOUNCED;
        planned[c] += planned_seconds(&p->instrs[i]);
        if (++instrs[c] >= WATCH_INSTRS || announced[c] >= WATCH_EVENTS || planned[c] >= WATCH_SECONDS || i == last[c])
            marks[i] |= ANNOUNCED | WATCHED;
        if (marks[i] & WATCHED)
            planned[c] = instrs[c] = announced[c] = 0;
    }
}

/* Finds for each instruction of COMPUTE, H2D and D2H the newest watched ticket that must retire before it is submitted. So at
 * most AHEAD_SECONDS are under way. */
static void limit_ahead(const struct program *p, const struct lane_index *index, const uint8_t *marks, int32_t *after)
{
    for (int l = 0; l < COMM_CURSOR; l++) {
        const int *at = index->at + index->first[l], n = index->first[l + 1] - index->first[l];
        double planned = 0; /* seconds of the instructions behind ticket `oldest`, up to the k-th */
        for (int k = 0, oldest = 0, watched = 0; k < n; k++) { /* instruction k of the lane has ticket k + 1 */
            while (oldest < k - AHEAD_LEAST && planned > AHEAD_SECONDS) {
                planned -= planned_seconds(&p->instrs[at[oldest]]);
                if (marks[at[oldest]] & WATCHED)
                    watched = oldest + 1;
                oldest++;
            }
            after[at[k]] = watched;
            planned += planned_seconds(&p->instrs[at[k]]);
        }
    }
}

/* Returns the device address of an argument's first byte, -1: it has none. */
static int64_t address_of(const struct program *p, const struct instr *in, int arg)
{
    for (int k = in->first_operand; k < in->first_operand + in->n_operands; k++)
        if (p->operands[k].arg == arg)
            return p->buffers[p->operands[k].buffer].address + p->operands[k].offset;
    return -1;
}

/* Makes each collective whose counts the host reads wait until they are there: until the gather that wrote them has retired. */
static void await_counts(const struct program *p, int32_t *after)
{
    for (int i = 0; i < p->n_instrs; i++) {
        const struct instr *in = &p->instrs[i];
        for (int k = i - 1; op_is_counted(in->op) && after[i] == 0; k--) {
            const struct instr *gather = &p->instrs[k];
            assert(k >= 0 && "counts are gathered on the lane on which rows travel");
            if (gather->lane == in->lane && gather->op == OP_ALL_GATHER && address_of(p, gather, 1) == address_of(p, in, 2))
                after[i] = (int32_t)gather->ticket;
        }
    }
}

static enum status marks_make(const struct device_lanes *d, const struct program *p, struct marks *m)
{
    int positions[CURSORS] = {0}, next[CURSORS] = {p->n_instrs, p->n_instrs, p->n_instrs, p->n_instrs};
    m->p = p;
    m->position = sys_calloc((size_t)p->n_instrs + 1, sizeof *m->position);
    m->next = sys_calloc((size_t)p->n_instrs + 1, sizeof *m->next);
    m->plain = sys_calloc((size_t)p->n_instrs + 1, 1);
    m->timed = sys_calloc((size_t)p->n_instrs + 1, 1);
    m->after = sys_calloc((size_t)p->n_instrs + 1, sizeof *m->after);
    if (!m->position || !m->next || !m->plain || !m->timed || !m->after)
        return status_fail(ERR_NOMEM, "out of memory for the device's lanes");
    TRY(lane_index_make(p, &m->index));
    for (int i = 0; i < p->n_instrs; i++)
        if (cursor_of(d, p->instrs[i].lane) != NO_CURSOR)
            m->position[i] = ++positions[cursor_of(d, p->instrs[i].lane)];
    for (int i = p->n_instrs - 1; i >= 0; i--)
        if (cursor_of(d, p->instrs[i].lane) != NO_CURSOR) {
            m->next[i] = next[cursor_of(d, p->instrs[i].lane)];
            next[cursor_of(d, p->instrs[i].lane)] = i;
        }
    mark_waited_for(d, m);
    mark_regularly(d, p, 0, m->plain);
    memcpy(m->timed, m->plain, (size_t)p->n_instrs); /* instructions named in `after` are watched in both variants */
    mark_regularly(d, p, 1, m->timed);
    limit_ahead(p, &m->index, m->plain, m->after);
    if (d->cursors == CURSORS)
        await_counts(p, m->after);
    return OK;
}

enum status device_lanes_create(const struct exec_context *x, struct program *const *programs, int n, struct device_lanes **out)
{
    enum status st = OK;
    const char *joins = getenv("LTRAIN_CUDA_SYNC");
    struct device_lanes *d = sys_calloc(1, sizeof *d);
    if (!d)
        return status_fail(ERR_NOMEM, "out of memory for the device's lanes");
    d->x = x;
    d->joins = joins && strcmp(joins, "1") == 0;
    d->cursors = x->carried ? CURSORS : COMM_CURSOR;
    for (int c = 0; c < CURSORS; c++) {
        pthread_mutex_init(&d->stream[c].lock, NULL);
        pthread_cond_init(&d->stream[c].moved, NULL);
    }
    d->marks = sys_calloc((size_t)n + 1, sizeof *d->marks);
    if (!d->marks)
        st = status_fail(ERR_NOMEM, "out of memory for the device's lanes");
    for (int k = 0; k < n && st == OK; k++)
        if (programs[k])
            st = marks_make(d, programs[k], &d->marks[d->n_marks++]);
    if (st != OK) {
        device_lanes_destroy(d);
        return st;
    }
    *out = d;
    return OK;
}

void device_lanes_destroy(struct device_lanes *d)
{
    if (!d)
        return;
    for (int k = 0; k < d->n_marks; k++) {
        lane_index_free(&d->marks[k].index);
        free(d->marks[k].position);
        free(d->marks[k].next);
        free(d->marks[k].plain);
        free(d->marks[k].timed);
        free(d->marks[k].after);
    }
    for (int c = 0; c < CURSORS; c++) {
        pthread_mutex_destroy(&d->stream[c].lock);
        pthread_cond_destroy(&d->stream[c].moved);
    }
    free(d->marks);
    free(d);
}

/* --- The submitter --- */

static int first_of(const struct device_lanes *d, int cursor)
{
    int i = 0;
    while (i < d->p->n_instrs && cursor_of(d, d->p->instrs[i].lane) != cursor)
        i++;
    return i;
}

void device_lanes_begin(struct device_lanes *d, const struct program *p, struct tickets *t, struct trace_event *events, int timed,
                        int64_t began, const struct device_cut *cut)
{
    const struct marks *m = d->marks;
    while (m->p && m->p != p)
        m++;
    assert(m->p);
    d->p = p;
    d->marked = m;
    d->mark = timed ? m->timed : m->plain;
    d->timed = timed;
    d->after = m->after;
    d->tickets = t;
    d->events = events;
    d->cut = *cut;
    d->began = began;
    memset(d->submitted, 0, sizeof d->submitted);
    for (int c = 0; c < d->cursors; c++) {
        struct stream *s = &d->stream[c];
        s->next = first_of(d, c);
        s->recorded = s->published = 0;
        atomic_store(&s->retired, 0);
        s->over = 0;
    }
}

static int has_retired(const struct device_lanes *d, int lane, int64_t ticket)
{
    return atomic_load(&d->tickets->done[lane]) >= ticket;
}

static int is_ready(const struct device_lanes *d, int cursor)
{
    const struct stream *s = &d->stream[cursor];
    const struct instr *in = &d->p->instrs[s->next];
    if (atomic_load(&s->retired) < d->marked->position[s->next] - BACKEND_EVENTS) /* the event's slot may still be in use */
        return 0;
    if (cursor == COMM_CURSOR && comm_cut_holds(d->x->comm))
        return 0;
    if (!has_retired(d, in->lane, d->after[s->next]))
        return 0;
    for (const struct wait *w = program_waits(d->p, in), *end = w + in->n_waits; w < end; w++) {
        int there = cursor_of(d, w->lane) != NO_CURSOR ? d->submitted[w->lane] >= w->ticket : has_retired(d, w->lane, w->ticket);
        if (!there)
            return 0;
    }
    return 1;
}

/* Returns the ready cursor whose next instruction is earliest in the program, or NO_CURSOR. */
static int earliest_ready(const struct device_lanes *d)
{
    int best = NO_CURSOR;
    for (int c = 0; c < d->cursors; c++) {
        const struct stream *s = &d->stream[c];
        if (s->next < d->p->n_instrs && (best == NO_CURSOR || s->next < d->stream[best].next) && is_ready(d, c))
            best = c;
    }
    return best;
}

static int some_is_ready(void *user)
{
    return earliest_ready(user) != NO_CURSOR;
}

static int all_is_submitted(const struct device_lanes *d)
{
    for (int c = 0; c < d->cursors; c++)
        if (d->stream[c].next < d->p->n_instrs)
            return 0;
    return 1;
}

/* Finds the event slot of an announced instruction that has not retired. */
static int slot_of(const struct stream *s, int64_t position)
{
    for (int64_t k = s->recorded - 1; k >= 0 && k >= s->recorded - BACKEND_EVENTS; k--)
        if (s->ring[k % BACKEND_EVENTS].position == position)
            return (int)(k % BACKEND_EVENTS);
    assert(0 && "what a device lane waits for is announced");
    return 0;
}

static enum status await_others(struct device_lanes *d, int cursor, const struct instr *in)
{
    struct backend *b = d->x->backend;
    const struct lane_index *index = &d->marked->index;
    for (const struct wait *w = program_waits(d->p, in), *end = w + in->n_waits; w < end; w++) {
        const int of = cursor_of(d, w->lane);
        if (of == NO_CURSOR || of == cursor)
            continue;
        const int position = d->marked->position[index->at[index->first[w->lane] + w->ticket - 1]];
        /* `retired` is asked, not the board, which learns of an end only after the event's slot may be in use again */
        if (atomic_load(&d->stream[of].retired) >= position)
            continue;
        const int slot = slot_of(&d->stream[of], position);
        TRY(backend_status(b, b->await(b, stream_lane(cursor), stream_lane(of), slot)));
    }
    return OK;
}

static enum status announce(struct device_lanes *d, int cursor, int i)
{
    struct backend *b = d->x->backend;
    struct stream *s = &d->stream[cursor];
    const int slot = (int)(s->recorded % BACKEND_EVENTS);
    enum status (*const record)(struct backend *, enum lane, int) = d->mark[i] & WATCHED ? b->record : b->record_quietly;
    TRY(backend_status(b, record(b, stream_lane(cursor), slot)));
    pthread_mutex_lock(&s->lock);
    s->ring[slot] = (struct announced){d->marked->position[i], i};
    s->recorded++;
    if (d->mark[i] & WATCHED)
        s->published = s->recorded;
    pthread_mutex_unlock(&s->lock);
    if (d->mark[i] & WATCHED) /* signals after unlocking, since the woken reaper would wait for the lock */
        pthread_cond_signal(&s->moved);
    return OK;
}

/* Tells whether the cursor's ready next instruction is run, is left out because the program is cut, or has to wait after all. */
static enum comm_turn turn_of(const struct device_lanes *d, int cursor, int i)
{
    if (cursor == COMM_CURSOR)
        return comm_turn_take(d->x->comm, d->p->instrs[i].lane, d->cut.must[i]);
    return !d->cut.must[i] && comm_is_cut(d->x->comm) ? COMM_TURN_OVER : COMM_TURN;
}

/* Registers a wait for instruction i with the watchdog. last: words for a message that an earlier instruction may be the one that
 * hangs. Without effect (-1) if a library carries messages: streams then may wait for other ranks, which have a deadline of their
 * own (comm_guard.h). */
static int watch_instruction(const struct device_lanes *d, int i, const char *last)
{
    char what[320];
    const struct instr *in = &d->p->instrs[i];
    if (d->x->carried)
        return -1;
    snprintf(what, sizeof what, "%s has not finished instruction %d of program %s (%s, layer %d, on the %s lane)%s",
             d->x->backend->name, i, d->p->name, op_name(in->op), in->unit, lane_name((enum lane)in->lane), last);
    return watch_enter(&(struct watch_call){.fd = -1, .path = what, .device = 1});
}

static enum status join_after(struct device_lanes *d, int i)
{
    struct backend *b = d->x->backend;
    const int handle = watch_instruction(d, i, "");
    enum status st = backend_status(b, b->join(b));
    watch_leave(handle);
    return st;
}

static enum status submit(struct device_lanes *d, const struct instr *in)
{
    struct backend *b = d->x->backend;
    scrub_begin_write(d->x->scrub, d->p, in);
    if (!again_is(d->x->again, d->p, in))
        return exec_submit(d->x, d->p, in);
    TRY(backend_status(b, b->join(b)));
    TRY(again_before(d->x->again, d->x, d->p, in));
    TRY(exec_submit(d->x, d->p, in));
    TRY(backend_status(b, b->join(b)));
    return again_after(d->x->again, d->x, d->p, in);
}

static enum status submit_next(struct device_lanes *d, int cursor)
{
    struct stream *s = &d->stream[cursor];
    const int i = s->next;
    const struct instr *in = &d->p->instrs[i];
    const enum comm_turn turn = turn_of(d, cursor, i);
    if (turn == COMM_TURN_NOT_YET)
        return OK;
    atomic_store(&d->in_hand, i);
    const int64_t began = d->timed ? clock_ns() : 0;
    TRY(await_others(d, cursor, in));
    d->events[i].start_ns = turn == COMM_TURN ? clock_ns() - d->began : DEVICE_LEFT_OUT;
    if (exec_holds(d->x, in->predicate) && turn == COMM_TURN)
        TRY(submit(d, in));
    if (d->mark[i] & ANNOUNCED)
        TRY(announce(d, cursor, i));
    if (d->timed)
        d->events[i].submit_ns = clock_ns() - began;
    if (d->joins)
        TRY(join_after(d, i));
    d->submission.instrs++;
    d->submitted[in->lane] = in->ticket;
    s->next = d->marked->next[i];
    return OK;
}

/* Adds the instruction and each lane's progress to a device failure, which may come from something submitted earlier. A reaper
 * may see it before the submitter, while waiting for an innocent instruction; with `joins` the instruction in hand is named. */
static enum status explain(const struct device_lanes *d, const char *doing, int i, enum status st)
{
    char cause[512], lanes[192] = "";
    size_t n = 0;
    if (d->joins) {
        i = atomic_load(&d->in_hand);
        doing = "submitting";
    }
    const struct instr *in = &d->p->instrs[i];
    snprintf(cause, sizeof cause, "%s", status_message());
    for (int l = 0; l < LANES; l++)
        if (cursor_of(d, l) != NO_CURSOR)
            n += (size_t)snprintf(lanes + n, sizeof lanes - n, "%s%s %lld", n ? ", " : "", lane_name((enum lane)l),
                                  (long long)atomic_load(&d->tickets->done[l]));
    return status_fail(st, "%s (%s, while %s instruction %d of program %s: %s, layer %d, on the %s lane%s; done: %s)", cause,
                       d->x->backend->name, doing, i, d->p->name, op_name(in->op), in->unit, lane_name(in->lane),
                       d->joins ? "" : "; LTRAIN_CUDA_SYNC=1 names the one that fails", lanes);
}

static int64_t own_cpu_ns(void)
{
    struct timespec t;
    return clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0 ? (int64_t)t.tv_sec * 1000000000 + t.tv_nsec : 0;
}

static enum status submit_all(struct device_lanes *d)
{
    struct backend *b = d->x->backend;
    d->recording = clock_ns(); /* before any event is published */
    TRY(backend_status(b, b->record(b, LANE_COMPUTE, BACKEND_BEGAN)));
    while (!all_is_submitted(d)) {
        int cursor = earliest_ready(d);
        if (tickets_failed(d->tickets))
            return ERR_CANCELLED;
        if (cursor == NO_CURSOR) {
            TRY(tickets_wait_until(d->tickets, LANE_COMPUTE, some_is_ready, d));
            continue;
        }
        const int i = d->stream[cursor].next;
        enum status st = submit_next(d, cursor);
        if (st != OK)
            return explain(d, "submitting", i, st);
    }
    return backend_status(b,
                          /* the next program records BACKEND_BEGAN again, and this program may have recorded no other event */
                          b->wait(b, LANE_COMPUTE, BACKEND_BEGAN));
}

enum status device_lanes_submit(struct device_lanes *d)
{
    struct backend *b = d->x->backend;
    const int64_t began = own_cpu_ns();
    enum status st = submit_all(d);
    d->submission.cpu_ns += own_cpu_ns() - began;
    if (st != OK) {
        if (st != ERR_CANCELLED)
            tickets_fail(d->tickets, st);
        (void)b->join(b); /* an error of a lane has been reported already; on success all streams are idle */
    }
    for (int c = 0; c < d->cursors; c++) {
        struct stream *s = &d->stream[c];
        pthread_mutex_lock(&s->lock);
        s->over = 1;
        pthread_cond_signal(&s->moved);
        pthread_mutex_unlock(&s->lock);
    }
    return st;
}

struct lane_submission device_lanes_take_submission(struct device_lanes *d)
{
    const struct lane_submission taken = d->submission;
    d->submission = (struct lane_submission){0};
    return taken;
}

/* --- Reapers --- */

/* Notes the ends of the announced instructions of events `from` to `to`. Instructions between take the next one's end
 * (fill_ends). */
static enum status note_ends(struct device_lanes *d, enum lane lane, int64_t from, int64_t to)
{
    struct backend *b = d->x->backend;
    struct stream *s = &d->stream[cursor_of(d, lane)];
    if (from == 0) /* elapsed() needs BACKEND_BEGAN to be done; being recorded first does not ensure that */
        TRY(backend_status(b, b->wait(b, LANE_COMPUTE, BACKEND_BEGAN)));
    for (int64_t k = from; k < to; k++) {
        double seconds;
        const int slot = (int)(k % BACKEND_EVENTS);
        TRY(backend_status(b, b->elapsed(b, lane, slot, &seconds)));
        pthread_mutex_lock(&s->lock);
        const int i = s->ring[slot].instr;
        pthread_mutex_unlock(&s->lock);
        d->events[i].end_ns = d->recording - d->began + (int64_t)(seconds * 1e9);
    }
    return OK;
}

/* Checks and sums the host's state that instructions behind `ticket` of a lane, up to `last`, have read and written. */
static enum status scrub(struct device_lanes *d, enum lane lane, int64_t ticket, int64_t last)
{
    const struct lane_index *index = &d->marked->index;
    for (; d->x->scrub && ticket < last; ticket++) {
        const int i = index->at[index->first[lane] + ticket];
        const struct instr *in = &d->p->instrs[i];
        if (!exec_holds(d->x, in->predicate) || d->events[i].start_ns == DEVICE_LEFT_OUT)
            continue;
        TRY(scrub_check_read(d->x->scrub, d->p, in));
        scrub_end_write(d->x->scrub, d->p, in);
    }
    return OK;
}

/* Retires the tickets of the instruction's lane up to its own: those of instructions without a watched event too. */
static enum status retire(struct device_lanes *d, struct stream *s, const struct announced *a)
{
    const struct instr *in = &d->p->instrs[a->instr];
    const int64_t before = atomic_load(&d->tickets->done[in->lane]);
    TRY(scrub(d, (enum lane)in->lane, before, in->ticket));
    atomic_store(&s->retired, a->position);
    tickets_retire(d->tickets, in->lane, in->ticket);
    d->cut.retired(d->cut.user, in->lane, before, in->ticket);
    return OK;
}

enum status device_lanes_reap(struct device_lanes *d, enum lane lane)
{
    struct backend *b = d->x->backend;
    struct stream *s = &d->stream[cursor_of(d, lane)];
    int64_t reaped = 0; /* events */
    for (;;) {
        pthread_mutex_lock(&s->lock);
        while (s->published == reaped && !s->over)
            pthread_cond_wait(&s->moved, &s->lock);
        /* find the next watched one; `published` may be several further */
        int64_t to = reaped;
        while (to < s->published && !(d->mark[s->ring[to % BACKEND_EVENTS].instr] & WATCHED))
            to++;
        const int more = to < s->published;
        const struct announced at = s->ring[to % BACKEND_EVENTS];
        pthread_mutex_unlock(&s->lock);
        if (!more)
            return OK;
        const int handle = watch_instruction(d, at.instr, d->joins ? "" : ", or one before it: LTRAIN_CUDA_SYNC=1 names it,");
        enum status st = backend_status(b, b->wait(b, lane, (int)(to % BACKEND_EVENTS)));
        watch_leave(handle);
        if (st == OK)
            st = note_ends(d, lane, reaped, to + 1);
        if (st != OK)
            return explain(d, "waiting for", at.instr, st);
        reaped = to + 1;
        TRY(retire(d, s, &at));
    }
}

/* --- Measurements --- */

/* Fills in the ends of instructions without an event: the end of the next one that has one. */
static void fill_ends(const struct device_lanes *d)
{
    int64_t later[CURSORS] = {0};
    for (int i = d->p->n_instrs - 1; i >= 0; i--) {
        const int c = cursor_of(d, d->p->instrs[i].lane);
        if (c == NO_CURSOR)
            continue;
        if (d->mark[i] & ANNOUNCED)
            later[c] = d->events[i].end_ns;
        d->events[i].end_ns = later[c];
    }
}

void device_lanes_measure(const struct device_lanes *d, const struct lane_index *index, struct lane_stats stats[LANES])
{
    const struct program *p = d->p;
    int64_t last[CURSORS] = {0};
    fill_ends(d);
    for (int i = 0; i < p->n_instrs; i++) {
        const struct instr *in = &p->instrs[i];
        struct trace_event *e = &d->events[i];
        const int c = cursor_of(d, in->lane);
        if (c == NO_CURSOR)
            continue;
        int64_t start = max_i64(e->start_ns, last[c]); /* starts once it is submitted and its predecessor is done */
        for (const struct wait *w = program_waits(p, in), *end = w + in->n_waits; w < end; w++)
            start = max_i64(start, d->events[index->at[index->first[w->lane] + w->ticket - 1]].end_ns);
        const int executed = exec_holds(d->x, in->predicate);
        e->start_ns = start;
        e->end_ns = executed ? max_i64(start, e->end_ns) : start;
        stats[in->lane].waited_ns += start - last[c];
        last[c] = e->end_ns;
        if (!executed)
            continue;
        stats[in->lane].busy_ns += e->end_ns - start;
        stats[in->lane].bytes += program_call(p, in)->bytes;
    }
}
