/* Compares norms with fp64, and their gradients with finite differences. */
#include "ops_test.h"

struct problem {
    int64_t rows, dim, segments; /* sizes; segments 0 counts as 1 */
    int kind, what;              /* kind of norm; variable by which f is differentiated: 0 x, 1 weight, 2 bias */
    double eps, *x, *weight, *bias, *dy;
};

static void forward(const struct problem *p, const double *x, const double *w, const double *b, double *y)
{
    const int64_t segments = p->segments ? p->segments : 1, n = p->dim / segments;
    const double one = p->kind == NORM_RMS_ONE || p->kind == NORM_LAYER_ONE;
    for (int64_t i = 0; i < p->rows * segments; i++) {
        const int64_t from = i % segments * n;
        double mean = 0.0, var = 0.0;
        for (int64_t j = 0; j < n && (p->kind == NORM_LAYER || p->kind == NORM_LAYER_ONE); j++)
            mean += x[i * n + j] / (double)n;
        for (int64_t j = 0; j < n; j++)
            var += (x[i * n + j] - mean) * (x[i * n + j] - mean) / (double)n;
        for (int64_t j = 0; j < n; j++)
            y[i * n + j] = (x[i * n + j] - mean) / sqrt(var + p->eps) * (w ? one + w[from + j] : 1.0) + (b ? b[from + j] : 0.0);
    }
}

static double scalar(const double *var, void *ctx)
{
    struct problem *p = ctx;
    double *y = malloc((size_t)(p->rows * p->dim) * sizeof *y), sum = 0.0;
    forward(p, p->what == 0 ? var : p->x, p->what == 1 ? var : p->weight, p->what == 2 ? var : p->bias, y);
    for (int64_t i = 0; i < p->rows * p->dim; i++)
        sum += y[i] * p->dy[i];
    free(y);
    return sum;
}

static void set_attrs(struct op_case *c, const struct problem *p, enum dtype t, int accumulate)
{
    c->attrs.norm.rows = p->rows;
    c->attrs.norm.dim = p->dim;
    c->attrs.norm.eps = (float)p->eps;
    c->attrs.norm.kind = p->kind;
    c->attrs.norm.dtype = t;
    c->attrs.norm.accumulate = accumulate;
    c->attrs.norm.segments = (int32_t)p->segments;
}

static void check_forward(int64_t rows, int64_t dim, int64_t segments, int kind, enum dtype t, int with_bias)
{
    struct problem p = {.rows = rows, .dim = dim, .segments = segments, .kind = kind, .eps = 1e-5f};
    struct tensor *x = tensor_random(rows * dim, t, 1.5), *w = tensor_random(dim, t, 1.0),
                  *b = with_bias ? tensor_random(dim, t, 1.0) : NULL;
    struct tensor *y = tensor_new(rows * dim, t), *want = tensor_new(rows * dim, F64);
    forward(&p, x->val, w->val, b ? b->val : NULL, want->store);
    struct op_case c;
    case_start(&c, OP_NORM);
    set_attrs(&c, &p, t, 0);
    case_tensor(&c, y, OUT);
    case_tensor(&c, x, IN);
    case_tensor(&c, w, IN);
    case_tensor(&c, b, IN);
    case_run(&c);
    check_error("norm", y->val, want->store, y->n, tol(t));
}

static const int kinds[] = {NORM_RMS, NORM_LAYER, NORM_RMS_ONE, NORM_LAYER_ONE};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const int64_t DIMS[] = {1, 2, 15, 16, 17, 33, 129, 1023, 1024, 1025, 2600};

static void test_forward(void **state)
{
    (void)state;
    for (size_t d = 0; d < sizeof DIMS / sizeof *DIMS; d++)
        for (int k = 0; k < KINDS; k++)
            for (int t = F32; t <= BF16; t++)
                check_forward(d % 2 ? 1 : 37, DIMS[d], 0, kinds[k], (enum dtype)t,
                              kinds[k] == NORM_LAYER || kinds[k] == NORM_LAYER_ONE || (kinds[k] == NORM_RMS && d % 3 == 0));
    tensors_free(NULL);
}

/* The gradient is added to a dx that is not zero; `accumulate` also adds to dweight and dbias. */
static void check_grad(int64_t rows, int64_t dim, int64_t segments, int kind, enum dtype t, int accumulate)
{
    struct problem p = {.rows = rows, .dim = dim, .segments = segments, .kind = kind, .eps = 1e-2f};
    struct tensor *x = tensor_random(rows * dim, t, 1.0), *w = tensor_random(dim, t, 1.0),
                  *dy = tensor_random(rows * dim, F32, 1.0);
    struct tensor *dx = tensor_random(rows * dim, t, 1.0), *dw = tensor_random(dim, F32, 1.0), *db = tensor_random(dim, F32, 1.0);
    struct tensor *wx = tensor_new(rows * dim, F64), *ww = tensor_new(dim, F64), *wb = tensor_new(dim, F64),
                  *zero = tensor_new(dim, F64);
    for (int64_t j = 0; j < dim; j++)
        tensor_set(zero, j, 0.0);
    p.x = x->val;
    p.weight = w->val;
    p.bias = zero->val;
    p.dy = dy->val;
    finite_difference(scalar, &p, x->val, x->n, wx->val);
    p.what = 1;
    finite_difference(scalar, &p, w->val, dim, ww->val);
    p.what = 2;
    finite_difference(scalar, &p, zero->val, dim, wb->val);
    for (int64_t i = 0; i < dx->n; i++)
        tensor_set(wx, i, wx->val[i] + dx->val[i]);
    for (int64_t j = 0; j < dim; j++) {
        tensor_set(ww, j, ww->val[j] + (accumulate ? dw->val[j] : 0.0));
        tensor_set(wb, j, wb->val[j] + (accumulate ? db->val[j] : 0.0));
    }
    struct op_case c;
    case_start(&c, OP_NORM_GRAD);
    set_attrs(&c, &p, t, accumulate);
    case_tensor(&c, dx, INOUT);
    case_tensor(&c, x, IN);
    case_tensor(&c, w, IN);
    case_tensor(&c, dy, IN);
    case_tensor(&c, dw, accumulate ? INOUT : OUT);
    case_tensor(&c, db, accumulate ? INOUT : OUT);
    case_work(&c);
    case_run(&c);
    /* with two columns 1/sqrt(var + eps), up to 10, multiplies what is left of nearly equal numbers */
    check_error("norm dx", dx->val, wx->val, dx->n, t == F32 && dim == 2 ? 10 * TOL_F32 : tol(t));
    /* absolute limit: with one column xhat is +-1 up to eps, and sums cancel */
    check_error("norm dweight", dw->val, ww->val, dim, TOL_F32);
    check_error("norm dbias", db->val, wb->val, dim, TOL_F32);
}

static void test_grad(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{1, 2}, {1, 17}, {3, 5}, {5, 33}, {70, 7}, {2, 131}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int k = 0; k < KINDS; k++)
            for (int t = F32; t <= BF16; t++)
                check_grad(shapes[s][0], shapes[s][1], 0, kinds[k], (enum dtype)t, (int)s % 2);
    tensors_free(NULL);
}

/* Segments of a row (heads) may have their own weights. */
static void test_segments(void **state)
{
    (void)state;
    for (int kind = NORM_RMS; kind <= NORM_RMS_ONE; kind++)
        for (int t = F32; t <= BF16; t++) {
            check_forward(37, 3 * 33, 3, kind, (enum dtype)t, kind == NORM_LAYER);
            check_forward(2, 5 * 64, 5, kind, (enum dtype)t, 0);
            check_grad(35, 4 * 3, 4, kind, (enum dtype)t, 0);
            check_grad(3, 2 * 17, 2, kind, (enum dtype)t, 1);
        }
    tensors_free(NULL);
}

/* RMS norms without weights are right. */
static void check_bare(int64_t rows, int64_t dim, enum dtype t)
{
    struct problem p = {.rows = rows, .dim = dim, .kind = NORM_RMS, .eps = 1e-2f};
    struct tensor *x = tensor_random(rows * dim, t, 1.0), *dy = tensor_random(rows * dim, F32, 1.0),
                  *dx = tensor_random(rows * dim, t, 1.0), *y = tensor_new(rows * dim, t), *want = tensor_new(rows * dim, F64);
    p.x = x->val;
    p.dy = dy->val;
    struct op_case c;
    forward(&p, x->val, NULL, NULL, want->store);
    case_start(&c, OP_NORM);
    set_attrs(&c, &p, t, 0);
    case_tensor(&c, y, OUT);
    case_tensor(&c, x, IN);
    case_tensor(&c, NULL, IN);
    case_tensor(&c, NULL, IN);
    case_run(&c);
    check_error("norm without weights", y->val, want->store, y->n, tol(t));
    finite_difference(scalar, &p, x->val, x->n, want->val);
    for (int64_t i = 0; i < dx->n; i++)
        tensor_set(want, i, want->val[i] + dx->val[i]);
    case_start(&c, OP_NORM_GRAD);
    set_attrs(&c, &p, t, 0);
    case_tensor(&c, dx, INOUT);
    case_tensor(&c, x, IN);
    case_tensor(&c, NULL, IN);
    case_tensor(&c, dy, IN);
    case_tensor(&c, NULL, OUT);
    case_tensor(&c, NULL, OUT);
    case_work(&c);
    case_run(&c);
    check_error("norm without weights, dx", dx->val, want->val, dx->n, tol(t));
}

static void test_bare(void **state)
{
    (void)state;
    for (int t = F32; t <= BF16; t++) {
        check_bare(3, 5, (enum dtype)t);
        check_bare(35, 16, (enum dtype)t);
        check_bare(2, 131, (enum dtype)t);
    }
    tensors_free(NULL);
}

/* Rows wider than a block, and rows for many threads, give bits that do not depend on threads; frozen weights get no dweight. */
static void test_grad_large(void **state)
{
    (void)state;
    for (int t = F32; t <= BF16; t++) {
        struct problem p = {.rows = 65, .dim = 1100, .kind = NORM_RMS, .eps = 1e-5f};
        struct tensor *x = tensor_random(p.rows * p.dim, (enum dtype)t, 1.0), *w = tensor_random(p.dim, (enum dtype)t, 1.0);
        struct tensor *dy = tensor_random(p.rows * p.dim, F32, 1.0), *dx = tensor_random(p.rows * p.dim, (enum dtype)t, 1.0);
        struct tensor *dw = tensor_new(p.dim, F32), *dx_frozen = tensor_copy(dx);
        for (int frozen = 0; frozen < 2; frozen++) {
            struct op_case c;
            case_start(&c, OP_NORM_GRAD);
            set_attrs(&c, &p, (enum dtype)t, 0);
            case_tensor(&c, frozen ? dx_frozen : dx, INOUT);
            case_tensor(&c, x, IN);
            case_tensor(&c, w, IN);
            case_tensor(&c, dy, IN);
            case_tensor(&c, frozen ? NULL : dw, OUT);
            case_tensor(&c, NULL, OUT);
            case_work(&c);
            case_run(&c);
        }
        assert_memory_equal(dx->store, dx_frozen->store, (size_t)(dx->n * dtype_size((enum dtype)t)));
        for (int64_t j = 0; j < p.dim; j++)
            assert_true(isfinite(dw->val[j]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_forward, tensors_free),    cmocka_unit_test_teardown(test_grad, tensors_free),
        cmocka_unit_test_teardown(test_segments, tensors_free),   cmocka_unit_test_teardown(test_bare, tensors_free),
        cmocka_unit_test_teardown(test_grad_large, tensors_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
