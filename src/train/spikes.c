#include "train/spikes.h"

#include "base/num.h"

#include <math.h>

/* Returns the deviations of x from n values; NaN: they are equal. */
static double deviations(const double *value, int64_t n, double x)
{
    double mean = value[0], squares = 0; /* exact where all are equal */
    for (int64_t i = 0; i < n; i++)
        mean += (value[i] - value[0]) / (double)n;
    for (int64_t i = 0; i < n; i++)
        squares += (value[i] - mean) * (value[i] - mean);
    return squares > 0 ? (x - mean) / sqrt(squares / (double)n) : NAN;
}

double spikes_add(struct spikes_series *s, double x)
{
    if (!isfinite(x))
        return NAN;
    const int64_t before = min_i64(s->n, SPIKES_WINDOW);
    const double above = before >= SPIKES_LEAST ? deviations(s->value, before, x) : NAN;
    s->value[s->n++ % SPIKES_WINDOW] = x;
    if (isfinite(above)) {
        s->judged++;
        s->spikes += above >= SPIKES_DEVIATIONS;
    }
    return above;
}
