/* The optimizer update. */
#include "ops/adamw.h"

#include "base/blocks8.h"
#include "ops/ops.h"
#include "ops/rows.h"
#include "ops/simd.h"

#include <math.h>

struct scalars {
    float factor, decay, keep1, beta2, keep2, scale, eps, step; /* keep = 1 - beta */
};

/* elements at a time: their state is a few cache lines of each array */
enum { STEP = 32 };

/* Bytes fetched ahead by software: hardware prefetchers cannot follow four arrays that are read and three that are written. With
 * this the update runs at the rate of a plain stream, without it 8 to 15% below (bench/perf/bench_adamw.py). */
enum { AHEAD = 2048, CACHE_LINE = 64 };

static inline void prefetch(const void *x, int64_t bytes)
{
    for (int64_t at = 0; at < bytes; at += CACHE_LINE)
        __builtin_prefetch((const char *)x + AHEAD + at);
}

/* Returns the new parameter; *m and *v become the new moments. */
static inline float updated(float p, float grad, float *m, float *v, const struct scalars *c)
{
    float g = grad * c->factor;
    *m = fmaf(c->keep1, g - *m, *m);
    *v = fmaf(c->keep2 * g, g, c->beta2 * *v);
    float d = fmaf(sqrtf(*v), c->scale, c->eps);
    return fmaf(-c->step, *m / d, p * c->decay);
}

#define WEYL 0x9e3779b9u

/* Returns 32 random bits for an element. w: the element's term of the Weyl sequence (adamw.h). */
static inline uint32_t mixed(uint32_t w)
{
    w ^= w >> 14;
    return w * (2 * w + 0x7feb352du);
}

static inline void elements_f32(float *p, float *m, float *v, const float *grad, int n, const struct scalars *c)
{
#pragma omp simd
    for (int i = 0; i < n; i++)
        p[i] = updated(p[i], grad[i], &m[i], &v[i], c);
}

static inline uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

static inline float float_of(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}

/* Packs two moments of one kind, the first in the low half, after adding random bits to the halves that are cut off. NaN stays
 * NaN: as gradients are finite (else skip), a NaN is the CPU's own or came from bf16, and both have a zero low half. */
static inline uint32_t rounded(float f0, float f1, uint32_t random0, uint32_t random1)
{
    return (bits_of(f0) + random0) >> 16 | ((bits_of(f1) + random1) & 0xffff0000u);
}

/* Updates pairs of elements. A pair's two moments are the halves of one 32-bit word, so that vectors use the CPU's full width.
 * weyl: term of the first element (adamw.h). */
static inline void pairs_bf16(float *p, bf16 *m, bf16 *v, const float *grad, int n, uint32_t weyl, const struct scalars *c)
{
#pragma omp simd
    for (int i = 0; i < n; i++) {
        uint32_t mi, vi, x0 = mixed(weyl + 2 * WEYL * (uint32_t)i), x1 = mixed(weyl + WEYL + 2 * WEYL * (uint32_t)i);
        memcpy(&mi, m + 2 * i, 4);
        memcpy(&vi, v + 2 * i, 4);
        float m0 = float_of(mi << 16), m1 = float_of(mi & 0xffff0000u), v0 = float_of(vi << 16), v1 = float_of(vi & 0xffff0000u);
        p[2 * i] = updated(p[2 * i], grad[2 * i], &m0, &v0, c);
        p[2 * i + 1] = updated(p[2 * i + 1], grad[2 * i + 1], &m1, &v1, c);
        mi = rounded(m0, m1, (x0 ^ x0 >> 16) & 0xffffu, (x1 ^ x1 >> 16) & 0xffffu);
        vi = rounded(v0, v1, x0 >> 16, x1 >> 16);
        memcpy(m + 2 * i, &mi, 4);
        memcpy(v + 2 * i, &vi, 4);
    }
}

CLONES static void update_f32(float *p, float *m, float *v, const float *grad, int n, const struct scalars *s)
{
    const struct scalars c = *s;
    int i = 0;
    for (; i + STEP <= n; i += STEP) {
        prefetch(p + i, STEP * 4);
        prefetch(m + i, STEP * 4);
        prefetch(v + i, STEP * 4);
        prefetch(grad + i, STEP * 4);
        elements_f32(p + i, m + i, v + i, grad + i, STEP, &c);
    }
    elements_f32(p + i, m + i, v + i, grad + i, n - i, &c);
}

/* Updates n elements with bf16 moments. weyl: term of the first element. */
CLONES static void update_bf16(float *p, bf16 *m, bf16 *v, const float *grad, int n, uint32_t weyl, const struct scalars *s)
{
    const struct scalars c = *s;
    int i = 0;
    for (; i + STEP <= n; i += STEP) {
        prefetch(p + i, STEP * 4);
        prefetch(m + i, STEP * 2);
        prefetch(v + i, STEP * 2);
        prefetch(grad + i, STEP * 4);
        pairs_bf16(p + i, m + i, v + i, grad + i, STEP / 2, weyl + WEYL * (uint32_t)i, &c);
    }
    int left = n - i;
    if (left) {
        float pad_p[STEP] = {0}, pad_grad[STEP] = {0};
        bf16 pad_m[STEP] = {0}, pad_v[STEP] = {0};
        memcpy(pad_p, p + i, (size_t)left * 4);
        memcpy(pad_grad, grad + i, (size_t)left * 4);
        memcpy(pad_m, m + i, (size_t)left * 2);
        memcpy(pad_v, v + i, (size_t)left * 2);
        pairs_bf16(pad_p, pad_m, pad_v, pad_grad, STEP / 2, weyl + WEYL * (uint32_t)i, &c);
        memcpy(p + i, pad_p, (size_t)left * 4);
        memcpy(m + i, pad_m, (size_t)left * 2);
        memcpy(v + i, pad_v, (size_t)left * 2);
    }
}

/* Updates one block's elements with unpacked moments. */
CLONES static void update_block(float *p, float *m, float *v, const float *grad, int n, const struct scalars *s)
{
    const struct scalars c = *s;
    elements_f32(p, m, v, grad, n, &c);
}

/* Draws 16 random bits for each moment of n elements. weyl: term of the first element. */
CLONES static void random_halves(uint32_t weyl, int n, uint16_t *low, uint16_t *high)
{
#pragma omp simd
    for (int i = 0; i < n; i++) {
        const uint32_t x = mixed(weyl + WEYL * (uint32_t)i);
        low[i] = (uint16_t)(x ^ x >> 16);
        high[i] = (uint16_t)(x >> 16);
    }
}

/* Updates n elements with packed moments, from `at` on (a multiple of BLOCK8). all: number of elements that the moments are
 * packed for. */
static void update_i8(float *p, void *m, void *v, const float *grad, int64_t at, int64_t n, int64_t all, uint32_t weyl,
                      const struct scalars *s)
{
    float *scale_m = m, *scale_v = v, block_m[BLOCK8], block_v[BLOCK8];
    uint8_t *code_m = blocks8_codes(m, all), *code_v = blocks8_codes(v, all);
    uint16_t low[BLOCK8], high[BLOCK8];
    for (int64_t i = at; i < at + n; i += BLOCK8) {
        const int count = (int)min_i64(BLOCK8, at + n - i);
        blocks8_unpack_block(BLOCKS8_SIGNED, scale_m[i / BLOCK8], code_m + i, count, block_m);
        blocks8_unpack_block(BLOCKS8_SQUARES, scale_v[i / BLOCK8], code_v + i, count, block_v);
        update_block(p + i, block_m, block_v, grad + i, count, s);
        random_halves(weyl + WEYL * (uint32_t)i, count, low, high);
        scale_m[i / BLOCK8] = blocks8_pack_block(BLOCKS8_SIGNED, block_m, count, low, code_m + i);
        scale_v[i / BLOCK8] = blocks8_pack_block(BLOCKS8_SQUARES, block_v, count, high, code_v + i);
    }
}

/* The arrays of a group of elements. */
struct arrays {
    float *p;
    void *m, *v;
    const float *grad;
    enum dtype moments;
    uint32_t weyl; /* Weyl term of the first element */
    int64_t n;
};

static void update(const struct arrays *a, int64_t at, int64_t n, const struct scalars *s)
{
    if (a->moments == F32)
        update_f32(a->p + at, (float *)a->m + at, (float *)a->v + at, a->grad + at, (int)n, s);
    else if (a->moments == I8)
        update_i8(a->p, a->m, a->v, a->grad, at, n, a->n, a->weyl, s);
    else
        update_bf16(a->p + at, (bf16 *)a->m + at, (bf16 *)a->v + at, a->grad + at, (int)n, a->weyl + WEYL * (uint32_t)at, s);
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
    };
}

void ops_adamw(const struct adamw_shape *s, float *master, void *m, void *v, const float *grad, const struct norm_result *norm,
               const struct step_record *record, bf16 *param)
{
    const struct scalars plain = scalars_of(norm, record);
    struct scalars decaying = plain;
    decaying.decay = fmaf(-record->lr, record->weight_decay, 1.0f);
    const uint32_t number = (uint32_t)(s->first + record->member[s->group] * s->share);
    const struct arrays a = {master, m, v, grad, s->moments, number * WEYL + record->rounding, s->n};
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

enum status ops_cpu_adamw(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    struct adamw_shape s = {.n = a->vec.n,
                            .n_decay = a->vec.n_decay,
                            .first = a->vec.first,
                            .share = a->vec.share,
                            .moments = (enum dtype)a->vec.moments,
                            .group = a->vec.group};
    ops_adamw(&s, arg[0], arg[1], arg[2], arg[3], arg[4], arg[5], arg[6]);
    return OK;
}
