/* Tests that each planted bug of the host code for GPUs (tests/cudasim/fake/mutants.txt) is noticed: a run on the fake GPU fails,
 * gives other bits than cpu:discrete, crashes, hangs or leaves something behind. */
#include "base/clock.h"
#include "engine/rig.h"
#include "engine/twin.h"
#include "extent.h"
#include "plan/cells.h"
#include "mutants.h" /* defines mutants[], written by plant.py */

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { S = 112, STEPS = 2, LAYERS = 4, SEEDS = 12, AT_ONCE = 4 };
enum { NOTICED = 1, MUTANTS = (int)(sizeof mutants / sizeof *mutants) };

static const struct cell cells[] = {
    {EVERYTHING(ON_DRIVES), .alpha = KEEP_HALF, .host_update = 1, .discrete = 1},
    {EVERYTHING(ON_HOST), .alpha = KEEP_NONE, .discrete = 1},
    {EVERYTHING(ON_DEVICE), .discrete = 1},
};
enum { CELLS = (int)(sizeof cells / sizeof *cells) };

struct outcome {
    double loss[STEPS], norm[STEPS];
    uint64_t digest;
};

static enum status run_steps(struct rig *r, const struct sequence *q, struct outcome *out)
{
    TRY(session_initialise(r->session, 5));
    for (int i = 0; i < STEPS; i++)
        TRY(rig_step(r, q, 1, &out->loss[i], &out->norm[i]));
    TRY(rig_flush(r));
    return rig_digest(r, &out->digest);
}

static enum status run(const struct cell *c, enum device_kind device, int traced, struct outcome *out)
{
    struct rig r;
    struct model *model;
    struct sequence q;
    static struct trace_event events[1 << 16];
    memset(out, 0, sizeof *out);
    rig_defaults(&r, S);
    r.trace = traced ? events : NULL; /* a trace, for which every instruction has an event */
    rig_cell_defaults(&r.settings, S, F32);
    cell_apply(c, &r.settings.plan);
    r.settings.plan.device = device;
    r.settings.plan.threads = 1;
    r.settings.gpu = AUTO;
    if (cell_model(FAMILY_LLAMA, LAYERS, &model) != OK)
        abort();
    sequence_random(&q, S, model->config.vocab, 3, NULL);
    enum status st = rig_start(&r, model);
    if (st == OK)
        st = run_steps(&r, &q, out);
    sequence_free(&q);
    rig_stop(&r);
    return st;
}

/* Settings that make a call of the runtime fail; a run with one of them must fail. */
static const char *const failing[] = {"in=cudaStreamWaitEvent,fail=9:1", "in=cudaEventRecord,fail=9:1",
                                      "in=launch,fail=2:1" /* launching a prepared kernel fails */};

/* Seconds after which a process counts as hung. For mutants: several times the duration of a run without a bug. */
static unsigned seconds = 240;

/* Looks for effects of the mutant in another process, and ends that process. */
static void look_for(int mutant, const struct outcome *want)
{
    struct twin twin;
    struct outcome have;
    char number[16], words[32];
    alarm(seconds);
    snprintf(number, sizeof number, "%d", mutant);
    setenv("LT_MUTANT", number, 1);
    if (!freopen("/dev/null", "w", stderr) || !twin_open(getenv("LTRAIN_CUDA_MUTANTS"), &twin))
        _exit(2);
    for (int k = 0; k < SEEDS * CELLS; k++) {
        const struct cell *c = &cells[k % CELLS];
        /* in some trials streams run more slowly than work is submitted */
        snprintf(words, sizeof words, "seed=%d,lag=%d", k, k / CELLS % 4 == 2 ? 20 : 0);
        twin.configure(words);
        if (run(c, DEVICE_CUDA, k % 2, &have) != OK || memcmp(&have, &want[k % CELLS], sizeof have) != 0 || twin.left()[0])
            _exit(NOTICED);
    }
    for (size_t k = 0; k < sizeof failing / sizeof *failing; k++) {
        twin.configure(failing[k]);
        if (run(&cells[0], DEVICE_CUDA, 0, &have) == OK || twin.left()[0])
            _exit(NOTICED);
    }
    _exit(0);
}

static pid_t start(int mutant, const struct outcome *want)
{
    const pid_t child = fork();
    if (child == 0)
        look_for(mutant, want);
    return child;
}

static int in_child(int mutant, const struct outcome *want)
{
    int status = 0;
    const pid_t child = start(mutant, want);
    return child > 0 && waitpid(child, &status, 0) == child ? status : -1;
}

static int ends_late(int status)
{
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
}

/* Finds the right results in another process, so that this process has no threads, which would not survive fork. */
static int find_right(struct outcome want[CELLS])
{
    int ends[2], status;
    if (pipe(ends) != 0)
        return 0;
    pid_t child = fork();
    if (child == 0) {
        for (int c = 0; c < CELLS; c++)
            if (run(&cells[c], DEVICE_CPU_DISCRETE, 0, &want[c]) != OK)
                _exit(1);
        _exit(write(ends[1], want, sizeof *want * CELLS) != (ssize_t)(sizeof *want * CELLS));
    }
    return child > 0 && read(ends[0], want, sizeof *want * CELLS) == (ssize_t)(sizeof *want * CELLS) &&
           waitpid(child, &status, 0) == child && status == 0;
}

/* Tells whether the mutant ended as it should. */
static int judge(int mutant, int status, const struct outcome *want)
{
    if (mutant > 0 && ends_late(status) &&
        in_child(0, want) !=
            0) { /* if a run without the bug fails too, the machine has become slower, and the mutant is not judged */
        printf("not ok: %s (%d): what has no mutant does not end within %u s any more either\n", mutants[mutant], mutant,
               seconds);
        return 0;
    }
    const int unnoticed = status == 0;
    if (unnoticed == (mutant == 0) && status != -1 && !(WIFEXITED(status) && WEXITSTATUS(status) > NOTICED))
        return 1;
    printf("not ok: %s (%d): %s\n", mutants[mutant], mutant,
           unnoticed ? "nobody notices" : "should not be noticed, or cannot be tried");
    return 0;
}

/* Tries AT_ONCE mutants at the same time, since some are noticed only because they hang. */
static int try_all(const struct outcome *want)
{
    pid_t child[AT_ONCE] = {0};
    int mutant[AT_ONCE], failures = 0, next = 1, running = 0;
    while (next < MUTANTS || running > 0) {
        int free_one = 0, status;
        while (free_one < AT_ONCE && child[free_one] != 0)
            free_one++;
        if (next < MUTANTS && free_one < AT_ONCE) {
            mutant[free_one] = next++;
            child[free_one] = start(mutant[free_one], want);
            if (child[free_one] < 0)
                return failures + 1;
            running++;
            continue;
        }
        const pid_t ended = waitpid(-1, &status, 0);
        for (int i = 0; i < AT_ONCE; i++)
            if (child[i] == ended) {
                failures += !judge(mutant[i], status, want);
                child[i] = 0;
                running--;
            }
    }
    return failures;
}

int main(void)
{
    static struct outcome want[CELLS];
    /* the sanitizer would end a process with a planted bug before the program can react */
    if (!getenv("LTRAIN_CUDA_MUTANTS") || EXTENT_SANITIZED)
        return 77;
    if (!find_right(want)) {
        printf("not ok: cpu:discrete does not run\n");
        return 1;
    }
    const double began = clock_seconds();
    if (!judge(0, in_child(0, want), want))
        return 1;
    seconds = 10 + (unsigned)(3 * (clock_seconds() - began));
    const int failures = try_all(want);
    printf("%d mutants, %d not noticed\n", MUTANTS - 1, failures);
    return failures > 0;
}
