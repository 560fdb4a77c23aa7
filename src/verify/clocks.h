/* Happens-before as vector clocks: per lane, the highest ticket known to have retired.
 *
 * Invariants:
 * 1. What is known once an instruction has retired is closed: it covers what the instructions that it names waited for, and, as lanes retire in order, all
 *    their predecessors.
 * 2. An instruction of a pipelined lane knows its predecessor to have started, not to have retired. */
#ifndef LTRAIN_VERIFY_CLOCKS_H
#define LTRAIN_VERIFY_CLOCKS_H

#include "program/program.h"

struct clock {
    int32_t ticket[LANES];
};

struct clocks {
    const struct program *p;
    struct clock now;          /* known when the instruction last advanced to starts */
    struct clock *retired;     /* of each instruction that others wait for: what is known once it has retired */
    int32_t *awaited;          /* by instruction: its place there, -1 if nobody waits for it */
    struct clock last[LANES];  /* the lane's last instruction: what is known once it has retired */
    struct clock start[LANES]; /* ... and what was known when it started */
    int *by_ticket[LANES];     /* the lane's instructions */
    int *by_ticket_table;
};

/* Of a program in good form (form.h), before its first instruction. ERR_NOMEM. */
enum status clocks_create(const struct program *p, struct clocks *out);
void clocks_destroy(struct clocks *c);
/* To the next instruction, `index`, in program order. */
void clocks_advance(struct clocks *c, int index);

#endif
