/* Gates of a chunk's rows, and loops over rows of small matrices. */
#include "ops/simd.h"
#include "ops/vexp.h"
#include "recurrence/heads.h"

void gates_find(const struct scan *s, int64_t head, int64_t first, int64_t n, struct gates *g)
{
    const int64_t heads = s->a->scan.heads;
    int32_t document = 0;
    double sum = 0;
    g->n = n;
    g->c = round_up(n, 4);
    for (int64_t i = 0; i < g->c; i++) {
        const int32_t link = i < n ? s->links[first + i] : ROW_NONE;
        document += link == ROW_BEGINS;
        if (link == ROW_FOLLOWS && !has_channels(s))
            sum += (double)s->g[(first + i) * heads + head];
        g->document[i] = document;
        g->has_token[i] = link != ROW_NONE;
        g->sum[i] = sum;
        g->beta[i] = link != ROW_NONE ? s->beta[(first + i) * heads + head] : 0.0f;
        g->enter[i] = document == 0 ? expf((float)sum) : 0.0f;
    }
    for (int64_t i = 0; i < g->c; i++)
        g->leave[i] = g->document[i] == document ? expf((float)(sum - g->sum[i])) : 0.0f;
    g->keep = g->enter[g->c - 1];
}

/* Computes the first n elements of a row. */
CLONES static void decays_of_row(const struct gates *g, int64_t i, int64_t n, float *decays)
{
    const double sum = g->sum[i];
    const int32_t document = g->document[i];
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        const float decay = vexp((float)(sum - g->sum[j]));
        decays[j] = j <= i && g->document[j] == document ? decay : 0.0f;
    }
}

void gates_decays(const struct gates *g, float *decays)
{
    for (int64_t i = 0; i < g->c; i++) {
        const int64_t n = round_up(i + 1, LANES);
        decays_of_row(g, i, n, decays + i * CHUNK);
        memset(decays + i * CHUNK + n, 0, (size_t)(CHUNK - n) * sizeof *decays);
    }
}

INLINE void load_typed(float *out, const void *x, int64_t at, int64_t n, int32_t dtype)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        out[j] = row_get(x, at + j, dtype);
}

CLONES static void load_row(float *out, const void *x, int64_t at, int64_t n, int32_t dtype)
{
    FOR_DTYPE(dtype, load_typed, out, x, at, n);
}

void rows_load(const struct scan *s, float *out, int64_t wide, const void *x, int64_t ld, int64_t column, int64_t dim,
               int64_t first, int64_t n)
{
    for (int64_t i = 0; i < round_up(n, 4); i++) {
        const int is_there = i < n && s->links[first + i] != ROW_NONE;
        if (is_there)
            load_row(out + i * wide, x, (first + i) * ld + column, dim, s->a->scan.dtype);
        memset(out + i * wide + (is_there ? dim : 0), 0, (size_t)(wide - (is_there ? dim : 0)) * sizeof *out);
    }
}

void rows_store(const struct scan *s, void *out, int64_t ld, int64_t column, int64_t dim, int64_t first, int64_t n,
                const float *x, int64_t wide)
{
    for (int64_t i = 0; i < n; i++)
        if (s->a->scan.dtype == F32)
            memcpy((float *)out + (first + i) * ld + column, x + i * wide, (size_t)dim * sizeof *x);
        else
            rows_to_bf16((bf16 *)out + (first + i) * ld + column, x + i * wide, dim);
}

CLONES static void scale_row(float *out, const float *x, float factor, int64_t n)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        out[j] = factor * x[j];
}

void rows_scale(float *out, const float *x, const float *factor, int64_t n, int64_t wide)
{
    for (int64_t i = 0; i < n; i++)
        if (factor[i] == 0.0f)
            memset(out + i * wide, 0, (size_t)wide * sizeof *out);
        else
            scale_row(out + i * wide, x + i * wide, factor[i], wide);
}

CLONES void elements_multiply(float *out, const float *x, const float *y, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        out[i] = x[i] * y[i];
}

CLONES void elements_add(float *y, float factor, const float *x, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] += factor * x[i];
}

CLONES float rows_sum(const float *x, int64_t n)
{
    f32x8 sum[2] = {{0}}, v[2];
    for (int64_t j = 0; j < n; j += LANES) {
        lanes_get(v, x, j, n - j, 0.0f, F32);
        sum[0] += v[0];
        sum[1] += v[1];
    }
    return lanes_sum(sum);
}

CLONES float rows_dot(const float *x, const float *y, int64_t n)
{
    f32x8 sum[2] = {{0}}, v[2], w[2];
    for (int64_t j = 0; j < n; j += LANES) {
        lanes_get(v, x, j, n - j, 0.0f, F32);
        lanes_get(w, y, j, n - j, 0.0f, F32);
        for (int half = 0; half < 2; half++)
            sum[half] += v[half] * w[half];
    }
    return lanes_sum(sum);
}

void state_scale(const struct scan *s, float *state, float factor)
{
    rows_scale(state, state, &factor, 1, state_floats(s));
}

void state_keep(const struct scan *s, const struct gates *g, const struct key_head *kh, float *state)
{
    if (has_channels(s))
        rows_scale(state, state, kh->channels.keep, s->a->scan.key_dim, s->value);
    else
        state_scale(s, state, g->keep);
}

void state_load(const struct scan *s, float *state, const float *from)
{
    const int64_t k = s->a->scan.key_dim, v = s->a->scan.value_dim;
    memset(state, 0, (size_t)state_floats(s) * sizeof *state);
    for (int64_t i = 0; i < (from ? k : 0); i++)
        memcpy(state + i * s->value, from + i * v, (size_t)v * sizeof *state);
}

void state_store(const struct scan *s, float *to, const float *state)
{
    const int64_t k = s->a->scan.key_dim, v = s->a->scan.value_dim;
    for (int64_t i = 0; i < k; i++)
        memcpy(to + i * v, state + i * s->value, (size_t)v * sizeof *to);
}
