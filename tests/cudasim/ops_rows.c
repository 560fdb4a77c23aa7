/* Tests kernels that reduce rows or columns: norms, bias gradient, cross entropy. */
#include "ops_harness.h"

/* Returns a bound on the difference of two sums of n terms of both signs added in different orders: n roundings, of random sign,
 * of partial sums of size sqrt(n), so sqrt(n) * 2^-24 * sqrt(n) and somewhat more. */
static double sum_error(int64_t n)
{
    return 1e-7 * (double)n + 2e-6;
}

static void set_norm(struct twin_case *c, int64_t rows, int64_t dim, int kind, enum dtype t, int accumulate)
{
    c->attrs.norm.rows = rows;
    c->attrs.norm.dim = dim;
    c->attrs.norm.eps = 1e-5f;
    c->attrs.norm.kind = kind;
    c->attrs.norm.dtype = t;
    c->attrs.norm.accumulate = accumulate;
}

enum { BARE = NORM_NONE + 8 }; /* an RMS norm without weights */

static void check_norm(int64_t rows, int64_t dim, int segments, int kind, enum dtype t, int bias, int in_place)
{
    struct twin_case c;
    case_start(&c, OP_NORM, "norm %lld x %lld in %d kind %d %s bias %d", (long long)rows, (long long)dim, segments, kind,
               dtype_name(t), bias);
    set_norm(&c, rows, dim, kind == BARE ? NORM_RMS : kind, t, 0);
    c.attrs.norm.segments = segments;
    void *x = array_random(rows * dim, t, 2.0);
    /* mean and root mean square differ by a few units; subtracting the mean may cancel, and so may adding the bias */
    close_to(case_arg(&c, in_place ? x : array_new(rows * dim * dtype_size(t)), rows * dim, t, in_place ? INOUT : OUT), 16, 4e-6);
    case_arg(&c, x, rows * dim, t, IN);
    if (kind != NORM_NONE && kind != BARE)
        case_arg(&c, array_random(dim, t, 1.0), dim, t, IN);
    else
        case_absent(&c);
    if (bias)
        case_arg(&c, array_random(dim, t, 1.0), dim, t, IN);
    else
        case_absent(&c);
    case_run(&c);
    arrays_free();
}

/* which: gradients that are computed: 1 dweight, 2 dbias, 3 both, 0 neither (frozen) */
static void check_norm_grad(int64_t rows, int64_t dim, int segments, int kind, enum dtype t, int accumulate, int which)
{
    struct twin_case c;
    case_start(&c, OP_NORM_GRAD, "norm_grad %lld x %lld in %d kind %d %s accumulate %d outputs %d", (long long)rows,
               (long long)dim, segments, kind, dtype_name(t), accumulate, which);
    set_norm(&c, rows, dim, kind == BARE ? NORM_RMS : kind, t, accumulate);
    c.attrs.norm.segments = segments;
    c.attrs.norm.eps = 1e-2f; /* the exact gradient of a row of one element is of the order of eps */
    close_to(case_arg(&c, array_random(rows * dim, t, 1.0), rows * dim, t, INOUT), 32, 2e-5);
    case_arg(&c, array_random(rows * dim, t, 1.5), rows * dim, t, IN);
    if (kind != NORM_NONE && kind != BARE)
        case_arg(&c, array_random(dim, t, 1.0), dim, t, IN);
    else
        case_absent(&c);
    case_arg(&c, array_random(rows * dim, F32, 1.0), rows * dim, F32, IN);
    for (int bit = 1; bit <= 2; bit++) {
        if (which & bit)
            close_to(case_arg(&c, array_random(dim, F32, 1.0), dim, F32, accumulate ? INOUT : OUT), 32, 3.0 * sum_error(rows));
        else
            case_absent(&c);
    }
    case_work(&c);
    case_run(&c);
    arrays_free();
}

void test_norms(void)
{
    /* one warp processes rows of up to 1024 (bf16) or 512 (fp32) elements, reading up to 128 elements singly; several warps keep
     * rows up to 16 times as long */
    static const int64_t shapes[][2] = {{1, 1},    {9, 7},    {17, 8},   {70, 33},  {8, 128},  {3, 255},  {5, 512}, {3, 520},
                                        {2, 1023}, {9, 1024}, {3, 1032}, {2, 2048}, {1, 2049}, {2, 4104}, {1, 5000}};
    static const int64_t grads[][2] = {{1, 1}, {1, 9}, {31, 8}, {32, 16}, {33, 24}, {65, 40}, {3, 255}, {2, 264}, {2, 1037}};
    for (int t = F32; t <= BF16; t++) {
        for (int kind = NORM_RMS; kind <= NORM_LAYER; kind++) {
            for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
                check_norm(shapes[s][0], shapes[s][1], 0, kind, (enum dtype)t, kind == NORM_LAYER || s % 3 == 0, s % 2 != 0);
            for (size_t s = 0; s < sizeof grads / sizeof *grads; s++)
                check_norm_grad(grads[s][0], grads[s][1], 0, kind, (enum dtype)t, (int)s % 2,
                                kind == NORM_LAYER ? 3 : (int)(s + 1) % 4);
        }
    }
    for (int t = F32; t <= BF16; t++) {
        check_norm(70, 33, 0, NORM_RMS_ONE, (enum dtype)t, 0, 0);
        check_norm(9, 1024, 0, NORM_RMS_ONE, (enum dtype)t, 0, 1);
        check_norm(5, 40, 0, NORM_LAYER, (enum dtype)t, 0, 0);
        check_norm(5, 40, 0, NORM_LAYER_ONE, (enum dtype)t, 1, 0);
        check_norm_grad(33, 24, 0, NORM_LAYER_ONE, (enum dtype)t, 1, 3);
        check_norm(17, 24, 0, NORM_NONE, (enum dtype)t, 0, 0);
        check_norm(17, 24, 0, BARE, (enum dtype)t, 0, 0);
        check_norm(5, 255, 0, BARE, (enum dtype)t, 0, 1);
        check_norm_grad(33, 24, 0, BARE, (enum dtype)t, 0, 0);
        check_norm_grad(3, 255, 0, BARE, (enum dtype)t, 0, 0);
        check_norm_grad(33, 24, 0, NORM_RMS_ONE, (enum dtype)t, 1, 1);
        check_norm_grad(3, 255, 0, NORM_RMS_ONE, (enum dtype)t, 0, 1);
        check_norm_grad(33, 24, 0, NORM_LAYER, (enum dtype)t, 0, 1);
        check_norm_grad(33, 24, 0, NORM_NONE, (enum dtype)t, 0, 0);
    }
    for (int t = F32; t <= BF16;
         t++) { /* weights for each head; heads that are read in single elements, in vectors, by one warp and by two */
        check_norm(37, 3 * 33, 3, NORM_LAYER, (enum dtype)t, 1, 0);
        check_norm(9, 4 * 128, 4, NORM_LAYER, (enum dtype)t, 0, 1);
        check_norm(2, 2 * 2048, 2, NORM_RMS, (enum dtype)t, 0, 0);
        check_norm_grad(33, 3 * 9, 3, NORM_LAYER, (enum dtype)t, 1, 3);
        check_norm_grad(70, 4 * 128, 4, NORM_LAYER, (enum dtype)t, 0, 1);
    }
    check_norm(1, 8200, 0, NORM_LAYER, F32, 1, 0);
    /* rows wider than a panel (8192 or 4096 columns); more groups of rows than strips of groups */
    check_norm_grad(1, 8200, 0, NORM_RMS, BF16, 0, 3);
    check_norm_grad(2, 4100, 0, NORM_LAYER, F32, 1, 3);
    check_norm_grad(1057, 8, 0, NORM_LAYER, BF16, 1, 3);
}

static void check_bias_grad(int64_t rows, int64_t dim, int64_t gap, enum dtype t, int accumulate)
{
    struct twin_case c;
    const int64_t all = rows * (dim + gap);
    case_start(&c, OP_BIAS_GRAD, "bias_grad %lld x %lld and %lld %s accumulate %d", (long long)rows, (long long)dim,
               (long long)gap, dtype_name(t), accumulate);
    c.attrs.bias.ld = gap > 0 ? dim + gap : 0;
    c.attrs.bias.rows = rows;
    c.attrs.bias.dim = dim;
    c.attrs.bias.y_type = t;
    c.attrs.bias.accumulate = accumulate;
    close_to(case_arg(&c, array_random(dim, F32, 1.0), dim, F32, accumulate ? INOUT : OUT), 16, sum_error(rows));
    case_arg(&c, array_random(all, t, 1.0), all, t, IN);
    case_run(&c);
    arrays_free();
}

void test_columns(void)
{
    static const int64_t shapes[][2] = {{1, 1}, {7, 31}, {127, 32}, {128, 33}, {129, 36}, {31, 64}, {600, 68}, {1030, 5}};
    for (int t = F32; t <= BF16; t++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            check_bias_grad(shapes[s][0], shapes[s][1], s % 3 == 0 ? 0 : 5 - (int64_t)(s % 2), (enum dtype)t, (int)s % 2);
}

/* targets: 0 all inside the vocabulary, 1 some ignored, 2 one beyond the vocabulary (the loss is NaN) */
static void check_loss(int64_t rows, int64_t vocab, int gradient, int targets, float scale, float cap, int each, int weighted)
{
    struct twin_case c;
    case_start(&c, OP_LOSS, "loss %lld x %lld gradient %d targets %d scale %g cap %g", (long long)rows, (long long)vocab,
               gradient, targets, (double)scale, (double)cap);
    c.attrs.loss.scale = scale;
    c.attrs.loss.cap = cap;
    c.attrs.loss.rows = rows;
    c.attrs.loss.vocab = vocab;
    c.attrs.loss.gradient_bf16 = gradient;
    const int64_t ld = targets == 1 ? round_up(vocab, 8) : vocab; /* bytes between the rows must keep their values */
    c.attrs.loss.ld = targets == 1 ? ld : 0;
    struct step_record *record = array_new(sizeof *record);
    memset(record, 0, sizeof *record);
    record->inv_targets = 0.125f;
    int32_t *target = array_indices(rows, 0, (int32_t)vocab);
    if (targets > 0)
        for (int64_t i = 0; i < rows; i += 3)
            target[i] = -100;
    if (targets == 2)
        target[rows - 1] = (int32_t)vocab;
    case_arg(&c, array_random(rows * ld, F32, 3.0), rows * ld, F32, IN);
    struct twin_arg *l = case_arg(&c, array_new(8), 1, F64, OUT);
    l->compare = CLOSE;
    l->absolute = 2e-6 * (double)rows; /* error per row of a sum of fp32 exponentials */
    case_arg(&c, target, rows, I32, IN);
    if (gradient)
        case_arg(&c, record, sizeof *record / 4, F32, IN);
    else
        case_absent(&c);
    if (each) { /* the loss of each row, which has the error of a sum of fp32 exponentials */
        struct twin_arg *e = case_arg(&c, array_new(rows * 4), rows, F32, OUT);
        e->compare = targets == 2 ? SKIP : CLOSE; /* NaN */
        e->absolute = 4e-6;
    } else {
        case_absent(&c);
    }
    /* logits of size 3: every element's exponential errs by the rounding of its argument (below 30) and by the error of exp; the
     * target's gradient is a number up to 1 minus 1: 4 roundings each, times inv_targets (the twin alone errs by up to 3.3 of
     * them) */
    /* with a soft cap: 4 more units of tanh on both sides, of a logit below the cap */
    if (gradient)
        close_to(case_arg(&c, array_new(rows * ld * 2), rows * ld, BF16, OUT), 40 + 8 * (double)cap,
                 (8.0 + 2 * (double)cap) / 16777216.0 * 0.125);
    else
        case_absent(&c);
    if (weighted)
        case_arg(&c, array_random(rows, F32, 1.0), rows, F32, IN);
    else
        case_absent(&c);
    case_run(&c);
    arrays_free();
}

void test_loss(void)
{
    /* in the simulator the kernel has 512 threads with 4 logits each, 3 times in shared memory and 2 times in registers; rows
     * start anywhere between 16-byte boundaries when the vocabulary is odd; it keeps the losses of 1050 rows at a time */
    static const int64_t shapes[][2] = {{1, 1},   {1, 2},    {3, 3},    {5, 4},    {4, 5},    {7, 127},   {9, 128},
                                        {6, 129}, {2, 4095}, {2, 4096}, {3, 4097}, {2, 4099}, {2, 16001}, {1100, 6}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int gradient = 0; gradient < 2; gradient++)
            check_loss(shapes[s][0], shapes[s][1], gradient, (int)s % 3, 0, 0, (int)s % 2 == 0, s == 4 || s == 13);
    for (int each = 0; each < 2; each++)
        check_loss(1061, 3, 1, 1, 0, 0, each, 0);
    /* rows in shared memory, in registers, read again; edges of rows; small caps that bend every logit */
    check_loss(3, 4097, 1, 1, 0, 4, 1, 1);
    check_loss(2, 16001, 1, 0, 0, 30, 1, 0);
    check_loss(2, 16001, 0, 0, 0, 30, 1, 0);
    check_loss(6, 129, 1, 2, 0.125f, 0, 0, 0);
    check_loss(5, 7, 1, 1, 0.5f, 2, 1, 1);
}
