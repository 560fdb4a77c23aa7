/* Tests linear attention: convolutions, decays, scans and their gradients. */
#include "ops_harness.h"
#include "recurrence/cuda_recurrence.h"

/* Rows: how many, where documents begin, and which rows have no token. Lists end with -1. */
struct extent_of_rows {
    int64_t rows;
    int begins[5], none[5];
};

/* None; one; less than a chunk; a chunk; a row more; documents of a row, at and beside borders of chunks; rows without a token there. */
static const struct extent_of_rows EXTENTS[] = {{0, {-1}, {-1}},
                                                {1, {-1}, {-1}},
                                                {1, {0, -1}, {-1}},
                                                {3, {-1}, {0, 1, 2, -1}},
                                                {50, {20, 21, -1}, {0, 49, -1}},
                                                {64, {0, -1}, {-1}},
                                                {65, {64, -1}, {30, -1}},
                                                {190, {5, 63, 128, -1}, {62, 64, 66, 189, -1}},
                                                {130, {-1}, {-1}}};
enum { N_EXTENTS = sizeof EXTENTS / sizeof *EXTENTS };

static int32_t *links_of(const struct extent_of_rows *x)
{
    int32_t *links = array_new(x->rows * 4);
    for (int64_t i = 0; i < x->rows; i++)
        links[i] = ROW_FOLLOWS;
    for (int i = 0; x->begins[i] >= 0; i++)
        links[x->begins[i]] = ROW_BEGINS;
    for (int i = 0; x->none[i] >= 0; i++)
        links[x->none[i]] = ROW_NONE;
    return links;
}

/* Fills the rows without a token with NaN, since no kernel may read them. */
static void *poisoned(void *x, const struct extent_of_rows *at, int64_t ld, enum dtype t)
{
    for (int i = 0; at->none[i] >= 0; i++)
        memset((char *)x + at->none[i] * ld * dtype_size(t), 0xff, (size_t)(ld * dtype_size(t)));
    return x;
}

static void arg_or_none(struct twin_case *c, int is_there, void *data, int64_t n, enum dtype t, enum arg_mode mode)
{
    if (is_there)
        case_arg(c, data, n, t, mode);
    else
        case_absent(c);
}

/* --- Convolutions --- */

/* A way to convolve: columns, taps, columns beside; whether the optional arguments are there, but (bare) the weights. */
struct conv_way {
    int cols, width, beside, silu, enters, biased, adds, bare;
    enum dtype dtype;
};

static struct op_attrs conv_attrs(const struct extent_of_rows *x, const struct conv_way *w)
{
    struct op_attrs a = {0};
    a.conv.rows = x->rows;
    a.conv.cols = w->cols;
    a.conv.first = w->beside;
    a.conv.ld = w->cols + 2 * w->beside;
    a.conv.width = w->width;
    a.conv.silu = w->silu;
    a.conv.accumulate = w->adds;
    a.conv.dtype = (int32_t)w->dtype;
    return a;
}

static void check_conv(const struct extent_of_rows *x, const struct conv_way *w)
{
    const struct op_attrs a = conv_attrs(x, w);
    const int64_t tail = (int64_t)(w->width - 1) * w->cols, n = x->rows * w->cols;
    struct twin_case c;
    case_start(&c, OP_CONV, "conv of %lld rows, %d columns, %d taps, %s", (long long)x->rows, w->cols, w->width,
               dtype_name(w->dtype));
    c.attrs = a;
    close_to(case_arg(&c, array_new(n * 4), n, w->dtype, OUT), 16, 1e-6);
    arg_or_none(&c, w->enters, array_new(tail * 4), tail, w->dtype, OUT);
    case_arg(&c, poisoned(array_random(x->rows * a.conv.ld, w->dtype, 1.0), x, a.conv.ld, w->dtype), x->rows * a.conv.ld,
             w->dtype, IN);
    arg_or_none(&c, !w->bare, array_random(w->cols * w->width, w->dtype, 1.0), w->cols * w->width, w->dtype, IN);
    arg_or_none(&c, w->biased, array_random(w->cols, w->dtype, 1.0), w->cols, w->dtype, IN);
    case_arg(&c, links_of(x), x->rows, I32, IN);
    arg_or_none(&c, w->enters, array_random(tail, w->dtype, 1.0), tail, w->dtype, IN);
    case_run(&c);
    arrays_free();
}

static void check_conv_grad(const struct extent_of_rows *x, const struct conv_way *w)
{
    const struct op_attrs a = conv_attrs(x, w);
    const int64_t tail = (int64_t)(w->width - 1) * w->cols, n = x->rows * w->cols, weights = (int64_t)w->cols * w->width;
    const enum arg_mode mode = w->adds ? INOUT : OUT;
    struct twin_case c;
    case_start(&c, OP_CONV_GRAD, "conv_grad of %lld rows, %d columns, %d taps, %s", (long long)x->rows, w->cols, w->width,
               dtype_name(w->dtype));
    c.attrs = a;
    void *rows = poisoned(array_random(x->rows * a.conv.ld, w->dtype, 1.0), x, a.conv.ld, w->dtype);
    close_to(case_arg(&c, rows, x->rows * a.conv.ld, w->dtype, INOUT), 16, 4e-6);
    arg_or_none(&c, tail > 0, array_random(tail, F32, 1.0), tail, F32, INOUT);
    close_to(&c.arg[1], 16, 4e-6);
    arg_or_none(&c, !w->bare, array_random(weights, F32, 1.0), weights, F32, mode);
    close_to(&c.arg[2], 16, 4e-5); /* sums over the rows */
    arg_or_none(&c, w->biased, array_random(w->cols, F32, 1.0), w->cols, F32, mode);
    close_to(&c.arg[3], 16, 4e-5);
    case_arg(&c, poisoned(array_random(n, w->dtype, 1.0), x, w->cols, w->dtype), n, w->dtype, IN);
    arg_or_none(&c, !w->bare, array_random(weights, w->dtype, 1.0), weights, w->dtype, IN);
    arg_or_none(&c, w->biased, array_random(w->cols, w->dtype, 1.0), w->cols, w->dtype, IN);
    case_arg(&c, links_of(x), x->rows, I32, IN);
    arg_or_none(&c, w->enters, array_random(tail, w->dtype, 1.0), tail, w->dtype, IN);
    case_work(&c);
    case_run(&c);
    arrays_free();
}

void test_convolutions(void)
{
    static const struct conv_way ways[] = {
        {.cols = 5, .width = 4, .silu = 1, .enters = 1, .dtype = F32},
        {.cols = 130, .width = 4, .silu = 1, .biased = 1, .adds = 1, .beside = 3, .dtype = BF16},
        {.cols = 3, .width = 3, .enters = 1, .biased = 1, .adds = 1, .dtype = F32},
        {.cols = 4, .width = 8, .enters = 1, .beside = 1, .dtype = BF16},
        {.cols = 2, .width = 1, .biased = 1, .dtype = F32},
        {.cols = 130, .width = 1, .silu = 1, .bare = 1, .beside = 2, .dtype = BF16}};
    enum { WAYS = sizeof ways / sizeof *ways };
    for (int x = 0; x < N_EXTENTS; x++)
        for (int k = 0; k < 2; k++) {
            check_conv(&EXTENTS[x], &ways[(x + k) % WAYS]);
            check_conv_grad(&EXTENTS[x], &ways[(x + k) % WAYS]);
        }
    check_conv_grad(&EXTENTS[7], &ways[0]);
    check_conv_grad(&EXTENTS[7], &ways[3]);
}

/* --- Decays --- */

/* per: decays of a head; 0: one. */
static void check_decay(int64_t rows, int heads, int per, int with_b, enum dtype x, enum dtype type, int gradient)
{
    const int decays = heads * (per > 0 ? per : 1), ld = decays + heads + 3;
    struct twin_case c;
    case_start(&c, gradient ? OP_DECAY_GRAD : OP_DECAY, "decays of %lld rows, %d heads, %d each, %s, %s", (long long)rows, heads,
               per, dtype_name(x), dtype_name(type));
    c.attrs.decay.rows = rows;
    c.attrs.decay.heads = heads;
    c.attrs.decay.per = per;
    c.attrs.decay.ld = ld;
    c.attrs.decay.a_first = 1;
    c.attrs.decay.b_first = with_b ? decays + 2 : -1;
    c.attrs.decay.x_type = (int32_t)x;
    c.attrs.decay.dtype = (int32_t)type;
    c.attrs.decay.accumulate = with_b;
    c.attrs.decay.least = with_b ? 0.0f : 0.5f;
    c.attrs.decay.factor = 2.0f;
    if (gradient) {
        const enum arg_mode mode = with_b ? INOUT : OUT;
        close_to(case_arg(&c, array_random(rows * ld, x, 4.0), rows * ld, x, INOUT), 32, 1e-6);
        close_to(case_arg(&c, array_random(heads, F32, 1.0), heads, F32, mode), 32, 1e-3);
        if (with_b)
            close_to(case_arg(&c, array_random(decays, F32, 1.0), decays, F32, mode), 32, 1e-3);
        else
            case_absent(&c);
        case_arg(&c, array_random(rows * decays, F32, 1.0), rows * decays, F32, IN);
        case_arg(&c, array_random(rows * heads, F32, 1.0), rows * heads, F32, IN);
    } else {
        close_to(case_arg(&c, array_new(rows * decays * 4), rows * decays, F32, OUT), 32, 1e-7);
        close_to(case_arg(&c, array_new(rows * heads * 4), rows * heads, F32, OUT), 32, 1e-7);
        case_arg(&c, array_random(rows * ld, x, 12.0), rows * ld, x, IN); /* softplus is the identity from 20 on */
    }
    case_arg(&c, array_random(heads, type, 1.0), heads, type, IN);
    case_arg(&c, array_random(decays, type, 1.0), decays, type, IN);
    case_run(&c);
    arrays_free();
}

static void check_constant_decay(int64_t rows, int heads)
{
    struct twin_case c;
    case_start(&c, OP_DECAY, "constant decays of %lld rows, %d heads", (long long)rows, heads);
    c.attrs.decay.rows = rows;
    c.attrs.decay.heads = heads;
    c.attrs.decay.rate = 0.75f;
    for (int i = 0; i < 2; i++)
        close_to(case_arg(&c, array_new(rows * heads * 4), rows * heads, F32, OUT), 32, 1e-7);
    for (int i = 0; i < 3; i++)
        case_absent(&c);
    case_run(&c);
    arrays_free();
}

void test_decays(void)
{
    static const int64_t rows[] = {0, 1, 33, 300};
    for (int i = 0; i < 4; i++)
        for (int gradient = 0; gradient < 2; gradient++) {
            check_decay(rows[i], 3, 0, 1, BF16, BF16, gradient);
            check_decay(rows[i], 5, 0, 0, i % 2 ? F32 : BF16, F32, gradient);
            check_decay(rows[i], 1, 0, 0, F32, BF16, gradient);
            check_decay(rows[i], 2, 7, 1, i % 2 ? F32 : BF16, BF16, gradient);
        }
    for (int i = 0; i < 4; i++)
        check_constant_decay(rows[i], 5);
}

/* --- Scans --- */

/* A way to scan: heads, key heads, columns of keys and values; whether a state enters, whether there is a skip. */
struct scan_way {
    int kind, heads, groups, key, value, enters, skips;
    float eps, decay;
    enum dtype dtype;
};

static struct op_attrs scan_attrs(const struct extent_of_rows *x, const struct scan_way *w)
{
    struct op_attrs a = {0};
    const int is_ssd = w->kind == SCAN_SSD;
    a.scan.rows = x->rows;
    a.scan.kind = w->kind;
    a.scan.heads = w->heads;
    a.scan.groups = w->groups;
    a.scan.key_dim = w->key;
    a.scan.value_dim = w->value;
    a.scan.v_first = is_ssd ? 1 : 2 * w->groups * w->key;
    a.scan.k_first = is_ssd ? 1 + w->heads * w->value : w->groups * w->key;
    a.scan.q_first = is_ssd ? 1 + w->heads * w->value + w->groups * w->key : 0;
    a.scan.ld = 2 * w->groups * w->key + w->heads * w->value + (is_ssd ? 3 : 0);
    a.scan.dtype = (int32_t)w->dtype;
    a.scan.scale = w->eps > 0 ? 1 / sqrtf((float)w->key) : 1;
    a.scan.eps = w->eps;
    return a;
}

/* Gates and rows of a scan. */
struct scan_rows {
    void *qkv;
    float *g, *beta;
    int64_t n, decays, of_heads, state, columns; /* elements of qkv, g, beta, a state, and of rows of outputs */
};

static struct scan_rows rows_of(const struct op_attrs *a, const struct extent_of_rows *x, const struct scan_way *w)
{
    const int each = w->kind == SCAN_CHANNELS ? w->heads * w->key : w->heads;
    struct scan_rows r = {.n = x->rows * a->scan.ld,
                          .decays = x->rows * each,
                          .of_heads = x->rows * w->heads,
                          .columns = x->rows * w->heads * w->value};
    r.state = (int64_t)w->heads * w->key * w->value;
    r.qkv = poisoned(array_random(r.n, w->dtype, w->eps > 0 ? 1.0 : 0.3), x, a->scan.ld, w->dtype);
    r.g = array_random(r.decays, F32, 1.0);
    r.beta = array_random(r.of_heads, F32, 1.0);
    for (int64_t i = 0; i < r.decays; i++)
        r.g[i] = -w->decay * fabsf(r.g[i]);
    for (int64_t i = 0; i < r.of_heads; i++)
        r.beta[i] = 1 / (1 + expf(-r.beta[i]));
    poisoned(r.g, x, each, F32);
    poisoned(r.beta, x, w->heads, F32);
    return r;
}

/* Tolerances: fp32's by the order of sums; bf16's by operands of products rounded to it, which the CPU twin does not round. */
static void near(struct twin_arg *a, const struct scan_way *w, double single, double half)
{
    close_to(a, 64, w->dtype == F32 ? single : half);
    a->relative += w->dtype == F32 ? 0 : 1.0 / 64;
}

static void check_scan(const struct extent_of_rows *x, const struct scan_way *w)
{
    const struct op_attrs a = scan_attrs(x, w);
    const struct scan_rows r = rows_of(&a, x, w);
    struct twin_case c;
    case_start(&c, OP_SCAN, "scan %d of %lld rows, %d heads of %d x %d, %s", w->kind, (long long)x->rows, w->heads, w->key,
               w->value, dtype_name(w->dtype));
    c.attrs = a;
    c.few = 1;
    near(case_arg(&c, array_new(r.columns * 4), r.columns, w->dtype, OUT), w, 4e-6, 4e-2);
    near(case_arg(&c, array_new(r.state * 4), r.state, F32, OUT), w, 4e-6, 4e-2);
    case_arg(&c, r.qkv, r.n, w->dtype, IN);
    case_arg(&c, r.g, r.decays, F32, IN);
    case_arg(&c, r.beta, r.of_heads, F32, IN);
    case_arg(&c, links_of(x), x->rows, I32, IN);
    arg_or_none(&c, w->enters, array_random(r.state, F32, 0.5), r.state, F32, IN);
    arg_or_none(&c, w->skips, array_random(w->heads, w->dtype, 1.0), w->heads, w->dtype, IN);
    case_work(&c);
    case_run(&c);
    arrays_free();
}

static void check_scan_grad(const struct extent_of_rows *x, const struct scan_way *w)
{
    struct op_attrs a = scan_attrs(x, w);
    const struct scan_rows r = rows_of(&a, x, w);
    struct twin_case c;
    case_start(&c, OP_SCAN_GRAD, "scan_grad %d of %lld rows, %d heads of %d x %d, %s", w->kind, (long long)x->rows, w->heads,
               w->key, w->value, dtype_name(w->dtype));
    a.scan.accumulate = w->enters;
    c.attrs = a;
    c.few = 1;
    near(case_arg(&c, r.qkv, r.n, w->dtype, INOUT), w, 2e-5, 0.1);
    near(case_arg(&c, r.g, r.decays, F32, INOUT), w, 4e-5, 0.2);
    near(case_arg(&c, r.beta, r.of_heads, F32, INOUT), w, 4e-5, 0.2);
    near(case_arg(&c, array_random(r.state, F32, 1.0), r.state, F32, INOUT), w, 1e-5, 0.1);
    arg_or_none(&c, w->skips, array_random(w->heads, F32, 1.0), w->heads, F32, w->enters ? INOUT : OUT);
    near(&c.arg[4], w, 4e-5, 0.2);
    case_arg(&c, poisoned(array_random(r.columns, w->dtype, 1.0), x, w->heads * w->value, w->dtype), r.columns, w->dtype, IN);
    case_arg(&c, links_of(x), x->rows, I32, IN);
    arg_or_none(&c, w->enters, array_random(r.state, F32, 0.5), r.state, F32, IN);
    arg_or_none(&c, w->skips, array_random(w->heads, w->dtype, 1.0), w->heads, w->dtype, IN);
    case_work(&c);
    case_run(&c);
    arrays_free();
}

void test_scans(void)
{
    static const struct scan_way ways[] = {
        {SCAN_DELTA, 2, 1, 8, 5, 1, 0, 1e-6f, 0.7f, F32},       {SCAN_SSD, 3, 1, 16, 12, 1, 1, 0, 0.3f, F32},
        {SCAN_DELTA, 2, 2, 16, 16, 0, 0, 1e-6f, 0.3f, BF16},    {SCAN_SSD, 2, 1, 8, 16, 1, 1, 0, 0.3f, BF16},
        {SCAN_DELTA, 1, 1, 4, 8, 1, 1, 0, 0.7f, F32},           {SCAN_CHANNELS, 2, 1, 8, 5, 1, 0, 1e-6f, 0.7f, F32},
        {SCAN_CHANNELS, 2, 2, 16, 16, 1, 0, 1e-6f, 0.3f, BF16},
    };
    static const struct scan_way wide[] = {{SCAN_DELTA, 1, 1, 72, 80, 1, 0, 1e-6f, 0.05f, F32},
                                           {SCAN_CHANNELS, 1, 1, 72, 80, 1, 0, 1e-6f, 0.05f, F32}};
    /* e^G and its inverse overflow */
    static const struct scan_way strong[] = {{SCAN_DELTA, 1, 1, 24, 8, 1, 0, 1e-6f, 30.0f, F32},
                                             {SCAN_CHANNELS, 1, 1, 24, 8, 1, 0, 1e-6f, 30.0f, F32}};
    enum { WAYS = sizeof ways / sizeof *ways };
    for (int x = 0; x < N_EXTENTS; x++) {
        check_scan(&EXTENTS[x], &ways[x % WAYS]);
        check_scan_grad(&EXTENTS[x], &ways[x % WAYS]);
    }
    for (int k = 1; k < WAYS; k++) {
        check_scan(&EXTENTS[7], &ways[k]);
        check_scan_grad(&EXTENTS[7], &ways[k]);
    }
    for (int k = 0; k < 2; k++) {
        check_scan(&EXTENTS[6], &wide[k]);
        check_scan_grad(&EXTENTS[8], &wide[k]); /* the state passes both chunks' borders */
        check_scan(&EXTENTS[7], &strong[k]);
        check_scan_grad(&EXTENTS[7], &strong[k]);
    }
}

/* --- Between ranks --- */

static void check_sum(const struct extent_of_rows *x, const struct scan_way *w)
{
    struct op_attrs a = scan_attrs(x, w);
    const struct scan_rows r = rows_of(&a, x, w);
    const int64_t move = (int64_t)w->heads * w->key * w->key;
    struct twin_case c;
    case_start(&c, OP_SCAN_SUM, "scan_sum %d of %lld rows, %d heads of %d x %d, %s", w->kind, (long long)x->rows, w->heads,
               w->key, w->value, dtype_name(w->dtype));
    a.scan.accumulate = w->enters;
    c.attrs = a;
    c.few = 1;
    near(case_arg(&c, array_random(move, F32, 0.5), move, F32, w->enters ? INOUT : OUT), w, 4e-6, 4e-2);
    near(case_arg(&c, array_random(r.state, F32, 0.5), r.state, F32, w->enters ? INOUT : OUT), w, 4e-6, 4e-2);
    case_arg(&c, r.qkv, r.n, w->dtype, IN);
    case_arg(&c, r.g, r.decays, F32, IN);
    case_arg(&c, r.beta, r.of_heads, F32, IN);
    case_arg(&c, links_of(x), x->rows, I32, IN);
    case_work(&c);
    case_run(&c);
    arrays_free();
}

static void check_grad_sum(const struct extent_of_rows *x, const struct scan_way *w)
{
    struct op_attrs a = scan_attrs(x, w);
    const struct scan_rows r = rows_of(&a, x, w);
    struct twin_case c;
    case_start(&c, OP_SCAN_GRAD_SUM, "scan_grad_sum %d of %lld rows, %d heads of %d x %d, %s", w->kind, (long long)x->rows,
               w->heads, w->key, w->value, dtype_name(w->dtype));
    c.attrs = a;
    c.few = 1;
    near(case_arg(&c, array_random(r.state, F32, 1.0), r.state, F32, INOUT), w, 1e-5, 0.1);
    case_arg(&c, r.qkv, r.n, w->dtype, IN);
    case_arg(&c, r.g, r.decays, F32, IN);
    case_arg(&c, r.beta, r.of_heads, F32, IN);
    case_arg(&c, poisoned(array_random(r.columns, w->dtype, 1.0), x, w->heads * w->value, w->dtype), r.columns, w->dtype, IN);
    case_arg(&c, links_of(x), x->rows, I32, IN);
    case_work(&c);
    case_run(&c);
    arrays_free();
}

/* Pieces in an order that is not that of memory. Document: a piece in which one begins, so that nothing passes it. */
static void check_fold(int pieces, int heads, int key, int value, int document, int transposed)
{
    const int64_t moves = (int64_t)pieces * heads * key * key, states = (int64_t)pieces * heads * key * value;
    float *move = array_random(moves, F32, 1 / sqrt(key));
    int32_t *order = array_new(pieces * 4);
    struct twin_case c;
    case_start(&c, OP_SCAN_FOLD, "scan_fold of %d pieces, %d heads of %d x %d%s", pieces, heads, key, value,
               transposed ? ", transposed" : "");
    c.attrs.fold.pieces = pieces;
    c.attrs.fold.heads = heads;
    c.attrs.fold.key_dim = key;
    c.attrs.fold.value_dim = value;
    c.attrs.fold.transposed = transposed;
    for (int i = 0; i < pieces; i++)
        order[i] = (i % 2 ? pieces - 1 : 0) + (i % 2 ? -i / 2 : i / 2);
    if (document < pieces)
        memset(move + (int64_t)document * heads * key * key, 0, (size_t)(heads * key * key) * sizeof *move);
    close_to(case_arg(&c, array_new(states * 4), states, F32, OUT), 64, 4e-6); /* sums of `key` products, fused on GPUs */
    case_arg(&c, move, moves, F32, IN);
    case_arg(&c, array_random(states, F32, 1.0), states, F32, IN);
    case_arg(&c, order, pieces, I32, IN);
    case_run(&c);
    arrays_free();
}

/* Shapes that no kernel takes are refused, and nothing is launched. */
static void check_refusals(void)
{
    static op_kernel *const kernels[] = {ops_cuda_scan, ops_cuda_scan_grad, ops_cuda_scan_sum, ops_cuda_scan_grad_sum};
    void *arg[OP_MAX_ARGS] = {0};
    for (int wrong = 0; wrong < 3; wrong++) {
        struct op_attrs a = {0};
        a.scan.rows = 1;
        a.scan.heads = a.scan.groups = 1;
        a.scan.key_dim = wrong == 0 ? CUDA_SCAN_DIM + 1 : 8;
        a.scan.value_dim = wrong == 1 ? 0 : 8;
        a.scan.kind = wrong == 2 ? SCAN_CHANNELS + 1 : SCAN_DELTA;
        for (int k = 0; k < 4; k++)
            if (kernels[k](&a, arg, NULL) != ERR_INVALID)
                fail("shape %d is taken by kernel %d", wrong, k);
        a = (struct op_attrs){0};
        a.fold.pieces = wrong == 2 ? -1 : 2;
        a.fold.heads = 1;
        a.fold.key_dim = wrong == 0 ? CUDA_SCAN_DIM + 1 : 8;
        a.fold.value_dim = wrong == 1 ? 0 : 8;
        if (ops_cuda_scan_fold(&a, arg, NULL) != ERR_INVALID)
            fail("shape %d is taken by scan_fold", wrong);
    }
}

void test_summaries(void)
{
    static const struct scan_way ways[] = {{SCAN_DELTA, 2, 1, 8, 5, 1, 0, 1e-6f, 0.7f, F32},
                                           {SCAN_SSD, 3, 1, 16, 12, 0, 0, 0, 0.3f, F32},
                                           {SCAN_DELTA, 2, 2, 16, 40, 0, 0, 1e-6f, 0.3f, BF16},
                                           {SCAN_SSD, 2, 1, 40, 16, 1, 0, 0, 0.3f, BF16},
                                           {SCAN_CHANNELS, 2, 2, 12, 5, 1, 0, 1e-6f, 0.7f, F32}};
    static const struct scan_way wide = {SCAN_DELTA, 1, 1, 72, 36, 1, 0, 1e-6f, 0.05f, F32};
    enum { WAYS = sizeof ways / sizeof *ways };
    for (int x = 0; x < N_EXTENTS; x++) {
        check_sum(&EXTENTS[x], &ways[x % WAYS]);
        check_grad_sum(&EXTENTS[x], &ways[(x + 1) % WAYS]);
    }
    for (int k = 0; k < WAYS; k++) {
        check_sum(&EXTENTS[8], &ways[k]); /* no document begins: `move` is not zero */
        check_grad_sum(&EXTENTS[7], &ways[k]);
    }
    check_sum(&EXTENTS[8], &wide);
    check_grad_sum(&EXTENTS[8], &wide);
    for (int transposed = 0; transposed < 2; transposed++) {
        check_fold(0, 1, 8, 8, 0, transposed);
        check_fold(1, 2, 8, 5, 0, transposed);
        check_fold(2, 1, 4, 9, 2, transposed);
        check_fold(5, 3, 20, 12, 2, transposed);
        check_fold(9, 1, 72, 17, 9, transposed);
        check_fold(3, 1, 130, 8, 3, transposed);
    }
    check_refusals();
}
