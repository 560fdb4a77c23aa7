/* Tests element-wise kernels: additions, activations, rotary embedding. */
#include "ops_harness.h"

/* Sizes around those of a thread (8 bf16 or 4 fp32 elements) and of a block of 256 threads (2048 or 1024 elements). */
static const int64_t SIZES[] = {1, 3, 7, 8, 9, 1023, 1024, 1025, 2047, 2048, 2049, 9001};
enum { SIZE_COUNT = sizeof SIZES / sizeof *SIZES };

static void check_add(int64_t rows, int64_t dim, enum dtype t, int bias, int in_place, float scale)
{
    struct twin_case c;
    case_start(&c, OP_ADD, "add %lld x %lld %s bias %d in place %d scale %g", (long long)rows, (long long)dim, dtype_name(t),
               bias, in_place, (double)scale);
    c.attrs.add.rows = rows;
    c.attrs.add.dim = dim;
    c.attrs.add.dtype = t;
    c.attrs.add.scale = scale;
    void *x = array_random(rows * dim, t, 1.0);
    case_arg(&c, in_place ? x : array_new(rows * dim * dtype_size(t)), rows * dim, t, in_place ? INOUT : OUT);
    case_arg(&c, x, rows * dim, t, IN);
    case_arg(&c, array_random(rows * dim, F32, 1.0), rows * dim, F32, IN);
    if (bias)
        case_arg(&c, array_random(dim, t, 1.0), dim, t, IN);
    else
        case_absent(&c);
    case_run(&c);
    arrays_free();
}

/* Checks the bias addition; gap: number of elements between the end of one row of y and the start of the next. */
static void check_bias(int64_t rows, int64_t dim, int64_t gap, enum dtype t, enum dtype of_bias)
{
    struct twin_case c;
    const int64_t all = rows * (dim + gap);
    case_start(&c, OP_BIAS, "bias %lld x %lld and %lld %s of %s", (long long)rows, (long long)dim, (long long)gap, dtype_name(t),
               dtype_name(of_bias));
    c.attrs.bias.rows = rows;
    c.attrs.bias.dim = dim;
    c.attrs.bias.dtype = of_bias;
    c.attrs.bias.y_type = t;
    c.attrs.bias.ld = gap > 0 ? dim + gap : 0;
    case_arg(&c, array_random(all, t, 1.0), all, t, INOUT);
    case_arg(&c, array_random(dim, of_bias, 1.0), dim, of_bias, IN);
    case_run(&c);
    arrays_free();
}

static void check_accum(int64_t n)
{
    struct twin_case c;
    case_start(&c, OP_ACCUM, "accum %lld", (long long)n);
    c.attrs.vec.n = n;
    case_arg(&c, array_random(n, F32, 1.0), n, F32, INOUT);
    case_arg(&c, array_random(n, F32, 1.0), n, F32, IN);
    case_run(&c);
    arrays_free();
}

/* Makes arguments of activations with critical values among them: near both infinities, zeros, a NaN. */
static void *activations(int64_t n, enum dtype t)
{
    static const float odd[] = {0.0f, -0.0f, 100.0f, -100.0f, 3e38f, -3e38f, NAN};
    void *x = array_random(n, t, 4.0);
    for (int64_t i = 0; n > 20 && i < 7; i++) {
        if (t == F32)
            ((float *)x)[2 * i + 1] = odd[i];
        else
            ((bf16 *)x)[2 * i + 1] = bf16_from_float(odd[i]);
    }
    return x;
}

static void set_act(struct twin_case *c, int64_t n, enum dtype t, int kind)
{
    c->attrs.act.rows = 1;
    c->attrs.act.dim = n;
    c->attrs.act.dtype = t;
    c->attrs.act.kind = kind;
    if (c->kind == OP_SWIGLU || c->kind == OP_SWIGLU_GRAD) { /* a limit that half of the elements exceed */
        c->attrs.act.limit = 0.7f;
        c->attrs.act.alpha = 1.702f;
    }
}

/* Error of an activation: exp and division contribute 2 units each, in the kernel and in its CPU twin, and the products around
 * them more; the error of sigmoid grows with |x| as x * log2(e) is rounded. The gradients subtract terms of size |x|. */
enum { ACT_ULPS = 16 };

static void check_swiglu(int64_t n, enum dtype t, int kind)
{
    struct twin_case c;
    case_start(&c, OP_SWIGLU, "swiglu %lld %s kind %d", (long long)n, dtype_name(t), kind);
    set_act(&c, n, t, kind);
    void *gate = activations(n, t), *up = array_random(n, t, 1.0), *dy = array_random(n, t, 1.0);
    /* gates with gelu have the errors of check_gelu, times normal random numbers below 6 */
    const double tail = kind == GATE_SILU ? 1e-37 : 12e-7, slopes = kind == GATE_SILU ? 1e-5 : 6e-5;
    close_to(case_arg(&c, array_new(n * dtype_size(t)), n, t, OUT), ACT_ULPS, tail);
    case_arg(&c, gate, n, t, IN);
    case_arg(&c, up, n, t, IN);
    case_absent(&c);
    case_run(&c);
    case_start(&c, OP_SWIGLU_GRAD, "swiglu_grad %lld %s kind %d", (long long)n, dtype_name(t), kind);
    set_act(&c, n, t, kind);
    close_to(case_arg(&c, gate, n, t, INOUT), ACT_ULPS, slopes);
    close_to(case_arg(&c, up, n, t, INOUT), ACT_ULPS, tail);
    close_to(case_arg(&c, dy, n, t, INOUT), ACT_ULPS, tail);
    case_absent(&c);
    case_run(&c);
    arrays_free();
}

/* Rows with weights. The CPU rounds bf16 once more, before it multiplies by the weight. */
static void check_weighed(int64_t rows, int64_t dim, enum dtype t, int kind)
{
    struct twin_case c;
    const int64_t n = rows * dim;
    void *data[] = {array_random(n, t, 1.5), array_random(n, t, 1.0), array_random(n, t, 1.0)};
    float *scalar = array_random(rows, F32, 1.0);
    for (int backward = 0; backward < 2; backward++) {
        case_start(&c, backward ? OP_SWIGLU_GRAD : OP_SWIGLU, "weighed %lld x %lld %s kind %d, backward %d", (long long)rows,
                   (long long)dim, dtype_name(t), kind, backward);
        set_act(&c, dim, t, kind);
        c.attrs.act.rows = rows;
        if (!backward)
            close_to(case_arg(&c, array_new(n * dtype_size(t)), n, t, OUT), 2 * ACT_ULPS, 12e-7);
        for (int i = 0; i < 2 + backward; i++)
            close_to(case_arg(&c, data[i], n, t, backward ? INOUT : IN), 2 * ACT_ULPS, 6e-5);
        for (int i = 0; i < 3; i++)
            c.arg[i].relative += t == BF16 ? 1.0 / 128 : 0;
        close_to(case_arg(&c, scalar, rows, F32, backward ? INOUT : IN), 2 * ACT_ULPS, 2e-5 + 1e-6 * (double)dim);
        case_run(&c);
    }
    arrays_free();
}

static void check_gelu(int64_t n, enum dtype t, int kind)
{
    struct twin_case c;
    case_start(&c, OP_GELU, "gelu %lld %s kind %d", (long long)n, dtype_name(t), kind);
    set_act(&c, n, t, kind);
    void *x = activations(n, t), *dy = array_random(n, t, 1.0);
    /* gelu.h allows the twin an error of 1e-7 + 2e-7 |y|; the kernel has the same */
    close_to(case_arg(&c, array_new(n * dtype_size(t)), n, t, OUT), ACT_ULPS, 2e-7);
    case_arg(&c, x, n, t, IN);
    case_run(&c);
    case_start(&c, OP_GELU_GRAD, "gelu_grad %lld %s kind %d", (long long)n, dtype_name(t), kind);
    set_act(&c, n, t, kind);
    /* 1 - tanh^2 cancels where its factor (of order x^3) is large: an error of 1e-5 at most */
    close_to(case_arg(&c, x, n, t, INOUT), ACT_ULPS, 1e-5);
    close_to(case_arg(&c, dy, n, t, INOUT), ACT_ULPS, 2e-7);
    case_run(&c);
    arrays_free();
}

void test_elements(void)
{
    static const int64_t shapes[][2] = {{1, 1}, {3, 7}, {300, 8}, {17, 256}, {2, 2047}, {3, 2048}, {2, 2049}, {2, 4104}};
    for (int t = F32; t <= BF16; t++) {
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            check_add(shapes[s][0], shapes[s][1], (enum dtype)t, 1, s % 2 != 0, s % 3 == 2 ? 0.3f : 0.0f);
            check_bias(shapes[s][0], shapes[s][1], 0, (enum dtype)t, (enum dtype)t);
            check_bias(shapes[s][0], shapes[s][1], 1 + (int64_t)(s % 2) * 7, F32, (enum dtype)t); /* logits */
        }
        check_weighed(9, 40, (enum dtype)t, GATE_SILU);
        check_weighed(33, 7, (enum dtype)t, GATE_GELU_TANH);
        check_weighed(2, 520, (enum dtype)t, GATE_CLAMPED);
        for (int s = 0; s < SIZE_COUNT; s++) {
            check_add(1, SIZES[s], (enum dtype)t, 0, s % 2 != 0, s % 3 == 2 ? 0.3f : 0.0f);
            check_swiglu(SIZES[s], (enum dtype)t, GATE_SILU);
            if (s % 3 == 2)
                check_swiglu(SIZES[s], (enum dtype)t, s % 2 ? GATE_GELU_TANH : GATE_GELU_ERF);
            if (s % 3 == 1)
                check_swiglu(SIZES[s], (enum dtype)t, GATE_CLAMPED);
            check_swiglu(SIZES[s], (enum dtype)t, GATE_SIGMOID);
            check_gelu(SIZES[s], (enum dtype)t, s % 3 == 0 ? GELU_ERF : GELU_TANH);
            if (s % 3 == 1)
                check_gelu(SIZES[s], (enum dtype)t, RELU_SQUARED);
            if (s % 3 == 2)
                check_gelu(SIZES[s], (enum dtype)t, RELU);
        }
        check_gelu(4097, (enum dtype)t, GELU_ERF);
    }
    for (int s = 0; s < SIZE_COUNT; s++)
        check_accum(SIZES[s]);
}

/* Rotates `rotated` elements of a head (0: all), from `first` on, in pairs of neighbours if `interleaved`, else of elements half a head
 * apart, and multiplies by `factor` (0: 1), which grows by `slope` every 8192 positions. */
struct rotation {
    int rotated, interleaved;
    float factor, slope;
    int first;
};

static void check_rotation(int64_t rows, int heads, int head_dim, enum dtype t, int inverse, struct rotation r)
{
    struct twin_case c;
    case_start(&c, OP_ROPE, "rope %lld x %d x %d %s inverse %d, %d rotated, interleaved %d, factor %g", (long long)rows, heads,
               head_dim, dtype_name(t), inverse, r.rotated, r.interleaved, (double)r.factor);
    c.attrs.rope.rotated = r.rotated;
    c.attrs.rope.interleaved = r.interleaved;
    c.attrs.rope.first = r.first;
    c.attrs.rope.factor = r.factor;
    c.attrs.rope.slope = r.slope;
    c.attrs.rope.period = r.slope != 0.0f ? 8192 : 0;
    c.attrs.rope.rows = rows;
    c.attrs.rope.heads = heads;
    c.attrs.rope.head_dim = head_dim;
    c.attrs.rope.x_type = t;
    c.attrs.rope.inverse = inverse;
    int64_t n = rows * heads * head_dim;
    int32_t *positions = array_indices(rows, 0, 1 << 23);
    const int half = (r.rotated ? r.rotated : head_dim) / 2;
    float *inv_freq = array_new(half * 4);
    positions[0] = 2147483647;
    for (int j = 0; j < half; j++)
        inv_freq[j] = (float)pow(10000.0, -1.0 * j / half);
    /* The rotation of a pair of normal numbers has a rounding error in proportion to the larger element (below 6), however much
     * cancels. An angle computed with fused operations differs in the last bit of fp64, so sine and cosine differ in their last
     * bit at most. */
    close_to(case_arg(&c, array_random(n, t, 1.0), n, t, INOUT), 4, 1.5e-6);
    case_arg(&c, positions, rows, I32, IN);
    case_arg(&c, inv_freq, half, F32, IN);
    case_run(&c);
    arrays_free();
}

static void check_rope(int64_t rows, int heads, int head_dim, enum dtype t, int inverse)
{
    check_rotation(rows, heads, head_dim, t, inverse, (struct rotation){0});
}

void test_rope(void)
{
    for (int t = F32; t <= BF16; t++) {
        check_rope(1, 1, 2, (enum dtype)t, 0);
        check_rope(3, 2, 6, (enum dtype)t, 1);
        check_rope(5, 3, 64, (enum dtype)t, 0);
        check_rope(33, 2, 80, (enum dtype)t, 1);
        check_rope(9, 5, 128, (enum dtype)t, 1);
        check_rope(130, 1, 16, (enum dtype)t, 0);
        check_rope(2, 1, 600, (enum dtype)t, 0);
        check_rope(2, 1, 2048, (enum dtype)t, 1);
        check_rotation(5, 3, 64, (enum dtype)t, 0, (struct rotation){.factor = 1.2f});
        check_rotation(9, 2, 64, (enum dtype)t, 1, (struct rotation){.rotated = 32});
        check_rotation(9, 2, 32, (enum dtype)t, 0, (struct rotation){.factor = 0.9f, .slope = 0.1f});
        check_rotation(3, 2, 12, (enum dtype)t, 0, (struct rotation){.rotated = 6, .factor = 1.2f}); /* no whole vectors */
        check_rotation(7, 3, 64, (enum dtype)t, 1, (struct rotation){.interleaved = 1});
        check_rotation(5, 3, 48, (enum dtype)t, 0, (struct rotation){.rotated = 24, .interleaved = 1});
        check_rotation(3, 2, 10, (enum dtype)t, 1, (struct rotation){.rotated = 6, .interleaved = 1, .factor = 0.8f});
        check_rotation(5, 2, 192, (enum dtype)t, 0, (struct rotation){.rotated = 64, .interleaved = 1, .first = 128});
        check_rotation(5, 2, 20, (enum dtype)t, 1, (struct rotation){.rotated = 8, .first = 11});
    }
}
