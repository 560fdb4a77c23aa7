/* Compares searched placements with random ones, and with each other over a sweep of device budgets, on the virtual clock.
 *
 *     plan_random [WHAT] [PARTS] [--budgets FROM,TO,RATIO]
 *
 * WHAT is one of
 *     --row N               the N-th of ten pairs of model and machine; may be repeated (default: all ten)
 *     --drawn FROM-TO       pairs number FROM to TO of a random sequence, for which the search was not tuned
 *     --model NAME --machine NAME --layers N --tokens N [--host SHARE]
 *                           a pair given by name
 * PARTS are any of
 *     --search              plans the searched placement
 *     --random N            the same, and N random placements that fit, at most 200
 *     --sweep               plans searched placements over a sweep of device budgets
 * Without PARTS, rows run all three with 200 random placements, other pairs the sweep only.
 *
 * Models are cut to a few layers. The device's budget is a share of the bytes that the device needs to hold everything. So is the
 * host's budget in cases that are meant to need drives.
 *
 * A random placement draws the tier of each class, the number of kept chunks, the number of last layers whose activations stay on
 * the device, the place of the update and the prefetch distance. It is lowered and scheduled as the planner does, on the tiles of
 * the searched placement, and not verified. Goal: the searched plan takes at most 3% longer than the best of 200 random ones.
 *
 * The sweep's budgets go from a quarter of the bytes that everything on the device takes up to all of them, in steps of 10%, or as
 * --budgets says: first share, upper limit, ratio of neighbours. A plan that takes longer than the fastest plan with a smaller
 * budget is reported. That can happen because the search does not minimise the step time alone: it adds a charge for slow links
 * and for drive writes. */
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
#include "plan/report/describe.h"
#include "plan/schedule/prefetch.h"

#include <getopt.h>
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
    double device, host; /* budgets as shares of what everything on the device takes; host 0: no limit */
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
    MOST_RANDOM = 200,
    MOST_DRAWS = 20000,
    AT_ONCE = 2, /* number of random plans made at the same time, each by a thread */
    WHOLE_STEP = DUTY_UPDATE | DUTY_FORWARD | DUTY_BACKWARD | DUTY_FIRST | DUTY_LAST
};

struct subject {
    const struct test_case *c;
    int number;
    struct model *m;
    struct hardware hardware;
    struct plan_request s;
    struct target target;
    struct strategy fixed;
    struct cost_model cost;
    int64_t whole; /* bytes that the device needs to hold everything */
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
    x->s = (struct plan_request){.seq_len = c->tokens,
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
    struct plan_request resident = x->s;
    const int64_t ample[TIERS] = {INT64_MAX / 4, INT64_MAX / 4, INT64_MAX / 4};
    struct plan *plan;
    resident.params = resident.grads = resident.optim = resident.acts = OFFLOAD_NONE;
    resident.alpha = 1;
    plan_fix_grid(&resident, &x->fixed);
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

/* Draws random placement number `draw`. */
static struct strategy draw(const struct subject *x, int draw)
{
    enum { CHOICES = 8 };
    static const double ahead[] = {-1, 64, 16, 8, 4, 2, 1, 0};
    const uint64_t n[CHOICES] = {
        3, 3, 3, 3, (uint64_t)ceil_div(x->fixed.rows, x->fixed.key.row_chunk) + 1, (uint64_t)x->c->layers, 2, 8};
    uint64_t pick[CHOICES];
    for (int i = 0; i < CHOICES; i++)
        pick[i] = rng_below(2026, (uint64_t)(x->number - 1), (uint64_t)(draw * CHOICES + i), n[i]);
    struct strategy s = x->fixed;
    s.placement.params = (enum residency)pick[0];
    s.placement.grads = (enum residency)pick[1];
    s.placement.optim = (enum residency)pick[2];
    s.placement.acts = s.placement.passing = (enum residency)pick[3];
    s.placement.kept_chunks = (int)pick[4];
    s.placement.device_layers = s.placement.acts == RES_DEVICE ? 0 : (int)pick[5];
    s.placement.update_on_host = (int)pick[6];
    s.placement.prefetch = ahead[pick[7]];
    return s;
}

/* Sets *out if the persistent bytes alone exceed a limit, so that no schedule can fit. */
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

/* A random placement, and the result of planning it. */
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
    int no, level = 0;
    TRY(hopeless(x, &d->strategy, &no));
    if (no)
        return OK;
    TRY(fit_program(x->m, &d->strategy, &x->cost, WHOLE_STEP, x->limit, 0, FIT_SERIAL, &level, &io, &p));
    d->fits = fit_within(p->arena, x->limit, &which);
    d->seconds = p->seconds;
    program_destroy(p);
    return OK;
}

struct random_plans {
    int draws, fitting;
    double seconds[MOST_RANDOM];
    struct strategy best;
};

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static enum status try_random(const struct subject *x, int wanted, struct random_plans *out)
{
    double best = INFINITY;
    *out = (struct random_plans){0};
    while (out->draws < MOST_DRAWS && out->fitting < wanted) {
        struct drawn d[AT_ONCE];
        for (int i = 0; i < AT_ONCE; i++)
            d[i] = (struct drawn){x, draw(x, out->draws + i), 0, 0};
        TRY(parallel_run(plan_drawn, d, sizeof *d, AT_ONCE));
        for (int i = 0; i < AT_ONCE && out->fitting < wanted; i++, out->draws++) {
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
    char text[PLAN_TEXT], mesh[96] = "", degrees[MESH_TEXT], last[48] = "", ahead[32] = "";
    strategy_describe(s, text, sizeof text);
    if (s->ranks > 1)
        snprintf(mesh, sizeof mesh, "%s zero %d, ", mesh_format(&s->key.mesh, degrees), s->key.zero);
    if (s->placement.device_layers > 0)
        snprintf(last, sizeof last, ", last %d layers on the device", s->placement.device_layers);
    if (s->placement.prefetch >= 0)
        snprintf(ahead, sizeof ahead, ", prefetch %g", s->placement.prefetch);
    printf("    %-9s %s%s%s%s\n", who, mesh, text, last, ahead);
}

/* Runs the search, prints and returns the step's seconds, and takes over the plan's tiles for the random placements that follow. */
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
    strategy_take_grid(&x->fixed, &plan->strategy);
    *out = plan->seconds;
    plan_destroy(plan);
    return OK;
}

static enum status beside_random(const struct subject *x, int wanted, double seconds)
{
    struct random_plans *random = malloc(sizeof *random);
    TRY(try_random(x, wanted, random));
    const double *r = random->seconds;
    print_strategy("random:", &random->best);
    printf("    %d random fit of %d drawn: best %.5g s, median %.5g, worst %.5g; searched / best %+.2f%%%s\n", random->fitting,
           random->draws, r[0], r[random->fitting / 2], r[random->fitting - 1], 100 * (seconds / r[0] - 1),
           seconds > 1.03 * r[0] ? " MISSED" : "");
    free(random);
    return OK;
}

/* Budgets of a sweep, as shares of what everything on the device takes: the first, an upper limit, and the ratio of neighbours. */
struct budgets {
    double from, to, ratio;
};

static const struct budgets usual_budgets = {0.25, 1.05, 1.1};

/* If a plan takes longer than the fastest plan with less memory by more than this share, both placements are printed. */
#define SHOWN 0.0005

/* A budget and the step time of its plan. */
struct point {
    double share, seconds;
    struct strategy strategy;
};

static void show_slower(const struct point *point, int n)
{
    const struct point *fastest = &point[0];
    for (int i = 1; i < n; i++) {
        char who[2][16];
        if (point[i].seconds > (1 + SHOWN) * fastest->seconds) {
            snprintf(who[0], sizeof who[0], "%.3f:", fastest->share);
            snprintf(who[1], sizeof who[1], "%.3f:", point[i].share);
            print_strategy(who[0], &fastest->strategy);
            print_strategy(who[1], &point[i].strategy);
        }
        fastest = point[i].seconds < fastest->seconds ? &point[i] : fastest;
    }
}

static enum status sweep(const struct subject *x, const struct budgets *b)
{
    enum { MOST_POINTS = 256 };
    struct point point[MOST_POINTS];
    int n = 0;
    double fastest = INFINITY, cheapest = INFINITY, slower = 0, dearer = 0;
    printf("    sweep:  ");
    for (double share = b->from; share < b->to && n < MOST_POINTS; share *= b->ratio) {
        int64_t limit[TIERS] = {(int64_t)(share * (double)x->whole), x->limit[TIER_HOST], x->limit[TIER_NVME]};
        struct plan *plan;
        TRY(plan_create(x->m, &x->s, limit, &plan));
        if (plan->fits) {
            printf(" %.*f: %.5g s", b->from < 0.1 ? 3 : 2, share, plan->seconds);
            struct candidate c;
            TRY(plan_as_candidate(plan, &c));
            point[n++] = (struct point){share, plan->seconds, plan->strategy};
            slower = fmax(slower, plan->seconds / fastest - 1);
            fastest = fmin(fastest, plan->seconds);
            dearer = fmax(dearer, candidate_cost(&c) / cheapest - 1);
            cheapest = fmin(cheapest, candidate_cost(&c));
        }
        plan_destroy(plan);
    }
    printf("; with more memory at most %.3f%% slower, at a price at most %.3f%% higher\n", 100 * slower, 100 * dearer);
    show_slower(point, n);
    return OK;
}

enum parts { SEARCH = 1, BESIDE_RANDOM = 2, SWEEP = 4, ALL_PARTS = SEARCH | BESIDE_RANDOM | SWEEP };

/* The command line's request. */
struct request {
    unsigned rows;        /* bit N - 1 stands for the N-th of `cases`; 0: all of them */
    int from, to;         /* numbers of drawn pairs; 0: none */
    struct test_case own; /* model NULL: none */
    int parts;            /* 0: the default, which depends on the kind of case */
    int random;           /* placements that fit */
    struct budgets budgets;
};

static enum status run(const struct request *q, const struct test_case *c, int number, int parts)
{
    struct subject x;
    char degrees[MESH_TEXT];
    double seconds = 0;
    TRY(subject_create(c, number, &x));
    printf("%d. %s cut to %lld layers, %lldk tokens, %s, mesh %s\n", number, c->model, (long long)c->layers,
           (long long)c->tokens >> 10, c->machine, mesh_format(&x.fixed.key.mesh, degrees));
    if (parts & (SEARCH | BESIDE_RANDOM))
        TRY(searched(&x, &seconds));
    if (parts & BESIDE_RANDOM)
        TRY(beside_random(&x, q->random, seconds));
    fflush(stdout);
    if (parts & SWEEP)
        TRY(sweep(&x, &q->budgets));
    fflush(stdout);
    model_destroy(x.m);
    return OK;
}

/* Device budget of pairs that are not rows of the table, as a share of what everything on the device takes. */
#define USUAL_DEVICE 0.4

static int device_count(const char *machine)
{
    return machine[0] && machine[1] == 'x' ? machine[0] - '0' : 1;
}

/* Returns the i-th of many random pairs of models and machines, for which the search was not tuned. */
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
    return (struct test_case){models[pick[0]],       machine,      2 + (int64_t)pick[2], (int64_t)(16 << 10) << pick[3],
                              device_count(machine), USUAL_DEVICE, hosts[pick[4]]};
}

/* Runs a pair that is not a row of the table, and prints its host budget and the processor seconds used. */
static enum status run_other(const struct request *q, const struct test_case *c, int number)
{
    double began = cpu_seconds();
    TRY(run(q, c, number, q->parts ? q->parts : SWEEP));
    printf("    host %g, %.0f s of processors\n", c->host, cpu_seconds() - began);
    fflush(stdout);
    return OK;
}

static enum status run_request(const struct request *q)
{
    if (q->own.model)
        return run_other(q, &q->own, 0);
    for (int i = q->from; i > 0 && i <= q->to; i++) {
        struct test_case c = drawn_case(i);
        TRY(run_other(q, &c, i));
    }
    for (int i = 0; i < CASES && q->from == 0; i++)
        if (q->rows == 0 || q->rows >> i & 1)
            TRY(run(q, &cases[i], i + 1, q->parts ? q->parts : ALL_PARTS));
    return OK;
}

static const char usage[] =
    "usage: plan_random [WHAT] [PARTS] [--budgets FROM,TO,RATIO]\n"
    "WHAT:\n"
    "  --row N                  of ten models x machines; may be repeated (default: all ten)\n"
    "  --drawn FROM-TO          models x machines that are drawn, by number\n"
    "  --model NAME --machine NAME --layers N --tokens N [--host SHARE]\n"
    "                           one that is named; SHARE of what everything on the device takes (default: without end)\n"
    "PARTS (default: a row has all of them, with 200 random placements; anything else the sweep):\n"
    "  --search                 the searched placement\n"
    "  --random N               N random placements that fit, 1 to 200, beside the searched one\n"
    "  --sweep                  the search alone, over a sweep of device budgets\n"
    "--budgets: of the sweep, shares of what everything on the device takes: the first, one above the last, and the\n"
    "ratio of neighbours (0.25,1.05,1.1)\n";

/* Parses a number from lo to hi. Returns 0 if the text is no such number. */
static int parse_number(const char *text, long lo, long hi, int *out)
{
    char *end;
    long n = strtol(text, &end, 10);
    if (end == text || *end || n < lo || n > hi)
        return 0;
    *out = (int)n;
    return 1;
}

static int parse_share(const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return end != text && *end == 0 && *out > 0;
}

static int parse_range(const char *text, int *from, int *to)
{
    char end;
    return sscanf(text, "%d-%d%c", from, to, &end) == 2 && *from > 0 && *from <= *to;
}

static int parse_budgets(const char *text, struct budgets *b)
{
    char end;
    return sscanf(text, "%lf,%lf,%lf%c", &b->from, &b->to, &b->ratio, &end) == 3 && b->from > 0 && b->from < b->to &&
           b->ratio > 1;
}

static const struct option options[] = {
    {"row", required_argument, NULL, 'r'},     {"drawn", required_argument, NULL, 'd'},
    {"model", required_argument, NULL, 'm'},   {"machine", required_argument, NULL, 'x'},
    {"layers", required_argument, NULL, 'l'},  {"tokens", required_argument, NULL, 't'},
    {"host", required_argument, NULL, 'h'},    {"search", no_argument, NULL, 's'},
    {"random", required_argument, NULL, 'n'},  {"sweep", no_argument, NULL, 'w'},
    {"budgets", required_argument, NULL, 'b'}, {NULL, 0, NULL, 0},
};

/* Parses an option's argument. Returns 0 if the option does not allow it. */
static int parse_option(int option, const char *text, struct request *q)
{
    int n;
    switch (option) {
    case 'r':
        if (!parse_number(text, 1, CASES, &n))
            return 0;
        q->rows |= 1u << (n - 1);
        return 1;
    case 'd':
        return parse_range(text, &q->from, &q->to);
    case 'm':
        q->own.model = text;
        return 1;
    case 'x':
        q->own.machine = text;
        q->own.ranks = device_count(text);
        return 1;
    case 'l':
        if (!parse_number(text, 1, 1 << 20, &n))
            return 0;
        q->own.layers = n;
        return 1;
    case 't':
        return units_parse_count("tokens", text, &q->own.tokens) == OK && q->own.tokens > 0;
    case 'h':
        return parse_share(text, &q->own.host);
    case 's':
        q->parts |= SEARCH;
        return 1;
    case 'n':
        q->parts |= BESIDE_RANDOM;
        return parse_number(text, 1, MOST_RANDOM, &q->random);
    case 'w':
        q->parts |= SWEEP;
        return 1;
    default:
        return parse_budgets(text, &q->budgets);
    }
}

/* Parses the options. Returns 0 if they are wrong; stderr says why. */
static int parse(int argc, char **argv, struct request *q)
{
    int option, which = 0;
    *q = (struct request){.own.device = USUAL_DEVICE, .random = MOST_RANDOM, .budgets = usual_budgets};
    while ((option = getopt_long(argc, argv, "", options, &which)) != -1) {
        if (option == '?') /* getopt_long has printed the reason */
            return 0;
        if (!parse_option(option, optarg, q)) {
            fprintf(stderr, "plan_random: --%s %s\n", options[which].name, optarg);
            return 0;
        }
    }
    const struct test_case *own = &q->own;
    int parts_of_own = (own->model != NULL) + (own->machine != NULL) + (own->layers > 0) + (own->tokens > 0);
    if (optind < argc)
        fprintf(stderr, "plan_random: %s is not an option\n", argv[optind]);
    else if (parts_of_own % 4 != 0 || (own->host > 0 && parts_of_own == 0))
        fprintf(stderr, "plan_random: --model, --machine, --layers and --tokens go together\n");
    else if ((q->rows != 0) + (q->from > 0) + (parts_of_own > 0) > 1)
        fprintf(stderr, "plan_random: --row, --drawn and --model: one of them\n");
    else
        return 1;
    return 0;
}

int main(int argc, char **argv)
{
    struct request q;
    int help = argc == 2 && strcmp(argv[1], "--help") == 0;
    if (help || !parse(argc, argv, &q)) {
        fputs(usage, help ? stdout : stderr);
        return help ? 0 : 2;
    }
    enum status st = run_request(&q);
    if (st != OK)
        fprintf(stderr, "%s\n", status_message());
    return st != OK;
}
