/* The searched placement beside random ones, and with more and more device memory, on the virtual clock.
 *
 *     plan_random             ten models x machines
 *     plan_random N ...       only the N-th of them
 *     plan_random -N ...      without the random placements
 *     plan_random +N ...      only the searched placement
 *     plan_random =N ...      without the ladder
 *     plan_random ladders FROM TO                          only the ladder, of so many models x machines that are drawn
 *     plan_random ladder MODEL MACHINE LAYERS K HOST       that of one: of K x 1024 tokens
 *     plan_random ladder MODEL MACHINE LAYERS K HOST FROM TO STEP   with other rungs: the first, one above the last, their ratio
 *
 * The models are cut to a few layers. The device's budget is a share of what everything on the device takes; the host's too,
 * where placements are to need drives. Random: until 200 placements fit, each class's tier, k of n chunks kept, how many last
 * layers' activations stay on the device, the update's place and the prefetch distance are drawn; each is lowered and scheduled
 * as the planner does, at the tiles of the searched one, and not verified. Mark: the searched plan takes at most 3% more than the
 * best of them. Ladder: the search alone, from a quarter of what everything on the device takes to all of it in steps of 10%; a
 * rung counts as slower by what it takes more than the fastest plan of less memory. The search gives some of a step for what it
 * is planned by, its price: what links 20% slower would add, and writes to drives. */
#include "base/parallel.h"
#include "base/rng.h"
#include "base/units.h"
#include "engine/backend_cpu.h"
#include "machine/hardware.h"
#include "machine/rank_cost.h"
#include "plan/lower/fixed.h"
#include "plan/lower/mesh.h"
#include "plan/plan.h"
#include "plan/program_set.h"
#include "plan/report/text.h"
#include "plan/schedule/prefetch.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct test_case {
    const char *model, *machine;
    int64_t layers, tokens;
    int ranks;
    double device, host; /* budgets, of what everything on the device takes; host 0: without end */
};

static const struct test_case cases[] = {
    {"1b", "h200", 4, 32 << 10, 1, 0.5, 0},           {"8b", "h100", 4, 32 << 10, 1, 0.4, 0.5},
    {"8b", "a100-80", 3, 128 << 10, 1, 0.35, 0},      {"8b", "gh200", 2, 256 << 10, 1, 0.3, 0.25},
    {"gpt-25b", "a100-80", 3, 32 << 10, 1, 0.35, 0},  {"1b", "rtx4090", 4, 64 << 10, 1, 0.4, 0.2},
    {"125m", "rtx3090", 6, 128 << 10, 1, 0.35, 0.15}, {"8b", "8xh100", 3, 128 << 10, 8, 0.5, 0},
    {"8b", "4xa100-80", 3, 128 << 10, 4, 0.4, 0.2},   {"25m", "cpu", 4, 16 << 10, 1, 0.4, 0.2},
};
enum {
    CASES = sizeof cases / sizeof *cases,
    RANDOM = 200,
    MOST_DRAWS = 20000,
    AT_ONCE = 2, /* random plans, each on a thread */
    WHOLE_STEP = ROLE_UPDATE | ROLE_FORWARD | ROLE_BACKWARD | ROLE_FIRST | ROLE_LAST
};

struct subject {
    const struct test_case *c;
    int number;
    struct model *m;
    struct hardware hardware;
    struct settings s;
    struct target target;
    struct strategy fixed;
    struct cost_model cost;
    int64_t whole; /* device bytes with everything there */
    int64_t limit[TIERS];
};

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static enum status subject_create(const struct test_case *c, int number, struct subject *x)
{
    struct model_config config;
    *x = (struct subject){.c = c, .number = number, .target = backend_cpu_target(omp_get_max_threads())};
    TRY(model_preset(c->model, &config));
    config.layers = c->layers;
    if (config.max_positions < c->tokens)
        config.max_positions = c->tokens;
    TRY(model_create(&config, NULL, 0, &x->m));
    int cpu = strcmp(c->machine, "cpu") == 0;
    if (cpu)
        hardware_assumed(&x->hardware);
    else
        TRY(hardware_preset(c->machine, &x->hardware));
    x->s = (struct settings){.seq_len = c->tokens,
                             .micro_batch = 1,
                             .grad_accum = 1,
                             .zero = 3,
                             .alpha = AUTO,
                             .prefetch = AUTO,
                             .device = cpu ? DEVICE_CPU_DISCRETE : DEVICE_CUDA,
                             .row_chunk = AUTO,
                             .head_tile = AUTO,
                             .loss_tile = AUTO,
                             .group = AUTO,
                             .dtype = cpu ? F32 : BF16,
                             .threads = AUTO,
                             .hardware = &x->hardware,
                             .target = &x->target};
    TRY(plan_mesh(x->m, &x->s, c->ranks, x->hardware.devices));
    TRY(plan_fixed(x->m, &x->s, &x->fixed));
    plan_cost_model(&x->s, &x->cost);
    struct settings resident = x->s;
    const int64_t ample[TIERS] = {INT64_MAX / 4, INT64_MAX / 4, INT64_MAX / 4};
    struct plan *plan;
    resident.params = resident.grads = resident.optim = resident.acts = OFFLOAD_NONE;
    resident.alpha = 1;
    resident.row_chunk = x->fixed.row_chunk;
    resident.head_tile = x->fixed.head_tile;
    resident.loss_tile = x->fixed.loss_tile;
    resident.update = UPDATE_DEVICE;
    TRY(plan_create(x->m, &resident, ample, &plan));
    x->whole = plan->arena[TIER_DEVICE];
    plan_destroy(plan);
    memcpy(x->limit, ample, sizeof x->limit);
    x->limit[TIER_DEVICE] = (int64_t)(c->device * (double)x->whole);
    if (c->host > 0)
        x->limit[TIER_HOST] = (int64_t)(c->host * (double)x->whole);
    return OK;
}

/* The draw-th random placement. */
static struct strategy draw(const struct subject *x, int draw)
{
    enum { CHOICES = 8 };
    static const double ahead[] = {-1, 64, 16, 8, 4, 2, 1, 0};
    const uint64_t n[CHOICES] = {3, 3, 3, 3, (uint64_t)ceil_div(x->fixed.rows, x->fixed.row_chunk) + 1, (uint64_t)x->c->layers,
                                 2, 8};
    uint64_t pick[CHOICES];
    for (int i = 0; i < CHOICES; i++)
        pick[i] = rng_below(2026, (uint64_t)(x->number - 1), (uint64_t)(draw * CHOICES + i), n[i]);
    struct strategy s = x->fixed;
    s.params = (enum residency)pick[0];
    s.grads = (enum residency)pick[1];
    s.optim = (enum residency)pick[2];
    s.acts = s.passing = (enum residency)pick[3];
    s.kept_chunks = (int)pick[4];
    s.device_layers = s.acts == RES_DEVICE ? 0 : (int)pick[5];
    s.update_on_host = (int)pick[6];
    s.prefetch = ahead[pick[7]];
    return s;
}

/* What lives somewhere for good exceeds a limit: no schedule would fit. */
static enum status hopeless(const struct subject *x, const struct strategy *s, int *out)
{
    struct program *p;
    struct io_buffers io;
    int64_t bytes[TIERS] = {0};
    enum tier which;
    TRY(lower_program(x->m, s, WHOLE_STEP, &io, &p));
    for (int b = 0; b < p->n_persistent; b++)
        bytes[p->buffers[b].tier] += p->buffers[b].bytes;
    program_destroy(p);
    *out = !fit_within(bytes, x->limit, &which);
    return OK;
}

/* One of those drawn. */
struct drawn {
    const struct subject *x;
    struct strategy strategy;
    int fits;
    double seconds;
};

static enum status plan_drawn(void *job)
{
    struct drawn *d = job;
    const struct subject *x = d->x;
    struct program *p;
    struct io_buffers io;
    enum tier which;
    int no, pace = 0;
    TRY(hopeless(x, &d->strategy, &no));
    if (no)
        return OK;
    TRY(fit_program(x->m, &d->strategy, &x->cost, WHOLE_STEP, x->limit, 0, FIT_SERIAL, &pace, &io, &p));
    d->fits = fit_within(p->arena, x->limit, &which);
    d->seconds = p->seconds;
    program_destroy(p);
    return OK;
}

struct random_plans {
    int draws, fitting;
    double seconds[RANDOM];
    struct strategy best;
};

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static enum status try_random(const struct subject *x, struct random_plans *out)
{
    double best = INFINITY;
    *out = (struct random_plans){0};
    while (out->draws < MOST_DRAWS && out->fitting < RANDOM) {
        struct drawn d[AT_ONCE];
        for (int i = 0; i < AT_ONCE; i++)
            d[i] = (struct drawn){x, draw(x, out->draws + i), 0, 0};
        TRY(parallel_run(plan_drawn, d, sizeof *d, AT_ONCE));
        for (int i = 0; i < AT_ONCE && out->fitting < RANDOM; i++, out->draws++) {
            if (!d[i].fits)
                continue;
            out->seconds[out->fitting++] = d[i].seconds;
            if (d[i].seconds < best) {
                best = d[i].seconds;
                out->best = d[i].strategy;
            }
        }
    }
    qsort(out->seconds, (size_t)out->fitting, sizeof *out->seconds, ascending);
    return OK;
}

static void print_strategy(const char *who, const struct strategy *s)
{
    char text[PLAN_TEXT], mesh[64] = "", last[48] = "", ahead[32] = "";
    strategy_describe(s, text, sizeof text);
    if (s->ranks > 1)
        snprintf(mesh, sizeof mesh, "dp=%d,ulysses=%d,ring=%d zero %d, ", s->dp, s->ulysses, s->ring, s->zero);
    if (s->device_layers > 0)
        snprintf(last, sizeof last, ", last %d layers on the device", s->device_layers);
    if (s->prefetch >= 0)
        snprintf(ahead, sizeof ahead, ", prefetch %g", s->prefetch);
    printf("    %-9s %s%s%s%s\n", who, mesh, text, last, ahead);
}

/* Its seconds, and that it is beside random ones of its tiles. */
static enum status searched(struct subject *x, double *out)
{
    struct plan *plan;
    char device[32], host[32];
    double began = cpu_seconds();
    TRY(plan_create(x->m, &x->s, x->limit, &plan));
    printf("  device %s, host %s: searched %.5g s%s (%.1f s of search)\n", units_format_bytes(x->limit[TIER_DEVICE], device),
           x->c->host > 0 ? units_format_bytes(x->limit[TIER_HOST], host) : "without end", plan->seconds,
           plan->fits ? "" : " DOES NOT FIT", cpu_seconds() - began);
    print_strategy("searched:", &plan->strategy);
    x->fixed.row_chunk = plan->strategy.row_chunk;
    x->fixed.head_tile = plan->strategy.head_tile;
    x->fixed.loss_tile = plan->strategy.loss_tile;
    *out = plan->seconds;
    plan_destroy(plan);
    return OK;
}

static enum status beside_random(const struct subject *x, double seconds)
{
    struct random_plans *random = malloc(sizeof *random);
    TRY(try_random(x, random));
    const double *r = random->seconds;
    print_strategy("random:", &random->best);
    printf("    %d random fit of %d drawn: best %.5g s, median %.5g, worst %.5g; searched / best %+.2f%%%s\n", random->fitting,
           random->draws, r[0], r[random->fitting / 2], r[random->fitting - 1], 100 * (seconds / r[0] - 1),
           seconds > 1.03 * r[0] ? " MISSED" : "");
    free(random);
    return OK;
}

/* Budgets of a ladder, as shares of what everything on the device takes: the first, one above the last, and their ratio. */
struct rungs {
    double from, to, step;
};

static const struct rungs usual_rungs = {0.25, 1.05, 1.1};

/* Rungs that take so much more than one below are shown, both placements. */
#define SHOWN 0.0005

/* What a rung takes. */
struct rung {
    double share, seconds;
    struct strategy strategy;
};

static void show_slower(const struct rung *rung, int n)
{
    const struct rung *fastest = &rung[0];
    for (int i = 1; i < n; i++) {
        char who[2][16];
        if (rung[i].seconds > (1 + SHOWN) * fastest->seconds) {
            snprintf(who[0], sizeof who[0], "%.3f:", fastest->share);
            snprintf(who[1], sizeof who[1], "%.3f:", rung[i].share);
            print_strategy(who[0], &fastest->strategy);
            print_strategy(who[1], &rung[i].strategy);
        }
        fastest = rung[i].seconds < fastest->seconds ? &rung[i] : fastest;
    }
}

static enum status ladder(const struct subject *x, const struct rungs *r)
{
    enum { MOST_RUNGS = 256 };
    struct rung rung[MOST_RUNGS];
    int n = 0;
    double fastest = INFINITY, cheapest = INFINITY, slower = 0, dearer = 0;
    printf("    ladder:  ");
    for (double share = r->from; share < r->to && n < MOST_RUNGS; share *= r->step) {
        int64_t limit[TIERS] = {(int64_t)(share * (double)x->whole), x->limit[TIER_HOST], x->limit[TIER_NVME]};
        struct plan *plan;
        TRY(plan_create(x->m, &x->s, limit, &plan));
        if (plan->fits) {
            printf(" %.*f: %.5g s", r->from < 0.1 ? 3 : 2, share, plan->seconds);
            struct candidate c;
            TRY(plan_as_candidate(plan, &c));
            rung[n++] = (struct rung){share, plan->seconds, plan->strategy};
            slower = fmax(slower, plan->seconds / fastest - 1);
            fastest = fmin(fastest, plan->seconds);
            dearer = fmax(dearer, search_cost(&c) / cheapest - 1);
            cheapest = fmin(cheapest, search_cost(&c));
        }
        plan_destroy(plan);
    }
    printf("; with more memory at most %.3f%% slower, at a price at most %.3f%% higher\n", 100 * slower, 100 * dearer);
    show_slower(rung, n);
    return OK;
}

enum parts { SEARCHED = 1, BESIDE_RANDOM = 2, LADDER = 4 };

static enum status run(const struct test_case *c, int number, int parts, const struct rungs *rungs)
{
    struct subject x;
    double seconds = 0;
    TRY(subject_create(c, number, &x));
    printf("%d. %s cut to %lld layers, %lldk tokens, %s, mesh dp=%d,ulysses=%d,ring=%d\n", number, c->model, (long long)c->layers,
           (long long)c->tokens >> 10, c->machine, x.fixed.dp, x.fixed.ulysses, x.fixed.ring);
    if (parts & SEARCHED)
        TRY(searched(&x, &seconds));
    if (parts & BESIDE_RANDOM)
        TRY(beside_random(&x, seconds));
    fflush(stdout);
    if (parts & LADDER)
        TRY(ladder(&x, rungs));
    fflush(stdout);
    model_destroy(x.m);
    return OK;
}

static int device_count(const char *machine)
{
    return machine[1] == 'x' ? machine[0] - '0' : 1;
}

/* The i-th of many models x machines: whoever tunes the search by the ten above has not seen these. */
static struct test_case drawn_case(int i)
{
    static const char *const models[] = {"125m", "1b", "8b", "gpt-25b"};
    static const char *const machines[] = {"rtx3090", "rtx4090",   "a100-40",   "a100-80",   "h100",   "h200",
                                           "gh200",   "2xrtx4090", "2xa100-40", "4xa100-40", "4xh100", "8xh200"};
    static const double hosts[] = {0, 0, 0.5, 0.3, 0.2, 0.1};
    enum { CHOICES = 5, MODELS = sizeof models / sizeof *models, MACHINES = sizeof machines / sizeof *machines };
    const uint64_t n[CHOICES] = {MODELS, MACHINES, 4, 4, sizeof hosts / sizeof *hosts};
    uint64_t pick[CHOICES];
    for (int k = 0; k < CHOICES; k++)
        pick[k] = rng_below(2027, 0, (uint64_t)((i - 1) * CHOICES + k), n[k]);
    const char *machine = machines[pick[1]];
    int ranks = machine[1] == 'x' ? machine[0] - '0' : 1;
    return (struct test_case){models[pick[0]], machine, 2 + (int64_t)pick[2], (int64_t)(16 << 10) << pick[3],
                              ranks,           0.4,     hosts[pick[4]]};
}

static enum status run_ladder(const struct test_case *c, int number, const struct rungs *rungs)
{
    double began = cpu_seconds();
    TRY(run(c, number, LADDER, rungs));
    printf("    host %g, %.0f s of processors\n", c->host, cpu_seconds() - began);
    fflush(stdout);
    return OK;
}

static enum status run_drawn(int from, int to)
{
    for (int i = from; i <= to; i++) {
        struct test_case c = drawn_case(i);
        TRY(run_ladder(&c, i, &usual_rungs));
    }
    return OK;
}

static enum status run_cases(int n, char **arg)
{
    for (int i = 0; i < CASES; i++) {
        const int all = SEARCHED | BESIDE_RANDOM | LADDER;
        int parts = n == 0 ? all : 0;
        for (int k = 0; k < n; k++)
            if (abs(atoi(arg[k] + (arg[k][0] == '='))) == i + 1)
                parts |= arg[k][0] == '-'   ? LADDER
                         : arg[k][0] == '+' ? SEARCHED
                         : arg[k][0] == '=' ? SEARCHED | BESIDE_RANDOM
                                            : all;
        if (parts)
            TRY(run(&cases[i], i + 1, parts, &usual_rungs));
    }
    return OK;
}

int main(int argc, char **argv)
{
    enum status st;
    if (argc == 4 && strcmp(argv[1], "ladders") == 0)
        st = run_drawn(atoi(argv[2]), atoi(argv[3]));
    else if ((argc == 7 || argc == 10) && strcmp(argv[1], "ladder") == 0) {
        struct rungs rungs = usual_rungs;
        if (argc == 10)
            rungs = (struct rungs){atof(argv[7]), atof(argv[8]), fmax(1.001, atof(argv[9]))};
        st = run_ladder(&(struct test_case){argv[2], argv[3], atoi(argv[4]), (int64_t)atoi(argv[5]) << 10, device_count(argv[3]),
                                            0.4, atof(argv[6])},
                        0, &rungs);
    } else
        st = run_cases(argc - 1, argv + 1);
    if (st != OK)
        fprintf(stderr, "%s\n", status_message());
    return st != OK;
}
