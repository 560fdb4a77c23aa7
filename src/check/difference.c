/* Distance of a tensor from its expected value. */
#include "check/difference.h"

#include "base/num.h"

#include <math.h>
#include <string.h>

static void add_few(struct difference *d, double square)
{
    int i = 0;
    for (; i + 1 < DIFFERENCE_FEW && d->few[i + 1] < square; i++)
        d->few[i] = d->few[i + 1];
    d->few[i] = square;
}

/* Returns the sum of squares of n elements, in partial sums that do not wait for each other. */
static double squares(int64_t n, const float *x)
{
    enum { SUMS = 8 };
    double sum[SUMS] = {0};
    int64_t i = 0;
    for (; i + SUMS <= n; i += SUMS)
        for (int k = 0; k < SUMS; k++)
            sum[k] += (double)x[i + k] * x[i + k];
    for (; i < n; i++)
        sum[0] += (double)x[i] * x[i];
    for (int k = 1; k < SUMS; k++)
        sum[0] += sum[k];
    return sum[0];
}

/* Adds elements if both sides have the same bits and are finite; returns 0 and adds none otherwise. */
static int add_equal(struct difference *d, int64_t first, int64_t n, const float *given, const float *alone)
{
    if (n == 0 || memcmp(given, alone, (size_t)n * sizeof *given) != 0)
        return 0;
    const double square = squares(n, given);
    if (!isfinite(square))
        return 0;
    if (d->n == 0) {
        d->at = first;
        d->given = given[0];
        d->alone = alone[0];
    }
    d->given2 += square;
    d->alone2 += square;
    d->n += n;
    return 1;
}

void difference_add(struct difference *d, int64_t first, int64_t n, const float *given, const float *alone, struct excuse excuse)
{
    if (add_equal(d, first, n, given, alone))
        return;
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

void difference_add_felt(struct difference *d, int64_t n, const float *given, const float *alone, const float *gradient)
{
    for (int64_t i = 0; i < n; i++) {
        const double felt = gradient[i] * ((double)given[i] - (double)alone[i]), weight = (double)gradient[i] * alone[i];
        d->first_order += felt;
        d->felt2 += felt * felt;
        d->weight2 += weight * weight;
    }
}

double difference_relative(const struct difference *d, double floor)
{
    double by = fmax(sqrt(d->alone2), floor);
    if (d->diff2 == 0)
        return 0;
    return by > 0 ? sqrt(d->diff2) / by : isnan(d->diff2) ? NAN : INFINITY;
}

/* Factor on the slack. Noise in bf16 has long tails: in right runs a few elements exceed `slack`, with up to a fifth of the sum
 * of squares. */
#define SLACK_TAIL 1.5

double difference_allowed(const struct difference *d, double relative)
{
    const int64_t few = max_i64(1, min_i64(DIFFERENCE_FEW, d->n / DIFFERENCE_SHARE));
    double turned2 = d->turned2;
    for (int64_t i = DIFFERENCE_FEW - few; i < DIFFERENCE_FEW; i++)
        turned2 += d->few[i];
    return relative + (d->slack2 > 0 ? SLACK_TAIL * sqrt(d->slack2 / d->alone2) : 0) +
           (turned2 > 0 && d->alone2 > 0 ? sqrt(turned2 / d->alone2) : 0);
}

/* Multiplies the relative difference by 10, since noise is not spread evenly over elements and both moments have noise. */
void reach_add(const struct reach *r, const float *v, int64_t n, double mean, float *slack)
{
    double noise = 10 * r->relative * sqrt(mean / r->bias2);
    for (int64_t i = 0; i < n; i++)
        slack[i] += (float)(r->lr * fmin(2, noise / (sqrt((double)v[i] / r->bias2) + r->eps)));
}
