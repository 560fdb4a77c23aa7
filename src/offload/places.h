/* Where threads run: hwloc's view of this process's cores, and which of them each kind of lane gets. */
#ifndef LTRAIN_OFFLOAD_PLACES_H
#define LTRAIN_OFFLOAD_PLACES_H

enum place_kind {
    PLACE_COMPUTE, /* compute and host lanes: every core of the process */
    PLACE_TRANSFER /* copy and I/O lanes: the cores of the NUMA node that holds the host arena */
};

/* Binds the calling thread. Best effort: without hwloc, or with one NUMA node, threads stay where the system puts them. */
void places_bind(enum place_kind kind);
/* One line for people: packages, NUMA nodes, cores, and the cores of each kind. */
void places_describe(char *text, int size);

#endif
