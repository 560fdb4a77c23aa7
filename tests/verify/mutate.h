/* Faults planted in verified programs, which the verifier and the value numbers must notice.
 *
 * Each function goes through every mutation of its kind of a program (which it leaves as it is). If there are more than `max`, it
 * takes that many, spread evenly (0: all). It returns how many survived, that is were accepted although wrong, and prints them.
 * *tried: how many were made. */
#ifndef LTRAIN_TESTS_PROGRAM_MUTATE_H
#define LTRAIN_TESTS_PROGRAM_MUTATE_H

#include "program/program.h"

/* Deletes one wait. No survivors only if the program's waits are irredundant. */
int mutate_delete_waits(const struct program *p, int max, int *tried);
/* Weakens one wait to the ticket before (a wait for ticket 1 is deleted). */
int mutate_weaken_waits(const struct program *p, int max, int *tried);
/* Makes one wrong meaning: two inputs of one size swapped, an attribute changed, accumulating instead of writing, an input taken
 * one row further down. The value digest must differ. Survivors are instructions whose results reach no live_out binding, or
 * faults. */
int mutate_semantics(const struct program *p, int max, int *tried);

/* Copies a program for mutation; the caller destroys the copy (program_destroy). NULL: out of memory. */
struct program *mutate_copy(const struct program *p);

/* Gives the instruction a call of its own, and returns its attributes, which may then be changed. */
struct op_attrs *mutate_attrs(struct program *p, struct instr *in);

/* Returns the index of the lane's k-th instruction (from 0); -1: there are fewer. */
int mutate_find(const struct program *p, enum lane lane, int k);
/* Takes the lane's k-th instruction out; instructions that waited for it wait for the one before. */
void mutate_drop(struct program *p, enum lane lane, int k);

#endif
