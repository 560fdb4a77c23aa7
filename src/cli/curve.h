/* A run's losses at a bounded number of points. Private to src/cli. */
#ifndef LTRAIN_CLI_CURVE_H
#define LTRAIN_CLI_CURVE_H

#include <stdint.h>

enum { CURVE_POINTS = 1024 }; /* more than a terminal has columns */

/* Means of `each` steps; the last point may have fewer. */
struct loss_curve {
    double sum[CURVE_POINTS];
    int64_t count[CURVE_POINTS]; /* finite values in the sum */
    int64_t each, steps;
};

/* Adds a step's value; NaN and infinities take a place without a value. */
void curve_add(struct loss_curve *c, double value);
/* Spreads the curve over at most `columns` columns and returns how many it takes. out: means; NaN: no value. */
int curve_columns(const struct loss_curve *c, int columns, double *out);

#endif
