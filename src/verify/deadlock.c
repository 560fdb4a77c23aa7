/* Searching for ranks of a mesh that wait for each other in a circle.
 *
 * A symbolic run of the mesh shows that there are none: everything but collectives retires as soon as its waits allow. Ranks of
 * one colour go through this run alike, so one of them is run for all. Ranks of equal colour have equal roles and, on every lane,
 * groups of equal colours; the colours are the coarsest such partition (colour refinement, Weisfeiler and Leman 1968, as in the
 * minimisation of automata). By induction over the steps of the run, ranks of one colour are always in the same state. */
#include "verify/deadlock.h"

#include "base/sys.h"

#include <stdlib.h>
#include <string.h>

struct progress {
    int64_t started[LANES], retired[LANES];
};

struct run {
    const struct mesh_lanes *x;
    int32_t *colour;  /* colour of each rank */
    int32_t *rank_of; /* [n_colours]: the first rank of that colour */
    int n_colours;
    struct lists meets;        /* colours in the groups of a colour on a lane, at colour * LANES + lane */
    struct progress *progress; /* [n_colours] */
    int32_t *queue;            /* ring buffer of colours that may be able to advance, [n_colours] */
    unsigned char *queued;
    int n_queued, head;
};

static enum status out_of_memory(void)
{
    return status_fail(ERR_NOMEM, "out of memory while verifying");
}

/* --- Colours --- */

struct sign {
    uint64_t hash;
    int32_t rank;
};

/* Mixes a word into a hash with the finalizer of SplitMix64 (Steele et al. 2014). */
static uint64_t mix(uint64_t h, uint64_t word)
{
    h = (h ^ word) + 0x9e3779b97f4a7c15u;
    h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
    h = (h ^ h >> 27) * 0x94d049bb133111ebu;
    return h ^ h >> 31;
}

static int compare_signs(const void *a, const void *b)
{
    const struct sign *x = a, *y = b;
    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* Signs each rank with its colour and the colours in its groups; the order within a group does not count. */
static void sign_ranks(const struct run *v, struct sign *sign, uint64_t *sum)
{
    int n = v->x->m->n_ranks;
    for (int r = 0; r < n; r++)
        sign[r] = (struct sign){mix(1, (uint64_t)v->colour[r]), r};
    for (int l = 0; l < LANES; l++) {
        if (!v->x->m->group[l])
            continue;
        memset(sum, 0, sizeof *sum * (size_t)n);
        for (int r = 0; r < n; r++)
            sum[v->x->m->group[l][r]] += mix(2, (uint64_t)v->colour[r]);
        for (int r = 0; r < n; r++)
            sign[r].hash = mix(sign[r].hash, sum[v->x->m->group[l][r]]);
    }
}

static enum status refine_colours(struct run *v)
{
    int n = v->x->m->n_ranks, before = 0;
    struct sign *sign = sys_malloc(sizeof *sign * (size_t)n);
    uint64_t *sum = sys_malloc(sizeof *sum * (size_t)n);
    v->colour = sys_malloc(sizeof *v->colour * (size_t)n);
    v->rank_of = sys_malloc(sizeof *v->rank_of * (size_t)n);
    enum status st = sign && sum && v->colour && v->rank_of ? OK : out_of_memory();
    if (st == OK)
        memcpy(v->colour, v->x->m->role, sizeof *v->colour * (size_t)n);
    for (int more = 1; st == OK && more; more = v->n_colours > before) {
        before = v->n_colours;
        sign_ranks(v, sign, sum);
        qsort(sign, (size_t)n, sizeof *sign, compare_signs);
        v->n_colours = 0;
        for (int i = 0; i < n; i++) {
            if (i == 0 || sign[i].hash != sign[i - 1].hash)
                v->rank_of[v->n_colours++] = sign[i].rank;
            v->colour[sign[i].rank] = v->n_colours - 1;
        }
    }
    free(sign);
    free(sum);
    return st;
}

/* Lists the colours in the groups of each colour, without repetition. */
static enum status collect_meetings(struct run *v)
{
    int64_t total = 0;
    for (int pass = 0; pass < 2; pass++) { /* counts, then fills */
        if (pass == 1 && !lists_create(&v->meets, v->n_colours * LANES, total))
            return out_of_memory();
        int32_t *mark = sys_calloc((size_t)v->n_colours, sizeof *mark);
        if (!mark)
            return out_of_memory();
        total = 0;
        for (int i = 0; i < v->n_colours * LANES; i++) {
            int lane = i % LANES;
            const int32_t *group = v->x->m->group[lane];
            for (int k = group ? v->x->groups[lane].first[group[v->rank_of[i / LANES]]] : 0;
                 group && k < v->x->groups[lane].first[group[v->rank_of[i / LANES]] + 1]; k++) {
                int c = v->colour[v->x->groups[lane].at[k]];
                if (mark[c] == i + 1)
                    continue;
                mark[c] = i + 1;
                if (pass == 1)
                    v->meets.at[total] = c;
                total++;
            }
            if (pass == 1)
                v->meets.first[i + 1] = (int32_t)total;
        }
        free(mark);
    }
    return OK;
}

/* --- Do the ranks wait for each other in a circle? --- */

static void enqueue(struct run *v, int c)
{
    if (v->queued[c])
        return;
    v->queued[c] = 1;
    v->queue[(v->head + v->n_queued++) % v->n_colours] = c;
}

/* Returns the collective before `in` in a program whose collectives share a stream, else NULL. */
static const struct instr *before_on_stream(const struct run *v, const struct program *p, const struct instr *in)
{
    if (!v->x->m->chained || !lane_is_comm((enum lane)in->lane))
        return NULL;
    while (in-- > p->instrs)
        if (lane_is_comm((enum lane)in->lane))
            return in;
    return NULL;
}

/* Returns a lane whose progress instruction `in`, the next on its own lane, still waits for; -1: none. */
static int blocking_lane(const struct run *v, int c, const struct instr *in)
{
    const struct program *p = mesh_program(v->x, v->rank_of[c]);
    const struct instr *before = before_on_stream(v, p, in);
    if (before && v->progress[c].retired[before->lane] < before->ticket)
        return before->lane;
    for (const struct wait *w = program_waits(p, in), *end = w + in->n_waits; w < end; w++) {
        if (v->progress[c].retired[w->lane] < w->ticket)
            return w->lane;
    }
    return -1;
}

/* Returns a colour in the lane's groups of colour c that has not started collective k yet; -1: none. */
static int blocking_colour(const struct run *v, int c, int lane, int64_t k)
{
    for (int i = v->meets.first[c * LANES + lane]; i < v->meets.first[c * LANES + lane + 1]; i++) {
        if (v->progress[v->meets.at[i]].started[lane] <= k)
            return v->meets.at[i];
    }
    return -1;
}

/* Advances a lane as far as possible. Returns 1 if anything happened. */
static int advance_lane(struct run *v, int c, int lane)
{
    struct progress *p = &v->progress[c];
    int64_t n = mesh_count(v->x, v->rank_of[c], lane), before = p->started[lane] + p->retired[lane];
    while (p->retired[lane] < n) {
        if (p->started[lane] == p->retired[lane]) {
            if (blocking_lane(v, c, mesh_instr(v->x, v->rank_of[c], lane, p->started[lane])) >= 0)
                break;
            p->started[lane]++;
            for (int i = v->meets.first[c * LANES + lane]; i < v->meets.first[c * LANES + lane + 1]; i++) {
                if (v->meets.at[i] != c)
                    enqueue(v, v->meets.at[i]);
            }
        }
        if (blocking_colour(v, c, lane, p->retired[lane]) >= 0)
            break;
        p->retired[lane]++;
    }
    return p->started[lane] + p->retired[lane] != before;
}

/* Reports which ranks wait for each other, starting from a stuck lane: follows the lane that blocks it, which is stuck too, until
 * a lane is met again. */
static enum status report_circle(const struct run *v, int c, int lane)
{
    enum { MORE_THAN_LANES = 17 }; /* an instruction's lane has four bits; the sentence does not depend on how many there are */
    int64_t start = (int64_t)v->n_colours * MORE_THAN_LANES; /* steps after which the walk certainly is inside the circle */
    char text[440] = "";
    size_t used = 0;
    int first_c = -1, first_lane = -1;
    for (int64_t step = 0; step < 2 * start && !(c == first_c && lane == first_lane); step++) {
        int64_t k = v->progress[c].retired[lane];
        const struct instr *in = mesh_instr(v->x, v->rank_of[c], lane, k);
        int other = c, other_lane = lane, from = c, from_lane = lane;
        if (v->progress[c].started[lane] == k)
            other_lane = blocking_lane(v, c, in);
        else
            other = blocking_colour(v, c, lane, k);
        c = other;
        lane = other_lane;
        if (step < start)
            continue;
        if (first_c < 0) {
            first_c = from;
            first_lane = from_lane;
        }
        if (used < sizeof text)
            used += (size_t)snprintf(text + used, sizeof text - used, "%srank %d (program %s), %s number %lld (%s)",
                                     used ? ", for " : "", v->rank_of[from], mesh_program(v->x, v->rank_of[from])->name,
                                     lane_name((enum lane)from_lane), (long long)k + 1, op_name(in->op));
    }
    return status_fail(ERR_CORRUPT, "mesh: deadlock, each waiting for the next: %s, for the first of these", text);
}

static enum status run_mesh(struct run *v)
{
    v->progress = sys_calloc((size_t)v->n_colours, sizeof *v->progress);
    v->queue = sys_malloc(sizeof *v->queue * (size_t)v->n_colours);
    v->queued = sys_calloc((size_t)v->n_colours, 1);
    if (!v->progress || !v->queue || !v->queued)
        return out_of_memory();
    for (int c = 0; c < v->n_colours; c++)
        enqueue(v, c);
    while (v->n_queued > 0) {
        int c = v->queue[v->head], moved = 1;
        v->head = (v->head + 1) % v->n_colours;
        v->n_queued--;
        v->queued[c] = 0;
        while (moved) {
            moved = 0;
            for (int l = 0; l < LANES; l++)
                moved |= advance_lane(v, c, l);
        }
    }
    for (int c = 0; c < v->n_colours; c++) {
        for (int l = 0; l < LANES; l++) {
            if (v->progress[c].retired[l] < mesh_count(v->x, v->rank_of[c], l))
                return report_circle(v, c, l);
        }
    }
    return OK;
}

enum status mesh_check_deadlock(const struct mesh_lanes *x)
{
    struct run v;
    enum status st;
    memset(&v, 0, sizeof v);
    v.x = x;
    TRY_GOTO(refine_colours(&v), done);
    TRY_GOTO(collect_meetings(&v), done);
    st = run_mesh(&v);
done:
    free(v.colour);
    free(v.rank_of);
    lists_destroy(&v.meets);
    free(v.progress);
    free(v.queue);
    free(v.queued);
    return st;
}
