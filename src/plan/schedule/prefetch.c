/* Prefetch levels, from the longest distance to none, and the search for the first that fits. */
#include "plan/schedule/prefetch.h"

#include "base/sys.h"
#include "plan/schedule/order.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A prefetch level. Distances are in row chunks of compute. */
struct prefetch_level {
    double ahead;  /* distance by which prefetches run ahead */
    double behind; /* distance by which write-backs may fall behind */
    double links;  /* speed of links, as a share of the planned one, at which no instruction may wait for memory */
    enum schedule_mode mode;
};

static const struct prefetch_level automatic[] = {{64, INFINITY, FIT_SLOW, SCHEDULE_OVERLAPPED},
                                                  {64, INFINITY, 1, SCHEDULE_OVERLAPPED},
                                                  {64, 64, 1, SCHEDULE_OVERLAPPED},
                                                  {16, 32, 1, SCHEDULE_OVERLAPPED},
                                                  {8, 16, 1, SCHEDULE_OVERLAPPED},
                                                  {4, 8, 1, SCHEDULE_OVERLAPPED},
                                                  {2, 4, 1, SCHEDULE_OVERLAPPED},
                                                  {1, 2, 1, SCHEDULE_OVERLAPPED},
                                                  {0.25, 1, 1, SCHEDULE_SETTLED},
                                                  {0, 1, 1, SCHEDULE_SETTLED}};
enum { LEVELS = sizeof automatic / sizeof *automatic };
_Static_assert(FIT_NOT_AHEAD == LEVELS - 1, "the last level");

/* Levels at a given distance, in this order: made for slow links; with any lag of write-backs; with a bounded lag. */
enum { GIVEN_LEVELS = 3 };

/* Returns level i of a strategy; i is below its number of levels. */
static struct prefetch_level level_at(const struct strategy *s, int i)
{
    if (s->placement.prefetch < 0)
        return automatic[i];
    return (struct prefetch_level){s->placement.prefetch, i < 2 ? INFINITY : 1 + 2 * s->placement.prefetch, i == 0 ? FIT_SLOW : 1,
                                   i < 2 ? SCHEDULE_OVERLAPPED : SCHEDULE_SETTLED};
}

int fit_within(const int64_t arena[TIERS], const int64_t limit[TIERS], enum tier *which)
{
    for (int t = 0; t < TIERS; t++)
        if (arena[t] > limit[t] || arena[t] == FIT_NOWHERE) {
            *which = (enum tier)t;
            return 0;
        }
    return 1;
}

/* Returns the compute seconds of one row chunk of one layer pass. */
static double chunk_seconds(const struct program *p, const struct cost_model *cost, const struct strategy *s, int64_t layers)
{
    double total = 0;
    for (int i = 0; i < p->n_instrs; i++)
        if (p->instrs[i].lane == LANE_COMPUTE)
            total += cost_seconds(cost, &p->instrs[i], program_call(p, &p->instrs[i]));
    return total / (double)(3 * layers * ceil_div(s->rows, s->key.row_chunk));
}

struct fitting {
    struct schedule *schedule;
    const struct strategy *s;
    const struct cost_model *cost, *slow;
    const int64_t *limit;
    double slack;
    double unit; /* seconds of a row chunk */
    int serial;  /* level of the serial order: the number of the strategy's levels */
    int last;    /* the last level to try */
};

/* Orders and packs the program at level i. *fits: 1 if it fits. */
static enum status order_at(const struct fitting *f, const struct program *p, int i, int *fits)
{
    enum tier which;
    if (i == f->serial) {
        TRY(schedule_order(f->schedule, f->cost, SCHEDULE_SERIAL, 0, 0, NULL, 0));
    } else {
        struct prefetch_level level = level_at(f->s, i);
        TRY(schedule_order(f->schedule, level.links < 1 ? f->slow : f->cost, level.mode, level.ahead * f->unit,
                           level.behind * f->unit, f->limit, f->slack));
    }
    *fits = fit_within(p->arena, f->limit, &which);
    return OK;
}

/* Tells whether not even the serial order, which takes the least memory, fits. */
static int is_hopeless(const struct program *p, const int64_t limit[TIERS])
{
    enum tier which;
    return !fit_within(p->serial_bound, limit, &which);
}

/* Orders the program at the first level from *level on that fits, and sets *level to it. Levels are tried in steps that double,
 * then the last step is bisected, since the level is mostly close. */
static enum status order_within(const struct fitting *f, struct program *p, int *level)
{
    const int hopeless = is_hopeless(p, f->limit);
    int at = *level >= f->last || hopeless ? f->last : *level, lo = at, fits;
    if (hopeless && f->last < f->serial) {
        memcpy(p->arena, p->serial_bound, sizeof p->arena);
        *level = f->last;
        return OK;
    }
    for (int step = 1;; step *= 2) {
        TRY(order_at(f, p, at, &fits));
        if (fits || at == f->last)
            break;
        lo = at + 1;
        at = at + step < f->last ? at + step : f->last;
    }
    int ordered = *level = at;
    while (fits && lo < *level) {
        int within;
        ordered = (lo + *level) / 2;
        TRY(order_at(f, p, ordered, &within));
        if (within)
            *level = ordered;
        else
            lo = ordered + 1;
    }
    return ordered == *level ? OK : order_at(f, p, *level, &fits);
}

/* Marks a program that exceeds its tables as one that needs FIT_NOWHERE bytes, more than any memory. */
static void fit_nowhere(struct program *p)
{
    for (int t = 0; t < TIERS; t++)
        p->arena[t] = t == TIER_DEVICE ? FIT_NOWHERE : 0;
    p->seconds = INFINITY;
}

enum status fit_nothing(struct program **out)
{
    TRY(program_create("", out));
    (*out)->excess = EXCESS_PARTS;
    fit_nowhere(*out);
    return OK;
}

struct draft {
    struct program *p;
    struct schedule *schedule; /* NULL: the program exceeds its tables */
    double unit;               /* seconds of a row chunk */
};

void draft_destroy(struct draft *d)
{
    if (!d)
        return;
    schedule_destroy(d->schedule);
    program_destroy(d->p);
    free(d);
}

enum status draft_create(const struct model *m, const struct strategy *s, const struct cost_model *cost, int duties,
                         struct io_buffers *io, struct draft **out)
{
    struct draft *d = sys_calloc(1, sizeof *d);
    if (!d)
        return status_no_memory("while planning");
    enum status st = lower_program(m, s, duties, io, &d->p);
    if (st == OK && !d->p->excess)
        st = schedule_create(d->p, &d->schedule);
    if (st != OK) {
        draft_destroy(d);
        return st;
    }
    if (d->schedule)
        d->unit = chunk_seconds(d->p, cost, s, m->config.layers);
    *out = d;
    return OK;
}

/* Completes the ordered program. */
typedef enum status complete(struct schedule *s, const struct cost_model *m);

/* Schedules a draft as draft_fit does, and completes the program that fits. */
static enum status fit_draft(struct draft *d, const struct strategy *s, const struct cost_model *cost, const int64_t limit[TIERS],
                             double slack, int last, int *level, complete *completed)
{
    struct program *p = d->p;
    struct cost_model slow;
    enum tier which;
    const int serial = s->placement.prefetch < 0 ? LEVELS : GIVEN_LEVELS;
    if (!d->schedule) {
        fit_nowhere(p);
        return OK;
    }
    cost_with_links(cost, FIT_SLOW, &slow);
    p->write_depth = s->placement.write_depth;
    p->writes_queued = 0;
    struct fitting f = {d->schedule, s, cost, &slow, limit, slack, d->unit, serial, last < serial ? last : serial};
    TRY(order_within(&f, p, level));
    p->seconds = INFINITY;
    return f.last == serial || fit_within(p->arena, limit, &which) ? completed(d->schedule, cost) : OK;
}

enum status draft_fit(struct draft *d, const struct strategy *s, const struct cost_model *cost, const int64_t limit[TIERS],
                      double slack, int last, int *level)
{
    return fit_draft(d, s, cost, limit, slack, last, level, schedule_complete);
}

struct program *draft_program(struct draft *d)
{
    return d->p;
}

enum status fit_program(const struct model *m, const struct strategy *s, const struct cost_model *cost, int duties,
                        const int64_t limit[TIERS], double slack, int last, int *level, struct io_buffers *io,
                        struct program **out)
{
    struct draft *d;
    TRY(draft_create(m, s, cost, duties, io, &d));
    enum status st = fit_draft(d, s, cost, limit, slack, last, level, schedule_finish);
    if (st == OK) {
        *out = d->p;
        d->p = NULL;
    }
    draft_destroy(d);
    return st;
}

enum status fit_serially(const struct model *m, const struct strategy *s, int duties, int64_t arena[TIERS])
{
    struct program *p;
    struct io_buffers io;
    TRY(lower_program(m, s, duties, &io, &p));
    if (p->excess)
        fit_nowhere(p);
    enum status st = p->excess ? OK : schedule_pack_serially(p);
    memcpy(arena, p->arena, sizeof p->arena);
    program_destroy(p);
    return st;
}
