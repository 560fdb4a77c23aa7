/* Needs of short programs: what they keep busy, and what memory they take. Private to search. */
#ifndef LTRAIN_PLAN_SEARCH_MEASURE_H
#define LTRAIN_PLAN_SEARCH_MEASURE_H

#include "plan/lower/strategy.h"
#include "plan/search/problem.h"

enum { FORWARD, BACKWARD, PASSES };

/* Parts of a step. Within a part, the classes' memory needs add up; the part with the largest sum counts, since classes need most
 * memory in different parts. */
enum { PART_OTHER, PART_UPDATE, PART_FORWARD, PART_LOSS, PART_BACKWARD, PARTS };
enum { UNIT_NONE, UNIT_EMBEDDING, UNIT_LAYER, UNIT_LAST_LAYER, UNIT_HEAD, UNITS };
enum { MOMENTS = PARTS * UNITS };

/* Needs of a program, in terms that add up over layers and classes. */
struct need {
    double busy[PASSES][LANES];         /* seconds */
    double saved;                       /* part of busy that the forward pass spends on writing activations to drives */
    double persistent[TIERS];           /* bytes */
    double short_lived[MOMENTS][TIERS]; /* largest number of bytes at one time */
    double least_compute;               /* seconds of attention, and of products at the best rate */
    double instrs, buffers;
    double versions; /* largest version of a tensor */
};

/* Returns the larger number. fmax, which is a call, takes a thirtieth of planning. */
static inline double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Adds factor * b to a; both have n terms. */
void add_terms(double *a, double factor, const double *b, int n);
void need_add(struct need *a, double factor, const struct need *b);

/* A model of a few of the layers of a problem's model. */
struct subject {
    const struct problem *problem;
    const struct model *model;
    uint64_t hash; /* memo_model(model) */
};

/* Measures the program of s with these duties. Programs of many row chunks are not lowered: their needs are those of two programs
 * of a few chunks, and the difference for each further chunk.
 *
 * Returns ERR_NOFIT if the program is beyond a program's tables. */
enum status measure_need(const struct subject *x, const struct strategy *s, int duties, struct need *out);
/* Measures a program of many row chunks from samples alone. *known: 0 if there are no samples, or the needs do not
 * follow from them. */
enum status measure_sampled(const struct subject *x, const struct strategy *s, int duties, int *known, struct need *out);
/* Measures the whole program, however many chunks it has. */
enum status measure_whole(const struct subject *x, const struct strategy *s, int duties, struct need *out);

#endif
