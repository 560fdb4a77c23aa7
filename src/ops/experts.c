/* Products of experts on the CPU, expert after expert. */
#include "ops/experts.h"

#include "device/cpu_stream.h"
#include "ops/bias.h"
#include "ops/gemm.h"
#include "ops/ops.h"
#include "ops/simd.h"

#include <assert.h>
#include <math.h>
#include <omp.h>

enum {
    TEAM = 512,    /* rows from which on an expert is a product of all threads */
    TASK_M = 512,  /* most rows and columns of a task's product */
    TASK_N = 1024, /* 1024: more would let the scratch of many threads grow, fewer repack the other operand more often */
    LEAST_N = 128,
    TASKS = 4,   /* tasks of each thread, so that unequal experts even out */
    PANEL = 128, /* columns of dbias that one task owns */
    GROUP = 64,  /* rows summed in fp32 before their sum is added to an fp64 total (bias.c) */
    ALIGN = 64,
};

/* A product of an expert, C = A B, or the part of it that a task computes. bias: of C's columns, NULL: none. */
struct product {
    struct gemm_shape g;
    char *c;
    const char *a, *b, *bias;
};

/* An op's products: of_expert makes that of the i-th matrix. most_m: most rows of a product that is shared out. */
struct job {
    const struct experts_shape *s;
    const struct experts_rows *at;
    void *c;
    const void *a, *b, *bias;
    struct product (*of_expert)(const struct job *j, int32_t i);
    int64_t most_m, n, slot;
    char *work;
    int threads;
};

static int64_t first_row(const struct job *j, int32_t i)
{
    return j->at->offsets[j->s->first + i];
}

static int64_t rows_of(const struct job *j, int32_t i)
{
    return first_row(j, i + 1) - first_row(j, i);
}

static int64_t size_of(int32_t type)
{
    return dtype_size((enum dtype)type);
}

static struct product of_rows(const struct job *j, int32_t i)
{
    const struct experts_shape *s = j->s;
    const int64_t row = first_row(j, i), w = i * s->in * s->out;
    return (struct product){.g = {.m = rows_of(j, i),
                                  .n = s->out,
                                  .k = s->in,
                                  .lda = s->in,
                                  .ldb = s->transposed ? s->in : s->out,
                                  .ldc = s->out,
                                  .tb = s->transposed,
                                  .a_type = s->x_type,
                                  .b_type = s->w_type,
                                  .c_type = s->y_type,
                                  .accumulate = s->adds,
                                  .stream = s->stream,
                                  .a_order = j->at->order ? j->at->order + row : NULL,
                                  .per = s->per},
                            .c = (char *)j->c + row * s->out * size_of(s->y_type),
                            .a = (const char *)j->a + (j->at->order ? 0 : row * s->in * size_of(s->x_type)),
                            .b = (const char *)j->b + w * size_of(s->w_type),
                            .bias = j->bias ? (const char *)j->bias + i * s->out * size_of(s->w_type) : NULL};
}

/* Makes the product that is a gradient: columns of A are rows of dw. */
static struct product of_gradient(const struct job *j, int32_t i)
{
    const struct experts_shape *s = j->s;
    const int64_t row = first_row(j, i), m = s->transposed ? s->out : s->in, n = s->transposed ? s->in : s->out;
    const int gathers_a = s->transposed == (s->gathers == GATHERS_DY);
    const int32_t a_type = s->transposed ? s->y_type : s->x_type, b_type = s->transposed ? s->x_type : s->y_type;
    const int32_t *order = j->at->order ? j->at->order + row : NULL;
    return (struct product){.g = {.m = m,
                                  .n = n,
                                  .k = rows_of(j, i),
                                  .lda = m,
                                  .ldb = n,
                                  .ldc = n,
                                  .ta = 1,
                                  .a_type = a_type,
                                  .b_type = b_type,
                                  .c_type = F32,
                                  .accumulate = s->adds,
                                  .stream = s->stream,
                                  .a_order = gathers_a ? order : NULL,
                                  .b_order = gathers_a ? NULL : order,
                                  .per = s->per},
                            .c = (char *)((float *)j->c + i * m * n),
                            .a = (const char *)j->a + (order && gathers_a ? 0 : row * m * size_of(a_type)),
                            .b = (const char *)j->b + (order && !gathers_a ? 0 : row * n * size_of(b_type))};
}

static void run(const struct product *p, void *work)
{
    ops_gemm_packed(&p->g, p->c, p->a, p->b, work);
    if (p->bias)
        ops_bias(p->c, p->bias, p->g.m, p->g.n, p->g.ldc, p->g.c_type, p->g.b_type);
}

/* Returns rows [i, i + m) and columns [k, k + n) of a product. */
static struct product part_of(const struct product *p, int64_t i, int64_t m, int64_t k, int64_t n)
{
    struct product part = *p;
    const struct gemm_shape *g = &p->g;
    part.g.m = min_i64(m, g->m - i);
    part.g.n = min_i64(n, g->n - k);
    part.c += (i * g->ldc + k) * size_of(g->c_type);
    part.b += (g->tb ? k * g->ldb : k) * size_of(g->b_type);
    if (p->bias)
        part.bias += k * size_of(g->b_type);
    if (g->a_order && !g->ta)
        part.g.a_order += i;
    else
        part.a += (g->ta ? i : i * g->lda) * size_of(g->a_type);
    return part;
}

/* Tells whether all threads compute the product of the i-th matrix. */
static int is_of_all(const struct job *j, int32_t i)
{
    return j->threads == 1 || rows_of(j, i) >= TEAM;
}

/* Shares the products with few rows out to threads, in blocks of columns and, for gradients, of rows. */
static void run_few(const struct job *j)
{
    const int64_t blocks = j->s->count * ceil_div(j->most_m, TASK_M), wanted = ceil_div(TASKS * j->threads, blocks);
    const int64_t n = max_i64(LEAST_N, min_i64(TASK_N, round_up(ceil_div(j->n, wanted), LEAST_N)));
    const int64_t by_m = ceil_div(j->most_m, TASK_M), by_n = ceil_div(j->n, n), each = by_m * by_n;
#pragma omp parallel num_threads(j->threads)
    {
        char *work = j->work + omp_get_thread_num() * j->slot;
#pragma omp for schedule(dynamic)
        for (int64_t t = 0; t < j->s->count * each; t++) {
            const int32_t i = (int32_t)(t / each);
            const int64_t row = t % each / by_n * TASK_M;
            if (is_of_all(j, i) || cpu_stops(j->s->stream))
                continue;
            const struct product p = j->of_expert(j, i), part = part_of(&p, row, TASK_M, t % by_n * n, n);
            if (part.g.m > 0)
                run(&part, work);
        }
    }
}

static void run_all(const struct job *j)
{
    int few = 0;
    for (int32_t i = 0; i < j->s->count; i++) {
        const struct product p = j->of_expert(j, i);
        if (is_of_all(j, i))
            run(&p, j->work);
        else
            few = 1;
    }
    if (few)
        run_few(j);
}

/* Returns an error if the rows are not those of experts, and a gathered row not one of those. */
static enum status check_rows(const struct experts_shape *s, const struct experts_rows *at)
{
    int sound = at->offsets[0] == 0 && at->offsets[s->experts] <= s->rows;
    for (int32_t e = 0; e < s->experts; e++)
        sound &= at->offsets[e] <= at->offsets[e + 1];
    if (!sound)
        return status_fail(ERR_CORRUPT, "the experts' rows do not ascend from 0 to at most %lld", (long long)s->rows);
    for (int64_t i = 0; i < (at->order ? at->offsets[s->experts] : 0); i++)
        sound &= at->order[i] >= 0 && at->order[i] < s->rows;
    return sound ? OK : status_fail(ERR_CORRUPT, "an expert's row is that of a pair that does not exist");
}

static int64_t slot_bytes(const struct gemm_shape *g)
{
    return round_up(ops_gemm_packed_workspace(g), ALIGN);
}

/* Returns a product that bounds those of all threads, or those of one. */
static struct gemm_shape bound_of_rows(const struct experts_shape *s, int64_t rows, int64_t n)
{
    return (struct gemm_shape){.m = min_i64(s->rows, rows),
                               .n = min_i64(s->out, n),
                               .k = s->in,
                               .a_type = s->x_type,
                               .b_type = s->w_type,
                               .c_type = s->y_type,
                               .accumulate = s->adds};
}

static struct gemm_shape bound_of_gradient(const struct experts_shape *s, int64_t m, int64_t n, int64_t rows)
{
    return (struct gemm_shape){.m = min_i64(s->transposed ? s->out : s->in, m),
                               .n = min_i64(s->transposed ? s->in : s->out, n),
                               .k = min_i64(s->rows, rows),
                               .ta = 1,
                               .a_type = s->transposed ? s->y_type : s->x_type,
                               .b_type = s->transposed ? s->x_type : s->y_type,
                               .c_type = F32,
                               .accumulate = s->adds};
}

static int64_t slot_of_rows(const struct experts_shape *s)
{
    const struct gemm_shape one = bound_of_rows(s, TEAM, TASK_N);
    return slot_bytes(&one);
}

static int64_t slot_of_gradient(const struct experts_shape *s)
{
    const struct gemm_shape one = bound_of_gradient(s, TASK_M, TASK_N, TEAM);
    return slot_bytes(&one);
}

int64_t ops_experts_workspace(const struct experts_shape *s, int threads)
{
    const struct gemm_shape all = bound_of_rows(s, s->rows, s->out);
    return max_i64(slot_bytes(&all), threads > 1 ? threads * slot_of_rows(s) : 0);
}

int64_t ops_experts_grad_workspace(const struct experts_shape *s, int threads)
{
    const struct gemm_shape all = bound_of_gradient(s, INT64_MAX, INT64_MAX, s->rows);
    return max_i64(slot_bytes(&all), threads > 1 ? threads * slot_of_gradient(s) : 0);
}

/* Returns the number of threads that have scratch, and are there. */
static int threads_of(const struct experts_shape *s)
{
    const int threads = s->stream ? s->stream->threads : 1;
    return threads < omp_get_max_threads() ? threads : omp_get_max_threads();
}

enum status ops_experts(const struct experts_shape *s, void *y, const void *x, const void *w, const void *bias,
                        const struct experts_rows *at, void *work)
{
    TRY(check_rows(s, at));
    run_all(&(struct job){.s = s,
                          .at = at,
                          .c = y,
                          .a = x,
                          .b = w,
                          .bias = bias,
                          .of_expert = of_rows,
                          .most_m = TEAM,
                          .n = s->out,
                          .slot = slot_of_rows(s),
                          .work = work,
                          .threads = threads_of(s)});
    return OK;
}

INLINE void add_row(float *sum, const void *dy, int64_t at, float factor, int64_t n, int32_t dtype)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        sum[j] = fmaf(factor, row_get(dy, at + j, dtype), sum[j]);
}

CLONES static void add_scaled_row(float *sum, const void *dy, int64_t at, float factor, int64_t n, int32_t dtype)
{
    FOR_DTYPE(dtype, add_row, sum, dy, at, factor, n);
}

/* Computes columns [j, j + n) of the bias's gradient of the i-th matrix. */
static void bias_gradient(const struct job *job, float *dbias, const void *dy, const float *p, int32_t i, int64_t j, int64_t n)
{
    const struct experts_shape *s = job->s;
    const int32_t *order = job->at->order;
    double sum[PANEL] = {0};
    for (int64_t r = first_row(job, i); r < first_row(job, i + 1); r += GROUP) {
        float group[PANEL] = {0};
        for (int64_t at = r; at < min_i64(r + GROUP, first_row(job, i + 1)); at++) {
            const int64_t row = order && s->gathers == GATHERS_DY ? order[at] / s->per : at;
            add_scaled_row(group, dy, row * s->out + j, p ? p[order[at]] : 1.0f, n, s->y_type);
        }
        for (int64_t c = 0; c < n; c++)
            sum[c] += (double)group[c];
    }
    for (int64_t c = 0; c < n; c++)
        dbias[i * s->out + j + c] = (float)sum[c] + (s->adds ? dbias[i * s->out + j + c] : 0);
}

enum status ops_experts_grad(const struct experts_shape *s, float *dw, float *dbias, const void *dy, const void *x,
                             const float *p, const struct experts_rows *at, void *work)
{
    TRY(check_rows(s, at));
    assert(!p || at->order);
    const struct job job = {.s = s,
                            .at = at,
                            .c = dw,
                            .a = s->transposed ? dy : x,
                            .b = s->transposed ? x : dy,
                            .of_expert = of_gradient,
                            .most_m = s->transposed ? s->out : s->in,
                            .n = s->transposed ? s->in : s->out,
                            .slot = slot_of_gradient(s),
                            .work = work,
                            .threads = threads_of(s)};
    if (dw)
        run_all(&job);
#pragma omp parallel for collapse(2) schedule(static) if (s->rows * s->out > ROWS_SERIAL)
    for (int32_t i = 0; i < (dbias ? s->count : 0); i++)
        for (int64_t j = 0; j < s->out; j += PANEL)
            bias_gradient(&job, dbias, dy, p, i, j, min_i64(PANEL, s->out - j));
    return OK;
}

struct experts_shape experts_shape_of(const struct op_attrs *a)
{
    return (struct experts_shape){.rows = a->experts.rows,
                                  .in = a->experts.in,
                                  .out = a->experts.out,
                                  .experts = a->experts.experts,
                                  .first = a->experts.first,
                                  .count = a->experts.count,
                                  .per = a->experts.per,
                                  .transposed = a->experts.transposed,
                                  .x_type = a->experts.x_type,
                                  .w_type = a->experts.w_type,
                                  .y_type = a->experts.y_type,
                                  .adds = a->experts.result == GEMM_ADDS,
                                  .gathers = a->experts.gathers};
}

enum status ops_cpu_experts(const struct op_attrs *a, void *const *arg, void *stream)
{
    struct experts_shape s = experts_shape_of(a);
    s.stream = stream;
    return ops_experts(&s, arg[0], arg[1], arg[2], arg[5], &(struct experts_rows){arg[3], arg[4]}, arg[6]);
}

enum status ops_cpu_experts_grad(const struct op_attrs *a, void *const *arg, void *stream)
{
    struct experts_shape s = experts_shape_of(a);
    s.stream = stream;
    return ops_experts_grad(&s, arg[0], arg[5], arg[1], arg[2], arg[6], &(struct experts_rows){arg[3], arg[4]}, arg[7]);
}
