/* Choosing experts for tokens, and the gradient of their weights. */
#include "ops/route.h"

#include "ops/ops.h"
#include "ops/simd.h"
#include "ops/vexp.h"

#include <assert.h>
#include <math.h>

enum { BLOCK = 64 }; /* rows whose counts are added up by one task */

/* Counts of a block of rows, in `work`. */
struct tally {
    int32_t *counts, *plain;
    float *sums;
};

static struct tally tally_of(const struct route_shape *s, void *work, int64_t block)
{
    int32_t *at = (int32_t *)work + block * 3 * s->experts;
    return (struct tally){at, at + s->experts, (float *)(at + 2 * s->experts)};
}

/* Computes y = softmax(x), n <= ROUTE_EXPERTS. A NaN makes all of them NaN. */
CLONES static void softmax(float *y, const float *x, int64_t n)
{
    f32x8 sum[2] = {{0}}, v[2];
    float most = -INFINITY;
    for (int64_t j = 0; j < n; j++)
        most = x[j] > most ? x[j] : most;
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        y[j] = vexp(x[j] - most);
    for (int64_t j = 0; j < n; j += LANES) {
        lanes_get(v, y, j, n - j, 0.0f, F32);
        sum[0] += v[0];
        sum[1] += v[1];
    }
    const float inverse = 1.0f / lanes_sum(sum);
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        y[j] *= inverse;
}

CLONES static void sigmoids(float *y, const float *x, int64_t n)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        y[j] = vsigmoid(x[j]);
}

/* Tells whether a ranks above b. A NaN does above all numbers, so that it is chosen and seen. */
static int is_above(float a, float b)
{
    return a > b || (isnan(a) && !isnan(b));
}

/* Finds the k greatest of n scores, in descending order; of equal ones the lower number comes first. `may`: NULL, or 1 for each
 * score that takes part. */
static void find_greatest(const float *score, const uint8_t *may, int32_t n, int32_t k, int32_t *best)
{
    int32_t found = 0;
    for (int32_t e = 0; e < n; e++) {
        if ((may && !may[e]) || (found == k && !is_above(score[e], score[best[k - 1]])))
            continue;
        int32_t at = found < k ? found++ : k - 1;
        for (; at > 0 && is_above(score[e], score[best[at - 1]]); at--)
            best[at] = best[at - 1];
        best[at] = e;
    }
}

static void sort_ascending(int32_t *ids, int32_t k)
{
    for (int32_t i = 1; i < k; i++) {
        const int32_t id = ids[i];
        int32_t at = i;
        for (; at > 0 && ids[at - 1] > id; at--)
            ids[at] = ids[at - 1];
        ids[at] = id;
    }
}

/* Marks the experts of the group_k best groups, by the sum of the one or two greatest scores of each. */
static void mark_groups(const struct route_shape *s, const float *score, uint8_t *may)
{
    const int32_t size = s->experts / s->groups, ranked = size < s->ranked ? size : s->ranked;
    float of_group[ROUTE_EXPERTS];
    int32_t best[ROUTE_EXPERTS];
    for (int32_t g = 0; g < s->groups; g++) {
        const float *x = score + g * size;
        find_greatest(x, NULL, size, ranked, best);
        of_group[g] = ranked > 1 ? x[best[0]] + x[best[1]] : x[best[0]];
    }
    find_greatest(of_group, NULL, s->groups, s->group_k, best);
    memset(may, 0, (size_t)s->experts);
    for (int32_t i = 0; i < s->group_k; i++)
        memset(may + best[i] * size, 1, (size_t)size);
}

/* Chooses a token's experts by their scores, in ascending order of their numbers. */
static void choose(const struct route_shape *s, const float *score, const float *bias, int32_t *ids)
{
    float biased[ROUTE_EXPERTS];
    uint8_t may[ROUTE_EXPERTS];
    for (int32_t e = 0; e < (bias ? s->experts : 0); e++)
        biased[e] = score[e] + bias[e];
    if (s->groups > 0)
        mark_groups(s, bias ? biased : score, may);
    find_greatest(bias ? biased : score, s->groups > 0 ? may : NULL, s->experts, s->k, ids);
    sort_ascending(ids, s->k);
}

/* Returns the divisor of weights, given their sum. */
static float divisor_of(const struct route_shape *s, float sum)
{
    return !s->normalise ? 1.0f : sum + s->eps < s->least ? s->least : sum + s->eps;
}

static void weigh(const struct route_shape *s, const float *score, const int32_t *ids, const float *factors, float *p)
{
    float sum = 0;
    for (int32_t i = 0; i < s->k; i++) {
        p[i] = score[ids[i]];
        sum += p[i];
    }
    if (s->kind == ROUTE_CHOSEN)
        softmax(p, p, s->k);
    const float divisor = s->kind == ROUTE_CHOSEN ? 1.0f : divisor_of(s, sum);
    for (int32_t i = 0; i < s->k; i++)
        p[i] = p[i] / divisor * s->scale;
    for (int32_t i = 0; i < (factors ? s->k : 0); i++)
        p[i] *= factors[ids[i]];
}

/* Adds a token to its block's counts. probabilities: its softmax, or NULL if nobody asks for what is counted by it. */
static void count(const struct route_shape *s, const struct tally *t, const int32_t *ids, const float *probabilities)
{
    int32_t plain[ROUTE_K];
    for (int32_t i = 0; i < s->k; i++)
        t->counts[ids[i]]++;
    if (!probabilities)
        return;
    find_greatest(probabilities, NULL, s->experts, s->k, plain);
    for (int32_t i = 0; i < s->k; i++)
        t->plain[plain[i]]++;
    for (int32_t e = 0; e < s->experts; e++)
        t->sums[e] += probabilities[e];
}

/* Arguments of routing, from which choices follow. */
struct inputs {
    const float *logits, *bias;
    const int32_t *index;
    const float *factors;
};

/* Returns a token's logits times their factor, if there is one. */
static const float *logits_of(const struct route_shape *s, const float *logits, int64_t row, float *scaled)
{
    const float *x = logits + row * s->experts;
    if (s->logit_factor == 1.0f)
        return x;
    for (int32_t e = 0; e < s->experts; e++)
        scaled[e] = s->logit_factor * x[e];
    return scaled;
}

static void route_block(const struct route_shape *s, const struct route_result *to, const struct inputs *in, int64_t block,
                        const struct tally *t)
{
    float score[ROUTE_EXPERTS], other[ROUTE_EXPERTS], scaled[ROUTE_EXPERTS];
    const int wants = to->plain || to->sums;
    memset(t->counts, 0, (size_t)(3 * s->experts) * 4);
    for (int64_t i = block * BLOCK; i < min_i64(s->rows, (block + 1) * BLOCK); i++) {
        const float *x = logits_of(s, in->logits, i, scaled), *by = s->kind == ROUTE_CHOSEN ? x : score;
        int32_t *ids = to->ids + i * s->k;
        if (s->kind == ROUTE_SOFTMAX)
            softmax(score, x, s->experts);
        else if (s->kind == ROUTE_SIGMOID)
            sigmoids(score, x, s->experts);
        choose(s, by, in->bias, ids);
        weigh(s, by, ids, in->factors, to->p + i * s->k);
        if (in->index && in->index[i] < 0)
            continue;
        if (wants && s->kind != ROUTE_SOFTMAX)
            softmax(other, x, s->experts);
        count(s, t, ids, !wants ? NULL : s->kind == ROUTE_SOFTMAX ? score : other);
    }
}

/* Adds up the blocks' counts, in order. */
static void total(const struct route_shape *s, const struct route_result *to, void *work, int32_t e)
{
    int32_t counts = 0, plain = 0;
    double sum = 0;
    for (int64_t b = 0; b < ceil_div(s->rows, BLOCK); b++) {
        const struct tally t = tally_of(s, work, b);
        counts += t.counts[e];
        plain += t.plain[e];
        sum += (double)t.sums[e];
    }
    if (to->counts)
        to->counts[e] = counts + (s->accumulate ? to->counts[e] : 0);
    if (to->plain)
        to->plain[e] = plain + (s->accumulate ? to->plain[e] : 0);
    if (to->sums)
        to->sums[e] = (float)sum + (s->accumulate ? to->sums[e] : 0);
}

int64_t ops_route_workspace(const struct route_shape *s)
{
    return ceil_div(s->rows, BLOCK) * 3 * s->experts * 4;
}

void ops_route(const struct route_shape *s, const struct route_result *to, const float *logits, const float *bias,
               const int32_t *index, const float *factors, void *work)
{
    const struct inputs in = {logits, bias, index, factors};
    assert(!factors || s->kind != ROUTE_CHOSEN);
#pragma omp parallel for schedule(static) if (s->rows * s->experts > ROWS_SERIAL)
    for (int64_t b = 0; b < ceil_div(s->rows, BLOCK); b++) {
        const struct tally t = tally_of(s, work, b);
        route_block(s, to, &in, b, &t);
    }
    for (int32_t e = 0; e < s->experts; e++)
        total(s, to, work, e);
}

/* Computes a token's dv, the gradients of its chosen scores, from dp. v: those scores; product: sum of the weights' gradients times
 * the weights. */
static void score_gradients(const struct route_shape *s, const float *v, float product, const float *dp, float *dv)
{
    float sum = 0;
    for (int32_t i = 0; i < s->k; i++)
        sum += v[i];
    const float divisor = divisor_of(s, sum);
    const int moves = s->normalise && sum + s->eps >= s->least; /* 0: the divisor is a constant */
    for (int32_t i = 0; i < s->k; i++)
        dv[i] = (s->scale * dp[i] - (moves ? product : 0)) / divisor;
}

/* Computes d[e] += y[e] (g[e] - sum of y g), the gradient through y = softmax. */
CLONES static void add_softmax_gradient(float *d, const float *y, const float *g, int64_t n)
{
    f32x8 sum[2] = {{0}}, v[2], w[2];
    for (int64_t j = 0; j < n; j += LANES) {
        lanes_get(v, y, j, n - j, 0.0f, F32);
        lanes_get(w, g, j, n - j, 0.0f, F32);
        for (int half = 0; half < 2; half++)
            sum[half] += v[half] * w[half];
    }
    const float mean = lanes_sum(sum);
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        d[j] += y[j] * (g[j] - mean);
}

/* Multiplies dp, the gradients of a token's weights, by the experts' factors, and puts the factors' own gradients in dfactor. v: the
 * chosen scores. */
static void factor_gradients(const struct route_shape *s, const struct route_choice *c, int64_t row, const float *v, float *dp)
{
    const int32_t *ids = c->ids + row * s->k;
    float sum = 0;
    for (int32_t i = 0; i < s->k; i++)
        sum += v[i];
    const float divisor = divisor_of(s, sum);
    for (int32_t i = 0; i < s->k; i++) {
        if (c->dfactor)
            c->dfactor[c->place[row * s->k + i]] = dp[i] * (v[i] / divisor * s->scale);
        dp[i] *= c->factors[ids[i]];
    }
}

/* Turns a token's logits into their gradient. dp: gradients of its weights, by expert; balance: gradient of the balancing loss by
 * the mean softmax, or NULL. */
static void token_gradient(const struct route_shape *s, float *logits, const struct route_choice *c, int64_t row, float *dp,
                           const float *balance)
{
    const int32_t *ids = c->ids + row * s->k;
    const float *p = c->p + row * s->k;
    float y[ROUTE_EXPERTS], d[ROUTE_EXPERTS] = {0}, g[ROUTE_EXPERTS] = {0}, v[ROUTE_K], dv[ROUTE_K], scaled[ROUTE_EXPERTS];
    float product = 0;
    const float *x = logits_of(s, logits, row, scaled);
    logits += row * s->experts;
    if (s->kind == ROUTE_SOFTMAX || balance)
        softmax(y, x, s->experts);
    for (int32_t i = 0; i < s->k; i++) {
        v[i] = s->kind == ROUTE_SOFTMAX ? y[ids[i]] : vsigmoid(x[ids[i]]);
        product += dp[i] * p[i];
    }
    if (c->factors)
        factor_gradients(s, c, row, v, dp);
    score_gradients(s, v, product, dp, dv);
    for (int32_t i = 0; i < s->k; i++)
        if (s->kind == ROUTE_SOFTMAX)
            g[ids[i]] = dv[i];
        else
            d[ids[i]] = s->kind == ROUTE_SIGMOID ? dv[i] * v[i] * (1.0f - v[i]) : p[i] * (dp[i] - product / s->scale);
    if (s->kind == ROUTE_SOFTMAX)
        add_softmax_gradient(d, y, g, s->experts);
    if (balance)
        add_softmax_gradient(d, y, balance, s->experts);
    for (int32_t e = 0; e < s->experts; e++)
        logits[e] = s->logit_factor * d[e];
}

/* Collects dp of a token's pairs. Returns 0 if an index does not exist. */
static int gather_gradients(const struct route_shape *s, const struct route_choice *c, int64_t row, float *dp)
{
    for (int32_t i = 0; i < s->k; i++) {
        const int64_t at = row * s->k + i, place = c->place[at];
        if (place < 0 || place >= s->rows * s->k || c->ids[at] < 0 || c->ids[at] >= s->experts)
            return 0;
        dp[i] = c->dp[place];
    }
    return 1;
}

/* Computes the balancing loss's gradient by each expert's softmax in one token. Returns 0 if no token counts. */
static int balance_of(const struct route_shape *s, const int32_t *plain, float *balance)
{
    double count[ROUTE_EXPERTS] = {0}, tokens = 0;
    for (int32_t part = 0; part < (s->parts > 1 ? s->parts : 1); part++)
        for (int32_t e = 0; e < s->experts; e++)
            count[e] += plain[(int64_t)part * s->experts + e];
    for (int32_t e = 0; e < s->experts; e++)
        tokens += count[e];
    tokens /= s->k;
    for (int32_t e = 0; e < s->experts; e++)
        balance[e] = (float)((double)s->aux * s->experts * count[e] / (tokens * tokens));
    return tokens > 0;
}

enum status ops_route_grad(const struct route_shape *s, float *logits, const struct route_choice *c)
{
    float balance[ROUTE_EXPERTS];
    const int balances = c->plain && balance_of(s, c->plain, balance);
    int bad = 0;
#pragma omp parallel for schedule(static) reduction(| : bad) if (s->rows * s->experts > ROWS_SERIAL)
    for (int64_t i = 0; i < s->rows; i++) {
        float dp[ROUTE_K];
        const int counts = balances && !(c->index && c->index[i] < 0);
        if (gather_gradients(s, c, i, dp))
            token_gradient(s, logits, c, i, dp, counts ? balance : NULL);
        else
            bad = 1;
    }
    return bad ? status_fail(ERR_CORRUPT, "a token's choice of experts names one, or a row, that does not exist") : OK;
}

struct route_shape route_shape_of(const struct op_attrs *a)
{
    return (struct route_shape){.rows = a->route.rows,
                                .experts = a->route.experts,
                                .k = a->route.k,
                                .kind = a->route.kind,
                                .normalise = a->route.normalise,
                                .groups = a->route.groups,
                                .group_k = a->route.group_k,
                                .ranked = a->route.ranked != 0 ? a->route.ranked : 2,
                                .accumulate = a->route.accumulate,
                                .parts = a->route.parts,
                                .scale = a->route.scale != 0.0f ? a->route.scale : 1.0f,
                                .eps = a->route.eps,
                                .least = a->route.least,
                                .aux = a->route.aux,
                                .logit_factor = a->route.logit_factor != 0.0f ? a->route.logit_factor : 1.0f};
}

enum status ops_cpu_route(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    const struct route_shape s = route_shape_of(a);
    ops_route(&s, &(struct route_result){arg[0], arg[1], arg[2], arg[3], arg[4]}, arg[5], arg[6], arg[7], arg[8], arg[9]);
    return OK;
}

enum status ops_cpu_route_grad(const struct op_attrs *a, void *const *arg, void *stream)
{
    (void)stream;
    const struct route_shape s = route_shape_of(a);
    return ops_route_grad(&s, arg[0], &(struct route_choice){arg[1], arg[2], arg[3], arg[4], arg[5], arg[6], arg[7], arg[8]});
}
