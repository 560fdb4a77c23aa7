/* Which instructions of a program the state at its end depends on: those of the optimizer update that is woven into it. The rest
 * of a program may be left out, and the state is that after the update. */
#ifndef LTRAIN_PROGRAM_UPDATES_H
#define LTRAIN_PROGRAM_UPDATES_H

#include "program/program.h"

/* mark[i] = 1 where parameters, masters or moments that the program leaves (live_out) depend on instruction i, else 0; *n: how
 * many. They read nothing that another instruction has written before them in the program's order. */
enum status updates_mark(const struct program *p, uint8_t *mark, int *n);

#endif
