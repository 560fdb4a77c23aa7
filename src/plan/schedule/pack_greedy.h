/* Greedy packing: one buffer after the other, into the lowest or the tightest gap among its contemporaries. Private to pack.c. */
#ifndef LTRAIN_PLAN_SCHEDULE_PACK_GREEDY_H
#define LTRAIN_PLAN_SCHEDULE_PACK_GREEDY_H

#include "program/program.h"

/* A buffer that has its place. */
struct placed {
    int64_t lo, hi;
    double t0, t1;
};

/* The transient buffers of one tier that are used, and what placing them needs. */
struct packer {
    struct program *p;
    int *order; /* indices of the buffers */
    int n;
    struct placed *placed;    /* placed[i]: the place of order[i] */
    struct span *near;        /* places of the contemporaries of the buffer being placed */
    int *seen;                /* seen[i] == j: placed[i] is in near for j */
    int *sorted;              /* indices in placed, by address */
    struct time_index *index; /* of placed */
    struct few *few;          /* takes the index's place; or NULL */
};

#define PACKER_FEW 1500 /* whose moments are 16-bit numbers */

enum packing_order { BY_SIZE, BY_AREA, BY_TIME };

/* Takes the buffers of the tier with lifetimes, in the program's order; a buffer that is never used gets address 0. ERR_NOMEM.
 * The caller frees *out with packer_free, also after an error. */
enum status packer_create(struct program *p, enum tier tier, struct packer *out);
void packer_free(struct packer *k);
/* Of at most PACKER_FEW buffers, in the order in which packer_create left them: they are placed faster then. moment: pack_moments().
 * ERR_NOMEM. */
enum status packer_prepare_few(struct packer *k, const int *moment);

/* Sorts k->order: the largest size, or size times lifetime, or the first to begin comes first. */
void packer_sort(struct packer *k, enum packing_order by);
/* Fills k->placed in the order k->order, from base upwards, until one ends at `most` or above. Returns the end of the highest; -1:
 * out of memory. */
int64_t packer_place(struct packer *k, int64_t base, int best_fit, int64_t most);

#endif
