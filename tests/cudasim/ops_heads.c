/* Tests attention's ops by row and head: delta, merging attention over two sets of keys, sinks, copies of some heads' columns, heads
 * that share a part. */
#include "ops_harness.h"

/* Rows, heads and head dimension: rows x heads around the number per block (8 to 256); head dimensions around a warp's 256 bf16
 * or 128 fp32 elements. */
static const int64_t SHAPES[][3] = {{1, 1, 1},   {5, 3, 8},  {2, 1, 15},  {33, 2, 64},  {7, 5, 40},  {17, 3, 128},
                                    {3, 3, 256}, {65, 4, 4}, {2, 2, 257}, {3, 1, 1032}, {130, 2, 16}};
enum { N_SHAPES = sizeof SHAPES / sizeof *SHAPES };

static void set_heads(struct twin_case *c, const int64_t *shape, enum dtype t)
{
    c->attrs.heads.rows = shape[0];
    c->attrs.heads.heads = (int32_t)shape[1];
    c->attrs.heads.head_dim = (int32_t)shape[2];
    c->attrs.heads.dtype = (int32_t)t;
}

static void check_delta(const int64_t *shape, enum dtype t)
{
    struct twin_case c;
    const int64_t heads = shape[0] * shape[1], n = heads * shape[2];
    case_start(&c, OP_ATTN_DELTA, "attn_delta %lld x %lld x %lld %s", (long long)shape[0], (long long)shape[1],
               (long long)shape[2], dtype_name(t));
    set_heads(&c, shape, t);
    /* Both sides sum d products of normal numbers, in different orders: each addition rounds a partial sum, of size sqrt(d), by
     * 2^-24; the twin's longest chain has d / 16 additions and the kernel's d / 32 + 5, with errors of random signs. */
    const double d = (double)shape[2];
    close_to(case_arg(&c, array_new(heads * 4), heads, F32, OUT), 2, 8 * sqrt(d) * sqrt(d / 16 + 6) / 16777216);
    case_arg(&c, array_random(n, t, 1.0), n, t, IN);
    case_arg(&c, array_random(n, t, 1.0), n, t, IN);
    case_run(&c);
    arrays_free();
}

/* Contents of (row, head) number i: both sums; an empty new part (its o is NaN, since it must not be read); an empty old sum
 * (likewise); none of them. */
enum { BOTH, PART_EMPTY, OLD_EMPTY, NONE, NOT_A_NUMBER };

static int emptiness(int64_t i)
{
    static const int kinds[] = {BOTH, PART_EMPTY, BOTH, OLD_EMPTY, BOTH, NONE, BOTH, NOT_A_NUMBER};
    return kinds[i * 5 % 8];
}

static void set_row(float *o, int64_t i, int64_t d, float x)
{
    for (int64_t j = i * d; j < (i + 1) * d; j++)
        o[j] = x;
}

static void check_merge(const int64_t *shape)
{
    struct twin_case c;
    const int64_t rows = shape[0], heads = shape[1], d = shape[2], n = rows * heads * d;
    case_start(&c, OP_ATTN_MERGE, "attn_merge %lld x %lld x %lld", (long long)rows, (long long)heads, (long long)d);
    set_heads(&c, shape, F32);
    float *o = array_random(n, F32, 1.0), *lse = array_random(rows * heads, F32, 3.0);
    float *part = array_random(n, F32, 1.0), *lse_part = array_random(rows * heads, F32, 3.0);
    for (int64_t i = 0; i < rows * heads; i++) {
        const int64_t at = i % heads * rows + i / heads;
        const int kind = emptiness(i);
        if (kind == PART_EMPTY || kind == NONE)
            lse_part[at] = -INFINITY;
        if (kind == PART_EMPTY)
            set_row(part, i, d, NAN);
        if (kind == OLD_EMPTY || kind == NONE)
            lse[at] = -INFINITY;
        if (kind == OLD_EMPTY)
            set_row(o, i, d, NAN);
        if (kind == NOT_A_NUMBER)
            lse[at] = NAN;
        if (i % 3 == 0 && kind == BOTH)
            lse_part[at] += i % 2 ? 200.0f : -200.0f; /* exp underflows */
    }
    /* exp and log1p contribute 2 units each on both sides, then the rounding of the argument (below 16, so 16 units of exp, whose
     * weight is then tiny; at most 0.3 of a unit of 1 in all), and the products around them; terms are normal numbers below 6 and
     * may cancel. */
    close_to(case_arg(&c, o, n, F32, INOUT), 8, 3e-6);
    close_to(case_arg(&c, lse, rows * heads, F32, INOUT), 4, 5e-7);
    case_arg(&c, part, n, F32, IN);
    case_arg(&c, lse_part, rows * heads, F32, IN);
    case_run(&c);
    arrays_free();
}

/* Sets attributes for a rank that is member 1 of its group and has all heads of its share but the first. */
static void set_sink(struct twin_case *c, const int64_t *shape, enum dtype t)
{
    c->attrs.sink.rows = shape[0];
    c->attrs.sink.heads = (int32_t)shape[1];
    c->attrs.sink.head_dim = (int32_t)shape[2];
    c->attrs.sink.dtype = (int32_t)t;
    c->attrs.sink.first = 1;
    c->attrs.sink.share = (int32_t)shape[1] + 1;
    c->attrs.sink.group = 1;
}

static void case_record(struct twin_case *c)
{
    static struct step_record record = {.member = {4, 1, 2}};
    case_arg(c, &record, sizeof record / 4, F32, IN);
}

static void check_sink(const int64_t *shape, enum dtype t)
{
    struct twin_case c;
    const int64_t rows = shape[0], heads = shape[1], d = shape[2], n = rows * heads * d;
    case_start(&c, OP_ATTN_SINK, "attn_sink %lld x %lld x %lld %s", (long long)rows, (long long)heads, (long long)d,
               dtype_name(t));
    set_sink(&c, shape, t);
    float *o = array_random(n, F32, 1.0), *lse = array_random(rows * heads, F32, 3.0);
    for (int64_t i = 0; i < rows * heads; i++) {
        const int64_t at = i % heads * rows + i / heads;
        const int kind = emptiness(i);
        if (kind == OLD_EMPTY || kind == NONE)
            lse[at] = -INFINITY;
        if (kind == NOT_A_NUMBER)
            lse[at] = NAN;
        if (i % 3 == 0 && kind == BOTH)
            lse[at] += i % 2 ? 200.0f : -200.0f; /* exp underflows */
    }
    close_to(case_arg(&c, o, n, F32, INOUT), 8, 3e-6); /* the errors are those of a merge */
    close_to(case_arg(&c, lse, rows * heads, F32, INOUT), 4, 5e-7);
    case_arg(&c, array_random(3 * (heads + 1), t, 1.0), 3 * (heads + 1), t, IN);
    case_record(&c);
    case_run(&c);
    arrays_free();
}

static void check_sink_gradient(const int64_t *shape, enum dtype t)
{
    struct twin_case c;
    const int64_t rows = shape[0], heads = shape[1], n = 3 * (heads + 1);
    case_start(&c, OP_ATTN_SINK_GRAD, "attn_sink_grad %lld x %lld %s", (long long)rows, (long long)heads, dtype_name(t));
    set_sink(&c, shape, t);
    float *sinks = array_random(n, F32, 1.0), *lse = array_random(rows * heads, F32, 1.0);
    for (int64_t i = 0; i < rows * heads; i++)
        lse[i] = fabsf(lse[i]) + 4; /* above the sinks */
    void *stored = sinks;
    for (int64_t i = 0; i < n && t == BF16; i++)
        ((bf16 *)stored)[i] = bf16_from_float(sinks[i]);
    /* Both sides sum terms below 1 in fp64, whose exponentials differ by some units, and round the sum. */
    close_to(case_arg(&c, array_random(n, F32, 1.0), n, F32, INOUT), 4, 5e-7 * sqrt((double)rows));
    case_arg(&c, stored, n, t, IN);
    case_arg(&c, lse, rows * heads, F32, IN);
    case_arg(&c, array_random(rows * heads, F32, 1.0), rows * heads, F32, IN);
    case_record(&c);
    case_run(&c);
    arrays_free();
}

/* Checks a copy from the middle of wide rows into the middle of others; columns beside the written ones keep their values. */
static void check_columns(int64_t rows, int64_t cols, int64_t first, enum dtype to, enum dtype from)
{
    struct twin_case c;
    const int64_t y_ld = first + cols + 8, x_ld = cols + 2 * first;
    case_start(&c, OP_COLUMNS, "columns %lld x %lld from %lld, %s to %s", (long long)rows, (long long)cols, (long long)first,
               dtype_name(from), dtype_name(to));
    c.attrs.columns.rows = rows;
    c.attrs.columns.cols = cols;
    c.attrs.columns.y_first = first;
    c.attrs.columns.x_first = 2 * first;
    c.attrs.columns.y_ld = y_ld;
    c.attrs.columns.x_ld = x_ld;
    c.attrs.columns.y_type = (int32_t)to;
    c.attrs.columns.x_type = (int32_t)from;
    c.attrs.columns.keep = 1;
    case_arg(&c, array_random(rows * y_ld, to, 1.0), rows * y_ld, to, INOUT);
    case_arg(&c, array_random(rows * x_ld, from, 1.0), rows * x_ld, from, IN);
    case_run(&c);
    arrays_free();
}

/* Checks joining heads from parts of their own and a shared one, and splitting their gradient: copies, and sums in one order. */
static void check_join(int64_t rows, int64_t heads, int64_t own, int64_t shared, enum dtype t)
{
    const int64_t all = rows * heads * (own + shared);
    for (int kind = 0; kind < 3; kind++) {
        struct twin_case c;
        case_start(&c, kind == 0 ? OP_HEADS_JOIN : OP_HEADS_SPLIT, "heads %lld x %lld x (%lld + %lld) %s %d", (long long)rows,
                   (long long)heads, (long long)own, (long long)shared, dtype_name(t), kind);
        c.attrs.join.rows = rows;
        c.attrs.join.heads = (int32_t)heads;
        c.attrs.join.own = (int32_t)own;
        c.attrs.join.shared = (int32_t)shared;
        c.attrs.join.dtype = (int32_t)(kind == 0 ? t : F32);
        c.attrs.join.accumulate = kind == 2;
        if (kind == 0) {
            case_arg(&c, array_new(all * dtype_size(t)), all, t, OUT);
            case_arg(&c, array_random(rows * heads * own, t, 1.0), rows * heads * own, t, IN);
            case_arg(&c, array_random(rows * shared, t, 1.0), rows * shared, t, IN);
        } else {
            case_arg(&c, array_new(rows * heads * own * 4), rows * heads * own, F32, OUT);
            case_arg(&c, array_random(rows * shared, F32, 1.0), rows * shared, F32, kind == 2 ? INOUT : OUT);
            case_arg(&c, array_random(all, F32, 1.0), all, F32, IN);
        }
        case_run(&c);
        arrays_free();
    }
}

void test_heads(void)
{
    for (int t = F32; t <= BF16; t++) {
        check_join(1, 1, 1, 1, (enum dtype)t);
        check_join(5, 3, 12, 8, (enum dtype)t);
        check_join(130, 2, 128, 64, (enum dtype)t);
    }
    static const int64_t long_ones[] = {2500, 3, 8};
    check_sink_gradient(long_ones, F32);
    static const int64_t columns[][3] = {{1, 1, 0}, {5, 16, 8}, {70, 24, 16}, {3, 13, 5}, {9, 16, 4}, {2, 2056, 8}};
    for (size_t s = 0; s < sizeof columns / sizeof *columns; s++)
        for (int types = 0; types < 4; types++)
            check_columns(columns[s][0], columns[s][1], columns[s][2], (enum dtype)(types / 2), (enum dtype)(types % 2));
    for (int s = 0; s < N_SHAPES; s++) {
        check_merge(SHAPES[s]);
        for (int t = F32; t <= BF16; t++) {
            check_delta(SHAPES[s], (enum dtype)t);
            check_sink(SHAPES[s], (enum dtype)t);
            check_sink_gradient(SHAPES[s], (enum dtype)t);
        }
    }
}
