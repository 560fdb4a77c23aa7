/* Gated units with a weight for each row, forward and backward. */
#include "ops/gated.h"

#include "ops/gate.h"
#include "ops/ops.h"
#include "ops/simd.h"

/* Columns [j, j + n) of a row: elements of gate and up are `step` apart, the first ones at `gate` and `up`, of which GATE_ALONE has none. */
struct span {
    int64_t gate, up, step, act, n;
};

/* Returns the factor of a gate's value made from element `i` of `up`; *slope: its derivative. */
INLINE float multiplier_at(const void *x, int64_t i, float *slope, struct gate f, int32_t kind, int32_t dtype)
{
    *slope = 0.0f;
    return kind == GATE_ALONE ? 1.0f : gate_multiplier(row_get(x, i, dtype), slope, f, kind);
}

INLINE void forward_typed(void *act, const void *x, const struct span *at, float p, struct gate f, int32_t kind, int32_t dtype)
{
    const struct span s = *at;
#pragma omp simd
    for (int64_t j = 0; j < s.n; j++) {
        float slope, g = gate_value(row_get(x, s.gate + j * s.step, dtype), &slope, f, kind);
        row_set(act, s.act + j, dtype, p * (g * multiplier_at(x, s.up + j * s.step, &slope, f, kind, dtype)));
    }
}

/* Calls the loop with the step as a constant, too. */
INLINE void forward_stepped(void *act, const void *x, const struct span *at, float p, struct gate f, int32_t kind, int32_t dtype)
{
    if (at->step == 2)
        forward_typed(act, x, &(struct span){at->gate, at->up, 2, at->act, at->n}, p, f, kind, dtype);
    else
        forward_typed(act, x, &(struct span){at->gate, at->up, 1, at->act, at->n}, p, f, kind, dtype);
}

CLONES static void forward(void *act, const void *x, const struct span *at, float p, struct gate f, int32_t dtype)
{
    FOR_GATE(forward_stepped, act, x, at, p, f);
}

/* Sets product[n] to g's products with the unweighted values. */
INLINE void backward_typed(void *x, void *g, const struct span *at, float p, float *product, struct gate f, int32_t kind,
                           int32_t dtype)
{
    const struct span s = *at;
#pragma omp simd
    for (int64_t j = 0; j < s.n; j++) {
        float slope, up_slope, d = row_get(g, s.act + j, dtype);
        float v = gate_value(row_get(x, s.gate + j * s.step, dtype), &slope, f, kind);
        float u = multiplier_at(x, s.up + j * s.step, &up_slope, f, kind, dtype);
        if (kind != GATE_ALONE)
            row_set(x, s.up + j * s.step, dtype, p * d * v * up_slope);
        row_set(x, s.gate + j * s.step, dtype, p * d * u * slope);
        row_set(g, s.act + j, dtype, p * (v * u));
        product[j] = d * (v * u);
    }
}

INLINE void backward_stepped(void *x, void *g, const struct span *at, float p, float *product, struct gate f, int32_t kind,
                             int32_t dtype)
{
    if (at->step == 2)
        backward_typed(x, g, &(struct span){at->gate, at->up, 2, at->act, at->n}, p, product, f, kind, dtype);
    else
        backward_typed(x, g, &(struct span){at->gate, at->up, 1, at->act, at->n}, p, product, f, kind, dtype);
}

CLONES static void backward(void *x, void *g, const struct span *at, float p, float *product, struct gate f, int32_t dtype)
{
    FOR_GATE(backward_stepped, x, g, at, p, product, f);
}

CLONES static void add_lanes(f32x8 sum[2], const float *x, int64_t n)
{
    f32x8 v[2];
    for (int64_t j = 0; j < n; j += LANES) {
        lanes_get(v, x, j, n - j, 0.0f, F32);
        sum[0] += v[0];
        sum[1] += v[1];
    }
}

INLINE void dot_typed(f32x8 sum[2], const void *x, int64_t x_at, const void *y, int64_t y_at, int64_t n, int32_t dtype)
{
    f32x8 v[2], w[2];
    for (int64_t j = 0; j < n; j += LANES) {
        lanes_get(v, x, x_at + j, n - j, 0.0f, dtype);
        lanes_get(w, y, y_at + j, n - j, 0.0f, dtype);
        for (int half = 0; half < 2; half++)
            sum[half] += v[half] * w[half];
    }
}

CLONES static float dot(const void *x, int64_t x_at, const void *y, int64_t y_at, int64_t n, int32_t dtype)
{
    f32x8 sum[2] = {{0}};
    FOR_DTYPE(dtype, dot_typed, sum, x, x_at, y, y_at, n);
    return lanes_sum(sum);
}

/* Returns columns [j, j + n) of a row of gate_up. */
static struct span span_of(const struct gated_shape *s, int64_t row, int64_t j)
{
    const int alone = s->f.kind == GATE_ALONE, alternate = s->interleaved && !alone;
    const int64_t at = row * (alone ? 1 : 2) * s->dim, step = alternate ? 2 : 1;
    return (struct span){.gate = at + j * step,
                         .up = at + j * step + (alternate ? 1 : s->dim),
                         .step = step,
                         .act = row * s->dim + j,
                         .n = min_i64(ROWS_BLOCK, s->dim - j)};
}

/* Tells whether a pair is none, but fills the shape up. */
static int is_padding(const struct gated_shape *s, const struct gated_pairs *x, int64_t pair)
{
    return s->padded && x->place[pair] < 0;
}

static int has_row(const struct gated_shape *s, const struct gated_pairs *x, int64_t pair)
{
    return x->place[pair] >= 0 && x->place[pair] < s->rows * s->k &&
           !(x->bias && (x->ids[pair] < 0 || x->ids[pair] >= s->experts));
}

static enum status judge(int bad)
{
    return bad ? status_fail(ERR_CORRUPT, "a token has a pair without a row: its expert's gate cannot be computed") : OK;
}

enum status ops_gated(const struct gated_shape *s, void *act, const void *gate_up, const struct gated_pairs *x)
{
    int bad = 0;
#pragma omp parallel for schedule(static) reduction(| : bad) if (s->rows * s->k * s->dim > ROWS_SERIAL)
    for (int64_t i = 0; i < s->rows * s->k; i++) {
        bad |= !has_row(s, x, i) && !is_padding(s, x, i);
        for (int64_t j = 0; j < (has_row(s, x, i) ? s->dim : 0); j += ROWS_BLOCK) {
            const struct span at = span_of(s, x->place[i], j);
            forward(act, gate_up, &at, x->p[i], s->f, s->dtype);
        }
    }
    return judge(bad);
}

/* Computes the gradients of pair i. */
static void pair_gradient(const struct gated_shape *s, void *gate_up, void *g, float *dp, const struct gated_pairs *x, int64_t i)
{
    float product[ROWS_BLOCK];
    f32x8 sum[2] = {{0}};
    for (int64_t j = 0; j < s->dim; j += ROWS_BLOCK) {
        const struct span at = span_of(s, x->place[i], j);
        backward(gate_up, g, &at, x->p[i], product, s->f, s->dtype);
        add_lanes(sum, product, at.n);
    }
    dp[x->place[i]] = lanes_sum(sum);
    if (x->bias)
        dp[x->place[i]] += dot(x->dy, i / s->k * s->width, x->bias, x->ids[i] * s->width, s->width, s->dtype);
}

enum status ops_gated_grad(const struct gated_shape *s, void *gate_up, void *g, float *dp, const struct gated_pairs *x)
{
    int bad = 0;
#pragma omp parallel for schedule(static) reduction(| : bad) if (s->rows * s->k * s->dim > ROWS_SERIAL)
    for (int64_t i = 0; i < s->rows * s->k; i++) {
        if (has_row(s, x, i))
            pair_gradient(s, gate_up, g, dp, x, i);
        else
            bad |= !is_padding(s, x, i);
    }
    return judge(bad);
}

static struct gated_shape gated_shape_of(const struct op_attrs *a)
{
    return (struct gated_shape){.rows = a->gated.rows,
                                .dim = a->gated.dim,
                                .width = a->gated.width,
                                .k = a->gated.k,
                                .experts = a->gated.experts,
                                .dtype = a->gated.dtype,
                                .padded = a->gated.padded,
                                .interleaved = a->gated.interleaved,
                                .f = {a->gated.kind, a->gated.limit, a->gated.alpha}};
}

enum status ops_cpu_gated(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    const struct gated_shape s = gated_shape_of(a);
    return ops_gated(&s, arg[0], arg[1], &(struct gated_pairs){.p = arg[2], .place = arg[3]});
}

enum status ops_cpu_gated_grad(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    const struct gated_shape s = gated_shape_of(a);
    return ops_gated_grad(&s, arg[0], arg[1], arg[2], &(struct gated_pairs){arg[3], arg[4], arg[5], arg[6], arg[7]});
}
