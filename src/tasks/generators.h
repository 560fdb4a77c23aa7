/* The tasks' generators: each writes a sample of a given size. Private to this folder. */
#ifndef LTRAIN_TASKS_GENERATORS_H
#define LTRAIN_TASKS_GENERATORS_H

#include "tasks/tasks.h"
#include "tasks/words.h"

/* Writes a sample with `size` units: sentences of the haystack, distractors, words or paragraphs, depending on the task. The dice
 * draw everything else, as far as possible the same for all sizes. */
typedef enum status task_builder(const struct task_request *r, struct dice *d, int64_t size, struct task_sample *out);
task_builder task_build_needle, task_build_multi_needle, task_build_multikey, task_build_tracking, task_build_counting,
    task_build_aggregation, task_build_shuffled;

enum { TASK_PARAGRAPHS = 2 }; /* paragraphs in the smallest sample of TASK_SHUFFLED (size 0) */

/* A sentence to be hidden in a haystack, and its depth; a list of these is in order of depth. */
struct planted {
    char text[512];
    double depth; /* share of the text before the sentence, in percent */
};

/* Writes the text in which to search: `size` consecutive sentences of the haystack, from a random one on, with the planted
 * sentences in between. */
enum status task_weave(const struct task_request *r, struct dice *d, int64_t size, const struct planted *planted, int n,
                       struct task_sample *out);
/* Returns the depth of thing i of n: the first at the request's depth, the others evenly spaced from there to the end. */
double task_spread(const struct task_request *r, int i, int n);
/* Draws again and again until the haystack does not contain the drawn text. ERR_INVALID: it contains everything that was drawn. */
enum status task_draw_new(const struct task_request *r, struct dice *d, void (*draw)(struct dice *d, char *out), char *out);
void task_expect(struct task_sample *out, const char *text);

#endif
