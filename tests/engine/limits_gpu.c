/* Measures this machine's GPU through the plugin's own calls: `engine_limits_gpu`, for tools/gpu-check.sh.
 *
 * Measures the memory taken by opening the GPU and by NCCL, the speed of pinning and copying host memory, and the submitting
 * thread's time for calls. Starts NCCL on a rank alone, gathers and aborts it. Writes the figures as JSON to $OUT/alone.json.
 * Exit status 77: no GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/num.h"
#include "device/plugin.h"
#include "engine/backend_cpu.h"
#include "engine/cuda_target.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CALLS = 64 /* below BACKEND_EVENTS */, RUNS = 5 };
#define MIB ((int64_t)1 << 20)

static const struct device_plugin *plugin;
static struct device_facts facts;
static struct target target;
static struct backend *b;
static int64_t pinned, arena, free_before;
static char *host;
static FILE *json;

static void must(enum status st)
{
    if (backend_status(b, st) != OK)
        fail_msg("%s", status_message());
}

static void figure(const char *name, double value, const char *unit)
{
    print_message("%-44s %10.4g %s\n", name, value, unit);
    if (json)
        fprintf(json, "%s\n\"%s, %s\": %.6g", ftell(json) > 1 ? "," : "", name, unit, value);
}

static int64_t free_now(void)
{
    int64_t n;
    must(b->free_bytes(b, &n));
    return n;
}

static void memory(void **state)
{
    (void)state;
    figure("memory that is not free beside the context", (double)(facts.memory - free_before) / (double)MIB, "MiB");
    figure("opening: cuBLASLt, streams, events", (double)(free_before - free_now()) / (double)MIB, "MiB");
    must(b->allocate(b, arena));
    figure("beside the arena", (double)(free_before - free_now() - arena) / (double)MIB, "MiB");
    must(b->check(b));
}

static void pinning(void **state)
{
    (void)state;
    host = mmap(NULL, (size_t)pinned, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(host != MAP_FAILED);
    const double began = clock_seconds();
    must(b->pin(b, host, pinned));
    figure("host memory pinned, and touched first", (double)pinned / 1e9 / (clock_seconds() - began), "GB/s");
}

static double seconds_of(enum lane lane, int64_t bytes)
{
    double best = 1e9, took;
    for (int i = 0; i < RUNS; i++) {
        must(b->record(b, LANE_COMPUTE, BACKEND_BEGAN));
        must(b->wait(b, LANE_COMPUTE, BACKEND_BEGAN));
        must(b->copy(b, lane, lane == LANE_H2D ? b->base : host, lane == LANE_H2D ? host : b->base, bytes));
        must(b->record(b, lane, 0));
        must(b->wait(b, lane, 0));
        must(b->elapsed(b, lane, 0, &took));
        best = took < best ? took : best;
    }
    return best > 1e-9 ? best : 1e-9;
}

/* Checks that copied bytes come back unchanged, also across memory registered in pieces. */
static void copies(void **state)
{
    (void)state;
    const int64_t most = min_i64(arena, pinned / 4),
                  edge = facts.capability > 0 && pinned > 5120 * MIB ? 4096 * MIB - most / 2 : 0;
    for (int64_t i = 0; i < most; i += 997)
        host[edge + i] = (char)(i / 997);
    must(b->copy(b, LANE_H2D, b->base, host + edge, most));
    must(b->join(b));
    char *const back = host + pinned - most;
    must(b->copy(b, LANE_D2H, back, b->base, most));
    must(b->join(b));
    assert_memory_equal(host + edge, back, (size_t)most);
    for (int64_t n = 64 << 10; n <= most; n *= 16) {
        char name[48];
        snprintf(name, sizeof name, "to the device, %lld KiB", (long long)(n >> 10));
        figure(name, (double)n / 1e9 / seconds_of(LANE_H2D, n), "GB/s");
        snprintf(name, sizeof name, "to the host, %lld KiB", (long long)(n >> 10));
        figure(name, (double)n / 1e9 / seconds_of(LANE_D2H, n), "GB/s");
    }
}

enum call { LAUNCH, RECORD, RECORD_QUIETLY, AWAIT, BLOCK };

static void make(enum call which, const struct op_attrs *a, void *const *arg, int i)
{
    switch (which) {
    case LAUNCH:
        must(b->kernels[OP_ACCUM](a, arg, b->stream[LANE_COMPUTE]));
        break;
    case RECORD:
        must(b->record(b, LANE_COMPUTE, i));
        break;
    case RECORD_QUIETLY:
        must(b->record_quietly(b, LANE_COMPUTE, i));
        break;
    case AWAIT:
        must(b->await(b, LANE_H2D, LANE_COMPUTE, i));
        break;
    case BLOCK: /* a kernel, an event and a wait for it */
        must(b->kernels[OP_ACCUM](a, arg, b->stream[LANE_COMPUTE]));
        must(b->record(b, LANE_COMPUTE, i));
        must(b->wait(b, LANE_COMPUTE, i));
        break;
    }
}

static void calls(void **state)
{
    (void)state;
    static const char *const names[] = {"a launch", "an event", "one that only streams wait for", "an await",
                                        "a launch, an event and a blocked wait"};
    const struct op_attrs a = {.vec = {.n = 4096}};
    void *arg[OP_MAX_ARGS] = {b->base, b->base + 16384};
    must(b->fill(b, b->base, 0, 32768));
    must(b->prepare(b, OP_ACCUM, &a, arg));
    for (int k = LAUNCH; k <= BLOCK; k++) {
        double best = 1e9;
        for (int r = 0; r < RUNS; r++) {
            const double began = clock_seconds();
            for (int i = 0; i < CALLS; i++)
                make((enum call)k, &a, arg, i);
            best = clock_seconds() - began < best ? clock_seconds() - began : best;
            must(b->join(b));
        }
        figure(names[k], best / CALLS * 1e6, "us");
    }
}

/* Makes all NCCL calls that a rank makes except messages to other ranks, which need a second GPU. */
static void nccl_alone(void **state)
{
    (void)state;
    enum { N = 1 << 16, WAIT = 60 /* seconds */ };
    char name[BACKEND_CARRIER], id[BACKEND_IDENTITY];
    static unsigned char sent[N], come[N];
    struct mesh_group group[LANES] = {{0}};
    const struct op_attrs a = {.comm = {.n = N, .share = N, .element = 1, .type = BF16}};
    void *arg[OP_MAX_ARGS] = {b->base, b->base + 2 * N};
    int joined = 0;
    if (backend_status(b, b->carrier(b, name)) != OK) {
        print_message("NCCL is not tried: %s\n", status_message());
        skip();
    }
    print_message("%s\n", name);
    for (int l = LANE_WORLD; l < LANES; l++)
        group[l] = (struct mesh_group){.members = 1, .stride = 1};
    const int64_t before = free_now();
    double began = clock_seconds();
    must(b->identity(b, id));
    must(b->meet(b, id, 0, 1, group));
    while (!joined && clock_seconds() < began + WAIT) {
        must(b->health(b, &joined));
        clock_sleep_ns(1000000);
    }
    assert_true(joined);
    figure("NCCL: start", clock_seconds() - began, "s");
    figure("NCCL: memory of a rank alone", (double)(before - free_now()) / (double)MIB, "MiB");
    for (int i = 0; i < N; i++)
        sent[i] = (unsigned char)(i * 7 % 251);
    must(b->write(b, arg[0], sent, N));
    must(b->collective(b, LANE_WORLD, OP_ALL_GATHER, &a, arg, 1, 1));
    must(b->join(b));
    must(b->read(b, come, arg[1], N));
    assert_memory_equal(sent, come, N);
    must(b->health(b, &joined));
    must(b->collective(b, LANE_WORLD, OP_ALL_GATHER, &a, arg, 1, 1));
    began = clock_seconds();
    b->abort(b);
    figure("NCCL: abort", clock_seconds() - began, "s");
    must(b->join(b)); /* waits until the streams drain */
    assert_int_not_equal(backend_status(b, b->collective(b, LANE_WORLD, OP_ALL_GATHER, &a, arg, 1, 1)), OK);
    assert_non_null(strstr(status_message(), "the communicator has been aborted"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(memory), cmocka_unit_test(pinning), cmocka_unit_test(copies),
                                       cmocka_unit_test(calls), cmocka_unit_test(nccl_alone)};
    char path[4200];
    int n;
    if (!device_plugin_expected() || device_plugin_load(&plugin) != OK) {
        printf("skipped: no GPU: %s\n", status_message());
        return 77;
    }
    if (plugin->count(&n) != OK || plugin->describe(0, &facts) != OK)
        goto refused;
    target = facts.capability > 0 ? cuda_target(facts.capability, facts.processors, 1) : backend_cpu_target(1);
    arena = facts.capability > 0 ? 1024 * MIB : 4 * MIB;
    const int64_t there = sysconf(_SC_AVPHYS_PAGES) * sysconf(_SC_PAGESIZE);
    /* pinned in pieces of 4 GiB, or of 64 KiB on the fake GPU */
    pinned = facts.capability > 0 ? min_i64(16384 * MIB, there / 4 / MIB * MIB) : 12 * MIB;
    free_before = facts.free;
    if (plugin->open(0, &target, &b) != OK)
        goto refused;
    if (getenv("OUT")) {
        snprintf(path, sizeof path, "%s/alone.json", getenv("OUT"));
        json = fopen(path, "we");
        if (json)
            fprintf(json, "{");
    }
    n = cmocka_run_group_tests(tests, NULL, NULL);
    if (json) {
        fprintf(json, "\n}\n");
        fclose(json);
    }
    b->close(b);
    return n;
refused:
    printf("%s\n", plugin->sentence());
    return 1;
}
