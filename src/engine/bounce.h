/* Messages of ranks whose device memory the communicator cannot reach. The comm thread copies what is sent into pinned host
 * memory, and copies from there what was received. Private to src/engine. */
#ifndef LTRAIN_ENGINE_BOUNCE_H
#define LTRAIN_ENGINE_BOUNCE_H

#include "engine/exec_context.h"

/* Returns the bytes of bounce buffers for the programs (NULL entries are skipped). */
int64_t bounce_bytes(struct program *const *programs, int n);
/* Creates buffers for the largest instruction of each comm lane of the programs (NULL entries are skipped). x's backend pins them
 * and must be closed before they are destroyed. */
enum status bounce_create(const struct exec_context *x, struct program *const *programs, int n, struct bounce **out);
void bounce_destroy(struct bounce *b); /* NULL is fine */

/* Points a comm instruction's device arguments in `arg` at host memory before it starts. If `sends`, copies the arguments that the
 * instruction reads to that memory. */
enum status bounce_in(const struct exec_context *x, const struct program *p, const struct instr *in, int sends,
                      void *arg[OP_MAX_ARGS]);
/* Copies the data that a finished comm instruction wrote to host memory to the device, if `receives`. */
enum status bounce_out(const struct exec_context *x, const struct program *p, const struct instr *in, int receives);

#endif
