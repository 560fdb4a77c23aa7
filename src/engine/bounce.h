/* Messages of ranks whose device memory the communicator does not reach: they pass through pinned host memory, into which the
 * comm thread copies what is sent, and from which it copies what has come. Private to src/engine. */
#ifndef LTRAIN_ENGINE_BOUNCE_H
#define LTRAIN_ENGINE_BOUNCE_H

#include "engine/exec_context.h"

/* Bytes of the buffers for the programs (NULLs are passed over). */
int64_t bounce_bytes(struct program *const *programs, int n);
/* Room for the largest instruction of each comm lane of the programs (NULLs are passed over), pinned by x's backend, which is to
 * be closed first. */
enum status bounce_create(const struct exec_context *x, struct program *const *programs, int n, struct bounce **out);
void bounce_destroy(struct bounce *b); /* NULL is fine */

/* arg: of an instruction of a comm lane that is about to start. Arguments on the device become host memory, which holds what is
 * read of them; sends: whether anything is. */
enum status bounce_in(const struct exec_context *x, const struct program *p, const struct instr *in, int sends,
                      void *arg[OP_MAX_ARGS]);
/* The instruction is done: what it has written goes to the device. */
enum status bounce_out(const struct exec_context *x, const struct program *p, const struct instr *in, int receives);

#endif
