/* Finding when a byte of an arena is dead, whatever legal order a program's instructions take.
 *
 * The operands' ends cut each arena into intervals. In program order, an interval's accesses form epochs: the first holds the
 * contents from before the program, and each fresh write begins another. An epoch is over when all its accesses are done, in any
 * order. Its bytes are then dead unless it is the last epoch of a persistent home. The next epoch's writer has to wait for all
 * accesses of the epoch before, so poisoning at once harms nobody. */
#ifndef LTRAIN_ENGINE_DEAD_BYTES_H
#define LTRAIN_ENGINE_DEAD_BYTES_H

#include "engine/exec_context.h"

#define POISON 0xff /* NaN in every type */

struct epoch {
    int interval, left; /* left: accesses to come */
    int lasting;        /* 1: the contents outlive the program */
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
    int64_t *first; /* first[i] .. first[i + 1] - 1: indices in `list` of the epochs that instruction i accesses */
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

/* Finds the epochs of a program. The caller frees them with ages_free, after a failure too. ERR_NOMEM. */
enum status ages_make(const struct program *p, struct ages *a);
void ages_free(struct ages *a);
/* Notes that instruction i's accesses are done, and poisons the bytes whose epoch is over. */
enum status ages_done(struct ages *a, const struct exec_context *x, int i);

#endif
