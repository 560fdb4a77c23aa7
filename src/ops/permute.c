/* Sorting pairs by expert, and sums of pairs. */
#include "ops/permute.h"

#include "ops/ops.h"
#include "ops/route.h"
#include "ops/simd.h"

#include <math.h>

/* Sorts on one thread: beside products of all pairs it takes a few thousandths of their time. */
enum status ops_permute(int64_t n, int32_t experts, int32_t *order, int32_t *place, int32_t *offsets, const int32_t *ids)
{
    int32_t next[ROUTE_EXPERTS + 1] = {0};
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= experts)
            return status_fail(ERR_CORRUPT, "token %lld chose expert %d, but experts are numbered from 0 to %d", (long long)i,
                               ids[i], experts - 1);
        next[ids[i] + 1]++;
    }
    for (int32_t e = 0; e < experts; e++)
        next[e + 1] += next[e];
    memcpy(offsets, next, (size_t)(experts + 1) * sizeof *offsets);
    for (int64_t i = 0; i < n; i++) {
        const int32_t row = next[ids[i]]++;
        order[row] = (int32_t)i;
        place[i] = row;
    }
    return OK;
}

INLINE void add_typed(float *acc, const void *y, int64_t at, int64_t n, int32_t dtype)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        acc[j] += row_get(y, at + j, dtype);
}

INLINE void set_typed(float *acc, const void *y, int64_t at, int64_t n, int32_t dtype)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        acc[j] = row_get(y, at + j, dtype);
}

INLINE void add_scaled_typed(float *acc, float p, const void *y, int64_t at, int64_t n, int32_t dtype)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        acc[j] = fmaf(p, row_get(y, at + j, dtype), acc[j]);
}

CLONES static void add_row(float *acc, const void *y, int64_t at, int64_t n, int32_t dtype, int adds)
{
    if (adds)
        FOR_DTYPE(dtype, add_typed, acc, y, at, n);
    else
        FOR_DTYPE(dtype, set_typed, acc, y, at, n);
}

CLONES static void add_scaled(float *acc, float p, const void *y, int64_t at, int64_t n, int32_t dtype)
{
    FOR_DTYPE(dtype, add_scaled_typed, acc, p, y, at, n);
}

/* Tells whether all of a token's pairs have rows, and experts if their numbers matter. */
static int is_sound(const struct combine_shape *s, const struct combine_pairs *x, int64_t token)
{
    for (int64_t i = token * s->k; i < (token + 1) * s->k; i++)
        if (x->place[i] < 0 || x->place[i] >= s->rows * s->k || (x->bias && (x->ids[i] < 0 || x->ids[i] >= s->experts)))
            return 0;
    return 1;
}

static void combine_token(const struct combine_shape *s, float *acc, const struct combine_pairs *x, int64_t token)
{
    for (int64_t j = 0; j < s->dim; j += ROWS_BLOCK) {
        float *sum = acc + token * s->dim + j;
        const int64_t n = min_i64(ROWS_BLOCK, s->dim - j);
        for (int32_t i = 0; i < s->k; i++) {
            const int64_t pair = token * s->k + i;
            add_row(sum, x->y, x->place[pair] * s->dim + j, n, s->y_type, i > 0 || s->accumulate);
            if (x->bias)
                add_scaled(sum, x->p[pair], x->bias, x->ids[pair] * s->dim + j, n, s->dtype);
        }
    }
}

enum status ops_combine(const struct combine_shape *s, float *acc, const struct combine_pairs *x)
{
    int bad = 0;
#pragma omp parallel for schedule(static) reduction(| : bad) if (s->rows * s->k * s->dim > ROWS_SERIAL)
    for (int64_t t = 0; t < s->rows; t++) {
        if (is_sound(s, x, t))
            combine_token(s, acc, x, t);
        else
            bad = 1;
    }
    return bad ? status_fail(ERR_CORRUPT, "a token has a pair without a row: its experts' results cannot be added up") : OK;
}

enum status ops_cpu_permute(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    return ops_permute(a->route.rows * a->route.k, a->route.experts, arg[0], arg[1], arg[2], arg[3]);
}

enum status ops_cpu_combine(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    const struct combine_shape s = {.rows = a->combine.rows,
                                    .dim = a->combine.dim,
                                    .k = a->combine.k,
                                    .experts = a->combine.experts,
                                    .y_type = a->combine.y_type,
                                    .dtype = a->combine.dtype,
                                    .accumulate = a->combine.accumulate};
    return ops_combine(&s, arg[0], &(struct combine_pairs){arg[1], arg[2], arg[3], arg[4], arg[5]});
}
