/* The optimizer update. */
#include "ops/adamw.h"

#include "ops/rows.h"
#include "ops/simd.h"

#include <math.h>

struct scalars {
    float factor, decay, keep1, beta2, keep2, root, eps, step; /* keep = 1 - beta */
};

/* The state of that many elements is a few cache lines of each array. */
enum { STEP = 32 };

/* Bytes. The hardware's prefetchers lag behind four arrays that are read and three that are written: asking for the lines of the
 * iterations to come reaches the rate of a plain stream (bench/bench_adamw.py; without: 8 to 15% below it). */
enum { AHEAD = 2048, CACHE_LINE = 64 };

static inline void prefetch(const void *x, int64_t bytes)
{
    for (int64_t at = 0; at < bytes; at += CACHE_LINE)
        __builtin_prefetch((const char *)x + AHEAD + at);
}

static inline void elements(float *p, float *m, float *v, const float *grad, int64_t n, const struct scalars *s)
{
    const struct scalars c = *s;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] * c.factor;
        float mi = fmaf(c.keep1, g - m[i], m[i]);
        float vi = fmaf(c.keep2 * g, g, c.beta2 * v[i]);
        float d = sqrtf(vi) / c.root + c.eps;
        p[i] = fmaf(-c.step, mi / d, p[i] * c.decay);
        m[i] = mi;
        v[i] = vi;
    }
}

CLONES static void update(float *p, float *m, float *v, const float *grad, int64_t n, const struct scalars *s)
{
    int64_t i = 0;
    for (; i + STEP <= n; i += STEP) {
        prefetch(p + i, STEP * 4);
        prefetch(m + i, STEP * 4);
        prefetch(v + i, STEP * 4);
        prefetch(grad + i, STEP * 4);
        elements(p + i, m + i, v + i, grad + i, STEP, s);
    }
    elements(p + i, m + i, v + i, grad + i, n - i, s);
}

void ops_adamw(float *master, float *m, float *v, const float *grad, const struct norm_result *norm,
               const struct step_record *record, bf16 *param, int64_t n, int64_t n_decay)
{
    struct scalars plain = {
        .factor = norm->factor,
        .decay = 1.0f,
        .keep1 = 1.0f - record->beta1,
        .beta2 = record->beta2,
        .keep2 = 1.0f - record->beta2,
        .root = sqrtf(record->bias2),
        .eps = record->eps,
        .step = record->lr / record->bias1,
    };
    struct scalars decaying = plain;
    decaying.decay = fmaf(-record->lr, record->weight_decay, 1.0f);
    int skip = norm->skip;
#pragma omp parallel for schedule(static) if (n > ROWS_SERIAL)
    for (int64_t b = 0; b < ceil_div(n, ROWS_BLOCK); b++) {
        int64_t at = b * ROWS_BLOCK, count = rows_block_size(b, n);
        int64_t first = max_i64(0, min_i64(count, n_decay - at)); /* elements of this block that decay */
        if (!skip) {
            update(master + at, m + at, v + at, grad + at, first, &decaying);
            at += first;
            update(master + at, m + at, v + at, grad + at, count - first, &plain);
            at -= first;
        }
        if (param)
            rows_to_bf16(param + at, master + at, count);
    }
}
