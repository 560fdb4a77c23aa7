/* How far a tensor is from what it should be. */
#include "train/difference.h"

#include <math.h>
#include <string.h>

void difference_add(struct difference *d, int64_t first, int64_t n, const float *given, const float *alone)
{
    for (int64_t i = 0; i < n; i++) {
        double a = given[i], b = alone[i], apart = fabs(a - b);
        d->unequal += memcmp(&given[i], &alone[i], sizeof *given) != 0;
        d->diff2 += apart * apart;
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
    return relative + (d->slack > 0 ? d->slack / sqrt(d->alone2) : 0);
}

/* Times 10: noise is not spread evenly, and both moments carry it. Measured are up to an eighth of what this allows (tiny and
 * adapters of tiny models in bf16, 2 and 4 ranks, 3 and 6 steps). */
double reach_slack(const struct reach *r, const float *v, int64_t n, double mean)
{
    double sum = 0, noise = 10 * r->relative * sqrt(mean / r->bias2);
    for (int64_t i = 0; i < n; i++) {
        double apart = r->lr * fmin(2, noise / (sqrt((double)v[i] / r->bias2) + r->eps));
        sum += apart * apart;
    }
    return sum;
}
