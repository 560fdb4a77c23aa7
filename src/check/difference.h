/* Distance of a tensor from its expected value. Private to src/check. */
#ifndef LTRAIN_CHECK_DIFFERENCE_H
#define LTRAIN_CHECK_DIFFERENCE_H

#include <stdint.h>

/* Number of elements, anywhere in a tensor, whose moments the two runs may round in different directions; in a small tensor at
 * most one in DIFFERENCE_SHARE, or one. */
enum { DIFFERENCE_FEW = 8, DIFFERENCE_SHARE = 8 };

struct difference {
    int64_t n, unequal;           /* elements compared; those with other bits */
    double diff2, given2, alone2; /* sums of squares: of the differences, and of either side */
    double most;                  /* largest absolute difference; NaN once there was one */
    int64_t at;                   /* element with the largest difference, and its values */
    float given, alone;
    int rank, like; /* the first rank whose copy is not that on rank `like`, which is 0 for what every rank has; 0: none */
    double slack2;  /* sum of squares of the differences that rounding explains beyond the relative tolerance */
    /* sum of squares of the differences explained by moments that the two runs rounded in different directions, in many elements;
     * set by the caller */
    double turned2;
    double few[DIFFERENCE_FEW]; /* largest squares of differences by such moments in a few elements, ascending */
    double first_order;         /* sum of gradient times difference: first-order change of the loss */
    double felt2, weight2;      /* sums of squares: gradient times difference, and gradient times the reference run's value */
};

/* Allowed difference: `slack` by element (NULL: none), and `turn` more for a few elements. */
struct excuse {
    const float *slack;
    double turn;
};
/* Adds elements [first, first + n) of the tensor. excuse.slack begins with the first of them. */
void difference_add(struct difference *d, int64_t first, int64_t n, const float *given, const float *alone, struct excuse excuse);
/* Adds to first_order, felt2 and weight2 the effect of n parameters' differences on loss and gradients. */
void difference_add_felt(struct difference *d, int64_t n, const float *given, const float *alone, const float *gradient);
/* Returns the relative L2 difference. A tensor with an L2 norm below `floor` is measured by `floor`, as its own norm may be mere
 * rounding. Returns infinity if both are 0. */
double difference_relative(const struct difference *d, double floor);
/* Returns the allowed relative L2 difference: `relative`, the slack, and what moments rounded in different directions explain. */
double difference_allowed(const struct difference *d, double relative);

/* Reach of an update. AdamW moves an element by lr times m / (sqrt(v) + eps), about 1 for any gradient. If the gradient is near
 * rounding noise, two right runs move the element apart by at most twice lr. */
struct reach {
    double lr;       /* learning rate of the update */
    double relative; /* L2 difference of the gradients */
    double eps, bias2;
};
/* Adds the slack of one update to the slack of n elements. v: their second moments after the update; mean: average v of the
 * tensor. Slack is added at every update, since the last v alone does not show elements whose first gradients were noise, so that
 * they moved apart at that time. */
void reach_add(const struct reach *r, const float *v, int64_t n, double mean, float *slack);

#endif
