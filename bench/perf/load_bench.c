/* `load_bench DIR [ROUNDS [fp32|nvme]]`: compares loading 2.5 GB of sharded bf16 weights (of the 1b preset) into a session with a
 * plain reader, which fills memory of the same size that was touched before. The two alternate. Loading into an fp32 session
 * writes twice as many bytes as it reads, so the reader then also copies what it has read. Prints a line of JSON for each round,
 * then medians. DIR is created, and its files are removed at the end.
 *
 * Before the rounds it prints the most memory that the first load used, and exits with status 1 if this exceeds the plan's device
 * and host bytes plus BESIDE. */
#include "checkpoint/checkpoint.h"
#include "data/safetensors.h"
#include "engine/backend_cpu.h"
#include "engine/session.h"
#include "settings/settings.h"

#include <fcntl.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PIECE = 8 << 20 };
#define BESIDE (int64_t)(64 << 20) /* bytes for libraries, threads and lists of tensors; 33 MB were measured */

static void must(enum status st)
{
    if (st == OK)
        return;
    fprintf(stderr, "load_bench: %s\n", status_message());
    exit(1);
}

struct timing {
    double wall, cpu;
};

static struct timing now(void)
{
    struct timespec t;
    struct rusage u;
    clock_gettime(CLOCK_MONOTONIC, &t);
    getrusage(RUSAGE_SELF, &u);
    return (struct timing){(double)t.tv_sec + 1e-9 * (double)t.tv_nsec,
                           (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
                               1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec)};
}

static struct timing since(struct timing begin)
{
    struct timing end = now();
    return (struct timing){end.wall - begin.wall, end.cpu - begin.cpu};
}

/* Reads the files one after another into `to` and, unless `again` is 0, copies what it has read to `to` + `again`. Returns the
 * bytes of the files. */
static int64_t read_plainly(const struct st_file *f, char *to, int64_t again)
{
    int64_t at = 0;
    for (int i = 0; i < st_files(f); i++) {
        int fd = open(st_file_path(f, i), O_RDONLY | O_CLOEXEC);
        ssize_t got;
        while (fd >= 0 && (got = read(fd, to + at, PIECE)) > 0) {
            if (again)
                memcpy(to + again + at, to + at, (size_t)got);
            at += got;
        }
        if (fd < 0 || close(fd) != 0)
            exit(1);
    }
    return at;
}

/* Starts a session in which everything but the last norm is frozen, so that it loads weights but has hardly any masters or
 * moments. */
static struct session *start(const struct model *m, enum dtype dtype, enum offload params, int64_t *planned)
{
    static struct settings s;
    static struct target target;
    struct plan *plan;
    struct session *session;
    const char *scratch = "/tmp";
    int64_t limit[TIERS] = {(int64_t)1 << 40, (int64_t)1 << 40, (int64_t)1 << 40};
    must(settings_defaults(&s, 256));
    target = backend_cpu_target(omp_get_max_threads());
    s.plan.target = &target;
    s.plan.params = params;
    s.plan.grads = s.plan.optim = s.plan.acts = OFFLOAD_NONE;
    s.plan.device = DEVICE_CPU;
    s.plan.dtype = dtype;
    s.plan.zero = 0;
    must(plan_create(m, &s.plan, limit, &plan));
    *planned = plan->arena[TIER_DEVICE] + plan->arena[TIER_HOST];
    must(session_create(m, &plan, 1, &s, NULL, &scratch, 1, &session));
    return session;
}

static struct model *make_model(void)
{
    static const char *const freeze[] = {"model.layers.*", "model.embed_tokens.*"};
    struct model_config config;
    struct model *m;
    must(model_preset("1b", &config));
    must(model_create(&config, freeze, 2, &m));
    return m;
}

/* Exports the weights in another process, so that its memory does not count. */
static void export_weights(const struct model *m, const char *dir)
{
    int64_t planned;
    int status;
    const pid_t child = fork();
    if (child == 0) {
        struct session *s = start(m, BF16, OFFLOAD_NONE, &planned);
        must(session_initialise(s, 1));
        must(checkpoint_export(s, dir, NULL, 500000000));
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        exit(1);
}

static int64_t make_files(const struct model *m, const char *dir, struct st_file **f)
{
    int64_t bytes = 0;
    export_weights(m, dir);
    must(st_open(dir, f));
    for (int i = 0; i < st_files(*f); i++) {
        struct stat x;
        bytes += stat(st_file_path(*f, i), &x) == 0 ? (int64_t)x.st_size : 0;
    }
    return bytes;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

enum { ROUNDS = 100 };

/* Measures the plain reader and the load alternately; the files are in the page cache, and all memory has been touched. */
static void measure(struct session *s, const char *dir, const struct st_file *f, int64_t bytes, int wide, int rounds)
{
    double ratio[ROUNDS], cpu[ROUNDS];
    const int64_t again = wide ? bytes + PIECE : 0, room = bytes + PIECE + again;
    char *buffer = malloc((size_t)room);
    if (!buffer)
        exit(1);
    memset(buffer, 1, (size_t)room);
    for (int i = 0; i < rounds; i++) {
        struct timing begin = now();
        if (read_plainly(f, buffer, again) != bytes)
            exit(1);
        struct timing plain = since(begin);
        begin = now();
        must(session_load(s, dir));
        struct timing load = since(begin);
        ratio[i] = plain.wall / load.wall;
        cpu[i] = plain.cpu / load.cpu;
        printf(
            "{\"files\": %d, \"bytes\": %lld, \"plain_gbps\": %.3f, \"load_gbps\": %.3f, \"ratio\": %.3f, \"plain_cpu_s\": %.3f, "
            "\"load_cpu_s\": %.3f}\n",
            st_files(f), (long long)bytes, 1e-9 * (double)bytes / plain.wall, 1e-9 * (double)bytes / load.wall, ratio[i],
            plain.cpu, load.cpu);
        fflush(stdout);
    }
    qsort(ratio, (size_t)rounds, sizeof *ratio, compare);
    qsort(cpu, (size_t)rounds, sizeof *cpu, compare);
    printf("{\"rounds\": %d, \"ratio_median\": %.3f, \"cpu_ratio_median\": %.3f}\n", rounds, ratio[rounds / 2], cpu[rounds / 2]);
    free(buffer);
}

int main(int argc, char **argv)
{
    const int rounds = argc > 2 ? atoi(argv[2]) : 5;
    const int wide = argc > 3 && strcmp(argv[3], "fp32") == 0, nvme = argc > 3 && strcmp(argv[3], "nvme") == 0;
    if (argc < 2 || rounds < 1 || rounds > ROUNDS || (argc > 3 && !wide && !nvme)) {
        fprintf(stderr, "usage: load_bench DIR [ROUNDS [fp32|nvme]], at most %d rounds\n", ROUNDS);
        return 2;
    }
    struct st_file *f;
    struct rusage u;
    int64_t planned;
    struct model *m = make_model();
    const int64_t bytes = make_files(m, argv[1], &f);
    struct session *s = start(m, wide ? F32 : BF16, nvme ? OFFLOAD_NVME : OFFLOAD_NONE, &planned);
    must(session_load(s, argv[1]));
    getrusage(RUSAGE_SELF, &u);
    const int64_t peak = (int64_t)u.ru_maxrss * 1024;
    const int within = peak <= planned + BESIDE;
    printf(
        "{\"planned_bytes\": %lld, \"peak_bytes\": %lld, \"beside\": %lld, \"most_beside\": %lld, \"within\": %s, \"threads\": %d}\n",
        (long long)planned, (long long)peak, (long long)(peak - planned), (long long)BESIDE, within ? "true" : "false",
        omp_get_max_threads());
    measure(s, argv[1], f, bytes, wide, rounds);
    for (int i = 0; i < st_files(f); i++)
        unlink(st_file_path(f, i));
    st_close(f);
    session_destroy(s);
    model_destroy(m);
    return within ? 0 : 1;
}
