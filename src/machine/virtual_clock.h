/* A program on a virtual clock. */
#ifndef LTRAIN_MACHINE_VIRTUAL_CLOCK_H
#define LTRAIN_MACHINE_VIRTUAL_CLOCK_H

#include "machine/cost.h"

/* Executes the program on a virtual clock, lanes in order. Dependencies are in compressed rows: those of instruction i are
 * dep[dep_first[i] .. dep_first[i+1]-1], all below i; NULL: none. No instruction starts before its release (NULL: no releases).
 * Lanes that share a link slow each other down. A collective waits for nobody: all ranks have equal roles. Sets start and end;
 * returns the total time. */
double program_simulate(struct program *p, const struct cost_model *m, const int *dep_first, const int *dep,
                        const double *release);
/* Second lines of the compute and the world lane, for a program whose order is being searched. The compute lane takes an
 * instruction of its second line as soon as that may start. The world lane does so unless compute is close to needing the first
 * line's next one. */
struct second_lines {
    const uint8_t *in;     /* 1 for each instruction that stands in its lane's second line */
    const double *planned; /* seconds at which each instruction is released if compute runs back to back */
};
/* Executes the program as program_simulate does, with second lines (NULL: without). */
double program_simulate_lines(struct program *p, const struct cost_model *m, const int *dep_first, const int *dep,
                              const double *release, const struct second_lines *second);

#endif
