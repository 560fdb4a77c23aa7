/* How far a tensor is from what it should be. */
#include "train/difference.h"

#include <math.h>
#include <string.h>

void difference_add(struct difference *d, int64_t first, int64_t n, const float *given, const float *alone, const float *slack)
{
    for (int64_t i = 0; i < n; i++) {
        double a = given[i], b = alone[i], apart = fabs(a - b);
        d->unequal += memcmp(&given[i], &alone[i], sizeof *given) != 0;
        d->diff2 += apart * apart;
        if (slack)
            d->slack2 += fmin(apart, slack[i]) * fmin(apart, slack[i]);
        d->given2 += a * a;
        d->alone2 += b * b;
        if (isnan(d->most) || (apart <= d->most && d->n + i > 0))
            continue;
        d->most = apart;
        d->at = first + i;
        d->given = given[i];
        d->alone = alone[i];
    }
    d->n += n;
}

double difference_relative(const struct difference *d, double floor)
{
    double by = fmax(sqrt(d->alone2), floor);
    if (d->diff2 == 0)
        return 0;
    return by > 0 ? sqrt(d->diff2) / by : isnan(d->diff2) ? NAN : INFINITY;
}

double difference_allowed(const struct difference *d, double relative)
{
    return relative + (d->slack2 > 0 ? sqrt(d->slack2 / d->alone2) : 0);
}

/* Times 10: noise is not spread evenly, and both moments carry it. */
void reach_add(const struct reach *r, const float *v, int64_t n, double mean, float *slack)
{
    double noise = 10 * r->relative * sqrt(mean / r->bias2);
    for (int64_t i = 0; i < n; i++)
        slack[i] += (float)(r->lr * fmin(2, noise / (sqrt((double)v[i] / r->bias2) + r->eps)));
}
