/* How long planning takes and how tight its memory is: models x lengths, each in a process of its own.
 *
 *     plan_bench                 every case
 *     plan_bench LAYERS TOKENS   of one model shape: dim 8192, 64 heads on 8 (70B at 80 layers)
 *     plan_bench LAYERS TOKENS lean   everything on the host, alpha 0: one placement, no search
 *
 * A line a case: instructions of the largest program, seconds to plan, to verify and to simulate all of them, peak memory of the
 * process; arena over lower bound of each tier; the lower bound over that of the serial order; what address reuse costs. */
#include "base/units.h"
#include "plan/hardware.h"
#include "plan/plan.h"
#include "program/verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct shape {
    const char *name;
    int64_t dim, ffn, heads, kv_heads, head_dim, vocab;
};

static const struct shape shapes[] = {
    {"1b", 2048, 8192, 32, 8, 64, 128256},
    {"8b", 4096, 14336, 32, 8, 128, 128256},
    {"70b", 8192, 28672, 64, 8, 128, 128256},
};

static const struct {
    int shape;
    int64_t layers, tokens;
} cases[] = {{0, 2, 32 << 10},   {0, 16, 128 << 10}, {0, 16, 1 << 20}, {1, 2, 420 << 10},  {1, 8, 32 << 10},
             {1, 32, 128 << 10}, {1, 32, 420 << 10}, {1, 32, 1 << 20}, {2, 80, 128 << 10}, {2, 80, 1 << 20}};

static void settings_of(int64_t tokens, struct settings *s)
{
    *s = (struct settings){.seq_len = tokens,
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
                           .threads = AUTO};
}

static double seconds(void)
{
    struct timespec t; /* of this process: other ones do not count */
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int run(const struct shape *shape, int64_t layers, int64_t tokens, int lean)
{
    struct model_config c = {.family = FAMILY_LLAMA,
                             .vocab = shape->vocab,
                             .dim = shape->dim,
                             .ffn = shape->ffn,
                             .layers = layers,
                             .heads = shape->heads,
                             .kv_heads = shape->kv_heads,
                             .head_dim = shape->head_dim,
                             .max_positions = 1 << 20,
                             .norm_eps = 1e-5f,
                             .init_std = 0.02f,
                             .rope_theta = 500000};
    struct model *m;
    struct hardware h200;
    struct settings s;
    struct plan *plan;
    struct rusage use;
    const int64_t limit[TIERS] = {(int64_t)138 << 30, (int64_t)1900 << 30, (int64_t)16 << 40};
    char text[32];
    settings_of(tokens, &s);
    s.hardware = &h200;
    if (lean) {
        s.params = s.grads = s.optim = s.acts = OFFLOAD_CPU;
        s.alpha = 0;
    }
    if (hardware_preset("h200", &h200) != OK || model_create(&c, NULL, 0, &m) != OK)
        return 1;
    double t0 = seconds();
    if (plan_create(m, &s, limit, &plan) != OK) {
        fprintf(stderr, "%s\n", status_message());
        return 1;
    }
    double t1 = seconds();
    int most = 0;
    for (int k = 0; k < PLAN_PROGRAMS; k++) {
        if (!plan->programs[k])
            continue;
        if (program_verify(plan->programs[k]) != OK) {
            fprintf(stderr, "%s\n", status_message());
            return 1;
        }
        most = plan->programs[k]->n_instrs > most ? plan->programs[k]->n_instrs : most;
    }
    double t2 = seconds();
    getrusage(RUSAGE_SELF, &use);
    const struct program *p = plan->programs[PLAN_UPDATE_STEP];
    printf("%-4s %3lld %5s %s %8d %7.2f %7.2f %6.0f MB ", shape->name, (long long)layers, units_format_count(tokens, text),
           plan->fits ? "fits" : "no  ", most, t1 - t0, t2 - t1, (double)use.ru_maxrss / 1024);
    for (int t = 0; t < TIERS; t++)
        printf(" %s %.4f", units_format_bytes(p->arena[t], text),
               p->lower_bound[t] ? (double)p->arena[t] / (double)p->lower_bound[t] : 1);
    printf("  %.4g s\n", plan->seconds);
    fflush(stdout);
    plan_destroy(plan);
    model_destroy(m);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc >= 3)
        return run(&shapes[2], atoll(argv[1]), atoll(argv[2]), argc > 3);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int status;
        pid_t child = fork();
        if (child == 0)
            _exit(run(&shapes[cases[i].shape], cases[i].layers, cases[i].tokens, 0));
        if (child < 0 || waitpid(child, &status, 0) < 0 || status != 0)
            return 1;
    }
    return 0;
}
