/* Thread placement by hwloc. */
#include "offload/places.h"

#include "build_config.h"

#include <stdio.h>

#ifdef HAVE_HWLOC
#include <hwloc.h>
#include <pthread.h>

static struct {
    hwloc_topology_t topology; /* NULL: hwloc does not work here */
    hwloc_cpuset_t cores[2];   /* by place_kind */
    int nodes;
} places;

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

void places_describe(char *text, int size)
{
    char compute[128] = "?", transfer[128] = "?";
    if (!ready()) {
        snprintf(text, (size_t)size, "hwloc does not know this machine; threads are not bound");
        return;
    }
    hwloc_bitmap_list_snprintf(compute, sizeof compute, places.cores[PLACE_COMPUTE]);
    hwloc_bitmap_list_snprintf(transfer, sizeof transfer, places.cores[PLACE_TRANSFER]);
    snprintf(text, (size_t)size,
             "%d packages, %d NUMA nodes, %d cores; compute and host lanes on cpus %s, copy and I/O lanes on cpus %s%s",
             hwloc_get_nbobjs_by_type(places.topology, HWLOC_OBJ_PACKAGE), places.nodes,
             hwloc_get_nbobjs_by_type(places.topology, HWLOC_OBJ_CORE), compute, transfer,
             places.nodes > 1 ? "" : " (one NUMA node: not bound)");
}

#else

void places_bind(enum place_kind kind)
{
    (void)kind;
}

void places_describe(char *text, int size)
{
    snprintf(text, (size_t)size, "built without hwloc; threads are not bound");
}

#endif
