/* Spikes of loss and gradient norm: how far a step's lie above those of the steps before. Private to src/train. */
#ifndef LTRAIN_TRAIN_SPIKES_H
#define LTRAIN_TRAIN_SPIKES_H

#include <stdint.h>

enum {
    SPIKES_WINDOW = 1000, /* most steps that a step is compared with */
    SPIKES_LEAST = 32,    /* fewest: deviations of fewer steps say little */
};
#define SPIKES_DEVIATIONS 7.0 /* standard deviations above the mean from which on a step is a spike */

/* The newest finite values of a series. */
struct spikes_series {
    double value[SPIKES_WINDOW];
    int64_t n;              /* values so far; value[i % SPIKES_WINDOW] is number i */
    int64_t judged, spikes; /* values that had enough before them; spikes among them */
};

struct spikes {
    struct spikes_series loss, norm;
};

/* Returns by how many standard deviations x lies above the mean of the values before, and adds it to them. NaN: it is not finite,
 * or there are too few before, or all are equal. */
double spikes_add(struct spikes_series *s, double x);

#endif
