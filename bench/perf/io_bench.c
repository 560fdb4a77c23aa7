/* Worker of bench_io.py: `io_bench DIRECTORY BYTES BLOCK DEPTH EXTENT` opens an extent store. Each line of stdin, "read", "write"
 * or "both", moves BYTES in each named direction, in extents of EXTENT bytes, several of which are in flight as on an I/O lane. */
#include "base/clock.h"
#include "offload/arena.h"
#include "offload/store.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BUFFERS = 16 }; /* number of extents in flight in each direction */

static struct store *store;
static int64_t bytes, extent;
static char *memory; /* BUFFERS extents for each direction */

static void must(enum status st)
{
    if (st == OK)
        return;
    fprintf(stderr, "io_bench: %s\n", status_message());
    exit(1);
}

/* Moves `bytes` in one direction: reads use the first half of the store, writes the second. */
static void *move(void *direction)
{
    enum store_direction d = direction ? STORE_WRITE : STORE_READ;
    char *buffers = memory + (d == STORE_WRITE ? BUFFERS * extent : 0);
    uint64_t ticket[BUFFERS] = {0};
    int64_t n = bytes / extent;
    for (int64_t i = 0; i < n; i++) {
        int k = (int)(i % BUFFERS);
        if (i >= BUFFERS)
            must(store_wait(store, d, ticket[k]));
        must(store_submit(store, d, (d == STORE_WRITE ? bytes : 0) + i * extent, buffers + k * extent, extent, &ticket[k]));
    }
    must(store_wait(store, d, ticket[(n - 1) % BUFFERS]));
    return NULL;
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void run(const char *what)
{
    pthread_t writer;
    int both = strcmp(what, "both") == 0;
    if (both && pthread_create(&writer, NULL, move, store) != 0)
        exit(1);
    move(strcmp(what, "write") == 0 ? store : NULL);
    if (both)
        pthread_join(writer, NULL);
}

int main(int argc, char **argv)
{
    char line[64];
    struct arena *arena;
    if (argc != 6)
        return 2;
    bytes = atoll(argv[2]);
    extent = atoll(argv[5]);
    must(arena_create("host arena", 2 * BUFFERS * extent, ARENA_PINNED, &arena));
    memory = arena_base(arena);
    memset(memory, 7, (size_t)(2 * BUFFERS * extent));
    struct store_config c = {.paths = {argv[1]},
                             .n_paths = 1,
                             .bytes = 2 * bytes,
                             .block = atoll(argv[3]),
                             .depth = atoi(argv[4]),
                             .pinned = memory,
                             .pinned_bytes = 2 * BUFFERS * extent};
    must(store_open(&c, &store));
    fprintf(stderr, "%s\n", store_describe(store));
    for (int64_t at = 0; at < bytes; at += extent)
        must(store_write(store, at, memory, extent));
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        int64_t t = clock_ns();
        double cpu = cpu_seconds();
        run(line);
        printf("{\"seconds\": %.9f, \"cpu\": %.6f}\n", (double)(clock_ns() - t) * 1e-9, cpu_seconds() - cpu);
        fflush(stdout);
    }
    store_close(store);
    arena_destroy(arena);
    return 0;
}
