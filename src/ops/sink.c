/* Attention sinks, merged into attention's result, and their gradient. */
#include "ops/sink.h"

#include "ops/ops.h"
#include "ops/rows.h"
#include "ops/simd.h"
#include "ops/vexp.h"

CLONES static void scale(float *o, float factor, int64_t n)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        o[j] *= factor;
}

/* Returns the weight of the attended keys when the sink takes part; *lse becomes the log-sum-exp with the sink. */
static float weight_beside(float sink, float *lse)
{
    float smaller = expf(-fabsf(*lse - sink)), larger = 1.0f / (1.0f + smaller);
    float weight = *lse >= sink ? larger : smaller * larger;
    *lse = fmaxf(*lse, sink) + log1pf(smaller);
    return weight;
}

void ops_attn_sink(const struct sink_shape *s, float *o, float *lse, const void *sinks)
{
#pragma omp parallel for schedule(static) if (s->rows * s->heads * s->head_dim > ROWS_SERIAL)
    for (int64_t i = 0; i < s->rows * s->heads; i++) {
        const int64_t h = i % s->heads, at = h * s->rows + i / s->heads;
        if (isnan(lse[at])) { /* NaN stays visible */
            scale(o + i * s->head_dim, lse[at], s->head_dim);
            continue;
        }
        scale(o + i * s->head_dim, weight_beside(row_get(sinks, h, s->dtype), &lse[at]), s->head_dim);
    }
}

/* Computes each row's term of the sink's gradient, for a block of rows of one head. */
CLONES static void terms(float *out, float sink, const float *lse, const float *delta, int64_t heads, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        out[i] = vexp(sink - lse[i]) * delta[i * heads];
}

void ops_attn_sink_grad(const struct sink_shape *s, float *dsinks, const void *sinks, const float *lse, const float *delta)
{
#pragma omp parallel for schedule(static) if (s->rows * s->heads > ROWS_SERIAL)
    for (int64_t h = 0; h < s->heads; h++) {
        float term[ROWS_BLOCK];
        double sum = 0;
        for (int64_t b = 0; b < ceil_div(s->rows, ROWS_BLOCK); b++) {
            int64_t at = b * ROWS_BLOCK, n = rows_block_size(b, s->rows);
            terms(term, row_get(sinks, h, s->dtype), lse + h * s->rows + at, delta + at * s->heads + h, s->heads, n);
            for (int64_t i = 0; i < n; i++)
                sum += (double)term[i];
        }
        dsinks[h] -= (float)sum;
    }
}

static struct sink_shape sink_shape_of(const struct op_attrs *a)
{
    return (struct sink_shape){
        .rows = a->sink.rows, .heads = a->sink.heads, .head_dim = a->sink.head_dim, .dtype = a->sink.dtype};
}

/* Returns the index, among the model's heads, of this rank's first head at work. */
static int64_t first_head(const struct op_attrs *a, const struct step_record *record)
{
    return (int64_t)record->member[a->sink.group] * a->sink.share + a->sink.first;
}

static const void *own_sinks(const struct op_attrs *a, const void *sinks, const struct step_record *record)
{
    return (const char *)sinks + first_head(a, record) * dtype_size((enum dtype)a->sink.dtype);
}

enum status ops_cpu_attn_sink(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    struct sink_shape s = sink_shape_of(a);
    ops_attn_sink(&s, arg[0], arg[1], own_sinks(a, arg[2], arg[3]));
    return OK;
}

enum status ops_cpu_attn_sink_grad(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    struct sink_shape s = sink_shape_of(a);
    ops_attn_sink_grad(&s, (float *)arg[0] + first_head(a, arg[4]), own_sinks(a, arg[1], arg[4]), arg[2], arg[3]);
    return OK;
}
