/* The instructions on which the state at a program's end depends: those of the optimizer update in it. If all others are left
 * out, the state is still that after the update. */
#ifndef LTRAIN_PROGRAM_UPDATES_H
#define LTRAIN_PROGRAM_UPDATES_H

#include "program/program.h"

/* Sets mark[i] = 1 if parameters, masters or moments that exist after the program (live_out) depend on instruction i, else 0. *n:
 * the number of marked instructions. Marked instructions read nothing that an unmarked one has written before them in the
 * program's order. */
enum status updates_mark(const struct program *p, uint8_t *mark, int *n);

#endif
