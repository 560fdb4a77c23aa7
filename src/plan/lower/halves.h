/* Halves of a micro-batch's program, for stages that compute other micro-batches between its forward and its backward pass.
 * Private to src/plan/lower.
 *
 * Both halves are cut from one program, so that whatever the backward pass finds and where is decided as ever. Buffers that the
 * second half reads become persistent, in as many copies (slots) as micro-batches are in flight. */
#ifndef LTRAIN_PLAN_LOWER_HALVES_H
#define LTRAIN_PLAN_LOWER_HALVES_H

#include "program/program.h"

enum half { HALF_BOTH, HALF_FORWARD, HALF_BACKWARD };

/* Keeps the instructions before `cut` or from it on, with bindings of what is there at the cut. HALF_BOTH: keeps all, and reserves the
 * bytes of all slots but one, as if other micro-batches were in flight. The program is not scheduled yet. */
enum status halves_take(struct program *p, int cut, enum half half, int slots);

#endif
