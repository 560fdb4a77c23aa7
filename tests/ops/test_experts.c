/* Products of experts, their gradients and their gates against fp64; a whole layer of them against differences. */
#include "ops_test.h"

#include "device/cpu_stream.h"
#include "ops/dispatch.h"
#include "ops/experts.h"
#include "ops/gated.h"
#include "ops/permute.h"
#include "ops/route.h"

#include <omp.h>

enum { MOST = 16 }; /* experts */

/* Rows of each expert, ended by -1: none, one, tiles of 127 to 129, all to one, above and below what threads take alone. */
static const int64_t EXTENTS[][MOST + 1] = {{0, -1},
                                            {1, -1},
                                            {0, 0, 37, 0, -1},
                                            {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1},
                                            {127, 0, 128, 1, 129, 5, -1},
                                            {511, 2, 513, 0, 3, -1}};
enum { N_EXTENTS = sizeof EXTENTS / sizeof *EXTENTS };

struct split {
    int64_t rows;
    int32_t experts;
    struct tensor *offsets, *order;
};

/* Makes offsets, and an order that is some permutation. Two rows more than the experts have are there. */
static struct split split_of(const int64_t *extents)
{
    struct split s = {.experts = 0};
    while (extents[s.experts] >= 0)
        s.rows += extents[s.experts++];
    s.offsets = tensor_new(s.experts + 1, I32);
    tensor_set(s.offsets, 0, 0);
    for (int32_t e = 0; e < s.experts; e++)
        tensor_set(s.offsets, e + 1, s.offsets->val[e] + (double)extents[e]);
    s.rows = round_up(s.rows + 2, 2);
    s.order = tensor_new(s.rows, I32);
    for (int64_t i = 0; i < s.rows; i++)
        tensor_set(s.order, i, (double)((i * 7919 + 3) % s.rows));
    return s;
}

/* A way to make a product. types: bits of x, w and y that are BF16. */
struct way {
    int types, transposed, gathered, result, biased, part;
};

static enum dtype type_of(int types, int bit)
{
    return types >> bit & 1 ? BF16 : F32;
}

static void set_experts(struct op_case *c, const struct split *s, const struct way *w, int64_t in, int64_t out)
{
    c->attrs.experts.rows = s->rows;
    c->attrs.experts.in = in;
    c->attrs.experts.out = out;
    c->attrs.experts.experts = s->experts;
    c->attrs.experts.first = w->part ? s->experts / 2 : 0;
    c->attrs.experts.count = s->experts - (w->part ? s->experts / 2 : 0);
    c->attrs.experts.per = 2;
    c->attrs.experts.transposed = w->transposed;
    c->attrs.experts.x_type = (int32_t)type_of(w->types, 0);
    c->attrs.experts.w_type = (int32_t)type_of(w->types, 1);
    c->attrs.experts.y_type = (int32_t)type_of(w->types, 2);
    c->attrs.experts.result = w->result;
}

static int64_t memory_row(const struct split *s, int gathered, int64_t row)
{
    return gathered ? (int64_t)s->order->val[row] / 2 : row;
}

static void check_product(const int64_t *extents, const struct way *w, int64_t in, int64_t out)
{
    const struct split s = split_of(extents);
    struct op_case c;
    case_start(&c, OP_EXPERTS);
    set_experts(&c, &s, w, in, out);
    const int32_t first = c.attrs.experts.first, count = c.attrs.experts.count;
    struct tensor *x = tensor_random((w->gathered ? s.rows / 2 : s.rows) * in, type_of(w->types, 0), 1.0);
    struct tensor *m = tensor_random(count * in * out, type_of(w->types, 1), 1.0);
    struct tensor *bias = tensor_random(count * out, type_of(w->types, 1), 1.0);
    struct tensor *y = tensor_random(s.rows * out, type_of(w->types, 2), 1.0), *before = tensor_copy(y);
    struct tensor *want = tensor_new(s.rows * out, F64);
    for (int64_t i = 0; i < s.rows; i++) {
        int32_t e = 0;
        while (e < s.experts && (double)i >= s.offsets->val[e + 1])
            e++;
        const int mine = e >= first && e < s.experts;
        for (int64_t j = 0; j < out; j++) {
            double sum = mine && w->result != GEMM_ADDS ? 0 : y->val[i * out + j];
            for (int64_t l = 0; l < (mine ? in : 0); l++)
                sum += x->val[memory_row(&s, w->gathered, i) * in + l] *
                       m->val[(e - first) * in * out + (w->transposed ? j * in + l : l * out + j)];
            tensor_set(want, i * out + j, sum + (mine && w->biased ? bias->val[(e - first) * out + j] : 0));
        }
    }
    case_tensor(&c, y, INOUT); /* rows of nobody stay, even if y is written */
    case_tensor(&c, x, IN);
    case_tensor(&c, m, IN);
    case_tensor(&c, s.offsets, IN);
    case_tensor(&c, w->gathered ? s.order : NULL, IN);
    case_tensor(&c, w->biased ? bias : NULL, IN);
    case_work(&c);
    case_run(&c);
    check_error("y", y->val, want->val, s.rows * out, w->types & 4 ? 1.5 * TOL_BF16 : TOL_F32);
    const int64_t end = (int64_t)s.offsets->val[s.experts], begin = (int64_t)s.offsets->val[first];
    for (int64_t i = 0; i < s.rows * out; i++)
        assert_true((i / out >= begin && i / out < end) || y->val[i] == before->val[i]);
    tensors_free(NULL);
}

static void test_products(void **state)
{
    (void)state;
    for (int x = 0; x < N_EXTENTS; x++)
        for (int i = 0; i < 8; i++) {
            const struct way w = {.types = i * 3 % 8,
                                  .transposed = i & 1,
                                  .gathered = i >> 1 & 1,
                                  .result = i % 3,
                                  .biased = (i * 3 % 8 & 4) == 0 || (i * 3 % 8 & 2),
                                  .part = i == 3 || i == 6};
            check_product(EXTENTS[x], &w, (int64_t[]){37, 5, 300}[(x + i) % 3], (int64_t[]){45, 1100, 3}[(x + i) % 3]);
        }
}

static void check_gradient(const int64_t *extents, const struct way *w, int64_t in, int64_t out)
{
    const struct split s = split_of(extents);
    struct op_case c;
    case_start(&c, OP_EXPERTS_GRAD);
    set_experts(&c, &s, w, in, out);
    const int gathers_dy = w->gathered == 2, weighted = gathers_dy && w->biased;
    c.attrs.experts.gathers = gathers_dy ? GATHERS_DY : GATHERS_X;
    const int32_t first = c.attrs.experts.first, count = c.attrs.experts.count;
    struct tensor *x = tensor_random((w->gathered == 1 ? s.rows / 2 : s.rows) * in, type_of(w->types, 0), 1.0);
    struct tensor *dy = tensor_random((gathers_dy ? s.rows / 2 : s.rows) * out, type_of(w->types, 2), 1.0);
    struct tensor *p = tensor_random(s.rows, F32, 1.0), *dw = tensor_random(count * in * out, F32, 1.0),
                  *dbias = tensor_random(count * out, F32, 1.0);
    struct tensor *want = tensor_new(count * in * out, F64), *of_bias = tensor_new(count * out, F64);
    for (int64_t i = 0; i < count * in * out; i++)
        tensor_set(want, i, w->result == GEMM_ADDS ? dw->val[i] : 0);
    for (int64_t i = 0; i < count * out; i++)
        tensor_set(of_bias, i, w->result == GEMM_ADDS ? dbias->val[i] : 0);
    for (int32_t e = first; e < s.experts; e++)
        for (int64_t r = (int64_t)s.offsets->val[e]; r < (int64_t)s.offsets->val[e + 1]; r++)
            for (int64_t j = 0; j < out; j++) {
                const double d = dy->val[memory_row(&s, gathers_dy, r) * out + j];
                const int64_t at = (e - first) * out + j;
                tensor_set(of_bias, at, of_bias->val[at] + d * (weighted ? p->val[(int64_t)s.order->val[r]] : 1));
                for (int64_t l = 0; l < in; l++) {
                    const int64_t to = (e - first) * in * out + (w->transposed ? j * in + l : l * out + j);
                    tensor_set(want, to, want->val[to] + d * x->val[memory_row(&s, w->gathered == 1, r) * in + l]);
                }
            }
    case_tensor(&c, dw, w->result == GEMM_ADDS ? INOUT : OUT);
    case_tensor(&c, dy, IN);
    case_tensor(&c, x, IN);
    case_tensor(&c, s.offsets, IN);
    case_tensor(&c, w->gathered ? s.order : NULL, IN);
    case_tensor(&c, w->biased ? dbias : NULL, w->result == GEMM_ADDS ? INOUT : OUT);
    case_tensor(&c, weighted ? p : NULL, IN);
    case_work(&c);
    case_run(&c);
    check_error("dw", dw->val, want->val, count * in * out, TOL_F32);
    if (w->biased)
        check_error("dbias", dbias->val, of_bias->val, count * out, TOL_F32);
    for (int64_t i = 0; i < count * in * out; i++) /* experts without rows get zeros, or nothing */
        assert_true(want->val[i] != 0 || dw->val[i] == 0);
    tensors_free(NULL);
}

static void test_gradients(void **state)
{
    (void)state;
    for (int x = 0; x < N_EXTENTS; x++)
        for (int i = 0; i < 6; i++) {
            const struct way w = {.types = (int[]){0, 5, 0, 4, 5, 1}[i],
                                  .transposed = i & 1,
                                  .gathered = i % 3,
                                  .result = (i + x) % 2 ? GEMM_ADDS : GEMM_WRITES,
                                  .biased = i != 0,
                                  .part = i == 4};
            check_gradient(EXTENTS[x], &w, (int64_t[]){37, 7, 520}[(x + i) % 3], (int64_t[]){45, 530, 3}[(x + i) % 3]);
        }
}

/* A row's bits do not depend on how many rows its expert has: one, a few, or as many as all threads take together. */
static void test_bits(void **state)
{
    enum { IN_ = 300, OUT_ = 70, ROWS = 600 };
    struct tensor *x = tensor_random((int64_t)ROWS * IN_, F32, 1.0), *w = tensor_random((int64_t)IN_ * OUT_, F32, 1.0);
    static float y[ROWS * OUT_], one[ROWS * OUT_];
    struct cpu_stream stream = {.threads = 2};
    struct experts_shape s = {.rows = ROWS, .in = IN_, .out = OUT_, .experts = 1, .count = 1, .per = 1, .stream = &stream};
    (void)state;
    omp_set_num_threads(2);
    for (int t = 0; t < 2; t++) {
        s.transposed = t;
        void *work = malloc((size_t)ops_experts_workspace(&s, 2));
        assert_int_equal(ops_experts(&s, y, x->store, w->store, NULL, &(struct experts_rows){(int32_t[]){0, ROWS}, NULL}, work),
                         OK);
        for (int n = 1; n < 200; n += 9) {
            const int32_t offsets[2] = {0, n}, order = n;
            assert_int_equal(ops_experts(&s, one, x->store, w->store, NULL, &(struct experts_rows){offsets, NULL}, work), OK);
            assert_memory_equal(one, y, (size_t)(n * OUT_) * sizeof *y);
            const struct experts_rows gathered = {(int32_t[]){0, 1}, &order};
            assert_int_equal(ops_experts(&s, one, x->store, w->store, NULL, &gathered, work), OK);
            assert_memory_equal(one, y + n * OUT_, OUT_ * sizeof *y);
        }
        free(work);
    }
}

/* Rows that do not ascend, or do not exist, are errors. */
static void test_corrupt(void **state)
{
    static const int32_t wrong[][3] = {{1, 2, 4}, {0, 3, 2}, {0, -1, 4}, {0, 2, 5}, {-1, -1, -1}};
    float y[8], x[8] = {0}, w[8] = {0}, p[4] = {0}, dp[4];
    int32_t order[4] = {0, 1, 2, 3}, ids[4] = {0, 1, 0, 1};
    char work[1 << 14];
    const struct experts_shape s = {.rows = 4, .in = 2, .out = 2, .experts = 2, .count = 2, .per = 2};
    const struct gated_shape g = {.rows = 2, .dim = 1, .width = 2, .k = 2, .experts = 2};
    (void)state;
    assert_true(ops_experts_workspace(&s, 1) <= (int64_t)sizeof work &&
                ops_experts_grad_workspace(&s, 1) <= (int64_t)sizeof work);
    for (int i = 0; i < 5; i++) {
        const struct experts_rows at = {wrong[i], NULL};
        assert_int_equal(ops_experts(&s, y, x, w, NULL, &at, work), ERR_CORRUPT);
        assert_int_equal(ops_experts_grad(&s, w, NULL, y, x, NULL, &at, work), ERR_CORRUPT);
    }
    for (int i = 0; i < 4; i++) {
        const struct experts_rows at = {(int32_t[]){0, 1, 4}, order};
        const struct gated_pairs pairs = {p, order, x, w, ids};
        memset(y, 0, sizeof y);
        assert_int_equal(ops_experts(&s, y, x, w, NULL, &at, work), OK);
        assert_int_equal(ops_gated(&g, y, x, &pairs), OK);
        order[i] = i % 2 ? -1 : 4;
        assert_int_equal(ops_experts(&s, y, x, w, NULL, &at, work), ERR_CORRUPT);
        assert_int_equal(ops_gated(&g, y, x, &pairs), ERR_CORRUPT);
        assert_int_equal(ops_gated_grad(&g, x, y, dp, &pairs), ERR_CORRUPT);
        order[i] = i;
        ids[i] = 2;
        assert_int_equal(ops_gated_grad(&g, x, y, dp, &pairs), ERR_CORRUPT);
        ids[i] = i % 2;
        memset(x, 0, sizeof x);
    }
}

/* ---- gates ---- */

static double gate_of(double g, double u, int kind, double limit, double alpha)
{
    if (kind == GATE_ALONE)
        return fmax(g, 0) * fmax(g, 0);
    if (kind == GATE_CLAMPED) {
        const double c = fmin(g, limit), v = fmax(-limit, fmin(u, limit));
        return c / (1 + exp(-alpha * c)) * (v + 1);
    }
    if (kind == GATE_SILU)
        return g / (1 + exp(-g)) * u;
    if (kind == GATE_GELU_ERF)
        return 0.5 * g * erfc(-g * sqrt(0.5)) * u;
    return g / (1 + exp(-2 * sqrt(2 / acos(-1.0)) * (g + 0.044715 * g * g * g))) * u;
}

struct unit {
    int kind;
    double limit, alpha;
};

/* Computes the value of a gated unit from v: gate and up. */
static double unit_of(const double *v, void *ctx)
{
    const struct unit *x = ctx;
    return gate_of(v[0], v[1], x->kind, x->limit, x->alpha);
}

static void check_gated(int64_t rows, int64_t k, int64_t dim, enum dtype t, int kind, int interleaved, int biased)
{
    enum { EXPERTS = 3, WIDTH = 21 };
    const int64_t n = rows * k, maps = kind == GATE_ALONE ? 1 : 2;
    struct unit f = {kind, kind == GATE_CLAMPED ? 1.5 : 0, 1.702};
    struct tensor *gate_up = tensor_random(n * maps * dim, t, 2.0), *p = tensor_random(n, F32, 1.0),
                  *g = tensor_random(n * dim, t, 1.0), *place = tensor_new(n, I32), *act = tensor_new(n * dim, t),
                  *dp = tensor_new(n, F32), *ids = tensor_new(n, I32), *dy = tensor_random(rows * WIDTH, t, 1.0),
                  *bias = tensor_random(EXPERTS * WIDTH, t, 1.0);
    struct tensor *want = tensor_new(n * dim, F64), *of_input = tensor_new(n * maps * dim, F64), *of_p = tensor_new(n, F64);
    for (int64_t i = 0; i < n; i++) {
        const int64_t row = (2 * n - i - 3) % n, token = i / k, e = i % EXPERTS;
        double sum = 0;
        tensor_set(place, i, (double)row);
        tensor_set(ids, i, (double)e);
        for (int64_t j = 0; j < dim; j++) {
            const int64_t a = row * maps * dim + (interleaved && maps == 2 ? 2 * j : j),
                          b = maps == 1 ? a : a + (interleaved ? 1 : dim);
            double v[2] = {gate_up->val[a], gate_up->val[b]}, slope[2];
            const double d = g->val[row * dim + j], value = unit_of(v, &f);
            finite_difference(unit_of, &f, v, 2, slope);
            if (kind == GATE_CLAMPED) { /* differences are wrong at a corner */
                slope[0] = v[0] > f.limit ? 0 : slope[0];
                slope[1] = fabs(v[1]) > f.limit ? 0 : (unit_of((double[]){v[0], 0}, &f));
                if (fabs(v[0] - f.limit) < 3e-3 && v[0] <= f.limit) {
                    double below[2] = {v[0] - 3e-3, v[1]};
                    finite_difference(unit_of, &f, below, 2, slope);
                    slope[1] = fabs(v[1]) > f.limit ? 0 : unit_of((double[]){v[0], 0}, &f);
                }
            }
            tensor_set(want, row * dim + j, p->val[i] * value);
            if (maps == 1) /* the same */
                slope[0] = slope[1] = 2 * fmax(v[0], 0);
            tensor_set(of_input, a, p->val[i] * d * slope[0]);
            tensor_set(of_input, b, p->val[i] * d * slope[1]);
            sum += d * value;
        }
        for (int64_t j = 0; j < (biased ? WIDTH : 0); j++)
            sum += dy->val[token * WIDTH + j] * bias->val[e * WIDTH + j];
        tensor_set(of_p, row, sum);
    }
    struct op_case c;
    case_start(&c, OP_GATED);
    c.attrs.gated.rows = rows;
    c.attrs.gated.dim = dim;
    c.attrs.gated.width = WIDTH;
    c.attrs.gated.k = (int32_t)k;
    c.attrs.gated.experts = EXPERTS;
    c.attrs.gated.dtype = (int32_t)t;
    c.attrs.gated.kind = kind;
    c.attrs.gated.interleaved = interleaved;
    c.attrs.gated.limit = (float)f.limit;
    c.attrs.gated.alpha = (float)f.alpha;
    const struct op_attrs attrs = c.attrs;
    case_tensor(&c, act, OUT);
    case_tensor(&c, gate_up, IN);
    case_tensor(&c, p, IN);
    case_tensor(&c, place, IN);
    case_run(&c);
    check_error("act", act->val, want->val, n * dim, tol(t));
    case_start(&c, OP_GATED_GRAD);
    c.attrs = attrs;
    case_tensor(&c, gate_up, INOUT);
    case_tensor(&c, g, INOUT);
    case_tensor(&c, dp, OUT);
    case_tensor(&c, p, IN);
    case_tensor(&c, place, IN);
    case_tensor(&c, biased ? dy : NULL, IN);
    case_tensor(&c, biased ? bias : NULL, IN);
    case_tensor(&c, biased ? ids : NULL, IN);
    case_run(&c);
    check_error("gradient of gate and up", gate_up->val, of_input->val, n * maps * dim,
                kind == GATE_CLAMPED ? 1e-4 + tol(t) : tol(t));
    check_error("dp", dp->val, of_p->val, n, TOL_F32);
    assert_memory_equal(g->store, act->store, (size_t)(n * dim * dtype_size(t)));
    tensors_free(NULL);
}

static void test_gated(void **state)
{
    static const int64_t shapes[][3] = {{1, 1, 1}, {3, 2, 17}, {7, 3, 96}, {5, 2, 1025}};
    static const int kinds[] = {GATE_SILU, GATE_GELU_TANH, GATE_GELU_ERF, GATE_CLAMPED, GATE_ALONE};
    (void)state;
    for (int s = 0; s < 4; s++)
        for (int x = 0; x < 20; x++)
            check_gated(shapes[s][0], shapes[s][1], shapes[s][2], x & 1 ? BF16 : F32, kinds[x >> 2], x >> 1 & 1,
                        (s + x) % 3 == 0);
}

/* ---- a layer ---- */

enum { T_ = 9, H = 6, F_ = 5, E_ = 4, K_ = 2, N_ = T_ * K_ };
enum { X, ROUTER, GATE_UP, GATE_UP_BIAS, DOWN, DOWN_BIAS, OPERANDS };
static const int SIZE[OPERANDS] = {T_ * H, E_ *H, E_ * 2 * F_ *H, E_ * 2 * F_, E_ *H *F_, E_ *H};

/* A layer of experts with softmax weights that are normalised, interleaved gates with limits, and biases. ids: the choice, which
 * differences leave alone. */
struct layer {
    double *at[OPERANDS], *dy;
    const double *ids;
    int moved; /* operand that is changed */
};

static double layer_loss(const double *moved, void *ctx)
{
    const struct layer *s = ctx;
    const double *v[OPERANDS];
    double loss = 0;
    for (int i = 0; i < OPERANDS; i++)
        v[i] = i == s->moved ? moved : s->at[i];
    for (int t = 0; t < T_; t++) {
        double logits[E_], total = 0;
        for (int e = 0; e < E_; e++) {
            logits[e] = 0;
            for (int h = 0; h < H; h++)
                logits[e] += v[X][t * H + h] * v[ROUTER][e * H + h];
        }
        for (int i = 0; i < K_; i++)
            total += exp(logits[(int)s->ids[t * K_ + i]]);
        for (int i = 0; i < K_; i++) {
            const int e = (int)s->ids[t * K_ + i];
            double act[F_];
            for (int f = 0; f < F_; f++) {
                double pre[2];
                for (int part = 0; part < 2; part++) {
                    pre[part] = v[GATE_UP_BIAS][e * 2 * F_ + 2 * f + part];
                    for (int h = 0; h < H; h++)
                        pre[part] += v[X][t * H + h] * v[GATE_UP][((e * 2 * F_) + 2 * f + part) * H + h];
                }
                act[f] = gate_of(pre[0], pre[1], GATE_CLAMPED, 7, 1.702);
            }
            for (int h = 0; h < H; h++) {
                double y = v[DOWN_BIAS][e * H + h];
                for (int f = 0; f < F_; f++)
                    y += act[f] * v[DOWN][(e * H + h) * F_ + f];
                loss += exp(logits[e]) / total * y * s->dy[t * H + h];
            }
        }
    }
    return loss;
}

static void run_op(enum op_kind op, const struct op_attrs *a, void *const *arg)
{
    op_kernel *table[OP_COUNT] = {0};
    assert_int_equal(ops_cpu_kernels(table), OK);
    if (table[op](a, arg, NULL) != OK)
        fail_msg("%s: %s", op_name(op), status_message());
}

/* Attributes of a product from `in` to `out` columns. */
static struct op_attrs product(int64_t in, int64_t out, int transposed, int gathers)
{
    return (struct op_attrs){.experts = {.rows = N_,
                                         .in = in,
                                         .out = out,
                                         .experts = E_,
                                         .count = E_,
                                         .per = K_,
                                         .transposed = transposed,
                                         .gathers = gathers}};
}

static void multiply(float *c, const float *a, const float *b, int64_t m, int64_t n, int64_t k, int ta, int tb)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t l = 0; l < k; l++)
                sum += (double)a[ta ? l * m + i : i * k + l] * (double)b[tb ? j * k + l : l * n + j];
            c[i * n + j] = (float)sum;
        }
}

/* All eight ops as a layer runs them, forward and backward, agree with the definition and its differences. */
static void test_layer(void **state)
{
    struct tensor *v[OPERANDS], *dy = tensor_random(T_ * H, F32, 1.0);
    struct layer layer = {.dy = dy->val, .moved = -1};
    float logits[T_ * E_], p[N_], gate_up[N_ * 2 * F_], act[N_ * F_], y[N_ * H], acc[T_ * H], g[N_ * F_], dp[N_], dx[T_ * H];
    float gradient[OPERANDS][E_ * 2 * F_ * H];
    int32_t ids[N_], order[N_], place[N_], offsets[E_ + 1];
    static float work[1 << 18];
    const struct op_attrs route = {.route = {.rows = T_, .experts = E_, .k = K_, .kind = ROUTE_SOFTMAX, .normalise = 1}};
    const struct op_attrs gated = {.gated = {.rows = T_,
                                             .dim = F_,
                                             .width = H,
                                             .k = K_,
                                             .experts = E_,
                                             .kind = GATE_CLAMPED,
                                             .interleaved = 1,
                                             .limit = 7,
                                             .alpha = 1.702f}};
    const struct op_attrs combine = {.combine = {.rows = T_, .dim = H, .k = K_, .experts = E_}};
    const struct op_attrs up = product(H, 2 * F_, 1, GATHERS_X), down = product(F_, H, 1, GATHERS_DY),
                          up_dx = product(2 * F_, H, 0, 0), down_dx = product(H, F_, 0, 0);
    (void)state;
    for (int i = 0; i < OPERANDS; i++) {
        v[i] = tensor_random(SIZE[i], F32, 0.5);
        layer.at[i] = v[i]->val;
    }
    multiply(logits, v[X]->store, v[ROUTER]->store, T_, E_, H, 0, 1);
    run_op(OP_ROUTE, &route, (void *[]){ids, p, NULL, NULL, NULL, logits, NULL, NULL, NULL, work});
    run_op(OP_PERMUTE, &route, (void *[]){order, place, offsets, ids});
    run_op(OP_EXPERTS, &up, (void *[]){gate_up, v[X]->store, v[GATE_UP]->store, offsets, order, v[GATE_UP_BIAS]->store, work});
    run_op(OP_GATED, &gated, (void *[]){act, gate_up, p, place});
    run_op(OP_EXPERTS, &down, (void *[]){y, act, v[DOWN]->store, offsets, NULL, NULL, work});
    run_op(OP_COMBINE, &combine, (void *[]){acc, y, place, p, v[DOWN_BIAS]->store, ids});
    double loss = 0, size = 0, chosen[N_], slope[E_ * 2 * F_ * H], got[E_ * 2 * F_ * H];
    for (int i = 0; i < N_; i++)
        chosen[i] = ids[i];
    layer.ids = chosen;
    for (int i = 0; i < T_ * H; i++) {
        loss += (double)acc[i] * dy->val[i];
        size += fabs((double)acc[i] * dy->val[i]);
    }
    const double want = layer_loss(NULL, &layer);
    if (!(fabs(loss - want) <= TOL_F32 * size))
        fail_msg("the loss is %.9g, not %.9g", loss, want);

    run_op(OP_EXPERTS, &down_dx, (void *[]){g, dy->store, v[DOWN]->store, offsets, order, NULL, work});
    run_op(OP_GATED_GRAD, &gated, (void *[]){gate_up, g, dp, p, place, dy->store, v[DOWN_BIAS]->store, ids});
    run_op(OP_EXPERTS_GRAD, &down, (void *[]){gradient[DOWN], dy->store, g, offsets, order, gradient[DOWN_BIAS], p, work});
    run_op(OP_EXPERTS_GRAD, &up,
           (void *[]){gradient[GATE_UP], gate_up, v[X]->store, offsets, order, gradient[GATE_UP_BIAS], NULL, work});
    run_op(OP_EXPERTS, &up_dx, (void *[]){y, gate_up, v[GATE_UP]->store, offsets, NULL, NULL, work});
    run_op(OP_COMBINE, &combine, (void *[]){gradient[X], y, place, NULL, NULL, NULL});
    run_op(OP_ROUTE_GRAD, &route, (void *[]){logits, ids, p, dp, place, NULL, NULL, NULL, NULL});
    multiply(gradient[ROUTER], logits, v[X]->store, E_, H, T_, 1, 0);
    multiply(dx, logits, v[ROUTER]->store, T_, H, E_, 0, 0);
    for (int i = 0; i < OPERANDS; i++) {
        layer.moved = i;
        finite_difference(layer_loss, &layer, v[i]->val, SIZE[i], slope);
        for (int j = 0; j < SIZE[i]; j++)
            got[j] = (double)gradient[i][j] + (i == X ? (double)dx[j] : 0);
        check_error((const char *[]){"dx", "router", "gate_up", "gate_up's bias", "down", "down's bias"}[i], got, slope, SIZE[i],
                    2e-6);
    }
}

/* ---- rows that arrive from other ranks ---- */

enum { SHARED = 8, TOKENS = 13, USED = 2, MOST_MEMBERS = 4, MOST_ROWS = MOST_MEMBERS * TOKENS * USED };

/* Chooses a pair's expert. kind 0: any; 1: those of the last member only; 2: all but those. */
static int32_t choose(int kind, int members, uint32_t *state)
{
    const int32_t each = SHARED / members;
    *state = *state * 1664525u + 1013904223u;
    const int32_t any = (int32_t)(*state >> 16);
    if (kind == 1)
        return SHARED - each + any % each;
    return any % (kind == 2 && members > 1 ? SHARED - each : SHARED);
}

/* Checks the sorted rows of one member: each expert's by member, then by pair. `arrived` numbers them in the order of messages. */
static void check_sorted(const struct dispatch_shape *s, int me, const int32_t *all, const struct arrivals *got)
{
    const int32_t *order = got->order, *place = got->place, *offsets = got->offsets;
    const int32_t each = SHARED / s->members;
    int32_t sorted = 0;
    for (int32_t e = 0; e < each; e++) {
        int32_t before = 0; /* rows of earlier members */
        assert_int_equal(offsets[e], sorted);
        for (int m = 0; m < s->members; m++) {
            const int32_t *of = all + m * (SHARED + 1) + me * each;
            for (int32_t i = of[e]; i < of[e + 1]; i++, sorted++) {
                assert_int_equal(order[sorted], before + i - of[0]);
                assert_int_equal(place[order[sorted]], sorted);
                assert_int_equal(got->ids[order[sorted]], e);
            }
            before += of[each] - of[0];
        }
    }
    assert_int_equal(offsets[each], sorted);
    for (int64_t i = sorted; i < s->rows; i++)
        assert_true(order[i] == -1 && place[i] == -1 && got->ids[i] == -1);
}

static void test_arrivals(void **state)
{
    static int32_t all[MOST_MEMBERS * (SHARED + 1)], order[MOST_ROWS], place[MOST_ROWS], offsets[SHARED + 1], ids[TOKENS * USED],
        of_rows[MOST_ROWS];
    const struct arrivals to = {order, place, offsets, of_rows};
    uint32_t seed = 7;
    (void)state;
    for (int round = 0; round < 27; round++) {
        struct dispatch_shape s = {MOST_ROWS, SHARED, 1 << round % 3};
        for (int m = 0; m < s.members; m++) {
            for (int i = 0; i < TOKENS * USED; i++)
                ids[i] = choose(round / 3 % 3, s.members, &seed);
            assert_int_equal(ops_permute(TOKENS * USED, SHARED, order, place, all + m * (SHARED + 1), ids), OK);
        }
        for (int me = 0; me < s.members; me++) {
            assert_int_equal(ops_arrive(&s, me, &to, all), OK);
            check_sorted(&s, me, all, &to);
        }
        if (round / 3 % 3 == 1) { /* all rows are the last member's, which has room for one less */
            s.rows = s.members * TOKENS * USED - 1;
            assert_int_equal(ops_arrive(&s, s.members - 1, &to, all), ERR_CORRUPT);
        }
        all[3] = all[2] - 1;
        assert_int_equal(ops_arrive(&s, 0, &to, all), ERR_CORRUPT);
    }
}

/* Rows without an index keep what they have; a row that does not exist is an error. */
static void test_spread(void **state)
{
    const float x[] = {1, 2, 3, 4, 5, 6};
    const int32_t index[] = {5, -1, 0, 2}, beyond[] = {6};
    float y[8] = {7, 7, 7, 7, 7, 7, 7, 7};
    (void)state;
    assert_int_equal(ops_spread(4, 3, 2 * sizeof *x, 2, y, x, index), OK);
    const float want[] = {5, 6, 7, 7, 1, 2, 3, 4};
    assert_memory_equal(y, want, sizeof want);
    assert_int_equal(ops_spread(1, 3, 2 * sizeof *x, 2, y, x, beyond), ERR_CORRUPT);
}

/* Pairs without a row are left out where there may be some, and an error elsewhere. */
static void test_padded(void **state)
{
    struct gated_shape s = {.rows = 3, .dim = 2, .k = 1, .experts = 1, .dtype = F32, .padded = 150, .f = {.kind = GATE_SILU}};
    float gate_up[12], act[6], g[6], dp[3] = {7, 7, 7};
    const float p[] = {0.5f, 2, 3};
    const int32_t place[] = {1, 0, -1};
    const struct gated_pairs x = {.p = p, .place = place};
    (void)state;
    for (int i = 0; i < 12; i++)
        gate_up[i] = (float)i / 4;
    for (int i = 0; i < 6; i++)
        act[i] = g[i] = 7;
    assert_int_equal(ops_gated(&s, act, gate_up, &x), OK);
    assert_true(act[0] != 7 && act[3] != 7 && act[4] == 7 && act[5] == 7);
    assert_int_equal(ops_gated_grad(&s, gate_up, g, dp, &x), OK);
    assert_true(g[0] != 7 && g[4] == 7 && dp[0] != 7 && dp[2] == 7 && gate_up[11] == 11.0f / 4);
    s.padded = 0;
    assert_int_equal(ops_gated(&s, act, gate_up, &x), ERR_CORRUPT);
    assert_int_equal(ops_gated_grad(&s, gate_up, g, dp, &x), ERR_CORRUPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arrivals), cmocka_unit_test(test_spread),    cmocka_unit_test(test_padded),
        cmocka_unit_test(test_products), cmocka_unit_test(test_gradients), cmocka_unit_test_teardown(test_bits, tensors_free),
        cmocka_unit_test(test_corrupt),  cmocka_unit_test(test_gated),     cmocka_unit_test_teardown(test_layer, tensors_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
