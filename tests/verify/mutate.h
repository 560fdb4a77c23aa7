/* Faults planted in verified programs, which the verifier and the value numbers must notice.
 *
 * Each function goes through every mutation of its kind of a copy of the program; if there are more than `max`, through `max` of
 * them, spread evenly (0: all). It returns the number of survivors, which were accepted although wrong, and prints them. *tried:
 * number of mutations made. */
#ifndef LTRAIN_TESTS_PROGRAM_MUTATE_H
#define LTRAIN_TESTS_PROGRAM_MUTATE_H

#include "program/program.h"

/* Deletes one wait at a time. There are survivors if some waits of the program follow from others. */
int mutate_delete_waits(const struct program *p, int max, int *tried);
/* Weakens one wait at a time, to the ticket before (a wait for ticket 1 is deleted). */
int mutate_weaken_waits(const struct program *p, int max, int *tried);
/* Changes one meaning at a time: two inputs of one size swapped, an attribute changed, accumulating instead of writing, an input
 * that begins one row later. The value digest must differ. Survivors are instructions whose results reach no live_out binding, or
 * faults of the value numbers. */
int mutate_semantics(const struct program *p, int max, int *tried);

/* Copies a program for mutation; the caller destroys the copy (program_destroy). NULL: out of memory. */
struct program *mutate_copy(const struct program *p);

/* Gives the instruction a call that it shares with no other, and returns the call's attributes, which may then be changed. */
struct op_attrs *mutate_attrs(struct program *p, struct instr *in);

/* Returns the index of the lane's k-th instruction (from 0); -1: there are fewer. */
int mutate_find(const struct program *p, enum lane lane, int k);
/* Removes the lane's k-th instruction; instructions that waited for it then wait for the one before it on the lane. */
void mutate_drop(struct program *p, enum lane lane, int k);

#endif
