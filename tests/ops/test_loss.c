/* Compares cross entropy with fp64: value, gradient by finite differences, ignored rows, scaled and capped logits. */
#include "ops_test.h"

struct problem {
    int64_t rows, vocab;
    const double *targets;
    double scale;
};

static float logit_scale, logit_cap; /* attrs.loss.scale and cap */

/* Returns the logit that the loss uses for x: scaled and capped. */
static double taken(double x)
{
    x *= logit_scale != 0.0f ? (double)logit_scale : 1.0;
    return logit_cap > 0.0f ? (double)logit_cap * tanh(x / (double)logit_cap) : x;
}

static double reference(const double *x, void *ctx)
{
    const struct problem *p = ctx;
    double total = 0.0;
    for (int64_t i = 0; i < p->rows; i++) {
        const double *row = x + i * p->vocab;
        double m = -INFINITY, sum = 0.0;
        if (p->targets[i] < 0)
            continue;
        for (int64_t j = 0; j < p->vocab; j++)
            m = fmax(m, taken(row[j]));
        for (int64_t j = 0; j < p->vocab; j++)
            sum += exp(taken(row[j]) - m);
        total += log(sum) + m - taken(row[(int64_t)p->targets[i]]);
    }
    return total * p->scale;
}

static int64_t apart; /* attrs.loss.ld */

static struct step_record record = {.inv_targets = 0.125f};

static struct tensor *each;    /* loss of every row; NULL: not requested */
static struct tensor *weights; /* factors of the rows; NULL: none */
static struct tensor *rounded; /* the gradient in bf16; NULL: in place, if a gradient is requested */

static void run(struct tensor *logits, struct tensor *loss, struct tensor *targets, int64_t rows, int64_t vocab, int gradient)
{
    struct op_case c;
    case_start(&c, OP_LOSS);
    c.attrs.loss.rows = rows;
    c.attrs.loss.vocab = vocab;
    c.attrs.loss.ld = apart;
    c.attrs.loss.scale = logit_scale;
    c.attrs.loss.cap = logit_cap;
    c.attrs.loss.gradient = gradient && !rounded;
    c.attrs.loss.gradient_bf16 = gradient && rounded;
    case_tensor(&c, logits, gradient && !rounded ? INOUT : IN);
    case_tensor(&c, loss, OUT);
    case_tensor(&c, targets, IN);
    case_bytes(&c, &record, sizeof record, 4, IN);
    case_tensor(&c, each, OUT);
    case_tensor(&c, rounded, OUT);
    case_tensor(&c, weights, IN);
    case_run(&c);
}

/* The bf16 gradient equals the one written in place, rounded, and leaves the logits unchanged. */
static void check_rounded(struct tensor *logits, struct tensor *targets, int64_t rows, int64_t vocab)
{
    struct tensor *in_place = tensor_new(logits->n, F32), *loss = tensor_new(1, F64), *same = tensor_new(1, F64);
    for (int64_t i = 0; i < logits->n; i++)
        tensor_set(in_place, i, logits->val[i]);
    run(in_place, loss, targets, rows, vocab, 1);
    rounded = tensor_new(logits->n, BF16);
    run(logits, same, targets, rows, vocab, 1);
    assert_true(same->val[0] == loss->val[0]);
    for (int64_t i = 0; i < logits->n; i++)
        assert_true(rounded->val[i] == (double)bf16_to_float(bf16_from_float((float)in_place->val[i])));
    rounded = NULL;
}

static struct tensor *some_targets(int64_t rows, int64_t vocab)
{
    struct tensor *t = tensor_new(rows, I32);
    for (int64_t i = 0; i < rows; i++)
        tensor_set(t, i, i % 4 == 2 ? -100 : (double)(i * 31 % vocab));
    return t;
}

static void check(int64_t rows, int64_t vocab, double scale)
{
    struct tensor *logits = tensor_random(rows * vocab, F32, scale), *targets = some_targets(rows, vocab);
    struct tensor *loss = tensor_new(1, F64), *loss2 = tensor_new(1, F64), *want = tensor_new(rows * vocab, F64);
    struct problem p = {rows, vocab, targets->val, 1.0};
    double value = reference(logits->val, &p);
    p.scale = record.inv_targets;
    if (rows * rows * vocab * vocab < 4000000) {
        finite_difference(reference, &p, logits->val, logits->n, want->val);
    } else { /* the reference is the formula, which the small cases verify */
        for (int64_t i = 0; i < rows; i++) {
            struct problem one = {1, vocab, targets->val + i, 1.0};
            double lse = reference(logits->val + i * vocab, &one) +
                         (targets->val[i] < 0 ? 0 : logits->val[i * vocab + (int64_t)targets->val[i]]);
            for (int64_t j = 0; j < vocab; j++)
                want->val[i * vocab + j] =
                    targets->val[i] < 0
                        ? 0.0
                        : record.inv_targets * (exp(logits->val[i * vocab + j] - lse) - (j == (int64_t)targets->val[i]));
        }
    }
    memcpy(want->store, want->val, (size_t)want->n * sizeof(double));
    each = tensor_new(rows, F32);
    run(logits, loss2, targets, rows, vocab, 0);
    double sum = 0;
    for (int64_t i = 0; i < rows; i++) {
        assert_true(targets->val[i] >= 0 || each->val[i] == 0.0);
        sum += each->val[i];
    }
    each = NULL;
    assert_true(fabs(sum - loss2->val[0]) <= 1e-7 * (double)rows * (1.0 + scale) * 10.0);
    if (!apart)
        check_rounded(logits, targets, rows, vocab);
    run(logits, loss, targets, rows, vocab, 1);
    assert_true(loss->val[0] == loss2->val[0]);
    if (!(fabs(loss->val[0] - value) <= 2e-7 * (double)rows * (1.0 + scale)))
        fail_msg("loss %.9f, not %.9f", loss->val[0], value);
    /* softmax - 1 cancels if the model is certain, so the limit is absolute: in units of inv_targets (and of the scale) per row */
    double diff = 0.0;
    for (int64_t i = 0; i < logits->n; i++) {
        diff = fmax(diff, fabs(logits->val[i] - want->val[i]));
        if (targets->val[i / vocab] < 0)
            assert_true(logits->val[i] == 0.0);
    }
    if (!(diff <= 3e-7 * record.inv_targets * fmax(1.0, logit_scale)))
        fail_msg("rows %d vocab %d: gradient off by %.2e", (int)rows, (int)vocab, diff / record.inv_targets);
}

static void test_loss(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{1, 1},    {1, 2},    {4, 5},    {3, 17},    {5, 33},
                                        {1, 1023}, {2, 1024}, {3, 1025}, {300, 130}, {7, 5000}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int x = 0; x < 2; x++)
            check(shapes[s][0], shapes[s][1], x ? 20.0 : 1.0);
    tensors_free(NULL);
}

/* Logits are right if scaled, if capped below and above their size, and with both. */
static void test_caps(void **state)
{
    (void)state;
    static const float kinds[][2] = {{0.25f, 0}, {0, 0.5f}, {0, 30}, {4, 3}};
    static const int64_t shapes[][2] = {{1, 2}, {4, 5}, {5, 33}, {1, 1023}, {1, 1025}};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        logit_scale = kinds[k][0], logit_cap = kinds[k][1];
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            check(shapes[s][0], shapes[s][1], 1.0);
    }
    logit_scale = logit_cap = 0;
    tensors_free(NULL);
}

/* Elements between rows are neither read nor written. */
static void test_rows_apart(void **state)
{
    (void)state;
    enum { R = 5, V = 33, LD = 40 };
    struct tensor *x = tensor_random(R * V, F32, 1.0), *y = tensor_new(R * LD, F32), *targets = some_targets(R, V);
    struct tensor *loss = tensor_new(1, F64), *loss2 = tensor_new(1, F64);
    for (int i = 0; i < R * V; i++)
        tensor_set(y, i / V * LD + i % V, x->val[i]);
    run(x, loss, targets, R, V, 1);
    apart = LD;
    run(y, loss2, targets, R, V, 1);
    apart = 0;
    assert_true(loss->val[0] == loss2->val[0]);
    for (int i = 0; i < R * LD; i++)
        assert_true(i % LD < V ? y->val[i] == x->val[i / LD * V + i % LD] : isnan(y->val[i]));
}

/* A row's weight is a factor of its part of the sum and of its gradient, in place and in bf16, but not of its own loss. */
static void test_weights(void **state)
{
    (void)state;
    enum { R = 5, V = 33 };
    static const float factors[R] = {1, -0.5f, 2, 0, 0.25f}; /* powers of two: products are exact */
    for (int kind = 0; kind < 2; kind++) {
        logit_cap = kind ? 2 : 0;
        struct tensor *x = tensor_random(R * V, F32, 1.0), *y = tensor_new(R * V, F32), *targets = some_targets(R, V);
        struct tensor *loss = tensor_new(1, F64), *loss2 = tensor_new(1, F64), *plain = tensor_new(R, F32);
        for (int i = 0; i < R * V; i++)
            tensor_set(y, i, x->val[i]);
        each = plain;
        run(x, loss, targets, R, V, 1);
        each = tensor_new(R, F32);
        weights = tensor_new(R, F32);
        for (int i = 0; i < R; i++)
            tensor_set(weights, i, factors[i]);
        rounded = tensor_new(R * V, BF16);
        run(y, loss2, targets, R, V, 1);
        struct tensor *of_bf16 = rounded;
        rounded = NULL;
        run(y, loss2, targets, R, V, 1);
        double sum = 0;
        for (int i = 0; i < R; i++) {
            assert_true(each->val[i] == plain->val[i]);
            sum += (double)factors[i] * plain->val[i];
            for (int j = i * V; j < (i + 1) * V; j++) {
                assert_true(y->val[j] == x->val[j] * (double)factors[i]);
                assert_true(of_bf16->val[j] == (double)bf16_to_float(bf16_from_float((float)y->val[j])));
            }
        }
        assert_true(fabs(sum - loss2->val[0]) < 1e-5 && fabs(sum - loss->val[0]) > 0.1);
        each = weights = NULL;
    }
    logit_cap = 0;
}

static void test_extremes(void **state)
{
    (void)state;
    enum { V = 2500 };
    struct tensor *x = tensor_new(4 * V, F32), *targets = tensor_new(4, I32), *loss = tensor_new(1, F64);
    for (int i = 0; i < 4 * V; i++) /* the first block of the vocabulary is -inf, then large logits follow */
        tensor_set(x, i, i % V < 1500 ? -INFINITY : 1e4 + i % 2);
    for (int i = 0; i < 4; i++)
        tensor_set(targets, i, 1501);
    run(x, loss, targets, 4, V, 1);
    double want = 4 * (log(500.0 + 500.0 * exp(-1.0)));
    assert_true(fabs(loss->val[0] - want) < 1e-5);
    for (int i = 0; i < 4 * V; i++)
        assert_true(i % V < 1500 ? x->val[i] == 0.0 : isfinite(x->val[i]));

    x = tensor_random(2 * V, F32, 1.0); /* a NaN logit makes the loss NaN */
    tensor_set(x, 77, NAN);
    run(x, loss, targets, 2, V, 0);
    assert_true(isnan(loss->val[0]));
    x = tensor_random(2 * V, F32, 1.0); /* a target outside the vocabulary makes the loss NaN */
    tensor_set(targets, 1, V);
    run(x, loss, targets, 2, V, 1);
    assert_true(isnan(loss->val[0]));
    assert_true(x->val[V] == 0.0 && x->val[2 * V - 1] == 0.0);
    for (int i = 0; i < 4; i++)
        tensor_set(targets, i, -100);
    run(x, loss, targets, 2, V, 1);
    assert_true(loss->val[0] == 0.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_loss, tensors_free),       cmocka_unit_test_teardown(test_caps, tensors_free),
        cmocka_unit_test_teardown(test_rows_apart, tensors_free), cmocka_unit_test_teardown(test_weights, tensors_free),
        cmocka_unit_test_teardown(test_extremes, tensors_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
