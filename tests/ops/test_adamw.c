/* Gradient norm, clipping and the update. */
#include "ops_test.h"

static double run_sumsq(struct tensor *x)
{
    struct tensor *sum = tensor_new(1, F64);
    struct op_case c;
    case_start(&c, OP_SUMSQ);
    c.attrs.vec.n = x->n;
    case_tensor(&c, sum, OUT);
    case_tensor(&c, x, IN);
    case_run(&c);
    return sum->val[0];
}

/* The documented order, in plain C, bit for bit. */
static double ordered_sumsq(const double *x, int64_t n)
{
    double total = 0.0;
    for (int64_t b = 0; b < n; b += SUMSQ_BLOCK) {
        double lane[16] = {0};
        for (int64_t i = b; i < n && i < b + SUMSQ_BLOCK; i++)
            lane[(i - b) % 16] += x[i] * x[i];
        for (int half = 8; half > 0; half /= 2)
            for (int l = 0; l < half; l++)
                lane[l] += lane[l + half];
        total += lane[0];
    }
    return total;
}

static void test_sumsq(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, 1, 15, 16, 17, 4095, 4096, 4097, 8200, 3000001};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        struct tensor *x = tensor_random(sizes[s], F32, 1.0);
        assert_true(run_sumsq(x) == ordered_sumsq(x->val, x->n));
        tensors_free(NULL);
    }
    struct tensor *x = tensor_random(5000, F32, 1e30); /* squares overflow fp32, not fp64 */
    assert_true(isfinite(run_sumsq(x)));
    tensor_set(x, 4999, NAN);
    assert_true(isnan(run_sumsq(x)));
}

static struct norm_result run_clip(const double *sums, int64_t n, float clip)
{
    struct tensor *t = tensor_new(n, F64);
    struct norm_result result;
    struct step_record record = {.clip = clip};
    for (int64_t i = 0; i < n; i++)
        tensor_set(t, i, sums[i]);
    struct op_case c;
    case_start(&c, OP_CLIP);
    c.attrs.vec.n = n;
    case_bytes(&c, &result, sizeof result, 8, OUT);
    case_tensor(&c, t, IN);
    case_bytes(&c, &record, sizeof record, 4, IN);
    case_run(&c);
    return result;
}

static void test_clip(void **state)
{
    (void)state;
    struct norm_result r = run_clip((double[]){1.0, 3.0, 12.0}, 3, 0.0f);
    assert_true(r.norm == 4.0 && r.factor == 1.0f && r.skip == 0);
    r = run_clip((double[]){16.0}, 1, 5.0f);
    assert_true(r.factor == 1.0f);
    r = run_clip((double[]){16.0}, 1, 1.0f);
    assert_true(r.factor == (float)(1.0 / (4.0 + 1e-6)) && r.skip == 0);
    r = run_clip((double[]){0.0}, 1, 1.0f);
    assert_true(r.norm == 0.0 && r.factor == 1.0f && r.skip == 0);
    r = run_clip((double[]){1.0, NAN}, 2, 1.0f);
    assert_true(isnan(r.norm) && r.factor == 0.0f && r.skip == 1);
    r = run_clip((double[]){INFINITY, 1.0}, 2, 0.0f);
    assert_true(isinf(r.norm) && r.factor == 0.0f && r.skip == 1);
}

struct update {
    struct tensor *p, *m, *v, *g, *param;
    struct norm_result norm;
    struct step_record record;
    int64_t n_decay;
};

static struct update update_new(int64_t n, int64_t n_decay, int t, int low_precision)
{
    struct update u = {.n_decay = n_decay, .norm = {.norm = 1.0, .factor = 0.75f}};
    u.record = (struct step_record){.lr = 3e-3f,
                                    .weight_decay = 0.1f,
                                    .beta1 = 0.9f,
                                    .beta2 = 0.999f,
                                    .eps = 1e-8f,
                                    .bias1 = (float)(1.0 - pow((double)0.9f, t)),
                                    .bias2 = (float)(1.0 - pow((double)0.999f, t))};
    u.p = tensor_random(n, F32, 1.0);
    u.m = tensor_random(n, F32, 0.1);
    u.v = tensor_random(n, F32, 0.1);
    u.g = tensor_random(n, F32, 0.1);
    for (int64_t i = 0; i < n; i++)
        tensor_set(u.v, i, u.v->val[i] * u.v->val[i]);
    u.param = low_precision ? tensor_new(n, BF16) : NULL;
    return u;
}

static void update_run(struct update *u)
{
    struct op_case c;
    case_start(&c, OP_ADAMW);
    c.attrs.vec.n = u->p->n;
    c.attrs.vec.n_decay = u->n_decay;
    c.attrs.vec.low_precision = u->param != NULL;
    case_tensor(&c, u->p, INOUT);
    case_tensor(&c, u->m, INOUT);
    case_tensor(&c, u->v, INOUT);
    case_tensor(&c, u->g, IN);
    case_bytes(&c, &u->norm, sizeof u->norm, 8, IN);
    case_bytes(&c, &u->record, sizeof u->record, 4, IN);
    case_tensor(&c, u->param, OUT);
    case_run(&c);
}

static void check_param(const struct update *u)
{
    for (int64_t i = 0; u->param && i < u->p->n; i++)
        assert_int_equal(((bf16 *)u->param->store)[i], bf16_from_float(((float *)u->p->store)[i]));
}

/* torch.optim.AdamW in fp64, and the header's formula in plain C, bit for bit. */
static void check_update(int64_t n, int64_t n_decay, int t, int low_precision)
{
    struct update u = update_new(n, n_decay, t, low_precision);
    struct tensor *p = tensor_copy(u.p), *m = tensor_copy(u.m), *v = tensor_copy(u.v);
    struct tensor *wp = tensor_new(n, F64), *wm = tensor_new(n, F64), *wv = tensor_new(n, F64);
    const struct step_record *r = &u.record;
    for (int64_t i = 0; i < n; i++) {
        double g = u.g->val[i] * (double)u.norm.factor, b1 = r->beta1, b2 = r->beta2;
        tensor_set(wm, i, b1 * m->val[i] + (1.0 - b1) * g);
        tensor_set(wv, i, b2 * v->val[i] + (1.0 - b2) * g * g);
        double decayed = p->val[i] * (i < n_decay ? 1.0 - (double)r->lr * r->weight_decay : 1.0);
        tensor_set(wp, i, decayed - r->lr / (double)r->bias1 * wm->val[i] / (sqrt(wv->val[i]) / sqrt((double)r->bias2) + r->eps));
    }
    update_run(&u);
    check_error("m", u.m->val, wm->val, n, 2e-7);
    check_error("v", u.v->val, wv->val, n, 2e-7);
    check_error("p", u.p->val, wp->val, n, 2e-7);
    check_param(&u);
    float root = sqrtf(r->bias2), step = r->lr / r->bias1;
    for (int64_t i = 0; i < n; i++) {
        float g = ((float *)u.g->store)[i] * u.norm.factor, old_m = ((float *)m->store)[i];
        float decay = i < n_decay ? fmaf(-r->lr, r->weight_decay, 1.0f) : 1.0f;
        float new_m = fmaf(1.0f - r->beta1, g - old_m, old_m);
        float new_v = fmaf((1.0f - r->beta2) * g, g, r->beta2 * ((float *)v->store)[i]);
        float new_p = fmaf(-step, new_m / (sqrtf(new_v) / root + r->eps), ((float *)p->store)[i] * decay);
        assert_true(((float *)u.m->store)[i] == new_m && ((float *)u.v->store)[i] == new_v && ((float *)u.p->store)[i] == new_p);
    }
}

static void test_update(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 7, 8, 9, 17, 1023, 1024, 1025, 40003};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int64_t n = sizes[s];
        check_update(n, 0, 1, 0);
        check_update(n, n, 2, 1);
        check_update(n, n / 2, 1000, 1);
        check_update(n, n * 2 / 3 + 1, 1, 1);
        tensors_free(NULL);
    }
}

static void test_skip(void **state)
{
    (void)state;
    for (int low = 0; low < 2; low++) {
        struct update u = update_new(3001, 2000, 3, low);
        struct tensor *p = tensor_copy(u.p), *m = tensor_copy(u.m), *v = tensor_copy(u.v);
        u.norm = (struct norm_result){.norm = NAN, .factor = 0.0f, .skip = 1};
        tensor_set(u.g, 5, NAN);
        update_run(&u);
        assert_memory_equal(u.p->store, p->store, 3001 * 4);
        assert_memory_equal(u.m->store, m->store, 3001 * 4);
        assert_memory_equal(u.v->store, v->store, 3001 * 4);
        check_param(&u);
    }
}

/* An element that never had a gradient stays where it is, decay aside. */
static void test_zero_gradient(void **state)
{
    (void)state;
    struct update u = update_new(20, 0, 1, 1);
    struct tensor *p = tensor_copy(u.p);
    memset(u.m->store, 0, 80);
    memset(u.v->store, 0, 80);
    memset(u.g->store, 0, 80);
    update_run(&u);
    assert_memory_equal(u.p->store, p->store, 80);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_sumsq, tensors_free),         cmocka_unit_test_teardown(test_clip, tensors_free),
        cmocka_unit_test_teardown(test_update, tensors_free),        cmocka_unit_test_teardown(test_skip, tensors_free),
        cmocka_unit_test_teardown(test_zero_gradient, tensors_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
