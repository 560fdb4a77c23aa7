/* Tests vexp, gated functions and GELU against fp64. */
#include "ops_test.h"

#include "ops/vexp.h"

#include <float.h>

static void test_vexp(void **state)
{
    (void)state;
    double worst = 0.0;
    for (double x = -87.3; x < 88.7; x += 0.00037) {
        float f = (float)x;
        double want = exp((double)f);
        worst = fmax(worst, fabs((double)vexp(f) - want) / want);
    }
    if (worst > 1.2e-7)
        fail_msg("relative error %.3e", worst);
    for (double x = -105.0; x < -87.0; x += 0.0011) { /* results are subnormal here: the limit is one unit in the last place */
        float f = (float)x;
        assert_true(fabs((double)vexp(f) - exp((double)f)) <= 1.5e-45 + 1.2e-7 * exp((double)f));
    }
    assert_true(vexp(0.0f) == 1.0f);
    assert_true(vexp(-INFINITY) == 0.0f && vexp(-1e30f) == 0.0f);
    assert_true(isinf(vexp(INFINITY)) && isinf(vexp(89.0f)));
    assert_true(isnan(vexp(NAN)) && isnan(vexp(-NAN)));
}

static double silu(double g)
{
    return g / (1.0 + exp(-g));
}

static double gelu(double x, int kind)
{
    if (kind == GELU_ERF)
        return 0.5 * x * erfc(-x * sqrt(0.5));
    return x / (1.0 + exp(-2.0 * sqrt(2.0 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

/* Computes a derivative by central differences, for x of order 1 to 10. */
static double slope(double (*f)(double, int), double x, int kind)
{
    const double h = 1e-3;
    return (f(x - 2 * h, kind) - 8 * f(x - h, kind) + 8 * f(x + h, kind) - f(x + 2 * h, kind)) / (12 * h);
}

static double gate_of(double g, int kind)
{
    if (kind == GATE_SILU)
        return silu(g);
    if (kind == GATE_SIGMOID)
        return 1 / (1 + exp(-g));
    if (kind == GATE_IDENTITY)
        return g;
    return gelu(g, kind == GATE_GELU_ERF ? GELU_ERF : GELU_TANH);
}

static const int64_t SIZES[] = {1, 2, 7, 8, 9, 15, 17, 1023, 1024, 1025, 20011};

static void check_swiglu(int64_t n, enum dtype t, int kind)
{
    struct tensor *gate = tensor_random(n, t, 3.0), *up = tensor_random(n, t, 1.0), *dy = tensor_random(n, t, 1.0);
    struct tensor *y = tensor_new(n, t);
    struct tensor *wy = tensor_new(n, F64), *wg = tensor_new(n, F64), *wu = tensor_new(n, F64);
    for (int64_t i = 0; i < n; i++) {
        double g = gate->val[i], u = up->val[i], d = dy->val[i];
        tensor_set(wy, i, gate_of(g, kind) * u);
        tensor_set(wg, i, d * u * slope(gate_of, g, kind));
        tensor_set(wu, i, d * gate_of(g, kind));
    }
    struct op_case c;
    case_start(&c, OP_SWIGLU);
    c.attrs.act.rows = n;
    c.attrs.act.dim = 1;
    c.attrs.act.dtype = t;
    c.attrs.act.kind = kind;
    case_tensor(&c, y, OUT);
    case_tensor(&c, gate, IN);
    case_tensor(&c, up, IN);
    case_tensor(&c, NULL, IN);
    case_run(&c);
    check_error("swiglu", y->val, wy->val, n, tol(t));
    if (t == F32 && kind == GATE_SILU) /* the vectorised clone and plain C give the same bits */
        for (int64_t i = 0; i < n; i++) {
            float g = ((float *)gate->store)[i], u = ((float *)up->store)[i];
            float want = g * vsigmoid(g) * u;
            assert_memory_equal(&want, (float *)y->store + i, 4);
        }
    struct op_attrs attrs = c.attrs;
    case_start(&c, OP_SWIGLU_GRAD);
    c.attrs = attrs;
    case_tensor(&c, gate, INOUT);
    case_tensor(&c, up, INOUT);
    case_tensor(&c, dy, INOUT);
    case_tensor(&c, NULL, INOUT);
    case_run(&c);
    check_error("swiglu dgate", gate->val, wg->val, n, tol(t));
    check_error("swiglu dup", up->val, wu->val, n, tol(t));
    assert_memory_equal(dy->store, y->store, (size_t)(n * dtype_size(t)));
}

static void test_swiglu(void **state)
{
    (void)state;
    for (size_t s = 0; s < sizeof SIZES / sizeof *SIZES; s++)
        for (int t = F32; t <= BF16; t++)
            for (int kind = GATE_SILU; kind <= GATE_GELU_ERF; kind++)
                check_swiglu(SIZES[s], (enum dtype)t, kind);
    for (size_t s = 0; s < sizeof SIZES / sizeof *SIZES; s++)
        for (int t = F32; t <= BF16; t++)
            check_swiglu(SIZES[s], (enum dtype)t, GATE_SIGMOID);
    tensors_free(NULL);
}

/* Rows times the sigmoid of a number each, and that number's gradient. */
static void check_weighed(int64_t rows, int64_t dim, enum dtype t, int kind)
{
    const int64_t n = rows * dim;
    struct tensor *gate = tensor_random(n, t, 3.0), *up = tensor_random(n, t, 1.0), *dy = tensor_random(n, t, 1.0);
    struct tensor *scalar = tensor_random(rows, F32, 2.0), *y = tensor_new(n, t);
    struct tensor *wy = tensor_new(n, F64), *wg = tensor_new(n, F64), *wu = tensor_new(n, F64), *ws = tensor_new(rows, F64);
    for (int64_t r = 0; r < rows; r++) {
        const double s = 1 / (1 + exp(-scalar->val[r]));
        double sum = 0;
        for (int64_t i = r * dim; i < (r + 1) * dim; i++) {
            const double g = gate->val[i], u = up->val[i], d = dy->val[i];
            tensor_set(wy, i, s * gate_of(g, kind) * u);
            tensor_set(wg, i, s * d * u * slope(gate_of, g, kind));
            tensor_set(wu, i, s * d * gate_of(g, kind));
            sum += d * gate_of(g, kind) * u;
        }
        tensor_set(ws, r, s * (1 - s) * sum);
    }
    struct op_case c;
    case_start(&c, OP_SWIGLU);
    c.attrs.act.rows = rows;
    c.attrs.act.dim = dim;
    c.attrs.act.dtype = t;
    c.attrs.act.kind = kind;
    const struct op_attrs attrs = c.attrs;
    case_tensor(&c, y, OUT);
    case_tensor(&c, gate, IN);
    case_tensor(&c, up, IN);
    case_tensor(&c, scalar, IN);
    case_run(&c);
    check_error("weighed rows", y->val, wy->val, n, 1.5 * tol(t)); /* rounded twice */
    case_start(&c, OP_SWIGLU_GRAD);
    c.attrs = attrs;
    case_tensor(&c, gate, INOUT);
    case_tensor(&c, up, INOUT);
    case_tensor(&c, dy, INOUT);
    case_tensor(&c, scalar, INOUT);
    case_run(&c);
    check_error("weighed dgate", gate->val, wg->val, n, 1.5 * tol(t));
    check_error("weighed dup", up->val, wu->val, n, 1.5 * tol(t));
    check_error("weighed dscalar", scalar->val, ws->val, rows, TOL_F32);
    assert_memory_equal(dy->store, y->store, (size_t)(n * dtype_size(t)));
}

static void test_weighed(void **state)
{
    static const int64_t shapes[][2] = {{1, 16}, {3, 17}, {7, 96}, {40, 1025}};
    (void)state;
    for (int s = 0; s < 4; s++)
        for (int t = F32; t <= BF16; t++)
            for (int kind = GATE_SILU; kind <= GATE_GELU_ERF; kind++)
                check_weighed(shapes[s][0], shapes[s][1], (enum dtype)t, kind);
    tensors_free(NULL);
}

#define LIMIT 1.5
#define ALPHA 1.702

/* Computes gpt-oss' gate, with gate and up limited as defined. */
static double clamped(double g, double u)
{
    g = fmin(g, LIMIT), u = fmax(-LIMIT, fmin(u, LIMIT));
    return g / (1 + exp(-ALPHA * g)) * (u + 1);
}

/* Computes the gate's derivative by central differences in one argument (up if of_up), except within a step of a limit. */
static double clamped_slope(double g, double u, int of_up)
{
    const double h = 1e-5, a = of_up ? 0 : h, b = of_up ? h : 0;
    return (clamped(g + a, u + b) - clamped(g - a, u - b)) / (2 * h);
}

static void check_clamped(int64_t n, enum dtype t)
{
    struct tensor *gate = tensor_random(n, t, 3.0), *up = tensor_random(n, t, 2.0), *dy = tensor_random(n, t, 1.0);
    struct tensor *y = tensor_new(n, t);
    struct tensor *wy = tensor_new(n, F64), *wg = tensor_new(n, F64), *wu = tensor_new(n, F64);
    for (int64_t i = 0; i < n; i++) {
        if (fabs(gate->val[i] - LIMIT) <
            1e-3) /* the limit itself counts as within the limits, so the slope there is the one below the limit */
            tensor_set(gate, i, LIMIT - 0.01);
        if (fabs(fabs(up->val[i]) - LIMIT) < 1e-3)
            tensor_set(up, i, 0.5);
        double g = gate->val[i], u = up->val[i], d = dy->val[i];
        tensor_set(wy, i, clamped(g, u));
        tensor_set(wg, i, d * clamped_slope(g, u, 0));
        tensor_set(wu, i, d * clamped_slope(g, u, 1));
    }
    struct op_case c;
    case_start(&c, OP_SWIGLU);
    c.attrs.act.rows = n;
    c.attrs.act.dim = 1;
    c.attrs.act.dtype = t;
    c.attrs.act.kind = GATE_CLAMPED;
    c.attrs.act.limit = (float)LIMIT;
    c.attrs.act.alpha = (float)ALPHA;
    struct op_attrs attrs = c.attrs;
    case_tensor(&c, y, OUT);
    case_tensor(&c, gate, IN);
    case_tensor(&c, up, IN);
    case_tensor(&c, NULL, IN);
    case_run(&c);
    check_error("clamped", y->val, wy->val, n, tol(t));
    case_start(&c, OP_SWIGLU_GRAD);
    c.attrs = attrs;
    case_tensor(&c, gate, INOUT);
    case_tensor(&c, up, INOUT);
    case_tensor(&c, dy, INOUT);
    case_tensor(&c, NULL, INOUT);
    case_run(&c);
    check_error("clamped dgate", gate->val, wg->val, n, tol(t));
    check_error("clamped dup", up->val, wu->val, n, tol(t));
    assert_memory_equal(dy->store, y->store, (size_t)(n * dtype_size(t)));
}

static void test_clamped(void **state)
{
    (void)state;
    for (size_t s = 0; s < sizeof SIZES / sizeof *SIZES; s++)
        for (int t = F32; t <= BF16; t++)
            check_clamped(SIZES[s], (enum dtype)t);
    tensors_free(NULL);
}

/* At a limit the gradient is torch.clamp's, equal to that within the limits; beyond a limit it is zero. */
static void test_limits(void **state)
{
    (void)state;
    float gate[] = {1.5f, 1.5000001f, 0.5f, 0.5f, 0.5f, INFINITY}, up[] = {0, 0, 1.5f, -1.5f, 1.6f, -INFINITY},
          dy[] = {1, 1, 1, 1, 1, 1};
    op_kernel *table[OP_COUNT] = {0};
    struct op_attrs a = {.act = {.rows = 1, .dim = 6, .kind = GATE_CLAMPED, .limit = (float)LIMIT, .alpha = (float)ALPHA}};
    assert_int_equal(ops_cpu_kernels(table), OK);
    assert_int_equal(table[OP_SWIGLU_GRAD](&a, (void *[]){gate, up, dy, NULL}, NULL), OK);
    assert_true(gate[0] > 1 && gate[1] == 0);
    assert_true(up[2] > 0 && up[3] > 0 && up[4] == 0 && up[5] == 0);
    assert_true(gate[5] == 0 && dy[5] < 0 && isfinite(dy[5]));
}

static double activation(double x, int kind)
{
    return kind == RELU_SQUARED ? (x > 0 ? x * x : 0) : kind == RELU ? (x > 0 ? x : 0) : gelu(x, kind);
}

static void check_gelu(int64_t n, enum dtype t, int kind)
{
    struct tensor *x = tensor_random(n, t, 2.0), *dy = tensor_random(n, t, 1.0), *y = tensor_new(n, t);
    struct tensor *wy = tensor_new(n, F64), *wx = tensor_new(n, F64);
    for (int64_t i = 0; i < n; i++) {
        if (kind >= RELU_SQUARED && fabs(x->val[i]) < 0.01) /* no difference is taken across the bend of the function at 0 */
            tensor_set(x, i, 0.25);
        tensor_set(wy, i, activation(x->val[i], kind));
        tensor_set(wx, i, dy->val[i] * slope(activation, x->val[i], kind));
    }
    struct op_case c;
    case_start(&c, OP_GELU);
    c.attrs.act.rows = 1;
    c.attrs.act.dim = n;
    c.attrs.act.dtype = t;
    c.attrs.act.kind = kind;
    struct op_attrs attrs = c.attrs;
    case_tensor(&c, y, OUT);
    case_tensor(&c, x, IN);
    case_run(&c);
    check_error("gelu", y->val, wy->val, n, tol(t));
    case_start(&c, OP_GELU_GRAD);
    c.attrs = attrs;
    case_tensor(&c, x, INOUT);
    case_tensor(&c, dy, INOUT);
    case_run(&c);
    check_error("gelu dx", x->val, wx->val, n, tol(t));
    assert_memory_equal(dy->store, y->store, (size_t)(n * dtype_size(t)));
}

static void test_gelu(void **state)
{
    (void)state;
    for (size_t s = 0; s < sizeof SIZES / sizeof *SIZES; s++)
        for (int t = F32; t <= BF16; t++)
            for (int kind = GELU_TANH; kind <= RELU; kind++)
                check_gelu(SIZES[s], (enum dtype)t, kind);
    tensors_free(NULL);
}

/* Over the whole range absolute errors are those of fp32 roundings, much smaller in the negative tail (no cancellation). Extreme
 * values give neither NaN nor a wrong sign. */
static void test_gelu_range(void **state)
{
    (void)state;
    enum { N = 20001 };
    for (int kind = GELU_TANH; kind <= GELU_ERF; kind++) {
        struct tensor *x = tensor_new(N, F32), *y = tensor_new(N, F32);
        for (int i = 0; i < N; i++)
            tensor_set(x, i, -10.0 + 0.001 * i);
        tensor_set(x, N - 1, 3e38);
        tensor_set(x, N - 2, -3e38);
        struct op_case c;
        case_start(&c, OP_GELU);
        c.attrs.act.rows = N;
        c.attrs.act.dim = 1;
        c.attrs.act.kind = kind;
        case_tensor(&c, y, OUT);
        case_tensor(&c, x, IN);
        case_run(&c);
        for (int i = 0; i < N - 2; i++) {
            double want = gelu(x->val[i], kind), limit = x->val[i] < -4.0 ? 1e-8 : 1e-7 + 2e-7 * fabs(want);
            if (fabs(y->val[i] - want) > limit)
                fail_msg("gelu(%g) = %g, not %g", x->val[i], y->val[i], want);
        }
        assert_true(y->val[N - 1] == x->val[N - 1]);
        assert_true(y->val[N - 2] == 0.0);
    }
}

/* Gates without a function, as those of convolutions: a product, whose gradients are both factors. */
static void test_identity(void **state)
{
    (void)state;
    for (size_t s = 0; s < sizeof SIZES / sizeof *SIZES; s++)
        for (int t = F32; t <= BF16; t++)
            check_swiglu(SIZES[s], (enum dtype)t, GATE_IDENTITY);
    tensors_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vexp),
        cmocka_unit_test_teardown(test_swiglu, tensors_free),
        cmocka_unit_test_teardown(test_weighed, tensors_free),
        cmocka_unit_test_teardown(test_clamped, tensors_free),
        cmocka_unit_test(test_limits),

        cmocka_unit_test_teardown(test_gelu, tensors_free),
        cmocka_unit_test_teardown(test_gelu_range, tensors_free),
        cmocka_unit_test_teardown(test_identity, tensors_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
