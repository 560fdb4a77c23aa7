/* Test modes that run programs in hostile ways, to prove that their waits and declared operands suffice. Single-threaded and
 * slow. */
#ifndef LTRAIN_ENGINE_CHAOS_H
#define LTRAIN_ENGINE_CHAOS_H

#include "engine/exec_context.h"

/* Runs the program in a random order that its lanes and waits allow. Each instruction starts, takes effect and retires at
 * separate random moments. Pipelined lanes have several instructions under way, which take effect in any order and retire in
 * theirs. Lanes are fast or slow at random for a while.
 *
 * Bytes to be overwritten are 0xff (NaN) from the start of their writer to its effect. Every arena byte is 0xff before its first
 * write in the program and after its last access, persistent homes excepted. So a missing wait, a kernel that reads what it
 * should write, or a hole in its output shows as NaN. Ranks draw orders of their own; programs are never cut short.
 *
 * ERR_CORRUPT if no order finishes the program. */
enum status chaos_run(const struct exec_context *x, const struct program *p, uint64_t seed);

/* Runs the program in its own order, each kernel seeing 0xff in all arena bytes that its operands do not declare as read.
 * ERR_CORRUPT names the kernel that wrote a byte outside of its written operands. */
enum status chaos_run_declared(const struct exec_context *x, const struct program *p);

#endif
