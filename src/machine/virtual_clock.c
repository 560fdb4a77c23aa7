/* Simulation of a program on a virtual clock. */
#include "machine/virtual_clock.h"

#include "base/sys.h"
#include "program/drives.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One line: its running or next instruction, and the ones after it. */
struct runner {
    int at;   /* index of the next or running instruction; n_instrs: none is left */
    int last; /* index of the line's last instruction; -1: it has none */
    int dep;  /* first dependency of `at` that may not have ended yet */
    int running;
    double idle;            /* time at which the line last ended an instruction */
    double speed;           /* speed of the running instruction, relative to running alone */
    double demand[LINKS];   /* share of a link that a running lane takes at full speed */
    int ahead[DRIVE_DEPTH]; /* instructions after `at`, as far as they have been looked up */
    int first, known;       /* `known` entries of ahead[], a ring that begins at ahead[first] */
};

/* Lines of instructions: one for each lane, then the second lines. */
enum { LINE_COMPUTE = LANES, LINE_WORLD, LINES };

struct simulation {
    struct program *p;
    const struct cost_model *m;
    struct cost_memo memo;
    const int *dep_first, *dep;
    const double *release;
    const struct second_lines *second; /* NULL: none */
    int *next;                         /* the instruction after each one on its line, or n_instrs; NULL: no memory for a list */
    int used[LINES], n_used;           /* lines that have instructions, ascending */
    int starts[LINES];                 /* the same lines in the order in which their instructions start */
    struct runner lane[LINES];         /* state of each line */
    double load[LINKS];                /* demand of the running lanes, added up */
    int sharing;                       /* 1: some link was asked for more than all of it */
    double now;
};

static int lane_of(int line)
{
    return line == LINE_COMPUTE ? LANE_COMPUTE : line == LINE_WORLD ? LANE_WORLD : line;
}

static int line_of(const struct simulation *s, int i)
{
    int lane = s->p->instrs[i].lane;
    if (!s->second || !s->second->in[i])
        return lane;
    return lane == LANE_COMPUTE ? LINE_COMPUTE : LINE_WORLD;
}

/* Returns the instruction after the i-th on its line, or n_instrs. */
static int next_on_lane(const struct simulation *s, int l, int i)
{
    if (i >= 0 && i < s->p->n_instrs && s->next)
        return s->next[i];
    if (i >= s->lane[l].last)
        return s->p->n_instrs;
    do
        i++;
    while (line_of(s, i) != l);
    return i;
}

/* Returns the k-th instruction after the running one on its line, or n_instrs. */
static int ahead(struct simulation *s, int l, int k)
{
    struct runner *r = &s->lane[l];
    for (; r->known <= k; r->known++) {
        int last = r->known > 0 ? r->ahead[(r->first + r->known - 1) % DRIVE_DEPTH] : r->at;
        r->ahead[(r->first + r->known) % DRIVE_DEPTH] = next_on_lane(s, l, last);
    }
    return r->ahead[(r->first + k) % DRIVE_DEPTH];
}

static void advance(struct simulation *s, int l)
{
    struct runner *r = &s->lane[l];
    r->at = ahead(s, l, 0);
    r->first = (r->first + 1) % DRIVE_DEPTH;
    r->known--;
    if (r->at < s->p->n_instrs)
        r->dep = s->dep_first ? s->dep_first[r->at] : 0;
}

/* Tells whether another comm lane's collective comes first: one that runs, or one that stands before it in the program. If there
 * are releases, the program has no order yet, and any collective that can start is next. */
static int is_chained(const struct simulation *s, int l)
{
    if (!s->m->chained || !lane_is_comm((enum lane)lane_of(l)))
        return 0;
    for (int i = s->n_used - 1; i >= 0 && s->used[i] >= LANE_WORLD; i--) {
        const int o = s->used[i];
        if (o != l && o != LINE_COMPUTE && (s->lane[o].running || (!s->release && s->lane[o].at < s->lane[l].at)))
            return 1;
    }
    return 0;
}

/* Tells whether an instruction of the lane's other line runs. */
static int is_taken(const struct simulation *s, int line)
{
    static const int other[LINES] = {
        [LANE_COMPUTE] = LINE_COMPUTE, [LINE_COMPUTE] = LANE_COMPUTE, [LANE_WORLD] = LINE_WORLD, [LINE_WORLD] = LANE_WORLD};
    return (lane_of(line) == LANE_COMPUTE || lane_of(line) == LANE_WORLD) && s->lane[other[line]].running;
}

/* Tells whether all dependencies of the line's next instruction have ended. */
static int has_operands(struct simulation *s, struct runner *r)
{
    if (!s->dep_first)
        return 1;
    while (r->dep < s->dep_first[r->at + 1] && s->p->instrs[s->dep[r->dep]].end <= s->now)
        r->dep++;
    return r->dep == s->dep_first[r->at + 1];
}

/* Tells whether the world lane's first line yields: the second line's next instruction will have ended before compute reaches the
 * release of the first line's next one. */
static int yields(struct simulation *s, int line)
{
    struct runner *r = &s->lane[LINE_WORLD];
    const struct runner *compute = &s->lane[LANE_COMPUTE];
    if (!s->second || line != LANE_WORLD || r->at >= s->p->n_instrs || compute->at >= s->p->n_instrs || !has_operands(s, r))
        return 0;
    double reached = s->second->planned[compute->at] + (compute->running ? s->now - s->p->instrs[compute->at].start : 0);
    return reached + cost_memo_seconds(&s->memo, &s->p->instrs[r->at]) <= s->second->planned[s->lane[line].at];
}

/* Tells whether the line's next instruction may start now. *later: the time of its release, if only that holds it back. An
 * instruction whose end is unknown has end = INFINITY. */
static int may_start(struct simulation *s, int l, double *later)
{
    struct runner *r = &s->lane[l];
    if (r->running || r->at >= s->p->n_instrs || is_chained(s, l))
        return 0;
    if ((s->second && is_taken(s, l)) || !has_operands(s, r))
        return 0;
    if (s->release && s->release[r->at] > s->now) {
        if (s->release[r->at] < *later)
            *later = s->release[r->at];
        return 0;
    }
    return !yields(s, l);
}

static int may_be_issued(const struct simulation *s, int i)
{
    for (int k = s->dep_first ? s->dep_first[i] : 0; s->dep_first && k < s->dep_first[i + 1]; k++)
        if (s->p->instrs[s->dep[k]].end > s->now)
            return 0;
    return !s->release || s->release[i] <= s->now;
}

/* Returns the smaller number; fmin and fmax would be calls. */
static double smaller(double a, double b)
{
    return a < b ? a : b;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Returns the bytes that an I/O lane has in flight: the blocks that the running instruction still has to move, and those of
 * further instructions with nothing left to wait for. The window limits the number of blocks. */
static double in_flight(struct simulation *s, int l)
{
    const struct runner *r = &s->lane[l];
    double left = (s->p->instrs[r->at].end - s->now) * r->speed * s->m->lane_bytes[l], sum = 0;
    const int most = l == LANE_WRITE && s->p->write_depth > 0 ? s->p->write_depth : DRIVE_DEPTH, n = s->p->n_instrs;
    int room = most;
    for (int k = 0; room > 0; k++) {
        int i = k == 0 ? r->at : ahead(s, l, k - 1);
        if (i == n || (k > 0 && !may_be_issued(s, i)))
            break;
        double bytes = larger(1, (double)program_call(s->p, &s->p->instrs[i])->bytes);
        double blocks = larger(1, smaller(ceil((i == r->at ? smaller(left, bytes) : bytes) / DRIVE_BLOCK), room));
        sum += smaller(bytes, blocks * DRIVE_BLOCK);
        room -= (int)blocks;
    }
    if (l == LANE_WRITE && most - room > s->p->writes_queued)
        s->p->writes_queued = most - room;
    return sum;
}

/* Sets the speeds of the lanes that use the drives: all bytes in flight take equally long, so a small extent beside a long queue
 * is slow. No lane is faster than alone. */
static void share_drives(struct simulation *s, double speed[LANES])
{
    double most = 0, asked = 0;
    for (int l = LANE_READ; l <= LANE_WRITE; l++) {
        speed[l] = s->lane[l].running ? in_flight(s, l) : 0;
        most = larger(most, speed[l]);
        asked += speed[l] * s->lane[l].demand[LINK_DRIVES];
    }
    for (int l = LANE_READ; l <= LANE_WRITE; l++)
        speed[l] /= larger(most, asked);
}

/* Returns the part of a link that each lane gets that asks for more than this part (max-min fairness; Bertsekas and Gallager,
 * Data Networks, 6.5.2). A lane that asks for less gets all it asks for. */
static double fair_part(const struct simulation *s, int k)
{
    double left = 1, part = 1;
    int settled[LINES] = {0};
    for (int again = 1; again;) {
        int n = 0;
        for (int i = 0; i < s->n_used; i++) {
            const struct runner *r = &s->lane[s->used[i]];
            n += r->running && r->demand[k] > 0 && !settled[i];
        }
        part = left / n;
        again = 0;
        for (int i = 0; i < s->n_used; i++) {
            const struct runner *r = &s->lane[s->used[i]];
            if (r->running && r->demand[k] > 0 && !settled[i] && r->demand[k] <= part) {
                settled[i] = again = 1;
                left -= r->demand[k];
            }
        }
    }
    return part;
}

/* Moves the ends of running instructions when lanes start or stop sharing links. */
static void share(struct simulation *s)
{
    double part[LINKS], drives[LINES];
    int shared = s->sharing;
    s->sharing = 0;
    for (int k = 0; k < LINKS; k++)
        s->sharing |= s->load[k] > 1;
    if (!s->sharing && !shared)
        return;
    for (int k = 0; k < LINKS; k++)
        part[k] = s->load[k] > 1 && k != LINK_DRIVES ? fair_part(s, k) : 1;
    for (int l = 0; l < LINES; l++)
        drives[l] = 1;
    if (s->load[LINK_DRIVES] > 1)
        share_drives(s, drives);
    for (int i = 0; i < s->n_used; i++) {
        struct runner *r = &s->lane[s->used[i]];
        if (!r->running)
            continue;
        double speed = drives[s->used[i]];
        for (int k = 0; k < LINKS; k++)
            if (r->demand[k] > part[k] && part[k] / r->demand[k] < speed)
                speed = part[k] / r->demand[k];
        if (speed == r->speed)
            continue;
        struct instr *in = &s->p->instrs[r->at];
        in->end = s->now + (in->end - s->now) * r->speed / speed;
        r->speed = speed;
    }
}

static void set_running(struct simulation *s, int l, int running)
{
    s->lane[l].running = running;
    for (int k = 0; k < LINKS; k++) {
        if (s->lane[l].demand[k] == 0)
            continue;
        s->load[k] = 0; /* summed anew, so that an idle link's load is exactly 0 */
        for (int i = 0; i < s->n_used; i++)
            if (s->lane[s->used[i]].running)
                s->load[k] += s->lane[s->used[i]].demand[k];
    }
}

/* Starts the instructions that can start now; 1 if one did. */
static int start_ready(struct simulation *s, double *later)
{
    int started = 0;
    for (int k = 0; k < s->n_used; k++) {
        const int l = s->starts[k];
        if (!may_start(s, l, later))
            continue;
        struct instr *in = &s->p->instrs[s->lane[l].at];
        in->start = s->now;
        in->end = s->now + cost_memo_seconds(&s->memo, in);
        if (s->m->lane_idle[lane_of(l)] > 0 && s->lane[l].idle < s->now)
            in->end += s->m->lane_idle[lane_of(l)];
        s->lane[l].speed = 1;
        if (s->m->lane_cores[lane_of(l)] > 0)
            s->lane[l].demand[LINK_CORES] =
                s->m->demand[lane_of(l)][LINK_CORES] + s->m->lane_cores[lane_of(l)] / (in->end - in->start);
        set_running(s, l, 1);
        started = 1;
    }
    return started;
}

static void retire_ended(struct simulation *s)
{
    for (int i = 0; i < s->n_used; i++) {
        const int l = s->used[i];
        if (s->lane[l].running && s->p->instrs[s->lane[l].at].end <= s->now) {
            set_running(s, l, 0);
            s->lane[l].idle = s->now;
            advance(s, l);
        }
    }
}

/* Lists the instruction after each one on its line, by one walk instead of one for each line. */
static int *list_next(const struct simulation *s)
{
    int at[LINES], *next = sys_malloc(sizeof *next * ((size_t)s->p->n_instrs + 1));
    for (int l = 0; l < LINES; l++)
        at[l] = s->p->n_instrs;
    for (int i = s->p->n_instrs - 1; next && i >= 0; i--) {
        int *after = &at[line_of(s, i)];
        next[i] = *after;
        *after = i;
    }
    return next;
}

/* Lists the lines that have instructions: most programs leave most comm lanes empty. The second line of compute starts before all
 * others. */
static void list_used(struct simulation *s)
{
    int n = 0;
    for (int l = 0; l < LINES; l++)
        if (s->lane[l].last >= 0)
            s->used[s->n_used++] = l;
    if (s->lane[LINE_COMPUTE].last >= 0)
        s->starts[n++] = LINE_COMPUTE;
    for (int i = 0; i < s->n_used; i++)
        if (s->used[i] != LINE_COMPUTE)
            s->starts[n++] = s->used[i];
}

double program_simulate(struct program *p, const struct cost_model *m, const int *dep_first, const int *dep,
                        const double *release)
{
    return program_simulate_lines(p, m, dep_first, dep, release, NULL);
}

double program_simulate_lines(struct program *p, const struct cost_model *m, const int *dep_first, const int *dep,
                              const double *release, const struct second_lines *second)
{
    struct simulation s = {
        .p = p, .m = m, .memo = {.m = m, .p = p}, .dep_first = dep_first, .dep = dep, .release = release, .second = second};
    double total = 0;
    for (int l = 0; l < LINES; l++) {
        s.lane[l].at = s.lane[l].last = -1;
        s.lane[l].idle = -1;
        memcpy(s.lane[l].demand, m->demand[lane_of(l)], sizeof m->demand[0]);
    }
    for (int i = 0; i < p->n_instrs; i++) {
        p->instrs[i].end = INFINITY;
        s.lane[line_of(&s, i)].last = i;
    }
    s.next = list_next(&s);
    list_used(&s);
    for (int l = 0; l < LINES; l++)
        advance(&s, l);
    for (;;) {
        double next = INFINITY;
        if (start_ready(&s, &next))
            share(&s);
        for (int i = 0; i < s.n_used; i++) {
            const struct runner *r = &s.lane[s.used[i]];
            if (r->running && p->instrs[r->at].end < next)
                next = p->instrs[r->at].end;
        }
        if (isinf(next))
            break;
        total = s.now = next;
        retire_ended(&s);
        share(&s);
    }
    free(s.next);
    return total;
}
