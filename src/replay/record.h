/* Numbers that a run has recorded in metrics.jsonl, step by step. Private to src/replay. */
#ifndef LTRAIN_REPLAY_RECORD_H
#define LTRAIN_REPLAY_RECORD_H

#include "base/status.h"

#include <stdint.h>

struct record_step {
    int64_t step, steps, line;           /* steps: number of steps since the line before; line: its number in the file, from 1 */
    double loss, norm, lr, eval_loss;    /* NaN: null, as the log writes numbers that are not finite */
    int32_t evaluated, skipped, resumed; /* 0 or 1; evaluated: 1: eval_loss was recorded */
};

/* Settings of the optimizer's updates that one start of the run had. */
struct record_updates {
    int64_t batch;
    double weight_decay, beta1, beta2, eps, clip, router_bias_rate;
};

/* A numerics key and settings of updates, and the first step that they held for. */
struct record_key {
    int64_t step;
    char text[512];
    struct record_updates updates;
};

struct record {
    struct record_step *steps; /* ascending */
    struct record_key *keys;   /* ascending; none in logs of older releases */
    int64_t n, n_keys;
};

/* Reads RUN/metrics.jsonl; a last line that is not whole yet is left out. ERR_INVALID: there is no log; ERR_CORRUPT names the line
 * that is no object of a step, or out of order. */
enum status record_read(const char *run, struct record *out);
void record_free(struct record *r);
/* Returns the place of the first step that is at least `step`; r->n: there is none. */
int64_t record_find(const struct record *r, int64_t step);
/* Returns the numerics key of a step, and the settings of its update; NULL: not recorded. */
const struct record_key *record_key_of(const struct record *r, int64_t step);
/* Tells whether two recorded numbers have the same bits; two numbers that are not finite count as equal. */
int record_same(double a, double b);

#endif
