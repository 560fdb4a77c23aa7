/* Compares sinks merged into attention's result, and their gradient, with fp64. */
#include "ops_test.h"

#include "ops/sink.h"

static const int64_t SHAPES[][3] = {{1, 1, 1}, {3, 2, 16}, {7, 5, 32}, {257, 2, 40}, {1023, 3, 8}, {1025, 1, 64}, {5000, 4, 16}};
enum { N_SHAPES = sizeof SHAPES / sizeof *SHAPES };

static struct step_record record(int place)
{
    return (struct step_record){.member = {7, place, 7}};
}

/* Starts a case for heads [first, first + heads) of those of member `place` of three; the model has 3 * `share` heads. */
static void start(struct op_case *c, enum op_kind kind, const int64_t shape[3], enum dtype t, int64_t share)
{
    case_start(c, kind);
    c->attrs.sink.rows = shape[0];
    c->attrs.sink.heads = (int32_t)shape[1];
    c->attrs.sink.head_dim = (int32_t)shape[2];
    c->attrs.sink.dtype = t;
    c->attrs.sink.first = (int32_t)(share - shape[1]);
    c->attrs.sink.share = (int32_t)share;
    c->attrs.sink.group = 1;
}

static double with_sink(double lse, double sink)
{
    double m = fmax(lse, sink);
    return m + log(exp(lse - m) + exp(sink - m));
}

static void check_merge(const int64_t shape[3], enum dtype t, double spread, int place)
{
    int64_t rows = shape[0], heads = shape[1], d = shape[2], n = rows * heads, share = heads + place;
    struct tensor *o = tensor_random(n * d, F32, 1.0), *lse = tensor_random(n, F32, spread);
    struct tensor *sinks = tensor_random(3 * share, t, spread);
    struct tensor *want = tensor_new(n * d, F64), *want_lse = tensor_new(n, F64);
    struct step_record r = record(place);
    for (int64_t i = 0; i < n; i++) {
        int64_t h = i % heads, at = h * rows + i / heads;
        if (i % 7 == 3) { /* no key */
            tensor_set(lse, at, -INFINITY);
            for (int64_t j = 0; j < d; j++)
                tensor_set(o, i * d + j, 0);
        }
        double sum = with_sink(lse->val[at], sinks->val[place * share + share - heads + h]);
        tensor_set(want_lse, at, sum);
        for (int64_t j = 0; j < d; j++)
            tensor_set(want, i * d + j, o->val[i * d + j] * exp(lse->val[at] - sum));
    }
    struct op_case c;
    start(&c, OP_ATTN_SINK, shape, t, share);
    case_tensor(&c, o, INOUT);
    case_tensor(&c, lse, INOUT);
    case_tensor(&c, sinks, IN);
    case_bytes(&c, &r, sizeof r, 4, IN);
    case_run(&c);
    double error = 0, norm = 0;
    for (int64_t i = 0; i < n * d; i++) {
        error += (o->val[i] - want->val[i]) * (o->val[i] - want->val[i]);
        norm += want->val[i] * want->val[i];
    }
    /* the second term allows for results below the smallest float */
    if (!(sqrt(error) <= TOL_F32 * sqrt(norm) + 1e-38 * sqrt((double)(n * d))))
        fail_msg("o: error %.3e of %.3e", sqrt(error), sqrt(norm));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(lse->val[i] - want_lse->val[i]) <= 1.2e-7 * fmax(1, fabs(want_lse->val[i]))))
            fail_msg("lse %.9g, not %.9g", lse->val[i], want_lse->val[i]);
}

static void test_merge(void **state)
{
    (void)state;
    for (int s = 0; s < N_SHAPES; s++)
        for (int t = F32; t <= BF16; t++)
            for (int k = 0; k < 3; k++) /* similar weights; one near 1; one that underflows to 0 */
                check_merge(SHAPES[s], (enum dtype)t, (double[]){1, 20, 300}[k], k);
    tensors_free(NULL);
}

static void check_gradient(const int64_t shape[3], enum dtype t, int place)
{
    int64_t rows = shape[0], heads = shape[1], n = rows * heads, share = heads + place;
    struct tensor *grad = tensor_random(3 * share, F32, 1.0), *want = tensor_new(3 * share, F64);
    struct tensor *sinks = tensor_random(3 * share, t, 1.0), *lse = tensor_random(n, F32, 1.0),
                  *delta = tensor_random(n, F32, 1.0);
    struct step_record r = record(place);
    for (int64_t h = 0; h < 3 * share; h++) {
        int64_t own = h - place * share - (share - heads);
        double sum = 0;
        for (int64_t i = 0; i < rows && own >= 0 && own < heads; i++) {
            tensor_set(lse, own * rows + i, with_sink(lse->val[own * rows + i], sinks->val[h]));
            sum += exp(sinks->val[h] - lse->val[own * rows + i]) * delta->val[i * heads + own];
        }
        tensor_set(want, h, grad->val[h] - sum);
    }
    struct tensor *before = tensor_copy(grad);
    struct op_case c;
    start(&c, OP_ATTN_SINK_GRAD, shape, t, share);
    case_tensor(&c, grad, INOUT);
    case_tensor(&c, sinks, IN);
    case_tensor(&c, lse, IN);
    case_tensor(&c, delta, IN);
    case_bytes(&c, &r, sizeof r, 4, IN);
    case_run(&c);
    check_error("dsinks", grad->val, want->val, 3 * share, TOL_F32);
    for (int64_t h = 0; h < 3 * share; h++) /* sinks of other members' heads get no gradient here */
        if (h < place * share + share - heads || h >= (place + 1) * share)
            assert_true(grad->val[h] == before->val[h]);
}

static void test_gradient(void **state)
{
    (void)state;
    for (int s = 0; s < N_SHAPES; s++)
        for (int t = F32; t <= BF16; t++)
            for (int place = 0; place < 3; place++)
                check_gradient(SHAPES[s], (enum dtype)t, place);
    tensors_free(NULL);
}

/* ---- by differences ---- */

enum { ROWS = 6, KEYS = 5, D = 3 };

struct problem {
    double score[ROWS][KEYS], v[KEYS][D], go[ROWS][D];
};

/* Returns the sum of go o of one head, whose softmax has the sink in its denominator. */
static double loss_of(const double *sink, void *ctx)
{
    const struct problem *p = ctx;
    double loss = 0;
    for (int i = 0; i < ROWS; i++) {
        double sum = exp(sink[0]);
        for (int j = 0; j < KEYS; j++)
            sum += exp(p->score[i][j]);
        for (int j = 0; j < KEYS; j++)
            for (int k = 0; k < D; k++)
                loss += exp(p->score[i][j]) / sum * p->v[j][k] * p->go[i][k];
    }
    return loss;
}

/* Attention without the sink, followed by the merge, delta and the gradient as in programs, agrees with differences of the
 * definition. */
static void test_differences(void **state)
{
    (void)state;
    struct problem p;
    struct tensor *random = tensor_random(ROWS * KEYS + KEYS * D + ROWS * D, F32, 1.0);
    memcpy(&p, random->val, sizeof p);
    double sink = 0.7, slope;
    float o[ROWS * D] = {0}, lse[ROWS], delta[ROWS], go[ROWS * D], s = (float)sink, gradient = 0;
    for (int i = 0; i < ROWS; i++) {
        double sum = 0, out[D] = {0};
        for (int j = 0; j < KEYS; j++) {
            sum += exp(p.score[i][j]);
            for (int k = 0; k < D; k++)
                out[k] += exp(p.score[i][j]) * p.v[j][k];
        }
        lse[i] = (float)log(sum);
        for (int k = 0; k < D; k++) {
            o[i * D + k] = (float)(out[k] / sum);
            go[i * D + k] = (float)p.go[i][k];
        }
    }
    struct sink_shape shape = {.rows = ROWS, .heads = 1, .head_dim = D};
    ops_attn_sink(&shape, o, lse, &s);
    for (int i = 0; i < ROWS; i++) {
        delta[i] = 0;
        for (int k = 0; k < D; k++)
            delta[i] += o[i * D + k] * go[i * D + k];
    }
    ops_attn_sink_grad(&shape, &gradient, &s, lse, delta);
    finite_difference(loss_of, &p, &sink, 1, &slope);
    if (!(fabs(gradient - slope) <= 1e-6 * fabs(slope)))
        fail_msg("%.9g, by differences %.9g", gradient, slope);
    tensors_free(NULL);
}

/* A NaN in lse appears in the results; so does a delta that is not finite. */
static void test_nan(void **state)
{
    (void)state;
    float o[4] = {1, 2, 3, 4}, lse[2] = {NAN, 1}, sink = 0.5f, delta[2] = {0, INFINITY}, gradient = 0;
    struct sink_shape shape = {.rows = 2, .heads = 1, .head_dim = 2};
    ops_attn_sink(&shape, o, lse, &sink);
    assert_true(isnan(o[0]) && isnan(o[1]) && isnan(lse[0]) && isfinite(o[2]) && isfinite(lse[1]));
    ops_attn_sink_grad(&shape, &gradient, &sink, lse, delta);
    assert_true(!isfinite(gradient));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_merge, tensors_free),
        cmocka_unit_test_teardown(test_gradient, tensors_free),
        cmocka_unit_test_teardown(test_differences, tensors_free),
        cmocka_unit_test(test_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
