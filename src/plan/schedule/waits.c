/* The fewest waits, by vector clocks. */
#include "plan/schedule/waits.h"

#include "base/sys.h"
#include "plan/schedule/hazards_scan.h"

#include <stdlib.h>
#include <string.h>

/* Finds the place of each lane's first ticket in a table of all tickets. */
static void lane_bases(const struct program *p, int base[LANES])
{
    int count[LANES] = {0}, at = 0;
    for (int i = 0; i < p->n_instrs; i++)
        count[p->instrs[i].lane]++;
    for (int l = 0; l < LANES; l++) {
        base[l] = at;
        at += count[l];
    }
}

/* Highest ticket of each lane known to have retired. */
struct clock {
    int32_t ticket[LANES];
};

static void clock_join(struct clock *into, const struct clock *from)
{
    for (int l = 0; l < LANES; l++)
        if (from->ticket[l] > into->ticket[l])
            into->ticket[l] = from->ticket[l];
}

/* Tickets known to have retired when an instruction starts, and when it has retired. Clocks of retired instructions are kept only
 * for those with waits: between these only the lane's own ticket grows. */
struct clocks {
    int base[LANES];
    int *kept; /* index of each ticket's clock; -1: nothing is known about other lanes */
    struct clock *clock;
    int n_clock, cap_clock;
    struct clock started[LANES], retired[LANES]; /* clocks of each lane's last instruction */
    int last[LANES];                             /* index of that instruction's kept clock */
};

/* Returns the highest ticket of lane l that is known to have retired once `ticket` of `lane` has; 0: none. */
static int32_t known(const struct clocks *c, int lane, int32_t ticket, int l)
{
    int at = c->kept[c->base[lane] + ticket - 1];
    return l == lane ? ticket : at < 0 ? 0 : c->clock[at].ticket[l];
}

static void join_retired(const struct clocks *c, struct clock *into, struct wait w)
{
    for (int l = 0; l < LANES; l++) {
        int32_t ticket = known(c, w.lane, w.ticket, l);
        if (ticket > into->ticket[l])
            into->ticket[l] = ticket;
    }
}

/* Tells whether the wait for ticket want[l] of lane l is needless, given the tickets that the waiting lane knows and its other
 * waits. */
static int is_implied(const struct clocks *c, const struct clock *now, const int32_t want[LANES], int l)
{
    if (want[l] <= now->ticket[l])
        return 1;
    for (int other = 0; other < LANES; other++)
        if (other != l && want[other] > now->ticket[other] && known(c, other, want[other], l) >= want[l])
            return 1;
    return 0;
}

/* Keeps the clock of a lane's last instruction; 0: out of memory. */
static int keep_clock(struct clocks *c, int lane)
{
    if (c->n_clock == c->cap_clock) {
        int cap = c->cap_clock ? 2 * c->cap_clock : 1024;
        struct clock *more = sys_realloc(c->clock, sizeof *more * (size_t)cap);
        if (!more)
            return 0;
        c->clock = more;
        c->cap_clock = cap;
    }
    c->clock[c->n_clock] = c->retired[lane];
    c->last[lane] = c->n_clock++;
    return 1;
}

/* Sets the waits of instruction i, and the tickets that its lane knows after it; 0: out of memory. */
static int set_waits(struct program *p, struct clocks *c, int i, const int32_t want[LANES])
{
    struct instr *in = &p->instrs[i];
    struct clock *now = &c->started[in->lane], *retired = &c->retired[in->lane];
    if (!lane_is_pipelined(in->lane))
        *now = *retired;
    in->n_waits = 0;
    for (int l = 0; l < LANES; l++)
        if (!is_implied(c, now, want, l))
            program_add_wait(p, i, (struct wait){l, want[l]});
    for (const struct wait *w = program_waits(p, in), *end = w + in->n_waits; w < end; w++)
        join_retired(c, now, *w);
    clock_join(retired, now);
    retired->ticket[in->lane] = in->ticket;
    if (in->n_waits > 0 && !keep_clock(c, in->lane))
        return 0;
    c->kept[c->base[in->lane] + in->ticket - 1] = c->last[in->lane];
    return 1;
}

enum status waits_set(struct program *p)
{
    struct scan s;
    struct clocks c;
    memset(&c, 0, sizeof c);
    lane_bases(p, c.base);
    memset(c.last, -1, sizeof c.last);
    c.kept = sys_malloc(sizeof *c.kept * (size_t)(p->n_instrs + 1));
    enum status st = scan_prepare(&s, p, HAZARD_ADDRESSES);
    if (st == OK && !c.kept)
        st = status_no_memory("while planning");
    p->n_waits = 0;
    for (int i = 0; st == OK && i < p->n_instrs; i++)
        if (!scan_instr(&s, i) || !set_waits(p, &c, i, s.want))
            st = status_no_memory("while planning");
    scan_free(&s);
    free(c.kept);
    free(c.clock);
    return st == OK && p->out_of_memory ? status_no_memory("while planning") : st;
}

/* Returns the instruction of each ticket, lane by lane; NULL: out of memory. */
static int *ticket_index(const struct program *p, int base[LANES])
{
    lane_bases(p, base);
    int *index = sys_malloc(sizeof *index * (size_t)(p->n_instrs + 1));
    for (int i = 0; index && i < p->n_instrs; i++)
        index[base[p->instrs[i].lane] + p->instrs[i].ticket - 1] = i;
    return index;
}

enum status waits_as_deps(const struct program *p, struct deps *out)
{
    int base[LANES], n = 0;
    for (int i = 0; i < p->n_instrs; i++)
        n += p->instrs[i].n_waits;
    int *index = ticket_index(p, base);
    int *first = sys_malloc(sizeof *first * (size_t)(p->n_instrs + 1)), *dep = sys_malloc(sizeof *dep * (size_t)(n + 1));
    if (!index || !first || !dep) {
        free(index);
        free(first);
        free(dep);
        return status_no_memory("while planning");
    }
    n = 0;
    for (int i = 0; i < p->n_instrs; i++) {
        const struct instr *in = &p->instrs[i];
        first[i] = n;
        for (const struct wait *w = program_waits(p, in), *end = w + in->n_waits; w < end; w++)
            dep[n++] = index[base[w->lane] + w->ticket - 1];
    }
    first[p->n_instrs] = n;
    free(index);
    *out = (struct deps){first, dep};
    return OK;
}
