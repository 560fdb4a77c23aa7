/* When a byte of an arena is dead, whatever legal order a program's instructions take.
 *
 * The operands' ends cut each arena into intervals. In program order the accesses of an interval form epochs: one begins at each
 * fresh write, what was there before is the first one. An epoch is over when all its accesses are done, in whatever order they
 * happen; its bytes are then dead unless it is the last one of a persistent home. The next epoch's writer has to wait for all of
 * them, so poisoning at once harms nobody. */
#ifndef LTRAIN_ENGINE_DEAD_BYTES_H
#define LTRAIN_ENGINE_DEAD_BYTES_H

#include "engine/exec_context.h"

#define POISON 0xff /* NaN in every type */

struct epoch {
    int interval, left; /* accesses to come */
    int lasting;        /* the contents outlive the program */
};

struct cuts {
    int64_t *at; /* sorted; interval i is [at[i], at[i + 1]) */
    int n;       /* intervals */
    int64_t persistent_end;
};

struct ages {
    struct cuts cuts[TIERS]; /* nvme: none */
    int first_interval[TIERS];
    struct epoch *epochs;
    int n_epochs;
    int64_t *first; /* epochs that instruction i accesses: list[first[i] .. first[i + 1] - 1] */
    int *list;
};

static inline int64_t operand_address(const struct program *p, const struct operand *o)
{
    return p->buffers[o->buffer].address + o->offset;
}
static inline enum tier operand_tier(const struct program *p, const struct operand *o)
{
    return p->buffers[o->buffer].tier;
}

/* The caller frees it with ages_free, after a failure too. ERR_NOMEM. */
enum status ages_make(const struct program *p, struct ages *a);
void ages_free(struct ages *a);
/* Instruction i's accesses are done: poisons what nobody accesses any more. */
enum status ages_done(struct ages *a, const struct exec_context *x, int i);

#endif
