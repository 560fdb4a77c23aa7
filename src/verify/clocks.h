/* Happens-before as vector clocks: a clock has, per lane, the highest ticket known to have retired.
 *
 * Invariants: 1. A clock after an instruction has retired is closed: it covers all that the instructions in it waited for and, as
 * lanes retire in order, all their predecessors. 2. An instruction of a pipelined lane knows that its predecessor has started,
 * not that it has retired. */
#ifndef LTRAIN_VERIFY_CLOCKS_H
#define LTRAIN_VERIFY_CLOCKS_H

#include "program/program.h"

struct clock {
    int32_t ticket[LANES];
};

struct clocks {
    const struct program *p;
    struct clock now;          /* clock at the start of the instruction last advanced to */
    struct clock *retired;     /* clocks after retirement, one for each instruction that others wait for */
    int32_t *awaited;          /* index of each instruction's clock in `retired`; -1: no instruction waits for it */
    struct clock last[LANES];  /* clock after each lane's last instruction so far has retired */
    struct clock start[LANES]; /* clock at the start of that instruction */
    int *by_ticket[LANES];     /* instructions by lane and ticket */
    int *by_ticket_table;
};

/* Creates the clocks of a program in good form (form.h), before its first instruction. ERR_NOMEM. */
enum status clocks_create(const struct program *p, struct clocks *out);
void clocks_destroy(struct clocks *c);
/* Advances to the next instruction, `index`, in program order. */
void clocks_advance(struct clocks *c, int index);

#endif
