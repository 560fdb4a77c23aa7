/* Tests embedding, bias, residual addition, accumulation and copies: short sums whose fp32 result is known exactly or nearly so. */
#include "ops_test.h"
#include "ops/embed.h"

static const int64_t DIMS[] = {1, 3, 16, 17, 127, 129, 1025};

static struct tensor *indices(int64_t n, int64_t limit)
{
    struct tensor *t = tensor_new(n, I32);
    for (int64_t i = 0; i < n; i++)
        tensor_set(t, i, (double)((i * 7 + i * i % 5) % limit));
    return t;
}

static void set_embed(struct op_case *c, int64_t rows, int64_t dim, enum dtype t, int accumulate)
{
    c->attrs.embed.rows = rows;
    c->attrs.embed.dim = dim;
    c->attrs.embed.vocab = 11;
    c->attrs.embed.max_pos = 9;
    c->attrs.embed.dtype = t;
    c->attrs.embed.accumulate = accumulate;
}

static void check_embed(int64_t rows, int64_t dim, enum dtype t, int with_pos)
{
    struct tensor *table = tensor_random(11 * dim, t, 1.0), *pos_table = with_pos ? tensor_random(9 * dim, t, 1.0) : NULL;
    struct tensor *tokens = indices(rows, 11), *pos = with_pos ? indices(rows, 9) : NULL, *x = tensor_new(rows * dim, t);
    struct op_case c;
    case_start(&c, OP_EMBED);
    set_embed(&c, rows, dim, t, 0);
    case_tensor(&c, x, OUT);
    case_tensor(&c, table, IN);
    case_tensor(&c, tokens, IN);
    case_tensor(&c, pos_table, IN);
    case_tensor(&c, pos, IN);
    case_run(&c);
    struct tensor *want = tensor_new(rows * dim, t);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < dim; j++)
            tensor_set(want, i * dim + j,
                       table->val[(int64_t)tokens->val[i] * dim + j] +
                           (with_pos ? pos_table->val[(int64_t)pos->val[i] * dim + j] : 0.0));
    assert_memory_equal(x->store, want->store, (size_t)(rows * dim * dtype_size(t)));
}

/* Checks the gradient for rows that share an index. The op is linear, so the reference is a plain sum of gradients. Rows -1 and
 * 11 do not exist in the table. */
static void check_embed_grad(int64_t rows, int64_t dim, enum dtype t, int accumulate)
{
    struct tensor *dx = tensor_random(rows * dim, t, 1.0), *index = indices(rows, 11),
                  *dtable = tensor_random(11 * dim, F32, 1.0);
    struct tensor *want = tensor_new(11 * dim, F64);
    tensor_set(index, rows - 1, rows > 1 ? -1 : 11);
    for (int64_t i = 0; i < dtable->n; i++)
        tensor_set(want, i, accumulate ? dtable->val[i] : 0.0);
    for (int64_t i = 0; i < rows - 1; i++)
        for (int64_t j = 0; j < dim; j++)
            want->val[(int64_t)index->val[i] * dim + j] += dx->val[i * dim + j];
    memcpy(want->store, want->val, (size_t)want->n * sizeof(double));
    struct op_case c;
    case_start(&c, OP_EMBED_GRAD);
    set_embed(&c, rows, dim, t, accumulate);
    case_tensor(&c, dtable, accumulate ? INOUT : OUT);
    case_tensor(&c, dx, IN);
    case_tensor(&c, index, IN);
    case_run(&c);
    check_error("embed_grad", dtable->val, want->val, want->n, TOL_F32);
}

static void test_embed(void **state)
{
    (void)state;
    for (size_t d = 0; d < sizeof DIMS / sizeof *DIMS; d++)
        for (int t = F32; t <= BF16; t++)
            for (int x = 0; x < 2; x++) {
                check_embed(d % 2 ? 1 : 50, DIMS[d], (enum dtype)t, x);
                check_embed_grad(d == 1 ? 1 : 200, DIMS[d], (enum dtype)t, x);
            }
    tensors_free(NULL);
}

/* A table stored by columns gives the results of a table stored by rows. Rows -1 and 11 do not exist. */
static void check_columns(int64_t rows, int64_t dim, enum dtype t)
{
    struct tensor *table = tensor_random(11 * dim, t, 1.0), *turned = tensor_new(11 * dim, t), *index = indices(rows, 11);
    struct tensor *x[2] = {tensor_new(rows * dim, t), tensor_new(rows * dim, t)},
                  *dtable[2] = {tensor_random(11 * dim, F32, 1.0), tensor_new(11 * dim, F32)};
    tensor_set(index, rows - 1, rows % 2 ? -1 : 11);
    for (int64_t i = 0; i < 11 * dim; i++) {
        tensor_set(turned, i % dim * 11 + i / dim, table->val[i]);
        tensor_set(dtable[1], i % dim * 11 + i / dim, dtable[0]->val[i]);
    }
    for (int k = 0; k < 4; k++) {
        struct op_case c;
        case_start(&c, k < 2 ? OP_EMBED : OP_EMBED_GRAD);
        set_embed(&c, rows, dim, t, 1);
        c.attrs.embed.scale = 1.5f;
        c.attrs.embed.by_columns = k % 2;
        case_tensor(&c, k < 2 ? x[k] : dtable[k % 2], k < 2 ? OUT : INOUT);
        case_tensor(&c, k > 1 ? table : k ? turned : table, IN);
        case_tensor(&c, index, IN);
        if (k < 2) {
            case_tensor(&c, NULL, IN);
            case_tensor(&c, NULL, IN);
        }
        case_run(&c);
    }
    assert_memory_equal(x[1]->store, x[0]->store, (size_t)(rows * dim * dtype_size(t)));
    for (int64_t i = 0; i < 11 * dim; i++)
        assert_true(dtable[1]->val[i % dim * 11 + i / dim] == dtable[0]->val[i]);
    tensors_free(NULL);
}

static void test_columns(void **state)
{
    (void)state;
    for (int t = F32; t <= BF16; t++) { /* gradients are of 11 rows */
        check_columns(11, 1, (enum dtype)t);
        check_columns(10, 7, (enum dtype)t);
        check_columns(9, 130, (enum dtype)t);
    }
}

/* Rows of a second table lie over those whose index it has; a negative index leaves a row as it is. */
static void test_over(void **state)
{
    (void)state;
    enum { ROWS = 40, DIM = 17, N = ROWS * DIM };
    for (int t = F32; t <= BF16; t++) {
        struct tensor *x = tensor_random(N, (enum dtype)t, 1.0), *table = tensor_random((int64_t)11 * DIM, (enum dtype)t, 1.0);
        struct tensor *index = indices(ROWS, 11), *want = tensor_new(N, (enum dtype)t);
        for (int64_t i = 0; i < ROWS; i++)
            tensor_set(index, i, i % 3 == 1 ? index->val[i] : -1);
        for (int64_t i = 0; i < N; i++)
            tensor_set(want, i, i / DIM % 3 == 1 ? table->val[(int64_t)index->val[i / DIM] * DIM + i % DIM] : x->val[i]);
        struct op_case c;
        case_start(&c, OP_EMBED);
        set_embed(&c, ROWS, DIM, (enum dtype)t, 0);
        c.attrs.embed.over = 1;
        case_tensor(&c, x, INOUT);
        case_tensor(&c, table, IN);
        case_tensor(&c, index, IN);
        case_tensor(&c, NULL, IN);
        case_tensor(&c, NULL, IN);
        case_run(&c);
        assert_memory_equal(x->store, want->store, (size_t)(N * dtype_size((enum dtype)t)));
        tensors_free(NULL);
    }
}

/* Columns that are taken are zero afterwards, those that are put have the numbers, and all others stay. */
static void check_picked(int64_t rows, int64_t n, enum dtype t)
{
    const int64_t y_ld = 2 * n + 3, x_ld = n + 1;
    struct tensor *y = tensor_random(rows * y_ld, t, 1.0), *x = tensor_random(rows * x_ld, t, 1.0), *index = tensor_new(n, I32);
    struct tensor *put = tensor_new(rows * y_ld, t), *left = tensor_new(rows * y_ld, t),
                  *taken = tensor_random(rows * x_ld, t, 1.0);
    for (int64_t j = 0; j < n; j++)
        tensor_set(index, j, (double)(2 * (n - j)));
    for (int64_t i = 0; i < rows * y_ld; i++) {
        const int64_t column = i % y_ld, j = n - column / 2, listed = column % 2 == 0 && j >= 0 && j < n;
        tensor_set(put, i, listed ? x->val[i / y_ld * x_ld + j] : y->val[i]);
        tensor_set(left, i, listed ? 0.0 : y->val[i]);
    }
    for (int k = 0; k < 2; k++) {
        struct op_case c;
        case_start(&c, k ? OP_TAKE_COLUMNS : OP_PUT_COLUMNS);
        c.attrs.picked.rows = rows;
        c.attrs.picked.n = n;
        c.attrs.picked.y_ld = y_ld;
        c.attrs.picked.x_ld = x_ld;
        c.attrs.picked.dtype = t;
        if (k)
            case_tensor(&c, taken, INOUT); /* nobody writes the column behind x */
        case_tensor(&c, y, INOUT);
        if (!k)
            case_tensor(&c, x, IN);
        case_tensor(&c, index, IN);
        case_run(&c);
        assert_memory_equal(y->store, (k ? left : put)->store, (size_t)(rows * y_ld * dtype_size(t)));
    }
    for (int64_t i = 0; i < rows * x_ld; i++)
        if (i % x_ld < n)
            assert_true(taken->val[i] == x->val[i]);
    tensors_free(NULL);
}

static void test_picked(void **state)
{
    (void)state;
    for (int t = F32; t <= BF16; t++) {
        check_picked(1, 1, (enum dtype)t);
        check_picked(7, 5, (enum dtype)t);
        check_picked(130, 33, (enum dtype)t);
    }
}

static void test_embed_outside(void **state)
{
    (void)state;
    for (int t = F32; t <= BF16; t++) {
        struct tensor *table = tensor_random(11 * 5, (enum dtype)t, 1.0), *tokens = indices(3, 11),
                      *x = tensor_new(15, (enum dtype)t);
        tensor_set(tokens, 1, 11);
        tensor_set(tokens, 2, -1);
        struct op_case c;
        case_start(&c, OP_EMBED);
        set_embed(&c, 3, 5, (enum dtype)t, 0);
        case_tensor(&c, x, OUT);
        case_tensor(&c, table, IN);
        case_tensor(&c, tokens, IN);
        case_tensor(&c, NULL, IN);
        case_tensor(&c, NULL, IN);
        case_run(&c);
        for (int i = 0; i < 15; i++)
            assert_true((isnan(x->val[i]) != 0) == (i >= 5));
    }
}

/* Biases are right for y of type t whose rows lie dim + gap elements apart. Elements in the gap are not changed and not summed. */
static void check_bias(int64_t rows, int64_t dim, int64_t gap, enum dtype t, enum dtype of_bias, int accumulate)
{
    const int64_t ld = dim + gap;
    struct tensor *y = tensor_random(rows * ld, t, 1.0), *bias = tensor_random(dim, of_bias, 1.0),
                  *want = tensor_new(rows * ld, t);
    for (int64_t i = 0; i < y->n; i++)
        tensor_set(want, i, i % ld < dim ? y->val[i] + bias->val[i % ld] : y->val[i]);
    struct op_case c;
    case_start(&c, OP_BIAS);
    c.attrs.bias.rows = rows;
    c.attrs.bias.dim = dim;
    c.attrs.bias.dtype = of_bias;
    c.attrs.bias.y_type = t;
    c.attrs.bias.ld = gap > 0 ? ld : 0;
    case_tensor(&c, y, INOUT);
    case_tensor(&c, bias, IN);
    case_run(&c);
    assert_memory_equal(y->store, want->store, (size_t)(y->n * dtype_size(t)));

    struct tensor *dbias = tensor_random(dim, F32, 1.0), *sums = tensor_new(dim, F64);
    for (int64_t j = 0; j < dim; j++) {
        double sum = accumulate ? dbias->val[j] : 0.0;
        for (int64_t i = 0; i < rows; i++)
            sum += y->val[i * ld + j];
        tensor_set(sums, j, sum);
    }
    case_start(&c, OP_BIAS_GRAD);
    c.attrs.bias.rows = rows;
    c.attrs.bias.dim = dim;
    c.attrs.bias.y_type = t;
    c.attrs.bias.ld = gap > 0 ? ld : 0;
    c.attrs.bias.accumulate = accumulate;
    case_tensor(&c, dbias, accumulate ? INOUT : OUT);
    case_tensor(&c, y, IN);
    case_run(&c);
    for (int64_t j = 0; j < dim; j++) /* absolute limit: a sum may cancel, while its terms, of order 1, are rounded */
        assert_true(fabs(dbias->val[j] - sums->val[j]) <= TOL_F32 * (sqrt((double)rows) + fabs(sums->val[j])));
}

static void check_add(int64_t rows, int64_t dim, enum dtype t, int with_bias, int alias)
{
    struct tensor *x = tensor_random(rows * dim, t, 1.0), *delta = tensor_random(rows * dim, F32, 1.0);
    struct tensor *bias = with_bias ? tensor_random(dim, t, 1.0) : NULL, *y = alias ? x : tensor_new(rows * dim, t);
    struct tensor *want = tensor_new(rows * dim, t);
    for (int64_t i = 0; i < x->n; i++) {
        float sum = (float)x->val[i] + (float)delta->val[i];
        tensor_set(want, i, with_bias ? sum + (float)bias->val[i % dim] : sum);
    }
    struct op_case c;
    case_start(&c, OP_ADD);
    c.attrs.add.rows = rows;
    c.attrs.add.dim = dim;
    c.attrs.add.dtype = t;
    case_tensor(&c, y, alias ? INOUT : OUT);
    case_tensor(&c, x, IN);
    case_tensor(&c, delta, IN);
    case_tensor(&c, bias, IN);
    case_run(&c);
    assert_memory_equal(y->store, want->store, (size_t)(y->n * dtype_size(t)));
}

static void test_sums(void **state)
{
    (void)state;
    for (size_t d = 0; d < sizeof DIMS / sizeof *DIMS; d++)
        for (int t = F32; t <= BF16; t++)
            for (int x = 0; x < 2; x++) {
                check_bias(d % 2 ? 1 : 70, DIMS[d], d % 3, (enum dtype)t, t == BF16 || x == 0 ? (enum dtype)t : BF16, x);
                check_add(d % 2 ? 33 : 1, DIMS[d], (enum dtype)t, x, (int)d % 3 == 0);
            }
    tensors_free(NULL);
}

static void test_accum_copy_fill(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 17, 1023, 1025, 40001, 600001};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int64_t n = sizes[s];
        struct tensor *y = tensor_random(n, F32, 1.0), *x = tensor_random(n, F32, 1.0), *want = tensor_new(n, F32),
                      *z = tensor_new(n, F32);
        for (int64_t i = 0; i < n; i++)
            tensor_set(want, i, (double)((float)y->val[i] + (float)x->val[i]));
        struct op_case c;
        case_start(&c, OP_ACCUM);
        c.attrs.vec.n = n;
        case_tensor(&c, y, INOUT);
        case_tensor(&c, x, IN);
        case_run(&c);
        assert_memory_equal(y->store, want->store, (size_t)n * 4);
        case_start(&c, OP_COPY);
        c.attrs.copy.bytes = n * 4;
        case_tensor(&c, x, IN);
        case_tensor(&c, z, OUT);
        case_run(&c);
        assert_memory_equal(x->store, z->store, (size_t)n * 4);
        case_start(&c, OP_FILL);
        c.attrs.fill.bytes = n * 4;
        case_tensor(&c, z, OUT);
        case_run(&c);
        for (int64_t i = 0; i < n; i++)
            assert_true(z->val[i] == 0.0);
        tensors_free(NULL);
    }
}

static void check_placed(enum dtype t)
{
    enum { ROWS = 3, TABLE = 5, DIM = 7 };
    static const int32_t index[ROWS] = {4, -1, 0};
    float table[TABLE * DIM], x[ROWS * DIM];
    void *at = table, *from = x;
    for (int i = 0; i < TABLE * DIM; i++)
        t == F32 ? (void)(table[i] = (float)-i) : (void)(((bf16 *)at)[i] = bf16_from_float((float)-i));
    for (int i = 0; i < ROWS * DIM; i++)
        t == F32 ? (void)(x[i] = (float)(1 + i)) : (void)(((bf16 *)from)[i] = bf16_from_float((float)(1 + i)));
    const struct embed_shape s = {.rows = ROWS, .dim = DIM, .vocab = TABLE, .dtype = t};
    ops_scatter(&s, at, from, index);
    for (int i = 0; i < TABLE * DIM; i++) {
        int row = i / DIM, of = row == 4 ? 0 : row == 0 ? 2 : -1;
        double got = t == F32 ? (double)table[i] : (double)bf16_to_float(((bf16 *)at)[i]);
        assert_true(got == (of < 0 ? -(double)i : 1 + of * DIM + i % DIM));
    }
}

static void test_placed(void **state)
{
    (void)state;
    check_placed(F32);
    check_placed(BF16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_embed, tensors_free),
        cmocka_unit_test_teardown(test_columns, tensors_free),
        cmocka_unit_test_teardown(test_over, tensors_free),
        cmocka_unit_test_teardown(test_picked, tensors_free),
        cmocka_unit_test_teardown(test_embed_outside, tensors_free),
        cmocka_unit_test(test_placed),
        cmocka_unit_test_teardown(test_sums, tensors_free),
        cmocka_unit_test_teardown(test_accum_copy_fill, tensors_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
