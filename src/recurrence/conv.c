/* Causal convolutions of a few taps, column by column, forward and backward. */
#include "ops/simd.h"
#include "ops/vexp.h"
#include "recurrence/heads.h"

#include <assert.h>

enum {
    ROWS = 64,     /* rows of a forward task, and of a partial sum of the weights' gradient */
    COLUMNS = 256, /* columns of a task */
};

/* Columns [at, at + n) of a task: their weights by tap (tap i multiplies the i-th predecessor), and bias. */
struct taps {
    int64_t at, n;
    int32_t width, dtype, silu;
    float weight[CONV_TAPS][COLUMNS], bias[COLUMNS];
};

static struct taps *taps_load(struct taps *t, const struct op_attrs *a, int64_t at, const void *weight, const void *bias)
{
    t->at = at;
    t->n = min_i64(COLUMNS, a->conv.cols - at);
    t->width = a->conv.width;
    t->dtype = a->conv.dtype;
    t->silu = a->conv.silu;
    assert(t->width >= 1 && t->width <= CONV_TAPS);
    for (int64_t j = 0; j < t->n; j++) {
        for (int32_t i = 0; i < t->width; i++)
            t->weight[i][j] = weight ? row_get(weight, (at + j) * t->width + t->width - 1 - i, t->dtype) : 1.0f;
        t->bias[j] = bias ? row_get(bias, at + j, t->dtype) : 0.0f;
    }
    return t;
}

/* Rows that a call reads: those of x and of the tail before it, at a task's columns. */
struct sources {
    const void *x, *tail;
    int64_t ld, first, cols;
    const int32_t *links;
    int64_t rows;
    int32_t width;
};

static struct sources sources_of(const struct op_attrs *a, const void *x, const void *tail, const int32_t *links)
{
    return (struct sources){.x = x,
                            .tail = tail,
                            .ld = a->conv.ld,
                            .first = a->conv.first,
                            .cols = a->conv.cols,
                            .links = links,
                            .rows = a->conv.rows,
                            .width = a->conv.width};
}

/* Source of a predecessor that the document does not have. Sources >= 0 are rows of the call; source -1 - i is row i of the tail. */
enum { NO_SOURCE = INT32_MIN };

/* Finds the sources of the 1st to (width - 1)-th predecessors of row i, which has a token, for a tail of width - 1 rows. i = rows:
 * of a token that follows the rows. */
static void links_predecessors(const int32_t *links, int64_t rows, int64_t i, int32_t width, int32_t source[CONV_TAPS])
{
    int64_t row = i;
    int32_t n = 1, tail = width - 1;
    for (; n < width && (row == rows || links[row] != ROW_BEGINS); n++) {
        do
            row--;
        while (row >= 0 && links[row] == ROW_NONE);
        if (row < 0)
            break;
        source[n] = (int32_t)row;
    }
    for (; n < width; n++)
        source[n] = row < 0 && tail > 0 ? -1 - --tail : NO_SOURCE;
}

/* Returns the memory of a source, NULL if it counts as zeros, and the element at which column `at` stands. */
static const void *source_memory(const struct sources *s, int32_t source, int64_t at, int64_t *element)
{
    *element = source >= 0 ? source * s->ld + s->first + at : (-1 - (int64_t)source) * s->cols + at;
    return source >= 0 ? s->x : source == NO_SOURCE ? NULL : s->tail;
}

INLINE void add_products_typed(float *sum, const float *factor, const void *x, int64_t at, int64_t n, int32_t dtype)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        sum[j] += factor[j] * row_get(x, at + j, dtype);
}

/* Adds factor times x, column by column: a tap's part of a row's sums, or a row's part of a tap's gradient. */
CLONES static void add_products(float *sum, const float *factor, const void *x, int64_t at, int64_t n, int32_t dtype)
{
    FOR_DTYPE(dtype, add_products_typed, sum, factor, x, at, n);
}

/* Computes the sums of row i, before the activation; source[t]: of its t-th predecessor, source[0] its own. */
static void sum_row(const struct taps *t, const struct sources *s, int64_t i, int32_t source[CONV_TAPS], float *sum)
{
    memcpy(sum, t->bias, (size_t)t->n * sizeof *sum);
    source[0] = (int32_t)i;
    links_predecessors(s->links, s->rows, i, s->width, source);
    for (int32_t k = s->width - 1; k >= 0; k--) {
        int64_t at;
        const void *x = source_memory(s, source[k], t->at, &at);
        if (x)
            add_products(sum, t->weight[k], x, at, t->n, t->dtype);
    }
}

INLINE void activate_typed(void *y, int64_t at, const float *sum, int64_t n, int32_t silu, int32_t dtype)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        row_set(y, at + j, dtype, silu ? sum[j] * vsigmoid(sum[j]) : sum[j]);
}

CLONES static void activate(void *y, int64_t at, const float *sum, int64_t n, int32_t silu, int32_t dtype)
{
    if (silu)
        FOR_DTYPE(dtype, activate_typed, y, at, sum, n, 1);
    else
        FOR_DTYPE(dtype, activate_typed, y, at, sum, n, 0);
}

static void zero_elements(void *y, int64_t at, int64_t n, int32_t dtype)
{
    memset((char *)y + at * dtype_size((enum dtype)dtype), 0, (size_t)(n * dtype_size((enum dtype)dtype)));
}

/* Writes the tail after the rows. */
static void write_tail(const struct op_attrs *a, const struct sources *s, void *after)
{
    const int64_t bytes = dtype_size((enum dtype)a->conv.dtype);
    int32_t source[CONV_TAPS];
    links_predecessors(s->links, s->rows, s->rows, s->width, source);
    for (int32_t k = 1; k < s->width; k++) {
        char *to = (char *)after + (s->width - 1 - k) * s->cols * bytes;
        int64_t at;
        const char *x = source_memory(s, source[k], 0, &at);
        if (x)
            memcpy(to, x + at * bytes, (size_t)(s->cols * bytes));
        else
            memset(to, 0, (size_t)(s->cols * bytes));
    }
}

enum status recurrence_conv(const struct op_attrs *a, void *const *arg, void *stream)
{
    void *y = arg[0];
    const struct sources s = sources_of(a, arg[2], arg[6], arg[5]);
    const int64_t blocks = ceil_div(a->conv.rows, ROWS);
    (void)stream;
#pragma omp parallel for collapse(2) schedule(static) if (a->conv.rows * a->conv.cols > ROWS_SERIAL)
    for (int64_t b = 0; b < blocks; b++)
        for (int64_t at = 0; at < a->conv.cols; at += COLUMNS) {
            struct taps taps;
            float sum[COLUMNS];
            int32_t source[CONV_TAPS];
            const struct taps *t = taps_load(&taps, a, at, arg[3], arg[4]);
            for (int64_t i = b * ROWS; i < min_i64(a->conv.rows, (b + 1) * ROWS); i++) {
                if (s.links[i] == ROW_NONE) {
                    zero_elements(y, i * s.cols + at, t->n, t->dtype);
                    continue;
                }
                sum_row(t, &s, i, source, sum);
                activate(y, i * s.cols + at, sum, t->n, t->silu, t->dtype);
            }
        }
    if (arg[1])
        write_tail(a, &s, arg[1]);
    return OK;
}

/* --- Backward --- */

/* Gradients of a task's columns: of the tail as it is before the row in hand, of the weights by tap, of the bias last. */
struct gradients {
    float tail[CONV_TAPS][COLUMNS], part[CONV_TAPS + 1][COLUMNS];
    double whole[CONV_TAPS + 1][COLUMNS];
};

INLINE void slope_typed(float *sum, const void *dy, int64_t at, int64_t n, int32_t silu, int32_t dtype)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        const float s = vsigmoid(sum[j]), slope = silu ? s * fmaf(sum[j], 1.0f - s, 1.0f) : 1.0f;
        sum[j] = slope * row_get(dy, at + j, dtype);
    }
}

/* Turns sums into their gradients. */
CLONES static void slope(float *sum, const void *dy, int64_t at, int64_t n, int32_t silu, int32_t dtype)
{
    if (silu)
        FOR_DTYPE(dtype, slope_typed, sum, dy, at, n, 1);
    else
        FOR_DTYPE(dtype, slope_typed, sum, dy, at, n, 0);
}

INLINE void write_dx_typed(void *dx, int64_t at, const float *d, const float *weight, const float *tail, int64_t n, int32_t dtype)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        row_set(dx, at + j, dtype, tail[j] + weight[j] * d[j]);
}

CLONES static void write_dx(void *dx, int64_t at, const float *d, const float *weight, const float *tail, int64_t n,
                            int32_t dtype)
{
    FOR_DTYPE(dtype, write_dx_typed, dx, at, d, weight, tail, n);
}

CLONES static void pass_tail(float *to, const float *from, const float *weight, const float *d, int64_t n)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        to[j] = from[j] + weight[j] * d[j];
}

/* Adds a row's part of the weights' gradients; d: gradient of its sums. */
static void add_weights(struct gradients *g, const struct taps *t, const struct sources *s, const int32_t source[CONV_TAPS],
                        const float *d)
{
    for (int32_t k = 0; k < t->width; k++) {
        int64_t at;
        const void *x = source_memory(s, source[k], t->at, &at);
        if (x)
            add_products(g->part[k], d, x, at, t->n, t->dtype);
    }
    for (int64_t j = 0; j < t->n; j++)
        g->part[CONV_TAPS][j] += d[j];
}

/* Writes dx of row i, and makes the gradient of the tail after it that of the tail before it. */
static void pass_row(struct gradients *g, const struct taps *t, void *x, int64_t at, const float *d, int begins)
{
    static const float zeros[COLUMNS];
    const int32_t last = t->width - 2; /* the tail's row of the latest token */
    write_dx(x, at, d, t->weight[0], last >= 0 ? g->tail[last] : zeros, t->n, t->dtype);
    for (int32_t k = last; k >= 0; k--)
        if (begins)
            memset(g->tail[k], 0, sizeof g->tail[k]);
        else
            pass_tail(g->tail[k], k > 0 ? g->tail[k - 1] : zeros, t->weight[t->width - 1 - k], d, t->n);
}

static void fold_parts(struct gradients *g)
{
    for (int32_t k = 0; k <= CONV_TAPS; k++)
        for (int64_t j = 0; j < COLUMNS; j++) {
            g->whole[k][j] += (double)g->part[k][j];
            g->part[k][j] = 0;
        }
}

/* Writes the gradients of a task's tail, weights and bias. */
static void write_sums(const struct op_attrs *a, const struct gradients *g, const struct taps *t, float *dtail, float *dweight,
                       float *dbias)
{
    for (int32_t k = 0; k < t->width - 1; k++)
        memcpy(dtail + k * a->conv.cols + t->at, g->tail[k], (size_t)t->n * sizeof *dtail);
    for (int64_t j = 0; j < t->n; j++) {
        for (int32_t k = 0; k < (dweight ? t->width : 0); k++) {
            float *to = dweight + (t->at + j) * t->width + t->width - 1 - k;
            *to = (a->conv.accumulate ? *to : 0) + (float)g->whole[k][j];
        }
        if (dbias)
            dbias[t->at + j] = (a->conv.accumulate ? dbias[t->at + j] : 0) + (float)g->whole[CONV_TAPS][j];
    }
}

/* Computes the gradients of a task's columns, from the last row to the first. */
static void gradients_of_columns(const struct op_attrs *a, void *const *arg, const struct sources *s, int64_t column)
{
    struct taps taps;
    struct gradients g;
    float sum[COLUMNS];
    int32_t source[CONV_TAPS];
    float *dtail = arg[1];
    const struct taps *t = taps_load(&taps, a, column, arg[5], arg[6]);
    memset(&g, 0, sizeof g);
    for (int32_t k = 0; k < t->width - 1; k++)
        memcpy(g.tail[k], dtail + k * s->cols + column, (size_t)t->n * sizeof *dtail);
    for (int64_t i = s->rows - 1; i >= 0; i--) {
        const int64_t at = i * s->ld + s->first + column;
        if (s->links[i] == ROW_NONE) {
            zero_elements(arg[0], at, t->n, t->dtype);
        } else {
            sum_row(t, s, i, source, sum);
            slope(sum, arg[4], i * s->cols + column, t->n, t->silu, t->dtype);
            add_weights(&g, t, s, source, sum);
            pass_row(&g, t, arg[0], at, sum, s->links[i] == ROW_BEGINS);
        }
        if (i % ROWS == 0)
            fold_parts(&g);
    }
    write_sums(a, &g, t, dtail, arg[2], arg[3]);
}

enum status recurrence_conv_grad(const struct op_attrs *a, void *const *arg, void *stream)
{
    const struct sources s = sources_of(a, arg[0], arg[8], arg[7]);
    (void)stream;
#pragma omp parallel for schedule(static) if (a->conv.rows * a->conv.cols > ROWS_SERIAL)
    for (int64_t at = 0; at < a->conv.cols; at += COLUMNS)
        gradients_of_columns(a, arg, &s, at);
    return OK;
}
