/* Passes of sequences through a pipeline's stages, tick by tick. */
#ifndef LTRAIN_TRAIN_PIPELINE_H
#define LTRAIN_TRAIN_PIPELINE_H

#include "plan/ticks.h"
#include "train/sequences.h"

/* A pass: where its sequences come from, and what each program means to its caller. */
struct pipeline_pass {
    const struct sequence_source *source;
    int64_t total;   /* sequences of the pass, over all ranks */
    int64_t targets; /* targets that a mean loss is of (run_fill_record) */
    uint64_t first;  /* number of the first sequence, by which dropout masks are drawn */
    /* Runs a program whose inputs are laid out. micro_batch: its number in the pass, from 0 on. */
    enum status (*run)(void *user, const struct tick_work *w, int64_t micro_batch, const struct half_run *half);
    void *user;
    struct tally *tally; /* counts of this rank's sequences, each once, as its losses are computed; NULL: nobody wants them */
};

/* Runs all ticks of a pass, until a signal cuts them. */
enum status pipeline_run(struct run *r, const struct ticks *t, const struct pipeline_pass *x);

#endif
