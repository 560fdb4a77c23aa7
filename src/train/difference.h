/* How far a tensor is from what it should be. Private to src/train. */
#ifndef LTRAIN_TRAIN_DIFFERENCE_H
#define LTRAIN_TRAIN_DIFFERENCE_H

#include <stdint.h>

/* Elements of a tensor, any of them, whose moments may have rounded to their other neighbours; of a small tensor that share, or one. */
enum { DIFFERENCE_FEW = 8, DIFFERENCE_SHARE = 8 };

struct difference {
    int64_t n, unequal;           /* elements compared; those with other bits */
    double diff2, given2, alone2; /* sums of squares: of the differences, and of either side */
    double most;                  /* largest absolute difference; NaN once there was one */
    int64_t at;                   /* the element that has it, and its values */
    float given, alone;
    int rank;      /* the first rank whose copy is not rank 0's; 0: none */
    double slack2; /* sum of squares of what rounding explains of the differences beyond the relative tolerance */
    double turned2; /* the same of moments that rounded to their other neighbours, where many did: the caller's */
    double few[DIFFERENCE_FEW]; /* the largest squares of what a few of these explain, ascending */
    double first_order;         /* sum of gradient times difference: how far a loss follows */
    double felt2, weight2;      /* sums of squares: gradient times difference, and gradient times what the run alone has */
};

/* What may have moved elements apart: each as far as `slack` says (NULL: not at all), and a few, whichever, by `turn` more. */
struct excuse {
    const float *slack;
    double turn;
};
/* Elements [first, first + n) of the tensor; excuse: of the first of them. */
void difference_add(struct difference *d, int64_t first, int64_t n, const float *given, const float *alone, struct excuse excuse);
/* What loss and gradients feel of n parameters' differences: adds to first_order, felt2, weight2. */
void difference_add_felt(struct difference *d, int64_t n, const float *given, const float *alone, const float *gradient);
/* Relative L2 difference; a tensor whose L2 norm is below `floor` is measured by that (its own may be mere rounding). Infinite if
 * there is nothing to measure by. */
double difference_relative(const struct difference *d, double floor);
/* What the relative L2 difference may be: `relative`, the slack, and moments that rounded to other neighbours. */
double difference_allowed(const struct difference *d, double relative);

/* An update of AdamW moves an element by lr times m / (sqrt(v) + eps), which is about 1 whatever its gradient's size: where that
 * is near rounding noise, two right answers move it apart, by twice lr at most. */
struct reach {
    double lr;       /* of the update */
    double relative; /* L2 difference of the gradients */
    double eps, bias2;
};
/* Adds the slack of one update to that of n elements: v are their second moments after it, of a tensor whose v are `mean` on
 * average. v of the last update alone does not tell: an element whose first gradient was noise was moved apart then, and its
 * later gradients hide that in v. */
void reach_add(const struct reach *r, const float *v, int64_t n, double mean, float *slack);

#endif
