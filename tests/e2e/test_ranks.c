/* Tests runs of several ranks on this machine: killed, stopped and terminated at random moments; moved to other numbers of ranks;
 * edge cases. */
#include "harness.h"

#include "extent.h"
#include "program/program.h"

#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 4, PATIENCE = 500, REPEATS = 20 /* trials of a signal that must not come after training's end */, USUAL_SEED = 1 };
#define SAVED "--ranks 4 --comm-timeout 20 --steps 8 --save-every 1" TINY
#define SAVED_ON_CPU SAVED DISCRETE
#define SAVED_WITH_EXPERTS \
    "--ranks 4 --comm-timeout 20 --steps 8 --save-every 1 --mesh dp=4,ep=4 --router-bias-rate 0.125 --dtype bf16 --model model" IDS
#define SAVED_ON_CUDA SAVED " --offload nvme --device cuda --comm nccl "

static uint64_t random_state;
static const char *saved = SAVED_ON_CPU "--out run"; /* options of the run that is disturbed */
#define SAVED_BRIEFLY "--ranks 4 --comm-timeout 8 --steps 8 --save-every 1" TINY DISCRETE "--out run"
/* Lets runs that nobody disturbs wait for slow ranks, whatever the disturbed one was given. */
#define NO_HURRY " --comm-timeout 300"
static int instructions_named;

static uint32_t dice(uint32_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % n;
}

static void wait_ms(int ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

/* A preparation: SIGALRM, which no test expects, ends a program that hangs. */
static int no_hang(void)
{
    alarm(PATIENCE);
    return 0;
}

static const struct launch patient = {.prepare = no_hang};

/* Reads a file of /proc with its zeros replaced by newlines; "" if the process is gone. */
static void read_proc(pid_t pid, const char *name, char *text, size_t bytes)
{
    char path[128];
    size_t n = 0;
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    FILE *f = fopen(path, "re");
    if (f) {
        n = fread(text, 1, bytes - 1, f);
        fclose(f);
    }
    for (size_t i = 0; i < n; i++)
        text[i] = text[i] ? text[i] : '\n';
    text[n] = 0;
}

/* Returns the process of a rank of the program `pid` (ltrain, whose child is mpiexec, whose children are the ranks); 0: none
 * (yet). */
static pid_t process_of(pid_t pid, int rank)
{
    static char text[1 << 16];
    char name[64], wanted[64];
    snprintf(wanted, sizeof wanted, "\nOMPI_COMM_WORLD_RANK=%d\n", rank);
    snprintf(name, sizeof name, "task/%d/children", (int)pid);
    read_proc(pid, name, text, sizeof text);
    pid_t mpiexec = (pid_t)strtol(text, NULL, 10);
    if (mpiexec <= 0)
        return 0;
    DIR *all = opendir("/proc");
    assert_non_null(all);
    pid_t found = 0;
    for (struct dirent *e; !found && (e = readdir(all));) {
        pid_t p = (pid_t)strtol(e->d_name, NULL, 10);
        char parent[32];
        snprintf(parent, sizeof parent, "\nPPid:\t%d\n", (int)mpiexec);
        if (p <= 0)
            continue;
        read_proc(p, "status", text, sizeof text);
        if (!strstr(text, parent))
            continue;
        read_proc(p, "environ", text, sizeof text);
        if (strstr(text, wanted))
            found = p;
    }
    closedir(all);
    return found;
}

/* Counts processes whose working directory is this test's. */
static int left_behind(void)
{
    char here[4096], there[4096], link[64];
    int n = 0;
    assert_non_null(getcwd(here, sizeof here));
    DIR *all = opendir("/proc");
    assert_non_null(all);
    for (struct dirent *e; (e = readdir(all));) {
        long pid = strtol(e->d_name, NULL, 10);
        snprintf(link, sizeof link, "/proc/%ld/cwd", pid);
        ssize_t length = pid > 0 ? readlink(link, there, sizeof there - 1) : -1;
        if (length <= 0)
            continue;
        there[length] = 0;
        n += strcmp(here, there) == 0 && pid != getpid();
    }
    closedir(all);
    return n;
}

static void none_left_behind(void)
{
    for (int i = 0; i < 500 && left_behind(); i++)
        wait_ms(20);
    assert_int_equal(left_behind(), 0);
}

static int wait_for_file(pid_t pid, const char *pattern)
{
    while (!e2e_ended(pid) && e2e_count(pattern) == 0)
        wait_ms(1);
    return !e2e_ended(pid);
}

/* Checks that every rank but the victim reports the cause and the state that is saved. */
static void all_said(struct result r, int victim, const char *what)
{
    for (int rank = 0; rank < RANKS; rank++) {
        char who[64], cause[64];
        if (rank == victim)
            continue;
        snprintf(who, sizeof who, "ltrain: rank %d: ", rank);
        snprintf(cause, sizeof cause, "rank %d on ", victim);
        char *line = strstr(r.err, who), *end = line ? strchr(line, '\n') : NULL;
        if (!line || !end)
            fail_msg("rank %d said nothing when rank %d was hit: %s", rank, victim, r.err);
        char *said = strndup(line, (size_t)(end - line));
        e2e_contains(said, cause);
        e2e_contains(said, what);
        e2e_contains(said, strstr(said, "there is no checkpoint yet") ? "no checkpoint" : "continue with --resume run");
        assert_null(strstr(end, who)); /* reported once */
        free(said);
    }
}

static void goes_on(const struct curve *reference)
{
    if (e2e_count("run/checkpoints/step-??????") > 0) {
        e2e_succeeds(&patient, "--resume run" NO_HURRY);
    } else {
        e2e_remove("run");
        e2e_succeeds(&patient, "%s" NO_HURRY, saved);
    }
    struct curve c = e2e_curve("run");
    assert_int_equal(c.n, reference->n);
    e2e_same_curve(reference, &c, c.n);
    e2e_same_file("reference/hf/model.safetensors", "run/hf/model.safetensors");
    assert_int_equal(e2e_count("run/*.store*"), 0);
    assert_int_equal(e2e_count("run/checkpoints/*.partial") + e2e_count("run/checkpoints/*.old"), 0);
}

/* Checks that every rank reports where it was: in a program, or between two programs. */
static void all_said_where(const char *err, int victim)
{
    for (int rank = 0; rank < RANKS; rank++) {
        char who[64];
        if (rank == victim)
            continue;
        snprintf(who, sizeof who, "ltrain: rank %d: ", rank);
        char *line = strdup(strstr(err, who));
        line[strcspn(line, "\n")] = 0;
        if (!strstr(line, "at instruction ") && !strstr(line, " between programs") && !strstr(line, " lane;") &&
            !strstr(line, " was in program "))
            fail_msg("rank %d does not say where it was: %s", rank, line);
        instructions_named += strstr(line, "at instruction ") != NULL;
        free(line);
    }
}

/* Sends a signal to one rank at a random moment. `started`: only after the ranks know each other; before that only MPI prints
 * messages. */
static void hit(int number, int started, const char *what, const struct curve *reference)
{
    char file[64];
    int victim = (int)dice(RANKS);
    pid_t rank = 0;
    e2e_remove("run");
    pid_t pid = e2e_start(&patient, saved);
    while (!e2e_ended(pid) && !(rank = process_of(pid, victim)))
        wait_ms(20);
    snprintf(file, sizeof file, "run/checkpoints/step-%06u*", 1 + dice(7));
    if (started && dice(4) == 0)
        snprintf(file, sizeof file, "run/plan.txt");
    if (started)
        wait_for_file(pid, file);
    wait_ms((int)dice(started ? 40 : 400));
    if (rank)
        kill(rank, number);
    struct result r = e2e_wait(pid);
    if (r.status == 128 + SIGALRM)
        fail_msg("a hang: rank %d was hit by signal %d: %s", victim, number, r.err);
    none_left_behind();
    if (started && r.status != 0 && !e2e_exists("run/hf")) /* otherwise the signal came when all work had been done */
        all_said(r, victim, what);
    if (started && r.status != 0 && !e2e_exists("run/hf") && e2e_count("run/checkpoints/step-??????") > 0)
        all_said_where(r.err, victim);
    print_message("rank %d %s %s: exit status %d, %d checkpoints\n", victim, started ? "after" : "long before", file, r.status,
                  e2e_count("run/checkpoints/step-??????"));
    goes_on(reference);
}

/* Sends the signal to ranks of the disturbed run, whose options are these beside its directory. */
static void hit_at_random_moments(int number, const char *what, const char *options, int trials)
{
    const char *seed = getenv("LTRAIN_SEED");
    random_state = seed ? strtoull(seed, NULL, 10) : extent_is_long() ? (uint64_t)time(NULL) : USUAL_SEED;
    print_message("LTRAIN_SEED=%llu\n", (unsigned long long)random_state);
    e2e_remove("reference");
    e2e_succeeds(&patient, "%s --out reference", options);
    struct curve reference = e2e_curve("reference");
    assert_int_equal(reference.n, 8);
    for (int trial = 0; trial < trials;
         trial++) /* a rank stopped in MPI_Init is waited for a minute, so only the long test does that */
        hit(number, trial % 5 != 1 || (!extent_is_long() && number == SIGSTOP), what, &reference);
    print_message("%d sentences name an instruction\n", instructions_named);
    assert_true(trials < 50 || instructions_named > 0); /* if there are few trials, all of them may hit ranks that are saving */
}

static void killed(void **state)
{
    (void)state;
    hit_at_random_moments(SIGKILL, "has died", SAVED_ON_CPU, extent(2, 3, 50));
}

/* Experts that ranks share out, their states, and biases that choose them come back with the bits that they had. */
static void killed_with_experts(void **state)
{
    (void)state;
    e2e_experts_model("minimax-m2", "model");
    saved = SAVED_WITH_EXPERTS "--out run";
    hit_at_random_moments(SIGKILL, "has died", SAVED_WITH_EXPERTS, extent(1, 1, 50));
    saved = SAVED_ON_CPU "--out run";
}

static void stopped(void **state)
{
    (void)state;
    saved = SAVED_BRIEFLY; /* other ranks wait for a stopped one as long as the timeout says */
    hit_at_random_moments(SIGSTOP, "is stopped", SAVED_ON_CPU, extent(1, 1, 50));
    saved = SAVED_ON_CPU "--out run";
}

/* Tells whether SIGTERM came before all ranks took it as a request: then one sentence is all that is said. */
static int came_early(struct result r)
{
    if (!strstr(r.err, "before the first step"))
        return 0;
    assert_string_equal(r.err, "ltrain: SIGTERM before the first step: there is nothing to save yet\n");
    assert_int_equal(r.status, 128 + SIGTERM);
    return 1;
}

/* A signal to the program that started the ranks is a signal to the run. */
static void ends_when_told(const char *run, const char *whole_run)
{
    struct result r;
    int trials = 0, early, wait = 50;
    do {
        e2e_remove("run");
        pid_t pid = e2e_start(&patient, run);
        wait_for_file(pid, "run/metrics.jsonl");
        wait_ms(wait);
        kill(pid, SIGTERM);
        r = e2e_wait(pid);
        early = came_early(r);
        wait = early && wait < 1000 ? 2 * wait : wait;
    } while ((early || e2e_exists("run/hf")) && ++trials < REPEATS);
    assert_int_equal(r.status, 128 + SIGTERM);
    assert_string_equal(r.err, "");
    e2e_contains(r.out, "saved: continue with ltrain --resume run");
    none_left_behind();
    struct curve c = e2e_curve("run");
    assert_true(c.n < 60);
    assert_int_equal(e2e_count("run/checkpoints/step-*"), 1);
    e2e_succeeds(&patient, "--resume run --steps %d", c.n + 2);
    e2e_succeeds(&patient, "%s --steps %d --out whole", whole_run, c.n + 2);
    struct curve whole = e2e_curve("whole"), resumed = e2e_curve("run");
    assert_int_equal(resumed.n, c.n + 2);
    e2e_same_curve(&whole, &resumed, c.n + 2);
    e2e_same_file("whole/hf/model.safetensors", "run/hf/model.safetensors");
}

static void terminated(void **state)
{
    (void)state;
    ends_when_told("--ranks 3 --steps 60 --out run" TINY DISCRETE, "--ranks 3" TINY DISCRETE);
}

/* Makes four fake GPUs (tests/cudasim/fake). */
static void use_twin(const char *words)
{
    const char *twin = getenv("LTRAIN_CUDA_TWIN");
    if (!twin)
        skip();
    setenv("LTRAIN_CUDA_PLUGIN", twin, 1);
    setenv("LTRAIN_FAKE_CUDA", words, 1);
}

static void cuda_killed(void **state)
{
    (void)state;
    use_twin("devices=4,seed=1");
    saved = SAVED_ON_CUDA "--out run";
    hit_at_random_moments(SIGKILL, "has died", SAVED_ON_CPU, extent(2, 3, 50));
    saved = SAVED_ON_CPU "--out run";
}

/* The ranks agree on where to stop while collectives are submitted ahead. */
static void cuda_terminated(void **state)
{
    (void)state;
    use_twin("devices=4,seed=2");
    ends_when_told("--ranks 3 --steps 60 --offload nvme --device cuda --out run" TINY, "--ranks 3" TINY DISCRETE);
}

/* Returns the host memory that a run planned to take. */
static long planned_host(const char *run)
{
    char path[64];
    snprintf(path, sizeof path, "%s/plan.json", run);
    char *text = e2e_read(path, NULL);
    const char *peak = strstr(text, "\"peak\""), *host = peak ? strstr(peak, "\"host\":") : NULL;
    assert_non_null(host);
    const long bytes = strtol(host + strlen("\"host\":"), NULL, 10);
    free(text);
    return bytes;
}

/* Plans include the memory for messages that go through the host: if the tensors would fill a budget, they get less. */
static void messages_count(void)
{
    const char *run = "--ranks 2 --steps 1 --save-every 0 --offload cpu --device cuda " TINY;
    e2e_succeeds(&patient, "%s --out roomy", run);
    const long all = planned_host("roomy");
    e2e_succeeds(&patient, "%s --comm staged --host-mem %ld --out tight", run, all);
    assert_true(planned_host("tight") < all);
}

/* The carrier of messages (NCCL or the host) is reported, and results do not depend on it. */
static void cuda_carriers(void **state)
{
    (void)state;
    use_twin("devices=2");
    e2e_succeeds(&patient, "--ranks 2 --steps 2 --out want" TINY DISCRETE);
    struct result r = e2e_succeeds(&patient, "--ranks 2 --steps 1 --save-every 1 --offload nvme --device cuda --out run" TINY);
    e2e_contains(r.out, "NCCL 2.28.9");
    e2e_contains(r.out, "messages are carried by NCCL\n");
    r = e2e_succeeds(&patient, "--resume run --ranks 2 --steps 2 --comm staged");
    e2e_contains(r.out, "messages are staged through host memory (--comm staged)");
    e2e_same_file("want/hf/model.safetensors", "run/hf/model.safetensors");
    messages_count();
    setenv("LTRAIN_FAKE_CUDA", "devices=1", 1);
    r = e2e_succeeds(&patient, "--ranks 2 --steps 1 --device cuda --out shared" TINY);
    e2e_contains(r.out, "messages are staged through host memory: ranks 0 and 1 share GPU 0, twin");
    r = e2e_run(&patient, "--ranks 2 --steps 1 --device cuda --comm nccl --out none" TINY);
    assert_int_equal(r.status, 2);
    e2e_contains(r.err, "--comm nccl: ranks 0 and 1 share GPU 0, twin");
    none_left_behind();
}

/* Checks that losses are close: fp32 sums in different orders differ by about 1e-6 for a loss near 5 after a few steps. */
static void near_curve(const char *a, const char *b, double tolerance)
{
    struct curve x = e2e_curve(a), y = e2e_curve(b);
    assert_int_equal(x.n, y.n);
    for (int i = 0; i < x.n; i++)
        if (!(fabs(x.loss[i] - y.loss[i]) <= tolerance * fabs(x.loss[i])))
            fail_msg("%s and %s: step %d: %.9g and %.9g", a, b, i + 1, x.loss[i], y.loss[i]);
}

#define PARTS "--comm-timeout 20 --mesh dp=2,pp=2,slices=3 --stage-ahead 1 --zero 2 --batch 4" TINY

/* Ranks with parts of the layers have the bits of cpu:discrete on GPUs, whoever carries their messages. */
static void same_on_cuda(int ranks, const char *options)
{
    char words[32];
    snprintf(words, sizeof words, "devices=%d,seed=%d", ranks, ranks);
    setenv("LTRAIN_FAKE_CUDA", words, 1);
    e2e_succeeds(&patient, "--ranks %d --steps 2 --save-every 2 --device cpu:discrete --out want %s" TINY, ranks, options);
    for (int staged = 0; staged < 2; staged++) {
        struct result r = e2e_succeeds(&patient, "--ranks %d --steps 2 --save-every 2 --device cuda --comm %s --out have %s" TINY,
                                       ranks, staged ? "staged" : "nccl", options);
        e2e_contains(r.out,
                     staged ? "messages are staged through host memory (--comm staged)" : "messages are carried by NCCL\n");
        e2e_same_file("want/checkpoints/step-000002/digests.txt", "have/checkpoints/step-000002/digests.txt");
        e2e_remove("have");
    }
    e2e_remove("want");
}

/* Slices that leave a stage's last share of rows short, also of a sequence's keys that are still to come; adapters; ZeRO 1 to 3. */
static void cuda_parts(void **state)
{
    static const char *const cells[] = {
        "--mesh tp=2,pp=2,slices=3 --zero 2 --batch 2 --offload nvme",
        "--mesh pp=2,slices=3 --stage-ahead 1 --zero 1 --batch 2 --dtype bf16 --lora r=4 --eval-every 1 --eval-fraction 0.03",
        "--mesh tp=2 --zero 3 --dtype bf16 --batch 2 --offload cpu",
        "--mesh pp=2 --zero 3 --batch 3 --grad-dtype bf16 --offload cpu",
        "--mesh dp=2,pp=2 --zero 2 --batch 6 --offload nvme",
        "--mesh pp=2,slices=3 --stage-ahead 0 --batch 2 --lora r=4 --offload none",
        "--mesh tp=2 --zero 0 --batch 2 --offload none",
        "--mesh dp=2,pp=2,slices=3 --stage-ahead 1 --zero 2 --batch 6 --offload nvme",
    };
    (void)state;
    use_twin("");
    for (int i = 0; i < (getenv("LT_MUTANT") ? 1 : extent(2, 3, 8)); i++)
        same_on_cuda(strstr(cells[i], "tp=2,pp=2") || strstr(cells[i], "dp=2,pp=2") ? 4 : 2, cells[i]);
    none_left_behind();
}

/* Stages on GPUs end within a tick, by a signal to one rank or to all, and go on there or on one rank. */
static void cuda_parts_end(void **state)
{
    (void)state;
    use_twin("devices=4,seed=5");
    saved = "--ranks 4 --steps 8 --save-every 1 --device cuda --comm nccl --offload nvme --out run " PARTS;
    hit_at_random_moments(SIGKILL, "has died", "--ranks 4 --steps 8 --save-every 4 --keep 9 " PARTS DISCRETE, extent(1, 2, 30));
    saved = SAVED_ON_CPU "--out run";
    e2e_remove("run");
    e2e_copy("reference", "run");
    e2e_write("run/checkpoints/latest", "step-000004\n");
    e2e_remove("run/checkpoints/step-000008");
    e2e_succeeds(&patient, "--resume run --ranks 2 --mesh tp=2 --zero 3 --device cuda --comm staged --batch 4");
    near_curve("reference", "run", 1e-5);
    e2e_remove("run");
    ends_when_told("--ranks 4 --steps 60 --device cuda --offload nvme --out run " PARTS, "--ranks 4 " PARTS DISCRETE);
}

/* Sends a signal while mpiexec is starting and has no ranks yet to pass it on to, or only some. `times`: number of signals, the
 * first after `ms`. */
static void signalled_early(int number, int ms, int times)
{
    pid_t pid = e2e_start(&patient, "--ranks 8 --steps 1000000 --out run" TINY);
    wait_ms(ms);
    for (int i = 0; i < times && !e2e_ended(pid); i++) {
        kill(pid, number);
        wait_ms(100);
    }
    struct result r = e2e_wait(pid);
    print_message("signal %d, %d times, after %d ms: status %d after %.1f s\n", number, times, ms, r.status, r.seconds);
    if (r.status != 128 + number)
        fail_msg("signal %d, %d times, %d ms after the start: exit status %d: %s", number, times, ms, r.status, r.err);
    if (strstr(r.out, "once more to stop at once"))
        assert_null(strstr(strstr(r.out, "once more to stop at once") + 1, "once more to stop at once"));
    none_left_behind();
    e2e_remove("run");
}

/* A rank that never comes up, and ignores every request, does not keep the others from ending. The first mpiexec of PATH is a script that
 * makes one. */
static void terminated_beside_a_late_rank(void)
{
    char path[8192], here[4096];
    const char *before = getenv("PATH");
    e2e_write("mpiexec", "#!/bin/sh\nif [ \"${OMPI_COMM_WORLD_RANK:-}\" ]; then\n"
                         "[ $OMPI_COMM_WORLD_RANK != 1 ] || { trap '' USR1 TERM; sleep 2000; }\nexec \"$@\"\nfi\n"
                         "PATH=${PATH#*:}\nn=$2 && shift 2\nexec mpiexec -n $n \"$0\" \"$@\"\n");
    assert_int_equal(system("mkdir late && mv mpiexec late && chmod +x late/mpiexec"), 0);
    assert_non_null(getcwd(here, sizeof here));
    snprintf(path, sizeof path, "%s/late:%s", here, before);
    setenv("PATH", path, 1);
    signalled_early(SIGTERM, 2000, 1);
    setenv("PATH", strchr(path, ':') + 1, 1);
}

static void terminated_while_starting(void **state)
{
    (void)state;
    for (int ms = 0; ms <= 500; ms += extent_is_long() ? 10 : 100)
        signalled_early(ms % 200 ? SIGTERM : SIGINT, ms, 1);
    for (int times = 2; times <= 3; times++)
        signalled_early(SIGINT, 200, times);
    terminated_beside_a_late_rank();
}

static void resumed_on_fewer(void **state)
{
    (void)state;
    e2e_succeeds(&patient, "--ranks 8 --steps 5 --save-every 3 --keep 9 --out whole" TINY DISCRETE);
    e2e_copy("whole", "saved");
    e2e_write("saved/checkpoints/latest", "step-000003\n");
    e2e_remove("saved/checkpoints/step-000005");
    for (int ranks = 1; ranks <= 4; ranks++) {
        e2e_copy("saved", "run");
        struct result r = e2e_succeeds(&patient, "--resume run --ranks %d", ranks);
        e2e_contains(r.out, "resume: step 3 from run/checkpoints/step-000003");
        char *anew = strstr(r.out, "the mesh is chosen anew");
        assert_true(anew && !strstr(anew + 1, "the mesh is chosen anew"));
        near_curve("whole", "run", 1e-5);
    }
}

/* Checks that runs with several ranks and with one have close losses. */
static void same_as_alone(const char *arguments, const char *several, const char *words)
{
    e2e_remove("run");
    e2e_remove("alone");
    e2e_succeeds(&patient, "%s --out alone", arguments);
    struct result r = e2e_succeeds(&patient, "%s %s --out run", arguments, several);
    e2e_contains(r.out, words);
    near_curve("alone", "run", 1e-5);
}

static void edge_cases(void **state)
{
    char mqa7[4096], odd[8192];
    struct result r;
    (void)state;
    snprintf(mqa7, sizeof mqa7, "%s/tests/golden/llama-mqa7", getenv("LTRAIN_SOURCE_ROOT") ? getenv("LTRAIN_SOURCE_ROOT") : "");
#define SHORT "--steps 3 --model tiny --data corpus.txt" TILES
    same_as_alone(SHORT "--seq-len 250", "--ranks 4", "padding: each sequence of 250 tokens is followed by ");
    same_as_alone(SHORT "--seq-len 256 --batch 3", "--ranks 2 --mesh dp=2", "batch: 3 sequences a step, 2 micro-batches");
    same_as_alone(SHORT "--seq-len 64 --eval-every 1 --eval-fraction 0.1", "--ranks 3", "eval");
    /* the mesh is chosen for that batch, and kept at the resume */
    same_as_alone(SHORT "--seq-len 64 --batch 4 --save-every 3", "--ranks 2", "mesh: dp=2,ulysses=1,ring=1");
    r = e2e_succeeds(&patient, "--resume run --ranks 2 --steps 4");
    e2e_contains(r.out, "mesh: dp=2,ulysses=1,ring=1");
    e2e_refuses(2, "--batch: 1 sequence a step for the 2 data-parallel groups", &patient,
                "--ranks 2 --sp none --batch 1 --out bad --seq-len 64 " SHORT);
    e2e_refuses(2, "legal: ulysses=1", &patient, "--ranks 3 --mesh ulysses=3 --out bad --seq-len 256 " SHORT);
    e2e_refuses(2, "ring=3 does not divide the 4 ranks", &patient, "--ranks 4 --mesh ring=3 --out bad --seq-len 256 " SHORT);
    e2e_refuses(2, "--machine: h100 is planned for, not trained on", &patient,
                "--ranks 2 --machine h100 --out bad --seq-len 256 " SHORT);
    e2e_refuses(2, "absent.txt", &patient, "--ranks 3 --out bad --model tiny --seq-len 256 --data absent.txt");
    if (access(mqa7, R_OK) == 0) {
        snprintf(odd, sizeof odd, "--steps 3 --seq-len 128 --data corpus.txt --model %s" TILES, mqa7);
        same_as_alone(odd, "--ranks 2", "mesh: 2 ranks");
        same_as_alone(odd, "--ranks 4", "mesh: 4 ranks");
        e2e_refuses(2, "7 query heads|legal: ulysses=1 with ring=2", &patient, "%s --ranks 2 --mesh ulysses=2 --out bad", odd);
    }
    assert_false(e2e_exists("bad"));
    none_left_behind();
}

/* A pipeline's trace has the programs of all ticks of the first stage, one behind another. */
static void check_trace(const char *path)
{
    json_t *root = json_load_file(path, 0, NULL), *event;
    double end_of_lane[LANES] = {0};
    int64_t next = 0, to_stages = 0;
    size_t i;
    assert_non_null(root);
    json_array_foreach(json_object_get(root, "traceEvents"), i, event)
    {
        const json_t *args = json_object_get(event, "args"), *number = json_object_get(args, "instruction");
        const int lane = (int)json_integer_value(json_object_get(event, "tid"));
        const double from = json_number_value(json_object_get(event, "ts"));
        if (!number)
            continue;
        assert_int_equal(json_integer_value(number), next++);
        assert_true(from >= end_of_lane[lane] - 0.002 &&
                    json_number_value(json_object_get(args, "ready")) >= 0); /* us, with three digits */
        end_of_lane[lane] = from + json_number_value(json_object_get(event, "dur"));
        to_stages += lane == LANE_PP;
    }
    assert_true(to_stages >= 2 * 2 * 3); /* outputs and gradients of six pieces */
    json_decref(root);
}

/* Held-out sequences have the losses of a rank alone, overall and by position, before training and between steps. */
static void evaluated(const char *mesh)
{
    static const char *const names[] = {"scored-alone", "scored"};
    json_t *last[2];
    for (int i = 0; i < 2; i++) {
        e2e_succeeds(&patient, "%s --batch 4 --steps 2 --eval-every 1 --eval-before --eval-fraction 0.03 --out %s" TINY,
                     i ? mesh : "", names[i]);
        char path[64];
        snprintf(path, sizeof path, "%s/metrics.jsonl", names[i]);
        char *text = e2e_read(path, NULL), *line = text;
        for (char *next = strchr(line, '\n'); next && next[1]; next = strchr(line, '\n'))
            line = next + 1;
        last[i] = json_loads(line, JSON_DISABLE_EOF_CHECK, NULL);
        assert_non_null(last[i]);
        free(text);
        e2e_remove(names[i]);
    }
    const json_t *at[2] = {json_object_get(last[0], "eval_loss_by_position"), json_object_get(last[1], "eval_loss_by_position")};
    const char *key;
    json_t *value;
    assert_int_equal(json_integer_value(json_object_get(last[0], "eval_tokens")),
                     json_integer_value(json_object_get(last[1], "eval_tokens")));
    assert_true(json_object_size(at[0]) > 3 && json_object_size(at[0]) == json_object_size(at[1]));
    json_object_foreach((json_t *)at[0], key,
                        value) /* sums in another order, and AdamW's first step, which is as large for any gradient */
        assert_true(fabs(json_real_value(value) - json_real_value(json_object_get(at[1], key))) < 1e-4);
    json_decref(last[0]);
    json_decref(last[1]);
}

/* Stages train as one rank does, bit for bit wherever values are; runs go on on other meshes, and after a kill or SIGTERM. */
static void stages(void **state)
{
    (void)state;
#define STAGES "--ranks 4 --mesh dp=2,pp=2 --zero 2 --batch 6" TINY
#define SLICED "--ranks 4 --mesh dp=2,pp=2,slices=3 --stage-ahead 1 --zero 2 --batch 6" TINY
    e2e_contains(e2e_succeeds(&patient, "check --steps 2 " STAGES DISCRETE).out, "check: pass");
    e2e_contains(e2e_succeeds(&patient,
                              "check --steps 2 --ranks 2 --mesh pp=2 --batch 3 --model gpt2-tiny --data corpus.txt --seq-len 99 "
                              "--lora r=4,tokens=97-122 --dtype bf16" TILES)
                     .out,
                 "check: pass");
    e2e_golden_model("llama-gqa", "untied");
    e2e_contains(e2e_succeeds(&patient, "check --steps 1 --ranks 4 --mesh tp=2,pp=2,slices=2 --zero 2 --batch 2 --model untied "
                                        "--lora r=4,tokens=embed_tokens:0-9,lm_head:3-25" IDS)
                     .out,
                 "check: pass"); /* rows of both matrices, where stages and slices have shares of the tokens */
    e2e_contains(e2e_succeeds(&patient,
                              "check --steps 2 --ranks 4 --mesh pp=2,slices=5 --zero 1 --batch 2 --data corpus.txt --model tiny "
                              "--seq-len 333" TILES DISCRETE)
                     .out,
                 "check: pass");
    e2e_contains(e2e_succeeds(&patient, "check --ranks 2 --mesh pp=2 --lora r=4,dropout=0.25,targets=lm_head,down_proj" TINY).out,
                 "check: pass"); /* each stage drops inputs of the head by its own rows' numbers */
    e2e_contains(
        e2e_succeeds(&patient, "check --steps 2 --ranks 4 --mesh tp=2,pp=2,slices=3 --zero 2 --batch 2" TINY DISCRETE).out,
        "check: pass");
    e2e_contains(
        e2e_succeeds(&patient, "check --steps 2 --ranks 2 --mesh tp=2 --batch 2 --base int8 "
                               "--lora r=4,dropout=0.25,targets=embed_tokens,lm_head,q_proj,down_proj" TINY DISCRETE)
            .out,
        "check: pass"); /* slices drop their own columns of what the second maps read, and rows of the head by their numbers */
    for (int ahead = 0; ahead < 2; ahead++) /* messages a tick ahead change no bit */
        e2e_succeeds(
            &patient,
            "--ranks 2 --mesh pp=2,slices=3 --stage-ahead %d --batch 2 --lora r=4 --steps 2 --save-every 2 --trace 2 --out %s" TINY,
            ahead, ahead ? "later" : "at-once");
    check_trace("later/trace-000002.json");
    check_trace("at-once/trace-000002.json");
    e2e_same_file("later/checkpoints/step-000002/digests.txt", "at-once/checkpoints/step-000002/digests.txt");
    saved = "--steps 8 --save-every 1 --out run " SLICED DISCRETE;
    e2e_succeeds(&patient, "--steps 8 --save-every 4 --keep 9 --out reference " SLICED);
    struct curve reference = e2e_curve("reference");
    random_state = USUAL_SEED;
    hit(SIGKILL, 1, "has died", &reference);
    saved = SAVED_ON_CPU "--out run";
    e2e_remove("run");
    e2e_copy("reference", "run");
    e2e_write("run/checkpoints/latest", "step-000004\n");
    e2e_remove("run/checkpoints/step-000008");
    e2e_succeeds(&patient, "--resume run --ranks 1 --mesh auto");
    near_curve("reference", "run", 1e-5);
    e2e_remove("run");
    ends_when_told("--steps 60 --out run " SLICED DISCRETE, SLICED);
    evaluated("--ranks 4 --mesh tp=2,pp=2 --zero 1");
    evaluated("--ranks 2 --mesh pp=2,slices=3 --stage-ahead 1" DISCRETE);
    e2e_refuses(2, "give pp, too", &patient, "--ranks 2 --mesh slices=2 --out bad" TINY);
    e2e_refuses(2, "share a slice by heads", &patient, "--ranks 4 --mesh pp=2,ring=2,slices=2 --out bad" TINY);
    e2e_refuses(2, "pp=3 is more than the model's 2 layers", &patient, "--ranks 3 --mesh pp=3 --out bad" TINY);
}

/* Stages whose layers are given train as one rank does, though the last one has the most; a run goes on with other numbers. */
static void unequal_stages(void **state)
{
    (void)state;
#define THREE " --model three" IDS
    e2e_golden_model("hybrid/granite", "three");
    e2e_contains(e2e_succeeds(&patient, "check --steps 2 --ranks 2 --stage-layers 1,2 --batch 2" THREE DISCRETE).out,
                 "check: pass");
    e2e_succeeds(&patient, "--ranks 2 --stage-layers 1,2 --batch 2 --steps 2 --save-every 2 --out run" THREE);
    e2e_succeeds(&patient, "--ranks 2 --mesh pp=2 --stage-layers 2,1 --batch 2 --steps 4 --out reference" THREE);
    e2e_contains(e2e_succeeds(&patient, "--resume run --mesh pp=2 --steps 4").out, "the numerics key differs");
    near_curve("reference", "run", 1e-5);
    e2e_refuses(2, "--stage-layers: 2,2 are 4 layers, and the model has 3", &patient,
                "--ranks 2 --stage-layers 2,2 --out bad" THREE);
    e2e_refuses(2, "layers of 2 stages, and --mesh has pp=3", &patient,
                "--ranks 3 --mesh pp=3 --stage-layers 1,2 --out bad" THREE);
    none_left_behind();
}

/* The first NaN is in one rank's shard; all ranks end with that rank's message, and no rank has kept a checkpoint. */
static void diverged(void **state)
{
    (void)state;
    e2e_succeeds(&patient, "--ranks 2 --steps 2 --save-every 1 --keep 1 --out run" TINY);
    e2e_refuses(1, "training diverged: |has |after step 3, which was not saved|step-000002: continue with --resume run", &patient,
                "--resume run --ranks 2 --steps 9 --lr 1e38");
    assert_int_equal(e2e_count("run/checkpoints/step-*"), 1);
    e2e_succeeds(&patient, "--resume run --ranks 2 --steps 3 --lr 1e-3");
    none_left_behind();
}

/* Steps of two ranks from nvme are done again resident, on one: equal within bounds, which are said. Until rounding shows, the
 * tensors of both have the same digests. */
static void replayed(void **state)
{
    (void)state;
    e2e_succeeds(&patient, "--ranks 2 --mesh dp=2 --steps 3 --save-every 1 --keep 9 --out run" TINY DISCRETE);
    struct result r = e2e_succeeds(&patient, "replay run --steps 1..3");
    e2e_contains(r.out, "replay: equal: 3 steps, all with the recorded bits");
    r = e2e_succeeds(&patient, "replay run --steps 2..3 --ranks 1 --offload none --device cpu");
    e2e_contains(r.out, "from step 2 on the numerics key differs");
    e2e_contains(r.out, "replay: equal within the bounds of another numerics key: 2 steps");
    e2e_succeeds(&patient, "--ranks 2 --mesh pp=2 --grad-accum 2 --steps 2 --out stages" TINY);
    r = e2e_succeeds(&patient, "replay stages --steps 1..2");
    e2e_contains(r.out, "replay: equal: 2 steps, all with the recorded bits");
    r = e2e_succeeds(&patient, "replay stages --steps 1..2 --ranks 1 --mesh dp=1");
    e2e_contains(r.out, "replay: equal within the bounds of another numerics key: 2 steps");
    e2e_succeeds(&patient, "--batch 2 --micro-batch 1 --steps 1 --save-every 1 --out alone" TINY);
    r = e2e_succeeds(&patient, "compare run/checkpoints/step-000001 alone/checkpoints/step-000001");
    e2e_contains(r.out, "compare: equal");
    e2e_same_file("run/checkpoints/step-000001/digests.txt", "alone/checkpoints/step-000001/digests.txt");
    none_left_behind();
}

/* Ranks that share a batch or a sequence compute steps twice with the same bits, in every way of holding gradients. */
static void verified(void **state)
{
    static const char *const meshes[] = {"--mesh dp=2 --zero 0", "--mesh ring=2 --zero 1", "--mesh pp=2,slices=3 --zero 1",
                                         "--mesh ring=2 --zero 3 --dtype bf16" DISCRETE};
    (void)state;
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        e2e_succeeds(&patient, "--ranks 2 %s --steps 4 --save-every 4 --out once" TINY, meshes[i]);
        struct result r =
            e2e_succeeds(&patient, "--ranks 2 %s --steps 4 --save-every 4 --verify-every 1 --out twice" TINY, meshes[i]);
        e2e_contains(r.out, "verified: 4 steps were computed twice, with the same bits");
        e2e_same_file("once/checkpoints/step-000004/digests.txt", "twice/checkpoints/step-000004/digests.txt");
        e2e_remove("once");
        e2e_remove("twice");
    }
    none_left_behind();
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    if (system("command -v mpiexec >/dev/null") != 0)
        return 77;
#define TEST(f) cmocka_unit_test_setup_teardown(f, e2e_setup, e2e_teardown)
    const struct CMUnitTest tests[] = {
        TEST(edge_cases),
        TEST(terminated),
        TEST(terminated_while_starting),
        TEST(resumed_on_fewer),
        TEST(killed),
        TEST(stopped),
        TEST(diverged),
        TEST(cuda_carriers),
        TEST(cuda_killed),
        TEST(cuda_terminated),
        TEST(cuda_parts),
        TEST(cuda_parts_end),
        TEST(stages),
        TEST(unequal_stages),
        TEST(replayed),
        TEST(verified),
        TEST(killed_with_experts),
    };
    return cmocka_run_group_tests_name("ranks", tests, NULL, NULL);
}
