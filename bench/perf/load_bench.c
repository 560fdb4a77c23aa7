/* load_bench DIR [ROUNDS]: 2.4 GB of sharded bf16 weights (the 1b preset's) into a session, beside a plain reader that fills
 * memory of the same size, touched beforehand. A line of JSON a round. DIR is made, and its files removed. */
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
#include <time.h>
#include <unistd.h>

enum { PIECE = 8 << 20 };

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

/* The files one after another, into one buffer from its beginning on. Returns their bytes. */
static int64_t read_plainly(const struct st_file *f, char *to)
{
    int64_t at = 0;
    for (int i = 0; i < st_files(f); i++) {
        int fd = open(st_file_path(f, i), O_RDONLY | O_CLOEXEC);
        ssize_t got;
        while (fd >= 0 && (got = read(fd, to + at, PIECE)) > 0)
            at += got;
        if (fd < 0 || close(fd) != 0)
            exit(1);
    }
    return at;
}

/* Frozen but for the last norm, so that weights alone are loaded: no masters, no moments. */
static struct session *start(struct model **m, int64_t *planned)
{
    static const char *const freeze[] = {"model.layers.*", "model.embed_tokens.*"};
    static struct settings s;
    static struct target target;
    struct model_config config;
    struct plan *plan;
    struct session *session;
    const char *scratch = "/tmp";
    int64_t limit[TIERS] = {(int64_t)1 << 40, (int64_t)1 << 40, (int64_t)1 << 40};
    must(model_preset("1b", &config));
    must(model_create(&config, freeze, 2, m));
    must(settings_defaults(&s, 256));
    target = backend_cpu_target(omp_get_max_threads());
    s.plan.target = &target;
    s.plan.params = s.plan.grads = s.plan.optim = s.plan.acts = OFFLOAD_NONE;
    s.plan.device = DEVICE_CPU;
    s.plan.dtype = BF16;
    s.plan.zero = 0;
    must(plan_create(*m, &s.plan, limit, &plan));
    *planned = plan->arena[TIER_DEVICE] + plan->arena[TIER_HOST];
    must(session_create(*m, &plan, 1, &s, NULL, &scratch, 1, &session));
    return session;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: load_bench DIR [ROUNDS]\n");
        return 2;
    }
    struct model *m;
    struct st_file *f;
    struct rusage u;
    int64_t planned, bytes = 0;
    struct session *s = start(&m, &planned);
    must(session_initialise(s, 1));
    must(checkpoint_export(s, argv[1], NULL, 500000000));
    must(session_load(s, argv[1])); /* the page cache has the files, and memory is touched */
    getrusage(RUSAGE_SELF, &u);
    printf("{\"planned_bytes\": %lld, \"peak_bytes\": %lld}\n", (long long)planned, (long long)u.ru_maxrss * 1024);
    must(st_open(argv[1], &f));
    for (int i = 0; i < st_files(f); i++) {
        struct stat x;
        bytes += stat(st_file_path(f, i), &x) == 0 ? (int64_t)x.st_size : 0;
    }
    char *buffer = malloc((size_t)bytes + PIECE);
    if (!buffer)
        return 1;
    memset(buffer, 1, (size_t)bytes + PIECE);
    for (int round = 0; round < (argc > 2 ? atoi(argv[2]) : 5); round++) {
        struct timing begin = now();
        if (read_plainly(f, buffer) != bytes)
            return 1;
        struct timing plain = since(begin);
        begin = now();
        must(session_load(s, argv[1]));
        struct timing load = since(begin);
        printf(
            "{\"files\": %d, \"bytes\": %lld, \"plain_gbps\": %.3f, \"load_gbps\": %.3f, \"ratio\": %.3f, \"plain_cpu_s\": %.3f, "
            "\"load_cpu_s\": %.3f}\n",
            st_files(f), (long long)bytes, 1e-9 * (double)bytes / plain.wall, 1e-9 * (double)bytes / load.wall,
            plain.wall / load.wall, plain.cpu, load.cpu);
        fflush(stdout);
    }
    for (int i = 0; i < st_files(f); i++)
        unlink(st_file_path(f, i));
    st_close(f);
    session_destroy(s);
    model_destroy(m);
    free(buffer);
    return 0;
}
