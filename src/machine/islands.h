/* Machines of unlike parts: islands of equal nodes, and what links nodes of different ones.
 *
 * Stages of layers never straddle islands: stages and ranks are numbered island by island. */
#ifndef LTRAIN_MACHINE_ISLANDS_H
#define LTRAIN_MACHINE_ISLANDS_H

#include "machine/hardware.h"

enum { MACHINE_MOST_ISLANDS = 8 };
struct islands {
    int n;
    double bytes, seconds; /* between nodes of different islands: rate of a node and direction, latency */
    int nodes[MACHINE_MOST_ISLANDS];
    /* An island's devices, hosts and links. Its `nodes` are enough so that all ranks of the machine find room: costs of messages among all
     * ranks follow from them. */
    struct hardware of[MACHINE_MOST_ISLANDS];
};

/* Reads the machine of a file: fields of hardware or a list of islands and what is between them, into *islands; *out is then what
 * islands_mix makes, and borrows them. islands: zeros; NULL: islands are refused. ERR_INVALID names file, line and key. */
enum status machine_read(const char *path, FILE *f, struct hardware *out, struct islands *islands);

/* Returns the number of devices, of one island and of all. */
int islands_devices(const struct islands *x, int island);
int islands_all_devices(const struct islands *x);
/* Tells whether every island has whole stages, if ranks are divided into that number. */
int islands_fit(const struct islands *x, int stages);
/* Returns the least number of stages, not below `least`, of which every island has whole ones; 0: there is none. */
int islands_stages(const struct islands *x, int least);
/* Returns the island of a stage. */
int islands_of_stage(const struct islands *x, int stage, int stages);
/* Returns an island as a machine of its own, with its own nodes. */
struct hardware islands_alone(const struct islands *x, int island);
/* Makes a machine that has in all places what the poorest island has: the least memory and drives, the least capability, and the rates of
 * the slowest. */
void islands_mix(const struct islands *x, struct hardware *out);
/* Sets the nodes of every island's hardware. Called once nodes and devices are known. */
void islands_number(struct islands *x);

#endif
