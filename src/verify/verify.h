/* The independent verifier: proves that a program, run under its waits alone, computes what it says.
 *
 * It is written against program.h only and shares no code with the planner. */
#ifndef LTRAIN_VERIFY_VERIFY_H
#define LTRAIN_VERIFY_VERIFY_H

#include "program/program.h"

/* Checks in program order, in which every wait must point backwards:
 * - form: indices, lanes and tiers that belong together (COMPUTE touches the device only; READ: nvme -> host, or device if not
 *   discrete; ...), operands inside their buffers, buffers inside their arenas, argument numbers, whole elements, access modes,
 *   copies preserving tensor, rows, version and bytes;
 * - content: every byte read holds the tensor, rows and version of the operand (live_in at the start); an update's version is the
 *   one in memory; every live_out binding holds at the end; scratch is never read before it is written (scratch operands are
 *   write-only);
 * - predicates: results of an instruction that may be left out are read under its predicate only; what it adds to an updated
 *   argument exists under its predicate only; collectives' sizes agree with their group's. Other ranks: mesh.h;
 * - order: every pair of accesses to the same byte of which one writes is ordered by happens-before (lane order as in program.h,
 *   waits), whatever the lanes' speed.
 * ERR_CORRUPT and one sentence naming program, instruction, operand and the cause. */
enum status program_verify(const struct program *p);

#endif
