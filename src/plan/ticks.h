/* Ticks of a pipeline: what each stage does, one after another, in a step.
 *
 * A piece is a micro-batch or, with c slices, one of its slices; pieces are numbered by micro-batches and their slices. At tick k
 * stage s runs the forward pass of piece k - s, then the backward pass of the piece that is number k - (c - 1) - (2 (p - 1) - s) with
 * each micro-batch's slices taken from the last to the first, p being the number of stages, if there are such pieces. All stages
 * compute the ends of the model together: the embedding before the first stage's forward pass, the head behind the last stage's, the
 * embedding's gradient behind the first stage's backward pass. So all ranks run as many programs, and messages between stages meet
 * (GPipe's order with one backward pass a tick, as 1F1B; slices of a sequence: TeraPipe).
 *
 * Outputs travel beside the backward pass of their tick, gradients beside the next tick's forward pass. With a lag of 2 (--stage-ahead
 * 1) both travel beside the next tick's pass of their own kind, at tick k - 2 s and k - (c - 1) - 2 (2 (p - 1) - s): one sequence's
 * slices go forward first and backward then, so that no tick has both passes for most of the time. */
#ifndef LTRAIN_PLAN_TICKS_H
#define LTRAIN_PLAN_TICKS_H

#include "plan/plan.h"

/* A pipeline's step. */
struct ticks {
    int stages, slices;
    int lag; /* ticks by which a stage is behind the one before it: 1, or 2 if messages travel beside the tick between */
    int64_t micro_batches;
};

struct ticks plan_ticks(const struct plan *p);
/* Returns the number of ticks. */
int64_t ticks_count(const struct ticks *t);
/* Returns the piece of a stage's forward or backward pass in a tick; -1: none. */
int64_t ticks_forward(const struct ticks *t, int stage, int64_t tick);
int64_t ticks_backward(const struct ticks *t, int stage, int64_t tick);
/* Returns the copy of saved values that a piece has in a stage from its forward pass on until its backward pass. */
int ticks_slot(const struct ticks *t, int stage, int64_t piece);

/* A program that a stage runs. */
struct tick_work {
    enum plan_program program;
    int64_t piece; /* -1: it only passes messages on */
    /* 1: the stage sends to, or receives from, the stage beside it what the half before made; in programs of halves only */
    int sends, receives;
};

enum { TICK_MOST = 5 };
/* Lists the programs of a stage in a tick, in order. Returns their number. */
int ticks_list(const struct ticks *t, int stage, int64_t tick, struct tick_work out[TICK_MOST]);

/* Counts how often a stage runs each program in a step. */
void ticks_runs(const struct ticks *t, int64_t runs[PLAN_PROGRAMS]);
/* Returns the seconds of a step: in each tick the slowest stage's, which has more attention in later slices of a sequence. ticks_idle:
 * those of them in which a stage has no piece (the bubbles: the pipeline fills and drains) or waits for later slices of other stages. */
double ticks_seconds(const struct plan *p);
double ticks_idle(const struct plan *p);

#endif
