/* Dropout by a counter. */
#include "ops/dropout.h"

#include "ops/ops.h"
#include "ops/rows.h"
#include "ops/simd.h"

enum { GROUPS = 32, PART = 4 * GROUPS }; /* groups (of four features) made at a time, and their features */

/* Counter and key that all numbers of a row share. */
struct row {
    uint32_t key[2], number, module, sequence, threshold;
};

struct block {
    uint32_t c[4];
};

INLINE struct block philox_round(struct block b, const uint32_t key[2], uint32_t round)
{
    const uint64_t p0 = (uint64_t)0xD2511F53u * b.c[0], p1 = (uint64_t)0xCD9E8D57u * b.c[2];
    return (struct block){{(uint32_t)(p1 >> 32) ^ b.c[1] ^ (key[0] + round * 0x9E3779B9u), (uint32_t)p1,
                           (uint32_t)(p0 >> 32) ^ b.c[3] ^ (key[1] + round * 0xBB67AE85u), (uint32_t)p0}};
}

INLINE struct block philox(struct block b, const uint32_t key[2])
{
    b = philox_round(b, key, 0);
    b = philox_round(b, key, 1);
    b = philox_round(b, key, 2);
    b = philox_round(b, key, 3);
    b = philox_round(b, key, 4);
    b = philox_round(b, key, 5);
    b = philox_round(b, key, 6);
    b = philox_round(b, key, 7);
    b = philox_round(b, key, 8);
    return philox_round(b, key, 9);
}

/* Makes the mask of PART features from 4 * group on: all ones where a number stays, else 0. */
INLINE void make_mask(const struct row *r, uint32_t group, uint32_t mask[PART])
{
#pragma omp simd
    for (uint32_t i = 0; i < GROUPS; i++) {
        const struct block w = philox((struct block){{group + i, r->number, r->module, r->sequence}}, r->key);
        mask[4 * i] = w.c[0] >= r->threshold ? ~0u : 0u;
        mask[4 * i + 1] = w.c[1] >= r->threshold ? ~0u : 0u;
        mask[4 * i + 2] = w.c[2] >= r->threshold ? ~0u : 0u;
        mask[4 * i + 3] = w.c[3] >= r->threshold ? ~0u : 0u;
    }
}

INLINE void apply_mask(float *v, const uint32_t *mask, const void *x, int64_t at, int64_t n, float scale, int32_t dtype)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        v[j] = mask[j] ? scale * row_get(x, at + j, dtype) : 0.0f;
}

INLINE void write(void *y, int64_t at, const float *v, int64_t n, int accumulate, int32_t dtype)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        row_set(y, at + j, dtype, accumulate ? row_get(y, at + j, dtype) + v[j] : v[j]);
}

/* Applies dropout to numbers of one row, from x[x_at] to y[y_at]. */
CLONES static void drop_row(const struct dropout_shape *s, const struct row *r, void *y, int64_t y_at, const void *x,
                            int64_t x_at, int32_t dtype, int accumulate)
{
    uint32_t mask[PART];
    float v[PART];
    int64_t skipped = s->first % 4, n;
    for (int64_t c = 0; c < s->cols; c += n, skipped = 0) {
        n = min_i64(PART - skipped, s->cols - c);
        make_mask(r, (s->first + (uint32_t)c) / 4, mask);
        FOR_DTYPE(accumulate ? F32 : dtype, apply_mask, v, mask + skipped, x, x_at + c, n, s->scale);
        FOR_DTYPE(dtype, write, y, y_at + c, v, n, accumulate);
    }
}

void ops_dropout(void *y, const void *x, const int32_t *numbers, const struct step_record *record, const struct dropout_shape *s,
                 int32_t dtype, int accumulate)
{
#pragma omp parallel for schedule(static) if (s->rows * s->cols > ROWS_SERIAL)
    for (int64_t i = 0; i < s->rows; i++) {
        const struct row r = {
            {record->dropout[0], record->dropout[1]}, (uint32_t)numbers[i], s->module, record->sequence, s->threshold};
        drop_row(s, &r, y, i * s->y_ld, x, i * s->x_ld, dtype, accumulate);
    }
}

enum status ops_cpu_dropout(const struct op_attrs *a, void *const *arg, void *stream)
{
    const struct step_record *record = arg[3];
    const struct dropout_shape s = {.rows = a->dropout.rows,
                                    .cols = a->dropout.cols,
                                    .y_ld = a->dropout.y_ld,
                                    .x_ld = a->dropout.x_ld,
                                    .first = dropout_first(a, record),
                                    .module = a->dropout.module,
                                    .threshold = a->dropout.threshold,
                                    .scale = a->dropout.scale};
    (void)stream;
    ops_dropout(arg[0], arg[1], arg[2], record, &s, a->dropout.dtype, a->dropout.accumulate);
    return OK;
}
