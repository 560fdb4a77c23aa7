/* Answers of models to tasks of long contexts. Private to src/eval. */
#ifndef LTRAIN_EVAL_TASK_RESULTS_H
#define LTRAIN_EVAL_TASK_RESULTS_H

#include "tasks/tasks.h"

struct task_cell {
    enum task task;
    int64_t length;
    double depth; /* percent; NaN: the task has none */
    int64_t answers;
    double score; /* sum over answers; each 0 to 1 */
};

struct task_answer {
    int cell;
    int64_t prompt_tokens;
    uint64_t hash; /* XXH3 of the prompt's text, with the given beginning of the answer */
    double depth;  /* true depth in percent; NaN: none */
    char expected[TASK_EXPECTED][TASK_EXPECTED_BYTES];
    int n_expected;
    char *text; /* UTF-8 */
    double score, seconds;
};

struct task_results {
    enum task task[TASKS];
    int n_tasks;
    double *depth; /* [n_depths]: depths asked for */
    int n_depths;
    int64_t *length; /* [n_lengths] */
    int n_lengths;
    int64_t samples;        /* samples of a cell */
    struct task_cell *cell; /* cells in the order of lengths, then tasks, then depths */
    int n_cells;
    struct task_answer *answer;
    int64_t n_answers, answers_room;
    int64_t haystack_bytes; /* bytes of the user's text; 0: ltrain's own sentences */
    int repeats;            /* 1: the text was too short for a length and is repeated */
    int64_t positions;      /* number of positions that the model was made for; 0: no limit */
    int chat;
};

static inline int64_t task_longest(const struct task_results *r)
{
    int64_t most = 0;
    for (int i = 0; i < r->n_lengths; i++)
        most = r->length[i] > most ? r->length[i] : most;
    return most;
}

static inline int64_t task_answers_wanted(const struct task_results *r)
{
    return r->n_cells * r->samples;
}

static inline double task_cell_score(const struct task_cell *c)
{
    return c->score / (double)c->answers;
}

#endif
