/* Ticks of a pipeline: what each stage does, one after another, in a step.
 *
 * With p stages and c slices, a piece is one slice of a micro-batch (the whole micro-batch if c is 1). Forward passes take pieces in
 * order; backward passes take each micro-batch's slices from the last to the first. At tick k, stage s runs forward pass number k - s,
 * then backward pass number k - (c - 1) - (2 (p - 1) - s), as far as there are such passes.
 *
 * All stages compute the ends of the model together: the embedding before the first stage's forward pass, the head before the last
 * stage's backward pass, the embedding's gradient behind the first stage's. So all ranks run equally many programs, and each message is
 * received in the program in which it is sent (GPipe's order with one backward pass a tick, as 1F1B; slices of a sequence: TeraPipe).
 *
 * Outputs travel beside the backward pass of their tick, gradients beside the next tick's forward pass, and the ends' programs send
 * their rows themselves. With a lag of 2 (--stage-ahead 1) all of them travel beside a later pass of their own kind: outputs and
 * gradients beside the next tick's, the embedding's rows beside the forward pass of the tick before they are used, the head's input
 * and its gradient beside the backward passes of the two ticks before they are, the embedding's gradient a tick later. Then stage s runs
 * pass number k - 1 - 2 s forward and number k - 3 - (c - 1) - 2 (2 (p - 1) - s) backward: for most of the time no tick has both
 * passes, and ticks without any of a kind have none of its messages. */
#ifndef LTRAIN_PLAN_TICKS_H
#define LTRAIN_PLAN_TICKS_H

#include "plan/plan.h"

/* A pipeline's step. */
struct ticks {
    int stages, slices;
    int lag; /* ticks by which a stage is behind the one before it: 1, or 2 if messages travel beside the tick between */
    int64_t micro_batches;
    int evaluates; /* 1: forward passes and losses alone, without gradients */
    /* 1: the first stage's passes compute the embedding and its gradient (model_first_embeds): of the embedding's own programs there is the
     * last piece's alone, which computes the norm */
    int first_embeds;
};

/* Returns the ticks of a step, or of a plan that evaluates only, those of its micro-batches. */
struct ticks plan_ticks(const struct plan *p);
/* Returns the ticks of an evaluation of as many micro-batches, whose losses (PLAN_EVAL) follow the last stage's forward passes. */
struct ticks plan_evaluation_ticks(const struct plan *p, int64_t micro_batches);
/* Returns the number of ticks. */
int64_t ticks_count(const struct ticks *t);
/* Returns the piece of a stage's forward or backward pass in a tick; -1: none. */
int64_t ticks_forward(const struct ticks *t, int stage, int64_t tick);
int64_t ticks_backward(const struct ticks *t, int stage, int64_t tick);
/* Returns the number of the copy (slot) that keeps a piece's saved values in a stage, from its forward to its backward pass. */
int ticks_slot(const struct ticks *t, int stage, int64_t piece);

/* A program that a stage runs. */
struct tick_work {
    enum plan_program program;
    int64_t piece; /* -1: the program only passes messages on */
    /* 1: the stage sends to, or receives from, a neighbouring stage the result of the half before; programs of halves only */
    int sends, receives;
    int output; /* copy of its outputs (COPIES_OUTPUT) that the last stage writes or deals out; 0 on others */
};

enum { TICK_MOST = 5 };
/* Lists the programs of a stage in a tick, in order. Returns their number. */
int ticks_list(const struct ticks *t, int stage, int64_t tick, struct tick_work out[TICK_MOST]);

/* Counts how often a stage runs each program in a step. */
void ticks_runs(const struct ticks *t, int64_t runs[PLAN_PROGRAMS]);
/* Returns the seconds of a step: the sum over ticks of the slowest stage's time. Later slices of a sequence have more attention, so stages
 * differ, as do their roles' programs. ticks_idle: seconds in which a stage has no piece (filling and draining the pipeline) or waits for slower stages. */
double ticks_seconds(const struct plan *p);
double ticks_idle(const struct plan *p);
/* Returns the seconds of a step in which each stage runs its own plan's programs. of: a plan for each stage. */
double ticks_seconds_of(const struct plan *const *of);

#endif
