/* The form of what is between ranks: collectives and predicates. */
#ifndef LTRAIN_VERIFY_COMM_H
#define LTRAIN_VERIFY_COMM_H

#include "program/program.h"

#include <stddef.h>

/* NULL, or why the instruction's attributes, argument sizes or predicate cannot be, in `text`: sizes that agree with attributes
 * and group, predicates only where leaving the op out can be right. The operands must have been checked one by one, and
 * collectives must be on comm lanes. */
const char *verify_comm_fault(const struct program *p, const struct instr *in, char *text, size_t size);

/* Predicates under which the instruction reads and under which it writes: one and the same, except for the two halves of an
 * exchange. */
int verify_read_predicate(const struct program *p, const struct instr *in);
int verify_write_predicate(const struct program *p, const struct instr *in);

/* The members of a group are congruent to these numbers. */
static inline int64_t verify_modulo(int64_t distance, int64_t members)
{
    return (distance % members + members) % members;
}

#endif
