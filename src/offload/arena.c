/* Arenas: mapped, placed, touched and pinned before the first step. */
#include "offload/arena.h"

#include "base/num.h"
#include "base/sys.h"
#include "base/units.h"
#include "build_config.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#ifdef HAVE_HWLOC
#include <hwloc.h>
#endif

#define PAGE 4096
#define HUGE_PAGE (2 << 20)
#define CANARY 0xA5
#define MAX_TOUCHERS 16
#define TOUCH_SHARE (64LL << 20) /* bytes that get a touching thread of their own */

/* Layout of the map: slack | guard page | canary page | base: bytes | canary to the end of the page and one page more | guard
 * page. Stray accesses within a page of the ends change a canary, further ones fault. */
struct arena {
    char *map, *base;
    size_t map_bytes;
    int64_t bytes;
    size_t tail; /* canary bytes behind the data */
    char name[64], describe[192];
};

struct share {
    char *from;
    size_t bytes;
    int error;
    pthread_t thread;
};

static void *touch(void *arg)
{
    struct share *s = arg;
    /* One system call faults the whole range in, and reports a lack of memory instead of dying of it. */
#ifdef MADV_POPULATE_WRITE
    if (madvise(s->from, s->bytes, MADV_POPULATE_WRITE) == 0)
        return NULL;
    s->error = errno == EINVAL ? 0 : errno;
    if (s->error)
        return NULL;
#endif
    for (size_t i = 0; i < s->bytes; i += PAGE)
        ((volatile char *)s->from)[i] = 0;
    return NULL;
}

/* Touches all pages, with every core of this rank: first touch costs 2.7 to 3.7 s per GiB on a fresh virtual machine, 0.13 s per
 * GiB later. */
static int touch_all(char *from, size_t bytes)
{
    struct share share[MAX_TOUCHERS];
    cpu_set_t cpus;
    int64_t n = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
    n = max_i64(1, min_i64(min_i64(n, MAX_TOUCHERS), (int64_t)bytes / TOUCH_SHARE));
    size_t each = (size_t)round_up(ceil_div((int64_t)bytes, n), HUGE_PAGE);
    int error = 0, started[MAX_TOUCHERS] = {0};
    for (int i = 0; i < n; i++) {
        size_t begin = each * (size_t)i < bytes ? each * (size_t)i : bytes;
        share[i] = (struct share){.from = from + begin, .bytes = each < bytes - begin ? each : bytes - begin};
        started[i] = i > 0 && sys_thread(&share[i].thread, touch, &share[i]) == 0;
    }
    for (int i = 0; i < n; i++) {
        if (!started[i])
            touch(&share[i]);
    }
    for (int i = 0; i < n; i++) {
        if (started[i])
            pthread_join(share[i].thread, NULL);
        error = error ? error : share[i].error;
    }
    return error;
}

/* Binds the pages to the NUMA nodes of the calling thread's cores, and says where. Does nothing with one node or no binding. */
static void place(char *from, size_t bytes, char *said, size_t said_size)
{
    said[0] = 0;
#ifdef HAVE_HWLOC
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0)
        return;
    hwloc_bitmap_t cpus = hwloc_bitmap_alloc(), nodes = hwloc_bitmap_alloc();
    if (cpus && nodes && hwloc_topology_load(topology) == 0 && hwloc_get_cpubind(topology, cpus, HWLOC_CPUBIND_THREAD) == 0) {
        hwloc_cpuset_to_nodeset(topology, cpus, nodes);
        if (hwloc_bitmap_isequal(nodes, hwloc_topology_get_topology_nodeset(topology)) == 0) {
            int r = hwloc_set_area_membind(topology, from, bytes, nodes, HWLOC_MEMBIND_BIND, HWLOC_MEMBIND_BYNODESET);
            char list[32];
            hwloc_bitmap_list_snprintf(list, sizeof list, nodes);
            snprintf(said, said_size, r == 0 ? ", on NUMA node %s" : ", not bound to NUMA node %s", list);
        }
    }
    hwloc_bitmap_free(cpus);
    hwloc_bitmap_free(nodes);
    hwloc_topology_destroy(topology);
#else
    (void)from, (void)bytes, (void)said_size;
#endif
}

static void pin(const struct arena *a, char *said, size_t said_size)
{
    struct rlimit limit;
    char buf[32];
    if (sys_mlock(a->base, (size_t)a->bytes) == 0) {
        snprintf(said, said_size, ", pinned");
        return;
    }
    int error = errno;
    if ((error == ENOMEM || error == EPERM || error == EAGAIN) && getrlimit(RLIMIT_MEMLOCK, &limit) == 0 &&
        limit.rlim_cur < (rlim_t)a->bytes)
        snprintf(said, said_size, ", not pinned: memlock limit is %s (ulimit -l)",
                 units_format_bytes((int64_t)limit.rlim_cur, buf));
    else
        snprintf(said, said_size, ", not pinned: %s", strerror(error));
}

enum status arena_create(const char *name, int64_t bytes, enum arena_kind kind, struct arena **out)
{
    enum status st;
    char size[32], placed[48] = "", pinned[96] = "";
    if (bytes < 0 || bytes > INT64_MAX / 2)
        return status_fail(ERR_INVALID, "%s: %lld bytes is no size", name, (long long)bytes);
    units_format_bytes(bytes, size);
    struct arena *a = sys_calloc(1, sizeof *a);
    if (!a)
        return status_fail(ERR_NOMEM, "%s: no memory for its description", name);
    snprintf(a->name, sizeof a->name, "%s", name);
    a->bytes = bytes;
    int64_t body = round_up(bytes, PAGE), alignment = bytes >= HUGE_PAGE ? HUGE_PAGE : PAGE;
    a->map_bytes = (size_t)(2 * PAGE + alignment + body + 2 * PAGE);
    a->map = sys_mmap(a->map_bytes, MAP_NORESERVE);
    if (!a->map) {
        st =
            status_fail(ERR_NOMEM, "%s: cannot map %s (%s): give it less memory or raise ulimit -v", name, size, strerror(errno));
        goto destroy;
    }
    a->base = (char *)(uintptr_t)round_up((int64_t)(uintptr_t)a->map + 2 * PAGE, alignment);
    a->tail = (size_t)(body - bytes) + PAGE;
    mprotect(a->base - 2 * PAGE, PAGE, PROT_NONE); /* if the guard cannot be set up, the canaries remain */
    mprotect(a->base + body + PAGE, PAGE, PROT_NONE);
    if (bytes > 0) {
        madvise(a->base, (size_t)body, MADV_HUGEPAGE);
        if (kind != ARENA_PLAIN)
            place(a->base, (size_t)body, placed, sizeof placed);
        int error = touch_all(a->base, (size_t)body);
        if (error) {
            st = status_fail(ERR_NOMEM, "%s: the machine cannot back %s with memory (%s): give it less memory", name, size,
                             strerror(error));
            goto destroy;
        }
        if (kind == ARENA_PINNED)
            pin(a, pinned, sizeof pinned);
    }
    memset(a->base - PAGE, CANARY, PAGE);
    memset(a->base + bytes, CANARY, a->tail);
    snprintf(a->describe, sizeof a->describe, "%s%s%s", size, pinned, placed);
    *out = a;
    return OK;
destroy:
    arena_destroy(a);
    return st;
}

void arena_destroy(struct arena *a)
{
    if (!a)
        return;
    if (a->map)
        munmap(a->map, a->map_bytes);
    free(a);
}

void *arena_base(const struct arena *a)
{
    return a->base;
}

int64_t arena_bytes(const struct arena *a)
{
    return a->bytes;
}

const char *arena_describe(const struct arena *a)
{
    return a->describe;
}

enum status arena_check(const struct arena *a)
{
    const unsigned char *before = (unsigned char *)a->base - PAGE, *behind = (unsigned char *)a->base + a->bytes;
    for (int i = PAGE - 1; i >= 0; i--) /* searches from the base outwards, so that the nearest changed byte is found first */
        if (before[i] != CANARY)
            return status_fail(ERR_CORRUPT, "%s: something wrote %d bytes before its start", a->name, PAGE - i);
    for (size_t i = 0; i < a->tail; i++)
        if (behind[i] != CANARY)
            return status_fail(ERR_CORRUPT, "%s: something wrote %zu bytes behind its end (%lld bytes)", a->name, i,
                               (long long)a->bytes);
    return OK;
}
