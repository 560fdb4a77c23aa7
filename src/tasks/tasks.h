/* Tasks of long contexts, generated: a text in which something is to be found, a question, and what an answer must contain.
 *
 * Their wording is that of RULER (Hsieh et al. 2024) where it has the task; docs/evaluation.md describes them. A sample depends on
 * its request alone: the same one gives the same text. */
#ifndef LTRAIN_TASKS_TASKS_H
#define LTRAIN_TASKS_TASKS_H

#include "base/status.h"
#include "tasks/haystack.h"
#include "text/tokenizer.h"

#include <stddef.h>
#include <stdint.h>

enum task {
    TASK_NEEDLE,       /* one sentence in a haystack */
    TASK_MULTI_NEEDLE, /* several, all of which are asked for */
    TASK_MULTIKEY,     /* one among sentences of its kind, with other keys */
    TASK_TRACKING,     /* variables that get a value through others */
    TASK_COUNTING,     /* how often a sentence is there */
    TASK_AGGREGATION,  /* the most frequent words */
    TASK_SHUFFLED,     /* in which of the user's paragraphs, shuffled, words stand */
    TASKS
};

const char *task_name(enum task t);
enum task task_find(const char *name); /* TASKS: there is none of that name */
int task_has_depth(enum task t);       /* what is to be found has a place */
int task_has_haystack(enum task t);    /* it is among other text: the user's, or ltrain's own */
int task_needs_text(enum task t);      /* there is none of ltrain's own that would do */

enum { TASK_EXPECTED = 8, TASK_EXPECTED_BYTES = 32 };

struct task_sample {
    struct text_buffer prompt; /* up to the question's end */
    struct text_buffer lead;   /* how the answer begins, which is given: " The special magic number for ... is" */
    struct text_buffer answer; /* how a right one goes on */
    char expected[TASK_EXPECTED][TASK_EXPECTED_BYTES];
    int n_expected;
    int is_number;                  /* the first number of an answer counts */
    size_t context, end;            /* prompt[context, end): the text in which to search */
    size_t planted[2 * TASK_EXPECTED]; /* where in the prompt it is that is to be found, in order */
    int n_planted;
    double depth;    /* share of the other text before the first of these, in percent */
    int64_t size;    /* sentences of the haystack, distractors, words, paragraphs: what the text was fitted by */
    int repeats;     /* the haystack is longer than the user's text */
};

struct task_request {
    enum task task;
    int64_t tokens; /* that the counter may count at most */
    double depth;   /* 0 to 100; ignored where tasks have none */
    uint64_t seed;
    int64_t number; /* of the sample: further ones of the same task, tokens and depth differ */
    const struct haystack *haystack;
};

/* How many tokens a sample takes, as the model reads it, with room for the answer. */
struct task_counter {
    enum status (*count)(void *user, const struct task_sample *s, int64_t *tokens);
    void *user;
};

/* The largest sample that the counter finds room for, nearly. ERR_INVALID: the question alone is longer; the user's text has too
 * little for the task. Destroy what comes out; on an error it is empty. */
enum status task_generate(const struct task_request *r, const struct task_counter *counter, struct task_sample *out);
void task_sample_destroy(struct task_sample *s);

/* The share of what is expected that the answer contains, as words of their own, in capitals or not; of numbers whether the
 * answer's first one is right. */
double task_score(const struct task_sample *s, const char *answer, size_t n);

#endif
