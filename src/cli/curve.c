#include "cli/curve.h"

#include "base/num.h"

#include <math.h>

/* Makes one point of each two. */
static void halve(struct loss_curve *c)
{
    for (int i = 0; i < CURVE_POINTS; i++) {
        const int from = 2 * i;
        c->sum[i] = from < CURVE_POINTS ? c->sum[from] + c->sum[from + 1] : 0;
        c->count[i] = from < CURVE_POINTS ? c->count[from] + c->count[from + 1] : 0;
    }
    c->each *= 2;
}

void curve_add(struct loss_curve *c, double value)
{
    c->each = max_i64(1, c->each);
    if (c->steps == CURVE_POINTS * c->each)
        halve(c);
    const int64_t i = c->steps++ / c->each;
    c->sum[i] += isfinite(value) ? value : 0;
    c->count[i] += isfinite(value) != 0;
}

int curve_columns(const struct loss_curve *c, int columns, double *out)
{
    const int64_t points = c->steps == 0 ? 0 : (c->steps - 1) / c->each + 1;
    const int n = (int)min_i64(points, columns);
    for (int k = 0; k < n; k++) {
        double sum = 0;
        int64_t count = 0;
        for (int64_t i = k * points / n; i < (k + 1) * points / n; i++) {
            sum += c->sum[i];
            count += c->count[i];
        }
        out[k] = count > 0 ? sum / (double)count : NAN;
    }
    return n;
}
