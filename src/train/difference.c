/* How far a tensor is from what it should be. */
#include "train/difference.h"

#include <math.h>
#include <string.h>

static void add_few(struct difference *d, double square)
{
    int i = 0;
    for (; i + 1 < DIFFERENCE_FEW && d->few[i + 1] < square; i++)
        d->few[i] = d->few[i + 1];
    d->few[i] = square;
}

void difference_add(struct difference *d, int64_t first, int64_t n, const float *given, const float *alone, struct excuse excuse)
{
    for (int64_t i = 0; i < n; i++) {
        double a = given[i], b = alone[i], apart = fabs(a - b);
        d->unequal += memcmp(&given[i], &alone[i], sizeof *given) != 0;
        d->diff2 += apart * apart;
        const double explained = excuse.slack ? fmin(apart, excuse.slack[i]) : 0, turned = fmin(apart - explained, excuse.turn);
        d->slack2 += explained * explained;
        if (turned * turned > d->few[0])
            add_few(d, turned * turned);
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
    double turned2 = d->turned2;
    for (int i = 0; i < DIFFERENCE_FEW; i++)
        turned2 += d->few[i];
    return relative + (d->slack2 > 0 ? sqrt(d->slack2 / d->alone2) : 0) + (turned2 > 0 && d->alone2 > 0 ? sqrt(turned2 / d->alone2) : 0);
}

/* Times 10: noise is not spread evenly, and both moments carry it. */
void reach_add(const struct reach *r, const float *v, int64_t n, double mean, float *slack)
{
    double noise = 10 * r->relative * sqrt(mean / r->bias2);
    for (int64_t i = 0; i < n; i++)
        slack[i] += (float)(r->lr * fmin(2, noise / (sqrt((double)v[i] / r->bias2) + r->eps)));
}
