/* Tests of OP_CONV, OP_DECAY and their gradients: the definition in fp64, its finite differences, documents, rows without a token, and
 * calls on parts of the rows. */
#include "ops/ops_test.h"
#include "recurrence/recurrence.h"

#include "device/cpu_stream.h"

enum { MOST_ROWS = 200 };

/* A convolution as fp64 numbers; x has `cols` columns. */
struct conv_numbers {
    int64_t rows, cols;
    int width, silu;
    const int32_t *links;
    const double *x, *weight, *bias, *tail, *dy, *dafter;
    double *y, *after;
};

/* Computes a row's predecessors, by number; -1 - i: row i of the tail; INT32_MIN: zeros. i = rows: those of a token behind. */
static void find_predecessors(const struct conv_numbers *c, int64_t i, int32_t *out)
{
    int ended = i < c->rows && c->links[i] == ROW_BEGINS, tail = c->width - 1;
    int64_t row = i;
    for (int n = 1; n < c->width; n++) {
        out[n] = INT32_MIN;
        if (ended)
            continue;
        for (row--; row >= 0 && c->links[row] == ROW_NONE;)
            row--;
        out[n] = row >= 0 ? (int32_t)row : -1 - --tail;
        ended = row >= 0 && c->links[row] == ROW_BEGINS;
    }
}

static double number_at(const struct conv_numbers *c, int32_t from, int64_t j)
{
    return from >= 0 ? c->x[from * c->cols + j] : from == INT32_MIN || !c->tail ? 0 : c->tail[(-1 - from) * c->cols + j];
}

static void conv_of(const struct conv_numbers *c)
{
    int32_t from[CONV_TAPS];
    for (int64_t i = 0; i <= c->rows; i++) {
        const int is_there = i < c->rows && c->links[i] != ROW_NONE;
        find_predecessors(c, i, from);
        for (int64_t j = 0; j < c->cols; j++) {
            double sum =
                is_there ? c->weight[j * c->width + c->width - 1] * c->x[i * c->cols + j] + (c->bias ? c->bias[j] : 0) : 0;
            for (int n = 1; n < c->width; n++) {
                if (is_there)
                    sum += c->weight[j * c->width + c->width - 1 - n] * number_at(c, from[n], j);
                if (i == c->rows)
                    c->after[(c->width - 1 - n) * c->cols + j] = number_at(c, from[n], j);
            }
            if (i < c->rows)
                c->y[i * c->cols + j] = is_there && c->silu ? sum / (1 + exp(-sum)) : sum;
        }
    }
}

/* Returns <y, dy> + <after, dafter> at x, tail, weight and bias. */
static double conv_loss(const double *at, void *context)
{
    struct conv_numbers c = *(struct conv_numbers *)context;
    double loss = 0;
    c.x = at;
    c.tail = c.x + c.rows * c.cols;
    c.weight = c.tail + (c.width - 1) * c.cols;
    c.bias = c.weight + c.width * c.cols;
    conv_of(&c);
    for (int64_t i = 0; i < c.rows * c.cols; i++)
        loss += c.y[i] * c.dy[i];
    for (int64_t i = 0; i < (c.width - 1) * c.cols; i++)
        loss += c.after[i] * c.dafter[i];
    return loss;
}

struct conv_shape {
    int rows, cols, width, silu, bias, tail, dtype, wider;
    int begins[4], none[4];
};

/* clang-format off */
static const struct conv_shape shapes[] = {
    {9, 5, 4, 1, 0, 1, F32, 0, {-1}, {-1}},
    {12, 6, 4, 1, 1, 1, F32, 3, {2, 5, 6, -1}, {3, 9, -1}},
    {3, 4, 4, 1, 0, 1, F32, 0, {-1}, {1, -1}},
    {1, 4, 4, 0, 0, 1, F32, 2, {-1}, {-1}},
    {10, 3, 3, 0, 0, 0, F32, 0, {0, 9, -1}, {0, 8, -1}},
    {10, 3, 8, 1, 1, 1, F32, 1, {6, -1}, {-1}},
    {5, 3, 1, 1, 1, 0, F32, 0, {-1}, {2, -1}},
    {150, 300, 4, 1, 1, 1, F32, 5, {70, 71, -1}, {149, -1}},
    {150, 300, 4, 1, 1, 1, BF16, 5, {70, 71, -1}, {149, -1}},
};
/* clang-format on */
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* Memory that lives as long as the tensors. */
static double *doubles(int64_t n)
{
    struct tensor *t = tensor_new(n, F64);
    memset(t->store, 0, (size_t)n * sizeof(double));
    return t->store;
}

static double *doubles_copy(const double *x, int64_t n)
{
    return memcpy(doubles(n + 1), x, (size_t)n * sizeof *x);
}

struct conv_case {
    struct op_attrs a;
    int32_t links[MOST_ROWS];
    struct tensor *x, *weight, *bias, *tail, *dy, *dtail, *y, *after, *dx, *dweight, *dbias;
    double *packed; /* x's columns */
};

static double *columns_of(const struct tensor *x, const struct op_attrs *a)
{
    double *out = doubles(a->conv.rows * a->conv.cols);
    for (int64_t i = 0; i < a->conv.rows; i++)
        memcpy(out + i * a->conv.cols, x->val + i * a->conv.ld + a->conv.first, (size_t)a->conv.cols * sizeof *out);
    return out;
}

static void conv_start(const struct conv_shape *s, struct conv_case *c)
{
    const enum dtype T = (enum dtype)s->dtype;
    memset(c, 0, sizeof *c);
    c->a.conv.rows = s->rows;
    c->a.conv.cols = s->cols;
    c->a.conv.ld = s->cols + s->wider;
    c->a.conv.first = s->wider / 2;
    c->a.conv.width = s->width;
    c->a.conv.silu = s->silu;
    c->a.conv.dtype = s->dtype;
    for (int i = 0; i < 4 && s->begins[i] >= 0 && (i == 0 || s->begins[i] > 0); i++)
        c->links[s->begins[i]] = ROW_BEGINS;
    for (int i = 0; i < 4 && s->none[i] >= 0 && (i == 0 || s->none[i] > 0); i++)
        c->links[s->none[i]] = ROW_NONE;
    c->x = tensor_random(s->rows * (int64_t)c->a.conv.ld, T, 1);
    for (int64_t i = 0; i < s->rows; i++)
        for (int64_t j = 0; j < s->cols && c->links[i] == ROW_NONE; j++)
            tensor_set(c->x, i * c->a.conv.ld + c->a.conv.first + j, NAN); /* not to be read */
    c->weight = tensor_random(s->cols * (int64_t)s->width, T, 0.7);
    c->bias = s->bias ? tensor_random(s->cols, T, 0.3) : NULL;
    c->tail = s->tail ? tensor_random((s->width - 1) * (int64_t)s->cols, T, 1) : NULL;
    c->dy = tensor_random(s->rows * (int64_t)s->cols, T, 1);
    c->dtail = tensor_random((s->width - 1) * (int64_t)s->cols, F32, 1);
    c->y = tensor_new(c->dy->n, T);
    c->after = tensor_new(c->dtail->n, T);
    c->dx = tensor_copy(c->x);
    c->dweight = tensor_new(c->weight->n, F32);
    c->dbias = s->bias ? tensor_new(s->cols, F32) : NULL;
    c->packed = columns_of(c->x, &c->a);
}

static struct conv_numbers numbers_of(const struct conv_case *c)
{
    return (struct conv_numbers){.rows = c->a.conv.rows,
                                 .cols = c->a.conv.cols,
                                 .width = c->a.conv.width,
                                 .silu = c->a.conv.silu,
                                 .links = c->links,
                                 .x = c->packed,
                                 .weight = c->weight->val,
                                 .bias = c->bias ? c->bias->val : NULL,
                                 .tail = c->tail ? c->tail->val : NULL,
                                 .dy = c->dy->val,
                                 .dafter = c->dtail->val,
                                 .y = doubles(c->y->n),
                                 .after = doubles(c->after->n + 1)};
}

static void forward_case(struct conv_case *c, struct op_case *run)
{
    case_start(run, OP_CONV);
    run->attrs = c->a;
    case_tensor(run, c->y, OUT);
    case_tensor(run, c->after, OUT);
    case_tensor(run, c->x, IN);
    case_tensor(run, c->weight, IN);
    case_tensor(run, c->bias, IN);
    case_bytes(run, c->links, c->a.conv.rows * 4, 4, IN);
    case_tensor(run, c->tail, IN);
    case_run(run);
    tensor_load(c->y);
    if (c->after)
        tensor_load(c->after);
}

static void backward_case(struct conv_case *c, struct op_case *run)
{
    case_start(run, OP_CONV_GRAD);
    run->attrs = c->a;
    case_tensor(run, c->dx, INOUT);
    case_tensor(run, c->dtail, INOUT);
    case_tensor(run, c->dweight, OUT);
    case_tensor(run, c->dbias, OUT);
    case_tensor(run, c->dy, IN);
    case_tensor(run, c->weight, IN);
    case_tensor(run, c->bias, IN);
    case_bytes(run, c->links, c->a.conv.rows * 4, 4, IN);
    case_tensor(run, c->tail, IN);
    case_bytes(run, NULL, 0, 1, OUT); /* scratch is the GPU's alone */
    case_run(run);
    tensor_load(c->dx);
    if (c->dtail)
        tensor_load(c->dtail);
}

static void check_if_any(const char *what, const double *got, const double *want, int64_t n, double limit)
{
    if (n > 0)
        check_error(what, got, want, n, limit);
}

static void convolutions_are_as_defined(void **state)
{
    (void)state;
    for (int i = 0; i < SHAPES; i++) {
        struct op_case run;
        struct conv_case c;
        conv_start(&shapes[i], &c);
        const struct conv_numbers x = numbers_of(&c);
        forward_case(&c, &run);
        conv_of(&x);
        check_error("y", c.y->val, x.y, c.y->n, tol((enum dtype)shapes[i].dtype));
        for (int64_t j = 0; j < c.after->n; j++)
            assert_true(c.after->val[j] == x.after[j]);
        for (int64_t j = 0; j < c.y->n; j++)
            assert_true(c.links[j / x.cols] != ROW_NONE || c.y->val[j] == 0);
        tensors_free(NULL);
    }
}

/* Gradients against finite differences; the large shape takes too many, and is compared with small parts of itself below. */
static void gradients_are_differences(void **state)
{
    (void)state;
    for (int i = 0; i < SHAPES; i++) {
        struct op_case run;
        struct conv_case c;
        if (shapes[i].rows > 20)
            continue;
        conv_start(&shapes[i], &c);
        struct conv_numbers x = numbers_of(&c);
        const int64_t of_x = x.rows * x.cols, of_tail = (x.width - 1) * x.cols, of_weight = x.width * x.cols,
                      n = of_x + of_tail + of_weight + x.cols;
        double *at = doubles(n), *want = doubles(n);
        for (int64_t j = 0; j < of_x;
             j++) /* the definition reads no row without a token either, but differences change each number */
            at[j] = isnan(x.x[j]) ? 0 : x.x[j];
        if (x.tail)
            memcpy(at + of_x, x.tail, (size_t)of_tail * sizeof *at);
        memcpy(at + of_x + of_tail, x.weight, (size_t)of_weight * sizeof *at);
        if (x.bias)
            memcpy(at + of_x + of_tail + of_weight, x.bias, (size_t)x.cols * sizeof *at);
        x.dafter = doubles_copy(c.dtail->val, c.dtail->n);
        finite_difference(conv_loss, &x, at, n, want);
        backward_case(&c, &run);
        check_error("dx", columns_of(c.dx, &c.a), want, of_x, 2e-6);
        check_if_any("dtail", c.dtail->val, want + of_x, of_tail, 2e-6);
        check_error("dweight", c.dweight->val, want + of_x + of_tail, of_weight, 2e-6);
        if (c.dbias)
            check_error("dbias", c.dbias->val, want + of_x + of_tail + of_weight, x.cols, 2e-6);
        for (int64_t row = 0; row < x.rows; row++) /* columns beside are left alone */
            for (int64_t j = 0; j < c.a.conv.ld; j++)
                if (j < c.a.conv.first || j >= c.a.conv.first + x.cols)
                    assert_true(c.dx->val[row * c.a.conv.ld + j] == c.x->val[row * c.a.conv.ld + j]);
        tensors_free(NULL);
    }
}

static void *at_row(struct tensor *t, int64_t row, int64_t wide)
{
    return (char *)t->store + row * wide * dtype_size(t->dtype);
}

/* Gradients of parameters that are not trained may be absent. */
static void untrained_parameters_have_no_gradients(void **state)
{
    struct op_case run;
    struct conv_case c;
    struct tensor *dx[2], *dtail[2];
    (void)state;
    conv_start(&shapes[1], &c);
    struct tensor *x = c.x, *tail = tensor_copy(c.dtail);
    for (int i = 0; i < 2; i++) {
        c.dx = dx[i] = tensor_copy(x);
        c.dtail = dtail[i] = tensor_copy(tail);
        backward_case(&c, &run);
        c.dweight = c.dbias = NULL;
    }
    assert_memory_equal(dx[0]->store, dx[1]->store, (size_t)dx[0]->n * 4);
    assert_memory_equal(dtail[0]->store, dtail[1]->store, (size_t)dtail[0]->n * 4);
}

/* Without weights, and with no tail, a convolution of one tap has the bits of one whose weights are 1. */
static void absent_weights_are_ones(void **state)
{
    static const struct conv_shape shape = {10, 300, 1, 1, 0, 0, BF16, 3, {4, -1}, {2, -1}};
    struct op_case run;
    struct conv_case c;
    (void)state;
    conv_start(&shape, &c);
    for (int64_t j = 0; j < c.weight->n; j++)
        tensor_set(c.weight, j, 1);
    struct tensor *x = c.x, *y[2], *dx[2];
    for (int i = 0; i < 2; i++) {
        c.y = y[i] = tensor_new(c.dy->n, BF16);
        c.dx = dx[i] = tensor_copy(x);
        forward_case(&c, &run);
        backward_case(&c, &run);
        c.weight = c.dweight = c.after = c.dtail = NULL;
    }
    assert_memory_equal(y[0]->store, y[1]->store, (size_t)y[0]->n * 2);
    assert_memory_equal(dx[0]->store, dx[1]->store, (size_t)dx[0]->n * 2);
}

/* Calls on parts of the rows give the same bits of y, dx and the tails, and sums within rounding. */
static void parts_make_the_whole(void **state)
{
    static const int sizes[] = {1, 2, 64, 100};
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        for (int p = 0; p < 4; p++) {
            struct op_case run;
            struct conv_case c, d;
            conv_start(&shapes[i], &c);
            d = c;
            d.y = tensor_new(c.y->n, c.y->dtype), d.dx = tensor_copy(c.x), d.dtail = tensor_copy(c.dtail);
            d.dweight = tensor_new(c.dweight->n, F32), d.dbias = c.bias ? tensor_new(c.dbias->n, F32) : NULL;
            forward_case(&c, &run);
            backward_case(&c, &run);
            op_kernel *table[OP_COUNT] = {0};
            recurrence_cpu_kernels(table);
            const int64_t rows = c.a.conv.rows, cols = c.a.conv.cols, ld = c.a.conv.ld;
            void *tail[MOST_ROWS + 1] = {c.tail ? c.tail->store : NULL};
            int parts = 0;
            for (int64_t at = 0; at < rows; at += sizes[p], parts++) {
                tail[parts + 1] = tensor_new(c.after->n + 1, c.after->dtype)->store;
                d.a.conv.rows = min_i64(sizes[p], rows - at);
                void *arg[] = {at_row(d.y, at, cols),         tail[parts + 1], at_row(d.x, at, ld), d.weight->store,
                               d.bias ? d.bias->store : NULL, d.links + at,    tail[parts]};
                assert_int_equal(table[OP_CONV](&d.a, arg, NULL), OK);
            }
            assert_memory_equal(d.y->store, c.y->store, (size_t)(c.y->n * dtype_size(c.y->dtype)));
            assert_memory_equal(tail[parts], c.after->store, (size_t)(c.after->n * dtype_size(c.after->dtype)));
            for (int k = parts - 1; k >= 0; k--) {
                const int64_t at = k * (int64_t)sizes[p];
                d.a.conv.rows = min_i64(sizes[p], rows - at);
                d.a.conv.accumulate = k < parts - 1;
                void *arg[] = {at_row(d.dx, at, ld),
                               d.dtail->store,
                               d.dweight->store,
                               d.dbias ? d.dbias->store : NULL,
                               at_row(d.dy, at, cols),
                               d.weight->store,
                               d.bias ? d.bias->store : NULL,
                               d.links + at,
                               tail[k]};
                assert_int_equal(table[OP_CONV_GRAD](&d.a, arg, NULL), OK);
            }
            assert_memory_equal(d.dx->store, c.dx->store, (size_t)(c.dx->n * dtype_size(c.dx->dtype)));
            assert_memory_equal(d.dtail->store, c.dtail->store, (size_t)c.dtail->n * 4);
            tensor_load(d.dweight);
            check_error("dweight in parts", d.dweight->val, c.dweight->val, c.dweight->n, 1e-6);
            tensors_free(NULL);
        }
}

/* ---- decays ---- */

struct decay_numbers {
    struct op_attrs a;
    const double *dg, *dbeta;
};

/* Computes g and beta of a head from a, b, a_log and dt_bias. */
static void decay_of(const struct op_attrs *at, const double x[4], double *g, double *beta)
{
    const double u = x[0] + x[3], step = fmax(log1p(exp(u)), (double)at->decay.least);
    *g = -exp(x[2]) * step;
    *beta = at->decay.b_first < 0 ? step : (double)at->decay.factor / (1 + exp(-x[1]));
}

static double decay_loss(const double *at, void *context)
{
    const struct decay_numbers *c = context;
    const int64_t heads = c->a.decay.heads, ld = c->a.decay.ld, of_x = c->a.decay.rows * ld, per = max_i64(c->a.decay.per, 1);
    double loss = 0;
    for (int64_t i = 0; i < c->a.decay.rows; i++)
        for (int64_t k = 0; k < heads * per; k++) {
            const int64_t h = k / per;
            const double x[] = {at[i * ld + c->a.decay.a_first + k],
                                c->a.decay.b_first < 0 ? 0 : at[i * ld + c->a.decay.b_first + h], at[of_x + h],
                                at[of_x + heads + k]};
            double g, beta;
            decay_of(&c->a, x, &g, &beta);
            loss += g * c->dg[i * heads * per + k] + (k % per ? 0 : beta * c->dbeta[i * heads + h]);
        }
    return loss;
}

/* Case i: with a map to strengths or none, a floor of steps, a factor of strengths, bf16, several decays of a head. */
static struct op_attrs decay_attrs(int i)
{
    const int is_step = i % 2, heads = 3, per = i == 6 ? 2 : 1;
    struct op_attrs a = {0};
    a.decay.rows = 5;
    a.decay.heads = heads;
    a.decay.ld = heads * (per + 1) + 1;
    a.decay.a_first = is_step ? 1 : heads;
    a.decay.b_first = is_step ? -1 : 0;
    a.decay.x_type = i == 4 || i == 5 ? BF16 : F32;
    a.decay.dtype = F32;
    a.decay.least = i == 1 ? 0.7f : 0;
    a.decay.factor = i == 2 ? 2 : 1;
    a.decay.per = per > 1 ? per : 0;
    return a;
}

static void decays_are_as_defined(void **state)
{
    (void)state;
    for (int i = 0; i < 7; i++) {
        struct op_case run;
        struct decay_numbers c = {.a = decay_attrs(i)};
        const int is_step = c.a.decay.b_first < 0, heads = c.a.decay.heads, rows = (int)c.a.decay.rows;
        const int64_t per = max_i64(c.a.decay.per, 1), wide = heads * per;
        const enum dtype x_type = (enum dtype)c.a.decay.x_type;
        const int64_t of_x = rows * c.a.decay.ld, n = of_x + heads + wide;
        struct tensor *x = tensor_random(of_x, x_type, 2), *a_log = tensor_random(heads, F32, 1),
                      *bias = tensor_random(wide, F32, 1);
        struct tensor *g = tensor_new(rows * wide, F32), *beta = tensor_new(rows * heads, F32);
        struct tensor *dg = tensor_random(rows * wide, F32, 1), *dbeta = tensor_random(rows * heads, F32, 1);
        struct tensor *da_log = tensor_new(heads, F32), *dbias = tensor_new(wide, F32), *dx = tensor_copy(x);
        tensor_set(x, c.a.decay.a_first, 30); /* the exponential's sum with 1 is itself */
        dx = tensor_copy(x);
        case_start(&run, OP_DECAY);
        run.attrs = c.a;
        case_tensor(&run, g, OUT);
        case_tensor(&run, beta, OUT);
        case_tensor(&run, x, IN);
        case_tensor(&run, a_log, IN);
        case_tensor(&run, bias, IN);
        case_run(&run);
        for (int64_t r = 0; r < rows * wide; r++) {
            const int64_t at = r / wide * c.a.decay.ld, k = r % wide, h = k / per;
            const double in[] = {x->val[at + c.a.decay.a_first + k], is_step ? 0 : x->val[at + h], a_log->val[h], bias->val[k]};
            double want[2];
            decay_of(&c.a, in, &want[0], &want[1]);
            assert_true(fabs(((float *)g->store)[r] - want[0]) <= 1e-6 * fabs(want[0]));
            assert_true(fabs(((float *)beta->store)[r / per] - want[1]) <= 1e-6 * fabs(want[1]));
        }
        double *at = doubles(n), *want = doubles(n);
        memcpy(at, x->val, (size_t)of_x * sizeof *at);
        memcpy(at + of_x, a_log->val, (size_t)heads * sizeof *at);
        memcpy(at + of_x + heads, bias->val, (size_t)wide * sizeof *at);
        c.dg = dg->val, c.dbeta = dbeta->val;
        finite_difference(decay_loss, &c, at, n, want);
        case_start(&run, OP_DECAY_GRAD);
        run.attrs = c.a;
        case_tensor(&run, dx, INOUT);
        case_tensor(&run, da_log, OUT);
        case_tensor(&run, dbias, OUT);
        case_tensor(&run, dg, IN);
        case_tensor(&run, dbeta, IN);
        case_tensor(&run, a_log, IN);
        case_tensor(&run, bias, IN);
        case_run(&run);
        tensor_load(dx);
        for (int64_t r = 0; r < of_x; r++) { /* columns beside a and b are left alone */
            const int64_t j = r % c.a.decay.ld;
            if ((j >= c.a.decay.a_first && j < c.a.decay.a_first + wide) || (!is_step && j < heads))
                continue;
            assert_true(dx->val[r] == x->val[r]);
            want[r] = dx->val[r];
        }
        check_error("dx", dx->val, want, of_x, tol(x_type));
        check_error("da_log", da_log->val, want + of_x, heads, 1e-6);
        check_error("ddt_bias", dbias->val, want + of_x + heads, wide, 1e-6);
        tensors_free(NULL);
    }
}

/* Without maps to decays, each head has a decay of its own (Press et al. 2022, ALiBi's slopes), and steps are 1. */
static void constant_decays_are_as_defined(void **state)
{
    enum { ROWS = 4, HEADS = 6 };
    struct tensor *g = tensor_new(ROWS * HEADS, F32), *beta = tensor_new(ROWS * HEADS, F32);
    struct op_case run;
    (void)state;
    case_start(&run, OP_DECAY);
    run.attrs.decay.rows = ROWS;
    run.attrs.decay.heads = HEADS;
    run.attrs.decay.rate = 0.75f;
    case_tensor(&run, g, OUT);
    case_tensor(&run, beta, OUT);
    for (int i = 0; i < 3; i++)
        case_tensor(&run, NULL, IN);
    case_run(&run);
    for (int i = 0; i < ROWS * HEADS; i++) {
        const double want = -0.75 * pow(2, -8.0 * (i % HEADS + 1) / HEADS);
        assert_true(fabs(((float *)g->store)[i] - want) <= 1e-6 * fabs(want));
        assert_true(((float *)beta->store)[i] == 1.0f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(convolutions_are_as_defined, tensors_free),
        cmocka_unit_test_teardown(gradients_are_differences, tensors_free),
        cmocka_unit_test_teardown(untrained_parameters_have_no_gradients, tensors_free),
        cmocka_unit_test_teardown(absent_weights_are_ones, tensors_free),
        cmocka_unit_test_teardown(parts_make_the_whole, tensors_free),
        cmocka_unit_test_teardown(decays_are_as_defined, tensors_free),
        cmocka_unit_test_teardown(constant_decays_are_as_defined, tensors_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
