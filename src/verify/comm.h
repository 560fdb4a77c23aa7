/* Checks of the form of collectives and predicates. */
#ifndef LTRAIN_VERIFY_COMM_H
#define LTRAIN_VERIFY_COMM_H

#include "program/program.h"

#include <stddef.h>

/* Returns NULL, or a text that says why the instruction's attributes, argument sizes or predicate are wrong. Sizes must agree
 * with attributes and group; predicates may stand only on ops that may be left out. The operands must have been checked one by
 * one, and collectives must be on comm lanes. */
const char *verify_comm_fault(const struct program *p, const struct instr *in, char *text, size_t size);

/* Returns the predicate under which the instruction reads, or writes. Both are the same, except for the two halves of an
 * exchange. */
int verify_read_predicate(const struct program *p, const struct instr *in);
int verify_write_predicate(const struct program *p, const struct instr *in);

/* Returns `distance` modulo `members`, in 0 .. members - 1, also for negative distances. */
static inline int64_t verify_modulo(int64_t distance, int64_t members)
{
    return (distance % members + members) % members;
}

#endif
