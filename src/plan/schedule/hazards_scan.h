/* Who accessed which bytes before. Private to hazards.c and waits.c. */
#ifndef LTRAIN_PLAN_SCHEDULE_HAZARDS_SCAN_H
#define LTRAIN_PLAN_SCHEDULE_HAZARDS_SCAN_H

#include "program/program.h"

enum hazard_space {
    HAZARD_BUFFERS,  /* before packing: every buffer has bytes of its own */
    HAZARD_ADDRESSES /* after packing */
};

/* An access: of buffers the instruction; of addresses the ticket, times 16, and the lane. */
struct reader {
    int access, next;
};

struct segment {
    int64_t lo, hi;     /* bytes of the buffer, or addresses */
    int writer;         /* last access, -1 none */
    int readers;        /* since then: head of a list of its own, -1 none; of an arena's, the latest of each lane */
    int next, previous; /* in its list, ascending */
};

/* A read of many segments of a buffer: the range of bytes that nothing has written since. */
struct wide_read {
    int64_t lo, hi;
    int access, next;
};

/* The segments of a list cover it without gaps: those of each buffer that has been accessed, or of each tier's arena. */
struct scan {
    const struct program *p;
    enum hazard_space space;
    int *at; /* HAZARD_BUFFERS: of each buffer the first segment, -1 none; HAZARD_ADDRESSES: of each stretch of 2^shift bytes the
              * segment that its first byte is in */
    int *cursor; /* of each of these the first segment of the last access that began there, -1 none: accesses mostly ascend */
    int first_stretch[TIERS + 1], shift[TIERS]; /* HAZARD_ADDRESSES; after the last tier's the number of all */
    struct segment *segment;
    int n_segment, cap_segment, spare; /* spare: list of unused ones */
    struct reader *reader;
    int n_reader, cap_reader, spare_reader;
    int *wide; /* HAZARD_BUFFERS: of each buffer the last wide read, -1 none */
    struct wide_read *wide_read;
    int n_wide, cap_wide, spare_wide;
    int *last; /* HAZARD_BUFFERS: instruction after which nothing touches the buffer, so that its segments are spare */
    int *seen; /* HAZARD_BUFFERS: seen[d] == i: already a dependency of i */
    int *dep;  /* HAZARD_BUFFERS: dependencies of all instructions so far, each instruction's one after the other */
    int n_dep, cap_dep;
    int32_t want[LANES]; /* HAZARD_ADDRESSES: the latest ticket of each lane on which the last instruction depends */
};

/* To be called before the first instruction. HAZARD_ADDRESSES needs tickets (program_number). ERR_NOMEM. The caller calls
 * scan_free also after an error; it does not free dep. */
enum status scan_prepare(struct scan *s, const struct program *p, enum hazard_space space);
void scan_free(struct scan *s);
/* Scans instruction i, the one after the last that was scanned: read-after-write, write-after-read and write-after-write.
 * 0: out of memory. */
int scan_instr(struct scan *s, int i);

#endif
