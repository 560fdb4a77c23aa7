/* Looking for numbers that are not finite, by their exponents and without branches inside a block, so that compilers vectorise
 * it. */
#include "base/finite.h"

#include "base/num.h"

#include <math.h>

enum { BLOCK = 1024 }; /* values of a block, which fits the first-level cache */

static int is_finite(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (bits & 0x7f800000u) != 0x7f800000u;
}

int64_t finite_until(const float *x, int64_t n)
{
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t end = min_i64(n, at + BLOCK);
        int all = 1;
        for (int64_t i = at; i < end; i++)
            all &= is_finite(x[i]);
        for (int64_t i = at; i < end && !all; i++)
            if (!is_finite(x[i]))
                return i;
    }
    return n;
}

const char *finite_word(float x)
{
    return isnan(x) ? "NaN" : x > 0 ? "Inf" : "-Inf";
}
