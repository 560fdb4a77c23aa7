/* Halves of a micro-batch's program, for stages that compute other micro-batches between its forward and its backward pass.
 * Private to src/plan/lower.
 *
 * Both halves are cut from one lowered program, so the first half leaves each value where the second half looks for it. Buffers that
 * the second half reads become persistent, in as many copies (slots) as micro-batches are in flight. */
#ifndef LTRAIN_PLAN_LOWER_HALVES_H
#define LTRAIN_PLAN_LOWER_HALVES_H

#include "program/program.h"

enum half { HALF_BOTH, HALF_FORWARD, HALF_BACKWARD };

/* Reduces a program, before it is scheduled, to its instructions before `cut` or from `cut` on, and binds the values that cross the
 * cut. HALF_BOTH: keeps all instructions, and reserves the bytes of all slots but one, as if other micro-batches were in flight. */
enum status halves_take(struct program *p, int cut, enum half half, int slots);

#endif
