/* Deterministic mixes of documents: fills the mask `lo` of packed documents. */
#ifndef TESTS_SEQPAR_MIXES_H
#define TESTS_SEQPAR_MIXES_H

#include "base/num.h"
#include "base/rng.h"

#include <math.h>

enum mix {
    MIX_ONE,        /* one document */
    MIX_LOGNORMAL,  /* lognormal lengths with median 8k, sigma 1.5 */
    MIX_BOOKS,      /* lognormal lengths with median 100k, sigma 0.6 */
    MIX_HALF_ONE,   /* one document in the first half, web documents in the second */
    MIX_EIGHTH_ONE, /* one document of 12%, web documents in the rest */
    MIX_WEB,        /* lognormal lengths with median 600, sigma 1.2 */
    MIX_WINDOW_4K,  /* one document with sliding windows */
    MIX_WINDOW_64K,
    MIX_BOOKS_WINDOW, /* like MIX_BOOKS, with windows of 16k */
    MIXES
};

static const char *const mix_names[MIXES] = {"one document",
                                             "lognormal, median 8k, sigma 1.5",
                                             "lognormal, median 100k, sigma 0.6",
                                             "half one document, half web",
                                             "12% one document, rest web",
                                             "web: median 600, sigma 1.2",
                                             "one document, window 4k",
                                             "one document, window 64k",
                                             "median 100k, window 16k"};

/* Packs documents of lognormal lengths from token `at` on. */
static inline void mix_pack(int32_t *lo, int64_t at, int64_t end, double median, double sigma, uint64_t seed)
{
    uint64_t stream = rng_stream("document lengths");
    for (uint64_t i = 0; at < end; i++) {
        float z;
        rng_normals(seed, stream, i, 1, &z);
        int64_t stop = min_i64(end, at + max_i64(1, (int64_t)llround(median * exp(sigma * (double)z))));
        for (int64_t start = at; at < stop; at++)
            lo[at] = (int32_t)start;
    }
}

static inline void mix_window(int32_t *lo, int64_t n, int64_t window)
{
    for (int64_t q = 0; q < n; q++)
        lo[q] = (int32_t)max_i64(lo[q], q - window + 1);
}

static inline void mix_fill(enum mix mix, int64_t n, uint64_t seed, int32_t *lo)
{
    int64_t one = mix == MIX_HALF_ONE ? n / 2 : mix == MIX_EIGHTH_ONE ? n * 12 / 100 : n;
    if (mix == MIX_LOGNORMAL || mix == MIX_BOOKS || mix == MIX_WEB || mix == MIX_BOOKS_WINDOW)
        one = 0;
    for (int64_t q = 0; q < one; q++)
        lo[q] = 0;
    double median = mix == MIX_LOGNORMAL ? 8192 : mix == MIX_BOOKS || mix == MIX_BOOKS_WINDOW ? 100e3 : 600;
    double sigma = mix == MIX_LOGNORMAL ? 1.5 : mix == MIX_BOOKS || mix == MIX_BOOKS_WINDOW ? 0.6 : 1.2;
    mix_pack(lo, one, n, median, sigma, seed);
    if (mix == MIX_WINDOW_4K || mix == MIX_WINDOW_64K || mix == MIX_BOOKS_WINDOW)
        mix_window(lo, n, mix == MIX_WINDOW_4K ? 4096 : mix == MIX_WINDOW_64K ? 65536 : 16384);
}

#endif
