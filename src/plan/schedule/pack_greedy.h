/* Greedy packing: one buffer after the other, into the lowest or the tightest gap among its contemporaries. Private to pack.c. */
#ifndef LTRAIN_PLAN_SCHEDULE_PACK_GREEDY_H
#define LTRAIN_PLAN_SCHEDULE_PACK_GREEDY_H

#include "program/program.h"

/* A placed buffer: its bytes [lo, hi) and its lifetime [t0, t1). */
struct placed {
    int64_t lo, hi;
    double t0, t1;
};

/* The transient buffers of one tier that are used, and scratch for placing them. */
struct packer {
    struct program *p;
    int *order; /* indices of the buffers */
    int n;
    struct placed *placed;    /* placed[i]: the place of order[i] */
    struct span *near;        /* places of the contemporaries of the buffer being placed */
    int *seen;                /* seen[i] == j: placed[i] is in near for j */
    int *sorted;              /* indices in placed, by address */
    struct time_index *index; /* placed buffers by time */
    struct few *few;          /* used instead of the index for few buffers; else NULL */
};

#define PACKER_FEW 1500 /* limit of few buffers; their moments are 16-bit numbers */

enum packing_order { BY_SIZE, BY_AREA, BY_TIME };

/* Takes the buffers of the tier with lifetimes, in the program's order; a buffer that is never used gets address 0. ERR_NOMEM.
 * The caller frees *out with packer_free, also after an error. */
enum status packer_create(struct program *p, enum tier tier, struct packer *out);
void packer_free(struct packer *k);
/* Prepares faster placing if there are at most PACKER_FEW buffers; they must be in the order in which packer_create left them.
 * moment: as from pack_moments. ERR_NOMEM. */
enum status packer_prepare_few(struct packer *k, const int *moment);

/* Sorts k->order: the largest buffers first, or those with the largest size times lifetime, or those that begin first. */
void packer_sort(struct packer *k, enum packing_order by);
/* Fills k->placed in the order k->order, from base upwards, until a buffer ends at `most` or above. Returns the end of the
 * highest; -1: out of memory. */
int64_t packer_place(struct packer *k, int64_t base, int best_fit, int64_t most);

#endif
