/* The cores of threads: hwloc's view of this process's cores, and the share of each kind of lane. */
#ifndef LTRAIN_OFFLOAD_PLACES_H
#define LTRAIN_OFFLOAD_PLACES_H

enum place_kind {
    PLACE_COMPUTE, /* compute and host lanes: every core of the process */
    PLACE_TRANSFER /* copy and I/O lanes: the cores of the NUMA node that holds the host arena */
};

/* Binds the calling thread, as far as possible: without hwloc, or with one NUMA node, threads stay where the system puts them. */
void places_bind(enum place_kind kind);
/* Chooses the NUMA node nearest to the process's GPU for its host memory: both kinds become this node's cores, and the calling
 * thread is bound to them. Threads that it starts and arenas that it makes are then there.
 *
 * Does nothing with one node or an unknown number. Does nothing either if the process may not run on the node's cores;
 * places_remark then says so. */
void places_choose_node(int node);
/* Returns a sentence about placement, "" if there is none. It reports a failure of places_choose_node, or a launcher that has
 * bound this host's ranks to less than half of their possible cores. (Open MPI binds two ranks to one core each.) */
const char *places_remark(int ranks);
/* Writes one line: packages, NUMA nodes, cores, and the cores of each kind. */
void places_describe(char *text, int size);

#endif
