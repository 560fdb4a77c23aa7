/* Thread placement by hwloc. */
#include "offload/places.h"

#include "build_config.h"

#include <stdio.h>

#ifdef HAVE_HWLOC
#include <hwloc.h>
#include <pthread.h>

static struct {
    hwloc_topology_t topology; /* NULL: hwloc does not work here */
    hwloc_cpuset_t cores[2];   /* cores of each place_kind */
    int nodes, bound, allowed; /* bound: CPUs on which this process was started; allowed: those on which it may run */
    char remark[256];
} places;

static void count_cpus(hwloc_topology_t t)
{
    hwloc_const_bitmap_t allowed = hwloc_topology_get_allowed_cpuset(t);
    hwloc_bitmap_t own = hwloc_bitmap_alloc();
    places.bound = places.allowed = hwloc_bitmap_weight(allowed);
    if (own && hwloc_get_cpubind(t, own, HWLOC_CPUBIND_PROCESS) == 0) {
        hwloc_bitmap_and(own, own, allowed);
        places.bound = hwloc_bitmap_weight(own);
    }
    hwloc_bitmap_free(own);
}

static void load(void)
{
    hwloc_topology_t t;
    if (hwloc_topology_init(&t) != 0)
        return;
    if (hwloc_topology_load(t) != 0) {
        hwloc_topology_destroy(t);
        return;
    }
    places.nodes = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_NUMANODE);
    places.cores[PLACE_COMPUTE] = hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(t));
    places.cores[PLACE_TRANSFER] = hwloc_bitmap_dup(places.cores[PLACE_COMPUTE]);
    hwloc_obj_t node = hwloc_get_obj_by_type(t, HWLOC_OBJ_NUMANODE, 0);
    if (places.nodes > 1 && node && places.cores[PLACE_TRANSFER])
        hwloc_bitmap_and(places.cores[PLACE_TRANSFER], places.cores[PLACE_TRANSFER], node->cpuset);
    count_cpus(t);
    places.topology = t;
}

static int ready(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    return places.topology && places.cores[PLACE_COMPUTE] && places.cores[PLACE_TRANSFER];
}

void places_bind(enum place_kind kind)
{
    if (ready() && places.nodes > 1 && !hwloc_bitmap_iszero(places.cores[kind]))
        (void)hwloc_set_cpubind(places.topology, places.cores[kind], HWLOC_CPUBIND_THREAD);
}

/* Returns the node's cores on which this process may run, owned by the caller; NULL: no such node, or no memory. */
static hwloc_bitmap_t own_cores_of(int node)
{
    hwloc_obj_t there = hwloc_get_numanode_obj_by_os_index(places.topology, (unsigned)node);
    hwloc_bitmap_t own = there ? hwloc_bitmap_alloc() : NULL;
    if (!own)
        return NULL;
    if (hwloc_get_cpubind(places.topology, own, HWLOC_CPUBIND_PROCESS) != 0)
        hwloc_bitmap_copy(own, places.cores[PLACE_COMPUTE]);
    hwloc_bitmap_and(own, own, there->cpuset);
    return own;
}

void places_choose_node(int node)
{
    if (!ready() || places.nodes < 2 || node < 0)
        return;
    hwloc_bitmap_t own = own_cores_of(node);
    if (own && hwloc_bitmap_iszero(own)) {
        snprintf(
            places.remark, sizeof places.remark,
            "this process may not run on NUMA node %d, which is the GPU's (the launcher's binding): its copies cross sockets",
            node);
    } else if (own) {
        hwloc_bitmap_copy(places.cores[PLACE_COMPUTE], own);
        hwloc_bitmap_copy(places.cores[PLACE_TRANSFER], own);
        places_bind(PLACE_COMPUTE);
    }
    hwloc_bitmap_free(own);
}

const char *places_remark(int ranks)
{
    if (ready() && !places.remark[0] && ranks > 1 && 2 * ranks * places.bound < places.allowed)
        snprintf(
            places.remark, sizeof places.remark,
            "%d ranks of this host may run on %d of its %d cpus each (the launcher's binding): start them with --bind-to none, or "
            "with Slurm --cpu-bind=none",
            ranks, places.bound, places.allowed);
    return places.remark;
}

void places_describe(char *text, int size)
{
    char compute[128] = "?", transfer[128] = "?";
    if (!ready()) {
        snprintf(text, (size_t)size, "hwloc does not know this machine; threads are not bound");
        return;
    }
    hwloc_bitmap_list_snprintf(compute, sizeof compute, places.cores[PLACE_COMPUTE]);
    hwloc_bitmap_list_snprintf(transfer, sizeof transfer, places.cores[PLACE_TRANSFER]);
    const int packages = hwloc_get_nbobjs_by_type(places.topology, HWLOC_OBJ_PACKAGE);
    snprintf(text, (size_t)size,
             "%d package%s, %d NUMA node%s, %d cores; compute and host lanes on cpus %s, copy and I/O lanes on cpus %s%s",
             packages, packages == 1 ? "" : "s", places.nodes, places.nodes == 1 ? "" : "s",
             hwloc_get_nbobjs_by_type(places.topology, HWLOC_OBJ_CORE), compute, transfer,
             places.nodes > 1 ? "" : " (one NUMA node: not bound)");
}

#else

void places_bind(enum place_kind kind)
{
    (void)kind;
}

void places_choose_node(int node)
{
    (void)node;
}

const char *places_remark(int ranks)
{
    (void)ranks;
    return "";
}

void places_describe(char *text, int size)
{
    snprintf(text, (size_t)size, "built without hwloc; threads are not bound");
}

#endif
