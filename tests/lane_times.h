/* Seconds for which a program's lanes are busy, exposed and idle. */
#ifndef LTRAIN_TESTS_LANE_TIMES_H
#define LTRAIN_TESTS_LANE_TIMES_H

#include "program/program.h"

#include <math.h>

/* A program's lanes over its simulated time, all in seconds. */
struct lane_times {
    double total;
    double busy[LANES];
    double exposed[LANES]; /* transfer lanes: time during which the lane is busy and compute is not */
    double stall;          /* time during which compute is not busy */
    double exposed_any;    /* time during which compute is not busy and some transfer lane is */
};

/* A lane's busy intervals, one after the other. */
struct lane_cursor {
    const struct program *p;
    enum lane lane;
    int at;
    double start, end;
};

static inline int lane_next_interval(struct lane_cursor *c)
{
    for (c->at++; c->at < c->p->n_instrs; c->at++)
        if (c->p->instrs[c->at].lane == c->lane && c->p->instrs[c->at].end > c->p->instrs[c->at].start) {
            c->start = c->p->instrs[c->at].start;
            c->end = c->p->instrs[c->at].end;
            return 1;
        }
    c->start = c->end = INFINITY;
    return 0;
}

static inline int lane_is_transfer(int lane)
{
    return lane != LANE_COMPUTE && lane != LANE_HOST;
}

/* Walks all lanes' intervals from one change to the next. */
static inline void program_lane_times(const struct program *p, struct lane_times *out)
{
    struct lane_cursor c[LANES];
    double now = 0;
    *out = (struct lane_times){0};
    for (int l = 0; l < LANES; l++) {
        c[l] = (struct lane_cursor){.p = p, .lane = (enum lane)l, .at = -1};
        lane_next_interval(&c[l]);
    }
    for (;;) {
        double next = INFINITY;
        int compute = c[LANE_COMPUTE].start <= now, any = 0;
        for (int l = 0; l < LANES; l++) {
            double change = c[l].start > now ? c[l].start : c[l].end;
            next = change < next ? change : next;
        }
        if (isinf(next))
            break;
        for (int l = 0; l < LANES; l++) {
            if (c[l].start > now)
                continue;
            out->busy[l] += next - now;
            if (lane_is_transfer(l) && !compute) {
                out->exposed[l] += next - now;
                any = 1;
            }
        }
        out->stall += compute ? 0 : next - now;
        out->exposed_any += any ? next - now : 0;
        now = next;
        for (int l = 0; l < LANES; l++)
            while (c[l].end <= now)
                lane_next_interval(&c[l]);
    }
    out->total = now;
}

#endif
