/* Measures the planner: its time, its memory, and how tightly it packs; each case runs in its own process, for one H200.
 *
 *     plan_bench                      ten models at three lengths
 *     plan_bench MODEL TOKENS         one of these models
 *     plan_bench LAYERS TOKENS        layers of dim 8192 with 64 heads on 8 KV heads (70B at 80 layers)
 *     plan_bench LAYERS TOKENS lean   everything on the host, alpha 0: one placement, no search
 *     plan_bench ranks N              an 8B at 1m tokens on N ranks of 8xh100 nodes, verified together
 *     plan_bench --effort WORD ...    any of these with this effort (default: best)
 *
 * Each case prints a line with the model, its layers and tokens, and then
 *
 *     fits            "fits" or "no"
 *     instructions    number of instructions of the largest program
 *     plan, verify    seconds to plan, and to verify all programs; each as wall-clock and as processor time
 *     MiB             most memory of the process after planning, then after verifying
 *     tiers           arena of the first program in each tier, and its ratio to the lower bound
 *     step            seconds of the first program, and three percentages: by how much waits for addresses lengthen the step;
 *                     by how much links 20% slower than planned lengthen it; and by how much waits for addresses lengthen it
 *                     on these slower links */
#include "base/units.h"
#include "engine/backend_cpu.h"
#include "machine/hardware.h"
#include "machine/virtual_clock.h"
#include "plan/lower/mesh.h"
#include "plan/plan.h"
#include "plan/schedule/hazards.h"
#include "plan/schedule/waits.h"
#include "verify/mesh.h"
#include "verify/verify.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct shape {
    const char *name;
    int64_t layers, dim, ffn, heads, kv_heads, head_dim, vocab;
};

static const struct shape shapes[] = {
    {"8b/2", 2, 4096, 14336, 32, 8, 128, 128256}, {"70b/8", 8, 8192, 28672, 64, 8, 128, 128256},
    {"1b", 16, 2048, 8192, 32, 8, 64, 128256},    {"0.5b", 24, 896, 4864, 14, 2, 64, 151936},
    {"3b", 28, 3072, 8192, 24, 8, 128, 128256},   {"7b", 28, 3584, 18944, 28, 4, 128, 152064},
    {"8b", 32, 4096, 14336, 32, 8, 128, 128256},  {"14b", 48, 5120, 13824, 40, 8, 128, 152064},
    {"32b", 64, 5120, 27648, 40, 8, 128, 152064}, {"70b", 80, 8192, 28672, 64, 8, 128, 128256},
};
#define N_SHAPES ((int)(sizeof shapes / sizeof *shapes))

static const int64_t lengths[] = {32 << 10, 256 << 10, 1 << 20};

static enum effort effort; /* EFFORT_BEST unless given */

static struct plan_request settings_of(int64_t tokens)
{
    static struct target target;
    target = backend_cpu_target(omp_get_max_threads());
    return (struct plan_request){.seq_len = tokens,
                                 .micro_batch = 1,
                                 .grad_accum = 1,
                                 .zero = 3,
                                 .alpha = AUTO,
                                 .prefetch = AUTO,
                                 .device = DEVICE_CUDA,
                                 .row_chunk = AUTO,
                                 .head_tile = AUTO,
                                 .loss_tile = AUTO,
                                 .group = AUTO,
                                 .dtype = BF16,
                                 .threads = AUTO,
                                 .target = &target,
                                 .effort = effort};
}

static enum status model_of(const struct shape *s, struct model **out)
{
    struct model_config c = {.family = FAMILY_LLAMA,
                             .vocab = s->vocab,
                             .dim = s->dim,
                             .ffn = s->ffn,
                             .layers = s->layers,
                             .heads = s->heads,
                             .kv_heads = s->kv_heads,
                             .head_dim = s->head_dim,
                             .max_positions = 1 << 20,
                             .norm_eps = 1e-5f,
                             .init_std = 0.02f,
                             .rope_theta = 500000};
    return model_create(&c, NULL, 0, out);
}

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Time and memory that the process has used since its start. */
struct moment {
    double wall, cpu; /* seconds; cpu: seconds of processors in this process only */
    double mib;       /* most memory so far */
};

static struct moment now(void)
{
    static double start;
    struct rusage use;
    if (start == 0)
        start = seconds(CLOCK_MONOTONIC);
    getrusage(RUSAGE_SELF, &use);
    return (struct moment){seconds(CLOCK_MONOTONIC) - start, seconds(CLOCK_PROCESS_CPUTIME_ID), (double)use.ru_maxrss / 1024};
}

/* Simulates the step on links `speed` times as fast as planned. endless: as if memory were infinite, so that instructions wait
 * only for data; otherwise they wait as the program says. Returns the step's seconds; -1: failed. */
static double with_links(struct program *p, const struct cost_model *planned, double speed, int endless)
{
    struct cost_model m;
    struct deps d;
    cost_with_links(planned, speed, &m);
    if ((endless ? hazards_find(p, &d) : waits_as_deps(p, &d)) != OK)
        return -1;
    double step = program_simulate(p, &m, d.first, d.dep, NULL);
    hazards_free(&d);
    return step;
}

static void print_memory(const struct program *p)
{
    char text[32];
    for (int t = 0; t < TIERS; t++)
        printf(" %9s %.4f", units_format_bytes(p->arena[t], text),
               p->lower_bound[t] ? (double)p->arena[t] / (double)p->lower_bound[t] : 1);
}

static int fail(void)
{
    fprintf(stderr, "%s\n", status_message());
    return 1;
}

static int run(const struct shape *shape, int64_t tokens, int lean)
{
    struct model *m;
    struct hardware h200;
    struct plan_request s = settings_of(tokens);
    struct plan *plan;
    const int64_t limit[TIERS] = {(int64_t)138 << 30, lean ? (int64_t)8 << 40 : (int64_t)1900 << 30, (int64_t)16 << 40};
    char text[32];
    s.hardware = &h200;
    if (lean) {
        s.params = s.grads = s.optim = s.acts = OFFLOAD_CPU;
        s.alpha = 0;
    }
    if (hardware_preset("h200", &h200) != OK || model_of(shape, &m) != OK)
        return fail();
    struct moment t0 = now();
    if (plan_create(m, &s, limit, &plan) != OK)
        return fail();
    struct moment t1 = now();
    if (plan_verify(plan) != OK)
        return fail();
    int most = 0;
    for (int k = 0; k < PLAN_PROGRAMS; k++) {
        most = plan->programs[k] && plan->programs[k]->n_instrs > most ? plan->programs[k]->n_instrs : most;
    }
    struct moment t2 = now();
    struct program *p = plan->programs[PLAN_UPDATE_STEP];
    printf("%-5s %3lld %9s %s %8d %6.2f %6.2f %6.2f %6.2f %5.0f %5.0f ", shape->name, (long long)shape->layers,
           units_format_count(tokens, text), plan->fits ? "fits" : "no  ", most, t1.wall - t0.wall, t1.cpu - t0.cpu,
           t2.wall - t1.wall, t2.cpu - t1.cpu, t1.mib, t2.mib);
    print_memory(p);
    double slow = with_links(p, &plan->cost, 0.8, 0), slow_endless = with_links(p, &plan->cost, 0.8, 1),
           endless = with_links(p, &plan->cost, 1, 1);
    printf("  %9.4g s %+6.2f%% %+6.2f%% %+6.2f%%\n", p->seconds, 100 * (p->seconds / endless - 1), 100 * (slow / p->seconds - 1),
           100 * (slow / slow_endless - 1));
    fflush(stdout);
    plan_destroy(plan);
    model_destroy(m);
    return 0;
}

/* Verifies that the ranks work together. All ranks run the same program, so there is one role. */
static enum status verify_together(const struct plan *plan, int ranks)
{
    const struct strategy *s = &plan->strategy;
    int32_t *role = calloc((size_t)ranks, sizeof *role);
    struct mesh_roles mesh = {.n_ranks = ranks, .role = role};
    for (int l = LANE_WORLD; l < LANES; l++) {
        int32_t *group = malloc(2 * (size_t)ranks * sizeof *group), *member = group + ranks;
        for (int k = 0; k < ranks; k++) {
            const struct mesh_group g = mesh_group_of(&s->key.mesh, (enum lane)l, k);
            group[k] = g.first;
            member[k] = g.member;
        }
        mesh.group[l] = group;
        mesh.member[l] = member;
    }
    for (int k = 0; k < PLAN_PROGRAMS; k++) {
        const struct program *p = plan->programs[k];
        if (!p)
            continue;
        TRY(program_verify(p));
        TRY(program_verify_mesh(&p, 1, &mesh));
    }
    return OK;
}

static int run_ranks(int ranks)
{
    struct model *m;
    struct hardware h;
    struct plan_request s = settings_of(1 << 20);
    struct plan *plan;
    int64_t limit[TIERS];
    char machine[32], degrees[MESH_TEXT];
    snprintf(machine, sizeof machine, "%dxh100", ranks);
    s.hardware = &h;
    if (hardware_preset(machine, &h) != OK || model_of(&shapes[6], &m) != OK || plan_mesh(m, &s, ranks, h.devices) != OK)
        return fail();
    hardware_limits(&h, ranks, limit);
    struct moment t0 = now();
    if (plan_create(m, &s, limit, &plan) != OK)
        return fail();
    struct moment t1 = now();
    if (verify_together(plan, ranks) != OK)
        return fail();
    struct moment t2 = now();
    printf("8b, 1m tokens, %d ranks (%s): %s, %d instructions, planned in %.2f s (%.2f of processors), "
           "verified together in "
           "%.2f, %.0f MiB, step %.4g s\n",
           ranks, mesh_format(&s.mesh, degrees), plan->fits ? "fits" : "does not fit", plan->programs[PLAN_UPDATE_STEP]->n_instrs,
           t1.wall - t0.wall, t1.cpu - t0.cpu, t2.wall - t1.wall, t2.mib, plan->seconds);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc >= 3 && strcmp(argv[1], "--effort") == 0) {
        effort = strcmp(argv[2], "quick") == 0 ? EFFORT_QUICK : strcmp(argv[2], "normal") == 0 ? EFFORT_NORMAL : EFFORT_BEST;
        argc -= 2;
        argv += 2;
    }
    if (argc >= 3 && strcmp(argv[1], "ranks") == 0)
        return run_ranks(atoi(argv[2]));
    if (argc >= 3) {
        struct shape shape = shapes[N_SHAPES - 1];
        shape.layers = atoll(argv[1]);
        for (int i = 0; i < N_SHAPES; i++)
            if (strcmp(argv[1], shapes[i].name) == 0)
                shape = shapes[i];
        return run(&shape, atoll(argv[2]), argc > 3);
    }
    printf("model layers tokens  instructions  plan s   cpu verify s  cpu  MiB   MiB     device            host              "
           "nvme             "
           "step "
           "     reuse  slow links, of that memory\n");
    fflush(stdout);
    for (int i = 0; i < N_SHAPES; i++)
        for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
            int status;
            pid_t child = fork();
            if (child == 0)
                _exit(run(&shapes[i], lengths[k], 0));
            if (child < 0 || waitpid(child, &status, 0) < 0 || status != 0)
                return 1;
        }
    return 0;
}
