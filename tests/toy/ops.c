/* Kernels of the toy block: a gated scan over the tokens of a document, and its gradient. */
#include "ops/ops.h"
#include "ops/rows.h"

#include <math.h>

static float keeps(const void *g, int64_t at, int32_t dtype)
{
    return 1.0f / (1.0f + expf(-row_get(g, at, dtype)));
}

enum status ops_cpu_toy_scan(const struct op_attrs *a, void *const *arg, void *stream)
{
    void *y = arg[0];
    float *state = arg[1];
    const void *u = arg[2], *g = arg[3];
    const int32_t *position = arg[4], *index = arg[5], type = a->act.dtype;
    (void)stream;
    for (int64_t i = 0; i < a->act.rows; i++)
        for (int64_t j = 0; j < a->act.dim; j++) {
            const int64_t at = i * a->act.dim + j;
            const float before = position[i] == 0 ? 0.0f : state[j], f = keeps(g, at, type);
            if (!index || index[i] >= 0)
                state[j] = f * before + (1.0f - f) * row_get(u, at, type);
            row_set(y, at, type, state[j]);
        }
    return OK;
}

enum status ops_cpu_toy_scan_grad(const struct op_attrs *a, void *const *arg, void *stream)
{
    void *u = arg[0], *g = arg[1];
    float *carry = arg[2];
    const void *y = arg[3], *dy = arg[4];
    const float *state = arg[5];
    const int32_t *position = arg[6], type = a->act.dtype;
    const int64_t dim = a->act.dim;
    (void)stream;
    for (int64_t i = a->act.rows - 1; i >= 0; i--)
        for (int64_t j = 0; j < dim; j++) {
            const int64_t at = i * dim + j;
            const int starts = position[i] == 0;
            const float before = starts  ? 0.0f
                                 : i > 0 ? row_get(y, at - dim, type)
                                         : state[j],
                        f = keeps(g, at, type), ds = row_get(dy, at, type) + carry[j], x = row_get(u, at, type);
            row_set(u, at, type, (1.0f - f) * ds);
            row_set(g, at, type, (before - x) * f * (1.0f - f) * ds);
            carry[j] = starts ? 0.0f : f * ds;
        }
    return OK;
}
