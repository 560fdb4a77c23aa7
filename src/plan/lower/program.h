/* Lowering: from a model's layer graph to a flat list of instructions, in compute order, fetches just before their use and
 * write-backs just after their producer.
 *
 * With several ranks every rank has the same program; what differs is which tokens and which shards it holds. */
#ifndef LTRAIN_PLAN_LOWER_PROGRAM_H
#define LTRAIN_PLAN_LOWER_PROGRAM_H

#include "model/model.h"
#include "plan/lower/strategy.h"
#include "program/program.h"

enum program_role {
    ROLE_UPDATE = 1, /* a pending update, woven into the forward (or alone) */
    ROLE_FORWARD = 2,
    ROLE_BACKWARD = 4,
    ROLE_FIRST = 8, /* the first micro-batch of a step: gradients start anew */
    ROLE_LAST = 16, /* the last one: the gradient norm follows */
};

/* The host side of a program: persistent host buffers that the engine fills before and reads after. */
struct io_buffers {
    int tokens, targets, positions, lo[MODEL_MASKS], hi[MODEL_MASKS], inv_freq, record, norm, loss;
    int index, last_row, logits; /* of programs with a cache, which have no targets, norm and loss (decode.h) */
    int numbers; /* of the tokens in their whole sequence, for masks of dropout; -1: there are none */
    int each; /* every token's loss, after programs without a backward pass; -1: there are none */
};

/* One program of the set. Persistent buffers come first and are the same for every role. */
enum status lower_program(const struct model *m, const struct strategy *s, int role, struct io_buffers *io, struct program **out);

#endif
