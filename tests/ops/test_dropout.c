/* Tests dropout: the mask is the one that the generator gives for each number's place, and has the right statistics. */
#include "ops_test.h"

#include "base/rng.h"

static const struct step_record record = {.dropout = {0x01234567, 0x89abcdef}, .sequence = 77, .member = {5}};

/* Tells by dropout.h's definition whether a feature is kept. */
static int stays(uint32_t feature, int32_t number, uint32_t module, const struct step_record *r, uint32_t threshold)
{
    uint32_t w[4];
    rng_block(r->dropout[0] | (uint64_t)r->dropout[1] << 32, (uint64_t)r->sequence << 32 | module,
              (uint64_t)(uint32_t)number << 32 | feature / 4, w);
    return w[feature % 4] >= threshold;
}

static struct op_attrs attrs_of(int64_t rows, int64_t cols, uint32_t first, uint32_t module, double rate)
{
    struct op_attrs a = {0};
    a.dropout.rows = rows;
    a.dropout.cols = a.dropout.y_ld = a.dropout.x_ld = cols;
    a.dropout.first = first;
    a.dropout.module = module;
    a.dropout.threshold = (uint32_t)(rate * 0x1p32);
    a.dropout.scale = (float)(1 / (1 - rate));
    return a;
}

/* Compares a mask with the definition. Rows apart belong to the last of three slices of a layer: place 5 in the mesh has it. */
static void check(int64_t rows, int64_t cols, uint32_t first, int apart, enum dtype y_type, int accumulate)
{
    struct op_case c;
    const enum dtype x_type = accumulate ? F32 : y_type;
    struct tensor *x = tensor_random(rows * (cols + apart), x_type, 1), *y = tensor_random(rows * (cols + 2 * apart), y_type, 1),
                  *was = tensor_copy(y);
    int32_t *numbers = malloc((size_t)rows * sizeof *numbers);
    for (int64_t i = 0; i < rows; i++)
        numbers[i] = (int32_t)(i * 1000003);
    case_start(&c, OP_DROPOUT);
    c.attrs = attrs_of(rows, cols, first, 0xfedcba98, 0.3);
    c.attrs.dropout.slices = apart ? 3 : 0;
    c.attrs.dropout.share = (uint32_t)cols + 1;
    c.attrs.dropout.x_ld = cols + apart;
    c.attrs.dropout.y_ld = cols + 2 * apart;
    c.attrs.dropout.dtype = (int32_t)y_type;
    c.attrs.dropout.accumulate = accumulate;
    case_tensor(&c, y, INOUT);
    case_tensor(&c, x, IN);
    case_bytes(&c, numbers, rows * 4, 4, IN);
    case_bytes(&c, (void *)&record, sizeof record, 4, IN);
    case_run(&c);
    const uint32_t from = first + (apart ? 2 * ((uint32_t)cols + 1) : 0);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols + 2 * apart; j++) {
            const double old = was->val[i * (cols + 2 * apart) + j];
            float want = (float)old;
            if (j < cols) {
                const float part =
                    stays(from + (uint32_t)j, numbers[i], c.attrs.dropout.module, &record, c.attrs.dropout.threshold)
                        ? c.attrs.dropout.scale * (float)x->val[i * (cols + apart) + j]
                        : 0.0f;
                want = accumulate ? want + part : part;
                want = y_type == BF16 ? bf16_to_float(bf16_from_float(want)) : want;
            }
            assert_true((float)y->val[i * (cols + 2 * apart) + j] == want);
        }
    free(numbers);
    tensors_free(NULL);
}

static void test_places(void **state)
{
    static const int64_t cols[] = {1, 3, 4, 127, 128, 129, 131, 300};
    (void)state;
    for (size_t i = 0; i < sizeof cols / sizeof *cols; i++)
        for (uint32_t k = 0; k < 8; k++)
            check(5, cols[i], 5 * k, (int)(k % 3), k & 1 ? BF16 : F32, (int)(k / 4));
    check(200, 130, 2, 0, F32, 0); /* by several threads */
}

/* Computes the mask of ones, for `rows` tokens. */
static void mask_of(int64_t rows, int64_t cols, uint32_t module, uint32_t sequence, double rate, float *mask)
{
    struct step_record r = record;
    struct op_attrs a = attrs_of(rows, cols, 0, module, rate);
    float *x = malloc((size_t)(rows * cols) * sizeof *x);
    int32_t *numbers = malloc((size_t)rows * sizeof *numbers);
    void *arg[] = {mask, x, numbers, &r};
    r.sequence = sequence;
    for (int64_t i = 0; i < rows * cols; i++)
        x[i] = 1;
    for (int64_t i = 0; i < rows; i++)
        numbers[i] = (int32_t)i;
    assert_int_equal(ops_cpu_dropout(&a, arg, NULL), OK);
    free(numbers);
    free(x);
}

enum { ROWS = 512, COLS = 256, N = ROWS * COLS };

/* Returns the correlation of two dropout masks, in standard deviations of the correlation of independent masks. */
static double together(const float *a, const float *b, int64_t n, double rate)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += ((a[i] == 0) - rate) * ((b[i] == 0) - rate);
    return sum / sqrt((double)n) / (rate * (1 - rate));
}

/* The rate is right, and numbers are dropped independently of the next feature, token, sequence and module: each within five
 * standard deviations. */
static void test_statistics(void **state)
{
    static const double rates[] = {0.05, 0.5};
    static const uint32_t others[][2] = {{7, 78}, {8, 77}, {0xfedcba98, 77}, {7, 0}}; /* module, sequence */
    float *a = malloc(N * sizeof *a), *b = malloc(N * sizeof *b);
    (void)state;
    for (int k = 0; k < 2; k++) {
        double p = rates[k], dropped = 0;
        mask_of(ROWS, COLS, 7, 77, p, a);
        for (int64_t i = 0; i < N; i++) {
            dropped += a[i] == 0;
            assert_true(a[i] == 0 || a[i] == (float)(1 / (1 - p)));
        }
        assert_true(fabs(dropped - p * N) < 5 * sqrt(p * (1 - p) * N));
        assert_true(fabs(together(a, a + 1, N - 1, p)) < 5);
        assert_true(fabs(together(a, a + 4, N - 4, p)) < 5);
        assert_true(fabs(together(a, a + COLS, N - COLS, p)) < 5);
        for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
            mask_of(ROWS, COLS, others[i][0], others[i][1], p, b);
            assert_true(fabs(together(a, b, N, p)) < 5);
        }
        mask_of(ROWS, COLS, 7, 77, p, b);
        assert_memory_equal(a, b, N * sizeof *a);
    }
    free(a);
    free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_places), cmocka_unit_test(test_statistics)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
