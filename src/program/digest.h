/* Digests of programs, by which two programs are compared. */
#ifndef LTRAIN_PROGRAM_DIGEST_H
#define LTRAIN_PROGRAM_DIGEST_H

#include "program/program.h"

/* Hashes everything that a program is: names, tensors, buffers with their addresses, instructions in order with their calls,
 * operands and waits, bindings, arenas and bounds. Simulated times are left out: they follow from the rest and a machine. */
uint64_t program_digest(const struct program *p);

#endif
