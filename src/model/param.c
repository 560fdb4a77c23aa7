/* Places of a parameter's elements, in the whole model and in files. */
#include "model/model.h"

#include "base/num.h"

int model_param_dims(const struct model_param *p, int64_t shape[PARAM_DIMS])
{
    shape[0] = p->file_shape[0];
    shape[1] = p->file_shape[1];
    return p->file_shape[1] ? 2 : 1;
}

int64_t model_param_stored(const struct model_param *p)
{
    return p->shape[1] ? p->shape[0] * p->shape[1] : p->shape[0];
}

int64_t model_param_span(const struct model_param *p, int64_t first, int64_t n, int64_t *there)
{
    *there = first;
    if (p->n_ranges == 0)
        return n;
    const int64_t columns = max_i64(p->shape[1], 1);
    const struct param_range *r = p->range;
    int64_t at = p->by_columns ? first % columns : first / columns;
    while (at >= r->n)
        at -= r++->n;
    if (p->by_columns) {
        *there = first / columns * p->file_shape[1] + r->first + at;
        return min_i64(n, r->n - at);
    }
    *there = (r->first + at) * columns + first % columns;
    return min_i64(n, (r->n - at) * columns - first % columns);
}

int64_t model_param_piece(const struct model_param *p, int64_t first, int64_t n, int64_t *there)
{
    int64_t head = p->head_rows * max_i64(p->file_shape[1], 1), whole;
    n = model_param_span(p, first, n, &whole);
    *there = whole;
    if (head == 0)
        return n;
    int64_t heads = p->file_shape[0] / (p->head_rows * p->parts), index = whole / head, within = whole % head;
    int64_t of = index / p->joined, part = index % p->joined; /* indices of the head and of its part */
    if (of >= heads) {
        of = (index - heads * p->joined) % heads;
        part = p->joined + (index - heads * p->joined) / heads;
    }
    *there = (of * p->parts + part) * head + within;
    return min_i64(n, head - within);
}
