/* Generated tasks of long contexts: a text in which something is to be found, a question, and strings that the answer must
 * contain.
 *
 * The wording is RULER's (Hsieh et al. 2024) for tasks that RULER has; docs/evaluation.md describes all. A sample depends on its
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
    TASK_MULTI_NEEDLE, /* several sentences, all of which are asked for */
    TASK_MULTIKEY,     /* one sentence among others of the same form with other keys */
    TASK_TRACKING,     /* variables that get a value through other variables */
    TASK_COUNTING,     /* the number of times a sentence occurs */
    TASK_AGGREGATION,  /* the most frequent words */
    TASK_SHUFFLED,     /* number of the paragraph, among the user's shuffled ones, that has certain words */
    TASKS
};

const char *task_name(enum task t);
enum task task_find(const char *name); /* returns TASKS if no task has that name */
int task_has_depth(enum task t);       /* 1: the depth at which the thing to be found is hidden can be chosen */

enum { TASK_EXPECTED = 8, TASK_EXPECTED_BYTES = 32 };

struct task_sample {
    struct text_buffer prompt; /* the prompt up to the question's end */
    struct text_buffer lead;   /* beginning of the answer that is given with the prompt: " The special magic number for ... is" */
    struct text_buffer answer; /* text with which a right answer continues */
    char expected[TASK_EXPECTED][TASK_EXPECTED_BYTES];
    int n_expected;
    int is_number;                     /* 1: the answer is a number: the first number of a given answer counts */
    size_t context, end;               /* prompt[context, end): the text in which to search */
    size_t planted[2 * TASK_EXPECTED]; /* offsets in the prompt of the things to be found, ascending */
    int n_planted;
    double depth; /* share of the context's other text that stands before the first planted thing, in percent */
    /* number of sentences of the haystack, distractors, words or paragraphs, by which the sample was fitted to its length */
    int64_t size;
    int repeats; /* 1: the haystack is longer than the user's text */
};

struct task_request {
    enum task task;
    int64_t tokens; /* most tokens of the sample, as the counter counts them */
    double depth;   /* depth of the thing to be found, 0 to 100 percent; ignored by tasks without a depth */
    uint64_t seed;
    int64_t number; /* number of the sample; different numbers give different samples of the same task, tokens and depth */
    const struct haystack *haystack;
};

/* Counter of a sample's tokens as the model reads it, with room for the answer added. */
struct task_counter {
    enum status (*count)(void *user, const struct task_sample *s, int64_t *tokens);
    void *user;
};

/* Generates a sample that is nearly the largest that fits by the counter. ERR_INVALID: the question alone is too long, or the
 * user's text is too short for the task. The caller destroys *out, which is empty on an error. */
enum status task_generate(const struct task_request *r, const struct task_counter *counter, struct task_sample *out);
void task_sample_destroy(struct task_sample *s);

/* Returns the share of the expected strings that the answer contains as whole words, capitals or not. If the answer is a number:
 * 1 if the answer's first number is right, else 0. */
double task_score(const struct task_sample *s, const char *answer, size_t n);

#endif
