/* Routing, sorting by expert and adding up by token, against their definitions in fp64 and against differences. */
#include "ops_test.h"

#include "ops/permute.h"
#include "ops/route.h"

enum { EXPERTS = 256, K = 16 };

struct rule {
    int kind, normalise, groups, group_k, bias;
    float scale, eps, least, logit_factor;
    int factors; /* 1: weights are multiplied by factors of experts */
    int ranked;  /* scores whose sum ranks a group; 0: two */
};

/* The rows of families (softmax, then k; k, then softmax; sigmoids with groups; without; ernie's), and what else is possible. */
static const struct rule RULES[] = {{ROUTE_SOFTMAX, 0, 0, 0, 0, 0, 0, 0},
                                    {ROUTE_SOFTMAX, 1, 0, 0, 0, 0, 0, 0},
                                    {ROUTE_CHOSEN, 0, 0, 0, 0, 0, 0, 0},
                                    {ROUTE_SIGMOID, 1, 4, 2, 1, 2.5f, 1e-20f, 0},
                                    {ROUTE_SIGMOID, 1, 0, 0, 1, 0, 1e-20f, 0},
                                    {ROUTE_SIGMOID, 0, 0, 0, 1, 1.5f, 0, 0},
                                    {ROUTE_SOFTMAX, 1, 0, 0, 1, 0, 0, 0.25f},
                                    {ROUTE_CHOSEN, 0, 4, 3, 1, 0.5f, 0, 0},
                                    {ROUTE_SOFTMAX, 1, 0, 0, 0, 0, 0, 0, 0.6f, 1},
                                    {ROUTE_SIGMOID, 1, 0, 0, 1, 1.5f, 0, 0, 1.7f, 1},
                                    {ROUTE_SOFTMAX, 0, 4, 2, 0, 16.0f, 0, 0, 0, 0, 1}};
enum { N_RULES = sizeof RULES / sizeof *RULES };

static const int64_t SHAPES[][3] = {{1, 8, 1}, {3, 8, 4}, {63, 16, 3}, {64, 64, 8}, {65, 128, 8}, {300, 256, 16}, {257, 20, 2}};
enum { N_SHAPES = sizeof SHAPES / sizeof *SHAPES };

static void softmax(const double *x, int64_t n, double *y)
{
    double most = -INFINITY, sum = 0;
    for (int64_t e = 0; e < n; e++)
        most = fmax(most, x[e]);
    for (int64_t e = 0; e < n; e++)
        sum += exp(x[e] - most);
    for (int64_t e = 0; e < n; e++)
        y[e] = exp(x[e] - most) / sum;
}

/* Returns an expert's factor, exact in fp32. */
static double factor_of(int64_t e)
{
    return 0.5 + (double)(e % 5) / 4;
}

static double logit_factor_of(const struct rule *r)
{
    return r->logit_factor != 0 ? (double)r->logit_factor : 1;
}

static void scores_of(const struct rule *r, const double *logits, int64_t n, double *score)
{
    double x[EXPERTS];
    for (int64_t e = 0; e < n; e++)
        x[e] = logit_factor_of(r) * logits[e];
    if (r->kind == ROUTE_SOFTMAX)
        softmax(x, n, score);
    for (int64_t e = 0; e < n && r->kind != ROUTE_SOFTMAX; e++)
        score[e] = r->kind == ROUTE_SIGMOID ? 1 / (1 + exp(-x[e])) : x[e];
}

/* Marks the k greatest of n, of equal ones the first. *margin becomes at most the least distance of two scores of which one is
 * taken and one is not, unless they are equal. */
static void mark(const double *score, int64_t n, int64_t k, int *taken, double *margin)
{
    double last = INFINITY, next = -INFINITY; /* the least that is taken, the greatest that is not */
    for (int64_t e = 0; e < n; e++)
        taken[e] = 0;
    for (int64_t i = 0; i < k; i++) {
        int64_t best = -1;
        for (int64_t e = 0; e < n; e++)
            best = !taken[e] && (best < 0 || score[e] > score[best]) ? e : best;
        taken[best] = 1;
        last = score[best];
    }
    for (int64_t e = 0; e < n; e++)
        if (!taken[e] && score[e] > next)
            next = score[e];
    for (int64_t e = 0; e < n; e++) {
        const double distance = taken[e] ? score[e] - next : last - score[e];
        if (distance > 0 && distance < *margin)
            *margin = distance;
    }
}

/* Chooses by the definition. Returns 0 if rounding could change the choice. */
static int choose(const struct rule *r, const double *score, const double *bias, int64_t n, int64_t k, int *taken)
{
    double biased[EXPERTS], of_group[EXPERTS], margin = 1;
    int best[EXPERTS], of_experts[EXPERTS];
    for (int64_t e = 0; e < n; e++)
        biased[e] = score[e] + (r->bias ? bias[e] : 0);
    for (int g = 0; g < r->groups; g++) {
        const int64_t size = n / r->groups;
        of_group[g] = 0;
        double none = 1;
        mark(biased + g * size, size, r->ranked ? r->ranked : 2, of_experts, &none);
        for (int64_t e = 0; e < size; e++)
            of_group[g] += of_experts[e] ? biased[g * size + e] : 0;
    }
    if (r->groups) {
        mark(of_group, r->groups, r->group_k, best, &margin);
        for (int64_t e = 0; e < n; e++)
            biased[e] = best[e / (n / r->groups)] ? biased[e] : -1e9 - (double)e;
    }
    mark(biased, n, k, taken, &margin);
    return margin > 2e-6;
}

/* Computes the weights of the taken experts, in ascending order. */
static void weigh(const struct rule *r, const double *score, const int *taken, int64_t n, double *p)
{
    double v[K] = {0}, factor[K], sum = 0;
    int64_t k = 0;
    for (int64_t e = 0; e < n; e++)
        if (taken[e]) {
            factor[k] = r->factors ? factor_of(e) : 1;
            v[k++] = score[e];
        }
    if (r->kind == ROUTE_CHOSEN)
        softmax(v, k, v);
    for (int64_t i = 0; i < k; i++)
        sum += v[i];
    if (!r->normalise || r->kind == ROUTE_CHOSEN)
        sum = 1;
    else
        sum = fmax(sum + (double)r->eps, (double)r->least);
    for (int64_t i = 0; i < k; i++)
        p[i] = v[i] / sum * (r->scale != 0 ? (double)r->scale : 1) * factor[i];
}

static void set_rule(struct op_case *c, const struct rule *r, const int64_t shape[3])
{
    c->attrs.route.rows = shape[0];
    c->attrs.route.experts = (int32_t)shape[1];
    c->attrs.route.k = (int32_t)shape[2];
    c->attrs.route.kind = r->kind;
    c->attrs.route.normalise = r->normalise;
    c->attrs.route.groups = r->groups;
    c->attrs.route.group_k = r->group_k;
    c->attrs.route.ranked = r->ranked;
    c->attrs.route.scale = r->scale;
    c->attrs.route.eps = r->eps;
    c->attrs.route.least = r->least;
    c->attrs.route.logit_factor = r->logit_factor;
}

/* Returns the factors of experts; NULL: the rule has none. */
static struct tensor *factors_of(const struct rule *r, int64_t n)
{
    struct tensor *factors = r->factors ? tensor_new(n, F32) : NULL;
    for (int64_t e = 0; factors && e < n; e++)
        tensor_set(factors, e, factor_of(e));
    return factors;
}

/* Computes the softmax of a token's logits, times their factor. */
static void probabilities_of(const struct rule *r, const double *logits, int64_t n, double *y)
{
    const struct rule by_softmax = {.kind = ROUTE_SOFTMAX, .logit_factor = r->logit_factor};
    scores_of(&by_softmax, logits, n, y);
}

struct results {
    struct tensor *ids, *p, *counts, *plain, *sums;
};

/* Runs OP_ROUTE. with: bits 0 to 2: counts, plain and sums are asked for; bit 3: they are added to. */
static struct results route(const struct rule *r, const int64_t shape[3], struct tensor *logits, struct tensor *bias,
                            struct tensor *index, int with)
{
    struct results x = {tensor_new(shape[0] * shape[2], I32), tensor_new(shape[0] * shape[2], F32)};
    struct op_case c;
    x.counts = with & 1 ? tensor_new(shape[1], I32) : NULL;
    x.plain = with & 2 ? tensor_new(shape[1], I32) : NULL;
    x.sums = with & 4 ? tensor_new(shape[1], F32) : NULL;
    case_start(&c, OP_ROUTE);
    set_rule(&c, r, shape);
    c.attrs.route.accumulate = with >> 3 & 1;
    for (int64_t e = 0; e < shape[1] && with & 8; e++) {
        tensor_set(x.counts, e, 100 + (double)e);
        tensor_set(x.plain, e, 200);
        tensor_set(x.sums, e, 3);
    }
    case_tensor(&c, x.ids, OUT);
    case_tensor(&c, x.p, OUT);
    case_tensor(&c, x.counts, with & 8 ? INOUT : OUT);
    case_tensor(&c, x.plain, with & 8 ? INOUT : OUT);
    case_tensor(&c, x.sums, with & 8 ? INOUT : OUT);
    case_tensor(&c, logits, IN);
    case_tensor(&c, r->bias ? bias : NULL, IN);
    case_tensor(&c, index, IN);
    case_tensor(&c, factors_of(r, shape[1]), IN);
    case_work(&c);
    case_run(&c);
    return x;
}

static void check_route(const struct rule *r, const int64_t shape[3], int with)
{
    const int64_t rows = shape[0], n = shape[1], k = shape[2];
    tensors_number(0);
    struct tensor *logits = tensor_random(rows * n, F32, 2.0), *bias = tensor_random(n, F32, 0.3), *index = tensor_new(rows, I32);
    struct tensor *want = tensor_new(rows * k, F64), *sums = tensor_new(n, F64);
    int64_t counts[EXPERTS] = {0}, plain[EXPERTS] = {0}, unsure = 0;
    for (int64_t e = 0; e < n; e++)
        tensor_set(sums, e, with & 8 ? 3 : 0);
    for (int64_t i = 0; i < rows; i++) {
        tensor_set(index, i, i % 5 == 3 ? -1 : (double)i);
        if (i % 3 == 1) /* two experts are equal */
            tensor_set(logits, i * n + n - 1, logits->val[i * n + i % n]);
    }
    const struct results x = route(r, shape, logits, bias, with & 16 ? index : NULL, with);
    for (int64_t i = 0; i < rows; i++) {
        const struct rule by_softmax = {.kind = ROUTE_SOFTMAX};
        double score[EXPERTS], probabilities[EXPERTS], p[K];
        int taken[EXPERTS], plainly[EXPERTS];
        const int counted = !(with & 16 && i % 5 == 3);
        scores_of(r, logits->val + i * n, n, score);
        probabilities_of(r, logits->val + i * n, n, probabilities);
        int sure = choose(r, score, bias->val, n, k, taken);
        sure &= !(with & 2) || choose(&by_softmax, probabilities, NULL, n, k, plainly);
        unsure += !sure;
        if (!sure) /* takes the kernel's choice */
            for (int64_t e = 0; e < n; e++)
                taken[e] = 0;
        for (int64_t j = 0; j < k && !sure; j++)
            taken[(int64_t)x.ids->val[i * k + j]] = 1;
        weigh(r, score, taken, n, p);
        for (int64_t e = 0, j = 0; e < n; e++) {
            if (taken[e]) {
                assert_true(j < k && x.ids->val[i * k + j] == (double)e);
                tensor_set(want, i * k + j, p[j]);
                j++;
            }
            counts[e] += counted && taken[e];
            plain[e] += counted && with & 2 && plainly[e];
            sums->val[e] += counted ? probabilities[e] : 0;
        }
    }
    assert_true(unsure <= rows / 16);
    check_error("p", x.p->val, want->val, rows * k, TOL_F32);
    for (int64_t e = 0; e < n && x.counts; e++)
        assert_int_equal((int64_t)x.counts->val[e], counts[e] + (with & 8 ? 100 + e : 0));
    for (int64_t e = 0; e < n && x.plain && unsure == 0; e++)
        assert_int_equal((int64_t)x.plain->val[e], plain[e] + (with & 8 ? 200 : 0));
    if (x.sums)
        check_error("sums", x.sums->val, sums->val, n, TOL_F32);
    tensors_free(NULL);
}

static void test_choice(void **state)
{
    static const int asked[] = {7, 0, 1 + 16, 15 + 16, 2, 4};
    (void)state;
    for (int s = 0; s < N_SHAPES; s++)
        for (int r = 0; r < N_RULES; r++)
            check_route(&RULES[r], SHAPES[s], asked[(r + s) % 6]);
    for (int a = 0; a < 6; a++)
        check_route(&RULES[3], SHAPES[3], asked[a]);
}

static void check_ids(const struct results *x, int64_t row, int64_t k, const int *want)
{
    for (int64_t j = 0; j < k; j++)
        assert_int_equal((int)x->ids->val[row * k + j], want[j]);
}

/* Equal scores go to the lower expert, in groups, too; experts outside the chosen groups are never taken, whatever their scores. */
static void test_ties(void **state)
{
    static const double rows[4][8] = {
        {1, 1, 1, 1, 1, 1, 1, 1}, {0, 2, 1, 2, 1, 2, 1, 0}, {-9, -9, -9, -9, -9, -9, -8, -9}, {3, -90, 1, 1, 2, 2, 1.5, 1.5}};
    static const int plain[4][3] = {{0, 1, 2}, {1, 3, 5}, {0, 1, 6}, {0, 4, 5}};
    static const int grouped[4][3] = {{0, 1, 2}, {2, 3, 5}, {0, 1, 6}, {4, 5, 6}};
    const struct rule groups = {.kind = ROUTE_CHOSEN, .groups = 4, .group_k = 2};
    const int64_t shape[3] = {4, 8, 3};
    struct tensor *logits = tensor_new(32, F32);
    (void)state;
    for (int i = 0; i < 32; i++)
        tensor_set(logits, i, rows[i / 8][i % 8]);
    for (int kind = ROUTE_SOFTMAX; kind <= ROUTE_SIGMOID; kind++) {
        const struct results x = route(&(struct rule){.kind = kind}, shape, logits, NULL, NULL, 0);
        for (int i = 0; i < 4; i++)
            check_ids(&x, i, 3, plain[i]);
    }
    const struct results x = route(&groups, shape, logits, NULL, NULL, 0);
    for (int i = 0; i < 4; i++)
        check_ids(&x, i, 3, grouped[i]);
    static const int by_greatest[4][3] = {{0, 1, 2}, {1, 2, 3}, {0, 1, 6}, {0, 4, 5}};
    const struct rule greatest = {.kind = ROUTE_CHOSEN, .groups = 4, .group_k = 2, .ranked = 1};
    const struct results y = route(&greatest, shape, logits, NULL, NULL, 0);
    for (int i = 0; i < 4; i++)
        check_ids(&y, i, 3, by_greatest[i]);
}

/* A biased choice may have negative scores: experts of other groups count as minus infinity, not as 0. */
static void test_negative_scores(void **state)
{
    const struct rule r = {.kind = ROUTE_SIGMOID, .groups = 2, .group_k = 1, .bias = 1};
    const int64_t shape[3] = {1, 4, 2};
    struct tensor *logits = tensor_new(4, F32), *bias = tensor_new(4, F32);
    (void)state;
    for (int e = 0; e < 4; e++) {
        tensor_set(logits, e, e);
        tensor_set(bias, e, e < 2 ? -3 : -2);
    }
    const struct results x = route(&r, shape, logits, bias, NULL, 0);
    check_ids(&x, 0, 2, (int[]){2, 3});
}

/* A logit that is not a number is seen in the token's weights, and harms no other token; ids are those of experts. */
static void test_nan(void **state)
{
    (void)state;
    tensors_number(0);
    for (int r = 0; r < N_RULES; r++)
        for (int which = 0; which < 3; which++) { /* one; all but one; all */
            const int64_t shape[3] = {3, 16, 4};
            struct tensor *logits = tensor_random(48, F32, 1.0), *bias = tensor_random(16, F32, 0.1);
            for (int e = which == 1 ? 1 : 0; e < 16; e++)
                if (which > 0 || e == 11)
                    tensor_set(logits, 16 + e, NAN);
            const struct results x = route(&RULES[r], shape, logits, bias, NULL, 7);
            int seen = 0;
            for (int j = 0; j < 12; j++) {
                assert_true(x.ids->val[j] >= 0 && x.ids->val[j] < 16 && (j % 4 == 0 || x.ids->val[j] > x.ids->val[j - 1]));
                assert_true(j / 4 == 1 || isfinite(x.p->val[j]));
                seen |= isnan(x.p->val[j]);
            }
            assert_true(seen && isnan(x.sums->val[0]));
            tensors_free(NULL);
        }
}

/* ---- gradients ---- */

struct problem {
    const struct rule *r;
    int64_t n, k;
    int *taken;
    const double *dp, *plain; /* plain: an expert's tokens among those that count, or NULL */
    double aux, tokens;
};

/* Returns a token's part of the loss: its weights times dp, and of the balancing loss its part. */
static double loss_of(const double *logits, void *ctx)
{
    const struct problem *x = ctx;
    double score[EXPERTS], p[K], loss = 0;
    scores_of(x->r, logits, x->n, score);
    weigh(x->r, score, x->taken, x->n, p);
    for (int64_t j = 0; j < x->k; j++)
        loss += x->dp[j] * p[j];
    probabilities_of(x->r, logits, x->n, score);
    for (int64_t e = 0; e < x->n && x->plain; e++)
        loss += x->aux * (double)x->n * x->plain[e] / x->tokens * score[e] / x->tokens;
    return loss;
}

static void check_gradient(const struct rule *r, const int64_t shape[3], int balances)
{
    const int64_t rows = shape[0], n = shape[1], k = shape[2], pairs = rows * k;
    tensors_number(0);
    struct tensor *logits = tensor_random(rows * n, F32, 1.0), *bias = tensor_random(n, F32, 0.3);
    struct tensor *dp = tensor_random(pairs, F32, 1.0), *place = tensor_new(pairs, I32), *want = tensor_new(rows * n, F64);
    const int64_t parts = 1 + n % 3;
    struct tensor *plain = tensor_new(parts * n, I32), *index = tensor_new(rows, I32);
    struct tensor *dfactor = r->factors ? tensor_new(pairs, F32) : NULL, *want_dfactor = tensor_new(pairs, F64);
    const struct results x = route(r, shape, logits, bias, NULL, 0);
    double total = 0, of_all[EXPERTS] = {0};
    for (int64_t i = 0; i < parts * n; i++) {
        tensor_set(plain, i, (double)(i * 7 % 5));
        of_all[i % n] += (double)(i * 7 % 5);
        total += (double)(i * 7 % 5);
    }
    for (int64_t i = 0; i < pairs; i++)
        tensor_set(place, i, (double)(pairs - 1 - i));
    for (int64_t i = 0; i < rows; i++) {
        double of_pairs[K], gradient[EXPERTS];
        int taken[EXPERTS] = {0};
        tensor_set(index, i, i % 4 == 2 ? -1 : 5);
        for (int64_t j = 0; j < k; j++) {
            of_pairs[j] = dp->val[pairs - 1 - (i * k + j)];
            taken[(int64_t)x.ids->val[i * k + j]] = 1;
        }
        for (int64_t j = 0; j < k; j++) /* a weight is proportional to its factor */
            tensor_set(want_dfactor, pairs - 1 - (i * k + j),
                       of_pairs[j] * x.p->val[i * k + j] / factor_of((int64_t)x.ids->val[i * k + j]));
        struct problem problem = {r, n, k, taken, of_pairs, balances && i % 4 != 2 ? of_all : NULL, 0.375, total / (double)k};
        finite_difference(loss_of, &problem, logits->val + i * n, n, gradient);
        for (int64_t e = 0; e < n; e++)
            tensor_set(want, i * n + e, gradient[e]);
    }
    struct op_case c;
    case_start(&c, OP_ROUTE_GRAD);
    set_rule(&c, r, shape);
    c.attrs.route.aux = 0.375f;
    c.attrs.route.parts = (int32_t)parts;
    case_tensor(&c, logits, INOUT);
    case_tensor(&c, x.ids, IN);
    case_tensor(&c, x.p, IN);
    case_tensor(&c, dp, IN);
    case_tensor(&c, place, IN);
    case_tensor(&c, balances ? plain : NULL, IN);
    case_tensor(&c, balances ? index : NULL, IN);
    case_tensor(&c, factors_of(r, n), IN);
    case_tensor(&c, dfactor, OUT);
    case_run(&c);
    if (dfactor)
        check_error("dfactor", dfactor->val, want_dfactor->val, pairs, TOL_F32);
    check_error("dlogits", logits->val, want->val, rows * n, 3e-6); /* differences of p's fp32 rounding add up over k */
    tensors_free(NULL);
}

static void test_gradient(void **state)
{
    (void)state;
    for (int s = 0; s < 5; s++) /* small shapes first */
        for (int r = 0; r < N_RULES; r++)
            check_gradient(&RULES[r], SHAPES[s], (r + s) % 2);
}

/* ---- sorting and adding up ---- */

/* Sets ids of n tokens with k experts each, ascending. how: 0: spread out; 1: all to the first ones; 2: none to most. */
static struct tensor *make_ids(int64_t rows, int64_t k, int64_t experts, int how)
{
    struct tensor *ids = tensor_new(rows * k, I32);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < k; j++) {
            const int64_t first = how == 1 ? 0 : how == 2 ? experts - k : i * i % (experts - k + 1);
            tensor_set(ids, i * k + j, (double)(first + j));
        }
    return ids;
}

static struct tensor *permute(int64_t rows, int64_t k, int64_t experts, struct tensor *ids, struct tensor **place,
                              struct tensor **offsets)
{
    struct tensor *order = tensor_new(rows * k, I32);
    struct op_case c;
    *place = tensor_new(rows * k, I32);
    *offsets = tensor_new(experts + 1, I32);
    case_start(&c, OP_PERMUTE);
    set_rule(&c, &(struct rule){0}, (int64_t[]){rows, experts, k});
    case_tensor(&c, order, OUT);
    case_tensor(&c, *place, OUT);
    case_tensor(&c, *offsets, OUT);
    case_tensor(&c, ids, IN);
    case_run(&c);
    return order;
}

static void test_permute(void **state)
{
    (void)state;
    for (int s = 0; s < N_SHAPES; s++)
        for (int how = 0; how < 3; how++) {
            const int64_t rows = SHAPES[s][0], experts = SHAPES[s][1], k = SHAPES[s][2];
            struct tensor *ids = make_ids(rows, k, experts, how), *place, *offsets;
            struct tensor *order = permute(rows, k, experts, ids, &place, &offsets);
            int64_t row = 0;
            for (int64_t e = 0; e < experts; e++) {
                assert_int_equal((int64_t)offsets->val[e], row);
                for (int64_t i = 0; i < rows * k; i++)
                    if (ids->val[i] == (double)e) { /* in the pairs' order */
                        assert_int_equal((int64_t)order->val[row], i);
                        assert_int_equal((int64_t)place->val[i], row++);
                    }
            }
            assert_int_equal((int64_t)offsets->val[experts], rows * k);
            tensors_free(NULL);
        }
}

static void check_combine(const int64_t shape[3], int64_t dim, enum dtype t, int adds, int biased)
{
    const int64_t rows = shape[0], experts = shape[1], k = shape[2], n = rows * k;
    tensors_number(0);
    struct tensor *ids = make_ids(rows, k, experts, 0), *place, *offsets;
    struct tensor *acc = tensor_random(rows * dim, F32, 1.0), *y = tensor_random(n * dim, t, 1.0),
                  *p = tensor_random(n, F32, 1.0), *bias = tensor_random(experts * dim, t, 1.0),
                  *want = tensor_new(rows * dim, F64);
    permute(rows, k, experts, ids, &place, &offsets);
    for (int64_t i = 0; i < rows * dim; i++) {
        double sum = adds ? acc->val[i] : 0;
        for (int64_t j = 0; j < k; j++) {
            const int64_t pair = i / dim * k + j;
            sum += y->val[(int64_t)place->val[pair] * dim + i % dim];
            sum += biased ? p->val[pair] * bias->val[(int64_t)ids->val[pair] * dim + i % dim] : 0;
        }
        tensor_set(want, i, sum);
    }
    struct op_case c;
    case_start(&c, OP_COMBINE);
    c.attrs.combine.rows = rows;
    c.attrs.combine.dim = dim;
    c.attrs.combine.k = (int32_t)k;
    c.attrs.combine.experts = (int32_t)experts;
    c.attrs.combine.y_type = c.attrs.combine.dtype = (int32_t)t;
    c.attrs.combine.accumulate = adds;
    case_tensor(&c, acc, adds ? INOUT : OUT);
    case_tensor(&c, y, IN);
    case_tensor(&c, place, IN);
    case_tensor(&c, biased ? p : NULL, IN);
    case_tensor(&c, biased ? bias : NULL, IN);
    case_tensor(&c, biased ? ids : NULL, IN);
    case_run(&c);
    check_error("acc", acc->val, want->val, rows * dim, TOL_F32);
    tensors_free(NULL);
}

static void test_combine(void **state)
{
    (void)state;
    for (int s = 0; s < N_SHAPES; s++)
        for (int x = 0; x < 8; x++) {
            const int64_t dim = (int64_t[]){1, 17, 1030}[(s + x) % 3], rows = dim > 17 ? min_i64(SHAPES[s][0], 20) : SHAPES[s][0];
            check_combine((int64_t[]){rows, SHAPES[s][1], SHAPES[s][2]}, dim, x & 1 ? BF16 : F32, x >> 1 & 1, x >> 2);
        }
}

/* Results of pairs are added in the order of their experts' numbers. */
static void test_combine_order(void **state)
{
    const struct combine_shape s = {.rows = 1, .dim = 1, .k = 3, .experts = 3};
    const float y[3] = {1e8f, -1e8f, 1};
    const int32_t place[3] = {0, 1, 2};
    float acc;
    (void)state;
    assert_int_equal(ops_combine(&s, &acc, &(struct combine_pairs){.y = y, .place = place}), OK);
    assert_true(acc == 1);
}

/* Indices that do not exist are errors, and nothing beside the arguments is touched. */
static void test_corrupt(void **state)
{
    const struct combine_shape s = {.rows = 2, .dim = 1, .k = 2, .experts = 3};
    const struct route_shape route = {.rows = 2, .experts = 3, .k = 2, .scale = 1};
    static const int32_t wrong[] = {-1, 4, INT32_MIN, INT32_MAX};
    float y[4] = {0}, p[4] = {0}, bias[3] = {0}, acc[2], logits[6] = {0};
    (void)state;
    for (int w = 0; w < 4; w++) {
        int32_t place[4] = {0, 1, 2, 3}, ids[4] = {0, 1, 1, 2}, order[4], offsets[4];
        struct combine_pairs x = {y, place, p, bias, ids};
        const struct route_choice choice = {ids, p, p, place, NULL, NULL};
        assert_int_equal(ops_combine(&s, acc, &x), OK);
        assert_int_equal(ops_route_grad(&route, logits, &choice), OK);
        place[2] = wrong[w];
        assert_int_equal(ops_combine(&s, acc, &x), ERR_CORRUPT);
        assert_int_equal(ops_route_grad(&route, logits, &choice), ERR_CORRUPT);
        place[2] = 2;
        ids[3] = wrong[w] == 4 ? 3 : wrong[w];
        assert_int_equal(ops_combine(&s, acc, &x), ERR_CORRUPT);
        assert_int_equal(ops_route_grad(&route, logits, &choice), ERR_CORRUPT);
        assert_int_equal(ops_permute(4, 3, order, place, offsets, ids), ERR_CORRUPT);
        x.bias = NULL; /* nobody asks for the expert */
        assert_int_equal(ops_combine(&s, acc, &x), OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* short ones first: a planted fault's program ends with its first failure */
        cmocka_unit_test(test_corrupt),
        cmocka_unit_test(test_combine_order),
        cmocka_unit_test(test_combine),
        cmocka_unit_test(test_permute),
        cmocka_unit_test_teardown(test_ties, tensors_free),
        cmocka_unit_test_teardown(test_negative_scores, tensors_free),
        cmocka_unit_test(test_nan),
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
