/* Tests products of experts and their gradients. */
#include "ops_harness.h"

enum { MOST = 16 }; /* experts */

/* Rows of each expert, ended by -1: none, one, around a tile, all to one, one each, more steps of k than stages. */
static const int64_t EXTENTS[][MOST + 1] = {
    {0, -1}, {1, -1}, {127, 0, 128, 1, 129, 5, -1}, {0, 0, 261, 0, -1}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1}};
enum { N_EXTENTS = sizeof EXTENTS / sizeof *EXTENTS };

struct split {
    int64_t rows;
    int experts;
    int32_t *offsets, *order;
};

/* Makes offsets for the given rows of each expert, and a permutation of all rows as their order. Two rows at the end are no expert's. */
static struct split split_of(const int64_t *extents)
{
    struct split s = {.offsets = array_new((MOST + 1) * 4)};
    s.offsets[0] = 0;
    for (; extents[s.experts] >= 0; s.experts++)
        s.offsets[s.experts + 1] = s.offsets[s.experts] + (int32_t)extents[s.experts];
    s.rows = round_up(s.offsets[s.experts] + 2, 2);
    s.order = array_new(s.rows * 4);
    for (int64_t i = 0; i < s.rows; i++)
        s.order[i] = (int32_t)((i * 7919 + 3) % s.rows);
    return s;
}

/* A way to make a product. types: x and w, or dy and x: 0: both bf16; 1: the first fp32; 2: the second. */
struct way {
    int types, y_type, transposed, gathered, result, biased, part;
};

/* Makes random numbers that bf16 holds exactly, since fp32 operands are rounded to it. */
static void *rounded(int64_t n, enum dtype t)
{
    void *x = array_random(n, t, 1.0);
    for (int64_t i = 0; i < n && t == F32; i++)
        ((float *)x)[i] = bf16_to_float(bf16_from_float(((float *)x)[i]));
    return x;
}

static void set_experts(struct twin_case *c, const struct split *s, const struct way *w, int64_t in, int64_t out)
{
    c->attrs.experts.rows = s->rows;
    c->attrs.experts.in = in;
    c->attrs.experts.out = out;
    c->attrs.experts.experts = s->experts;
    c->attrs.experts.first = w->part ? s->experts / 2 : 0;
    c->attrs.experts.count = s->experts - c->attrs.experts.first;
    c->attrs.experts.per = 2;
    c->attrs.experts.transposed = w->transposed;
    c->attrs.experts.result = w->result;
}

/* Sums of n products of both signs differ by the order of their addition, and by how tensor cores round. */
static double sum_error(int64_t n)
{
    return 2e-6 * sqrt((double)n) + 1e-7 * (double)n;
}

static void check_product(const int64_t *extents, const struct way *w, int64_t in, int64_t out)
{
    struct twin_case c;
    const struct split s = split_of(extents);
    const enum dtype x = w->types == 1 ? F32 : BF16, m = w->types == 2 ? F32 : BF16, y = w->y_type ? BF16 : F32;
    case_start(&c, OP_EXPERTS, "experts %d, %lld rows, %lld x %lld, %s x %s, to %s %d, transposed %d gathered %d", s.experts,
               (long long)s.rows, (long long)out, (long long)in, dtype_name(x), dtype_name(m), dtype_name(y), w->result,
               w->transposed, w->gathered);
    set_experts(&c, &s, w, in, out);
    c.attrs.experts.x_type = (int32_t)x;
    c.attrs.experts.w_type = (int32_t)m;
    c.attrs.experts.y_type = (int32_t)y;
    const int64_t x_rows = w->gathered ? s.rows / 2 : s.rows, count = c.attrs.experts.count;
    close_to(case_arg(&c, array_random(s.rows * out, y, 1.0), s.rows * out, y, INOUT), 16,
             sum_error(in)); /* rows of nobody stay */
    case_arg(&c, rounded(x_rows * in, x), x_rows * in, x, IN);
    case_arg(&c, rounded(count * in * out, m), count * in * out, m, IN);
    case_arg(&c, s.offsets, s.experts + 1, I32, IN);
    if (w->gathered)
        case_arg(&c, s.order, s.rows, I32, IN);
    else
        case_absent(&c);
    if (w->biased && !(y == BF16 && m == F32)) /* the CPU adds no fp32 bias to bf16 */
        case_arg(&c, array_random(count * out, m, 1.0), count * out, m, IN);
    else
        case_absent(&c);
    case_work(&c);
    if (y == BF16) { /* the CPU rounds before it adds the bias */
        c.arg[0].relative *= 2;
        c.arg[0].absolute += 1.0 / 64;
    }
    case_run(&c);
    arrays_free();
}

/* gathered: 1: x; 2: dy, with weights of pairs in the biases' gradient. */
static void check_gradient(const int64_t *extents, const struct way *w, int64_t in, int64_t out)
{
    struct twin_case c;
    const struct split s = split_of(extents);
    const enum dtype y = w->types == 1 ? F32 : BF16, x = w->types == 2 ? F32 : BF16;
    const enum arg_mode mode = w->result == GEMM_ADDS ? INOUT : OUT;
    case_start(&c, OP_EXPERTS_GRAD, "experts_grad %d, %lld rows, %lld x %lld, %s x %s, %d, transposed %d gathered %d bias %d",
               s.experts, (long long)s.rows, (long long)out, (long long)in, dtype_name(y), dtype_name(x), w->result,
               w->transposed, w->gathered, w->biased);
    set_experts(&c, &s, w, in, out);
    c.attrs.experts.x_type = (int32_t)x;
    c.attrs.experts.y_type = (int32_t)y;
    c.attrs.experts.gathers = w->gathered == 2 ? GATHERS_DY : GATHERS_X;
    const int64_t count = c.attrs.experts.count, dy_rows = w->gathered == 2 ? s.rows / 2 : s.rows;
    const int64_t x_rows = w->gathered == 1 ? s.rows / 2 : s.rows;
    if (w->biased && w->gathered == 1) /* only the biases are trained */
        case_absent(&c);
    else
        close_to(case_arg(&c, array_random(count * in * out, F32, 1.0), count * in * out, F32, mode), 16, sum_error(300));
    case_arg(&c, rounded(dy_rows * out, y), dy_rows * out, y, IN);
    case_arg(&c, rounded(x_rows * in, x), x_rows * in, x, IN);
    case_arg(&c, s.offsets, s.experts + 1, I32, IN);
    if (w->gathered)
        case_arg(&c, s.order, s.rows, I32, IN);
    else
        case_absent(&c);
    if (w->biased)
        close_to(case_arg(&c, array_random(count * out, F32, 1.0), count * out, F32, mode), 4, 1e-6);
    else
        case_absent(&c);
    if (w->biased && w->gathered == 2)
        case_arg(&c, array_random(s.rows, F32, 1.0), s.rows, F32, IN);
    else
        case_absent(&c);
    case_work(&c);
    case_run(&c);
    arrays_free();
}

static enum status call_cuda(void *const *arg, void *stream, void *context)
{
    const struct twin_case *c = context;
    op_kernel *table[OP_COUNT] = {0};
    ops_cuda_kernels(table);
    return table[c->kind](&c->attrs, arg, stream);
}

/* Offsets that do not ascend make everything NaN, a row that does not exist its own row or its expert's gradient; nothing is read or
 * written beyond the arguments. which: 0: offsets; 1: a gathered row. */
static void check_bad(int which, int gradient)
{
    enum { IN_ = 40, OUT_ = 136 };
    struct twin_case c;
    const struct split s = split_of((const int64_t[]){3, 130, 2, -1});
    const struct way w = {.transposed = 1, .gathered = 1};
    const int64_t n = gradient ? s.experts * IN_ * OUT_ : s.rows * OUT_;
    int32_t *offsets = array_new(4 * 4), *order = array_new(s.rows * 4);
    memcpy(offsets, s.offsets, 4 * 4);
    memcpy(order, s.order, (size_t)s.rows * 4);
    float *x = array_random(s.rows / 2 * IN_, BF16, 1.0), *m = array_random(s.rows * OUT_ * IN_, BF16, 1.0),
          *want = array_new(n * 4);
    case_start(&c, gradient ? OP_EXPERTS_GRAD : OP_EXPERTS, "%s that do not exist", which ? "gathered rows" : "offsets");
    set_experts(&c, &s, &w, IN_, OUT_);
    c.attrs.experts.x_type = c.attrs.experts.w_type = BF16;
    c.attrs.experts.y_type = gradient ? BF16 : F32;
    case_arg(&c, array_new(n * 4), n, F32, OUT)->compare = CLOSE;
    c.arg[0].absolute = 1e9; /* numbers may differ; NaN must be where NaN is wanted */
    if (gradient)
        case_arg(&c, m, s.rows * OUT_, BF16, IN);
    case_arg(&c, x, s.rows / 2 * IN_, BF16, IN);
    if (!gradient)
        case_arg(&c, m, s.experts * IN_ * OUT_, BF16, IN);
    case_arg(&c, offsets, 4, I32, IN);
    case_arg(&c, order, s.rows, I32, IN);
    for (int i = 0; i < (gradient ? 3 : 2); i++)
        case_absent(&c);
    for (int64_t i = 0; i < n; i++) /* rows of nobody keep the poison, which is NaN */
        want[i] = which == 0 || (gradient ? i / (IN_ * OUT_) == 1 : i / OUT_ == 100 || i / OUT_ >= s.offsets[3]) ? NAN : 0.0f;
    if (which == 0)
        offsets[1] = (int32_t)s.rows + 500;
    else
        order[100] = (int32_t)s.rows;
    case_run_call(&c, call_cuda, &c, 0, want);
    arrays_free();
}

void test_experts(void)
{
    static const int64_t sizes[][2] = {{168, 136}, {37, 45}, {40, 24}, {8, 264}};
    for (int x = 0; x < N_EXTENTS; x++)
        for (int i = 0; i < 3; i++) {
            const int64_t *size = sizes[(x + i) % 4];
            const struct way w = {.types = (x + i * 2) % 3,
                                  .y_type = (x + i) & 1,
                                  .transposed = (x + i / 2) & 1,
                                  .gathered = i & 1,
                                  .result = (x + i) % 3,
                                  .biased = i % 3 == 0,
                                  .part = i == 1};
            check_product(EXTENTS[x], &w, size[0], size[1]);
            const struct way v = {.types = (x + i) % 3,
                                  .transposed = (x + i / 2) & 1,
                                  .gathered = (x + i) % 3,
                                  .result = i & 1 ? GEMM_ADDS : GEMM_WRITES,
                                  .biased = i != 1,
                                  .part = i == 2};
            check_gradient(EXTENTS[x], &v, size[0], size[1]);
        }
    /* sums added to pairs of bf16 */
    check_product(EXTENTS[1], &(struct way){.y_type = 1, .result = GEMM_ADDS}, 40, 24);
    for (int which = 0; which < 4; which++)
        check_bad(which & 1, which >> 1);
}
