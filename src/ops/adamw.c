/* The optimizer update. */
#include "ops/adamw.h"

#include "ops/rows.h"
#include "ops/simd.h"

#include <math.h>

struct scalars {
    float factor, decay, keep1, beta2, keep2, scale, eps, step; /* keep = 1 - beta */
    uint32_t rounding;
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

/* The new parameter; *m and *v become the new moments. */
static inline float updated(float p, float grad, float *m, float *v, const struct scalars *c)
{
    float g = grad * c->factor;
    *m = fmaf(c->keep1, g - *m, *m);
    *v = fmaf(c->keep2 * g, g, c->beta2 * *v);
    float d = fmaf(sqrtf(*v), c->scale, c->eps);
    return fmaf(-c->step, *m / d, p * c->decay);
}

static inline void elements_f32(float *p, float *m, float *v, const float *grad, int n, const struct scalars *s)
{
    const struct scalars c = *s;
#pragma omp simd
    for (int i = 0; i < n; i++)
        p[i] = updated(p[i], grad[i], &m[i], &v[i], &c);
}

static inline uint32_t hash(uint32_t x)
{
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

/* random: 16 bits. A NaN cannot become a number: gradients are finite (else skip), so it is the processor's own or was one in
 * bf16, and the low half of either is zero. */
static inline bf16 rounded(float f, uint32_t random)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return (bf16)((u + random) >> 16);
}

/* number: the first element's in the model. */
static inline void elements_bf16(float *p, bf16 *m, bf16 *v, const float *grad, int n, uint32_t number, const struct scalars *s)
{
    const struct scalars c = *s;
#pragma omp simd
    for (int i = 0; i < n; i++) {
        float mi = bf16_to_float(m[i]), vi = bf16_to_float(v[i]);
        uint32_t x = hash((number + (uint32_t)i) ^ c.rounding);
        p[i] = updated(p[i], grad[i], &mi, &vi, &c);
        m[i] = rounded(mi, x & 0xffffu);
        v[i] = rounded(vi, x >> 16);
    }
}

CLONES static void update_f32(float *p, float *m, float *v, const float *grad, int n, const struct scalars *s)
{
    int i = 0;
    for (; i + STEP <= n; i += STEP) {
        prefetch(p + i, STEP * 4);
        prefetch(m + i, STEP * 4);
        prefetch(v + i, STEP * 4);
        prefetch(grad + i, STEP * 4);
        elements_f32(p + i, m + i, v + i, grad + i, STEP, s);
    }
    elements_f32(p + i, m + i, v + i, grad + i, n - i, s);
}

CLONES static void update_bf16(float *p, bf16 *m, bf16 *v, const float *grad, int n, uint32_t number, const struct scalars *s)
{
    int i = 0;
    for (; i + STEP <= n; i += STEP) {
        prefetch(p + i, STEP * 4);
        prefetch(m + i, STEP * 2);
        prefetch(v + i, STEP * 2);
        prefetch(grad + i, STEP * 4);
        elements_bf16(p + i, m + i, v + i, grad + i, STEP, number + (uint32_t)i, s);
    }
    elements_bf16(p + i, m + i, v + i, grad + i, n - i, number + (uint32_t)i, s);
}

/* What a group of elements has in common. */
struct arrays {
    float *p;
    void *m, *v;
    const float *grad;
    enum dtype moments;
    uint32_t number; /* of the first element */
};

static void update(const struct arrays *a, int64_t at, int64_t n, const struct scalars *s)
{
    if (a->moments == F32)
        update_f32(a->p + at, (float *)a->m + at, (float *)a->v + at, a->grad + at, (int)n, s);
    else
        update_bf16(a->p + at, (bf16 *)a->m + at, (bf16 *)a->v + at, a->grad + at, (int)n, a->number + (uint32_t)at, s);
}

static struct scalars scalars_of(const struct norm_result *norm, const struct step_record *record)
{
    return (struct scalars){
        .factor = norm->factor,
        .decay = 1.0f,
        .keep1 = 1.0f - record->beta1,
        .beta2 = record->beta2,
        .keep2 = 1.0f - record->beta2,
        .scale = 1.0f / sqrtf(record->bias2),
        .eps = record->eps,
        .step = record->lr / record->bias1,
        .rounding = record->rounding,
    };
}

void ops_adamw(const struct adamw_shape *s, float *master, void *m, void *v, const float *grad, const struct norm_result *norm,
               const struct step_record *record, bf16 *param)
{
    const struct scalars plain = scalars_of(norm, record);
    struct scalars decaying = plain;
    decaying.decay = fmaf(-record->lr, record->weight_decay, 1.0f);
    const struct arrays a = {master, m, v, grad, s->moments, (uint32_t)(s->first + record->rank * s->share)};
    int skip = norm->skip;
#pragma omp parallel for schedule(static) if (s->n > ROWS_SERIAL)
    for (int64_t b = 0; b < ceil_div(s->n, ROWS_BLOCK); b++) {
        int64_t at = b * ROWS_BLOCK, count = rows_block_size(b, s->n);
        int64_t first = max_i64(0, min_i64(count, s->n_decay - at)); /* elements of this block that decay */
        if (!skip) {
            update(&a, at, first, &decaying);
            update(&a, at + first, count - first, &plain);
        }
        if (param)
            rows_to_bf16(param + at, master + at, count);
    }
}
