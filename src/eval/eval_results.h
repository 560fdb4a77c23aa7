/* State of an evaluation, and printing what it found. Private to src/eval. */
#ifndef LTRAIN_EVAL_EVAL_RESULTS_H
#define LTRAIN_EVAL_EVAL_RESULTS_H

#include "data/windows.h"
#include "eval/held_out.h"
#include "eval/task_results.h"
#include "train/evaluate.h"

enum { MOST_LENGTHS = 32 };

struct result {
    int64_t length, stride;
    struct windows_report texts;
    struct evaluation found;
};

struct eval {
    struct settings *s;
    struct comm *comm;
    char model[4096];          /* the model's name as given */
    int perplexity, position;  /* 1: asked for */
    struct task_results tasks; /* n_tasks is 0: no tasks */
    struct held_out held_out;  /* the run's held-out text, which is evaluated if no text is given */
    int text_is_said;
    int64_t positions; /* number of positions that the model was made for; 0: no limit */
    int64_t length[MOST_LENGTHS];
    int n;
    struct result result[MOST_LENGTHS];
    int done;   /* number of results; the last one may be partial */
    int signal; /* signal that ended the evaluation early; 0: none */
    int answers_are_printed;
};

static inline int eval_has_answers(const struct eval *x)
{
    return x->tasks.n_answers > 0;
}

/* Prints the results so far as a table or, with --json, as an object, and writes the picture that --svg names. ERR_IO. */
enum status eval_print(struct eval *x);

#endif
