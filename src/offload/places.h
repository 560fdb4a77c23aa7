/* Where threads run: hwloc's view of this process's cores, and which of them each kind of lane gets. */
#ifndef LTRAIN_OFFLOAD_PLACES_H
#define LTRAIN_OFFLOAD_PLACES_H

enum place_kind {
    PLACE_COMPUTE, /* compute and host lanes: every core of the process */
    PLACE_TRANSFER /* copy and I/O lanes: the cores of the NUMA node that holds the host arena */
};

/* Binds the calling thread. Best effort: without hwloc, or with one NUMA node, threads stay where the system puts them. */
void places_bind(enum place_kind kind);
/* The host memory of this process belongs on that NUMA node, which is nearest to its GPU: from now on both kinds are the node's cores,
 * and the calling thread is bound to them, so that threads that it starts and arenas that it makes are there. Does nothing with
 * one node, or a number that is none's; nor where the process may not run on the node's cores, which places_remark then says. */
void places_choose_node(int node);
/* A sentence for people, "" if there is nothing to say: what places_choose_node could not do, or that the launcher has bound the
 * ranks of this host to less than half of what they could have, as Open MPI does with two of them: to a core each. */
const char *places_remark(int ranks);
/* One line for people: packages, NUMA nodes, cores, and the cores of each kind. */
void places_describe(char *text, int size);

#endif
