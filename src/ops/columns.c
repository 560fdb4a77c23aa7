/* Single columns of a matrix, moved to and from one that has only these. */
#include "ops/columns.h"

#include "ops/ops.h"
#include "ops/rows.h"

void ops_put_columns(const struct columns_shape *s, void *y, const void *x, const int32_t *index)
{
#pragma omp parallel for schedule(static) if (s->rows * s->n > ROWS_SERIAL)
    for (int64_t i = 0; i < s->rows; i++)
        for (int64_t j = 0; j < s->n; j++)
            row_set(y, i * s->y_ld + index[j], s->dtype, row_get(x, i * s->x_ld + j, s->dtype));
}

void ops_take_columns(const struct columns_shape *s, void *x, void *y, const int32_t *index)
{
#pragma omp parallel for schedule(static) if (s->rows * s->n > ROWS_SERIAL)
    for (int64_t i = 0; i < s->rows; i++)
        for (int64_t j = 0; j < s->n; j++) {
            row_set(x, i * s->x_ld + j, s->dtype, row_get(y, i * s->y_ld + index[j], s->dtype));
            row_set(y, i * s->y_ld + index[j], s->dtype, 0.0f);
        }
}

static struct columns_shape shape_of(const struct op_attrs *a)
{
    return (struct columns_shape){a->picked.rows, a->picked.n, a->picked.y_ld, a->picked.x_ld, a->picked.dtype};
}

enum status ops_cpu_put_columns(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    const struct columns_shape s = shape_of(a);
    ops_put_columns(&s, arg[0], arg[1], arg[2]);
    return OK;
}

enum status ops_cpu_take_columns(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    const struct columns_shape s = shape_of(a);
    ops_take_columns(&s, arg[0], arg[1], arg[2]);
    return OK;
}
