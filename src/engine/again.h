/* Computing one instruction's update of parameters a second time, on the host, to find silent corruption (--verify-every). */
#ifndef LTRAIN_ENGINE_AGAIN_H
#define LTRAIN_ENGINE_AGAIN_H

#include "engine/exec_context.h"
#include "model/model.h"

struct again; /* opaque */

/* Creates a choice of no instruction. m: the rank's model, borrowed. ERR_NOMEM. */
enum status again_create(const struct model *m, struct again **out);
void again_destroy(struct again *a); /* NULL is fine */
/* Chooses the number-th AdamW instruction of a program, counted round; p NULL: none. No program runs. */
void again_choose(struct again *a, const struct program *p, int64_t number);
/* Tells whether the instruction is the chosen one. a NULL: no. */
int again_is(const struct again *a, const struct program *p, const struct instr *in);
/* Copies what the chosen instruction is going to read to the host; all before it is done. Where host memory is short the
 * instruction is not checked. */
enum status again_before(struct again *a, const struct exec_context *x, const struct program *p, const struct instr *in);
/* Computes the copies' update by the host's kernel, and compares with what the instruction, which is done, has written. ERR_CORRUPT:
 * bits differ; the sentence names the unit. */
enum status again_after(struct again *a, const struct exec_context *x, const struct program *p, const struct instr *in);

#endif
