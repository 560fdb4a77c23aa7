/* The tasks' generators: each writes a sample of a given size. Private to this folder. */
#ifndef LTRAIN_TASKS_GENERATORS_H
#define LTRAIN_TASKS_GENERATORS_H

#include "tasks/tasks.h"
#include "tasks/words.h"

/* Writes a sample with `size` sentences of the haystack, distractors, words or paragraphs. The dice draw all else, as far as
 * possible the same for all sizes. */
typedef enum status task_builder(const struct task_request *r, struct dice *d, int64_t size, struct task_sample *out);
task_builder task_build_needle, task_build_multi_needle, task_build_multikey, task_build_tracking, task_build_counting,
    task_build_aggregation, task_build_shuffled;

enum { TASK_PARAGRAPHS = 2 }; /* paragraphs in the smallest sample of TASK_SHUFFLED (size 0) */

/* A sentence to be put into a haystack, and its depth; depths do not decrease. */
struct planted {
    char text[512];
    double depth; /* percent */
};

/* Writes the prompt's context: `size` sentences of the haystack from a random one on, with the planted ones between them. */
enum status task_weave(const struct task_request *r, struct dice *d, int64_t size, const struct planted *planted, int n,
                       struct task_sample *out);
/* Returns the depth of the i-th of n things: the first at the request's depth, the others evenly between that and the end. */
double task_spread(const struct task_request *r, int i, int n);
/* Draws until the haystack does not contain the result. ERR_INVALID: it contains all that was drawn. */
enum status task_draw_new(const struct task_request *r, struct dice *d, void (*draw)(struct dice *d, char *out), char *out);
void task_expect(struct task_sample *out, const char *text);

#endif
