/* Looking for numbers that are not finite. */
#ifndef LTRAIN_BASE_FINITE_H
#define LTRAIN_BASE_FINITE_H

#include <stdint.h>

/* Returns the index of the first of n values that is NaN or infinite; n if all are finite. */
int64_t finite_until(const float *x, int64_t n);
/* Returns "NaN", "Inf" or "-Inf". */
const char *finite_word(float x);

#endif
