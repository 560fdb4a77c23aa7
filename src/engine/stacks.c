#include "engine/stacks.h"

#include "base/convert.h"
#include "base/sys.h"

#include <stdlib.h>

enum { BLOCK = 1 << 20 }; /* elements of the file that are read at a time, whole rows */

/* Sizes of a stack: matrices [rows, columns] of experts. */
struct sizes {
    int64_t experts, rows, columns;
};

static struct sizes sizes_of(const struct model_param *p)
{
    return (struct sizes){p->experts, p->shape[0] / p->experts, p->shape[1]};
}

int stack_is_kept(const struct st_file *f, const char *name, const struct model_param *p)
{
    struct st_info info;
    return st_has(f, name) && st_find(f, name, &info) == OK && info.n_dims == 2 && info.shape[0] == p->shape[0] &&
           info.shape[1] == p->shape[1];
}

/* Copies those of the elements [first, first + n) that lie in the file's rows [row, row + rows). */
static void pick(const struct sizes *s, int64_t row, int64_t rows, const float *from, int64_t first, int64_t n, float *to)
{
    const int64_t each = s->rows * s->columns;
    for (int64_t e = first / each; e < s->experts && e * each < first + n; e++)
        for (int64_t i = row; i < row + rows; i++)
            for (int64_t j = 0; j < s->columns; j++) {
                const int64_t at = e * each + i * s->columns + j - first;
                if (at >= 0 && at < n)
                    to[at] = from[((i - row) * s->columns + j) * s->experts + e];
            }
}

enum status stack_read(struct st_file *f, const char *name, const struct model_param *p, int64_t first, int64_t n,
                       enum dtype type, void *data, int64_t *finite)
{
    const struct sizes s = sizes_of(p);
    const int64_t width = s.columns * s.experts, most = min_i64(s.rows, max_i64(1, BLOCK / width));
    float *from = sys_malloc((size_t)(most * width) * sizeof *from), *values = sys_malloc((size_t)n * sizeof *values);
    enum status st = from && values ? OK : status_no_memory("for an adapter of experts");
    for (int64_t row = 0; row < s.rows && st == OK; row += most) {
        const int64_t rows = min_i64(most, s.rows - row);
        st = st_read_f32(f, name, row * width, rows * width, from);
        if (st == OK)
            pick(&s, row, rows, from, first, n, values);
    }
    if (st == OK)
        *finite = convert_values(F32, values, type, data, n);
    free(from);
    free(values);
    return st;
}

void stack_turn(const struct model_param *p, const float *memory, float *file)
{
    const struct sizes s = sizes_of(p);
    for (int64_t e = 0; e < s.experts; e++)
        for (int64_t k = 0; k < s.rows * s.columns; k++)
            file[k * s.experts + e] = memory[e * s.rows * s.columns + k];
}
