/* Earlier accesses of bytes, by segments of equal accesses. Private to hazards.c and waits.c. */
#ifndef LTRAIN_PLAN_SCHEDULE_HAZARDS_SCAN_H
#define LTRAIN_PLAN_SCHEDULE_HAZARDS_SCAN_H

#include "program/program.h"

enum hazard_space {
    HAZARD_BUFFERS,  /* before packing: addresses do not exist yet, and every buffer has bytes of its own */
    HAZARD_ADDRESSES /* after packing */
};

/* An access. HAZARD_BUFFERS: the instruction; HAZARD_ADDRESSES: the ticket, times 16, and the lane. */
struct reader {
    int access, next;
};

struct segment {
    int64_t lo, hi;     /* bytes of the buffer, or addresses */
    int writer;         /* last writing access; -1: none */
    int readers;        /* head of the list of reads since that write; -1: none; in an arena only the latest read of each lane */
    int next, previous; /* neighbours in the list, ascending by address */
};

/* A read of many segments of a buffer: the range of its bytes that nothing has written since. */
struct wide_read {
    int64_t lo, hi;
    int access, next;
};

/* A scan of accesses. The segments of one list cover, without gaps, a buffer that has been accessed or a tier's arena. */
struct scan {
    const struct program *p;
    enum hazard_space space;
    /* HAZARD_BUFFERS: index of each buffer's first segment; -1: none. HAZARD_ADDRESSES: index of the segment at the start of each
     * stretch of 2^shift bytes. */
    int *at;
    /* for each list or stretch, the first segment of the last access that began there, since accesses mostly ascend; -1: none */
    int *cursor;
    int first_stretch[TIERS + 1], shift[TIERS]; /* HAZARD_ADDRESSES; first_stretch[TIERS]: number of all stretches */
    struct segment *segment;
    int n_segment, cap_segment, spare; /* spare: list of unused segments */
    struct reader *reader;
    int n_reader, cap_reader, spare_reader;
    int *wide; /* HAZARD_BUFFERS: each buffer's last wide read; -1: none */
    struct wide_read *wide_read;
    int n_wide, cap_wide, spare_wide;
    int *last; /* HAZARD_BUFFERS: each buffer's last instruction, after which its segments are spare */
    int *seen; /* HAZARD_BUFFERS: seen[d] == i: d is already a dependency of i */
    int *dep;  /* HAZARD_BUFFERS: dependencies of all instructions so far, in the order of instructions */
    int n_dep, cap_dep;
    int32_t want[LANES]; /* HAZARD_ADDRESSES: the latest ticket of each lane on which the last instruction depends */
};

/* Prepares a scan before the first instruction. HAZARD_ADDRESSES needs tickets (program_number). ERR_NOMEM. The caller calls
 * scan_free also after an error; it does not free dep. */
enum status scan_prepare(struct scan *s, const struct program *p, enum hazard_space space);
void scan_free(struct scan *s);
/* Scans instruction i, the one after the last that was scanned: read-after-write, write-after-read and write-after-write. Returns
 * 0 if memory is short. */
int scan_instr(struct scan *s, int i);

#endif
