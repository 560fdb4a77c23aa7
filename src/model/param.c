/* Places of a parameter's elements, in the whole model and in files. */
#include "model/model.h"

#include "base/num.h"

#include <stdio.h>
#include <string.h>

int64_t model_param_tensors(const struct model_param *p)
{
    return p->split > 0 ? p->experts * p->split : 1;
}

/* Returns the name with the words of files, in `text` if it has any. */
static const char *rename_words(const struct model_param *p, char text[PARAM_NAME])
{
    const char *at = p->renamed ? strstr(p->name, p->renamed->here) : NULL;
    if (!at)
        return p->name;
    snprintf(text, PARAM_NAME, "%.*s%s%s", (int)(at - p->name), p->name, p->renamed->there, at + strlen(p->renamed->here));
    return text;
}

void model_param_tensor(const struct model_param *p, int64_t i, struct param_tensor *out)
{
    const int beside = p->form == STACK_BESIDE, deep = p->form == STACK_DEEP;
    const int64_t share = p->split > 0 ? p->experts * p->split : deep || beside ? max_i64(p->experts, 1) : 1;
    *out = (struct param_tensor){.n_dims = 0};
    if (p->experts > 0 && p->split == 0 && deep)
        out->shape[out->n_dims++] = p->experts;
    for (int k = 0; k < 2 * p->of_heads; k++)
        out->shape[out->n_dims++] = 1;
    out->shape[out->n_dims++] = p->file_shape[0] / share;
    if (p->conv || p->of_heads)
        out->shape[out->n_dims++] = 1;
    if (p->file_shape[1] > 0)
        out->shape[out->n_dims++] = p->file_shape[1] * (beside ? p->experts : 1);
    char renamed[PARAM_NAME];
    const char *whole = rename_words(p, renamed), *root = p->root ? p->root : "", *name = p->root ? strchr(whole, '.') : whole;
    if (p->split == 0)
        snprintf(out->name, sizeof out->name, "%s%s", root, name);
    else
        snprintf(out->name, sizeof out->name, "%s%.*s.%lld.%s", root, (int)(strrchr(name, '.') - name), name,
                 (long long)(i / p->split), p->part[i % p->split]);
}

struct model_param model_param_joined(const struct model_param *p)
{
    struct model_param joined = *p;
    joined.split = 0;
    return joined;
}

struct model_param model_param_parted(const struct model_param *p)
{
    struct model_param parted = *p;
    parted.split = p->may_split;
    return parted;
}

struct model_param model_param_kept(const struct model_param *p)
{
    struct model_param kept = *p;
    if (kept.form == STACK_BESIDE)
        kept.form = STACK_BELOW;
    return kept;
}

static int print_count(char *text, size_t bytes, int64_t n, const char *what)
{
    const double count = (double)n;
    return snprintf(text, bytes, "%.3g%s%s", count < 1e9 ? count * 1e-6 : count * 1e-9, count < 1e9 ? "M" : "B", what);
}

const char *model_size_text(const struct model *m, char text[SIZE_TEXT])
{
    const int n = print_count(text, SIZE_TEXT, m->total_params, " parameters");
    if (m->active_params < m->total_params) {
        text[n] = ',';
        text[n + 1] = ' ';
        print_count(text + n + 2, SIZE_TEXT - (size_t)n - 2, m->active_params, " active");
    }
    return text;
}

int64_t model_param_active(const struct model *m, const struct model_param *p)
{
    const int64_t all = model_param_stored(p);
    return p->experts > 1 ? all / p->experts * m->config.experts_used : all;
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

/* Finds the elements in the tensors of a split stack. */
static int64_t piece_of_split(const struct model_param *p, int64_t first, int64_t n, int64_t *tensor, int64_t *there)
{
    const int64_t each = model_param_stored(p) / (p->experts * p->split);
    *tensor = first / each;
    *there = first % each;
    return min_i64(n, each - *there);
}

/* Finds an element of a stack whose matrices lie side by side. */
static int64_t piece_of_beside(const struct model_param *p, int64_t element)
{
    const int64_t columns = p->shape[1], rows = p->shape[0] / p->experts, row = element / columns;
    return (row % rows * columns + element % columns) * p->experts + row / rows;
}

/* Returns the rows of a head of all maps of an interleaved matrix. */
static int64_t head_rows(const struct model_param *p)
{
    int64_t rows = 0;
    for (int i = 0; i < p->parts; i++)
        rows += p->part_rows[i];
    return rows;
}

/* Finds the map that a row of an interleaved matrix belongs to. *row becomes its row in that map; *before: rows of a head of the maps
 * before it. */
static int map_of_row(const struct model_param *p, int64_t *row, int64_t *before)
{
    const int64_t heads = p->file_shape[0] / head_rows(p);
    int i = 0;
    *before = 0;
    for (; *row >= heads * p->part_rows[i]; i++) {
        *row -= heads * p->part_rows[i];
        *before += p->part_rows[i];
    }
    return i;
}

/* Finds a row of an interleaved matrix in files. Returns the rows from there on that are neighbours here, too. */
static int64_t interleaved_row(const struct model_param *p, int64_t row, int64_t *there)
{
    int64_t before;
    const int64_t rows = p->part_rows[map_of_row(p, &row, &before)];
    *there = row / rows * head_rows(p) + before + row % rows;
    return rows - row % rows;
}

int model_param_heads(const struct model_param *p, int64_t first, int64_t n, struct param_heads *out)
{
    int64_t row = first, before;
    const int i = map_of_row(p, &row, &before);
    const int64_t rows = p->part_rows[i], heads = p->file_shape[0] / head_rows(p);
    *out = (struct param_heads){row / rows * head_rows(p) + before, rows, head_rows(p)};
    return row % rows == 0 && n % rows == 0 && row + n <= heads * rows;
}

int64_t model_param_from_file(const struct model_param *p, int64_t first, int64_t n, int64_t *here)
{
    const int64_t columns = max_i64(p->file_shape[1], 1), all = head_rows(p), heads = p->file_shape[0] / all,
                  row = first / columns;
    int64_t before = 0, within = row % all;
    int i = 0;
    for (; within >= p->part_rows[i]; i++) {
        within -= p->part_rows[i];
        before += p->part_rows[i];
    }
    *here = (heads * before + row / all * p->part_rows[i] + within) * columns + first % columns;
    return min_i64(n, (p->part_rows[i] - within) * columns - first % columns);
}

int64_t model_param_piece(const struct model_param *p, int64_t first, int64_t n, int64_t *tensor, int64_t *there)
{
    *tensor = 0;
    if (p->split > 0)
        return piece_of_split(p, first, n, tensor, there);
    if (p->form == STACK_BESIDE) {
        *there = piece_of_beside(p, first);
        return 1;
    }
    const int64_t columns = max_i64(p->file_shape[1], 1);
    int64_t whole, row;
    n = model_param_span(p, first, n, &whole);
    *there = whole;
    if (p->parts == 0)
        return n;
    const int64_t rows = interleaved_row(p, whole / columns, &row);
    *there = row * columns + whole % columns;
    return min_i64(n, rows * columns - whole % columns);
}
