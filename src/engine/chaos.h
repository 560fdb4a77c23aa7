/* Running programs in hostile ways, to prove that their waits and declared operands suffice. Test modes: single-threaded and
 * slow. */
#ifndef LTRAIN_ENGINE_CHAOS_H
#define LTRAIN_ENGINE_CHAOS_H

#include "engine/exec_context.h"

/* Runs the program in a random order that its lanes and waits allow. Each instruction starts, takes effect and retires at
 * separate random moments; the pipelined lanes have several under way, taking effect in any order and retiring in theirs. Lanes
 * are fast or slow at random for a while. What is written anew is 0xff (NaN) from the start of its writer to its effect; every
 * byte of the arenas is 0xff before its first write in the program and after its last access, persistent homes excepted. So a
 * wait too few, a kernel that reads what it should write or leaves a hole shows as NaN. ERR_CORRUPT if no order finishes the
 * program. */
enum status chaos_run(const struct exec_context *x, const struct program *p, uint64_t seed);

/* Runs the program in its own order. Every kernel sees 0xff in all bytes of the arenas except the ones that its operands declare it
 * to read. ERR_CORRUPT names the kernel that wrote a byte outside of its written operands. */
enum status chaos_run_declared(const struct exec_context *x, const struct program *p);

#endif
