/* Generated tasks of long contexts: a text in which something is to be found, a question, and strings that an answer must
 * contain.
 *
 * The wording is RULER's (Hsieh et al. 2024) where it has the task; docs/evaluation.md describes them. A sample depends on its
 * request alone: equal requests give equal texts. */
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
    TASK_COUNTING,     /* the number of times a sentence occurs */
    TASK_AGGREGATION,  /* the most frequent words */
    TASK_SHUFFLED,     /* the paragraph, of the user's shuffled ones, that has some words */
    TASKS
};

const char *task_name(enum task t);
enum task task_find(const char *name); /* TASKS: no task has that name */
int task_has_depth(enum task t);       /* 1: the thing to be found has a place */

enum { TASK_EXPECTED = 8, TASK_EXPECTED_BYTES = 32 };

struct task_sample {
    struct text_buffer prompt; /* up to the question's end */
    struct text_buffer lead;   /* given beginning of the answer: " The special magic number for ... is" */
    struct text_buffer answer; /* continuation of a right answer */
    char expected[TASK_EXPECTED][TASK_EXPECTED_BYTES];
    int n_expected;
    int is_number;                     /* 1: the first number of an answer counts */
    size_t context, end;               /* prompt[context, end): the text in which to search */
    size_t planted[2 * TASK_EXPECTED]; /* offsets in the prompt of the things to be found, ascending */
    int n_planted;
    double depth; /* share of the other text before the first of these, in percent */
    int64_t size; /* sentences of the haystack, distractors, words or paragraphs: the measure by which the text was fitted */
    int repeats;  /* 1: the haystack is longer than the user's text */
};

struct task_request {
    enum task task;
    int64_t tokens; /* most tokens by the counter */
    double depth;   /* 0 to 100; ignored by tasks without a depth */
    uint64_t seed;
    int64_t number; /* number of the sample: others of the same task, tokens and depth differ */
    const struct haystack *haystack;
};

/* A counter of the tokens of a sample as the model reads it, with room for the answer. */
struct task_counter {
    enum status (*count)(void *user, const struct task_sample *s, int64_t *tokens);
    void *user;
};

/* Generates nearly the largest sample that fits by the counter. ERR_INVALID: the question alone is longer, or the user's text has
 * too little for the task. The caller destroys *out, which is empty on an error. */
enum status task_generate(const struct task_request *r, const struct task_counter *counter, struct task_sample *out);
void task_sample_destroy(struct task_sample *s);

/* Returns the share of the expected strings that the answer contains, as whole words and in any case; for numbers, whether the
 * answer's first number is right. */
double task_score(const struct task_sample *s, const char *answer, size_t n);

#endif
