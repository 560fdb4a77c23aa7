#include "ops/dispatch.h"

#include "ops/ops.h"
#include "ops/rows.h"

#include <string.h>

enum status dispatch_check(const struct dispatch_shape *s, const int32_t *all, int me)
{
    int64_t arrive = 0, first;
    for (int m = 0; m < s->members; m++) {
        const int32_t *offsets = all + m * (s->experts + 1);
        int sound = offsets[0] == 0;
        for (int32_t e = 0; e < s->experts; e++)
            sound &= offsets[e] <= offsets[e + 1];
        if (!sound)
            return status_fail(ERR_CORRUPT, "member %d's counts of its experts' tokens do not ascend from 0", m);
        arrive += dispatch_part(s, offsets, me, &first);
    }
    if (arrive > s->rows)
        return status_fail(ERR_CORRUPT, "%lld rows are sent to the experts of member %d, where %lld have room", (long long)arrive,
                           me, (long long)s->rows);
    return OK;
}

enum status ops_arrive(const struct dispatch_shape *s, int me, const struct arrivals *out, const int32_t *all)
{
    const int32_t each = s->experts / s->members;
    int32_t sorted = 0;
    TRY(dispatch_check(s, all, me));
    for (int32_t e = 0; e < each; e++) {
        int64_t arrived = 0, first; /* place of the member's first row among those that arrived */
        out->offsets[e] = sorted;
        for (int m = 0; m < s->members; m++) {
            const int32_t *of = all + m * (s->experts + 1) + me * each;
            for (int32_t i = of[e]; i < of[e + 1]; i++, sorted++) {
                const int32_t row = (int32_t)arrived + i - of[0];
                out->order[sorted] = row;
                out->place[row] = sorted;
                if (out->ids)
                    out->ids[row] = e;
            }
            arrived += dispatch_part(s, all + m * (s->experts + 1), me, &first);
        }
    }
    out->offsets[each] = sorted;
    for (int64_t i = sorted; i < s->rows; i++) {
        out->order[i] = out->place[i] = -1;
        if (out->ids)
            out->ids[i] = -1;
    }
    return OK;
}

enum status ops_spread(int64_t rows, int64_t x_rows, int64_t row_bytes, int32_t per, void *y, const void *x, const int32_t *index)
{
    int bad = 0;
#pragma omp parallel for schedule(static) reduction(| : bad) if (rows * row_bytes > ROWS_SERIAL)
    for (int64_t i = 0; i < rows; i++) {
        if (index[i] < 0)
            continue;
        if (index[i] / per < x_rows)
            memcpy((char *)y + i * row_bytes, (const char *)x + index[i] / per * row_bytes, (size_t)row_bytes);
        else
            bad = 1;
    }
    return bad ? status_fail(ERR_CORRUPT, "a row that does not exist cannot be sent") : OK;
}

enum status ops_cpu_arrive(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    const struct dispatch_shape s = {a->arrive.rows, a->arrive.experts, a->arrive.members};
    const struct step_record *record = arg[4];
    return ops_arrive(&s, record->member[a->arrive.group], &(struct arrivals){arg[0], arg[1], arg[2], arg[5]}, arg[3]);
}

enum status ops_cpu_spread(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    return ops_spread(a->spread.rows, a->spread.x_rows, a->spread.cols * dtype_size((enum dtype)a->spread.dtype), a->spread.per,
                      arg[0], arg[1], arg[2]);
}
